/* tests/test_imbalance.c - what is counted of a routing, by hand; and generators that have the skew
 * and the repetition of real traces.
 *
 * The real figures: 58 layers of 256 experts with a largest over mean of 3.2 / 6.2 / 13.3 (least,
 * median, most), of which the busiest 32 take 0.249 / 0.311 / 0.497 of all choices; adjacent tokens
 * share 0.15 to 0.5 of their experts. A seed is one draw of 58 layers, so it meets them roughly. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "sim/generator.h"
#include "tests/json.h"
#include "tests/support.h"
#include "traces/npy.h"

static json_t *imbalance(const char *const *arguments)
{
    const char *argv[32] = {test_epsim(), "imbalance", "--json"};
    struct test_output output;
    int count = 3;
    for (; *arguments != NULL; arguments++) argv[count++] = *arguments;
    ck_assert_msg(test_run(argv, &output) == 0, "%s%s", output.out, output.err);
    return test_json(&output);
}

static double over(const json_t *json, const char *key, const char *which)
{
    const json_t *value =
        json_object_get(json_object_get(json_object_get(json, "over_layers"), key), which);
    ck_assert_msg(json_is_real(value), "no %s of %s", which, key);
    return json_real_value(value);
}

static void assert_between(double value, double low, double high)
{
    ck_assert_msg(value >= low && value <= high, "%f is not between %f and %f", value, low, high);
}

/* Two ranks with one stream each: tokens 0, 1 on rank 0 and 2, 3 on rank 1, over two steps. Experts
 * 0 to 7 are rank 0's. Expert 1 gets 3 of 8 rows over 16 experts: 6 times the mean. The two busiest
 * get 3 + 2. Rank 0 gets 6 of 8, and 3 of 4 in either step. Stream 0 keeps 1 expert of 2, stream 1
 * both. */
START_TEST(a_small_trace_by_hand)
{
    static const uint8_t ids[4][1][2] = {{{0, 1}}, {{0, 2}}, {{8, 1}}, {{8, 1}}};
    const uint64_t shape[3] = {4, 1, 2};
    const char *path = test_join(test_temp_dir(), "ids.npy");
    char err[256];
    ck_assert_int_eq(trace_npy_write(path, TRACE_U8, shape, 3, ids, err, sizeof err), 0);
    const char *const arguments[] = {path,   "--model", "toy-16x2", "--machine", "toy-2x4",
                                     "--ep", "2",       "--mode",   "ll",        "--batch",
                                     "1",    "--steps", "2",        NULL};
    json_t *json = imbalance(arguments);
    static const struct {
        const char *key;
        double value;
    } expected[] = {{"expert_max_over_mean", 6},   {"busiest_eighth_share", 0.625},
                    {"rank_max_over_mean", 1.5},   {"rank_max_over_mean_step", 1.5},
                    {"shared_with_row_before", 0}, {"shared_with_step_before", 0.75}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        ck_assert_double_eq(over(json, expected[i].key, "max"), expected[i].value);
    json_decref(json);
}
END_TEST

START_TEST(round_robin_is_even)
{
    const char *const arguments[] = {"--routing", "roundrobin", "--model", "toy-16x2",
                                     "--machine", "toy-2x4",    "--ep",    "8",
                                     "--batch",   "16",         NULL};
    json_t *json = imbalance(arguments);
    ck_assert_double_eq(over(json, "expert_max_over_mean", "max"), 1);
    ck_assert_double_eq(over(json, "rank_max_over_mean", "max"), 1);
    ck_assert_double_eq(over(json, "busiest_eighth_share", "max"), 0.125);
    json_decref(json);
}
END_TEST

static const char *const kinds[2] = {"decode", "prefill"};

START_TEST(real_skew_and_repetition)
{
    const bool decode = _i == 0;
    const char *const shared = decode ? "shared_with_step_before" : "shared_with_row_before";
    const char *const arguments[] = {"--routing", kinds[_i], "--model", "deepseek-v3", "--ep",
                                     "8",         "--mode",  "ll",      "--batch",     "128",
                                     "--steps",   "8",       NULL};
    json_t *json = imbalance(arguments);
    assert_between(over(json, "expert_max_over_mean", "min"), 2.6, 3.9);
    assert_between(over(json, "expert_max_over_mean", "median"), 5.0, 7.2);
    assert_between(over(json, "expert_max_over_mean", "max"), 10, 18);
    assert_between(over(json, "busiest_eighth_share", "min"), 0.22, 0.28);
    assert_between(over(json, "busiest_eighth_share", "median"), 0.28, 0.36);
    assert_between(over(json, "busiest_eighth_share", "max"), 0.43, 0.55);
    assert_between(over(json, shared, "min"), 0.14, 0.20);
    assert_between(over(json, shared, "median"), 0.25, 0.40);
    assert_between(over(json, shared, "max"), 0.44, 0.53);
    /* The other neighbour is a stranger: what two draws share by chance. */
    assert_between(over(json, decode ? "shared_with_row_before" : "shared_with_step_before", "max"),
                   0.03, 0.15);
    json_decref(json);
}
END_TEST

START_TEST(a_draw_depends_on_its_step_alone)
{
    struct sim_generator generator;
    static int64_t first[3][64 * 8], again[64 * 8], longer[128 * 8];
    char err[256];
    ck_assert_int_eq(sim_generator_parse(kinds[_i], 256, 8, 1, 5, &generator, err, sizeof err), 0);
    for (uint32_t s = 0; s < 3; s++) sim_generator_draw(&generator, s, 2, 1, 64, first[s]);
    sim_generator_draw(&generator, 1, 2, 1, 64, again);
    sim_generator_draw(&generator, 2, 2, 1, 128, longer);
    ck_assert_mem_eq(again, first[1], sizeof again);
    ck_assert_mem_eq(longer, first[2], sizeof first[2]);
    ck_assert_mem_ne(first[0], first[1], sizeof again);
    for (int t = 0; t < 128; t++)
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < k; j++) ck_assert_int_ne(longer[t * 8 + k], longer[t * 8 + j]);
}
END_TEST

START_TEST(few_experts_are_all_taken)
{
    struct sim_generator generator;
    static int64_t ids[32 * 4];
    char err[256];
    ck_assert_int_eq(sim_generator_parse(kinds[_i], 4, 4, 1, 5, &generator, err, sizeof err), 0);
    sim_generator_draw(&generator, 3, 0, 0, 32, ids);
    for (int t = 0; t < 32; t++) {
        int seen = 0;
        for (int k = 0; k < 4; k++) seen |= 1 << ids[t * 4 + k];
        ck_assert_int_eq(seen, 15);
    }
}
END_TEST

START_TEST(a_real_decode_trace_repeats_as_it_was_measured_to)
{
    const char *ids = test_data_path("traces/gptoss20b_sub_topk_ids.npy");
    const char *offsets = test_data_path("traces/gptoss20b_sub_offsets.npy");
    if (ids == NULL || offsets == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    const char *const arguments[] = {ids, "--offsets", offsets, "--model", "gpt-oss-20b", "--ep",
                                     "8", "--batch",   "16",    "--steps", "30",          NULL};
    json_t *json = imbalance(arguments);
    ck_assert_double_eq_tol(over(json, "shared_with_step_before", "min"), 0.19, 0.02);
    ck_assert_double_eq_tol(over(json, "shared_with_step_before", "max"), 0.58, 0.02);
    json_decref(json);
}
END_TEST

Suite *imbalance_suite(void)
{
    TCase *tcase = tcase_create("imbalance");
    tcase_add_test(tcase, a_small_trace_by_hand);
    tcase_add_test(tcase, round_robin_is_even);
    tcase_add_loop_test(tcase, real_skew_and_repetition, 0, 2);
    tcase_add_loop_test(tcase, a_draw_depends_on_its_step_alone, 0, 2);
    tcase_add_loop_test(tcase, few_experts_are_all_taken, 0, 2);
    tcase_add_test(tcase, a_real_decode_trace_repeats_as_it_was_measured_to);
    Suite *suite = suite_create("imbalance");
    suite_add_tcase(suite, tcase);
    return suite;
}
