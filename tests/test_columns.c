/* tests/test_columns.c - what people read fits 100 columns.
 *
 * Method: the help of every command that `epsim --help` lists, and tables that are wide: many
 * columns, long words, a refusal. */
#include <check.h>
#include <string.h>
#include "tests/support.h"

enum { WIDTH = 100 };

Suite *columns_suite(void);

static void check_width(const char *what, const char *text)
{
    ck_assert_msg(text[0] != '\0', "%s prints nothing", what);
    for (const char *at = text; *at != '\0';) {
        const size_t length = strcspn(at, "\n");
        ck_assert_msg(length <= WIDTH, "%s: %zu columns: %.*s", what, length, (int)length, at);
        at += length + (at[length] == '\n');
    }
}

START_TEST(help_of_every_command)
{
    struct test_output list, help;
    int commands = 0;

    TEST_EPSIM(&list, "--help");
    ck_assert_int_eq(list.status, 0);
    check_width("epsim", list.out);
    const char *names = test_format("%s", list.out);
    for (const char *line = strstr(names, "\n  "); line; line = strstr(line + 1, "\n  ")) {
        if (line[3] == '-') continue; /* --version */
        const char *name = test_format("%.*s", (int)strcspn(line + 3, " "), line + 3);
        TEST_EPSIM(&help, name, "--help");
        ck_assert_msg(help.status == 0, "%s: %s", name, help.err);
        ck_assert_msg(strncmp(help.out, "usage: epsim ", 13) == 0, "%s", help.out);
        check_width(name, help.out);
        commands++;
    }
    ck_assert_int_ge(commands, 17);
}
END_TEST

START_TEST(help_folds_an_example_as_the_shell_does)
{
    struct test_output help;
    TEST_EPSIM(&help, "replay", "--help");
    TEST_SAYS(help.out, " \\\n      --");
}
END_TEST

START_TEST(wide_tables)
{
    struct test_output output;
    TEST_EPSIM(&output, "models");
    check_width("models", output.out);
    TEST_EPSIM(&output, "machines");
    check_width("machines", output.out);
    TEST_EPSIM(&output, "run", "--ep", "256", "--layers", "1", "--context", "64", "--overlap",
               "tbo");
    ck_assert_msg(output.status == 0, "%s", output.err);
    check_width("run", output.out);
    ck_assert_ptr_null(strstr(output.out, "too few"));
    TEST_EPSIM(&output, "run", "--layers", "1", "--context", "100000");
    ck_assert_msg(output.status == 0, "%s", output.err);
    check_width("run", output.out); /* 128 requests a rank, and a new row each. */
    TEST_SAYS(output.out, "fullest rank need 12800128 tokens\n");
    TEST_EPSIM(&output, "sweep", "--layers", "1");
    TEST_SAYS(output.out, "a step is dispatch and combine of the layers");
    TEST_EPSIM(&output, "sweep", "--machine", "h100-hgx,b200-hgx", "--ep", "8,7", "--mode",
               "ll,normal", "--overlap", "none,tbo", "--tokens", "16,32", "--layers", "1",
               "--context", "4096");
    ck_assert_msg(output.status == 0, "%s", output.err);
    check_width("sweep", output.out);
    TEST_SAYS(output.out, "\nrefused   experts_divide: 256 experts on 7");
    ck_assert_ptr_null(strstr(output.out, "refused: refused"));
}
END_TEST

Suite *columns_suite(void)
{
    TCase *tcase = tcase_create("columns");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, help_of_every_command);
    tcase_add_test(tcase, help_folds_an_example_as_the_shell_does);
    tcase_add_test(tcase, wide_tables);
    Suite *suite = suite_create("columns");
    suite_add_tcase(suite, tcase);
    return suite;
}
