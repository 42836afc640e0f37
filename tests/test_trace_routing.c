/* tests/test_trace_routing.c - captured routing reaches the caller unchanged, or not at all.
 *
 * Method: small traces whose every id is known; one entry for every refusal; the real trace
 * against counts that were made independently of this program. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/mutate.h"
#include "tests/support.h"
#include "traces/npy.h"
#include "traces/routing.h"
#include "traces/safetensors.h"

enum { TOKENS = 5, LAYERS = 3, TOPK = 2, EXPERTS = 8 };

static char err[512];
static const uint64_t ids_shape[3] = {TOKENS, LAYERS, TOPK};

/* The id of a token in a layer and column: two columns never agree. */
static int64_t id_of(uint64_t token, uint32_t layer, uint32_t column)
{
    return (int64_t)(token + 3 * layer + 5 * column) % EXPERTS;
}

static void fill(enum trace_dtype dtype, void *out)
{
    const uint32_t width = trace_dtype_bytes(dtype);
    for (uint32_t i = 0; i < TOKENS * LAYERS * TOPK; i++) {
        const int64_t id = id_of(i / (LAYERS * TOPK), i / TOPK % LAYERS, i % TOPK);
        memcpy((char *)out + (size_t)i * width, &id, width); /* Little-endian. */
    }
}

static const char *write_npy(const char *folder, const char *name, enum trace_dtype dtype,
                             const uint64_t *shape, uint32_t axes, const void *data)
{
    const char *path = test_join(folder, name);
    ck_assert_msg(trace_npy_write(path, dtype, shape, axes, data, err, sizeof err) == 0, "%s", err);
    return path;
}

static int open_files(const char *ids, const char *offsets, const char *weights,
                      struct trace_routing *routing)
{
    const struct trace_routing_source source = {ids, offsets, weights, EXPERTS, false};
    memset(err, 0, sizeof err);
    return trace_routing_open(&source, routing, err, sizeof err);
}

static void expect_ids(const struct trace_routing *routing)
{
    ck_assert_uint_eq(routing->tokens, TOKENS);
    ck_assert_uint_eq(routing->layers, LAYERS);
    ck_assert_uint_eq(routing->topk, TOPK);
    for (uint64_t token = 0; token < TOKENS; token++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            int64_t ids[TOPK];
            trace_routing_ids(routing, token, layer, ids);
            for (uint32_t column = 0; column < TOPK; column++)
                ck_assert_int_eq(ids[column], id_of(token, layer, column));
        }
}

START_TEST(ids_of_every_integer_type_are_the_same)
{
    static const enum trace_dtype dtypes[] = {TRACE_U8,  TRACE_I8,  TRACE_U16, TRACE_I16,
                                              TRACE_U32, TRACE_I32, TRACE_U64, TRACE_I64};
    const char *folder = test_temp_dir();
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        uint64_t data[TOKENS * LAYERS * TOPK];
        fill(dtypes[i], data);
        const char *path = write_npy(folder, "ids.npy", dtypes[i], ids_shape, 3, data);
        struct trace_routing routing;
        ck_assert_msg(open_files(path, NULL, "", &routing) == 0, "%s", err);
        expect_ids(&routing);
        ck_assert_int_eq(routing.id_max, 7);
        ck_assert_uint_eq(routing.requests, 1);
        ck_assert_int_eq(routing.offsets[0], 0);
        ck_assert_int_eq(routing.offsets[1], TOKENS);
        ck_assert(!routing.has_weights);
        ck_assert_uint_eq(routing.file_count, 1);
        ck_assert_str_eq(routing.files[0].path, path);
        ck_assert_str_eq(routing.id_space, "logical");
        ck_assert_str_eq(routing.model, "");
        uint64_t digest = 0;
        ck_assert_int_eq(trace_routing_digest_file(path, &digest, err, sizeof err), 0);
        ck_assert_uint_eq(routing.files[0].digest, digest);
        trace_routing_close(&routing);
    }
}
END_TEST

START_TEST(offsets_and_weights_come_from_their_files)
{
    const char *folder = test_temp_dir();
    uint8_t ids[TOKENS * LAYERS * TOPK];
    float weights[TOKENS * LAYERS * TOPK];
    double wide[TOKENS * LAYERS * TOPK];
    for (int i = 0; i < TOKENS * LAYERS * TOPK; i++) weights[i] = (float)(wide[i] = i / 16.0);
    const int32_t offsets[] = {0, 2, 3, TOKENS};
    const uint64_t offsets_shape[] = {4};
    fill(TRACE_U8, ids);
    const char *ids_path = write_npy(folder, "ids.npy", TRACE_U8, ids_shape, 3, ids);
    const char *offsets_path = write_npy(folder, "o.npy", TRACE_I32, offsets_shape, 1, offsets);
    const char *paths[2] = {write_npy(folder, "w4.npy", TRACE_F32, ids_shape, 3, weights),
                            write_npy(folder, "w8.npy", TRACE_F64, ids_shape, 3, wide)};
    for (int i = 0; i < 2; i++) {
        struct trace_routing routing;
        ck_assert_msg(open_files(ids_path, offsets_path, paths[i], &routing) == 0, "%s", err);
        expect_ids(&routing);
        ck_assert_uint_eq(routing.requests, 3);
        for (int r = 0; r < 4; r++) ck_assert_int_eq(routing.offsets[r], offsets[r]);
        ck_assert(routing.has_weights);
        float row[TOPK];
        trace_routing_weights(&routing, 4, 2, row);
        ck_assert(row[0] == 28 / 16.0f && row[1] == 29 / 16.0f);
        ck_assert_uint_eq(routing.file_count, 3);
        ck_assert_str_eq(routing.files[1].path, offsets_path);
        ck_assert_str_eq(routing.files[2].path, paths[i]);
        trace_routing_close(&routing);
    }
}
END_TEST

/* Our own container, with or without its optional tensors. */
static const char *write_container(const char *folder, bool full, const char *id_space)
{
    uint16_t ids[TOKENS * LAYERS * TOPK];
    float weights[TOKENS * LAYERS * TOPK];
    const int64_t offsets[] = {0, 4, TOKENS};
    for (int i = 0; i < TOKENS * LAYERS * TOPK; i++) weights[i] = (float)i;
    fill(TRACE_U16, ids);
    const struct trace_tensor tensors[] = {
        {"topk_ids", TRACE_U16, 3, {TOKENS, LAYERS, TOPK}, 0, 0, ids},
        {"topk_w", TRACE_F32, 3, {TOKENS, LAYERS, TOPK}, 0, 0, weights},
        {"seq_offsets", TRACE_I64, 1, {3}, 0, 0, offsets},
    };
    const struct trace_pair pairs[] = {{"model", "toy"}, {"id_space", id_space}};
    const char *path = test_join(folder, "trace.safetensors");
    ck_assert_int_eq(
        trace_tensors_write(path, tensors, full ? 3 : 1, pairs, full ? 2 : 0, err, sizeof err), 0);
    return path;
}

START_TEST(a_container_holds_all_in_one_file)
{
    const char *folder = test_temp_dir();
    struct trace_routing routing;
    ck_assert_msg(open_files(write_container(folder, true, "physical"), "", "", &routing) == 0,
                  "%s", err);
    expect_ids(&routing);
    ck_assert_uint_eq(routing.requests, 2);
    ck_assert_int_eq(routing.offsets[1], 4);
    ck_assert(routing.has_weights);
    float row[TOPK];
    trace_routing_weights(&routing, 1, 1, row);
    ck_assert(row[0] == 8.0f && row[1] == 9.0f);
    ck_assert_str_eq(routing.id_space, "physical");
    ck_assert_str_eq(routing.model, "toy");
    ck_assert_uint_eq(routing.file_count, 1);
    trace_routing_close(&routing);

    ck_assert_msg(open_files(write_container(folder, false, ""), "", "", &routing) == 0, "%s", err);
    expect_ids(&routing);
    ck_assert_uint_eq(routing.requests, 1);
    ck_assert(!routing.has_weights);
    trace_routing_close(&routing);
}
END_TEST

START_TEST(loose_files_override_those_of_a_container)
{
    const char *folder = test_temp_dir();
    const int64_t offsets[] = {0, 1, 2, TOKENS};
    const uint64_t offsets_shape[] = {4};
    const char *offsets_path = write_npy(folder, "o.npy", TRACE_I64, offsets_shape, 1, offsets);
    struct trace_routing routing;
    ck_assert_msg(
        open_files(write_container(folder, true, "logical"), offsets_path, NULL, &routing) == 0,
        "%s", err);
    ck_assert_uint_eq(routing.requests, 3);
    ck_assert_uint_eq(routing.file_count, 2);
    trace_routing_close(&routing);
}
END_TEST

START_TEST(a_container_of_something_else_is_refused)
{
    const char *folder = test_temp_dir();
    struct trace_routing routing;
    ck_assert_int_eq(open_files(write_container(folder, true, "both"), "", "", &routing), -1);
    TEST_SAYS(err, "id_space: 'both': expected logical or physical");
    const char *other = test_join(folder, "other");
    const struct trace_tensor masked[] = {
        {"topk_ids", TRACE_U8, 3, {1, 1, 1}, 0, 0, "\1"},
        {"valid", TRACE_BOOL, 1, {1}, 0, 0, "\1"},
    };
    ck_assert_int_eq(trace_tensors_write(other, masked, 2, NULL, 0, err, sizeof err), 0);
    ck_assert_int_eq(open_files(other, "", "", &routing), -1);
    TEST_SAYS(err, "tensor valid: masks are not supported");
    ck_assert_int_eq(trace_tensors_write(other, masked + 1, 1, NULL, 0, err, sizeof err), 0);
    ck_assert_int_eq(open_files(other, "", "", &routing), -1);
    TEST_SAYS(err, "no tensor topk_ids");
    test_write_text(folder, "other", "neither of them");
    ck_assert_int_eq(open_files(other, "", "", &routing), -1);
    TEST_SAYS(err, "neither a .npy file");
}
END_TEST

START_TEST(ids_that_cannot_be_are_named)
{
    static const struct {
        size_t element; /* Of [5][3][2]. */
        int64_t value;
        const char *expected; /* NULL: accepted. */
    } cases[] = {
        {0, 8, "token 0, layer 0, column 0: expert 8: expected -1 to 7"},
        {29, 8, "token 4, layer 2, column 1: expert 8: expected -1 to 7"},
        {15, -2, "token 2, layer 1, column 1: expert -2: expected -1 to 7"},
        {15, INT64_MAX, "expert 9223372036854775807: expected -1 to 7"},
        {15, INT64_C(1) << 32, "expert 4294967296: expected -1 to 7"},
        {15, 5, "token 2, layer 1, column 1: expert 5 stands twice in the row"},
        {15, -1, NULL},
        {15, 6, NULL},
    };
    const char *folder = test_temp_dir();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ids[TOKENS * LAYERS * TOPK];
        fill(TRACE_I64, ids);
        ck_assert_int_eq(ids[14], 5);
        ids[cases[i].element] = cases[i].value;
        const char *path = write_npy(folder, "ids.npy", TRACE_I64, ids_shape, 3, ids);
        struct trace_routing routing;
        const int status = open_files(path, NULL, NULL, &routing);
        if (cases[i].expected == NULL) {
            ck_assert_msg(status == 0, "%s", err);
            trace_routing_close(&routing);
            continue;
        }
        ck_assert_int_eq(status, -1);
        TEST_SAYS(err, cases[i].expected);
        TEST_SAYS(err, "ids.npy: ");
    }
}
END_TEST

START_TEST(duplicates_may_be_allowed_and_are_counted)
{
    const int16_t ids[] = {3, 3, -1, -1, 2, 1};
    const uint64_t shape[] = {3, 1, 2};
    const char *path = write_npy(test_temp_dir(), "ids.npy", TRACE_I16, shape, 3, ids);
    struct trace_routing routing;
    const struct trace_routing_source source = {path, NULL, NULL, 0, true};
    ck_assert_int_eq(trace_routing_open(&source, &routing, err, sizeof err), 0);
    ck_assert_uint_eq(routing.duplicate_rows, 1); /* No expert twice is no duplicate. */
    ck_assert_int_eq(routing.id_max, 3);
    trace_routing_close(&routing);
}
END_TEST

START_TEST(shapes_that_cannot_be_are_named)
{
    static const struct {
        enum trace_dtype dtype;
        uint32_t axes;
        uint64_t shape[4];
        const char *expected;
    } cases[] = {
        {TRACE_F32, 3, {1, 1, 1}, "dtype F32: expected an integer type"},
        {TRACE_BOOL, 3, {1, 1, 1}, "dtype BOOL: expected an integer type"},
        {TRACE_U8, 2, {2, 1}, "2 axes: expected 3, [tokens][layers][K]"},
        {TRACE_U8, 4, {1, 1, 1, 1}, "4 axes: expected 3"},
        {TRACE_U8, 3, {0, 3, 2}, "0 tokens: expected at least 1"},
        {TRACE_U8, 3, {3, 0, 2}, "0 layers: expected 1 to 65536"},
        {TRACE_U8, 3, {1, 65537, 1}, "65537 layers: expected 1 to 65536"},
        {TRACE_U8, 3, {1, 3, 0}, "K is 0: expected 1 to 32"},
        {TRACE_U8, 3, {1, 1, 33}, "K is 33: expected 1 to 32"},
    };
    static const uint8_t zeros[1 << 17] = {0};
    const char *folder = test_temp_dir();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path =
            write_npy(folder, "ids.npy", cases[i].dtype, cases[i].shape, cases[i].axes, zeros);
        struct trace_routing routing;
        ck_assert_int_eq(open_files(path, NULL, NULL, &routing), -1);
        TEST_SAYS(err, cases[i].expected);
    }
}
END_TEST

START_TEST(offsets_that_cannot_be_are_named)
{
    static const struct {
        uint64_t count;
        int64_t offsets[4];
        const char *expected;
    } cases[] = {
        {3, {1, 2, 5}, "offsets[0]: 1: expected 0"},
        {3, {0, 2, 4}, "offsets[2]: 4: expected the number of tokens, 5"},
        {3, {0, 2, 6}, "offsets[2]: 6: expected the number of tokens, 5"},
        {4, {0, 3, 2, 5}, "offsets[2]: 2: expected above the 3 before it"},
        {4, {0, 2, 2, 5}, "offsets[2]: 2: expected above the 2 before it"},
        {3, {0, -1, 5}, "offsets[1]: -1: expected above the 0 before it"},
        {1, {0}, "1 axes, 1 elements: expected [requests + 1]"},
        {0, {0}, "1 axes, 0 elements: expected [requests + 1]"},
    };
    const char *folder = test_temp_dir();
    uint8_t ids[TOKENS * LAYERS * TOPK];
    fill(TRACE_U8, ids);
    const char *ids_path = write_npy(folder, "ids.npy", TRACE_U8, ids_shape, 3, ids);
    struct trace_routing routing;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path =
            write_npy(folder, "o.npy", TRACE_I64, &cases[i].count, 1, cases[i].offsets);
        ck_assert_int_eq(open_files(ids_path, path, NULL, &routing), -1);
        TEST_SAYS(err, cases[i].expected);
        TEST_SAYS(err, "o.npy: ");
    }
    const float floats[] = {0, 5};
    const uint64_t two[] = {2};
    ck_assert_int_eq(
        open_files(ids_path, write_npy(folder, "o.npy", TRACE_F32, two, 1, floats), NULL, &routing),
        -1);
    TEST_SAYS(err, "offsets: dtype F32: expected an integer type");
}
END_TEST

START_TEST(weights_must_fit_the_ids)
{
    const char *folder = test_temp_dir();
    uint8_t ids[TOKENS * LAYERS * TOPK];
    const float weights[TOKENS * LAYERS * TOPK] = {0};
    const uint64_t flat[] = {TOKENS * LAYERS * TOPK};
    fill(TRACE_U8, ids);
    const char *ids_path = write_npy(folder, "ids.npy", TRACE_U8, ids_shape, 3, ids);
    struct trace_routing routing;
    const char *path = write_npy(folder, "w.npy", TRACE_F32, flat, 1, weights);
    ck_assert_int_eq(open_files(ids_path, NULL, path, &routing), -1);
    TEST_SAYS(err, "w.npy: weights: 1 axes of 30 elements: expected the shape of the "
                   "ids, [5][3][2]");
    path = write_npy(folder, "w.npy", TRACE_I32, ids_shape, 3, weights);
    ck_assert_int_eq(open_files(ids_path, NULL, path, &routing), -1);
    TEST_SAYS(err, "weights: dtype I32: expected F32 or F64");
}
END_TEST

START_TEST(the_real_trace_has_the_counts_made_elsewhere)
{
    const char *ids = test_data_path("traces/gptoss20b_topk_ids.npy");
    const char *offsets = test_data_path("traces/gptoss20b_offsets.npy");
    const char *counts_path = test_data_path("traces/gptoss20b_logical_count.npy");
    if (ids == NULL || offsets == NULL || counts_path == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    struct trace_routing routing;
    const struct trace_routing_source source = {ids, offsets, NULL, 32, false};
    ck_assert_msg(trace_routing_open(&source, &routing, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(routing.tokens, 110987);
    ck_assert_uint_eq(routing.requests, 330);
    ck_assert_uint_eq(routing.layers, 24);
    ck_assert_uint_eq(routing.topk, 4);
    int64_t counts[24][32] = {{0}}, row[TRACE_TOPK_MAX];
    for (uint64_t token = 0; token < routing.tokens; token++)
        for (uint32_t layer = 0; layer < 24; layer++) {
            trace_routing_ids(&routing, token, layer, row);
            for (int column = 0; column < 4; column++) counts[layer][row[column]]++;
        }
    struct trace_npy expected;
    ck_assert_msg(trace_npy_open(counts_path, &expected, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(expected.bytes, sizeof counts);
    ck_assert_mem_eq(counts, expected.data, sizeof counts);
    trace_npy_close(&expected);
    trace_routing_close(&routing);
}
END_TEST

START_TEST(damage_is_refused_or_read_but_never_more) /* Loop: seeds. */
{
    uint64_t seed = 3000 + (uint64_t)_i;
    const char *folder = test_temp_dir();
    size_t good_bytes;
    const char *good = test_read(write_container(folder, true, "logical"), &good_bytes);
    const int rounds = test_quick() ? 100 : 500;
    uint8_t *work = (uint8_t *)malloc(good_bytes + 256);
    for (int round = 0; round < rounds; round++) {
        size_t count = good_bytes;
        memcpy(work, good, count);
        mutate(&seed, work, &count, good_bytes + 256);
        unlink(test_join(folder, "broken")); /* Some file systems sync an overwritten file. */
        const char *path = test_write(folder, "broken", work, count);
        struct trace_routing routing;
        if (open_files(path, NULL, NULL, &routing) == 0) {
            int64_t row[TRACE_TOPK_MAX];
            for (uint64_t token = 0; token < routing.tokens; token++)
                for (uint32_t layer = 0; layer < routing.layers; layer++) {
                    trace_routing_ids(&routing, token, layer, row);
                    for (uint32_t k = 0; k < routing.topk; k++)
                        ck_assert(row[k] >= -1 && row[k] < EXPERTS);
                }
            trace_routing_close(&routing);
        } else {
            ck_assert_msg(strstr(err, "broken: ") != NULL && strchr(err, '\n') == NULL,
                          "loop %d round %d: %s", _i, round, err);
        }
    }
    free(work);
}
END_TEST

Suite *trace_routing_suite(void)
{
    TCase *tcase = tcase_create("trace_routing");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, ids_of_every_integer_type_are_the_same);
    tcase_add_test(tcase, offsets_and_weights_come_from_their_files);
    tcase_add_test(tcase, a_container_holds_all_in_one_file);
    tcase_add_test(tcase, loose_files_override_those_of_a_container);
    tcase_add_test(tcase, a_container_of_something_else_is_refused);
    tcase_add_test(tcase, ids_that_cannot_be_are_named);
    tcase_add_test(tcase, duplicates_may_be_allowed_and_are_counted);
    tcase_add_test(tcase, shapes_that_cannot_be_are_named);
    tcase_add_test(tcase, offsets_that_cannot_be_are_named);
    tcase_add_test(tcase, weights_must_fit_the_ids);
    tcase_add_test(tcase, the_real_trace_has_the_counts_made_elsewhere);
    tcase_add_loop_test(tcase, damage_is_refused_or_read_but_never_more, 0, 4);
    Suite *suite = suite_create("trace_routing");
    suite_add_tcase(suite, tcase);
    return suite;
}
