/* tests/test_eplb.c - placements equal the published ones bit by bit, and replicas are chosen by
 * rule.
 *
 * Right values: the example in the README of deepseek-ai/EPLB (d52c72d5) and what the same code
 * gives for other shapes with a stable sort; ties and policies by hand. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ref/eplb.h"
#include "tests/json.h"
#include "tests/support.h"
#include "traces/npy.h"

Suite *eplb_suite(void);

enum { PLACES = 40, WIDTH = 8 };

static const float README_0[] = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
static const float README_1[] = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
static const float TENS[] = {10, 10, 10, 10, 10, 10, 10, 10};
static const float ZEROS[8] = {0};
static const float SMALL[] = {5, 7, 9, 3, 1, 1, 0, 0};

static const struct {
    const float *weights;
    struct ref_eplb_shape shape; /* experts, replicas, groups, nodes, gpus */
    int32_t phy2log[16];
} VECTORS[] = {
    {README_0, {12, 16, 4, 2, 8}, {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}},
    {README_1, {12, 16, 4, 2, 8}, {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}},
    {README_0, {12, 16, 1, 1, 8}, {10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}},
    {README_1, {12, 16, 1, 1, 8}, {1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7}},
    {README_0,
     {12, 16, 3, 2, 8},
     {10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}}, /* Global. */
    {README_0, {12, 16, 4, 4, 8}, {0, 2, 1, 1, 4, 3, 5, 5, 6, 7, 8, 8, 10, 11, 10, 9}},
    {README_1, {12, 16, 4, 4, 8}, {2, 0, 1, 1, 5, 3, 5, 4, 8, 6, 7, 6, 9, 11, 9, 10}},
    {TENS, {8, 12, 1, 1, 4}, {4, 0, 0, 5, 1, 1, 6, 2, 2, 7, 3, 3}},
    {ZEROS, {8, 12, 1, 1, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0}},
    {SMALL, {8, 12, 1, 1, 12}, {0, 1, 2, 3, 4, 5, 6, 7, 2, 1, 0, 2}},
};

struct placed {
    struct ref_logical phy2log[PLACES];
    struct ref_physical log2phy[PLACES * WIDTH];
    uint32_t ordinal[PLACES], logcnt[PLACES];
    double gpu_load[PLACES];
};

static struct placed place(const struct ref_eplb_shape *shape, const float *weights)
{
    static uint32_t words[8 * PLACES];
    static float loads[3 * PLACES];
    struct placed placed;
    memset(&placed, 0, sizeof placed);
    ck_assert_uint_le(shape->replicas, PLACES);
    ref_eplb_layer(shape, weights, placed.phy2log, placed.ordinal, placed.logcnt, words, loads);
    ref_eplb_log2phy(shape, placed.phy2log, placed.ordinal, WIDTH, placed.log2phy);
    ref_eplb_gpu_load(shape, weights, placed.phy2log, placed.logcnt, placed.gpu_load);
    return placed;
}

START_TEST(placements_equal_the_published_ones)
{
    const struct placed placed = place(&VECTORS[_i].shape, VECTORS[_i].weights);
    for (uint32_t p = 0; p < VECTORS[_i].shape.replicas; p++)
        ck_assert_int_eq(placed.phy2log[p].id, VECTORS[_i].phy2log[p]);
}
END_TEST

START_TEST(the_readme_example_in_all_its_parts)
{
    static const uint32_t LOGCNT[12] = {1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1};
    static const double LOADS[8] = {121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152};
    static const int32_t LOG2PHY[12][2] = {{12, -1}, {15, 13}, {11, -1}, {6, -1},
                                           {7, 5},   {0, 2},   {1, -1},  {3, -1},
                                           {4, -1},  {9, -1},  {8, 10},  {14, -1}};
    const struct placed placed = place(&VECTORS[0].shape, README_0);
    for (int e = 0; e < 12; e++) {
        ck_assert_uint_eq(placed.logcnt[e], LOGCNT[e]);
        for (int r = 0; r < 2; r++)
            ck_assert_int_eq(placed.log2phy[e * WIDTH + r].id, LOG2PHY[e][r]);
        for (int r = 2; r < WIDTH; r++) ck_assert_int_eq(placed.log2phy[e * WIDTH + r].id, -1);
    }
    for (int g = 0; g < 8; g++) ck_assert_double_eq(placed.gpu_load[g], LOADS[g]);
}
END_TEST

START_TEST(forty_equal_items_keep_their_order)
{
    /* 20 experts of one weight, 2 replicas each on 2 GPUs: item i (expert i mod 20) goes to GPU
     * i mod 2 as its item i / 2. An unstable sort would mix them. */
    const struct ref_eplb_shape shape = {20, 40, 1, 1, 2};
    float weights[20];
    for (int e = 0; e < 20; e++) weights[e] = 3;
    const struct placed placed = place(&shape, weights);
    for (int e = 0; e < 20; e++) {
        ck_assert_uint_eq(placed.logcnt[e], 2);
        ck_assert_int_eq(placed.log2phy[e * WIDTH].id, e % 2 * 20 + e / 2);
        ck_assert_int_eq(placed.log2phy[e * WIDTH + 1].id, e % 2 * 20 + 10 + e / 2);
    }
}
END_TEST

START_TEST(shapes_that_do_not_fit_are_known)
{
    static const struct ref_eplb_shape BAD[] = {{12, 11, 1, 1, 1},
                                                {12, 15, 1, 1, 8},
                                                {12, 16, 5, 1, 8},
                                                {12, 18, 4, 2, 9},
                                                {0, 8, 1, 1, 8}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) ck_assert(!ref_eplb_shape_ok(&BAD[i]));
    ck_assert(ref_eplb_shape_ok(&VECTORS[0].shape));
}
END_TEST

/* Two nodes of two GPUs of two places each. Expert 0 at 1 and 6, 1 at 0, 2 at 2, 3 at 3, 4 and 7,
 * 4 at 5. */
static const struct ref_physical LOG2PHY[5][3] = {
    {{6}, {1}, {-1}}, {{0}, {-1}, {-1}}, {{2}, {-1}, {-1}}, {{7}, {3}, {4}}, {{5}, {-1}, {-1}}};
static const uint32_t LOGCNT[5] = {2, 1, 1, 3, 1};
static const struct ref_placement PLACEMENT = {{5, 8, 1, 2, 4}, 3, &LOG2PHY[0][0], LOGCNT};

START_TEST(static_choice_is_own_gpu_then_own_node_then_dealt)
{
    /* GPU 0 holds 0, 1; GPU 1 holds 2, 3; GPU 2 holds 4, 5; GPU 3 holds 6, 7. */
    static const int32_t EXPECTED[4][5] = {
        {1, 0, 2, 3, 5}, {1, 0, 2, 3, 5}, {6, 0, 2, 4, 5}, {6, 0, 2, 7, 5}};
    struct ref_physical table[4 * 5];
    uint32_t scratch[3];
    ref_replica_static(&PLACEMENT, table, scratch);
    for (int g = 0; g < 4; g++)
        for (int e = 0; e < 5; e++) ck_assert_int_eq(table[g * 5 + e].id, EXPECTED[g][e]);
}
END_TEST

START_TEST(ranks_without_a_near_replica_are_dealt_evenly)
{
    /* Four nodes of one GPU with one place each hold replicas of expert 0 on GPUs 2 and 1 only:
     * GPU 0 takes the lower, place 1, GPU 3 the other. */
    static const struct ref_physical log2phy[3][2] = {{{2}, {1}}, {{0}, {-1}}, {{3}, {-1}}};
    static const uint32_t logcnt[3] = {2, 1, 1};
    const struct ref_placement placement = {{3, 4, 1, 4, 4}, 2, &log2phy[0][0], logcnt};
    struct ref_physical table[4 * 3];
    uint32_t scratch[2];
    ref_replica_static(&placement, table, scratch);
    const int32_t expected[4] = {1, 1, 2, 2};
    for (int g = 0; g < 4; g++) ck_assert_int_eq(table[g * 3].id, expected[g]);
}
END_TEST

START_TEST(a_tokens_row_chooses_by_remainder_or_by_hash)
{
    const struct ref_logical expert = {3};
    /* 2654435769 x row mod 2^32: 0; 2654435769; 1013904242; 3668340011 (rows 0 to 3). */
    static const uint64_t HASHES[4] = {0, 2654435769, 1013904242, 3668340011};
    for (uint64_t row = 0; row < 4; row++) {
        ck_assert_int_eq(ref_replica_row_mod(&PLACEMENT, expert, row).id, LOG2PHY[3][row % 3].id);
        ck_assert_int_eq(ref_replica_row_hash(&PLACEMENT, expert, row).id,
                         LOG2PHY[3][HASHES[row] % 3].id);
    }
    ck_assert_int_eq(ref_replica_row_hash(&PLACEMENT, expert, UINT64_C(1) << 32).id,
                     LOG2PHY[3][0].id);
}
END_TEST

/* --- the command -------------------------------------------------------------------------- */

static json_t *eplb(const char *weights, const char *const numbers[4])
{
    struct test_output output;
    TEST_EPSIM(&output, "eplb", "--weights", weights, "--replicas", numbers[0], "--groups",
               numbers[1], "--nodes", numbers[2], "--gpus", numbers[3], "--json");
    ck_assert_msg(output.status == 0, "%s", output.err);
    return test_json(&output);
}

START_TEST(json_and_npy_weights_give_the_same_document)
{
    static const char *const numbers[4] = {"16", "4", "2", "8"};
    const char *folder = test_temp_dir();
    const uint64_t shape[2] = {2, 12};
    float values[2][12];
    char message[256];
    memcpy(values[0], README_0, sizeof README_0);
    memcpy(values[1], README_1, sizeof README_1);
    const char *npy = test_join(folder, "weights.npy");
    ck_assert_int_eq(trace_npy_write(npy, TRACE_F32, shape, 2, values, message, sizeof message), 0);
    json_t *from_npy = eplb(npy, numbers);
    json_t *from_json = eplb(test_write_text(folder, "weights.json",
                                             "[[90,132,40,61,104,165,39,4,73,56,183,86],"
                                             "[20,107,104,64,19,197.0,187,157,172,86,16,27]]"),
                             numbers);
    ck_assert(json_equal(from_npy, from_json));
    const json_t *phy2log = json_array_get(json_object_get(from_json, "phy2log"), 1);
    for (size_t p = 0; p < 16; p++)
        ck_assert_int_eq(json_integer_value(json_array_get(phy2log, p)), VECTORS[1].phy2log[p]);
    ck_assert_uint_eq(json_array_size(json_object_get(from_json, "warnings")), 0);
    json_decref(from_npy);
    json_decref(from_json);
}
END_TEST

START_TEST(an_expert_twice_on_a_gpu_is_a_warning_and_no_failure)
{
    static const char *const numbers[4] = {"12", "1", "1", "4"};
    json_t *json =
        eplb(test_write_text(test_temp_dir(), "w.json", "[[0, 0, 0, 0, 0, 0, 0, 0]]"), numbers);
    const json_t *warnings = json_object_get(json, "warnings");
    ck_assert_uint_eq(json_array_size(warnings), 1);
    ck_assert_str_eq(json_string_value(json_array_get(warnings, 0)),
                     "layer 0: expert 0 has 3 replicas on gpu 3");
    json_decref(json);
}
END_TEST

static void assert_numbers(const json_t *vector, const char *key, const json_t *found)
{
    const json_t *expected = json_object_get(vector, key);
    ck_assert_msg(json_is_array(expected), "%s", key);
    ck_assert_msg(json_equal(expected, found), "%s: %s differs", text_at(vector, "name"), key);
}

START_TEST(captured_vectors_are_met_bit_by_bit)
{
    const char *path = test_data_path("traces/eplb_vectors.json");
    json_error_t error;
    if (path == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    json_t *vectors = json_load_file(path, 0, &error);
    ck_assert_msg(json_array_size(vectors) > 0, "%s", error.text);
    for (size_t v = 0; v < json_array_size(vectors); v++) {
        static const char *const KEYS[4] = {"num_replicas", "num_groups", "num_nodes", "num_gpus"};
        const json_t *vector = json_array_get(vectors, v);
        char texts[4][24];
        const char *numbers[4];
        for (int i = 0; i < 4; i++) {
            snprintf(texts[i], sizeof texts[i], "%lld", (long long)int_at(vector, KEYS[i]));
            numbers[i] = texts[i];
        }
        char *weights = json_dumps(json_object_get(vector, "weight"), 0);
        json_t *json = eplb(test_write_text(test_temp_dir(), "w.json", weights), numbers);
        assert_numbers(vector, "phy2log_stable_sort", json_object_get(json, "phy2log"));
        assert_numbers(vector, "log2phy_stable_sort", json_object_get(json, "log2phy"));
        assert_numbers(vector, "logcnt", json_object_get(json, "logcnt"));
        json_decref(json);
        free(weights);
    }
    json_decref(vectors);
}
END_TEST

static const struct {
    const char *weights, *replicas, *gpus, *complaint; /* The end of the line. */
} BAD[] = {
    {"[[1, 2], [3]]", "2", "2", "layer 1: must be a list of 2 weights, as layer 0 is\n"},
    {"[[1, -2]]", "2", "2", "layer 0, expert 1: must be a number from 0 to what a float holds\n"},
    {"[[1, \"2\"]]", "2", "2",
     "layer 0, expert 1: must be a number from 0 to what a float holds\n"},
    {"[[1e39, 2]]", "2", "2", "layer 0, expert 0: must be a number from 0 to what a float holds\n"},
    {"[]", "2", "2", "must be a list of layers, each a list of its experts' weights\n"},
    {"[[]]", "2", "2", "1 layers of 0 experts: must be 1 to 1024 layers of 1 to 4096 experts\n"},
    {"[[1, 2]", "2", "2", "must be a JSON list or a .npy file\n"},
    {"[[1, 2]]", "1", "1", "epsim eplb: --replicas: 1: must be at least the experts, 2\n"},
    {"[[1, 2]]", "3", "2", "epsim eplb: --replicas: 3: must be a multiple of --gpus 2\n"},
    {"[[1, 2]]", "x", "2", "--replicas: x: must be a whole number from 1 to 16384\n"},
};

START_TEST(bad_input_is_one_line)
{
    struct test_output output;
    const char *path = test_write_text(test_temp_dir(), "w.json", BAD[_i].weights);
    TEST_EPSIM(&output, "eplb", "--weights", path, "--replicas", BAD[_i].replicas, "--gpus",
               BAD[_i].gpus);
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_uint_ge(output.err_bytes, strlen(BAD[_i].complaint));
    ck_assert_str_eq(output.err + output.err_bytes - strlen(BAD[_i].complaint), BAD[_i].complaint);
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
}
END_TEST

Suite *eplb_suite(void)
{
    Suite *suite = suite_create("eplb");
    TCase *tests = tcase_create("eplb");
    tcase_add_loop_test(tests, placements_equal_the_published_ones, 0,
                        sizeof VECTORS / sizeof VECTORS[0]);
    tcase_add_test(tests, the_readme_example_in_all_its_parts);
    tcase_add_test(tests, forty_equal_items_keep_their_order);
    tcase_add_test(tests, shapes_that_do_not_fit_are_known);
    tcase_add_test(tests, static_choice_is_own_gpu_then_own_node_then_dealt);
    tcase_add_test(tests, ranks_without_a_near_replica_are_dealt_evenly);
    tcase_add_test(tests, a_tokens_row_chooses_by_remainder_or_by_hash);
    tcase_add_test(tests, json_and_npy_weights_give_the_same_document);
    tcase_add_test(tests, an_expert_twice_on_a_gpu_is_a_warning_and_no_failure);
    tcase_add_test(tests, captured_vectors_are_met_bit_by_bit);
    tcase_add_loop_test(tests, bad_input_is_one_line, 0, sizeof BAD / sizeof BAD[0]);
    suite_add_tcase(suite, tests);
    return suite;
}
