/* tests/test_traffic.c - messages: every row leaves once, lands once, and comes back.
 *
 * Method: one routing by hand with its whole message list; then random routings with empty ranks,
 * missing experts and duplicates (seed printed), of which only properties are stated. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/bytes.h"
#include "sim/rng.h"
#include "sim/traffic.h"

Suite *traffic_suite(void);

static char err[256];

static struct sim_traffic build(const struct ref_routing *routing, enum sim_mode mode,
                                uint32_t ranks_per_node)
{
    const struct sim_traffic_shape shape = {.mode = mode,
                                            .ranks_per_node = ranks_per_node,
                                            .nvlink = true,
                                            .row_bytes = {100, 200},
                                            .formula_bytes = {80, 160}};
    struct sim_traffic traffic;
    ck_assert_int_eq(sim_traffic_build(routing, &shape, &traffic, err, sizeof err), 0);
    return traffic;
}

static void assert_message(const struct sim_message *message, uint32_t src, uint64_t src_row,
                           uint32_t dst, uint64_t dst_row, uint32_t hop)
{
    ck_assert_uint_eq(message->src_rank, src);
    ck_assert_uint_eq(message->src_row, src_row);
    ck_assert_uint_eq(message->dst_rank, dst);
    ck_assert_uint_eq(message->dst_row, dst_row);
    ck_assert_uint_eq(message->hop, hop);
}

/* Four ranks on two nodes of two, one expert each. Token 0 of rank 0: experts 3, 2; token 1 of
 * rank 0: expert 1; token 0 of rank 3: experts 0, 3. */
static const uint64_t TOKEN_START[] = {0, 2, 2, 2, 3};
static const int64_t IDX[] = {3, 2, 1, -1, 0, 3};
static const struct ref_routing ROUTING = {4, 4, 2, TOKEN_START, IDX, NULL};

START_TEST(low_latency_messages_by_hand)
{
    struct sim_traffic traffic = build(&ROUTING, SIM_MODE_LL, 2);
    const struct sim_message *out = traffic.messages[SIM_DISPATCH];
    const struct sim_message *back = traffic.messages[SIM_COMBINE];
    /* Received rows by (expert, source): e0 r3; e1 r0; e2 r0; e3 r0; e3 r3. */
    ck_assert_uint_eq(traffic.received_rows, 5);
    assert_message(&out[0], 0, 0, 3, 3, 0);
    assert_message(&out[1], 0, 0, 2, 2, 0);
    assert_message(&out[2], 0, 1, 1, 1, 0);
    assert_message(&out[3], 3, 2, 0, 0, 0);
    assert_message(&out[4], 3, 2, 3, 4, 0);
    ck_assert_int_eq(out[0].link_class, SIM_LINK_NIC);
    ck_assert_int_eq(out[2].link_class, SIM_LINK_NVLINK);
    ck_assert_int_eq(out[4].link_class, SIM_LINK_LOCAL);
    assert_message(&back[0], 0, 0, 3, 3, 0);
    assert_message(&back[3], 3, 3, 0, 0, 0);
    sim_traffic_free(&traffic);
}
END_TEST

START_TEST(two_hop_messages_by_hand)
{
    struct sim_traffic traffic = build(&ROUTING, SIM_MODE_NORMAL, 2);
    const struct sim_message *out = traffic.messages[SIM_DISPATCH];
    const struct sim_message *back = traffic.messages[SIM_COMBINE];
    /* First hop, by token and node: token 0 -> node 1's GPU 0 = rank 2; token 1 -> own node, rank
     * 0; token 2 (rank 3, GPU 1) -> node 0's GPU 1 = rank 1, and own node, rank 3.
     * Rail rows by (forwarder, source): 0 from 0; 1 from 3; 2 from 0; 3 from 3. */
    ck_assert_uint_eq(traffic.rail_rows, 4);
    ck_assert_uint_eq(traffic.message_count[SIM_DISPATCH], 4 + 5);
    assert_message(&out[0], 0, 0, 2, 2, 0);
    assert_message(&out[1], 0, 1, 0, 0, 0);
    assert_message(&out[2], 3, 2, 1, 1, 0);
    assert_message(&out[3], 3, 2, 3, 3, 0);
    /* Second hop, by rail row and GPU. Received rows by (rank, source): 0 from 3; 1 from 0; 2 from
     * 0; 3 from 0; 3 from 3. */
    assert_message(&out[4], 0, 0, 1, 1, 1);
    assert_message(&out[5], 1, 1, 0, 0, 1);
    assert_message(&out[6], 2, 2, 2, 2, 1);
    assert_message(&out[7], 2, 2, 3, 3, 1);
    assert_message(&out[8], 3, 3, 3, 4, 1);
    ck_assert_int_eq(out[0].link_class, SIM_LINK_NIC);
    ck_assert_int_eq(out[1].link_class, SIM_LINK_LOCAL);
    ck_assert_int_eq(out[7].link_class, SIM_LINK_NVLINK);
    /* Combine mirrors: received row 3 goes to its forwarder, rank 2, as contribution 3; rail row
     * 2 then to home slot 0. */
    assert_message(&back[3], 3, 3, 2, 3, 0);
    assert_message(&back[5 + 2], 2, 2, 0, 0, 1);
    sim_traffic_free(&traffic);
}
END_TEST

/* A random routing of up to 40 tokens a rank; experts may be missing or doubled. */
static struct ref_routing draw(struct sim_rng *rng, uint32_t ranks, uint64_t *token_start,
                               int64_t *idx)
{
    const uint32_t experts = ranks * (1 + sim_rng_below(rng, 3)), topk = 1 + sim_rng_below(rng, 8);
    token_start[0] = 0;
    for (uint32_t r = 0; r < ranks; r++)
        token_start[r + 1] =
            token_start[r] + (sim_rng_below(rng, 4) == 0 ? 0 : sim_rng_below(rng, 40));
    for (uint64_t i = 0; i < token_start[ranks] * topk; i++)
        idx[i] = sim_rng_below(rng, 6) == 0 ? -1 : (int64_t)sim_rng_below(rng, experts);
    return (struct ref_routing){ranks, experts, topk, token_start, idx, NULL};
}

/* Every row of the hop's target is written exactly once. */
static void assert_once(const struct sim_traffic *traffic, enum sim_direction direction,
                        uint32_t hop, uint64_t rows, int seed)
{
    uint8_t *seen = (uint8_t *)calloc(rows + 1, 1);
    for (uint64_t m = 0; m < traffic->message_count[direction]; m++) {
        const struct sim_message *message = &traffic->messages[direction][m];
        if (message->hop != hop) continue;
        ck_assert_msg(message->dst_row < rows && !seen[message->dst_row]++, "seed %d", seed);
    }
    for (uint64_t r = 0; r < rows; r++) ck_assert_msg(seen[r] == 1, "seed %d row %d", seed, (int)r);
    free(seen);
}

/* Pairs are counted in LL mode by blocks of rows; here one by one. */
static void assert_pairs(const struct sim_traffic *traffic, enum sim_direction direction,
                         const struct sim_pair_bytes *pairs, int seed)
{
    uint64_t count[256] = {0};
    ck_assert_uint_le(traffic->ranks, 16);
    for (uint64_t m = 0; m < traffic->message_count[direction]; m++) {
        const struct sim_message *message = &traffic->messages[direction][m];
        count[message->src_rank * traffic->ranks + message->dst_rank]++;
    }
    for (uint32_t p = 0; p < traffic->ranks * traffic->ranks; p++)
        ck_assert_msg(pairs[p].messages == count[p], "seed %d, pair %u", seed, p);
}

/* Who only counts rows gets the same rows, and the same list afterwards. */
static void assert_counted(const struct ref_routing *routing, const struct sim_traffic *listed,
                           uint32_t ranks_per_node, int seed)
{
    const struct sim_traffic_shape shape = {
        .mode = listed->mode, .ranks_per_node = ranks_per_node, .nvlink = true};
    const uint64_t blocks = (uint64_t)routing->experts * routing->ranks;
    struct sim_traffic counted;
    ck_assert_int_eq(sim_traffic_count(routing, &shape, &counted, err, sizeof err), 0);
    ck_assert_msg((counted.messages[SIM_DISPATCH] == NULL) == (listed->mode == SIM_MODE_LL),
                  "seed %d", seed);
    ck_assert_uint_eq(counted.received_rows, listed->received_rows);
    ck_assert_uint_eq(counted.home_rows, listed->home_rows);
    if (listed->mode == SIM_MODE_LL)
        ck_assert_mem_eq(counted.block_start, listed->block_start, (blocks + 1) * 8);
    ck_assert_mem_eq(counted.home_start, listed->home_start, (ref_token_count(routing) + 1) * 8);
    ck_assert_int_eq(sim_traffic_list(routing, &counted, err, sizeof err), 0);
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        ck_assert_uint_eq(counted.message_count[d], listed->message_count[d]);
        for (uint64_t m = 0; m < listed->message_count[d]; m++)
            ck_assert_msg(counted.messages[d][m].dst_row == listed->messages[d][m].dst_row,
                          "seed %d, message %d", seed, (int)m);
    }
    sim_traffic_free(&counted);
}

START_TEST(every_row_lands_once_and_bytes_are_conserved)
{
    static const uint32_t SHAPES[][2] = {{1, 1}, {2, 2}, {8, 8}, {8, 4}, {12, 4}, {16, 8}};
    struct sim_rng rng = sim_rng_stream((uint64_t)_i, 99, 0, 0, 0);
    uint64_t token_start[17];
    int64_t *idx = (int64_t *)malloc(16 * 40 * 8 * sizeof *idx);
    const uint32_t *shape = SHAPES[_i % 6];
    const struct ref_routing routing = draw(&rng, shape[0], token_start, idx);
    const enum sim_mode mode = _i % 2 == 0 ? SIM_MODE_LL : SIM_MODE_NORMAL;
    struct sim_traffic traffic = build(&routing, mode, shape[1]);
    const bool rails = traffic.rail_rows > 0;
    const size_t pair_count = (size_t)shape[0] * shape[0];
    struct sim_pair_bytes *out = (struct sim_pair_bytes *)calloc(pair_count, sizeof *out);
    struct sim_pair_bytes *back = (struct sim_pair_bytes *)calloc(pair_count, sizeof *back);

    assert_once(&traffic, SIM_DISPATCH, rails ? 1 : 0, traffic.received_rows, _i);
    assert_once(&traffic, SIM_COMBINE, rails ? 1 : 0, traffic.home_rows, _i);
    if (rails) {
        assert_once(&traffic, SIM_DISPATCH, 0, traffic.rail_rows, _i);
        assert_once(&traffic, SIM_COMBINE, 0, traffic.contribution_rows, _i);
    }
    /* What r sends to s in dispatch comes back from s to r in combine: as many messages. */
    sim_bytes_pairs(&traffic, SIM_DISPATCH, out);
    sim_bytes_pairs(&traffic, SIM_COMBINE, back);
    assert_pairs(&traffic, SIM_DISPATCH, out, _i);
    assert_pairs(&traffic, SIM_COMBINE, back, _i);
    assert_counted(&routing, &traffic, shape[1], _i);
    for (uint32_t r = 0; r < shape[0]; r++) {
        for (uint32_t s = 0; s < shape[0]; s++) {
            const struct sim_pair_bytes *there = &out[r * shape[0] + s];
            const struct sim_pair_bytes *here = &back[s * shape[0] + r];
            ck_assert_msg(there->messages == here->messages, "seed %d", _i);
            ck_assert_msg(there->wire == 100 * there->messages, "seed %d", _i);
            ck_assert_msg(2 * there->formula == here->formula, "seed %d", _i);
            ck_assert_msg(there->distinct_rank <= there->formula, "seed %d", _i);
        }
    }
    free(out);
    free(back);
    sim_traffic_free(&traffic);
    free(idx);
}
END_TEST

Suite *traffic_suite(void)
{
    Suite *suite = suite_create("traffic");
    TCase *tests = tcase_create("traffic");
    tcase_add_test(tests, low_latency_messages_by_hand);
    tcase_add_test(tests, two_hop_messages_by_hand);
    tcase_add_loop_test(tests, every_row_lands_once_and_bytes_are_conserved, 0, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
