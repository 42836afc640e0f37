/* tests/test_accuracy.c - error statistics by hand, and the command's contract.
 *
 * Method: few rows with invented predictions, answers worked out on paper; then the command on a
 * small file of our own and on broken ones. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/accuracy.h"
#include "sim/predict.h"
#include "tests/json.h"
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

/* Five rows with signed errors of 0.1, -0.2, -0.3, 1.0 and 0.6, and floors of half. */
static struct sim_accuracy judged(struct sim_measured_row rows[5])
{
    static const uint64_t predicted_ps[] = {1100, 800, 700, 2000, 1600};
    static const uint64_t floor_ps[] = {500, 500, 500, 500, 500};
    const struct sim_measured measured = {SIM_MEASURED_CALIBRATE, 5, rows};
    struct sim_accuracy accuracy;
    char err[128];
    ck_assert_int_eq(
        sim_accuracy_compute(&measured, predicted_ps, floor_ps, &accuracy, err, sizeof err), 0);
    return accuracy;
}

START_TEST(medians_percentiles_and_bias_by_hand)
{
    struct sim_measured_row rows[] = {row("a", "dispatch", "A"), row("a", "combine", "A"),
                                      row("a", "dispatch", "B"), row("a", "dispatch", "C"),
                                      row("b", "dispatch", "A")};
    struct sim_accuracy accuracy = judged(rows);
    /* Five groups (grades stand apart) and one total, LL of grades A and B. */
    ck_assert_uint_eq(accuracy.count, 6);
    const struct sim_accuracy_group *group = accuracy.groups;
    ck_assert_str_eq(group[0].machine, "a");
    ck_assert_str_eq(group[0].grade, "A");
    ck_assert_uint_eq(group[0].rows, 1);
    ck_assert_double_eq_tol(group[0].model.median, 0.1, 1e-12);
    ck_assert_str_eq(group[1].op, "combine");
    ck_assert_double_eq_tol(group[1].model.bias, -0.2, 1e-12);
    ck_assert_str_eq(group[2].grade, "B");
    ck_assert_str_eq(group[3].grade, "C");
    ck_assert_str_eq(group[4].machine, "b");
    sim_accuracy_free(&accuracy);
}
END_TEST

/* Grades A and B of the same: 0.1, -0.2, -0.3, 0.6. Median of sizes 0.25, of signed -0.05, the
 * 90th percentile is the fourth of four; 0.6 is outside 1.5x. A floor of half is -0.5. */
START_TEST(the_total_leaves_grade_c_out)
{
    struct sim_measured_row rows[] = {row("a", "dispatch", "A"), row("a", "combine", "A"),
                                      row("a", "dispatch", "B"), row("a", "dispatch", "C"),
                                      row("a", "dispatch", "A")};
    struct sim_accuracy accuracy = judged(rows);
    const struct sim_accuracy_group *all = &accuracy.groups[accuracy.count - 1];
    ck_assert_str_eq(all->machine, "all");
    ck_assert_uint_eq(all->rows, 4);
    ck_assert_uint_eq(all->within, 3);
    ck_assert_double_eq_tol(all->model.median, 0.25, 1e-12);
    ck_assert_double_eq_tol(all->model.p90, 0.6, 1e-12);
    ck_assert_double_eq_tol(all->model.bias, -0.05, 1e-12);
    ck_assert_double_eq_tol(all->rule.median, 0.5, 1e-12);
    sim_accuracy_free(&accuracy);
}
END_TEST

/* Points on 200 + 3 x tokens: the line finds them all; one point off shows. */
START_TEST(the_line_of_a_curve_is_exact_on_a_line)
{
    struct sim_measured_row rows[4];
    const uint64_t predicted_ps[4] = {1, 1, 1, 1};
    const struct sim_measured measured = {SIM_MEASURED_CALIBRATE, 4, rows};
    struct sim_accuracy accuracy;
    char err[128];
    for (uint32_t i = 0; i < 4; i++) {
        rows[i] = row("a", "dispatch", "A");
        rows[i].tokens = 10 * i * i;
        rows[i].measured_ps = 200 + 3 * rows[i].tokens;
    }
    ck_assert_int_eq(
        sim_accuracy_compute(&measured, predicted_ps, predicted_ps, &accuracy, err, sizeof err), 0);
    ck_assert_double_eq_tol(accuracy.groups[0].line.p90, 0, 1e-9);
    sim_accuracy_free(&accuracy);
    rows[3].measured_ps *= 2;
    ck_assert_int_eq(
        sim_accuracy_compute(&measured, predicted_ps, predicted_ps, &accuracy, err, sizeof err), 0);
    ck_assert_double_gt(accuracy.groups[0].line.p90, 0.05);
    sim_accuracy_free(&accuracy);
}
END_TEST

static const char HEADER[] =
    "id,machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,"
    "experts,dispatch_dtype,comm_sms,capacity,us,grade,stack,extra\n";

START_TEST(rows_come_out_in_the_order_of_the_file)
{
    char text[1024];
    struct test_output output;
    snprintf(text, sizeof text, "%s%s", HEADER,
             "x2,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,16.0,A,never-heard-of,1\n"
             "x1,h100-hgx,1,8,ll,combine,8,8,7168,8,256,fp8,,128,14.0,A,,1\n"
             "x3,h200-hgx,1,8,normal,dispatch,8,128,7168,8,256,fp8,20,,40.0,A,,1\n");
    const char *path = test_write_text(test_temp_dir(), "any-name.csv", text);
    ck_assert_msg(TEST_EPSIM(&output, "accuracy", "--measured", path, "--json") == 0, "%s",
                  output.err);
    json_t *json = test_json(&output);
    const json_t *rows = json_object_get(json, "rows");
    ck_assert_uint_eq(json_array_size(rows), 3);
    static const char *const IDS[] = {"x2", "x1", "x3"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(rows, i);
        ck_assert_str_eq(text_at(one, "id"), IDS[i]);
        const double predicted = number_at(one, "predicted_us");
        const double us = number_at(one, "measured_us");
        ck_assert_msg(predicted > us / 2 && predicted < us * 2, "%s: %f", IDS[i], predicted);
    }
    ck_assert_uint_eq(json_array_size(json_object_get(json, "groups")), 5);
    json_decref(json);
}
END_TEST

/* Machines without rows of their own are predicted with their parents' numbers, builds that nobody
 * knows with the machine's: both are told. */
START_TEST(whose_numbers_were_used_is_said)
{
    char text[1024];
    struct test_output output;
    json_error_t error;
    snprintf(text, sizeof text, "%s%s", HEADER,
             "x1,b300-hgx,2,8,ll,dispatch,16,8,4096,6,160,fp8,,128,25.0,A,never-heard-of,1\n"
             "x2,b300-hgx,2,8,ll,combine,16,8,4096,6,160,fp8,,128,25.0,A,never-heard-of,1\n"
             "x3,h100-hgx,1,8,normal,combine,8,8,7168,8,256,fp8,20,,50.0,A,,1\n");
    const char *path = test_write_text(test_temp_dir(), "unknown.csv", text);
    ck_assert_msg(TEST_EPSIM(&output, "accuracy", "--measured", path, "--json") == 0, "%s",
                  output.err);
    json_t *json = json_loadb(output.out, output.out_bytes, 0, &error);
    const json_t *machines = json_object_get(json, "machines");
    ck_assert_uint_eq(json_array_size(machines), 2);
    const json_t *b300 = json_array_get(machines, 0), *h100 = json_array_get(machines, 1);
    const json_t *files = json_object_get(json_object_get(b300, "costs"), "ll");
    ck_assert_uint_eq(json_object_size(files), 2);
    ck_assert_int_gt(json_integer_value(json_object_get(files, "b200-hgx")), 0);
    ck_assert_int_gt(json_integer_value(json_object_get(files, "h100-hgx")), 0);
    const json_t *unknown = json_object_get(b300, "unknown_stacks");
    ck_assert_uint_eq(json_array_size(unknown), 1);
    ck_assert_str_eq(json_string_value(json_array_get(unknown, 0)), "never-heard-of");
    ck_assert_uint_eq(json_array_size(json_object_get(h100, "unknown_stacks")), 0);
    ck_assert_uint_eq(json_object_size(json_object_get(h100, "costs")), 1);
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path), 0);
    ck_assert_ptr_nonnull(strstr(output.out, "never-heard-of"));
}
END_TEST

/* Seven times for one question, which is answered with 10 to 15 us. */
START_TEST(the_rows_that_miss_are_named_worst_first)
{
    static const char *const US[] = {"100", "1", "12.7", "1000", "10", "5", "12.8"};
    static const char *const WORST[] = {"r1 ", "r5 ", "r3 ", "r0 ", "r4 "};
    char text[2048];
    struct test_output output;
    size_t used = (size_t)snprintf(text, sizeof text, "%s", HEADER);
    for (size_t i = 0; i < 7; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "r%zu,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,%s,%s,b1,\n", i,
                             US[i], i == 2 ? "fine" : "A");
    const char *path = test_write_text(test_temp_dir(), "worst.csv", text);
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path), 0);
    TEST_SAYS(output.out, "1 row has another (r2: 'fine')");
    const char *at = strstr(output.out, "\nLargest errors (--rows: all 7;");
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < 5; i++) {
        at = strstr(at + 1, test_format("\n%s", WORST[i]));
        ck_assert_msg(at != NULL, "%s is not in its place: %s", WORST[i], output.out);
        TEST_SAYS(test_format("%.90s", at), " b1 ");
    }
    ck_assert_ptr_null(strstr(output.out, "\nr2 "));
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path, "--rows"), 0);
    TEST_SAYS(output.out, "\nr2 ");
}
END_TEST

/* The free line goes through one or two points; of more it says something. */
START_TEST(json_has_the_settings_of_a_row_and_no_line_of_two)
{
    struct test_output output;
    const char *path = test_write_text(
        test_temp_dir(), "two.csv",
        test_format("%s%s", HEADER,
                    "a,h200-hgx,1,8,normal,dispatch,8,8,7168,4,64,bf16,24,,30,B,b1,\n"
                    "b,h200-hgx,1,8,normal,dispatch,8,16,7168,4,64,bf16,24,,31,B,b1,\n"
                    "c,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,,12,,,\n"
                    "d,h200-hgx,1,8,ll,dispatch,8,16,7168,8,256,fp8,,,13,,,\n"
                    "e,h200-hgx,1,8,ll,dispatch,8,32,7168,8,256,fp8,,,18,,,\n"));
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path, "--json"), 0);
    json_t *json = test_json(&output);
    const json_t *row = json_array_get(json_object_get(json, "rows"), 1);
    static const struct {
        const char *name;
        double value;
    } NUMBERS[] = {{"nodes", 1},     {"gpus_per_node", 8}, {"ep", 8},       {"tokens_per_rank", 16},
                   {"hidden", 7168}, {"topk", 4},          {"experts", 64}, {"comm_sms", 24}};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        ck_assert_double_eq(number_at(row, NUMBERS[i].name), NUMBERS[i].value);
    ck_assert_str_eq(text_at(row, "machine"), "h200-hgx");
    ck_assert_str_eq(text_at(row, "mode"), "normal");
    ck_assert_str_eq(text_at(row, "op"), "dispatch");
    ck_assert_str_eq(text_at(row, "stack"), "b1");
    ck_assert_str_eq(text_at(row, "dispatch_dtype"), "bf16");
    ck_assert_str_eq(text_at(row, "grade"), "B");
    ck_assert_double_eq_tol(number_at(row, "error"),
                            number_at(row, "predicted_us") / number_at(row, "measured_us") - 1,
                            1e-9);
    const json_t *groups = json_object_get(json, "groups");
    ck_assert_uint_eq(json_array_size(groups), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *group = json_array_get(groups, i);
        ck_assert_int_eq(json_is_null(json_object_get(group, "line")), number_at(group, "n") < 3);
    }
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path, "--mode", "normal"), 0);
    TEST_SAYS(output.out, "%            -      2\n");
}
END_TEST

START_TEST(ids_fall_back_to_file_and_line)
{
    const char *path = test_write_text(
        test_temp_dir(), "no-id.csv",
        "us,\"machine\",nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"
        "dispatch_dtype,comm_sms,source\r\n"
        "16.1234567,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,\"a \"\"quoted\"\", cell\"\r\n");
    struct sim_measured measured;
    char err[256] = "", id[128];
    ck_assert_msg(sim_measured_read(path, &measured, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(measured.count, 1);
    snprintf(id, sizeof id, "%.80s:2", path);
    ck_assert_str_eq(measured.rows[0].id, id);
    ck_assert_str_eq(measured.rows[0].machine, "h200-hgx");
    ck_assert_uint_eq(measured.rows[0].measured_ps, 16123456);
    sim_measured_free(&measured);
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
    TEST_SAYS(output.err, "no-such-machine");
    TEST_EPSIM(&output, "accuracy", "--measured",
               test_write_text(folder, "b.csv", "id,machine\nx,h200-hgx\n"));
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "accuracy", "--measured", test_join(folder, "none.csv"));
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "accuracy");
    ck_assert_int_eq(output.status, 2);
    static const char *const ROWS[] = {
        "x,h200-hgx,1,8,ll,reduce,8,8,7168,8,256,fp8,,128,16.0,A,,1\n",
        "x,h200-hgx,1,8,ll,dispatch_notify,8,8,7168,8,256,fp8,,128,16.0,A,,1\n",
        "x,h200-hgx,1,8,normal,dispatch_send,8,8,7168,8,256,fp8,,128,16.0,A,,1\n",
        "x,h200-hgx,1,8,ll,dispatch,8,8,7168,8,250,fp8,,128,16.0,A,,1\n",
        "x,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,-1,A,,1\n",
        "x,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,0,A,,1\n",
        "x,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,16.0\n",
        "x,h200-hgx,1,8,ll,dispatch,8,8.5,7168,8,256,fp8,,128,16.0,A,,1\n"};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        snprintf(text, sizeof text, "%s%s", HEADER, ROWS[i]);
        TEST_EPSIM(&output, "accuracy", "--measured", test_write_text(folder, "d.csv", text));
        ck_assert_msg(output.status == 2, "row %zu: status %d", i, output.status);
        ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    }
}
END_TEST

START_TEST(nothing_to_judge_is_no_answer)
{
    const char *folder = test_temp_dir();
    const char *bare = test_write_text(folder, "bare.csv", HEADER);
    const char *one = test_write_text(
        folder, "one.csv",
        test_format("%sx,h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,128,16.0,A,,1\n", HEADER));
    const char *const asked[][4] = {
        {bare, "--json", NULL, ": no row below its header\n"},
        {bare, "--split", NULL, ": no row below its header\n"},
        {one, "--mode", "normal", ": no row of mode normal\n"},
        {one, "--split", NULL, "all 1 rows fall into one half by their ids: give more\n"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct test_output output;
        TEST_EPSIM(&output, "accuracy", "--measured", asked[i][0], asked[i][1], asked[i][2]);
        ck_assert_msg(output.status == 2, "%zu: status %d", i, output.status);
        ck_assert_uint_eq(output.out_bytes, 0);
        TEST_SAYS(output.err, asked[i][3]);
        ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    }
}
END_TEST

/* What DeepEP published (docs/legacy.md): 128 tokens, hidden 7168, top-8 of 256, H800 and CX7, of
 * an older build. Nothing was fitted to it: machine and rank counts are not those of the fit. */
START_TEST(published_times_lie_within_a_third)
{
    static const struct {
        const char *machine;
        uint32_t ep;
        double dispatch_us, combine_us;
    } published[] = {{"h800-hgx", 8, 77, 114},         {"h800-hgx", 16, 118, 195},
                     {"h800-hgx", 32, 155, 273},       {"h800-hgx", 64, 173, 314},
                     {"h800-hgx-nonvl", 8, 163, 318},  {"h800-hgx-nonvl", 16, 173, 329},
                     {"h800-hgx-nonvl", 32, 182, 350}, {"h800-hgx-nonvl", 64, 186, 353}};
    enum { COUNT = 2 * sizeof published / sizeof published[0] };
    struct sim_measured_row rows[COUNT];
    const struct sim_measured measured = {SIM_MEASURED_CALIBRATE, COUNT, rows};
    const struct sim_predict_options options = {.threads = 1};
    uint64_t predicted_ps[COUNT];
    size_t close = 0;
    char err[256] = "";
    for (size_t i = 0; i < COUNT; i++) {
        const bool combine = i % 2;
        rows[i] = row(published[i / 2].machine, combine ? "combine" : "dispatch", "A");
        strcpy(rows[i].dtype, "fp8");
        rows[i].ep = published[i / 2].ep;
        rows[i].gpus_per_node = 8;
        rows[i].nodes = rows[i].ep / 8;
        rows[i].tokens = 128;
        rows[i].hidden = 7168;
        rows[i].topk = 8;
        rows[i].experts = 256;
        rows[i].measured_ps = (uint64_t)(1e6 * (combine ? published[i / 2].combine_us
                                                        : published[i / 2].dispatch_us));
    }
    ck_assert_msg(sim_predict(&measured, &options, predicted_ps, NULL, err, sizeof err) == 0, "%s",
                  err);
    for (size_t i = 0; i < COUNT; i++) {
        const double ratio = (double)predicted_ps[i] / (double)rows[i].measured_ps;
        ck_assert_msg(ratio > 0.67 && ratio < 1.33, "%s EP%u %s: %f of the published time",
                      rows[i].machine, rows[i].ep, rows[i].op, ratio);
        close += ratio > 0.9 && ratio < 1.1;
    }
    ck_assert_uint_ge(close, COUNT * 3 / 4);
}
END_TEST

Suite *accuracy_suite(void)
{
    Suite *suite = suite_create("accuracy");
    TCase *tests = tcase_create("accuracy");
    tcase_add_test(tests, medians_percentiles_and_bias_by_hand);
    tcase_add_test(tests, the_total_leaves_grade_c_out);
    tcase_add_test(tests, the_line_of_a_curve_is_exact_on_a_line);
    tcase_add_test(tests, the_rows_that_miss_are_named_worst_first);
    tcase_add_test(tests, json_has_the_settings_of_a_row_and_no_line_of_two);
    tcase_add_test(tests, ids_fall_back_to_file_and_line);
    tcase_add_test(tests, published_times_lie_within_a_third);
    tcase_add_test(tests, rows_come_out_in_the_order_of_the_file);
    tcase_add_test(tests, whose_numbers_were_used_is_said);
    tcase_add_test(tests, files_that_cannot_be_predicted_are_refused);
    tcase_add_test(tests, nothing_to_judge_is_no_answer);
    suite_add_tcase(suite, tests);
    return suite;
}
