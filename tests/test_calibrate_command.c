/* tests/test_calibrate_command.c - what `epsim calibrate` says and writes to the person who asks.
 *
 * Method: rows as the model times a machine, one of them at three times that; a file that says one
 * number wrong, beside one that no row of one node can tell. Then files and rows that do not meet,
 * each with the cause that must be named. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "sim/predict.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *calibrate_command_suite(void);

#define HEAD                                                                                       \
    "id,machine,stack,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"         \
    "dispatch_dtype,comm_sms,us\n"

enum { ROWS = 10, SPIKE = 7 };

/* Dispatch and combine of ever more tokens on "own", which is h200-hgx; row r7 takes three times
 * as long. Returns the path of the CSV. */
static const char *write_rows(const char *folder)
{
    static struct sim_measured measured;
    const struct sim_predict_options plain = {.threads = 1};
    uint64_t ps[ROWS];
    char text[4096], err[256] = "";
    size_t used = 0;
    for (int times = 0; times < 2; times++) {
        used = (size_t)snprintf(text, sizeof text, "%s", HEAD);
        for (int i = 0; i < ROWS; i++)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "r%d,%s,,1,8,ll,%s,8,%d,7168,8,256,fp8,,%.4f\n", i,
                                     times ? "own" : "h200-hgx", i % 2 ? "combine" : "dispatch",
                                     8 << i / 2, times ? (double)ps[i] / 1e6 : 1.0);
        if (times) break;
        const char *first = test_write_text(folder, "first.csv", text);
        ck_assert_int_eq(sim_measured_read(first, &measured, err, sizeof err), 0);
        ck_assert_msg(sim_predict(&measured, &plain, ps, NULL, err, sizeof err) == 0, "%s", err);
        ps[SPIKE] *= 3;
        sim_measured_free(&measured);
    }
    return test_write_text(folder, "rows.csv", text);
}

static const char OWN[] = "# Mine.\n"
                          "inherits: h200-hgx\n"
                          "ll:\n"
                          "  dispatch_launch_us: 5\n"
                          "  nic_flag_ns: 40 # fitted from 50\n"
                          "  post_us: 0.5    # assumed\n"
                          "normal:\n"
                          "  poll_us: 0.8\n";

START_TEST(outliers_and_what_is_held_are_named)
{
    const char *folder = test_temp_dir();
    const char *csv = write_rows(folder), *own = test_write_text(folder, "own.yaml", OWN);
    const char *out = test_join(folder, "out.yaml");
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", out);
    ck_assert_msg(output.status == 0, "%s", output.err);
    TEST_SAYS(output.out, "set aside as outliers: 1 row more than 5 % off");
    TEST_SAYS(output.out, "\nr7  9     own ");
    TEST_SAYS(output.out, "0      -  held\n");
    TEST_SAYS(output.out, "1 more might move, but no row is of their mode, stack and operation\n");
    TEST_SAYS(output.out, test_format("\nwrote %s\n", out));
    const char *text = test_read(out, NULL);
    ck_assert_ptr_eq(
        strstr(text, test_format("# Fitted by `epsim calibrate` to 10 rows of %s; median"
                                 " error ",
                                 csv)),
        text);
    TEST_SAYS(text, "; 1 number not determined\n# Mine.\ninherits: h200-hgx\n");
    TEST_SAYS(text, "  nic_flag_ns: 40 # fitted from 50; the rows do not determine it\n");
    TEST_SAYS(text, "  post_us: 0.5    # assumed\n");
    ck_assert_ptr_null(strstr(text, "dispatch_launch_us: 5\n"));
}
END_TEST

/* A fit of a fitted file says it once; and not any more of a number that moves. */
START_TEST(a_second_fit_writes_its_words_once)
{
    const char *folder = test_temp_dir();
    const char *csv = write_rows(folder), *own = test_write_text(folder, "own.yaml", OWN);
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", own);
    ck_assert_msg(output.status == 0, "%s", output.err);
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", own);
    ck_assert_msg(output.status == 0, "%s", output.err);
    const char *text = test_read(own, NULL);
    ck_assert_ptr_null(strstr(text + 1, "# Fitted by"));
    TEST_SAYS(text, "# fitted from 50; the rows do not determine it\n");
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", own, "--plain");
    ck_assert_msg(output.status == 0, "%s", output.err);
    TEST_SAYS(test_read(own, NULL), " # fitted from 50\n");
    /* As shipped files are made: from a file without those words comes one without. */
    own = test_write_text(folder, "own.yaml", OWN);
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", own, "--plain");
    text = test_read(own, NULL);
    ck_assert_ptr_eq(strstr(text, "# Mine.\n"), text);
    TEST_SAYS(text, "  nic_flag_ns: 50 # fitted from 50\n");
}
END_TEST

START_TEST(json_counts_the_rows_that_a_number_changes)
{
    static const struct {
        const char *key;
        double rows;
        int held;
    } WANT[] = {{"dispatch_launch_us", ROWS / 2, 0}, {"nic_flag_ns", 0, 1}};
    const char *folder = test_temp_dir();
    const char *csv = write_rows(folder), *own = test_write_text(folder, "own.yaml", OWN);
    const char *out = test_join(folder, "out.yaml");
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", out, "--json");
    json_t *json = test_json(&output);
    const json_t *numbers = json_object_get(json, "numbers");
    ck_assert_uint_eq(json_array_size(numbers), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(numbers, i);
        ck_assert_str_eq(text_at(one, "key"), WANT[i].key);
        ck_assert_double_eq(number_at(one, "rows"), WANT[i].rows);
        ck_assert_int_eq(json_is_true(json_object_get(one, "held")), WANT[i].held);
    }
    ck_assert_str_eq(text_at(json_array_get(json_object_get(json, "outliers"), 0), "id"), "r7");
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json, "wrote"), 0)), out);
    json_decref(json);
}
END_TEST

START_TEST(a_bandwidth_marked_as_fitted_is_noted)
{
    static const char note[] =
        "own: nvlink_goodput_gbytes_per_s: its comment says fitted, but only "
        "numbers of ll, normal and compute move: measure it";
    const char *folder = test_temp_dir();
    const char *csv = write_rows(folder), *out = test_join(folder, "out.yaml");
    const char *own = test_write_text(folder, "own.yaml",
                                      "inherits: h200-hgx\nnic_goodput_gbytes_per_s: 46\n"
                                      "nvlink_goodput_gbytes_per_s: 370 # fitted from 380\n"
                                      "ll:\n  dispatch_launch_us: 2 # fitted from 3\n");
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", out);
    ck_assert_msg(output.status == 0, "%s", output.err);
    TEST_SAYS(output.out, test_format("\nnote: %s\n", note));
    ck_assert_ptr_null(strstr(output.out, "held"));
    TEST_SAYS(test_read(out, NULL), "nvlink_goodput_gbytes_per_s: 370 # fitted from 380\n");
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", out, "--json");
    json_t *json = test_json(&output);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "notes")), 1);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json, "notes"), 0)), note);
    json_decref(json);
}
END_TEST

#define LL_ROW ",1,8,ll,dispatch,8,8,7168,8,256,fp8,,12\n"
#define LL_FILE "inherits: h200-hgx\nll:\n  dispatch_launch_us: 2"

static const struct {
    const char *file, *row, *want;
} causes[] = {
    {LL_FILE "\n", "h100-hgx," LL_ROW,
     "own: no number may move: no row is of that machine (the file's name) or of one that inherits "
     "from it; the first is of h100-hgx"},
    {LL_FILE " # measured\n", "own," LL_ROW,
     "own: no number may move: each of its 1 in ll, normal and compute has a comment that does not "
     "begin with \"fitted\"; bandwidths and flights outside them are to be measured"},
    {"inherits: h200-hgx\nnic_goodput_gbytes_per_s: 47 # fitted from 48\n", "own," LL_ROW,
     "own: no number may move: it has none under ll, normal or compute, and what it inherits "
     "stays; "
     "bandwidths and flights outside them are to be measured"},
    {LL_FILE "\n", "own,,1,8,normal,dispatch,8,8,7168,8,256,fp8,20,12\n",
     "own: no number may move: the 1 that might are of ll, and the rows of the machine of normal"},
    {"inherits: h200-hgx\nstacks:\n  new:\n    ll:\n      dispatch_launch_us: 2\n",
     "own,old" LL_ROW,
     "own: no number may move: they are of stack new, and the rows of the machine of old"},
    {LL_FILE "\nstacks:\n  new:\n    ll:\n      dispatch_launch_us: 3 # measured\n",
     "own,new" LL_ROW, "own: no number may move: stack new, of which the rows are, has its own"},
    {"inherits: h200-hgx\nnormal:\n  scan_us: 0.3\n",
     "own,,1,8,normal,combine,8,8,7168,8,256,fp8,20,12\n",
     "own: no number may move: the rows that they touch have too many tokens to count, or are of "
     "other operations"},
};
enum { CAUSES = sizeof causes / sizeof causes[0] };

START_TEST(why_no_number_may_move_is_said) /* Loop: causes. */
{
    const char *folder = test_temp_dir();
    const char *own = test_write_text(folder, "own.yaml", causes[_i].file);
    const char *csv = test_write_text(folder, "a.csv", test_format("%sx,%s", HEAD, causes[_i].row));
    const char *out = test_join(folder, "out.yaml");
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", csv, "--machine", own, "-o", out);
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.err, test_format("epsim calibrate: %s\n", causes[_i].want));
    ck_assert(!test_exists(out));
}
END_TEST

START_TEST(a_presets_name_is_no_file)
{
    const char *folder = test_temp_dir();
    struct test_output output;
    TEST_EPSIM(&output, "calibrate", "--measured", write_rows(folder), "--machine", "h100-hgx",
               "-o", test_join(folder, "out.yaml"));
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.err, "epsim calibrate: h100-hgx: the name of a preset, where a file is "
                                 "needed: copy fabric/machines/h100-hgx.yaml of the source tree\n");
}
END_TEST

Suite *calibrate_command_suite(void)
{
    Suite *suite = suite_create("calibrate: the command");
    TCase *tests = tcase_create("calibrate: the command");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, outliers_and_what_is_held_are_named);
    tcase_add_test(tests, a_second_fit_writes_its_words_once);
    tcase_add_test(tests, json_counts_the_rows_that_a_number_changes);
    tcase_add_test(tests, a_bandwidth_marked_as_fitted_is_noted);
    tcase_add_loop_test(tests, why_no_number_may_move_is_said, 0, CAUSES);
    tcase_add_test(tests, a_presets_name_is_no_file);
    suite_add_tcase(suite, tests);
    return suite;
}
