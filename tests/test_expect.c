/* tests/test_expect.c - inputs in, the reference's results out, and nothing when it cannot be.
 *
 * Small cases from bug reports (D1, D2, D8, D12, D13) with the right answers worked out by hand,
 * written as files, computed by the command's own function, and read back. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "sim/expect.h"
#include "sim/verify.h"
#include "tests/expect_support.h"
#include "tests/make_case.h"
#include "tests/support.h"

static void load(const char *folder, struct sim_capture *capture)
{
    struct sim_case_list list;
    char err[1024] = "";

    ck_assert_int_eq(sim_case_list(folder, false, &list, err, sizeof(err)), 0);
    ck_assert_uint_eq(list.count, 1);
    const int status = sim_capture_load(&list.places[0], capture, err, sizeof(err));
    ck_assert_msg(status == 0, "%s", err);
    sim_case_list_free(&list);
}

static void expect(struct sim_capture *results)
{
    uint64_t cases = 0, files = 0;
    char err[1024] = "";
    bool usage = false;
    const int status = sim_expect_folder(in_folder, out_folder, NULL, NULL, &cases, &files, &usage,
                                         err, sizeof(err));

    ck_assert_msg(status == 0, "%s", err);
    ck_assert_uint_eq(cases, 1);
    load(out_folder, results);
    ck_assert_uint_eq(files, results->ranks);
}

static const struct sim_tensor *tensor(const struct sim_capture *capture, uint32_t rank,
                                       const char *name, enum trace_dtype dtype, uint64_t rows,
                                       uint64_t columns)
{
    const struct sim_tensor *found = sim_capture_find(capture, rank, name);

    ck_assert_msg(found != NULL, "no %s on rank %" PRIu32, name, rank);
    ck_assert_int_eq(found->dtype, dtype);
    ck_assert_uint_eq(found->shape[0], rows);
    if (columns > 0) ck_assert_uint_eq(found->shape[1], columns);
    return found;
}

static void is_i32(const struct sim_capture *capture, uint32_t rank, const char *name,
                   uint64_t count, const int32_t *values)
{
    const struct sim_tensor *found = tensor(capture, rank, name, TRACE_I32, count, 0);

    for (uint64_t i = 0; i < count; i++)
        ck_assert_msg(((const int32_t *)(const void *)found->data)[i] == values[i],
                      "%s[%" PRIu64 "] of rank %" PRIu32, name, i, rank);
}

static void is_bool(const struct sim_capture *capture, uint32_t rank, const char *name,
                    uint64_t rows, uint64_t columns, const uint8_t *values)
{
    const struct sim_tensor *found = tensor(capture, rank, name, TRACE_BOOL, rows, columns);

    ck_assert(memcmp(found->data, values, rows * columns) == 0);
}

/* Every channel of every row of combined_x has its row's value. */
static void combined_is(const struct sim_capture *capture, uint32_t rank, const char *name,
                        uint64_t rows, const uint16_t *values)
{
    const struct sim_tensor *found = tensor(capture, rank, name, TRACE_BF16, rows, HIDDEN);
    const uint16_t *data = (const uint16_t *)(const void *)found->data;

    for (uint64_t i = 0; i < rows * HIDDEN; i++)
        ck_assert_msg(data[i] == values[i / HIDDEN], "%s[%" PRIu64 "]: %04X, not %04X", name, i,
                      data[i], values[i / HIDDEN]);
}

START_TEST(a_rank_without_tokens_in_low_latency) /* D1 */
{
    static const uint16_t x[] = {0x3F80, 0x4000, 0x4040};
    static const int64_t ids[] = {0, 2, 1, 3, 2, 3};
    const struct made_rank full = {3, x, ids, halves}, empty = {0, x, ids, halves};
    struct sim_capture results;

    put(0, ll_2_4, 2, &full);
    put(1, ll_2_4, 2, &empty);
    expect(&results);
    is_i32(&results, 0, "bf16.count", 2, (const int32_t[]){1, 1});
    is_i32(&results, 1, "ue8m0.count", 2, (const int32_t[]){2, 2});
    is_i32(&results, 1, "fp8.e1.src", 2, (const int32_t[]){1, 2});
    combined_is(&results, 0, "combined_x", 3, x);
    (void)tensor(&results, 1, "combined_x", TRACE_BF16, 0, HIDDEN);
    (void)tensor(&results, 1, "ue8m0.e0.scales", TRACE_I32, 2, HIDDEN / 512);
    ck_assert_ptr_null(sim_capture_find(&results, 0, "combined_x_logfmt"));
    sim_capture_close(&results);
}
END_TEST

START_TEST(a_rank_without_tokens_in_normal_mode) /* D1 */
{
    static const uint16_t x[] = {0x3F80, 0x4000, 0x4040}, twice[] = {0x4000, 0x4080, 0x4040};
    static const int64_t ids[] = {0, 2, 1, 3, 2, 3};
    const struct made_rank full = {3, x, ids, halves}, empty = {0, x, ids, halves};
    struct sim_capture results;

    put(0, normal_2_4, 2, &full);
    put(1, normal_2_4, 2, &empty);
    expect(&results);
    is_bool(&results, 0, "is_token_in_rank", 3, 2, (const uint8_t[]){1, 1, 1, 1, 0, 1});
    is_i32(&results, 0, "num_tokens_per_rank", 2, (const int32_t[]){2, 3});
    is_i32(&results, 0, "num_tokens_per_expert", 4, (const int32_t[]){1, 1, 2, 2});
    is_i32(&results, 1, "num_tokens_per_rank", 2, (const int32_t[]){0, 0});
    is_i32(&results, 1, "num_recv_tokens_per_expert", 2, (const int32_t[]){2, 2});
    is_i32(&results, 1, "recv_src_idx", 3, (const int32_t[]){0, 1, 2});
    is_i32(&results, 1, "rank_prefix_matrix", 2, (const int32_t[]){0, 3});
    combined_is(&results, 0, "combined_x", 3, twice); /* Unweighted: once per rank. */
    (void)tensor(&results, 1, "combined_topk_weights", TRACE_F32, 0, 2);
    sim_capture_close(&results);
}
END_TEST

START_TEST(nobody_has_a_token) /* D1 */
{
    const struct made_rank empty = {0, NULL, NULL, NULL};
    struct sim_capture results;

    put(0, ll_2_4, 2, &empty);
    put(1, ll_2_4, 2, &empty);
    expect(&results);
    for (uint32_t r = 0; r < 2; r++) is_i32(&results, r, "fp8r.count", 2, (const int32_t[]){0, 0});
    sim_capture_close(&results);
}
END_TEST

START_TEST(minus_one_is_no_expert_and_its_weight_is_not_read) /* D2 */
{
    static const uint16_t x[] = {0x3F80, 0x4000, 0x4040}, first[] = {0x3F80, 0x4000, 0x0000};
    static const int64_t ids[] = {0, -1, -1, 3, -1, -1}, one[] = {1, 2};
    const float weights[] = {1, NAN, NAN, 1, NAN, NAN};
    const struct made_rank a = {3, x, ids, weights}, b = {1, x, one, halves};
    struct sim_capture results;

    put(0, ll_2_4, 2, &a);
    put(1, ll_2_4, 2, &b);
    expect(&results);
    is_i32(&results, 0, "bf16.count", 2, (const int32_t[]){1, 1});
    is_i32(&results, 1, "bf16.count", 2, (const int32_t[]){1, 1});
    combined_is(&results, 0, "combined_x", 3, first);
    combined_is(&results, 1, "combined_x", 1, x);
    sim_capture_close(&results);
}
END_TEST

START_TEST(a_duplicate_expert_is_two_rows_in_low_latency) /* D13: 3 * (.25 + .5) = 2.25 */
{
    static const uint16_t x[] = {0x4040}, sum[] = {0x4010};
    static const int64_t ids[] = {1, 1};
    static const float weights[] = {.25f, .5f};
    const struct made_rank a = {1, x, ids, weights}, none = {0, x, ids, weights};
    struct sim_capture results;

    put(0, ll_2_4, 2, &a);
    put(1, ll_2_4, 2, &none);
    expect(&results);
    is_i32(&results, 0, "bf16.count", 2, (const int32_t[]){0, 2});
    is_i32(&results, 0, "bf16.e1.src", 2, (const int32_t[]){0, 0});
    combined_is(&results, 0, "combined_x", 1, sum);
    sim_capture_close(&results);
}
END_TEST

START_TEST(a_duplicate_expert_travels_once_in_normal_mode) /* D13 */
{
    static const uint16_t x[] = {0x4040};
    static const int64_t ids[] = {1, 1};
    const struct made_rank a = {1, x, ids, halves}, none = {0, x, ids, halves};
    struct sim_capture results;

    put(0, normal_2_4, 2, &a);
    put(1, normal_2_4, 2, &none);
    expect(&results);
    is_i32(&results, 0, "num_tokens_per_expert", 4, (const int32_t[]){0, 2, 0, 0});
    is_i32(&results, 0, "num_tokens_per_rank", 2, (const int32_t[]){1, 0});
    is_i32(&results, 0, "recv_src_idx", 1, (const int32_t[]){0});
    combined_is(&results, 0, "combined_x", 1, x);
    sim_capture_close(&results);
}
END_TEST

START_TEST(own_expert_output_is_combined_and_stays_with_the_results)
{
    static const uint16_t x[] = {0x3F80}, ten[] = {0x4120}, twenty[] = {0x41A0};
    static const int64_t ids[] = {0, 3};
    const struct made_rank a = {1, x, ids, halves}, none = {0, x, ids, halves};
    uint16_t *row10 = made_rows(ten, 1, HIDDEN), *row20 = made_rows(twenty, 1, HIDDEN);
    const struct trace_tensor first = made_tensor("expert_out.e0", TRACE_BF16, 1, HIDDEN, row10);
    const struct trace_tensor last = made_tensor("expert_out.e1", TRACE_BF16, 1, HIDDEN, row20);
    static const uint16_t fifteen[] = {0x4170};
    struct sim_capture results;
    struct sim_verify_report report;
    char err[1024] = "";
    bool usage = false;

    make_rank(in_folder, "case", 0, ll_2_4, HIDDEN, 2, &a, &first, 1); /* e1 has no rows here. */
    make_rank(in_folder, "case", 1, ll_2_4, HIDDEN, 2, &none, &last, 1);
    expect(&results);
    combined_is(&results, 0, "combined_x", 1, fifteen);
    (void)tensor(&results, 1, "expert_out.e1", TRACE_BF16, 1, HIDDEN);
    sim_capture_close(&results);
    ck_assert_int_eq(
        sim_verify_golden(out_folder, NULL, NULL, NULL, NULL, &report, &usage, err, sizeof(err)),
        0);
    ck_assert_msg(report.passed == 1, "%s: %s", report.first.tensor, report.first.cause);
    free(row10);
    free(row20);
}
END_TEST

START_TEST(own_codes_travel_as_they_are)
{
    static const uint16_t x[] = {0x3F80};
    static const int64_t ids[] = {0, 3};
    const struct made_rank a = {1, x, ids, halves}, none = {0, x, ids, halves};
    uint8_t codes[HIDDEN];
    float scales[HIDDEN / 128];
    struct sim_capture results;

    memset(codes, 0x42, sizeof(codes));
    for (uint32_t g = 0; g < HIDDEN / 128; g++) scales[g] = 7.0f;
    const struct trace_tensor more[2] = {
        made_tensor("x_fp8", TRACE_F8_E4M3, 1, HIDDEN, codes),
        made_tensor("x_scales", TRACE_F32, 1, HIDDEN / 128, scales)};
    make_rank(in_folder, "case", 0, normal_2_4, HIDDEN, 2, &a, more, 2);
    put(1, normal_2_4, 2, &none);
    expect(&results);
    const struct sim_tensor *recv = tensor(&results, 1, "recv_x_fp8", TRACE_F8_E4M3, 1, HIDDEN);
    ck_assert(memcmp(recv->data, codes, HIDDEN) == 0);
    recv = tensor(&results, 1, "recv_x_scales", TRACE_F32, 1, HIDDEN / 128);
    ck_assert(memcmp(recv->data, scales, sizeof(scales)) == 0);
    sim_capture_close(&results);
}
END_TEST

/* 16 ranks, one token of rank 0 with the given choices among 16 experts and the rows that its
 * experts return. */
static void put_two_nodes(const int64_t ids[3], const uint16_t values[3])
{
    static const char settings[] = "{\"mode\": \"normal\", \"ranks\": 16, \"experts\": 16}";
    static const uint16_t x[] = {0x3F80};
    static const float ones[] = {1, 1, 1};

    for (uint32_t r = 0; r < 16; r++) {
        const struct made_rank given = {r == 0 ? 1 : 0, x, ids, ones};
        uint16_t *row = made_rows(x, 1, HIDDEN);
        uint64_t rows = 0;

        for (uint32_t k = 0; k < 3; k++) {
            if (ids[k] != (int64_t)r) continue;
            for (uint32_t c = 0; c < HIDDEN; c++) row[c] = values[k];
            rows = 1;
        }
        const struct trace_tensor out = made_tensor("expert_out", TRACE_BF16, rows, HIDDEN, row);
        make_rank(in_folder, "case", r, settings, HIDDEN, 3, &given, &out, 1);
        free(row);
    }
}

START_TEST(two_nodes_round_twice) /* D12 b */
{
    static const uint16_t values[] = {0x3F80, 0x3B00, 0x3B80}, twice[] = {0x3F80};
    static const int64_t ids[] = {0, 1, 8};
    struct sim_capture results;

    put_two_nodes(ids, values);
    expect(&results);
    combined_is(&results, 0, "combined_x", 1, twice);
    sim_capture_close(&results);
}
END_TEST

START_TEST(one_node_of_two_rounds_once) /* D12 b */
{
    static const uint16_t values[] = {0x3F80, 0x3B00, 0x3B80}, once[] = {0x3F81};
    static const int64_t ids[] = {0, 1, 2};
    struct sim_capture results;

    put_two_nodes(ids, values);
    expect(&results);
    combined_is(&results, 0, "combined_x", 1, once);
    sim_capture_close(&results);
}
END_TEST

START_TEST(results_verify_and_a_port_with_a_reciprocal_is_named) /* D8 */
{
    static const int64_t ids[] = {0};
    static const float ones[] = {1};
    uint16_t x[HIDDEN] = {0x3F80, 0x3780};
    const struct trace_pair pair = {"case",
                                    "{\"mode\": \"ll\", \"ranks\": 1, \"experts\": 1, \"max\": 4}"};
    const struct trace_tensor tensors[3] = {made_tensor("x", TRACE_BF16, 1, HIDDEN, x),
                                            made_tensor("topk_idx", TRACE_I64, 1, 1, ids),
                                            made_tensor("topk_weights", TRACE_F32, 1, 1, ones)};
    struct sim_capture results;
    struct sim_verify_report report;
    char err[1024] = "";
    bool usage = false;
    const char *in = test_join(in_folder, "d8.rank0.safetensors");

    ck_assert_int_eq(trace_tensors_write(in, tensors, 3, &pair, 1, err, sizeof(err)), 0);
    expect(&results);
    const struct sim_tensor *found = tensor(&results, 0, "fp8.e0.x", TRACE_F8_E4M3, 1, HIDDEN);
    ck_assert_uint_eq(found->data[0], 0x7E);
    ck_assert_uint_eq(found->data[1], 0x04);
    ck_assert_int_eq(
        sim_verify_golden(out_folder, NULL, NULL, NULL, NULL, &report, &usage, err, sizeof(err)),
        0);
    ck_assert_uint_eq(report.passed, 1);

    /* The file's mapping is read-only: change the file itself, at the tensor's own place. */
    const char *path = test_join(out_folder, "d8.rank0.safetensors");
    size_t bytes = 0;
    char *whole = test_read(path, &bytes);
    const size_t at = (size_t)(found->data - results.rank[0].file.file.data);
    ck_assert_uint_lt(at + 1, bytes);
    whole[at + 1] = 0x03;
    sim_capture_close(&results);
    (void)test_write(out_folder, "d8.rank0.safetensors", whole, bytes);
    ck_assert_int_eq(
        sim_verify_golden(out_folder, NULL, NULL, NULL, NULL, &report, &usage, err, sizeof(err)),
        0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.tensor, "fp8.e0.x");
    ck_assert_int_eq(report.first.channel, 1);
    ck_assert_str_eq(report.first.expected, "03"); /* The capture's side. */
    ck_assert_str_eq(report.first.actual, "04");
    ck_assert_str_eq(report.first.cause, "codes match x * (1 / scale): multiplied by the "
                                         "reciprocal of the stored scale");
}
END_TEST

START_TEST(the_case_is_copied_as_it_stood)
{
    const struct made_rank none = {0, NULL, NULL, NULL};
    struct sim_capture results;

    put(0, ll_2_4, 2, &none);
    put(1, ll_2_4, 2, &none);
    expect(&results);
    ck_assert_str_eq(trace_tensors_metadata(&results.rank[1].file, "case"), ll_2_4);
    sim_capture_close(&results);
}
END_TEST

Suite *expect_suite(void);
Suite *expect_suite(void)
{
    Suite *suite = suite_create("expect");
    TCase *tcase = tcase_create("expect");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_rank_without_tokens_in_low_latency);
    tcase_add_test(tcase, a_rank_without_tokens_in_normal_mode);
    tcase_add_test(tcase, nobody_has_a_token);
    tcase_add_test(tcase, minus_one_is_no_expert_and_its_weight_is_not_read);
    tcase_add_test(tcase, a_duplicate_expert_is_two_rows_in_low_latency);
    tcase_add_test(tcase, a_duplicate_expert_travels_once_in_normal_mode);
    tcase_add_test(tcase, own_expert_output_is_combined_and_stays_with_the_results);
    tcase_add_test(tcase, own_codes_travel_as_they_are);
    tcase_add_test(tcase, two_nodes_round_twice);
    tcase_add_test(tcase, one_node_of_two_rounds_once);
    tcase_add_test(tcase, results_verify_and_a_port_with_a_reciprocal_is_named);
    tcase_add_test(tcase, the_case_is_copied_as_it_stood);
    suite_add_tcase(suite, tcase);
    return suite;
}
