/* tests/test_pages.c - what sim/plugins.md shows compiles, runs, and prints what it says.
 *
 * Method: the page's own code blocks, against what `make install` leaves: the C line and the CUDA
 * kernel are built as written, and every "$ command" of a console block must print what stands
 * below it. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tests/installed.h"
#include "tests/support.h"

/* Block number index of the page's blocks in that language, without the fences. */
static const char *block(const char *language, int index)
{
    const char *at = test_read(test_tree_path("sim/plugins.md"), NULL);
    const char *fence = test_format("\n```%s\n", language);
    for (int i = 0; i <= index; i++) {
        at = strstr(at, fence);
        ck_assert_msg(at != NULL, "sim/plugins.md: fewer than %d blocks of %s", index + 1,
                      language);
        at += strlen(fence);
    }
    const char *end = strstr(at, "\n```\n");
    ck_assert_ptr_nonnull(end);
    return test_format("%.*s\n", (int)(end - at), at);
}

/* What a script prints that runs in folder, where tests is the tree's, and finds the installed
 * program and library. */
static const char *installed_shell(const char *folder, const char *script)
{
    return shell(folder, test_format("cd \"$D\"; export PKG_CONFIG_PATH=$D/usr/lib/pkgconfig\n"
                                     "export PATH=$D/usr/bin:$PATH\n%s",
                                     script));
}

/* A folder with everything installed, and the example beside it. */
static const char *installed(void)
{
    const char *folder = test_temp_dir();
    installed_shell(folder,
                    "make -s -C \"$T\" install-files BUILD=\"${E%/epsim}\" PREFIX=\"$D/usr\"\n"
                    "ln -s \"$T/tests\" tests\n"
                    "cp usr/share/epsim/plugin_example.c .\n");
    return folder;
}

START_TEST(consoles_print_what_the_page_says)
{
    if (cannot_run(__func__)) return;
    const char *folder = installed();
    int commands = 0;
    installed_shell(folder, block("sh", 0)); /* gcc ... -o mine.so */
    for (int b = 0; b < 3; b++) {
        const char *at = block("console", b);
        while (*at != '\0') {
            ck_assert_msg(strncmp(at, "$ ", 2) == 0, "no command: %s", at);
            const size_t length = strcspn(at, "\n");
            const char *command = test_format("%.*s\n", (int)length - 2, at + 2);
            const char *next = strstr(at + length, "\n$ ");
            const char *said =
                next != NULL
                    ? test_format("%.*s\n", (int)(next - at - (long)length) - 1, at + length + 1)
                    : at + length + 1;
            ck_assert_str_eq(installed_shell(folder, command), said);
            at = next != NULL ? next + 1 : "";
            commands++;
        }
    }
    ck_assert_int_eq(commands, 4);
}
END_TEST

START_TEST(the_header_is_enough_for_cxx)
{
    if (cannot_run(__func__)) return;
    if (!test_has_program("g++")) {
        test_skip("no g++");
        return;
    }
    const char *folder = installed();
    test_write_text(folder, "mine.cpp",
                    "#include <sim/backend.h>\n"
                    "extern \"C\" const struct sim_backend_ops *example_backend(void);\n"
                    "extern \"C\" const struct sim_backend_ops *sim_backend_v1(void)\n"
                    "{\n"
                    "    static sim_backend_ops table = *example_backend();\n"
                    "    table.name = \"from C++\";\n"
                    "    return &table;\n"
                    "}\n");
    installed_shell(
        folder, "gcc -ffp-contract=off -fPIC -Dsim_backend_v1=example_backend \\\n"
                "    -c plugin_example.c $(pkg-config --cflags epsim_ref)\n"
                "g++ -Wall -Wextra -Wpedantic -Werror -shared -fPIC mine.cpp plugin_example.o \\\n"
                "    -o mine.so $(pkg-config --cflags epsim_ref)\n"
                "epsim verify --golden tests/golden --backend ./mine.so");
}
END_TEST

START_TEST(the_kernel_compiles)
{
    if (cannot_run(__func__)) return;
    if (!test_has_program("nvcc")) {
        test_skip("no nvcc");
        return;
    }
    const char *folder = installed(), *script = block("sh", 1);
    const char *verify = strstr(script, "epsim verify"); /* Needs a GPU. */
    ck_assert_ptr_nonnull(verify);
    test_write_text(folder, "mine.cu", block("cuda", 0));
    installed_shell(folder, test_format("%.*s", (int)(verify - script), script));
    installed_shell(folder, "test -s mine.so");
}
END_TEST

Suite *pages_suite(void)
{
    TCase *tcase = tcase_create("pages");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, consoles_print_what_the_page_says);
    tcase_add_test(tcase, the_header_is_enough_for_cxx);
    tcase_add_test(tcase, the_kernel_compiles);
    Suite *suite = suite_create("pages");
    suite_add_tcase(suite, tcase);
    return suite;
}
