/* tests/test_dp.c - gather keeps bytes, reduce-scatter adds in rank order and rounds once. */
#include <check.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/dp.h"

START_TEST(gather_puts_ranks_one_after_the_other)
{
    static const char *const parts[3] = {"ab", "cd", "ef"};
    char out[6];
    ref_dp_gather((const void *const *)parts, 3, 2, out);
    ck_assert_mem_eq(out, "abcdef", 6);
    ref_dp_gather(NULL, 3, 0, NULL); /* Nothing to move. */
}
END_TEST

START_TEST(gatherv_takes_each_rank_its_own_size)
{
    static const void *const parts[4] = {"abc", NULL, "d", "ef"};
    static const uint64_t bytes[4] = {3, 0, 1, 2};
    char out[6];
    ref_dp_gatherv(parts, bytes, 4, out);
    ck_assert_mem_eq(out, "abcdef", 6);
}
END_TEST

/* 2^24 + 1 - 2^24 is 0 in fp32, 2^24 - 2^24 + 1 is 1. */
START_TEST(sums_run_over_ascending_ranks)
{
    static const uint16_t large[1] = {0x4B80}, one[1] = {0x3F80}, minus[1] = {0xCB80};
    const uint16_t *first[3] = {large, one, minus}, *second[3] = {large, minus, one};
    static const uint64_t rows[4] = {0, 1, 1, 1};
    uint16_t out[1];
    ref_dp_reduce_scatter(first, rows, 3, 1, 0, out);
    ck_assert_uint_eq(out[0], 0x0000);
    ref_dp_reduce_scatter(second, rows, 3, 1, 0, out);
    ck_assert_uint_eq(out[0], 0x3F80);
}
END_TEST

/* 1 + 2^-9 + 2^-8: rounded once 3F81, rounded after each addition 3F80 twice over. */
START_TEST(the_sum_is_rounded_once)
{
    static const uint16_t a[1] = {0x3F80}, b[1] = {0x3B00}, c[1] = {0x3B80};
    const uint16_t *inputs[3] = {a, b, c};
    static const uint64_t rows[4] = {0, 1, 1, 1};
    uint16_t out[1];
    ref_dp_reduce_scatter(inputs, rows, 3, 1, 0, out);
    ck_assert_uint_eq(out[0], 0x3F81);
}
END_TEST

START_TEST(minus_zero_sums_to_plus_zero)
{
    static const uint16_t zero[1] = {0x8000};
    const uint16_t *inputs[1] = {zero};
    static const uint64_t rows[2] = {0, 1};
    uint16_t out[1];
    ref_dp_reduce_scatter(inputs, rows, 1, 1, 0, out); /* +0 + -0 */
    ck_assert_uint_eq(out[0], 0x0000);
}
END_TEST

START_TEST(each_rank_gets_its_own_rows)
{
    enum { HIDDEN = 200, ROWS = 5, RANKS = 3 }; /* Not a multiple of the inner chunk. */
    static uint16_t in[RANKS][ROWS * HIDDEN], out[ROWS * HIDDEN];
    static const uint64_t rows[RANKS + 1] = {0, 2, 2, 5};
    const uint16_t *inputs[RANKS] = {in[0], in[1], in[2]};
    for (unsigned r = 0; r < RANKS; r++)
        for (unsigned i = 0; i < ROWS * HIDDEN; i++)
            in[r][i] = ref_bf16_from_f32((float)((i * 7 + r * 5) % 32));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        memset(out, 0xEE, sizeof out);
        ref_dp_reduce_scatter(inputs, rows, RANKS, HIDDEN, rank, out);
        const uint64_t count = (rows[rank + 1] - rows[rank]) * HIDDEN;
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t at = rows[rank] * HIDDEN + i;
            const uint64_t sum = (at * 7) % 32 + (at * 7 + 5) % 32 + (at * 7 + 10) % 32;
            ck_assert_float_eq(ref_bf16_to_f32(out[i]), (float)sum); /* Below 256: exact. */
        }
        if (count < ROWS * HIDDEN) ck_assert_uint_eq(out[count], 0xEEEE);
    }
}
END_TEST

Suite *dp_suite(void)
{
    Suite *suite = suite_create("dp");
    TCase *tests = tcase_create("dp");
    tcase_add_test(tests, gather_puts_ranks_one_after_the_other);
    tcase_add_test(tests, gatherv_takes_each_rank_its_own_size);
    tcase_add_test(tests, sums_run_over_ascending_ranks);
    tcase_add_test(tests, the_sum_is_rounded_once);
    tcase_add_test(tests, minus_zero_sums_to_plus_zero);
    tcase_add_test(tests, each_rank_gets_its_own_rows);
    suite_add_tcase(suite, tests);
    return suite;
}
