/* tests/test_quantise_captures.c - codes and scales of the real kernels, every bit.
 *
 * Normal mode's captures hold what DeepEP's Python cast made on a GPU; low-latency captures
 * hold received rows, which are looked up by source rank and token. Everything needs the
 * captures of EPSIM_DATA. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/expert.h"
#include "ref/logfmt.h"
#include "ref/quantise.h"
#include "tests/support.h"
#include "traces/safetensors.h"

enum { GROUP = REF_GROUP_CHANNELS, RANKS_MAX = 8, HIDDEN_MAX = 7168 };

static const struct capture {
    const char *name;
    uint32_t ranks;
} normal[] = {{"normal_ep2_small", 2},   {"normal_ep2_masked", 2},  {"normal_ep2_hot", 2},
              {"normal_ep2_onerank", 2}, {"normal_ep4_small", 4},   {"normal_ep4_masked", 4},
              {"normal_ep4_hot", 4},     {"normal_ep4_onerank", 4}, {"normal_ep8_masked", 8},
              {"normal_ep8_hot", 8},     {"normal_ep8_onerank", 8}},
  low_latency[] = {{"ll_ep2_small", 2}, {"ll_ep2_masked", 2}, {"ll_ep2_onerank", 2},
                   {"ll_ep4_small", 4}, {"ll_ep4_masked", 4}, {"ll_ep8_masked", 8}};

enum {
    NORMAL_COUNT = sizeof normal / sizeof normal[0],
    LOW_LATENCY_COUNT = sizeof low_latency / sizeof low_latency[0]
};

/* Opens one rank's file; false when it is not there. */
static bool open_rank(const char *name, uint32_t rank, struct trace_tensors *file)
{
    char path[200], err[300] = "";
    snprintf(path, sizeof path, "golden/%s.rank%u.safetensors", name, rank);
    const char *found = test_data_path(path);
    if (found == NULL) return false;
    ck_assert_msg(trace_tensors_open(found, file, err, sizeof err) == 0, "%s", err);
    return true;
}

static const struct trace_tensor *find(const struct trace_tensors *file, const char *name)
{
    const struct trace_tensor *tensor = trace_tensors_find(file, name);
    ck_assert_msg(tensor != NULL, "no tensor %s", name);
    return tensor;
}

START_TEST(python_cast_on_a_gpu_is_py_cuda)
{
    const struct capture *capture = &normal[_i];
    for (uint32_t r = 0; r < capture->ranks; r++) {
        struct trace_tensors file;
        if (!open_rank(capture->name, r, &file)) {
            test_skip("no captures");
            return;
        }
        const struct trace_tensor *x = find(&file, "x"), *codes = find(&file, "x_fp8");
        const struct trace_tensor *scales = find(&file, "x_scales");
        const uint32_t hidden = (uint32_t)x->shape[1];
        uint8_t *our_codes = (uint8_t *)malloc(x->count + 1);
        float *our_scales = (float *)malloc((x->count / GROUP + 1) * sizeof(float));
        ck_assert(our_codes != NULL && our_scales != NULL);
        ref_quantise(REF_RECIPE_PY_CUDA, (const uint16_t *)x->data, x->shape[0], hidden, our_codes,
                     our_scales);
        ck_assert_uint_eq(codes->bytes, x->count);
        ck_assert_uint_eq(scales->count, x->count / GROUP);
        ck_assert_int_eq(memcmp(codes->data, our_codes, codes->bytes), 0);
        ck_assert_int_eq(memcmp(scales->data, our_scales, scales->bytes), 0);
        free(our_codes);
        free(our_scales);
        trace_tensors_close(&file);
    }
}
END_TEST

/* One received row of a tag against the source row quantised here. */
static void check_row(enum ref_recipe recipe, const uint16_t *x, uint32_t hidden,
                      const uint8_t *codes, const void *scales)
{
    static uint8_t our_codes[2 * HIDDEN_MAX];
    static float our_scales[HIDDEN_MAX / GROUP];
    uint32_t packed[HIDDEN_MAX / GROUP / 4];
    char err[200] = "";
    const uint32_t groups = hidden / GROUP;

    ref_quantise(recipe, x, 1, hidden, our_codes, our_scales);
    ck_assert_int_eq(memcmp(codes, our_codes, hidden * ref_recipe_payload_bytes(recipe)), 0);
    switch (ref_recipe_scales(recipe)) {
    case REF_SCALE_F32:
        ck_assert_int_eq(memcmp(scales, our_scales, groups * sizeof(float)), 0);
        break;
    case REF_SCALE_UE8M0:
        ck_assert_int_eq(ref_scales_pack_ue8m0(our_scales, 1, groups, packed, err, sizeof err), 0);
        ck_assert_int_eq(memcmp(scales, packed, groups), 0);
        break;
    case REF_SCALE_NONE:
    default: break;
    }
}

/* All rows that rank `at` received under one tag. */
static uint64_t check_tag(const char *tag, enum ref_recipe recipe,
                          const struct trace_tensors *files, uint32_t ranks, uint32_t at)
{
    char name[64];
    uint64_t rows = 0;

    for (uint32_t e = 0;; e++) {
        snprintf(name, sizeof name, "%s.e%u.x", tag, e);
        const struct trace_tensor *x = trace_tensors_find(&files[at], name);
        if (x == NULL) return rows;
        snprintf(name, sizeof name, "%s.e%u.src", tag, e);
        const int32_t *source = (const int32_t *)find(&files[at], name)->data;
        snprintf(name, sizeof name, "%s.e%u.layout", tag, e);
        const int64_t *layout = (const int64_t *)find(&files[at], name)->data;
        snprintf(name, sizeof name, "%s.e%u.scales", tag, e);
        const struct trace_tensor *scales = trace_tensors_find(&files[at], name);
        const uint32_t hidden = (uint32_t)x->shape[x->axes - 1];
        const uint64_t row_bytes = (uint64_t)hidden * ref_recipe_payload_bytes(recipe);
        const uint64_t scale_bytes =
            ref_recipe_scales(recipe) == REF_SCALE_UE8M0 ? hidden / GROUP : 4 * (hidden / GROUP);
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t count = (uint64_t)layout[r] & 0xFFFFFFFF,
                           begin = (uint64_t)layout[r] >> 32;
            const uint16_t *sent = (const uint16_t *)find(&files[r], "x")->data;
            for (uint64_t i = begin; i < begin + count; i++, rows++)
                check_row(recipe, sent + (uint64_t)source[i] * hidden, hidden,
                          (const uint8_t *)x->data + i * row_bytes,
                          scales == NULL ? NULL : (const char *)scales->data + i * scale_bytes);
        }
    }
}

static bool open_all(const struct capture *capture, struct trace_tensors *files)
{
    for (uint32_t r = 0; r < capture->ranks; r++)
        if (!open_rank(capture->name, r, &files[r])) return false;
    return true;
}

START_TEST(received_rows_are_the_source_rows_quantised)
{
    static const char *const tags[] = {"bf16", "fp8", "fp8r", "ue8m0"};
    const struct capture *capture = &low_latency[_i];
    struct trace_tensors files[RANKS_MAX];
    uint64_t rows = 0;

    if (!open_all(capture, files)) {
        test_skip("no captures");
        return;
    }
    for (int t = 0; t < 4; t++) {
        enum ref_recipe recipe;
        ck_assert(ref_recipe_parse(tags[t], &recipe));
        for (uint32_t at = 0; at < capture->ranks; at++)
            rows += check_tag(tags[t], recipe, files, capture->ranks, at);
    }
    ck_assert_uint_gt(rows, 0);
    for (uint32_t r = 0; r < capture->ranks; r++) trace_tensors_close(&files[r]);
}
END_TEST

/* The sum of one token's rows after LogFMT; every expert returned the stand-in of x. */
static void combine_token(const uint16_t *x, uint32_t hidden, const int64_t *ids,
                          const float *weights, uint64_t topk, uint16_t *out)
{
    static uint16_t y[HIDDEN_MAX];
    static float back[HIDDEN_MAX], sum[HIDDEN_MAX];
    static uint8_t data[2 * HIDDEN_MAX];
    uint32_t ranges[HIDDEN_MAX / GROUP];

    ref_expert_standin(REF_RECIPE_BF16, x, NULL, 1, hidden, y);
    ref_logfmt_encode(y, hidden, ranges, data);
    ref_logfmt_decode(ranges, data, hidden, back);
    memset(sum, 0, sizeof sum);
    for (uint64_t k = 0; k < topk; k++)
        for (uint32_t i = 0; i < hidden && ids[k] >= 0; i++)
            sum[i] = __builtin_fmaf(back[i], weights[k], sum[i]);
    for (uint32_t i = 0; i < hidden; i++) out[i] = ref_bf16_from_f32(sum[i]);
}

START_TEST(logfmt_falls_back_where_the_captures_do)
{
    static uint16_t out[HIDDEN_MAX];
    const struct capture *capture = &low_latency[_i];
    for (uint32_t r = 0; r < capture->ranks; r++) {
        struct trace_tensors file;
        if (!open_rank(capture->name, r, &file)) {
            test_skip("no captures");
            return;
        }
        const struct trace_tensor *right = trace_tensors_find(&file, "combined_x_logfmt");
        const struct trace_tensor *x = find(&file, "x"), *ids = find(&file, "topk_idx");
        const float *weights = (const float *)find(&file, "topk_weights")->data;
        const uint64_t topk = ids->shape[1], hidden = x->shape[1];
        for (uint64_t t = 0; right != NULL && t < x->shape[0]; t++) {
            combine_token((const uint16_t *)x->data + t * hidden, (uint32_t)hidden,
                          (const int64_t *)ids->data + t * topk, weights + t * topk, topk, out);
            ck_assert_int_eq(
                memcmp((const uint16_t *)right->data + t * hidden, out, hidden * sizeof *out), 0);
        }
        trace_tensors_close(&file);
    }
}
END_TEST

Suite *quantise_captures_suite(void)
{
    Suite *suite = suite_create("quantise_captures");
    TCase *tests = tcase_create("quantise_captures");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, python_cast_on_a_gpu_is_py_cuda, 0, NORMAL_COUNT);
    tcase_add_loop_test(tests, received_rows_are_the_source_rows_quantised, 0, LOW_LATENCY_COUNT);
    tcase_add_loop_test(tests, logfmt_falls_back_where_the_captures_do, 0, LOW_LATENCY_COUNT);
    suite_add_tcase(suite, tests);
    return suite;
}
