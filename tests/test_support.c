/* tests/test_support.c - the helpers that other suites lean on tell the truth. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support.h"

#define RUN(output, ...) test_run((const char *const[]){__VA_ARGS__, NULL}, output)

START_TEST(run_gives_status_output_and_errors)
{
    struct test_output output;
    ck_assert_int_eq(RUN(&output, "sh", "-c", "echo one; echo two >&2; exit 7"), 7);
    ck_assert_str_eq(output.out, "one\n");
    ck_assert_str_eq(output.err, "two\n");
    ck_assert_uint_eq(output.out_bytes, 4);
}
END_TEST

START_TEST(run_does_not_hang_when_both_pipes_fill)
{
    struct test_output output;
    const char *script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero";
    ck_assert_int_eq(RUN(&output, "sh", "-c", script), 0);
    ck_assert_uint_eq(output.out_bytes, 300000);
    ck_assert_uint_eq(output.err_bytes, 300000);
}
END_TEST

START_TEST(run_names_signals_and_missing_programs)
{
    struct test_output output;
    ck_assert_int_eq(RUN(&output, "sh", "-c", "kill -9 $$"), 128 + 9);
    ck_assert_int_eq(RUN(&output, "/no/such/program"), 127);
    TEST_SAYS(output.err, "/no/such/program");
}
END_TEST

START_TEST(standard_input_is_empty)
{
    struct test_output output;
    ck_assert_int_eq(RUN(&output, "cat"), 0);
    ck_assert_uint_eq(output.out_bytes, 0);
}
END_TEST

START_TEST(temp_dirs_are_new_and_removed_whole)
{
    const char *one = test_temp_dir(), *two = test_temp_dir();
    ck_assert_str_ne(one, two);
    struct test_output output;
    ck_assert_int_eq(RUN(&output, "mkdir", "-p", test_join(one, "a/b")), 0);
    const char *path = test_write_text(one, "a/b/c", "text");
    size_t bytes = 0;
    ck_assert_str_eq(test_read(path, &bytes), "text");
    ck_assert_uint_eq(bytes, 4);
    test_remove(one);
    ck_assert(!test_exists(one));
    ck_assert(test_exists(two));
}
END_TEST

START_TEST(data_is_found_only_where_it_is)
{
    unsetenv("EPSIM_DATA");
    ck_assert_ptr_null(test_data_path("x"));
    const char *folder = test_temp_dir();
    test_write_text(folder, "x", "");
    setenv("EPSIM_DATA", folder, 1);
    ck_assert_str_eq(test_data_path("x"), test_join(folder, "x"));
    ck_assert_ptr_null(test_data_path("y"));
}
END_TEST

START_TEST(programs_are_found_in_path)
{
    ck_assert(test_has_program("sh"));
    ck_assert(!test_has_program("no-such-program-anywhere"));
}
END_TEST

Suite *support_suite(void)
{
    TCase *tcase = tcase_create("support");
    tcase_add_test(tcase, run_gives_status_output_and_errors);
    tcase_add_test(tcase, run_does_not_hang_when_both_pipes_fill);
    tcase_add_test(tcase, run_names_signals_and_missing_programs);
    tcase_add_test(tcase, standard_input_is_empty);
    tcase_add_test(tcase, temp_dirs_are_new_and_removed_whole);
    tcase_add_test(tcase, data_is_found_only_where_it_is);
    tcase_add_test(tcase, programs_are_found_in_path);
    Suite *suite = suite_create("support");
    suite_add_tcase(suite, tcase);
    return suite;
}
