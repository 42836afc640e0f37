/* tests/test_layout.c - counts, tables and layouts: by hand, then those of the captures. */
#include "tests/exchange.h"

#include "ref/layout.h"
#include "ref/ll.h"
#include "ref/normal.h"

static const char *const CASES[] = {"normal_ep2_small",   "normal_ep2_masked",  "normal_ep2_hot",
                                    "normal_ep2_onerank", "normal_ep4_small",   "normal_ep4_masked",
                                    "normal_ep4_hot",     "normal_ep4_onerank", "normal_ep8_masked",
                                    "normal_ep8_hot",     "normal_ep8_onerank"};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };

START_TEST(captured_layout_is_reproduced)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const uint64_t ranks = in.routing.ranks, experts = in.routing.experts;
    const uint64_t local = experts / ranks;
    const struct ref_layout_out out = {.num_tokens_per_rank = TEST_ARRAY(int32_t, ranks * ranks),
                                       .num_tokens_per_expert =
                                           TEST_ARRAY(int32_t, ranks * experts),
                                       .is_token_in_rank = TEST_ARRAY(uint8_t, in.tokens * ranks)};
    int32_t *listed = TEST_ARRAY(int32_t, experts);
    ref_layout(&in.routing, 8, &out);
    ref_layout_expert_counts(&in.routing, capture_setting(&capture, "align"), listed);

    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t first = in.routing.token_start[r];
        const uint64_t cells = (in.routing.token_start[r + 1] - first) * ranks;
        const uint8_t *is_in = out.is_token_in_rank + first * ranks;
        capture_equals(&capture, r, "num_tokens_per_rank", out.num_tokens_per_rank + r * ranks,
                       ranks * 4);
        capture_equals(&capture, r, "num_tokens_per_expert",
                       out.num_tokens_per_expert + r * experts, experts * 4);
        capture_equals(&capture, r, "is_token_in_rank", is_in, cells);
        capture_equals(&capture, r, "is_token_in_rank_h", is_in, cells);
        capture_equals(&capture, r, "num_recv_tokens_per_expert", listed + r * local, local * 4);
    }
}
END_TEST

START_TEST(captured_handle_is_reproduced)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const uint32_t channels = capture_setting(&capture, "sms") / 2;
    const uint64_t ranks = in.routing.ranks, table = ranks * channels;
    const struct ref_intranode_out out = {
        .rank_prefix_matrix = TEST_ARRAY(int32_t, ranks * ranks),
        .channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * table),
        .recv_channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * table),
        .send_head = TEST_ARRAY(int32_t, in.tokens * ranks)};
    ref_intranode_handle(&in.routing, channels, &out);
    ref_send_head_rewrite(&in.routing, channels, out.send_head);

    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t first = in.routing.token_start[r];
        const uint64_t count = in.routing.token_start[r + 1] - first;
        const int32_t *theirs =
            (const int32_t *)capture_tensor(&capture, r, "rank_prefix_matrix")->data;
        for (uint32_t i = 0; i < ranks; i++) /* The library fills its own column only. */
            ck_assert_int_eq(out.rank_prefix_matrix[i * ranks + r], theirs[i * ranks + r]);
        capture_equals(&capture, r, "channel_prefix_matrix", out.channel_prefix_matrix + r * table,
                       table * 4);
        capture_equals(&capture, r, "recv_channel_prefix_matrix",
                       out.recv_channel_prefix_matrix + r * table, table * 4);
        capture_equals(&capture, r, "send_head", out.send_head + first * ranks, count * ranks * 4);
    }
}
END_TEST

START_TEST(channels_are_contiguous_slices_and_the_last_may_be_empty)
{
    const uint64_t right[5][2] = {{0, 2}, {2, 4}, {4, 6}, {6, 7}, {7, 7}};
    uint64_t begin, end;
    for (uint32_t c = 0; c < 5; c++) {
        ref_channel_range(7, 5, c, &begin, &end);
        ck_assert_uint_eq(begin, right[c][0]);
        ck_assert_uint_eq(end, right[c][1]);
    }
    ref_channel_range(0, 5, 0, &begin, &end);
    ck_assert_uint_eq(begin, 0);
    ck_assert_uint_eq(end, 0);
}
END_TEST

START_TEST(heads_before_and_after_the_rewrite_are_as_worked_out_by_hand)
{
    /* One source of five tokens in two channels (three and two tokens), two ranks of one expert:
     * token 1 goes to rank 1 only, token 3 nowhere, the rest to rank 0. */
    const uint64_t counts[2] = {5, 0};
    const int64_t ids[5] = {0, 1, 0, -1, 0};
    const struct exchange in = exchange_of(2, 2, 1, counts, ids, NULL);
    const int32_t heads[5][2] = {{0, -1}, {-1, 0}, {1, -1}, {-1, -1}, {0, -1}};
    const int32_t none = -(1 << 25) - 1;
    const int32_t rewritten[5][2] = {{0, -1}, {-2, 0}, {1, none}, {-1, none}, {0, none}};
    int32_t got[5][2];
    const struct ref_intranode_out out = {.send_head = got[0]};

    ref_intranode_handle(&in.routing, 2, &out);
    ck_assert_mem_eq(got, heads, sizeof got);
    ref_send_head_rewrite(&in.routing, 2, got[0]);
    ck_assert_mem_eq(got, rewritten, sizeof got);
    ref_send_head_rewrite(&in.routing, 2, got[0]);
    ck_assert_mem_eq(got, rewritten, sizeof got);
}
END_TEST

START_TEST(a_token_counts_once_a_rank_and_once_a_node)
{
    /* Eight ranks on four nodes, two experts each; ids 0 and 1 are rank 0, 3 rank 1, 14 rank 7.
     * 16 and -5 name no expert. */
    const uint64_t counts[8] = {2};
    const int64_t ids[2 * 5] = {0, 1, 3, 14, 14, 16, -5, -1, -1, 15};
    const struct exchange in = exchange_of(8, 16, 5, counts, ids, NULL);
    int32_t ranks[64], nodes[32], experts[128];
    uint8_t is_in[16];
    const struct ref_layout_out out = {ranks, nodes, experts, is_in};
    const int32_t right_ranks[8] = {1, 1, 0, 0, 0, 0, 0, 2};
    const int32_t right_nodes[4] = {1, 0, 0, 2};
    const int32_t right_experts[16] = {1, 1, 0, 1, [14] = 2, [15] = 1};
    const uint8_t right_is_in[16] = {1, 1, 0, 0, 0, 0, 0, 1, [15] = 1};

    ref_layout(&in.routing, 2, &out);
    ck_assert_mem_eq(ranks, right_ranks, sizeof right_ranks);
    ck_assert_mem_eq(nodes, right_nodes, sizeof right_nodes);
    ck_assert_mem_eq(experts, right_experts, sizeof right_experts);
    ck_assert_mem_eq(is_in, right_is_in, sizeof right_is_in);
    for (uint32_t i = 8; i < 64; i++) ck_assert_int_eq(ranks[i], 0); /* The empty ranks. */
}
END_TEST

START_TEST(every_token_finds_its_home_past_empty_ranks)
{
    const uint64_t counts[6] = {0, 2, 0, 0, 1, 0};
    const int64_t ids[3] = {0, 0, 0};
    const struct exchange in = exchange_of(6, 6, 1, counts, ids, NULL);
    ck_assert_uint_eq(ref_token_home(&in.routing, 0), 1);
    ck_assert_uint_eq(ref_token_home(&in.routing, 1), 1);
    ck_assert_uint_eq(ref_token_home(&in.routing, 2), 4);
}
END_TEST

START_TEST(contiguous_layout_sorts_by_expert_and_pads_each)
{
    /* Rows (columns): 0: experts 1, 0; 1: expert 1, none; 2: none, 1; alignment 4; expert 2
     * gets nothing and no segment. */
    const int64_t ids[6] = {1, 0, 1, -1, -1, 1};
    const uint64_t right_start[4] = {0, 4, 8, 8};
    const int32_t right_indices[8] = {0, -1, -1, -1, 1, 1, 1, -1};
    const int64_t right_place[6] = {4, 0, 5, -1, -1, 6};
    uint64_t start[4];
    int32_t indices[8];
    int64_t place[6];

    ck_assert_uint_eq(ref_contiguous_layout(ids, 3, 2, 3, 4, start, NULL, NULL), 8);
    ck_assert_uint_eq(ref_contiguous_layout(ids, 3, 2, 3, 4, start, indices, place), 8);
    ck_assert_mem_eq(start, right_start, sizeof start);
    ck_assert_mem_eq(indices, right_indices, sizeof indices);
    ck_assert_mem_eq(place, right_place, sizeof place);
    ck_assert_uint_eq(ref_contiguous_layout(ids, 0, 2, 3, 128, start, indices, place), 0);
    ck_assert_uint_eq(ref_contiguous_layout(ids, 3, 2, 3, 1, start, indices, place), 4);
    ck_assert_int_eq(indices[3], 1);
}
END_TEST

START_TEST(masked_layout_counts_rows_of_every_expert)
{
    const struct exchange in = exchange_random((uint64_t)_i, 4, 12, 3, 9, 128);
    uint64_t *blocks = TEST_ARRAY(uint64_t, 12 * 4 + 1);
    int32_t masked[12], counted[12] = {0};
    (void)ref_ll_blocks(&in.routing, blocks);
    ref_masked_layout(&in.routing, blocks, 4 * 9 * 3, masked);
    for (uint64_t i = 0; i < in.tokens * 3; i++)
        if (in.routing.topk_idx[i] >= 0) counted[in.routing.topk_idx[i]]++;
    ck_assert_mem_eq(masked, counted, sizeof counted);
}
END_TEST

START_TEST(expected_m_is_the_average_plus_one)
{
    ck_assert_uint_eq(ref_expected_m(192, 8, 8, 256), 49); /* 12,288 / 256 = 48, + 1. */
    ck_assert_uint_eq(ref_expected_m(0, 8, 8, 256), 1);
    ck_assert_uint_eq(ref_expected_m(1, 1, 1, 256), 1); /* 257 / 256. */
}
END_TEST

Suite *layout_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *captures = tcase_create("captures");
    tcase_add_loop_test(captures, captured_layout_is_reproduced, 0, CASE_COUNT);
    tcase_add_loop_test(captures, captured_handle_is_reproduced, 0, CASE_COUNT);
    suite_add_tcase(suite, captures);
    TCase *hand = tcase_create("by hand");
    tcase_add_test(hand, channels_are_contiguous_slices_and_the_last_may_be_empty);
    tcase_add_test(hand, heads_before_and_after_the_rewrite_are_as_worked_out_by_hand);
    tcase_add_test(hand, a_token_counts_once_a_rank_and_once_a_node);
    tcase_add_test(hand, every_token_finds_its_home_past_empty_ranks);
    tcase_add_test(hand, contiguous_layout_sorts_by_expert_and_pads_each);
    tcase_add_loop_test(hand, masked_layout_counts_rows_of_every_expert, 0, 8);
    tcase_add_test(hand, expected_m_is_the_average_plus_one);
    suite_add_tcase(suite, hand);
    return suite;
}
