/* tests/test_ledger.c - every figure of the public account, by formula, and the counting beside it.
 *
 * Right values: the account's own figures, worked out by hand to the byte from its inputs
 * (192 rows, K 8, E 256, H 6144, 75 MoE layers of 78). */
#include <check.h>
#include <inttypes.h>
#include <string.h>
#include "sim/ledger.h"
#include "tests/json.h"
#include "tests/support.h"

static struct sim_model model;
static struct sim_ledger_line lines[SIM_LEDGER_LINES_MAX];
static size_t line_count;

static struct sim_ledger_input article(void)
{
    char err[256] = "";
    const int status = sim_model_load("glm-5.3-article", &model, err, sizeof(err));
    const struct sim_ledger_input input = {.model = &model,
                                           .ranks = 8,
                                           .ranks_per_node = 8,
                                           .rows = SIM_LEDGER_ROWS,
                                           .requests = SIM_LEDGER_REQUESTS,
                                           .context = SIM_LEDGER_CONTEXT,
                                           .chunk = SIM_LEDGER_CHUNK};

    ck_assert_msg(status == 0, "%s", err);
    return input;
}

START_TEST(the_four_crossings_to_the_byte)
{
    const struct sim_ledger_input input = article();
    struct sim_ledger ledger;

    sim_ledger_compute(&input, &ledger);
    ck_assert_uint_eq(ledger.gather, 2359296);   /* 192 * 6144 * 2 */
    ck_assert_uint_eq(ledger.dispatch, 9437184); /* 192 * 8 * 6144 */
    ck_assert_uint_eq(ledger.combine, 18874368); /* twice that */
    ck_assert_uint_eq(ledger.reduce_scatter, 2359296);
    ck_assert_uint_eq(ledger.step, 2491416576);         /* 75 * 28311552 + 78 * 4718592 */
    ck_assert_uint_eq(ledger.all_bf16, 2831155200);     /* 75 * 2 * 18874368 */
    ck_assert_uint_eq(ledger.fp8_dispatch, 2123366400); /* 75 * 28311552 */
    ck_assert_uint_eq(ledger.all_fp8, 1415577600);      /* 75 * 2 * 9437184 */
}
END_TEST

/* The first line of that name in that section. */
static const struct sim_ledger_line *line_of(const char *section, const char *name)
{
    const struct sim_ledger_line *found = NULL;

    for (size_t i = 0; i < line_count; i++) {
        if (strcmp(lines[i].section, section) != 0 || strcmp(lines[i].name, name) != 0) continue;
        if (found == NULL) found = &lines[i];
    }
    ck_assert_msg(found != NULL, "no line %s / %s", section, name);
    return found;
}

static const struct {
    const char *section, *name, *article;
    uint64_t value;
} figures[] = {
    {"one step", "dispatch and combine of a layer", "28.3 MB", 28311552},
    {"one step", "gather and reduce-scatter of a layer", "4.72 MB", 4718592},
    {"one step", "all four over all layers", "2.49 GB", 2491416576},
    {"dispatch and combine by precision", "all BF16", "2.83 GB", 2831155200},
    {"dispatch and combine by precision", "FP8 dispatch, BF16 combine", "2.13 GB", 2123366400},
    {"dispatch and combine by precision", "all FP8", "1.42 GB", 1415577600},
    {"the same step with TP + EP", "DP crossings, replaced", "368 MB", 368050176},
    {"the same step with TP + EP", "TP all-reduces", "644 MB", 644087808},
    {"the same step with TP + EP", "logits gather", "59.5 MB", 59473920},
    {"the same step with TP + EP", "dispatch in BF16 adds", "0.708 GB", 707788800},
    {"the same step with TP + EP", "step", "3.55 GB", 3534716928},
    {"prefill chunk, per layer", "dispatch", "1.61 GB", 1610612736},
    {"prefill chunk, per layer", "combine", "3.22 GB", 3221225472},
    {"sizes", "expected_m", "49", 49},
    {"sizes", "GEMM workspace", "402.65 MB", 402653184},
    {"sizes", "GEMM workspace at EP32", "100.66 MB", 100663296},
    {"sizes", "casts of a row, after sending", "8", 8},
    {"sizes", "FP32 scales of a row", "192 B", 192},
    {"sizes", "UE8M0 scales of a row", "48 B", 48},
    {"where experts live", "copies of a token, low latency", "8", 8},
    {"where experts live", "EP8: local experts, LL QPs a rank", "32", 32},
    {"where experts live", "EP16: local experts, LL QPs a rank", "16", 16},
    {"where experts live", "EP32: local experts, LL QPs a rank", "8", 8},
    {"where experts live", "EP8: share that crosses nodes", "0", 0},
    {"where experts live", "EP16: share that crosses nodes", "1/2", 5000},
    {"where experts live", "EP32: share that crosses nodes", "3/4", 7500},
    {"where experts live", "EP8: distinct ranks of a token, uniform", "", 52947},
    {"where experts live", "EP16: distinct ranks of a token, uniform", "", 65233},
    {"where experts live", "EP32: distinct ranks of a token, uniform", "", 72668},
    {"EP32 over IB (4 nodes of 8)", "copies of a token inside the node", "2", 2},
    {"EP32 over IB (4 nodes of 8)", "copies of a token over IB", "6", 6},
    {"EP32 over IB (4 nodes of 8)", "dispatch of a layer", "7.08 MB", 7077888},
    {"EP32 over IB (4 nodes of 8)", "combine of a layer", "14.16 MB", 14155776},
    {"EP32 over IB (4 nodes of 8)", "both", "21.23 MB", 21233664},
    {"EP32 over IB (4 nodes of 8)", "step", "1.59 GB", 1592524800},
    {"EP32 over IB (4 nodes of 8)", "step, each node", "398 MB", 398131200},
    {"EP32 over IB (4 nodes of 8)", "at the line rate", "0.995 ms", 995328000},
    {"EP32 over IB (4 nodes of 8)", "at the server's latency", "12.75 ms", 12750000000},
    {"one node", "dispatch of a rank", "1.18 MB", 1179648},
    {"one node", "at 900 GB/s", "1.31 us", 1310720},
    {"one node", "step at 20 us a layer", "1.5 ms", 1500000000},
    {"one node", "step at 40 us a layer", "3 ms", 3000000000},
    {"memory and compute", "expert weights of a rank, FP8", "90 GB", 90596966400},
    {"memory and compute", "down projection of a layer", "4.83 GFLOP", 4831838208},
    {"memory and compute", "at 500 TFLOP/s", "10 us", 9663676},
    {"memory and compute", "shared expert of a layer", "14.5 GFLOP", 14495514624},
    {"memory and compute", "combine of a rank", "2.36 MB", 2359296},
    {"memory and compute", "at 900 GB/s", "2.6 us", 2621440},
    {"attention, per card and step", "main attention reads", "3.35 GB", 3353346048},
    {"attention, per card and step", "indexer reads", "0.73 GB", 726663168},
    {"attention, per card and step", "indexer reads at 100K", "8.9 GB", 8870400000},
    {"attention, per card and step", "indexer cache of a token", "2,772 B", 2772},
    {"attention, per card and step", "indexer cache at 1M", "2.77 GB", 2772000000},
};

START_TEST(every_figure_of_the_article)
{
    const struct sim_ledger_input input = article();
    const struct sim_ledger_line *line = NULL;

    line_count = sim_ledger_lines(&input, lines);
    line = line_of(figures[_i].section, figures[_i].name);
    ck_assert_uint_eq(line->value, figures[_i].value);
    ck_assert_str_eq(line->article, figures[_i].article);
    ck_assert_uint_gt(strlen(line->formula), 0);
}
END_TEST

START_TEST(reads_of_one_card_take_time_at_the_memorys_rate)
{
    const struct sim_ledger_input input = article();
    uint64_t times[2] = {0, 0};
    size_t found = 0;

    line_count = sim_ledger_lines(&input, lines);
    for (size_t i = 0; i < line_count; i++)
        if (strcmp(lines[i].name, "at 4.8 TB/s") == 0 && found < 2) times[found++] = lines[i].value;
    ck_assert_uint_eq(found, 2);
    ck_assert_uint_eq(times[0], 698613760); /* 3353346048 / 4.8e12: 0.70 ms */
    ck_assert_uint_eq(times[1], 151388160); /* 726663168 / 4.8e12: 0.15 ms */
}
END_TEST

START_TEST(another_workload_has_no_article)
{
    struct sim_ledger_input input = article();

    input.rows = 193;
    line_count = sim_ledger_lines(&input, lines);
    for (size_t i = 0; i < line_count; i++) ck_assert_str_eq(lines[i].article, "");
}
END_TEST

START_TEST(two_tokens_counted_by_hand)
{
    /* Four ranks on two nodes, experts 2r and 2r + 1 on rank r. Token 0 of rank 0: ranks 0, 1, 2
     * (twice); token of rank 3: rank 3 twice and -1. */
    static const uint64_t start[] = {0, 1, 1, 1, 2};
    static const int64_t ids[] = {0, 3, 4, 5, 6, 7, -1, -1};
    const struct ref_routing routing = {
        .ranks = 4, .experts = 8, .topk = 4, .token_start = start, .topk_idx = ids};
    struct sim_ledger_counts counts;

    sim_ledger_count(&routing, 2, 256, true, &counts);
    ck_assert_uint_eq(counts.selections, 6);
    ck_assert_uint_eq(counts.messages, 6);
    ck_assert_uint_eq(counts.local, 3);
    ck_assert_uint_eq(counts.nvlink, 1);
    ck_assert_uint_eq(counts.nic, 2);
    ck_assert_uint_eq(counts.dispatch_bytes, 6 * 256);
    ck_assert_uint_eq(counts.dispatch_wire_bytes, 3 * (16 + 256 + 8));
    ck_assert_uint_eq(counts.combine_wire_bytes, 3 * 512);

    /* Experts 0 and 3 to 5 once, 6 and 7 once, 1 and 2 never. */
    ck_assert_uint_eq(counts.loads.experts, 8);
    ck_assert_uint_eq(counts.loads.rows, 6);
    ck_assert_uint_eq(counts.loads.max, 1);
    ck_assert_uint_eq(sim_ledger_load(&counts.loads, 0), 0);
    ck_assert_uint_eq(sim_ledger_load(&counts.loads, 2500), 0);
    ck_assert_uint_eq(sim_ledger_load(&counts.loads, 2600), 1);

    sim_ledger_count(&routing, 2, 256, false, &counts);
    ck_assert_uint_eq(counts.selections, 6);
    ck_assert_uint_eq(counts.messages, 4); /* Ranks 0, 1, 2 and 3. */
    ck_assert_uint_eq(counts.nic, 1);      /* Node 1, once, to rank 2, which wants it itself. */
    ck_assert_uint_eq(counts.nvlink, 1);   /* Rank 0 to 1. */
    ck_assert_uint_eq(counts.local, 3);    /* 0, 2 behind its own forwarder, 3. */
    ck_assert_uint_eq(counts.dispatch_wire_bytes, 2 * (256 + 8 + 8 + 32)); /* 304 = 19 * 16 */
    ck_assert_uint_eq(counts.combine_wire_bytes, 2 * (512 + 8 + 16 + 8));  /* 536 up to 544 */
}
END_TEST

START_TEST(distinct_groups_of_a_uniform_choice)
{
    ck_assert_uint_eq(sim_ledger_distinct(256, 8, 1), 10000);
    ck_assert_uint_eq(sim_ledger_distinct(8, 8, 8), 80000);
    ck_assert_uint_eq(sim_ledger_distinct(4, 2, 2), 16667); /* 2 (1 - 1/6) */
}
END_TEST

START_TEST(the_command_gives_integers)
{
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "ledger", "--model", "glm-5.3-article", "--ep", "8",
                                "--rows", "192", "--json"),
                     0);
    json_t *json = test_json(&output);
    json_t *crossings = json_object_get(json, "crossings");
    ck_assert_int_eq(int_at(crossings, "gather"), 2359296);
    ck_assert_int_eq(int_at(crossings, "combine"), 18874368);
    ck_assert_int_eq(int_at(json, "step"), 2491416576);
    json_t *precision = json_object_get(json, "by_precision");
    ck_assert_int_eq(int_at(precision, "all_fp8"), 1415577600);
    json_t *counted = json_object_get(json, "counted"), *ll = json_object_get(counted, "ll");
    ck_assert_int_eq(int_at(counted, "layers"), 75);
    ck_assert_int_eq(int_at(ll, "dispatch"), 75 * 9437184LL);
    json_t *masked = json_object_get(counted, "masked_m");
    ck_assert_double_eq(number_at(masked, "mean"), 6); /* 192 x 8 / 256 */
    ck_assert_int_gt(int_at(masked, "max"), 6);
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "ledger", "--rows", "0"), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "ledger", "--ep", "7"), 2);
}
END_TEST

Suite *ledger_suite(void);
Suite *ledger_suite(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");

    tcase_add_test(tcase, the_four_crossings_to_the_byte);
    tcase_add_loop_test(tcase, every_figure_of_the_article, 0,
                        (int)(sizeof(figures) / sizeof(figures[0])));
    tcase_add_test(tcase, reads_of_one_card_take_time_at_the_memorys_rate);
    tcase_add_test(tcase, another_workload_has_no_article);
    tcase_add_test(tcase, two_tokens_counted_by_hand);
    tcase_add_test(tcase, distinct_groups_of_a_uniform_choice);
    tcase_add_test(tcase, the_command_gives_integers);
    suite_add_tcase(suite, tcase);
    return suite;
}
