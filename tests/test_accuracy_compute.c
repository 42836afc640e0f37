/* tests/test_accuracy_compute.c - predicted expert and attention kernels against measured ones.
 *
 * Right values: one row by hand on a machine of round numbers; the measured tables (outside the
 * tree) within the bounds that are promised; and properties: skew costs, refusals have lines. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "sim/accuracy.h"
#include "sim/predict.h"
#include "tests/json.h"
#include "tests/support.h"

static char err[512];

static uint64_t predict(const char *csv, const char *text)
{
    struct sim_measured measured = {.count = 0};
    const struct sim_predict_options options = {.threads = 1};
    uint64_t ps = 0;
    const char *path = test_write_text(test_temp_dir(), csv, text);
    ck_assert_msg(sim_measured_read(path, &measured, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(measured.count, 1);
    ck_assert_msg(sim_predict(&measured, &options, &ps, NULL, err, sizeof err) == 0, "%s", err);
    sim_measured_free(&measured);
    return ps;
}

#define EXPERT_HEAD                                                                                \
    "machine,kernel,layout,tokens_per_rank,hidden,moe_inter,topk,experts,ep,routing,us\n"
#define ATTENTION_HEAD "machine,kernel,heads,batch_per_rank,kv_tokens,us\n"

START_TEST(a_masked_row_by_hand)
{
    /* H100, EP32, 8 local experts of 128 rows. HBM reaches 3350 x 0.8903 = 2982.5 GB/s, an SM
     * 12.54 TFLOP/s. Gate and up: 234.9 MB 78.75 us; 256 tiles are 2 waves of 18.73 us, of which
     * 9.816 % show: 82.43. Down: 39.38 + 9.816 % of 4 x 5.351 = 41.48. Activation: 10.5 MB, 3.52.
     * Launches 24.78 + 8 x 0.6004 = 29.58. Measured: 161.84. */
    const uint64_t ps =
        predict("m.csv", EXPERT_HEAD "h100-hgx,mlp,masked,128,7168,2048,8,256,32,uniform,161.84\n");
    ck_assert_uint_ge(ps, UINT64_C(156900000));
    ck_assert_uint_le(ps, UINT64_C(157100000));
}
END_TEST

START_TEST(skewed_load_costs_more_than_even_load_of_as_many_tokens)
{
    static const char *const routings[] = {"uniform", "power_law_0.6", "power_law_1.2"};
    uint64_t last = 0;
    for (size_t i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 EXPERT_HEAD "h200-hgx,mlp,contiguous,4096,7168,2048,8,256,16,%s,1\n", routings[i]);
        const uint64_t ps = predict("s.csv", text);
        ck_assert_uint_gt(ps, last);
        last = ps;
    }
}
END_TEST

START_TEST(few_contiguous_rows_stand_at_the_hosts_floor)
{
    const uint64_t few =
        predict("f.csv", EXPERT_HEAD "h100-hgx,mlp,contiguous,16,7168,2048,8,256,8,uniform,400\n");
    ck_assert_uint_eq(few, UINT64_C(380) * 1000000);
}
END_TEST

START_TEST(attention_with_half_the_heads_is_cheaper_and_more_than_half_as_dear)
{
    const uint64_t all = predict("a.csv", ATTENTION_HEAD "h100-hgx,mla,128,128,2048,1\n");
    const uint64_t half = predict("b.csv", ATTENTION_HEAD "h100-hgx,mla,64,128,2048,1\n");
    ck_assert_uint_lt(half, all);
    ck_assert_uint_gt(2 * half, all);
}
END_TEST

static const struct {
    const char *text, *want;
} refusals[] = {
    {EXPERT_HEAD "h100-hgx,mlp,masked,1,7168,2048,8,256,7,uniform,1\n",
     "experts: '256': a multiple of ep up to 4096"},
    {EXPERT_HEAD "h100-hgx,mlp,other,1,7168,2048,8,256,8,uniform,1\n",
     "layout: 'other': masked or contiguous"},
    {EXPERT_HEAD "h100-hgx,mlp,masked,1,7168,2048,8,256,8,zipf,1\n",
     "routing: 'zipf': uniform, or power_law_A with A from 0.01 to 10"},
    {EXPERT_HEAD "h100-hgx,mlp,masked,0,7168,2048,8,256,8,uniform,1\n",
     "tokens_per_rank: '0': 1 to 1048576"},
    {ATTENTION_HEAD "h100-hgx,gqa,128,1,1,1\n", "kernel: 'gqa': mla_...: the only attention known"},
    {ATTENTION_HEAD "h100-hgx,mla,129,1,1,1\n", "heads: '129': 1 to 128"},
};

START_TEST(rows_that_no_kernel_could_run_are_refused_by_line)
{
    struct sim_measured measured = {.count = 0};
    const struct sim_predict_options options = {.threads = 1};
    uint64_t ps = 0;
    char want[512];
    const char *path = test_write_text(test_temp_dir(), "r.csv", refusals[_i].text);
    ck_assert_int_eq(sim_measured_read(path, &measured, err, sizeof err), 0);
    ck_assert_int_eq(sim_predict(&measured, &options, &ps, NULL, err, sizeof err), -1);
    snprintf(want, sizeof want, "%s:2: %s", path, refusals[_i].want);
    ck_assert_str_eq(err, want);
    sim_measured_free(&measured);
}
END_TEST

/* The command's total of that name, over a measured table. */
static void judge(const char *name, const char *op, const char *attention, double median,
                  double p90)
{
    const char *path = test_data_path(name);
    struct test_output output;
    bool found = false;
    size_t i;
    json_t *group;
    if (path == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    ck_assert_int_eq(
        TEST_EPSIM(&output, "accuracy", "--measured", path, "--attention", attention, "--json"), 0);
    json_t *json = test_json(&output);
    json_array_foreach(json_object_get(json, "groups"), i, group)
    {
        if (strcmp(text_at(group, "machine"), "all") != 0 || strcmp(text_at(group, "op"), op) != 0)
            continue;
        found = true;
        ck_assert_double_le(number_at(group, "median_abs_error"), median);
        ck_assert_double_le(number_at(group, "p90_abs_error"), p90);
    }
    ck_assert(found);
    json_decref(json);
}

START_TEST(measured_tables_are_met)
{
    /* Promised: 8 and 20 %. Held: what the shipped numbers reach, with a little room. */
    judge("measured/expert_compute.csv", "masked", "auto", 0.02, 0.05);
    judge("measured/expert_compute.csv", "contiguous", "auto", 0.03, 0.08);
    judge("measured/attention.csv", "attention", "roofline", 0.03, 0.08);
    judge("measured/attention.csv", "attention", "auto", 0.01, 0.02);
}
END_TEST

Suite *accuracy_compute_suite(void);
Suite *accuracy_compute_suite(void)
{
    Suite *suite = suite_create("accuracy_compute");
    TCase *tcase = tcase_create("accuracy of compute");
    tcase_add_test(tcase, a_masked_row_by_hand);
    tcase_add_test(tcase, skewed_load_costs_more_than_even_load_of_as_many_tokens);
    tcase_add_test(tcase, few_contiguous_rows_stand_at_the_hosts_floor);
    tcase_add_test(tcase, attention_with_half_the_heads_is_cheaper_and_more_than_half_as_dear);
    tcase_add_loop_test(tcase, rows_that_no_kernel_could_run_are_refused_by_line, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, measured_tables_are_met);
    suite_add_tcase(suite, tcase);
    return suite;
}
