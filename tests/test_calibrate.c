/* tests/test_calibrate.c - the fit finds what made the data, and says what it cannot find.
 *
 * Method: the numerical half on a law whose answer is known; then rows that the model itself
 * predicts for a machine, with spikes, fitted from a machine whose numbers are wrong: what the
 * rows determine must come back, and the file must stay a file that people wrote. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/calibrate.h"
#include "sim/fit.h"
#include "sim/predict.h"
#include "tests/support.h"

Suite *calibrate_suite(void);

/* y = a x + b at x = 1..12, a = 3, b = 10; the third number c touches nothing. */
enum { POINTS = 12 };
struct law {
    double y[POINTS];
    unsigned calls;
};

static int law_residuals(void *context, const double *value, size_t parameter, double *residual,
                         char *err, size_t err_len)
{
    struct law *law = (struct law *)context;
    (void)parameter;
    (void)err;
    (void)err_len;
    law->calls++;
    for (int i = 0; i < POINTS; i++) residual[i] = (value[0] * (i + 1) + value[1]) / law->y[i] - 1;
    return 0;
}

/* A fit of the law; arrays are the caller's. */
static struct sim_fit fit_of(struct law *law, size_t parameters, double *value, const double *min,
                             const double *max, double *error)
{
    return (struct sim_fit){.parameters = parameters,
                            .residuals = POINTS,
                            .value = value,
                            .min = min,
                            .max = max,
                            .relative_error = error,
                            .knee = 0.02,
                            .pull = 10,
                            .rounds = 60,
                            .context = law,
                            .evaluate = law_residuals};
}

START_TEST(the_fit_finds_a_line_under_a_spike)
{
    struct law law = {.calls = 0};
    double value[3] = {1, 30, 7}, error[3], loss;
    const double min[3] = {1e-3, 1e-3, 1e-3}, max[3] = {1e3, 1e3, 1e3};
    char err[128];
    struct sim_fit fit = fit_of(&law, 3, value, min, max, error);
    for (int i = 0; i < POINTS; i++) law.y[i] = 3 * (i + 1) + 10;
    law.y[6] *= 2;
    ck_assert_int_eq(sim_fit_run(&fit, &loss, err, sizeof err), 0);
    ck_assert_double_eq_tol(value[0], 3, 0.06);
    ck_assert_double_eq_tol(value[1], 10, 0.2);
    ck_assert_double_eq_tol(value[2], 7, 1e-6);
    ck_assert_double_lt(error[0], 0.3);
    ck_assert_double_ge(error[2], 1);
}
END_TEST

START_TEST(a_limit_holds)
{
    struct law law = {.calls = 0};
    double value[2] = {1, 30}, error[2], loss;
    const double min[2] = {1e-3, 20}, max[2] = {1e3, 1e3};
    char err[128];
    struct sim_fit fit = fit_of(&law, 2, value, min, max, error);
    for (int i = 0; i < POINTS; i++) law.y[i] = 3 * (i + 1) + 10;
    ck_assert_int_eq(sim_fit_run(&fit, &loss, err, sizeof err), 0);
    ck_assert_double_eq_tol(value[1], 20, 1e-9);
}
END_TEST

static char FILE_TEXT[] = "# Mine.\n"
                          "inherits: h200-hgx\n"
                          "nvlink_flight_us: 0.7\n"
                          "ll:\n"
                          "  # a remark\n"
                          "  token_chain_us: 0.30   # fitted to nothing yet\n"
                          "  publish_us: 2.5 # measured elsewhere\n"
                          "  receive_gbytes_per_s: 1200\n"
                          "normal:\n"
                          "  poll_us: 0.8\n"
                          "stacks:\n"
                          "  new-build:\n"
                          "    ll:\n"
                          "      dispatch_launch_ns: 1500\n"
                          "    normal: {poll_us: 1}\n"
                          "  other:\n"
                          "    ll: {poll_us: 1}\n";

static const struct sim_calibrate_file mine = {
    .name = "mine", .text = FILE_TEXT, .bytes = sizeof FILE_TEXT - 1};

START_TEST(numbers_without_a_comment_may_move)
{
    struct sim_knob knobs[8];
    char err[128];
    ck_assert_int_eq(sim_knobs_find(&mine, 0, "", knobs, 8, err, sizeof err), 4);
    ck_assert_str_eq(knobs[0].key, "token_chain_us");
    ck_assert_uint_eq(knobs[0].before, 300000);
    ck_assert_str_eq(knobs[1].key, "receive_gbytes_per_s");
    ck_assert_uint_eq(knobs[1].before, 1200000000000);
    ck_assert_str_eq(knobs[2].field->section, "normal");
    ck_assert_str_eq(knobs[3].stack, "new-build");
    ck_assert_uint_eq(knobs[3].before, 1500000);
    ck_assert_int_eq(sim_knobs_find(&mine, 0, "ll", knobs, 8, err, sizeof err), 3);
    ck_assert_int_eq(sim_knobs_find(&mine, 0, "", knobs, 2, err, sizeof err), -1);
    ck_assert_str_eq(err, "mine: more than 160 numbers may move");
}
END_TEST

START_TEST(the_file_keeps_all_but_its_numbers)
{
    struct sim_knob knobs[8];
    char err[128];
    size_t new_bytes;
    ck_assert_int_eq(sim_knobs_find(&mine, 0, "ll", knobs, 8, err, sizeof err), 3);
    knobs[0].after = 1234;
    knobs[2].after = 2000000;
    char *text = sim_knobs_write(&mine, 0, knobs, 3, &new_bytes);
    ck_assert_uint_eq(new_bytes, strlen(text));
    TEST_SAYS(text, "  token_chain_us: 0.001234   # fitted to nothing yet\n");
    TEST_SAYS(text, "  receive_gbytes_per_s: 1200\nnormal:\n");
    TEST_SAYS(text, "      dispatch_launch_ns: 2000\n    normal:");
    free(text);
}
END_TEST

/* Rows as the model times h200-hgx, one in ten at three times that; then a file that says three
 * of its numbers wrong. One node: nothing can be learned of NICs. */
START_TEST(wrong_numbers_come_back_from_rows_with_spikes)
{
    static const uint32_t TOKENS[] = {1, 16, 64, 128, 256};
    struct sim_measured_row rows[20];
    struct sim_measured measured = {SIM_MEASURED_CALIBRATE, 0, rows};
    uint64_t predicted_ps[20];
    char err[512] = "";
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < 20; i++) {
        struct sim_measured_row *row = &rows[measured.count++];
        snprintf(row->id, sizeof row->id, "%d", i);
        snprintf(row->machine, sizeof row->machine, "h200-hgx");
        snprintf(row->mode, sizeof row->mode, "ll");
        snprintf(row->op, sizeof row->op, "%s", i % 2 ? "combine" : "dispatch");
        snprintf(row->dtype, sizeof row->dtype, "fp8");
        row->nodes = 1;
        row->gpus_per_node = row->ep = 8;
        row->tokens = TOKENS[i / 2 % 5];
        row->hidden = i < 10 ? 7168 : 2048;
        row->topk = i < 10 ? 8 : 2;
        row->experts = i < 10 ? 64 : 8;
    }
    const struct sim_predict_options plain = {.threads = 1};
    ck_assert_msg(sim_predict(&measured, &plain, predicted_ps, NULL, err, sizeof err) == 0, "%s",
                  err);
    for (int i = 0; i < 20; i++) rows[i].measured_ps = predicted_ps[i] * (i % 10 == 7 ? 3 : 1);

    struct fabric_machine truth;
    ck_assert_int_eq(fabric_machine_load("h200-hgx", &truth, err, sizeof err), 0);
    const struct fabric_ll_costs *costs = &truth.costs.ll;
    char text[1024];
    snprintf(text, sizeof text,
             "inherits: h200-hgx\nll:\n  publish_ps: %llu\n  token_chain_ps: %llu\n"
             "  combine_path_bytes_per_s: %llu\n  nic_flag_ps: 40000\n",
             (unsigned long long)(costs->publish_ps * 2),
             (unsigned long long)(costs->token_chain_ps * 3),
             (unsigned long long)(costs->combine_path_bytes_per_s / 2));
    const char *path = test_write_text(test_temp_dir(), "h200-hgx.yaml", text);
    struct sim_calibrate_file file;
    ck_assert_int_eq(sim_calibrate_file_read(path, &file, err, sizeof err), 0);
    const struct sim_calibrate_options options = {
        .files = &file, .file_count = 1, .mode = "", .threads = 1, .rounds = 20};
    struct sim_calibration made;
    ck_assert_msg(sim_calibrate(&measured, &options, &made, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(made.knob_count, 4);
    ck_assert_uint_eq(made.rows, 20);
    ck_assert_double_gt(made.median_before, 0.05);
    ck_assert_double_lt(made.median_after, 0.01);
    const double want[] = {(double)costs->publish_ps, (double)costs->token_chain_ps,
                           (double)costs->combine_path_bytes_per_s};
    for (int k = 0; k < 3; k++) {
        const double ratio = (double)made.knobs[k].after / want[k];
        ck_assert_msg(ratio > 0.9 && ratio < 1.1, "%s: %f of what it was", made.knobs[k].key,
                      ratio);
        ck_assert_double_lt(made.knobs[k].relative_error, 0.5);
    }
    ck_assert_uint_eq(made.knobs[3].after, 40000);
    ck_assert_double_ge(made.knobs[3].relative_error, 1);
    size_t bytes;
    char *fitted = sim_knobs_write(&file, 0, made.knobs, made.knob_count, &bytes);
    ck_assert_int_eq(fabric_machine_parse("again.yaml", fitted, bytes, &truth, err, sizeof err), 0);
    ck_assert_uint_eq(truth.costs.ll.publish_ps, made.knobs[0].after);
    ck_assert_uint_eq(made.machines[0]->costs.ll.publish_ps, made.knobs[0].after);
    free(fitted);
    sim_calibrate_files_free(&file, 1);
    sim_calibration_free(&made);
}
END_TEST

/* Two rows, two files, one number each; what stands is far off, what the comments say is not. */
START_TEST(a_fit_starts_from_the_comment_whatever_stands)
{
    const char *folder = test_temp_dir();
    const char *csv = test_write_text(
        folder, "a.csv",
        "id,machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"
        "dispatch_dtype,comm_sms,us\n"
        "a,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,22\n"
        "b,b200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,31\n"
        "c,h200-hgx,1,8,normal,combine,8,16,7168,8,256,fp8,8,90\n");
    static const char *const stands[] = {"2", "700"};
    char *written[2][2];
    for (int i = 0; i < 2; i++) {
        char text[256];
        struct test_output output;
        snprintf(text, sizeof text,
                 "inherits: h200-hgx\nll:\n  dispatch_launch_us: %s # fitted from 3\n"
                 "normal:\n  combine_call_us: %s  # fitted from 30, by rows of one\n",
                 stands[i], stands[i]);
        const char *one = test_write_text(folder, "h200-hgx.yaml", text);
        snprintf(text, sizeof text,
                 "inherits: b200-hgx\nll:\n  dispatch_launch_us: %s # fitted from 3\n", stands[i]);
        const char *two = test_write_text(folder, "b200-hgx.yaml", text);
        const char *out = test_join(folder, i ? "second" : "first");
        char both[2100];
        snprintf(both, sizeof both, "%s,%s", one, two);
        ck_assert_int_eq(mkdir(out, 0700), 0);
        TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", both, "-o", out);
        ck_assert_msg(output.status == 0, "%s", output.err);
        written[i][0] = test_read(test_join(out, "h200-hgx.yaml"), NULL);
        written[i][1] = test_read(test_join(out, "b200-hgx.yaml"), NULL);
    }
    for (int f = 0; f < 2; f++) {
        ck_assert_str_eq(written[0][f], written[1][f]);
        TEST_SAYS(written[0][f], " # fitted from 3\n");
        ck_assert_ptr_null(strstr(written[0][f], "us: 2 #"));
    }
}
END_TEST

START_TEST(the_command_refuses_in_one_line)
{
    const char *folder = test_temp_dir();
    const char *csv = test_write_text(
        folder, "a.csv",
        "machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"
        "dispatch_dtype,comm_sms,us\nh200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,12\n");
    const char *empty = test_write_text(folder, "b.yaml", "inherits: h200-hgx\n");
    const char *out = test_join(folder, "out.yaml");
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "-o", out);
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", empty, "-o", out);
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "no number may move");
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", "none.yaml", "-o", out);
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", empty, "-o", out, "--mode",
               "fast");
    ck_assert_int_eq(output.status, 2);
    ck_assert(!test_exists(out));
    const char *known = test_write_text(folder, "h200-hgx.yaml",
                                        "inherits: h200-hgx\nll:\n  dispatch_launch_us: 2\n");
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", known, "-o", out, "--json");
    ck_assert_msg(output.status == 0, "%s", output.err);
    ck_assert(test_exists(out));
}
END_TEST

Suite *calibrate_suite(void)
{
    Suite *suite = suite_create("calibrate");
    TCase *tests = tcase_create("calibrate");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_fit_finds_a_line_under_a_spike);
    tcase_add_test(tests, a_limit_holds);
    tcase_add_test(tests, numbers_without_a_comment_may_move);
    tcase_add_test(tests, the_file_keeps_all_but_its_numbers);
    tcase_add_test(tests, wrong_numbers_come_back_from_rows_with_spikes);
    tcase_add_test(tests, a_fit_starts_from_the_comment_whatever_stands);
    tcase_add_test(tests, the_command_refuses_in_one_line);
    suite_add_tcase(suite, tests);
    return suite;
}
