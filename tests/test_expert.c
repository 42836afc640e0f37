/* tests/test_expert.c - the stand-in rounds twice, identity changes nothing, the MLP keeps its
 * order of additions.
 *
 * Method: values where a fused multiply-add would give other bits; and an MLP written out as
 * the plainest loops, compared bit for bit over several shapes. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/digest.h"
#include "ref/expert.h"
#include "ref/fp8.h"
#include "ref/mathfn.h"

enum { GROUP = REF_GROUP_CHANNELS };

START_TEST(standin_rounds_the_product_before_the_sum)
{
    static const uint32_t rows[][2] = {
        {0x3F80, 0x3EF6}, {0xBF80, 0xBE85}, {0x0000, 0x3DE1}, {0x7F80, 0x7F80}, {0x7F81, 0x7FFF},
        {0xFFFF, 0x7FFF}, {0x4AE1, 0x4A26}, {0xC0DD, 0xC01D}, {0xC1F9, 0xC137}}; /* Last three:
                                               fused, they would be 4A27, C01C and C136. */
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint16_t x[1] = {(uint16_t)rows[i][0]};
        uint16_t out[1];
        ref_expert_standin(REF_RECIPE_BF16, x, NULL, 1, 1, out);
        ck_assert_uint_eq(out[0], rows[i][1]);
    }
}
END_TEST

static uint16_t slow_standin(float x)
{
    volatile float scaled = x * 0.37f;
    volatile float shifted = scaled + 0.11f;
    return ref_bf16_from_f32(shifted);
}

START_TEST(standin_of_every_bf16_value)
{
    static uint16_t x[65536], out[65536];
    for (uint32_t i = 0; i < 65536; i++) x[i] = (uint16_t)i;
    ref_expert_standin(REF_RECIPE_BF16, x, NULL, 64, 1024, out);
    for (uint32_t i = 0; i < 65536; i++)
        if (out[i] != slow_standin(ref_bf16_to_f32(x[i]))) ck_abort_msg("%04x: %04x", i, out[i]);
}
END_TEST

START_TEST(standin_and_identity_of_every_code)
{
    static uint8_t codes[2 * GROUP];
    static uint16_t out[2 * GROUP];
    const float scales[2] = {0.0123456f, 3.0f};
    const uint32_t packed[1] = {130u << 8 | 120u}; /* 2^-7, 2^3 */

    for (int i = 0; i < 2 * GROUP; i++) codes[i] = (uint8_t)i;
    for (int kind = 0; kind < 2; kind++) {
        const enum ref_recipe recipe = kind == 0 ? REF_RECIPE_LL : REF_RECIPE_LL_UE8M0;
        const void *given = kind == 0 ? (const void *)scales : (const void *)packed;
        for (int identity = 0; identity < 2; identity++) {
            if (identity)
                ref_expert_identity(recipe, codes, given, 1, 2 * GROUP, out);
            else
                ref_expert_standin(recipe, codes, given, 1, 2 * GROUP, out);
            for (int i = 0; i < 2 * GROUP; i++) {
                const float scale = kind == 0 ? scales[i / GROUP] : i < GROUP ? 0.0078125f : 8.0f;
                const float x = ref_e4m3_to_f32((uint8_t)i) * scale;
                ck_assert_uint_eq(out[i], identity ? ref_bf16_from_f32(x) : slow_standin(x));
            }
        }
    }
}
END_TEST

START_TEST(identity_of_bf16_keeps_nan_payloads)
{
    static const uint16_t x[4] = {0x7F81, 0xFFC1, 0x8000, 0x3F80};
    uint16_t out[4];
    ref_expert_identity(REF_RECIPE_BF16, x, NULL, 2, 2, out);
    ck_assert_mem_eq(out, x, sizeof x);
    ref_expert_identity(REF_RECIPE_BF16, NULL, NULL, 0, 2, NULL); /* No rows. */
    ref_expert_standin(REF_RECIPE_LL, NULL, NULL, 0, 128, NULL);
}
END_TEST

/* Everything an MLP needs, on the heap. */
struct mlp {
    struct ref_expert_weights weights;
    uint8_t *matrix[3];
    float *matrix_scales[3];
    uint8_t *x;
    float *scales;
    uint64_t rows;
};

static void *must_alloc(uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static void mlp_create(struct mlp *mlp, uint64_t rows, uint32_t hidden, uint32_t inter)
{
    for (uint32_t m = 0; m < 3; m++) {
        mlp->matrix[m] = (uint8_t *)must_alloc(ref_expert_matrix_codes(hidden, inter));
        mlp->matrix_scales[m] =
            (float *)must_alloc(ref_expert_matrix_scales(hidden, inter) * sizeof(float));
        ref_expert_fill(42, 7, m, hidden, inter, mlp->matrix[m], mlp->matrix_scales[m]);
    }
    mlp->weights = (struct ref_expert_weights){hidden,
                                               inter,
                                               mlp->matrix[0],
                                               mlp->matrix[1],
                                               mlp->matrix[2],
                                               mlp->matrix_scales[0],
                                               mlp->matrix_scales[1],
                                               mlp->matrix_scales[2]};
    mlp->rows = rows;
    mlp->x = (uint8_t *)must_alloc(rows * hidden);
    mlp->scales = (float *)must_alloc(rows * (hidden / GROUP) * sizeof(float));
    for (uint64_t i = 0; i < rows * hidden; i++) {
        const uint64_t z = ref_digest_scramble(i + 99);
        mlp->x[i] = (uint8_t)((z & 0xBF) + 0x10); /* No NaN. */
    }
    for (uint64_t i = 0; i < rows * (hidden / GROUP); i++)
        mlp->scales[i] = 0.01f + (float)(i % 13) * 0.001f;
}

static void mlp_free(struct mlp *mlp)
{
    for (int m = 0; m < 3; m++) {
        free(mlp->matrix[m]);
        free(mlp->matrix_scales[m]);
    }
    free(mlp->x);
    free(mlp->scales);
}

/* One output of a block-scaled GEMM: row a with its scales against row n of the weights. */
static uint16_t slow_dot(const uint8_t *a, const float *a_scales, const uint8_t *codes,
                         const float *scales, uint32_t depth, uint32_t n)
{
    float acc = 0;
    for (uint32_t block = 0; block < depth / GROUP; block++) {
        float s = 0;
        for (uint32_t k = block * GROUP; k < (block + 1) * GROUP; k++)
            s = fmaf(ref_e4m3_to_f32(a[k]), ref_e4m3_to_f32(codes[(uint64_t)n * depth + k]), s);
        const float scale = a_scales[block] * scales[n / GROUP * (depth / GROUP) + block];
        acc = fmaf(s, scale, acc);
    }
    return ref_bf16_from_f32(acc);
}

static void slow_row(const struct mlp *mlp, uint64_t row, enum ref_recipe activation, uint16_t *out)
{
    const struct ref_expert_weights *w = &mlp->weights;
    const uint8_t *x = mlp->x + row * w->hidden;
    const float *scales = mlp->scales + row * (w->hidden / GROUP);
    uint16_t *act = (uint16_t *)must_alloc(w->inter * sizeof(uint16_t));
    uint8_t *codes = (uint8_t *)must_alloc(w->inter);
    float *act_scales = (float *)must_alloc(w->inter / GROUP * sizeof(float));

    for (uint32_t n = 0; n < w->inter; n++) {
        const float gate =
            ref_bf16_to_f32(slow_dot(x, scales, w->gate, w->gate_scales, w->hidden, n));
        const float up = ref_bf16_to_f32(slow_dot(x, scales, w->up, w->up_scales, w->hidden, n));
        act[n] = ref_bf16_from_f32(gate / (1.0f + ref_exp(-gate)) * up);
    }
    ref_quantise(activation, act, 1, w->inter, codes, act_scales);
    for (uint32_t n = 0; n < w->hidden; n++)
        out[n] = slow_dot(codes, act_scales, w->down, w->down_scales, w->inter, n);
    free(act);
    free(codes);
    free(act_scales);
}

START_TEST(mlp_adds_in_the_written_order)
{
    static const struct {
        uint64_t rows;
        uint32_t hidden, inter;
        enum ref_recipe activation;
    } shapes[] = {{1, 128, 128, REF_RECIPE_LL},
                  {3, 256, 384, REF_RECIPE_LL_ROUND},
                  {5, 512, 128, REF_RECIPE_SGLANG_CUDA_V2}};
    struct mlp mlp;
    mlp_create(&mlp, shapes[_i].rows, shapes[_i].hidden, shapes[_i].inter);
    const uint64_t values = mlp.rows * shapes[_i].hidden;
    uint16_t *out = (uint16_t *)must_alloc(values * sizeof(uint16_t));
    uint16_t *right = (uint16_t *)must_alloc(values * sizeof(uint16_t));
    const uint64_t bytes =
        ref_expert_mlp_scratch_bytes(mlp.rows, shapes[_i].hidden, shapes[_i].inter);
    unsigned char *scratch = (unsigned char *)must_alloc(bytes + 1);

    memset(scratch, 0xEE, bytes + 1);
    ref_expert_mlp(&mlp.weights, REF_RECIPE_LL, mlp.x, mlp.scales, mlp.rows, shapes[_i].activation,
                   out, scratch);
    ck_assert_uint_eq(scratch[bytes], 0xEE);
    for (uint64_t r = 0; r < mlp.rows; r++)
        slow_row(&mlp, r, shapes[_i].activation, right + r * shapes[_i].hidden);
    ck_assert_mem_eq(out, right, values * sizeof(uint16_t));

    uint32_t ordinary = 0; /* Not a comparison of zeros and infinities. */
    for (uint64_t i = 0; i < values; i++)
        ordinary += (out[i] & 0x7FFF) > 0x3000 && (out[i] & 0x7FFF) < 0x5000;
    ck_assert_uint_gt(ordinary, values / 2);
    free(out);
    free(right);
    free(scratch);
    mlp_free(&mlp);
}
END_TEST

START_TEST(mlp_reads_packed_exponents)
{
    struct mlp mlp;
    uint32_t packed[4] = {0};
    char err[100] = "";
    uint16_t out[2][256];
    mlp_create(&mlp, 2, 256, 128);
    for (int i = 0; i < 4; i++) mlp.scales[i] = (float)ldexp(1, -6 - i);
    ck_assert_int_eq(ref_scales_pack_ue8m0(mlp.scales, 2, 2, packed, err, sizeof err), 0);
    void *scratch = must_alloc(ref_expert_mlp_scratch_bytes(1, 256, 128));
    for (int r = 0; r < 2; r++)
        ref_expert_mlp(&mlp.weights, REF_RECIPE_LL_ROUND, mlp.x + r * 256, mlp.scales + r * 2, 1,
                       REF_RECIPE_LL, out[r], scratch);
    uint16_t from_packed[256];
    for (int r = 0; r < 2; r++) {
        ref_expert_mlp(&mlp.weights, REF_RECIPE_LL_UE8M0, mlp.x + r * 256, packed + r, 1,
                       REF_RECIPE_LL, from_packed, scratch);
        ck_assert_mem_eq(from_packed, out[r], sizeof from_packed);
    }
    free(scratch);
    mlp_free(&mlp);
}
END_TEST

START_TEST(activation_is_silu_times_up)
{
    uint16_t gate[3] = {0x3F80, 0xC2C8, 0x0000}; /* 1, -100, 0 */
    static const uint16_t up[3] = {0x4000, 0x3F80, 0x4000};
    ref_expert_activate(gate, up, 3);
    ck_assert_uint_eq(gate[0], 0x3FBB); /* 2 * 0.7310586 = 1.462 */
    ck_assert_uint_eq(gate[1], 0x8000); /* -100 / infinity */
    ck_assert_uint_eq(gate[2], 0x0000);
}
END_TEST

START_TEST(weights_depend_on_seed_expert_and_matrix)
{
    enum { H = 128, I = 256 };
    static uint8_t codes[H * I];
    float scales[2];
    uint64_t digests[5];
    static const uint32_t args[5][3] = {{1, 0, 0}, {2, 0, 0}, {1, 1, 0}, {1, 0, 1}, {1, 0, 2}};
    for (int i = 0; i < 5; i++) {
        ref_expert_fill(args[i][0], args[i][1], args[i][2], H, I, codes, scales);
        digests[i] = ref_digest_mix(ref_digest(codes, sizeof codes), ref_digest(scales, 8));
        for (int j = 0; j < i; j++) ck_assert_uint_ne(digests[i], digests[j]);
        ck_assert_uint_eq(ref_e4m3_any_nan(codes, H * I), 0);
        for (int s = 0; s < 2; s++) ck_assert(scales[s] >= 0x1p-13f && scales[s] < 0x1p-12f);
    }
    ck_assert_uint_eq(digests[0], UINT64_C(0xB9F715DF16385365));
}
END_TEST

Suite *expert_suite(void)
{
    Suite *suite = suite_create("expert");
    TCase *tests = tcase_create("expert");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, standin_rounds_the_product_before_the_sum);
    tcase_add_test(tests, standin_of_every_bf16_value);
    tcase_add_test(tests, standin_and_identity_of_every_code);
    tcase_add_test(tests, identity_of_bf16_keeps_nan_payloads);
    tcase_add_loop_test(tests, mlp_adds_in_the_written_order, 0, 3);
    tcase_add_test(tests, mlp_reads_packed_exponents);
    tcase_add_test(tests, activation_is_silu_times_up);
    tcase_add_test(tests, weights_depend_on_seed_expert_and_matrix);
    suite_add_tcase(suite, tests);
    return suite;
}
