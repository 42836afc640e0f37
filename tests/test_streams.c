/* tests/test_streams.c - decode slots walk a trace as continuous batching does.
 *
 * Method: small cases by hand; then the real trace against counts from an independent script. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/source.h"
#include "sim/streams.h"
#include "tests/support.h"

Suite *streams_suite(void);

static char err[512];

START_TEST(streams_spread_over_requests_in_laps)
{
    /* Requests of 4, 2 and 6 tokens; 7 streams: 3 laps. Stream s starts request s mod 3 at
     * floor(length x (s div 3) / 3): 0, 0, 0, 1, 0, 2, 2 tokens in. */
    const int64_t offsets[] = {0, 4, 6, 12};
    const uint64_t first[] = {0, 4, 6, 1, 4, 8, 2};
    struct sim_streams streams;
    ck_assert_int_eq(sim_streams_open(offsets, 3, 7, &streams, err, sizeof err), 0);
    for (int s = 0; s < 7; s++) ck_assert_uint_eq(streams.token[s], first[s]);
    sim_streams_close(&streams);
}
END_TEST

START_TEST(a_finished_slot_takes_the_request_after_all_streams)
{
    /* 2 streams, 3 requests of 1, 3, 2 tokens. Slot 0: request 0, then (0 + 2) mod 3 = 2, then
     * (0 + 4) mod 3 = 1; slot 1: request 1, then (1 + 2) mod 3 = 0. */
    const int64_t offsets[] = {0, 1, 4, 6};
    const uint64_t slot_0[] = {0, 4, 5, 1, 2, 3};
    const uint64_t slot_1[] = {1, 2, 3, 0, 4, 5};
    struct sim_streams streams;
    ck_assert_int_eq(sim_streams_open(offsets, 3, 2, &streams, err, sizeof err), 0);
    for (int step = 0; step < 6; step++) {
        ck_assert_uint_eq(streams.token[0], slot_0[step]);
        ck_assert_uint_eq(streams.token[1], slot_1[step]);
        sim_streams_advance(&streams);
    }
    sim_streams_close(&streams);
}
END_TEST

START_TEST(empty_requests_are_passed_over)
{
    const int64_t offsets[] = {0, 0, 0, 2};
    struct sim_streams streams;
    ck_assert_int_eq(sim_streams_open(offsets, 3, 3, &streams, err, sizeof err), 0);
    for (int step = 0; step < 9; step++, sim_streams_advance(&streams))
        for (int s = 0; s < 3; s++) ck_assert_uint_lt(streams.token[s], 2);
    sim_streams_close(&streams);
}
END_TEST

START_TEST(a_trace_without_tokens_is_refused)
{
    const int64_t offsets[] = {0, 0};
    struct sim_streams streams;
    ck_assert_int_eq(sim_streams_open(offsets, 1, 3, &streams, err, sizeof err), -1);
    TEST_SAYS(err, "no tokens");
}
END_TEST

/* Expert counts of 32 steps of 64 streams on each of `ranks` ranks, as an independent script
 * (NumPy, written from the rule and not from this code) counts them: the sum over layers l and
 * experts e of count x (32 l + e + 1), and layer `layer` whole. */
static void check_counts(uint32_t ranks, uint64_t weighted, uint32_t layer,
                         const uint64_t expected[32])
{
    const char *ids = test_data_path("traces/gptoss20b_topk_ids.npy");
    const char *offsets = test_data_path("traces/gptoss20b_offsets.npy");
    struct sim_settings settings;
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);
    uint64_t counts[24][32] = {{0}};
    uint64_t sum = 0;
    char ep[8];

    if (ids == NULL || offsets == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    snprintf(ep, sizeof ep, "%u", ranks);
    sim_settings_default(&settings);
    const char *const options[][2] = {{"routing", ids}, {"offsets", offsets},
                                      {"ep", ep},       {"model", "gpt-oss-20b"},
                                      {"tokens", "64"}, {"mode", "ll"}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        ck_assert_int_eq(sim_settings_set(&settings, options[i][0], options[i][1], err, sizeof err),
                         0);
    struct sim_source *source = sim_source_open(&settings, err, sizeof err);
    ck_assert_msg(source != NULL, "%s", err);
    ck_assert_msg(sim_plan_make(&settings, 24, 4, plan, err, sizeof err) == 0, "%s", err);
    ck_assert_int_eq(sim_source_start(source, plan, err, sizeof err), 0);
    int64_t *idx = (int64_t *)malloc((size_t)ranks * 64 * 4 * sizeof *idx);
    float *weights = (float *)malloc((size_t)ranks * 64 * 4 * sizeof *weights);
    for (int step = 0; step < 32; step++, sim_source_advance(source)) {
        for (uint32_t l = 0; l < 24; l++) {
            sim_source_layer(source, l, idx, weights);
            for (uint32_t i = 0; i < ranks * 64 * 4; i++) counts[l][idx[i]]++;
        }
    }
    ck_assert(weights[0] == 0.25f); /* --weights none: 1 / 4. */
    for (uint32_t l = 0; l < 24; l++)
        for (uint32_t e = 0; e < 32; e++) sum += counts[l][e] * (32 * l + e + 1);
    ck_assert_uint_eq(sum, weighted);
    for (uint32_t e = 0; e < 32; e++) ck_assert_uint_eq(counts[layer][e], expected[e]);
    free(weights);
    free(idx);
    sim_source_close(source);
    free(plan);
}

START_TEST(expert_counts_of_the_real_trace_at_ep8)
{
    const uint64_t layer_7[32] = {2529, 1568, 538,  2391, 3124, 3055, 630,  2168, 235,  885,  3322,
                                  3892, 625,  4179, 4989, 1861, 2092, 3391, 1876, 2736, 1588, 2413,
                                  349,  1180, 3452, 451,  898,  946,  2700, 2007, 3346, 120};
    check_counts(8, 604788192, 7, layer_7);
}
END_TEST

START_TEST(expert_counts_of_the_real_trace_at_ep32)
{
    const uint64_t layer_0[32] = {8846,  12112, 10150, 9158,  6118,  5806, 6192,  9031,
                                  6862,  14920, 8233,  10961, 4421,  7306, 5609,  7797,
                                  12914, 16681, 3062,  9476,  3709,  6229, 10497, 9345,
                                  7622,  9407,  5289,  3879,  10191, 3827, 2621,  13873};
    check_counts(32, 2419303136, 0, layer_0);
}
END_TEST

Suite *streams_suite(void)
{
    Suite *suite = suite_create("streams");
    TCase *tests = tcase_create("streams");
    tcase_add_test(tests, streams_spread_over_requests_in_laps);
    tcase_add_test(tests, a_finished_slot_takes_the_request_after_all_streams);
    tcase_add_test(tests, empty_requests_are_passed_over);
    tcase_add_test(tests, a_trace_without_tokens_is_refused);
    tcase_add_test(tests, expert_counts_of_the_real_trace_at_ep8);
    tcase_add_test(tests, expert_counts_of_the_real_trace_at_ep32);
    suite_add_tcase(suite, tests);
    return suite;
}
