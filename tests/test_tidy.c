/* tests/test_tidy.c - every rule of tools/tidy.sh passes good code and names bad code.
 *
 * Method: a scratch tree with one good file, then one broken file at a time. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "tests/support.h"

static const char *const good_header = "/* fabric/good.h - \"double\" in words is fine. */\n"
                                       "#ifndef FABRIC_GOOD_H\n"
                                       "#define FABRIC_GOOD_H\n"
                                       "\n"
                                       "#include <stdint.h>\n"
                                       "\n"
                                       "uint64_t fabric_good(uint64_t a_ps);\n"
                                       "\n"
                                       "#endif\n";

static const char *make_tree(void)
{
    const char *tree = test_temp_dir();
    static const char *const folders[] = {"ref", "fabric", "traces", "kernels",
                                          "sim", "tools",  "tests"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        struct test_output output;
        const char *const argv[] = {"mkdir", test_join(tree, folders[i]), NULL};
        ck_assert_int_eq(test_run(argv, &output), 0);
    }
    test_write_text(tree, ".clang-format", test_read(test_tree_path(".clang-format"), NULL));
    test_write_text(tree, "fabric/good.h", good_header);
    return tree;
}

static int tidy(const char *tree, struct test_output *output)
{
    const char *const argv[] = {test_tree_path("tools/tidy.sh"), tree, NULL};
    return test_run(argv, output);
}

static bool has_tools(void)
{
    return test_has_program("clang-format") &&
           (test_has_program("g++") || test_has_program("clang++"));
}

START_TEST(a_good_tree_passes)
{
    if (!has_tools()) {
        test_skip("no clang-format or C++ compiler");
        return;
    }
    struct test_output output;
    const int status = tidy(make_tree(), &output);
    ck_assert_msg(status == 0, "%s%s", output.out, output.err);
    ck_assert_str_eq(output.out, "tidy: ok, 1 files\n");
}
END_TEST

/* One broken file each: its name, its text, and what tidy must say about it. */
static const struct {
    const char *name, *text, *complaint;
} broken[] = {
    {"fabric/a.c", "#include \"traces/npy.h\"\n",
     "fabric/a.c:1: fabric/ must not include \"traces/npy.h\"\n"},
    {"ref/a.c", "\n#include \"sim/engine.h\"\n",
     "ref/a.c:2: ref/ must not include \"sim/engine.h\"\n"},
    {"kernels/a.cu", "#include \"ref/quantise.h\"\n",
     "kernels/a.cu:1: kernels/ must not include \"ref/quantise.h\"\n"},
    {"sim/a.c", "#include \"tools/options.h\"\n",
     "sim/a.c:1: sim/ must not include \"tools/options.h\"\n"},
    {"tools/a.c", "#include \"tests/support.h\"\n",
     "tools/a.c:1: tools/ must not include \"tests/support.h\"\n"},
    {"tests/plugin_a.c", "#include \"ref/layout.h\"\n",
     "tests/plugin_a.c:1: tests/ must not include \"ref/layout.h\"\n"},
    {"sim/b.c", "#include \"engine.h\"\n", "sim/b.c:1: include by folder, not \"engine.h\"\n"},
    {"sim/c.c", "int sim_c(void)\n{\n    double d = 1;\n    return (int)d;\n}\n",
     "sim/c.c:3: double outside the files for statistics, fits and generators\n"},
    {"fabric/c.c", "#include <time.h>\n\nlong fabric_c(void)\n{\n    return (long)time(NULL);\n}\n",
     "fabric/c.c:5: wall clock or libc random numbers in a model\n"},
    {"ref/d.c", "#include <stdlib.h>\n\nvoid *ref_d(void)\n{\n    return malloc(1);\n}\n",
     "ref/d.c:5: allocates in ref_d, not in a function that opens or loads something\n"},
    {"ref/e.c", "#define REF_HOT\n\nREF_HOT void ref_e(void);\n",
     "ref/e.c:3: REF_HOT on a function that is not static, which clang cannot link\n"},
    {"traces/e.h", "#ifndef E\n#define E\nint trace_e(size_t n);\n#endif\n",
     "traces/e.h:1: does not compile alone in C\ntraces/e.h:1: does not compile alone in C++\n"},
    {"traces/f.h", "int trace_f(int class);\n", "traces/f.h:1: does not compile alone in C++\n"},
    {"tools/g.c", "int  tools_g;\n", "tools/g.c:1: not as clang-format -i leaves it\n"},
    {"tools/h.c", "/* \xc3\xa9 */\n", "tools/h.c:1: not ASCII\n"},
};

START_TEST(a_broken_file_is_named)
{
    if (!has_tools()) {
        test_skip("no clang-format or C++ compiler");
        return;
    }
    const char *tree = make_tree();
    test_write_text(tree, broken[_i].name, broken[_i].text);
    struct test_output output;
    ck_assert_int_eq(tidy(tree, &output), 1);
    ck_assert_str_eq(output.out, broken[_i].complaint);
}
END_TEST

/* A function of so many lines in all, behind two lines of something else. */
static void write_function(char *text, size_t room, int lines)
{
    size_t length = (size_t)snprintf(text, room, "int first;\n\nvoid tools_long(void)\n{\n");
    for (int i = 0; i < lines - 3; i++)
        length += (size_t)snprintf(text + length, room - length, "    first++;\n");
    snprintf(text + length, room - length, "}\n");
}

START_TEST(lengths_are_allowed_up_to_their_limit)
{
    if (!has_tools()) {
        test_skip("no clang-format or C++ compiler");
        return;
    }
    const char *tree = make_tree();
    static char text[8192];
    struct test_output output;

    write_function(text, sizeof(text), 70);
    test_write_text(tree, "tools/a.c", text);
    memset(text, '\n', 500);
    test_write(tree, "tools/b.sh", text, 500);
    memset(text, '#', 100);
    test_write(tree, "tools/c.sh", text, 100);
    const int status = tidy(tree, &output);
    ck_assert_msg(status == 0, "%s", output.out);

    write_function(text, sizeof(text), 71);
    test_write_text(tree, "tools/a.c", text);
    memset(text, '\n', 501);
    test_write(tree, "tools/b.sh", text, 501);
    memset(text, '#', 101);
    test_write(tree, "tools/c.sh", text, 101);
    ck_assert_int_eq(tidy(tree, &output), 1);
    ck_assert_str_eq(output.out, "tools/a.c:3: tools_long has 71 lines, at most 70\n"
                                 "tools/b.sh:501: file of more than 500 lines\n"
                                 "tools/c.sh:1: line of 101 columns, at most 100\n");
}
END_TEST

Suite *tidy_suite(void)
{
    TCase *tcase = tcase_create("tidy");
    tcase_add_test(tcase, a_good_tree_passes);
    tcase_add_loop_test(tcase, a_broken_file_is_named, 0, sizeof(broken) / sizeof(broken[0]));
    tcase_add_test(tcase, lengths_are_allowed_up_to_their_limit);
    Suite *suite = suite_create("tidy");
    suite_add_tcase(suite, tcase);
    return suite;
}
