/* tests/test_mapping.c - which rank lives on which of 1, 2, 4 and 8 GPUs, and how much memory a
 * plan takes there: counted rows, refused beforehand with the number missing.
 *
 * Method: tables written out by hand, then properties over every number of ranks. No GPU. */
#include <check.h>
#include <string.h>

#include "kernels/plan.h"
#include "ref/sizes.h"

Suite *mapping_suite(void);

enum { RANKS_MAX = 70 };

START_TEST(neighbouring_ranks_share_a_gpu_in_blocks)
{
    static const uint32_t eight_on_four[] = {0, 0, 1, 1, 2, 2, 3, 3};
    static const uint32_t six_on_four[] = {0, 0, 1, 2, 2, 3};
    static const uint32_t sixteen_on_eight[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
    for (uint32_t r = 0; r < 8; r++)
        ck_assert_uint_eq(gpu_rank_device(GPU_MAP_BLOCKS, 4, 8, r), eight_on_four[r]);
    for (uint32_t r = 0; r < 6; r++)
        ck_assert_uint_eq(gpu_rank_device(GPU_MAP_BLOCKS, 4, 6, r), six_on_four[r]);
    for (uint32_t r = 0; r < 16; r++)
        ck_assert_uint_eq(gpu_rank_device(GPU_MAP_BLOCKS, 8, 16, r), sixteen_on_eight[r]);
}
END_TEST

START_TEST(neighbouring_ranks_sit_on_different_gpus_round_robin)
{
    static const uint32_t ten_on_four[] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1};
    static const uint32_t nine_on_eight[] = {0, 1, 2, 3, 4, 5, 6, 7, 0};
    for (uint32_t r = 0; r < 10; r++)
        ck_assert_uint_eq(gpu_rank_device(GPU_MAP_ROUND_ROBIN, 4, 10, r), ten_on_four[r]);
    for (uint32_t r = 0; r < 9; r++)
        ck_assert_uint_eq(gpu_rank_device(GPU_MAP_ROUND_ROBIN, 8, 9, r), nine_on_eight[r]);
}
END_TEST

/* With at least as many ranks as GPUs, whoever they are. */
START_TEST(ranks_are_shared_out_evenly_on_1_2_4_and_8_gpus) /* Loop: the mapping. */
{
    const enum gpu_mapping mapping = (enum gpu_mapping)_i;
    for (uint32_t devices = 1; devices <= 8; devices *= 2) {
        for (uint32_t ranks = devices; ranks < RANKS_MAX; ranks++) {
            uint32_t held[8] = {0}, last = 0;
            for (uint32_t r = 0; r < ranks; r++) {
                const uint32_t device = gpu_rank_device(mapping, devices, ranks, r);
                ck_assert_uint_lt(device, devices);
                if (mapping == GPU_MAP_BLOCKS) ck_assert_uint_ge(device, last);
                last = device;
                held[device]++;
            }
            for (uint32_t d = 0; d < devices; d++) {
                ck_assert_uint_ge(held[d], ranks / devices);
                ck_assert_uint_le(held[d], (ranks + devices - 1) / devices);
            }
        }
    }
}
END_TEST

START_TEST(spans_walk_over_all_ranks_and_never_over_two_gpus) /* Loop: the mapping. */
{
    const enum gpu_mapping mapping = (enum gpu_mapping)_i;
    for (uint32_t devices = 1; devices <= 8; devices *= 2) {
        for (uint32_t ranks = 1; ranks < RANKS_MAX; ranks++) {
            uint32_t spans = 0;
            for (uint32_t first = 0; first < ranks; spans++) {
                const uint32_t end = gpu_span_end(mapping, devices, ranks, first, ranks);
                ck_assert_uint_gt(end, first);
                for (uint32_t r = first; r < end; r++)
                    ck_assert_uint_eq(gpu_rank_device(mapping, devices, ranks, r),
                                      gpu_rank_device(mapping, devices, ranks, first));
                first = end;
            }
            const uint32_t used = ranks < devices ? ranks : devices;
            ck_assert_uint_eq(spans, mapping == GPU_MAP_BLOCKS || devices == 1 ? used : ranks);
        }
    }
}
END_TEST

/* Four ranks with 1, 0, 1000 and 2 rows of 100 bytes, and a table of 10 rows of 8 on every GPU. */
static const uint64_t four[] = {0, 1, 1, 1001, 1003};
static const struct gpu_part parts[] = {{four, 0, 100}, {NULL, 10, 8}};

START_TEST(a_gpu_holds_the_rows_its_ranks_have)
{
    /* One GPU: 100,300 bytes and 80, each rounded up to 256. */
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_BLOCKS, 1, 4, parts, 2, 0), 100352 + 256);
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_BLOCKS, 2, 4, parts, 2, 0), 256 + 256);
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_BLOCKS, 2, 4, parts, 2, 1), 100352 + 256);
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_ROUND_ROBIN, 2, 4, parts, 2, 0), 100352 + 256);
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_ROUND_ROBIN, 2, 4, parts, 2, 1), 256 + 256);
    /* Each rank alone: the empty one holds the table and nothing else. */
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_BLOCKS, 4, 4, parts, 2, 1), 256);
    ck_assert_uint_eq(gpu_plan_bytes(GPU_MAP_BLOCKS, 8, 4, parts, 2, 7), 256);
}
END_TEST

START_TEST(rows_are_counted_not_reserved_by_capacity)
{
    /* EP32, 1024 tokens a rank, hidden 7168, 256 experts, top-8: the library's buffers have room
     * for every token at every expert. Ours: 8 rows a token. */
    static uint64_t received[33];
    for (uint32_t r = 0; r <= 32; r++) received[r] = r * UINT64_C(8192);
    const struct gpu_part rows[] = {{received, 0, 7552}, {received, 0, 14336}};
    const uint64_t ours = gpu_plan_bytes(GPU_MAP_BLOCKS, 1, 32, rows, 2, 0);
    ck_assert_uint_eq(ours, UINT64_C(262144) * (7552 + 14336));
    ck_assert_uint_eq(32 * ref_size_ll(1024, 7168, 256).total_bytes >> 30, 455);
    ck_assert_uint_eq(ours >> 30, 5);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_the_number_missing)
{
    char err[256] = "";
    ck_assert_int_eq(gpu_plan_fits(1, "this layer", 1000, 1000, 0, err, sizeof err), 0);
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(gpu_plan_fits(1, "this layer", 1001, 1000, 0, err, sizeof err), -1);
    ck_assert_str_eq(err,
                     "cuda: GPU 1: this layer needs 1001 bytes, 1000 are free: 1 bytes missing");
    ck_assert_int_eq(gpu_plan_fits(0, "it", 1001, 5000, 600, err, sizeof err), -1);
    ck_assert_str_eq(err, "cuda: GPU 0: it needs 1001 bytes, 600 are allowed: 401 bytes missing");
    ck_assert_int_eq(gpu_plan_fits(0, "it", 600, 5000, 600, err, sizeof err), 0);
}
END_TEST

START_TEST(sizes_beyond_64_bits_are_too_large_and_not_small)
{
    const struct gpu_part huge[] = {{NULL, UINT64_C(1) << 40, UINT64_C(1) << 40}, {NULL, 1, 1}};
    char err[256] = "";
    const uint64_t bytes = gpu_plan_bytes(GPU_MAP_BLOCKS, 1, 1, huge, 2, 0);
    ck_assert_uint_eq(bytes, UINT64_MAX);
    ck_assert_int_eq(gpu_plan_fits(0, "it", bytes, UINT64_C(1) << 37, 0, err, sizeof err), -1);
}
END_TEST

Suite *mapping_suite(void)
{
    Suite *suite = suite_create("mapping");
    TCase *tests = tcase_create("mapping");
    tcase_add_test(tests, neighbouring_ranks_share_a_gpu_in_blocks);
    tcase_add_test(tests, neighbouring_ranks_sit_on_different_gpus_round_robin);
    tcase_add_loop_test(tests, ranks_are_shared_out_evenly_on_1_2_4_and_8_gpus, 0, GPU_MAPPINGS);
    tcase_add_loop_test(tests, spans_walk_over_all_ranks_and_never_over_two_gpus, 0, GPU_MAPPINGS);
    tcase_add_test(tests, a_gpu_holds_the_rows_its_ranks_have);
    tcase_add_test(tests, rows_are_counted_not_reserved_by_capacity);
    tcase_add_test(tests, what_does_not_fit_is_refused_with_the_number_missing);
    tcase_add_test(tests, sizes_beyond_64_bits_are_too_large_and_not_small);
    suite_add_tcase(suite, tests);
    return suite;
}
