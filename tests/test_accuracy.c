/* tests/test_accuracy.c - error statistics by hand, and the command's contract.
 *
 * Method: five rows with invented predictions, answers worked out on paper; then the command on a
 * small file of our own and on broken ones. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "sim/accuracy.h"
#include "tests/support.h"

Suite *accuracy_suite(void);

static struct sim_measured_row row(const char *machine, const char *op, const char *grade)
{
    struct sim_measured_row made = {.ep = 8, .measured_ps = 1000};
    strcpy(made.machine, machine);
    strcpy(made.mode, "ll");
    strcpy(made.op, op);
    strcpy(made.grade, grade);
    return made;
}

START_TEST(medians_percentiles_and_bias_by_hand)
{
    struct sim_measured_row rows[] = {row("a", "dispatch", "A"), row("a", "combine", "A"),
                                      row("a", "dispatch", "B"), row("a", "dispatch", "C"),
                                      row("b", "dispatch", "A")};
    const struct sim_measured measured = {SIM_MEASURED_CALIBRATE, 5, rows};
    /* Signed errors: 0.1, -0.2, -0.3, 1.0, 0.6. */
    const uint64_t predicted_ps[] = {1100, 800, 700, 2000, 1600};
    struct sim_accuracy_group groups[5];
    char err[128];
    ck_assert_int_eq(sim_accuracy_groups(&measured, predicted_ps, groups, err, sizeof err), 3);
    /* a, dispatch: 0.1, 0.3, 1.0: median 0.3, 90th percentile the third, bias 0.8 / 3. */
    ck_assert_str_eq(groups[0].machine, "a");
    ck_assert_uint_eq(groups[0].count, 3);
    ck_assert_double_eq_tol(groups[0].median, 0.3, 1e-12);
    ck_assert_double_eq_tol(groups[0].p90, 1.0, 1e-12);
    ck_assert_double_eq_tol(groups[0].bias, 0.8 / 3, 1e-12);
    ck_assert_str_eq(groups[1].op, "combine");
    ck_assert_str_eq(groups[2].machine, "b");
    /* Grades A and B: 0.1, 0.2, 0.3, 0.6: median 0.25; all but the last within 1.5x. */
    const struct sim_accuracy_group all = sim_accuracy_over(&measured, predicted_ps, "ll", "AB");
    ck_assert_uint_eq(all.count, 4);
    ck_assert_double_eq_tol(all.median, 0.25, 1e-12);
    ck_assert_double_eq_tol(sim_accuracy_within(&measured, predicted_ps, "AB"), 0.75, 1e-12);
}
END_TEST

static const char HEADER[] =
    "id,machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,"
    "experts,dispatch_dtype,comm_sms,capacity,us,grade,stack,extra\n";

START_TEST(rows_come_out_in_the_order_of_the_file)
{
    char text[1024];
    struct test_output output;
    json_error_t error;
    snprintf(text, sizeof text, "%s%s", HEADER,
             "x2,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,16.0,A,never-heard-of,1\n"
             "x1,h100-hgx,1,8,ll,combine,8,8,7168,8,256,fp8,,128,14.0,A,,1\n"
             "x3,h200-hgx,1,8,normal,dispatch,8,128,7168,8,256,fp8,20,,40.0,A,,1\n");
    const char *path = test_write_text(test_temp_dir(), "any-name.csv", text);
    ck_assert_msg(TEST_EPSIM(&output, "accuracy", "--measured", path, "--json") == 0, "%s",
                  output.err);
    json_t *json = json_loadb(output.out, output.out_bytes, 0, &error);
    const json_t *rows = json_object_get(json, "rows");
    ck_assert_uint_eq(json_array_size(rows), 3);
    static const char *const IDS[] = {"x2", "x1", "x3"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(rows, i);
        ck_assert_str_eq(json_string_value(json_object_get(one, "id")), IDS[i]);
        const double predicted = json_number_value(json_object_get(one, "predicted_us"));
        const double us = json_number_value(json_object_get(one, "measured_us"));
        ck_assert_msg(predicted > us / 2 && predicted < us * 2, "%s: %f", IDS[i], predicted);
    }
    json_decref(json);
}
END_TEST

START_TEST(files_that_cannot_be_predicted_are_refused)
{
    const char *folder = test_temp_dir();
    char text[1024];
    struct test_output output;
    snprintf(text, sizeof text, "%s%s", HEADER,
             "x,no-such-machine,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,16.0,A,,1\n");
    TEST_EPSIM(&output, "accuracy", "--measured", test_write_text(folder, "a.csv", text));
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "no-such-machine"));
    TEST_EPSIM(&output, "accuracy", "--measured",
               test_write_text(folder, "b.csv", "id,machine\nx,h200-hgx\n"));
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "accuracy", "--measured", test_join(folder, "none.csv"));
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "accuracy");
    ck_assert_int_eq(output.status, 2);
}
END_TEST

Suite *accuracy_suite(void)
{
    Suite *suite = suite_create("accuracy");
    TCase *tests = tcase_create("accuracy");
    tcase_add_test(tests, medians_percentiles_and_bias_by_hand);
    tcase_add_test(tests, rows_come_out_in_the_order_of_the_file);
    tcase_add_test(tests, files_that_cannot_be_predicted_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
