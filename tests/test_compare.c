/* tests/test_compare.c - rows that landed in any order, compared by what they are.
 *
 * Case D15: the same four rows in two orders are equal; a payload in another row's place, a block
 * in the wrong place, and a row lost while another came twice are not. */
#include <check.h>
#include <string.h>
#include "sim/compare.h"
#include "tests/support.h"

enum { HIDDEN = 128 };

/* Four BF16 rows of one expert from two ranks; a row's value tells its source. */
struct rows {
    uint16_t payload[4][HIDDEN];
    int32_t src[4];
    int64_t layout[2];
    struct sim_block_rows view;
};

static void set_row(struct rows *rows, uint32_t row, int32_t token, uint16_t value)
{
    rows->src[row] = token;
    for (uint32_t c = 0; c < HIDDEN; c++) rows->payload[row][c] = value;
}

static void set_view(struct rows *rows)
{
    const struct sim_block_rows view = {.ranks = 2,
                                        .rows = 4,
                                        .layout = rows->layout,
                                        .src = rows->src,
                                        .payload = (const uint8_t *)rows->payload,
                                        .row_bytes = 2 * HIDDEN,
                                        .element_bytes = 2};

    rows->view = view;
}

/* (source, token): A = (1,1), (1,0), (0,0), (0,1); B = (0,0), (0,1), (1,0), (1,1). */
static struct rows a, b;

static void setup(void)
{
    set_row(&a, 0, 1, 0x4011);
    set_row(&a, 1, 0, 0x4010);
    set_row(&a, 2, 0, 0x4000);
    set_row(&a, 3, 1, 0x4001);
    a.layout[0] = 0x0000000200000002;
    a.layout[1] = 0x0000000000000002;
    set_row(&b, 0, 0, 0x4000);
    set_row(&b, 1, 1, 0x4001);
    set_row(&b, 2, 0, 0x4010);
    set_row(&b, 3, 1, 0x4011);
    b.layout[0] = 0x0000000000000002;
    b.layout[1] = 0x0000000200000002;
    set_view(&a);
    set_view(&b);
}

static uint64_t compare(struct sim_mismatch *first)
{
    char err[256] = "";
    uint64_t mismatches = 0;

    memset(first, 0, sizeof(*first));
    ck_assert_int_eq(sim_compare_block(&a.view, &b.view, &mismatches, first, err, sizeof(err)), 0);
    return mismatches;
}

START_TEST(order_does_not_matter)
{
    struct sim_mismatch first;

    ck_assert_uint_eq(compare(&first), 0);
}
END_TEST

START_TEST(payloads_that_changed_places_are_seen)
{
    struct sim_mismatch first;

    set_row(&a, 0, 1, 0x4010); /* Source ids stay. */
    set_row(&a, 1, 0, 0x4011);
    ck_assert_uint_eq(compare(&first), 2);
    ck_assert_int_eq(first.src_rank, 1);
    ck_assert_int_eq(first.src_token, 0);
    ck_assert_int_eq(first.channel, 0);
    ck_assert_str_eq(first.expected, "4011");
    ck_assert_str_eq(first.actual, "4010");
}
END_TEST

START_TEST(blocks_that_do_not_tile_are_seen)
{
    struct sim_mismatch first;

    a.layout[0] = 0x0000000100000002; /* [1,3) overlaps rank 1's [0,2). */
    ck_assert_uint_eq(compare(&first), 1);
    TEST_SAYS(first.cause, "do not tile");
    a.layout[0] = 0x0000000300000002; /* [3,5) leaves the expert. */
    ck_assert_uint_eq(compare(&first), 1);
    ck_assert_str_eq(first.expected, "[3,5)");
    a.layout[0] = 0x0000000200000001; /* Row 3 belongs to nobody. */
    ck_assert_uint_eq(compare(&first), 1);
    setup();
    b.layout[1] = -1; /* Count and begin of 2^32 - 1. */
    ck_assert_uint_eq(compare(&first), 1);
    ck_assert_str_eq(first.actual, "[4294967295,8589934590)");
}
END_TEST

START_TEST(a_lost_row_is_not_made_up_for_by_a_doubled_one)
{
    struct sim_mismatch first;

    set_row(&b, 1, 0, 0x4000); /* (0,0) twice, (0,1) gone. */
    ck_assert_uint_eq(compare(&first), 2);
    ck_assert_int_eq(first.src_rank, 0);
    ck_assert_int_eq(first.src_token, 0);
    ck_assert_str_eq(first.expected, "1 rows");
    ck_assert_str_eq(first.actual, "2 rows");
    ck_assert_int_eq(first.channel, -1);
}
END_TEST

START_TEST(copies_of_a_row_are_counted)
{
    struct sim_mismatch first;

    set_row(&a, 3, 0, 0x4000); /* A duplicate expert: (0,0) twice on both sides. */
    set_row(&b, 1, 0, 0x4000);
    ck_assert_uint_eq(compare(&first), 0);
    b.payload[1][77] ^= 1; /* One copy damaged. */
    ck_assert_uint_eq(compare(&first), 1);
    ck_assert_int_eq(first.channel, 77);
}
END_TEST

START_TEST(an_empty_source_may_begin_anywhere)
{
    struct sim_mismatch first;

    a.layout[0] = (int64_t)99 << 32;
    a.layout[1] = 4;
    b.layout[0] = 0;
    b.layout[1] = 4;
    for (uint32_t i = 0; i < 4; i++) set_row(&a, i, (int32_t)i, 0x4000);
    for (uint32_t i = 0; i < 4; i++) set_row(&b, i, 3 - (int32_t)i, 0x4000);
    ck_assert_uint_eq(compare(&first), 0);
}
END_TEST

START_TEST(scales_count_too)
{
    static float left[4], right[4];
    struct sim_mismatch first;

    for (uint32_t i = 0; i < 4; i++) left[i] = right[i] = 1.0f;
    a.view.scales = (const uint8_t *)left;
    b.view.scales = (const uint8_t *)right;
    a.view.scale_bytes = b.view.scale_bytes = 4;
    a.view.scale_channels = b.view.scale_channels = 128;
    ck_assert_uint_eq(compare(&first), 0);
    right[3] = 2.0f; /* Of (1,1). */
    ck_assert_uint_eq(compare(&first), 1);
    ck_assert_int_eq(first.src_rank, 1);
    ck_assert_int_eq(first.src_token, 1);
    ck_assert_str_eq(first.expected, "3F800000");
    ck_assert_str_eq(first.actual, "40000000");
    ck_assert_str_eq(first.tensor, "scales");
}
END_TEST

/* Two captures of normal mode with one table each. */
static void open_pair(struct sim_capture *one, struct sim_capture *other, const char *name,
                      enum trace_dtype dtype, const uint64_t shape[2], void **data)
{
    const struct sim_case settings = {.mode = SIM_MODE_NORMAL, .ranks = 2, .experts = 4};
    char err[256];

    ck_assert_int_eq(sim_capture_open("one", &settings, one, err, sizeof(err)), 0);
    ck_assert_int_eq(sim_capture_open("other", &settings, other, err, sizeof(err)), 0);
    data[0] = sim_capture_add(one, 1, name, dtype, 2, shape, err, sizeof(err));
    data[1] = sim_capture_add(other, 1, name, dtype, 2, shape, err, sizeof(err));
    ck_assert_ptr_nonnull(data[0]);
    ck_assert_ptr_nonnull(data[1]);
}

START_TEST(only_the_own_column_of_a_rank_prefix_counts)
{
    const struct sim_compare_options options = {.inputs = false};
    const uint64_t shape[2] = {2, 2};
    struct sim_capture one, other;
    struct sim_comparison comparison;
    void *data[2];
    char err[256];

    open_pair(&one, &other, "rank_prefix_matrix", TRACE_I32, shape, data);
    ((int32_t *)data[1])[0] = 7; /* Rank 1: column 0 is nobody's. */
    ck_assert_int_eq(sim_compare_captures(&one, &other, &options, &comparison, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(comparison.mismatches, 0);
    ck_assert_uint_eq(comparison.tensors, 1);
    ((int32_t *)data[1])[3] = 7;
    ck_assert_int_eq(sim_compare_captures(&one, &other, &options, &comparison, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(comparison.mismatches, 1);
    ck_assert_str_eq(comparison.first.stage, "layout");
    ck_assert_uint_eq(comparison.first.rank, 1);
    ck_assert_str_eq(comparison.first.expected, "0");
    ck_assert_str_eq(comparison.first.actual, "7");
    sim_capture_close(&one);
    sim_capture_close(&other);
}
END_TEST

START_TEST(a_combined_row_is_named_by_its_token)
{
    const struct sim_compare_options options = {.inputs = false};
    const uint64_t shape[2] = {3, HIDDEN};
    struct sim_capture one, other;
    struct sim_comparison comparison;
    void *data[2];
    char err[256];

    open_pair(&one, &other, "combined_x", TRACE_BF16, shape, data);
    ((uint16_t *)data[0])[2 * HIDDEN + 5] = 0x3F81;
    ck_assert_int_eq(sim_compare_captures(&one, &other, &options, &comparison, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(comparison.mismatches, 1);
    ck_assert_str_eq(comparison.first.stage, "combine");
    ck_assert_int_eq(comparison.first.src_rank, 1);
    ck_assert_int_eq(comparison.first.src_token, 2);
    ck_assert_int_eq(comparison.first.channel, 5);
    ck_assert_int_eq(comparison.first.expert, -1);
    ck_assert_str_eq(comparison.first.expected, "3F81");
    sim_capture_close(&one);
    sim_capture_close(&other);
}
END_TEST

START_TEST(a_tensor_on_one_side_counts_when_both_ways_are_asked)
{
    struct sim_compare_options options = {.both_ways = false};
    const struct sim_case settings = {.mode = SIM_MODE_NORMAL, .ranks = 1, .experts = 4};
    const uint64_t shape[2] = {1, 4};
    struct sim_capture one, other;
    struct sim_comparison comparison;
    char err[256];

    ck_assert_int_eq(sim_capture_open("one", &settings, &one, err, sizeof(err)), 0);
    ck_assert_int_eq(sim_capture_open("other", &settings, &other, err, sizeof(err)), 0);
    ck_assert_ptr_nonnull(
        sim_capture_add(&one, 0, "recv_topk_idx", TRACE_I64, 2, shape, err, sizeof(err)));
    ck_assert_int_eq(sim_compare_captures(&one, &other, &options, &comparison, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(comparison.tensors, 0);
    options.both_ways = true;
    ck_assert_int_eq(sim_compare_captures(&one, &other, &options, &comparison, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(comparison.mismatches, 1);
    ck_assert_str_eq(comparison.first.expected, "I64[1,4]");
    ck_assert_str_eq(comparison.first.actual, "missing");
    sim_capture_close(&one);
    sim_capture_close(&other);
}
END_TEST

Suite *compare_suite(void);
Suite *compare_suite(void)
{
    Suite *suite = suite_create("compare");
    TCase *tcase = tcase_create("compare");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, order_does_not_matter);
    tcase_add_test(tcase, payloads_that_changed_places_are_seen);
    tcase_add_test(tcase, blocks_that_do_not_tile_are_seen);
    tcase_add_test(tcase, a_lost_row_is_not_made_up_for_by_a_doubled_one);
    tcase_add_test(tcase, copies_of_a_row_are_counted);
    tcase_add_test(tcase, an_empty_source_may_begin_anywhere);
    tcase_add_test(tcase, scales_count_too);
    tcase_add_test(tcase, only_the_own_column_of_a_rank_prefix_counts);
    tcase_add_test(tcase, a_combined_row_is_named_by_its_token);
    tcase_add_test(tcase, a_tensor_on_one_side_counts_when_both_ways_are_asked);
    suite_add_tcase(suite, tcase);
    return suite;
}
