/* tests/test_normal_mlp.c - the MLP in normal mode: every expert of a rank that a token chose, its
 * answers weighed into one row, rows added at home.
 *
 * Method: sums by hand; then the same routing in low latency, where each expert's answer is a row
 * of its own. From those rows alone the test works out what normal mode must give: each rank's part
 * of the weighted sum, columns ascending, rounded; then the parts, as normal mode adds them. */
#include <math.h>

#include "ref/expert.h"
#include "ref/quantise.h"
#include "sim/backends.h"
#include "sim/received.h"
#include "tests/exchange.h"
#include "tests/fault_bench.h"

Suite *normal_mlp_suite(void);

enum { RANKS = 8, EXPERTS = 16, TOPK = 4, HID = 256, INTER = 128, TOKENS_MAX = 12, SEEDS = 6 };

/* Bits of a BF16 that is 2^exponent * (1 + 2^-7 * fraction). */
static uint16_t bf16(int exponent, uint32_t fraction)
{
    return (uint16_t)((uint32_t)(127 + exponent) << 7 | fraction);
}

START_TEST(columns_of_one_rank_are_numbered_and_picked_by_hand)
{
    /* Two experts on the rank. Row 0 names 1 and 0; row 1 none; row 2 names 1 twice. */
    const int64_t ids[3 * 3] = {1, -1, 0, -1, 2, -1, 1, 1, INT64_MAX};
    const struct ref_expert_choices choices = {3, 3, 2, ids, NULL};
    uint64_t start[4], rows[4], answers[4];
    ck_assert_uint_eq(ref_expert_answers(&choices, start), 4);
    ck_assert_uint_eq(start[0], 0);
    ck_assert_uint_eq(start[1], 2);
    ck_assert_uint_eq(start[2], 2);
    ck_assert_uint_eq(start[3], 4);
    ck_assert_uint_eq(ref_expert_pick(&choices, 0, rows, answers), 1);
    ck_assert_uint_eq(rows[0], 0);
    ck_assert_uint_eq(answers[0], 1);
    ck_assert_uint_eq(ref_expert_pick(&choices, 1, rows, answers), 3);
    const uint64_t right[2][3] = {{0, 2, 2}, {0, 2, 3}};
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(rows[i], right[0][i]);
        ck_assert_uint_eq(answers[i], right[1][i]);
    }
}
END_TEST

START_TEST(answers_are_weighed_in_column_order_fused_and_rounded_once)
{
    static const struct {
        uint16_t answer[3];
        float weight[3];
        uint16_t right;
    } sums[] = {
        /* 0.5 * 4 + 2 * 1.25 = 4.5. */
        {{0x4080, 0x3FA0, 0}, {0.5f, 2, 0}, 0x4090},
        /* 2^24 + 1 is 2^24 in fp32; taken away again it leaves nothing. From the right: 1. */
        {{0x4B80, 0x3F80, 0xCB80}, {1, 1, 1}, 0},
        /* -(1 + 2^-7) + (1 + 2^-7)(1 + 2^-23): the product in full leaves 2^-23 (1 + 2^-7); one
         * that is rounded first, 2^-23. */
        {{0xBF81, 0x3F81, 0}, {1, 1 + 0x1p-23f, 0}, 0x3401},
        /* 1 + 2^-8 lies between 1 and 1 + 2^-7: the even one. 2^-23 more: the upper one. */
        {{0x3F80, 0x3B80, 0}, {1, 1, 0}, 0x3F80},
        {{0x3F80, 0x3B80, 0x3400}, {1, 1, 1}, 0x3F81},
    };
    const int64_t ids[3] = {0, 1, 2};
    uint16_t answers[3][REF_GROUP_CHANNELS], out[2][REF_GROUP_CHANNELS];
    ck_assert_uint_eq(bf16(-23, 1), 0x3401);
    for (size_t s = 0; s < sizeof sums / sizeof sums[0]; s++) {
        const struct ref_expert_choices choices = {1, 3, 3, ids, sums[s].weight};
        const uint64_t start[2] = {0, 3};
        for (int k = 0; k < 3; k++)
            for (int c = 0; c < REF_GROUP_CHANNELS; c++) answers[k][c] = sums[s].answer[k];
        ref_expert_weigh(&choices, REF_GROUP_CHANNELS, start, answers[0], out[0]);
        for (int c = 0; c < REF_GROUP_CHANNELS; c++)
            ck_assert_msg(out[0][c] == sums[s].right, "sum %zu: %04x, not %04x", s, out[0][c],
                          sums[s].right);
    }
    /* No expert: +0, and the weights beside -1 are not read. */
    const int64_t none[3] = {-1, 3, -1};
    const float nan[3] = {NAN, NAN, NAN};
    const struct ref_expert_choices choices = {1, 3, 3, none, nan};
    const uint64_t start[2] = {0, 0};
    ref_expert_weigh(&choices, REF_GROUP_CHANNELS, start, answers[0], out[0]);
    for (int c = 0; c < REF_GROUP_CHANNELS; c++) ck_assert_uint_eq(out[0][c], 0);
}
END_TEST

/* One mode's layer on the reference, group operations. */
struct side {
    struct sim_traffic traffic;
    struct sim_results results;
};

static struct side play(const struct exchange *made, enum sim_mode mode, uint32_t ranks_per_node,
                        enum ref_recipe recipe)
{
    const struct sim_traffic_shape shape = {
        .mode = mode, .ranks_per_node = ranks_per_node, .nvlink = true};
    const struct sim_backend_ops *ops = sim_backend_ref();
    struct side side;
    char err[256] = "";
    void *state = NULL;
    memset(&side, 0, sizeof side);
    ck_assert_int_eq(sim_traffic_build(&made->routing, &shape, &side.traffic, err, sizeof err), 0);
    const struct sim_layer_input input = {.routing = &made->routing,
                                          .traffic = &side.traffic,
                                          .hidden = made->hidden,
                                          .recipe = recipe,
                                          .expert = SIM_EXPERT_MLP,
                                          .mlp_inter = INTER,
                                          .weight_seed = 9,
                                          .x = made->x};
    struct sim_results *out = &side.results;
    ck_assert_int_eq(ops->open(ops, &state, err, sizeof err), 0);
    ck_assert_int_eq(sim_results_reserve(out, &input, err, sizeof err), 0);
    ck_assert_int_eq(ops->dispatch(state, &input, &out->received, err, sizeof err), 0);
    ck_assert_int_eq(ops->expert(state, &input, &out->received, out->expert_out, err, sizeof err),
                     0);
    ck_assert_int_eq(ops->combine(state, &input, out->expert_out, out->received.topk_weights,
                                  &out->combined, err, sizeof err),
                     0);
    ops->close(state);
    return side;
}

static void side_free(struct side *side)
{
    sim_traffic_free(&side->traffic);
    sim_results_free(&side->results);
}

/* The row of low latency's expert output for every column of every token; -1: none. */
static int64_t *find_rows(const struct exchange *made, const struct side *ll)
{
    const struct ref_routing *routing = &made->routing;
    int64_t *rows = TEST_ARRAY(int64_t, made->tokens * TOPK);
    for (uint32_t s = 0; s < routing->ranks; s++) {
        uint64_t used[EXPERTS] = {0};
        for (uint64_t i = routing->token_start[s] * TOPK; i < routing->token_start[s + 1] * TOPK;
             i++) {
            const int64_t expert = routing->topk_idx[i];
            rows[i] = -1;
            if (expert < 0) continue;
            rows[i] =
                (int64_t)(ll->traffic.block_start[expert * routing->ranks + s] + used[expert]++);
        }
    }
    return rows;
}

/* What normal mode must give for one channel of a token, from low latency's rows; *magnitude: the
 * sum of what is added without its signs. */
static uint16_t expected(const struct exchange *made, const struct side *ll, const int64_t *rows,
                         uint32_t ranks_per_node, uint64_t token, uint32_t channel,
                         double *magnitude)
{
    const uint32_t nodes = RANKS / ranks_per_node, local = EXPERTS / RANKS;
    float total = 0;
    *magnitude = 0;
    for (uint32_t n = 0; n < nodes; n++) {
        float of_node = 0;
        for (uint32_t d = n * ranks_per_node; d < (n + 1) * ranks_per_node; d++) {
            float part = 0;
            for (uint64_t i = token * TOPK; i < (token + 1) * TOPK; i++) {
                if (rows[i] < 0 || (uint32_t)made->routing.topk_idx[i] / local != d) continue;
                const float answer =
                    slow_f32(ll->results.expert_out[(uint64_t)rows[i] * HID + channel]);
                part = fmaf(answer, made->routing.topk_weights[i], part);
                *magnitude += fabs((double)answer * (double)made->routing.topk_weights[i]);
            }
            of_node += slow_f32(slow_bf16(part));
        }
        total += nodes == 1 ? of_node : slow_f32(slow_bf16(of_node));
    }
    return slow_bf16(total);
}

static const enum ref_recipe recipes[] = {REF_RECIPE_LL, REF_RECIPE_LL_ROUND, REF_RECIPE_PY_CUDA};

/* Roundings to BF16 are by 2^-8 of the value at most. Low latency has one, of the sum; normal mode
 * one of each rank's part, on several nodes one of each node's, and one of the sum. All of them
 * together are at most 3 (4) * 2^-8 * the sum of magnitudes; a tenth of one more is plenty for what
 * the roundings add to each other (2^-16) and for fp32's (2^-24 an addition). */
START_TEST(combined_tokens_are_what_low_latencys_rows_make)
{
    const uint32_t ranks_per_node = _i % 2 == 0 ? RANKS : RANKS / 2;
    const enum ref_recipe recipe = recipes[_i % 3];
    const struct exchange made =
        exchange_random((uint64_t)_i + 1, RANKS, EXPERTS, TOPK, TOKENS_MAX, HID);
    struct side ll = play(&made, SIM_MODE_LL, ranks_per_node, recipe);
    struct side normal = play(&made, SIM_MODE_NORMAL, ranks_per_node, recipe);
    const int64_t *rows = find_rows(&made, &ll);
    const double roundings = ranks_per_node == RANKS ? 3.1 : 4.1;
    uint64_t differ = 0;

    ck_assert_uint_gt(made.tokens, 0);
    for (uint64_t i = 0; i < made.tokens * HID; i++) {
        double magnitude = 0;
        const uint16_t got = normal.results.combined.x[i], simple = ll.results.combined.x[i];
        const uint16_t right =
            expected(&made, &ll, rows, ranks_per_node, i / HID, (uint32_t)(i % HID), &magnitude);
        ck_assert_msg(got == right,
                      "seed %" PRIu64 ", token %" PRIu64 ", channel %" PRIu64 ": %04x, not %04x",
                      made.seed, i / HID, i % HID, got, right);
        ck_assert_double_le(fabs((double)slow_f32(got) - (double)slow_f32(simple)),
                            roundings * 0x1p-8 * magnitude);
        differ += got != simple;
    }
    ck_assert_uint_gt(differ, 0); /* Otherwise the test could not tell the two sums apart. */
    side_free(&ll);
    side_free(&normal);
}
END_TEST

/* All of a token's experts on one rank: the sum is made there in low latency's order, and adding
 * and rounding one row changes nothing. */
START_TEST(tokens_of_one_rank_are_low_latencys_bit_for_bit)
{
    const uint32_t ranks_per_node = _i % 2 == 0 ? RANKS : RANKS / 2, local = EXPERTS / RANKS;
    struct exchange made =
        exchange_random((uint64_t)_i + 11, RANKS, EXPERTS, TOPK, TOKENS_MAX, HID);
    int64_t *ids = TEST_ARRAY(int64_t, made.tokens * TOPK);
    uint64_t state = made.seed;
    for (uint64_t t = 0; t < made.tokens; t++) {
        const uint32_t rank = test_below(&state, RANKS);
        for (uint64_t i = t * TOPK; i < (t + 1) * TOPK; i++) {
            const int64_t id = made.routing.topk_idx[i];
            ids[i] = id < 0 ? -1 : (int64_t)rank * local + id % local;
        }
    }
    made.routing.topk_idx = ids;
    struct side ll = play(&made, SIM_MODE_LL, ranks_per_node, REF_RECIPE_LL);
    struct side normal = play(&made, SIM_MODE_NORMAL, ranks_per_node, REF_RECIPE_LL);
    ck_assert_uint_gt(made.tokens, 0);
    ck_assert_uint_lt(normal.traffic.received_rows, ll.traffic.received_rows);
    for (uint64_t i = 0; i < made.tokens * HID; i++)
        ck_assert_msg(normal.results.combined.x[i] == ll.results.combined.x[i],
                      "seed %" PRIu64 ", token %" PRIu64 ", channel %" PRIu64 ": %04x, not %04x",
                      made.seed, i / HID, i % HID, normal.results.combined.x[i],
                      ll.results.combined.x[i]);
    side_free(&ll);
    side_free(&normal);
}
END_TEST

static const char *const machines[] = {"h200-hgx", "toy-2x4"};

static struct fault_bench open_bench(const char *machine)
{
    struct fault_bench bench = fault_bench_open(sim_backend_ref(), NULL, "normal", machine, "8");
    bench.plan->expert = SIM_EXPERT_MLP;
    bench.plan->model.moe_inter = INTER;
    ck_assert_uint_eq(ref_recipe_payload_bytes(bench.plan->recipe), 1);
    return bench;
}

/* Message by message and by groups; a row that is lost, displaced or read too early is wrong as the
 * experts' row and as its token, and no other row is. */
START_TEST(one_fault_spoils_one_row_of_every_stage)
{
    static const enum sim_fault_kind kinds[] = {SIM_FAULT_DROP, SIM_FAULT_DOUBLE,
                                                SIM_FAULT_OVERTAKE};
    struct fault_bench bench = open_bench(machines[_i]);
    const uint32_t hop = (uint32_t)_i;
    uint64_t mismatches[SIM_STAGES];
    struct sim_message other;
    fault_bench_play(&bench, mismatches);
    for (int s = 0; s < SIM_STAGES; s++) ck_assert_uint_eq(mismatches[s], 0);
    const struct sim_message message = fault_bench_pick(&bench, SIM_DISPATCH, hop, &other);
    bench.plan->scenario.count = 1;
    for (int k = 0; k < 3; k++) {
        bench.plan->scenario.faults[0] = (struct sim_fault){
            .kind = kinds[k], .hop = hop, .target = fault_bench_target(&message)};
        fault_bench_play(&bench, mismatches);
        ck_assert_uint_eq(mismatches[SIM_STAGE_DISPATCH], mismatches[SIM_STAGE_EXPERT]);
        ck_assert_uint_eq(mismatches[SIM_STAGE_DISPATCH], mismatches[SIM_STAGE_COMBINE]);
        ck_assert_uint_eq(mismatches[SIM_STAGE_EXPERT], 1);
        const struct sim_message *hit = kinds[k] == SIM_FAULT_DOUBLE ? &other : &message;
        const struct sim_check *check =
            &bench.cell->checks[SIM_STAGE_EXPERT * bench.plan->ranks + message.dst_rank];
        ck_assert_uint_eq(check->mismatch_count, 1);
        ck_assert_uint_eq(check->src_rank, hit->home_rank);
        ck_assert_uint_eq(check->src_token, hit->token);
    }
    fault_bench_close(&bench);
}
END_TEST

START_TEST(rows_that_are_not_fp8_are_refused)
{
    static const char *const modes[] = {"ll", "normal"};
    struct test_output output;
    for (int m = 0; m < 2; m++) {
        ck_assert_int_eq(TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--mode",
                                    modes[m], "--recipe", "bf16", "--expert", "mlp"),
                         2);
        ck_assert_str_eq(output.err, "epsim run: --expert: mlp: its GEMMs take FP8 rows: --recipe "
                                     "must not be bf16\n");
    }
}
END_TEST

Suite *normal_mlp_suite(void)
{
    Suite *suite = suite_create("normal_mlp");
    TCase *tests = tcase_create("normal_mlp");
    tcase_add_test(tests, columns_of_one_rank_are_numbered_and_picked_by_hand);
    tcase_add_test(tests, answers_are_weighed_in_column_order_fused_and_rounded_once);
    tcase_add_loop_test(tests, combined_tokens_are_what_low_latencys_rows_make, 0, SEEDS);
    tcase_add_loop_test(tests, tokens_of_one_rank_are_low_latencys_bit_for_bit, 0, 2);
    tcase_add_loop_test(tests, one_fault_spoils_one_row_of_every_stage, 0, 2);
    tcase_add_test(tests, rows_that_are_not_fp8_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
