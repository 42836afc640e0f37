/* tests/test_v2.c - the functions of the second interface give the published numbers. */
#include "tests/exchange.h"

#include "ref/v2.h"

static const double H100_NVLINK_GBS = 18 * 26.56 * 0.9;

static struct ref_v2_group group(uint32_t nodes)
{
    return (struct ref_v2_group){
        .ranks = 8 * nodes, .scaleup = 8, .scaleout = nodes, .nvlink_ranks = 8};
}

static uint32_t sms(uint32_t nodes, double nvlink_gbs)
{
    const struct ref_v2_sms_in in = {group(nodes), 256, 8, nvlink_gbs, 50, true, 132};
    return ref_v2_num_sms(&in);
}

START_TEST(sm_counts_are_the_published_ones)
{
    ck_assert_uint_eq(sms(1, H100_NVLINK_GBS), 14);
    ck_assert_uint_eq(sms(2, H100_NVLINK_GBS), 12);
    ck_assert_uint_eq(sms(4, H100_NVLINK_GBS), 6);
    ck_assert_uint_eq(sms(8, H100_NVLINK_GBS), 4);
    ck_assert_uint_eq(sms(1, 810), 24); /* B200. */
    ck_assert_uint_eq(sms(2, 810), 12);
    ck_assert_uint_eq(sms(1, 18 * 53.125 * 0.9), 26);
    ck_assert_uint_eq(sms(1, 191), 6); /* H800. */
    ck_assert_uint_eq(sms(2, 191), 8);
    ck_assert_uint_eq(sms(4, 191), 6);
    ck_assert_uint_eq(sms(8, 191), 4);
}
END_TEST

START_TEST(sm_counts_respect_overlap_and_device)
{
    struct ref_v2_sms_in in = {group(1), 256, 8, 810, 50, false, 148};
    ck_assert_uint_eq(ref_v2_num_sms(&in), 64);
    in.device_sms = 40;
    ck_assert_uint_eq(ref_v2_num_sms(&in), 40);
    in.group = (struct ref_v2_group){.ranks = 1, .scaleup = 1, .scaleout = 1, .nvlink_ranks = 1};
    ck_assert_uint_eq(ref_v2_num_sms(&in), 40); /* No traffic: all of them. */
}
END_TEST

START_TEST(qp_counts_are_nine_or_sixteen_an_sm)
{
    ck_assert_uint_eq(ref_v2_num_qps(false, 24, 17), 9);
    ck_assert_uint_eq(ref_v2_num_qps(false, 4, 17), 4);
    ck_assert_uint_eq(ref_v2_num_qps(true, 6, 129), 97);
    ck_assert_uint_eq(ref_v2_num_qps(true, 12, 129), 129);
}
END_TEST

START_TEST(buffer_bytes_are_the_published_ones)
{
    static const struct {
        uint64_t max_tokens;
        uint32_t hidden;
        uint64_t mib[3]; /* 1, 2, 4 nodes of 8. */
    } right[] = {{128, 7168, {16, 72, 142}},
                 {128, 6144, {14, 62, 122}},
                 {4096, 7168, {450, 1162, 2322}},
                 {8192, 7168, {900, 2286, 4572}}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        for (uint32_t n = 0; n < 3; n++) {
            const struct ref_v2_buffer_in in = {
                group(1u << n), right[i].max_tokens, right[i].hidden, 8, true, true};
            ck_assert_uint_eq(ref_v2_buffer_bytes(&in), right[i].mib[n] << 20);
        }
}
END_TEST

START_TEST(single_reduction_ships_every_column)
{
    /* Direct over NVLink, H 1024, K 2, R 8, M 1024: dispatch 8 x 1024 x (2048 + 32), combine
     * min(8, 2) x 1024 x (2048 + 32): the first decides, 17,039,360 -> 9 x 2 MiB. */
    struct ref_v2_buffer_in in = {group(1), 1024, 1024, 2, false, true};
    ck_assert_uint_eq(ref_v2_buffer_bytes(&in), 9u << 21);
    /* Across NICs: send 8 x 1024 rows, times 2 when every column is shipped on its own:
     * combine 2,080 x (2,048 + 16,384) = 38,338,560 -> 19 x 2 MiB. */
    in.group.nvlink_ranks = 4;
    in.multiple_reduction = false;
    ck_assert_uint_eq(ref_v2_buffer_bytes(&in), 19u << 21);
}
END_TEST

START_TEST(prefix_sums_are_as_worked_out_by_hand)
{
    /* Two ranks, two experts each. Rank 0: (0,1), (2,0), (-1,-1); rank 1: (0,0), (3,-1).
     * Rank 0 holds expert 0 four times, expert 1 once, from 2 and 1 tokens. */
    const uint64_t counts[2] = {3, 2};
    const int64_t ids[10] = {0, 1, 2, 0, -1, -1, 0, 0, 3, -1};
    const struct exchange in = exchange_of(2, 4, 2, counts, ids, NULL);
    int32_t ranks[2], experts[2], unaligned[2];
    const struct ref_v2_psum out = {ranks, experts, unaligned};

    ref_v2_psums(&in.routing, 0, 8, false, &out);
    ck_assert_int_eq(ranks[0], 2);
    ck_assert_int_eq(ranks[1], 3);
    ck_assert_int_eq(unaligned[0], 4);
    ck_assert_int_eq(unaligned[1], 1);
    ck_assert_int_eq(experts[0], 8);
    ck_assert_int_eq(experts[1], 16);
    ref_v2_psums(&in.routing, 0, 8, true, &out);
    ck_assert_int_eq(experts[0], 4);
    ck_assert_int_eq(experts[1], 9);
}
END_TEST

START_TEST(combine_adds_ranks_by_their_highest_column)
{
    /* Four ranks of two experts; columns' ranks are 2, 0, none, 3, 0, 2: masters 3, 4, 5. */
    const uint64_t counts[4] = {1};
    const int64_t ids[6] = {4, 0, -1, 7, 1, 5};
    const struct exchange in = exchange_of(4, 8, 6, counts, ids, NULL);
    uint32_t ranks[REF_TOPK_MAX], masters[REF_TOPK_MAX];
    ck_assert_uint_eq(ref_v2_order(&in.routing, 0, ranks, masters), 3);
    ck_assert_uint_eq(ranks[0], 3);
    ck_assert_uint_eq(masters[0], 3);
    ck_assert_uint_eq(ranks[1], 0);
    ck_assert_uint_eq(masters[1], 4);
    ck_assert_uint_eq(ranks[2], 2);
    ck_assert_uint_eq(masters[2], 5);
}
END_TEST

START_TEST(reduction_of_two_keeps_minus_zero)
{
    uint16_t minus[128], one[128], out[128];
    const uint16_t *const rows[3] = {minus, minus, minus};
    for (int c = 0; c < 128; c++) minus[c] = 0x8000, one[c] = 0x3F80;
    ref_v2_reduce(128, rows, 1, NULL, NULL, out);
    ck_assert_uint_eq(out[127], 0x8000);
    ref_v2_reduce(128, rows, 2, NULL, NULL, out);
    ck_assert_uint_eq(out[127], 0x8000);
    ref_v2_reduce(128, rows, 3, NULL, NULL, out);
    ck_assert_uint_eq(out[127], 0x0000);
    ref_v2_reduce(128, rows, 0, NULL, NULL, out);
    ck_assert_uint_eq(out[127], 0x0000);
    ref_v2_reduce(128, rows, 2, one, one, out);
    ck_assert_uint_eq(out[127], 0x4000);
}
END_TEST

Suite *v2_suite(void)
{
    Suite *suite = suite_create("v2");
    TCase *tcase = tcase_create("v2");
    tcase_add_test(tcase, sm_counts_are_the_published_ones);
    tcase_add_test(tcase, sm_counts_respect_overlap_and_device);
    tcase_add_test(tcase, qp_counts_are_nine_or_sixteen_an_sm);
    tcase_add_test(tcase, buffer_bytes_are_the_published_ones);
    tcase_add_test(tcase, single_reduction_ships_every_column);
    tcase_add_test(tcase, prefix_sums_are_as_worked_out_by_hand);
    tcase_add_test(tcase, combine_adds_ranks_by_their_highest_column);
    tcase_add_test(tcase, reduction_of_two_keeps_minus_zero);
    suite_add_tcase(suite, tcase);
    return suite;
}
