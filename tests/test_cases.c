/* tests/test_cases.c - the smallest inputs behind public bug reports, with the right answers.
 *
 * Cases keep the numbers of the collection they come from; here stands what the reference can
 * answer. What a deployment must refuse (D3-D5) is in the suite of sim/rules.h, the order-free
 * comparison (D15) in that of sim/verify.h. Unless said otherwise hidden is 2048, all channels
 * of a token hold one value, experts are the identity and the mode is low latency. */
#include "tests/exchange.h"

#include "ref/layout.h"
#include "ref/ll.h"
#include "ref/normal.h"
#include "ref/quantise.h"
#include "ref/sizes.h"

enum { HIDDEN = 2048 };

/* Rows of one value each. */
static uint16_t *filled(const uint16_t *values, uint64_t count)
{
    uint16_t *rows = TEST_ARRAY(uint16_t, count * HIDDEN);
    for (uint64_t i = 0; i < count * HIDDEN; i++) rows[i] = values[i / HIDDEN];
    return rows;
}

/* Fails unless every channel of row `row` is `right`. */
static void row_is(const uint16_t *rows, uint64_t row, uint16_t right)
{
    for (uint64_t c = 0; c < HIDDEN; c++)
        if (rows[row * HIDDEN + c] != right)
            ck_abort_msg("row %" PRIu64 " channel %" PRIu64 " is %04x, not %04x", row, c,
                         rows[row * HIDDEN + c], right);
}

/* LL dispatch and combine; answers NULL: identity, else expert e returns answers[e]. counts
 * [experts] receives the rows of each expert. */
static uint16_t *ll_combined(const struct exchange *in, const uint16_t *values,
                             const uint16_t *answers, uint64_t *counts)
{
    const struct ref_routing *routing = &in->routing;
    uint64_t *blocks = TEST_ARRAY(uint64_t, routing->experts * routing->ranks + 1);
    uint64_t *scratch = TEST_ARRAY(uint64_t, routing->experts);
    uint16_t *combined = TEST_ARRAY(uint16_t, in->tokens * HIDDEN);
    const uint64_t rows = ref_ll_blocks(routing, blocks);
    uint16_t *out = TEST_ARRAY(uint16_t, rows * HIDDEN);
    const struct ref_ll_rows received = {.payload = (uint8_t *)out};

    ref_ll_dispatch(routing, HIDDEN, REF_RECIPE_BF16, filled(values, in->tokens), blocks, scratch,
                    &received);
    for (uint32_t e = 0; e < routing->experts; e++) {
        const uint64_t first = blocks[e * routing->ranks];
        const uint64_t end = blocks[(e + 1) * routing->ranks];
        counts[e] = end - first;
        for (uint64_t i = first * HIDDEN; answers != NULL && i < end * HIDDEN; i++)
            out[i] = answers[e];
    }
    ref_ll_combine(routing, HIDDEN, out, blocks, scratch, combined);
    return combined;
}

/* Normal combine; rank r returns answers[r]. */
static uint16_t *normal_combined(const struct exchange *in, uint32_t ranks_per_node,
                                 const uint16_t *answers)
{
    const struct ref_routing *routing = &in->routing;
    uint64_t *blocks = TEST_ARRAY(uint64_t, routing->ranks * routing->ranks + 1);
    uint64_t *scratch = TEST_ARRAY(uint64_t, routing->ranks);
    uint16_t *combined = TEST_ARRAY(uint16_t, in->tokens * HIDDEN);
    const uint64_t rows = ref_normal_blocks(routing, blocks);
    uint16_t *out = TEST_ARRAY(uint16_t, rows * HIDDEN);
    for (uint32_t r = 0; r < routing->ranks; r++)
        for (uint64_t i = blocks[r * routing->ranks] * HIDDEN;
             i < blocks[(r + 1) * routing->ranks] * HIDDEN; i++)
            out[i] = answers[r];
    const struct ref_normal_combine_in combine = {.hidden = HIDDEN, .expert_out = out};
    ref_normal_combine(routing, ranks_per_node, &combine, blocks, scratch, combined, NULL);
    return combined;
}

START_TEST(d1_a_rank_without_tokens_is_a_normal_input)
{
    const uint64_t counts[2] = {3, 0};
    const int64_t ids[6] = {0, 2, 1, 3, 2, 3};
    const float weights[6] = {.5f, .5f, .5f, .5f, .5f, .5f};
    const uint16_t values[3] = {0x3F8D, 0xC123, 0x0003};
    const uint8_t right_in[6] = {1, 1, 1, 1, 0, 1};
    const struct exchange in = exchange_of(2, 4, 2, counts, ids, weights);
    uint64_t rows[4];
    int32_t per_rank[4];
    uint8_t is_in[6];
    const struct ref_layout_out layout = {.num_tokens_per_rank = per_rank,
                                          .is_token_in_rank = is_in};

    const uint16_t *combined = ll_combined(&in, values, NULL, rows);
    ck_assert(rows[0] == 1 && rows[1] == 1 && rows[2] == 2 && rows[3] == 2);
    for (uint32_t t = 0; t < 3; t++) row_is(combined, t, values[t]);
    ref_layout(&in.routing, 8, &layout);
    ck_assert_mem_eq(is_in, right_in, sizeof is_in);
    ck_assert(per_rank[0] == 2 && per_rank[1] == 3 && per_rank[2] == 0 && per_rank[3] == 0);

    const uint64_t none[2] = {0, 0};
    const struct exchange empty = exchange_of(2, 4, 2, none, ids, weights);
    (void)ll_combined(&empty, values, NULL, rows);
    for (uint32_t e = 0; e < 4; e++) ck_assert_uint_eq(rows[e], 0);
    ref_layout(&empty.routing, 8, &layout);
    for (uint32_t i = 0; i < 4; i++) ck_assert_int_eq(per_rank[i], 0);
}
END_TEST

START_TEST(d1_one_token_in_sixteen_ranks)
{
    const uint64_t counts[16] = {1};
    const int64_t ids[8] = {0, 16, 32, 48, 64, 80, 96, 112};
    const struct exchange in = exchange_of(16, 256, 8, counts, ids, NULL);
    uint64_t ll[256 * 16 + 1], normal[16 * 16 + 1];
    ck_assert_uint_eq(ref_ll_blocks(&in.routing, ll), 8);
    ck_assert_uint_eq(ref_normal_blocks(&in.routing, normal), 8);
    for (uint32_t r = 0; r < 16; r++) {
        ck_assert_uint_eq(ll[(r + 1) * 256] - ll[r * 256], r < 8 ? 1 : 0);
        ck_assert_uint_eq(normal[(r + 1) * 16] - normal[r * 16], r < 8 ? 1 : 0);
    }
}
END_TEST

START_TEST(d2_minus_one_is_no_expert_and_its_weight_is_not_read)
{
    const float nan = 0.0f / 0.0f;
    const uint64_t counts[2] = {3, 1};
    const int64_t ids[8] = {0, -1, -1, 3, -1, -1, 1, 2};
    const float weights[8] = {1, nan, nan, 1, nan, nan, .5f, .5f};
    const uint16_t values[4] = {0x3F81, 0xBF82, 0x4000, 0x4049};
    const uint8_t right_in[8] = {1, 0, 0, 1, 0, 0, 1, 1};
    const struct exchange in = exchange_of(2, 4, 2, counts, ids, weights);
    uint64_t rows[4];
    uint8_t is_in[8];
    const struct ref_layout_out layout = {.is_token_in_rank = is_in};

    const uint16_t *combined = ll_combined(&in, values, NULL, rows);
    for (uint32_t e = 0; e < 4; e++) ck_assert_uint_eq(rows[e], 1);
    row_is(combined, 0, 0x3F81);
    row_is(combined, 1, 0xBF82);
    row_is(combined, 2, 0x0000);
    row_is(combined, 3, 0x4049);
    ref_layout(&in.routing, 8, &layout);
    ck_assert_mem_eq(is_in, right_in, sizeof is_in);
}
END_TEST

START_TEST(d3_all_tokens_to_one_expert)
{
    static const uint32_t shapes[2][3] = {{4, 8, 1025}, {16, 256, 2304}}; /* R, E, T. */
    const uint32_t ranks = shapes[_i][0], experts = shapes[_i][1];
    const uint64_t tokens = shapes[_i][2];
    uint64_t counts[16];
    for (uint32_t r = 0; r < ranks; r++) counts[r] = tokens;
    const int64_t *ids = TEST_ARRAY(int64_t, ranks * tokens); /* All 0. */
    const struct exchange in = exchange_of(ranks, experts, 1, counts, ids, NULL);
    uint64_t *blocks = TEST_ARRAY(uint64_t, experts * ranks + 1);

    ck_assert_uint_eq(ref_ll_blocks(&in.routing, blocks), ranks * tokens);
    for (uint32_t s = 0; s < ranks; s++) ck_assert_uint_eq(blocks[s + 1] - blocks[s], tokens);
    ck_assert_uint_eq(blocks[ranks], _i == 0 ? 4100 : 36864);
    ck_assert_uint_eq(blocks[experts * ranks], blocks[ranks]);
    ck_assert_uint_eq(ref_size_qp_depth(tokens), _i == 0 ? 2052 : 4610);
}
END_TEST

START_TEST(d4_one_rank_alone_exchanges_with_itself)
{
    const uint64_t counts[1] = {2};
    const int64_t ids[4] = {2, 0, -1, 1};
    const float weights[4] = {.25f, .75f, 7, 1};
    const uint16_t values[2] = {0x3F80, 0xC000};
    const struct exchange in = exchange_of(1, 3, 2, counts, ids, weights);
    uint64_t rows[3];
    const uint16_t *combined = ll_combined(&in, values, NULL, rows);
    row_is(combined, 0, 0x3F80);
    row_is(combined, 1, 0xC000);
}
END_TEST

/* --- D6 to D10: what a group becomes in LL dispatch ------------------------------------------- */

struct group {
    uint8_t codes[128];
    uint32_t scale_bits;
    uint32_t byte; /* UE8M0 recipes. */
};

/* Channel 0 is first, channel 5 fifth, the rest `rest`; four equal groups in a row of 512. */
static struct group cast(enum ref_recipe recipe, uint16_t first, uint16_t fifth, uint16_t rest)
{
    const uint64_t counts[1] = {1};
    const int64_t ids[1] = {0};
    const struct exchange in = exchange_of(1, 1, 1, counts, ids, NULL);
    uint64_t blocks[2], scratch[1];
    uint16_t x[512];
    uint8_t payload[512];
    float scales[4];
    uint32_t packed = 0;
    struct ref_ll_rows rows = {.payload = payload, .scales = scales};
    struct group group;

    for (int c = 0; c < 512; c++) x[c] = c % 128 == 0 ? first : c % 128 == 5 ? fifth : rest;
    if (recipe == REF_RECIPE_LL_UE8M0) rows.scales_ue8m0 = &packed;
    (void)ref_ll_blocks(&in.routing, blocks);
    ref_ll_dispatch(&in.routing, 512, recipe, x, blocks, scratch, &rows);
    memcpy(group.codes, payload + 384, 128);
    memcpy(&group.scale_bits, &scales[3], sizeof group.scale_bits);
    group.byte = packed >> 24;
    return group;
}

START_TEST(d6_a_group_of_zeros_has_the_floors_scale)
{
    struct group group = cast(REF_RECIPE_LL, 0, 0x8000, 0);
    ck_assert_uint_eq(group.scale_bits, 0x346FACAD);
    for (int c = 0; c < 128; c++) ck_assert_uint_eq(group.codes[c], c == 5 ? 0x80 : 0x00);
    group = cast(REF_RECIPE_LL_UE8M0, 0, 0x8000, 0);
    ck_assert_uint_eq(group.scale_bits, 0x34800000);
    ck_assert_uint_eq(group.byte, 105);
    for (int c = 0; c < 128; c++) ck_assert_uint_eq(group.codes[c], c == 5 ? 0x80 : 0x00);
}
END_TEST

START_TEST(d7_a_group_below_the_floor_keeps_the_floors_scale)
{
    struct group group = cast(REF_RECIPE_LL, 0x3800, 0x3800, 0x3800);
    ck_assert_uint_eq(group.codes[9], 0x71);
    ck_assert_uint_eq(group.scale_bits, 0x346FACAD);
    group = cast(REF_RECIPE_LL_UE8M0, 0x3800, 0x3800, 0x3800);
    ck_assert_uint_eq(group.codes[9], 0x70);
    ck_assert_uint_eq(group.byte, 105);
}
END_TEST

START_TEST(d8_the_factor_is_448_over_the_maximum)
{
    struct group group = cast(REF_RECIPE_LL, 0x3F80, 0x3780, 0);
    ck_assert_uint_eq(group.codes[0], 0x7E);
    ck_assert_uint_eq(group.codes[5], 0x04);
    ck_assert_uint_eq(group.codes[6], 0x00);
    ck_assert_uint_eq(group.scale_bits, 0x3B124925);
    ck_assert_uint_eq(cast(REF_RECIPE_LL, 0x3F80, 0xB780, 0).codes[5], 0x84);
}
END_TEST

START_TEST(d9_the_stored_scale_is_a_product)
{
    static const struct {
        uint16_t value;
        uint32_t scale;
    } right[] = {{0x3F80, 0x3B124925}, {0x3F82, 0x3B14924A}, {0x3F90, 0x3B24924A},
                 {0x3F9A, 0x3B300001}, {0x4000, 0x3B924925}, {0x7F7F, 0x7B11B6DC}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        const uint16_t value = right[i].value;
        const struct group group = cast(REF_RECIPE_LL, value, value, value);
        ck_assert_uint_eq(group.scale_bits, right[i].scale);
        ck_assert_uint_eq(group.codes[77], 0x7E);
    }
}
END_TEST

START_TEST(d10_powers_of_two_round_up)
{
    static const struct {
        uint16_t value;
        uint8_t byte, code;
    } right[] = {{0x3F80, 119, 0x78}, {0xBF80, 119, 0xF8}, {0x4000, 120, 0x78}, {0x4040, 120, 0x7C},
                 {0x42FE, 126, 0x78}, {0x43E0, 127, 0x7E}, {0x43E1, 128, 0x76}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        const uint16_t value = right[i].value;
        const struct group group = cast(REF_RECIPE_LL_UE8M0, value, value, value);
        ck_assert_uint_eq(group.byte, right[i].byte);
        ck_assert_uint_eq(group.codes[100], right[i].code);
        ck_assert_uint_eq(group.scale_bits, (uint32_t)right[i].byte << 23);
        ck_assert_uint_eq(cast(REF_RECIPE_LL_ROUND, value, value, value).codes[100], right[i].code);
    }
}
END_TEST

START_TEST(d10_exponents_pack_lowest_group_first)
{
    static const uint16_t values[4] = {0x3F80, 0x43E0, 0x43E1, 0x4000};
    const uint64_t counts[1] = {1};
    const int64_t ids[1] = {0};
    const struct exchange in = exchange_of(1, 1, 1, counts, ids, NULL);
    uint64_t blocks[2], scratch[1];
    uint16_t x[512];
    uint8_t payload[512];
    uint32_t packed = 0;
    const struct ref_ll_rows rows = {.payload = payload, .scales_ue8m0 = &packed};
    for (int c = 0; c < 512; c++) x[c] = values[c / 128];
    (void)ref_ll_blocks(&in.routing, blocks);
    ref_ll_dispatch(&in.routing, 512, REF_RECIPE_LL_UE8M0, x, blocks, scratch, &rows);
    ck_assert_uint_eq(packed, 0x78807F77);
}
END_TEST

/* --- D11 to D16: sums --------------------------------------------------------------------------
 */

START_TEST(d11_columns_are_added_in_their_order) /* _i: number of ranks */
{
    static const uint32_t ranks[3] = {1, 2, 4};
    const uint64_t counts[4] = {1};
    const float ones[3] = {1, 1, 1};
    const uint16_t value[1] = {0x3F80}, answers[4] = {0x4B80, 0x3F80, 0xCB80, 0};
    const int64_t straight[3] = {0, 1, 2}, crossed[3] = {0, 2, 1};
    uint64_t rows[4];
    struct exchange in = exchange_of(ranks[_i], 4, 3, counts, straight, ones);
    row_is(ll_combined(&in, value, answers, rows), 0, 0x0000);
    in = exchange_of(ranks[_i], 4, 3, counts, crossed, ones);
    row_is(ll_combined(&in, value, answers, rows), 0, 0x3F80);
}
END_TEST

START_TEST(d12_three_legal_answers)
{
    const uint64_t counts[16] = {1};
    const uint16_t value[1] = {0x3F80};
    uint64_t rows[16];
    /* (a) Contributions 1, 2^-9, 2^-8: experts 0 and 1 on rank 0, expert 2 on rank 1. */
    const int64_t columns[3] = {0, 1, 2};
    const float weights[3] = {1.0f, 0x1p-9f, 0x1p-8f};
    struct exchange in = exchange_of(2, 4, 3, counts, columns, weights);
    row_is(ll_combined(&in, value, NULL, rows), 0, 0x3F81);
    /* Pre-reduced on rank 0, bf16(1 + 2^-9) is 1.0 (a tie to even): */
    const uint16_t reduced[2] = {0x3F80, 0x3B80};
    row_is(normal_combined(&in, 2, reduced), 0, 0x3F80);

    /* (b) 1 and 2^-9 on GPUs 0 and 1 of node 0, 2^-8 on node 1 - or on GPU 2 of node 0. */
    const int64_t across[3] = {0, 1, 8}, within[3] = {0, 1, 2};
    const uint16_t answers[16] = {0x3F80, 0x3B00, 0x3B80, [8] = 0x3B80};
    in = exchange_of(16, 16, 3, counts, across, NULL);
    row_is(normal_combined(&in, 8, answers), 0, 0x3F80);
    in = exchange_of(16, 16, 3, counts, within, NULL);
    row_is(normal_combined(&in, 8, answers), 0, 0x3F81);

    /* (c) Weights .3 and .6 on two ranks; bf16 outputs that hold them already: 3E9A, 3F1A. */
    const int64_t two[2] = {0, 2};
    const float parts[2] = {.3f, .6f};
    const uint16_t weighted[2] = {0x3E9A, 0x3F1A}, plain[2] = {0x3F80, 0x3F80};
    in = exchange_of(2, 4, 2, counts, two, parts);
    row_is(ll_combined(&in, value, NULL, rows), 0, 0x3F66);
    row_is(normal_combined(&in, 2, weighted), 0, 0x3F67);
    row_is(normal_combined(&in, 2, plain), 0, 0x4000); /* (d) */
}
END_TEST

START_TEST(d13_a_duplicate_is_two_rows_in_low_latency_and_one_in_normal)
{
    const uint64_t counts[2] = {1, 0};
    const int64_t ids[2] = {1, 1};
    const float weights[2] = {.25f, .5f};
    const uint16_t value[1] = {0x4040};
    const struct exchange in = exchange_of(2, 4, 2, counts, ids, weights);
    uint64_t rows[4], blocks[5];
    int32_t per_expert[8], per_rank[4];
    const struct ref_layout_out layout = {.num_tokens_per_rank = per_rank,
                                          .num_tokens_per_expert = per_expert};
    row_is(ll_combined(&in, value, NULL, rows), 0, 0x4010);
    ck_assert_uint_eq(rows[1], 2);
    ref_layout(&in.routing, 8, &layout);
    ck_assert_int_eq(per_expert[1], 2);
    ck_assert_int_eq(per_rank[0], 1);
    ck_assert_uint_eq(ref_normal_blocks(&in.routing, blocks), 1);
}
END_TEST

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

START_TEST(d16_multiply_and_add_are_one_operation)
{
    const uint64_t counts[1] = {1};
    const int64_t ids[2] = {0, 1};
    const uint16_t value[1] = {0x3F80};
    const uint16_t first[2] = {0x3F89, 0x402E}, second[2] = {0x4041, 0x4035};
    const float first_weights[2] = {from_bits(0x3DCCCCCD), from_bits(0x3F19999A)};
    const float second_weights[2] = {from_bits(0x3F333333), from_bits(0x3ECCCCCD)};
    uint64_t rows[2];
    struct exchange in = exchange_of(1, 2, 2, counts, ids, first_weights);
    row_is(ll_combined(&in, value, first, rows), 0, 0x3FDF);
    in = exchange_of(1, 2, 2, counts, ids, second_weights);
    row_is(ll_combined(&in, value, second, rows), 0, 0x404F);
}
END_TEST

Suite *cases_suite(void)
{
    Suite *suite = suite_create("cases");
    TCase *tcase = tcase_create("cases");
    tcase_add_test(tcase, d1_a_rank_without_tokens_is_a_normal_input);
    tcase_add_test(tcase, d1_one_token_in_sixteen_ranks);
    tcase_add_test(tcase, d2_minus_one_is_no_expert_and_its_weight_is_not_read);
    tcase_add_loop_test(tcase, d3_all_tokens_to_one_expert, 0, 2);
    tcase_add_test(tcase, d4_one_rank_alone_exchanges_with_itself);
    tcase_add_test(tcase, d6_a_group_of_zeros_has_the_floors_scale);
    tcase_add_test(tcase, d7_a_group_below_the_floor_keeps_the_floors_scale);
    tcase_add_test(tcase, d8_the_factor_is_448_over_the_maximum);
    tcase_add_test(tcase, d9_the_stored_scale_is_a_product);
    tcase_add_test(tcase, d10_powers_of_two_round_up);
    tcase_add_test(tcase, d10_exponents_pack_lowest_group_first);
    tcase_add_loop_test(tcase, d11_columns_are_added_in_their_order, 0, 3);
    tcase_add_test(tcase, d12_three_legal_answers);
    tcase_add_test(tcase, d13_a_duplicate_is_two_rows_in_low_latency_and_one_in_normal);
    tcase_add_test(tcase, d16_multiply_and_add_are_one_operation);
    suite_add_tcase(suite, tcase);
    return suite;
}
