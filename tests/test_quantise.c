/* tests/test_quantise.c - every recipe gives its library's codes and scales.
 *
 * Method: the documented cases first; then digests of codes and scales of 64 rows of finite
 * values, pinned from an independent implementation in numpy and ml_dtypes (the CPU forms also
 * from torch itself); then groups with NaN and infinity; then the captures of real kernels. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/digest.h"
#include "ref/fp8.h"
#include "ref/quantise.h"
#include "tests/support.h"

enum { GROUP = REF_GROUP_CHANNELS };

struct group {
    uint16_t x[GROUP];
    uint8_t codes[GROUP];
    float scale;
};

static enum ref_recipe recipe_of(const char *name)
{
    enum ref_recipe recipe = REF_RECIPE_COUNT;
    ck_assert_msg(ref_recipe_parse(name, &recipe), "no recipe %s", name);
    return recipe;
}

static void quantise(const char *recipe, struct group *group)
{
    ref_quantise(recipe_of(recipe), group->x, 1, GROUP, group->codes, &group->scale);
}

static struct group one_valued(const char *recipe, uint16_t value)
{
    struct group group;
    for (int i = 0; i < GROUP; i++) group.x[i] = value;
    quantise(recipe, &group);
    for (int i = 1; i < GROUP; i++) ck_assert_uint_eq(group.codes[i], group.codes[0]);
    return group;
}

static uint32_t byte_of(const struct group *group)
{
    uint32_t packed = 0;
    char err[200] = "";
    ck_assert_msg(ref_scales_pack_ue8m0(&group->scale, 1, 1, &packed, err, sizeof err) == 0, "%s",
                  err);
    return packed;
}

START_TEST(names_parse_and_print)
{
    for (int i = 0; i < REF_RECIPE_COUNT; i++)
        ck_assert_int_eq(recipe_of(ref_recipe_name((enum ref_recipe)i)), i);
    ck_assert_int_eq(recipe_of("fp8"), REF_RECIPE_LL);
    ck_assert_int_eq(recipe_of("fp8r"), REF_RECIPE_LL_ROUND);
    ck_assert_int_eq(recipe_of("ue8m0"), REF_RECIPE_LL_UE8M0);
    enum ref_recipe untouched = REF_RECIPE_VLLM_CUDA;
    ck_assert(!ref_recipe_parse("fp9", &untouched));
    ck_assert(!ref_recipe_parse("", &untouched));
    ck_assert_int_eq(untouched, REF_RECIPE_VLLM_CUDA);
    ck_assert_uint_eq(ref_recipe_payload_bytes(REF_RECIPE_BF16), 2);
    ck_assert_uint_eq(ref_recipe_payload_bytes(REF_RECIPE_LL), 1);
    ck_assert_int_eq(ref_recipe_scales(REF_RECIPE_BF16), REF_SCALE_NONE);
    ck_assert_int_eq(ref_recipe_scales(REF_RECIPE_LL_ROUND), REF_SCALE_F32);
    ck_assert_int_eq(ref_recipe_scales(REF_RECIPE_LL_UE8M0), REF_SCALE_UE8M0);
}
END_TEST

START_TEST(zero_group_keeps_its_signs) /* D6 */
{
    struct group group = {.x = {[5] = 0x8000}};
    static const char *const recipes[] = {"ll", "ll_round", "ll_ue8m0"};
    for (int r = 0; r < 3; r++) {
        float wide[GROUP];
        quantise(recipes[r], &group);
        for (int i = 0; i < GROUP; i++) ck_assert_uint_eq(group.codes[i], i == 5 ? 0x80 : 0);
        ck_assert_uint_eq(ref_f32_bits(group.scale), r == 0 ? 0x346FACAD : 0x34800000);
        if (r > 0) ck_assert_uint_eq(byte_of(&group), 105);
        ref_dequantise(REF_RECIPE_LL, group.codes, &group.scale, 1, GROUP, wide);
        for (int i = 0; i < GROUP; i++)
            ck_assert_uint_eq(ref_f32_bits(wide[i]), i == 5 ? 0x80000000u : 0);
    }
    ck_assert_uint_eq(ref_f32_bits(448.0f / 1e-4f), 0x4A88B800);
}
END_TEST

START_TEST(zero_group_tells_recipes_apart)
{
    static const struct {
        const char *exact, *power;
        uint32_t scale, byte;
    } rows[] = {
        {"ll", "ll_ue8m0", 0x346FACAD, 105},
        {"sglang_cuda_v1", "sglang_cuda_v1_ue8m0", 0x2A7B5124, 85},
        {"sglang_cuda_v2", "sglang_cuda_v2_ue8m0", 0x2A7B5124, 85},
        {"vllm_cuda", "vllm_cuda_ue8m0", 0x2A7B5123, 94},
        {"vllm_torch_cpu", "vllm_torch_cpu_ue8m0", 0x36924925, 110},
        {"vllm_torch_cuda", "vllm_torch_cuda_ue8m0", 0x36924925, 110},
        {"py_cuda", "deepgemm_py_cuda_ue8m0", 0x346FACAD, 105},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct group exact = one_valued(rows[i].exact, 0);
        const struct group power = one_valued(rows[i].power, 0);
        ck_assert_uint_eq(ref_f32_bits(exact.scale), rows[i].scale);
        ck_assert_uint_eq(byte_of(&power), rows[i].byte);
        ck_assert_uint_eq(exact.codes[0], 0);
    }
    const struct group bare = one_valued("deepgemm_dev", 0); /* No floor: scale 0, byte 0. */
    ck_assert_uint_eq(ref_f32_bits(bare.scale), 0);
    ck_assert_uint_eq(byte_of(&bare), 0);
    ck_assert_uint_eq(bare.codes[0], 0);
}
END_TEST

START_TEST(group_below_the_floor_uses_the_floor) /* D7 */
{
    float wide[GROUP];
    const struct group plain = one_valued("ll", 0x3800);
    ck_assert_uint_eq(plain.codes[0], 0x71);
    ck_assert_uint_eq(ref_f32_bits(plain.scale), 0x346FACAD);
    ref_dequantise(REF_RECIPE_LL, plain.codes, &plain.scale, 1, GROUP, wide);
    ck_assert_uint_eq(ref_bf16_from_f32(wide[9]), 0x3807);

    const struct group power = one_valued("ll_round", 0x3800);
    ck_assert_uint_eq(power.codes[0], 0x70);
    ck_assert_uint_eq(byte_of(&power), 105);
    ref_dequantise(REF_RECIPE_LL_ROUND, power.codes, &power.scale, 1, GROUP, wide);
    ck_assert_uint_eq(ref_f32_bits(wide[9]), 0x38000000);

    const struct group lower_floor = one_valued("sglang_cuda_v1", 0x3800);
    ck_assert_uint_eq(lower_floor.codes[0], 0x7E);
    ck_assert_uint_eq(ref_f32_bits(lower_floor.scale), 0x33924925);
}
END_TEST

START_TEST(factor_is_448_over_the_maximum) /* D8 */
{
    struct group group = {.x = {0x3F80, 0x3780}};
    quantise("ll", &group);
    ck_assert_uint_eq(group.codes[0], 0x7E);
    ck_assert_uint_eq(group.codes[1], 0x04);
    ck_assert_uint_eq(group.codes[2], 0x00);
    ck_assert_uint_eq(ref_f32_bits(group.scale), 0x3B124925);
    group.x[1] = 0xB780;
    quantise("ll", &group);
    ck_assert_uint_eq(group.codes[1], 0x84);
    static const char *const others[] = {"deepgemm_py_cuda", "vllm_cuda", "sglang_triton_row"};
    for (int i = 0; i < 3; i++) {
        quantise(others[i], &group);
        ck_assert_uint_eq(group.codes[1], 0x83);
    }
}
END_TEST

START_TEST(stored_scale_is_a_product) /* D9 */
{
    static const uint32_t rows[][3] = {/* value, by product, by division */
                                       {0x3F80, 0x3B124925, 0x3B124925},
                                       {0x3F82, 0x3B14924A, 0x3B149249},
                                       {0x3F90, 0x3B24924A, 0x3B249249},
                                       {0x3F9A, 0x3B300001, 0x3B300000},
                                       {0x4000, 0x3B924925, 0x3B924925}};
    for (int i = 0; i < 5; i++) {
        const struct group product = one_valued("ll", (uint16_t)rows[i][0]);
        const struct group quotient = one_valued("py_cpu", (uint16_t)rows[i][0]);
        ck_assert_uint_eq(ref_f32_bits(product.scale), rows[i][1]);
        ck_assert_uint_eq(ref_f32_bits(quotient.scale), rows[i][2]);
        ck_assert_uint_eq(product.codes[0], 0x7E);
        ck_assert_uint_eq(quotient.codes[0], 0x7E);
    }
    const struct group largest = one_valued("ll", 0x7F7F);
    ck_assert_uint_eq(largest.codes[0], 0x7E);
    ck_assert_uint_eq(ref_f32_bits(largest.scale), 0x7B11B6DC);
}
END_TEST

START_TEST(power_of_two_scales_round_up) /* D10 */
{
    static const uint32_t rows[][3] = {
        /* value, byte, code */
        {0x3F80, 119, 0x78}, {0xBF80, 119, 0xF8}, {0x4000, 120, 0x78}, {0x4040, 120, 0x7C},
        {0x42FE, 126, 0x78}, {0x43E0, 127, 0x7E}, {0x43E1, 128, 0x76}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct group group = one_valued("ll_ue8m0", (uint16_t)rows[i][0]);
        ck_assert_uint_eq(byte_of(&group), rows[i][1]);
        ck_assert_uint_eq(group.codes[0], rows[i][2]);
    }
    float wide[GROUP];
    struct group group = one_valued("ll_round", 0x42FE); /* 127 comes back as 128. */
    ref_dequantise(REF_RECIPE_LL_ROUND, group.codes, &group.scale, 1, GROUP, wide);
    ck_assert_float_eq(wide[0], 128.0f);
    group = one_valued("ll_round", 0x43E1); /* 450 comes back as 448. */
    ref_dequantise(REF_RECIPE_LL_ROUND, group.codes, &group.scale, 1, GROUP, wide);
    ck_assert_float_eq(wide[0], 448.0f);
}
END_TEST

START_TEST(exponents_pack_little_endian_and_refuse_mantissas)
{
    static const uint16_t values[4] = {0x3F80, 0x43E0, 0x43E1, 0x4000};
    float scales[5], back[5];
    uint32_t packed[2] = {77, 77};
    char err[200] = "";
    for (int g = 0; g < 4; g++) scales[g] = one_valued("ll_ue8m0", values[g]).scale;
    scales[4] = 1.0f;
    ck_assert_int_eq(ref_scales_pack_ue8m0(scales, 1, 4, packed, err, sizeof err), 0);
    ck_assert_uint_eq(packed[0], 0x78807F77);
    ck_assert_int_eq(ref_scales_pack_ue8m0(scales, 1, 5, packed, err, sizeof err), 0);
    ck_assert_uint_eq(packed[1], 127); /* The rest of the word is 0. */
    ref_scales_unpack_ue8m0(packed, 1, 5, back);
    ck_assert_mem_eq(back, scales, sizeof scales);
    ck_assert_float_eq(ref_scale_of(REF_SCALE_UE8M0, packed, 5, 0, 2), 2.0f);

    scales[3] = ref_f32_from_bits(0x3B124925);
    packed[0] = 77;
    ck_assert_int_eq(ref_scales_pack_ue8m0(scales, 2, 2, packed, err, sizeof err), -1);
    TEST_SAYS(err, "row 1, group 1 is 3b124925");
    ck_assert_uint_eq(packed[0], 77);
    scales[3] = -1.0f;
    ck_assert_int_eq(ref_scales_pack_ue8m0(scales, 1, 4, packed, err, sizeof err), -1);
}
END_TEST

START_TEST(scale_layouts_turn_and_turn_back)
{
    static const uint32_t rows[6] = {1, 2, 3, 4, 5, 6}; /* 3 rows of 2 */
    static const uint32_t columns[6] = {1, 3, 5, 2, 4, 6};
    static const uint32_t aligned[8] = {1, 3, 5, 0, 2, 4, 6, 0};
    uint32_t out[8], back[6];
    ref_scales_to_columns(rows, 3, 2, 3, out);
    ck_assert_mem_eq(out, columns, sizeof columns);
    ck_assert_uint_eq(ref_scale_tma_rows(3), 4);
    ck_assert_uint_eq(ref_scale_tma_rows(4), 4);
    ref_scales_to_columns(rows, 3, 2, 4, out);
    ck_assert_mem_eq(out, aligned, sizeof aligned);
    ref_scales_from_columns(out, 3, 2, 4, back);
    ck_assert_mem_eq(back, rows, sizeof rows);
}
END_TEST

START_TEST(bf16_is_a_copy_of_bytes)
{
    uint16_t out[6];
    static const uint16_t x[6] = {0x7F81, 0xFFFF, 0x8000, 0x0001, 0x7F80, 0x3F80};
    ref_quantise(REF_RECIPE_BF16, x, 2, 3, (uint8_t *)out, NULL);
    ck_assert_mem_eq(out, x, sizeof x);
    float wide[6];
    ref_dequantise(REF_RECIPE_BF16, out, NULL, 2, 3, wide);
    for (int i = 0; i < 6; i++) ck_assert_uint_eq(ref_f32_bits(wide[i]), (uint32_t)x[i] << 16);
}
END_TEST

/* Pinned from numpy: recipe, digest of the codes, digest of the scales. */
static const struct {
    const char *recipe;
    uint64_t codes, scales;
} pinned[] = {
    {"ll", UINT64_C(0xB6826599558A227B), UINT64_C(0xCAE8AFA149C06C1A)},
    {"ll_round", UINT64_C(0xCA66899EDCBE3465), UINT64_C(0xC1BE5EB846EF6BD5)},
    {"ll_ue8m0", UINT64_C(0xCA66899EDCBE3465), UINT64_C(0xC1BE5EB846EF6BD5)},
    {"py_cuda", UINT64_C(0x8DA6072C1BF09AC2), UINT64_C(0xCAE8AFA149C06C1A)},
    {"py_cpu", UINT64_C(0x8DA6072C1BF09AC2), UINT64_C(0x6DEDBC12EF8C7A20)},
    {"deepgemm_py_cuda", UINT64_C(0xD14B2020601DA22A), UINT64_C(0xCAE8AFA149C06C1A)},
    {"deepgemm_py_cpu", UINT64_C(0x20AB035212592CA0), UINT64_C(0x6DEDBC12EF8C7A20)},
    {"deepgemm_py_cuda_ue8m0", UINT64_C(0xCA66899EDCBE3465), UINT64_C(0xC1BE5EB846EF6BD5)},
    {"deepgemm_py_cpu_ue8m0", UINT64_C(0xCA66899EDCBE3465), UINT64_C(0xC1BE5EB846EF6BD5)},
    {"deepgemm_dev", UINT64_C(0x289A599F7050BD58), UINT64_C(0xA52F5BE85F701D15)},
    {"sglang_cuda_v1", UINT64_C(0x3F3A85D44E4FC765), UINT64_C(0x29F81EB375D74412)},
    {"sglang_cuda_v2", UINT64_C(0x3F3A85D44E4FC765), UINT64_C(0x29F81EB375D74412)},
    {"sglang_cuda_v1_ue8m0", UINT64_C(0xA61E5A056657483B), UINT64_C(0x58532BF4F6226219)},
    {"sglang_cuda_v2_ue8m0", UINT64_C(0xA61E5A056657483B), UINT64_C(0x58532BF4F6226219)},
    {"sglang_ue8m0_old", UINT64_C(0x3F3A85D44E4FC765), UINT64_C(0x58532BF4F6226219)},
    {"sglang_triton_row", UINT64_C(0xCC6433928B4D9219), UINT64_C(0xD5F1F19AF3A6F1BF)},
    {"sglang_triton_col", UINT64_C(0x3B01C14285394A74), UINT64_C(0xD5F1F19AF3A6F1BF)},
    {"sglang_triton_row_ue8m0", UINT64_C(0xA61E5A056657483B), UINT64_C(0x58532BF4F6226219)},
    {"sglang_triton_col_ue8m0", UINT64_C(0xA61E5A056657483B), UINT64_C(0x58532BF4F6226219)},
    {"vllm_cuda", UINT64_C(0x3B01C14285394A74), UINT64_C(0xD5F1F19AF3A6F1BF)},
    {"vllm_cuda_ue8m0", UINT64_C(0x21960E9DE3AEF378), UINT64_C(0xCBD8D98D9369A2D3)},
    {"vllm_torch_cuda", UINT64_C(0xC4787705CEA0CEF0), UINT64_C(0xBB82F7F7D572F7F9)},
    {"vllm_torch_cpu", UINT64_C(0x526F0915FF2EB40A), UINT64_C(0xA1B41EE7CAFFFBA6)},
    {"vllm_torch_cuda_ue8m0", UINT64_C(0x60314BAA770A825B), UINT64_C(0xF0E064BA5AEAC9B8)},
    {"vllm_torch_cpu_ue8m0", UINT64_C(0x60314BAA770A825B), UINT64_C(0xF0E064BA5AEAC9B8)},
    {"tilelang", UINT64_C(0xB6826599558A227B), UINT64_C(0x6DEDBC12EF8C7A20)},
    {"tilelang_div", UINT64_C(0xE1FA07A77F90F0D3), UINT64_C(0x6DEDBC12EF8C7A20)},
};

enum { PINNED_ROWS = 64, PINNED_HIDDEN = 512, PINNED_VALUES = PINNED_ROWS * PINNED_HIDDEN };

/* Groups of every size of maximum, values up to 1,700 bf16 steps (13 binades) below it. */
static void pinned_input(uint16_t *x)
{
    for (uint64_t i = 0; i < PINNED_VALUES; i++) {
        const uint64_t z = ref_digest_scramble((i + 1) * REF_DIGEST_STEP);
        const uint64_t top = ref_digest_scramble(0x1234 + i / GROUP) % 0x7F80;
        const uint64_t down = (z >> 20) % 1700;
        x[i] = (uint16_t)((top > down ? top - down : 0) | (z & 1) << 15);
    }
}

START_TEST(every_recipe_matches_an_independent_implementation)
{
    static uint16_t x[PINNED_VALUES];
    static uint8_t codes[PINNED_VALUES];
    static float scales[PINNED_VALUES / GROUP];
    pinned_input(x);
    ck_assert_uint_eq(ref_digest(x, sizeof x), UINT64_C(0x8F88E1F8F4FEC2BC));
    ck_assert_uint_eq(sizeof pinned / sizeof pinned[0], REF_RECIPE_COUNT - 1); /* bf16: above. */
    for (unsigned i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        ref_quantise(recipe_of(pinned[i].recipe), x, PINNED_ROWS, PINNED_HIDDEN, codes, scales);
        ck_assert_msg(ref_digest(codes, sizeof codes) == pinned[i].codes, "%s codes",
                      pinned[i].recipe);
        ck_assert_msg(ref_digest(scales, sizeof scales) == pinned[i].scales, "%s scales",
                      pinned[i].recipe);
    }
}
END_TEST

/* The vector loop has no clamp: it relies on no scaled magnitude reaching 464. */
START_TEST(no_maximum_scales_past_the_largest_code)
{
    for (int r = 1; r < REF_RECIPE_COUNT; r++) /* 0 is bf16. */
        for (uint32_t max = 1; max < 0x7F80; max++) {
            struct group group = {.x = {(uint16_t)max, (uint16_t)(max | 0x8000)}};
            ref_quantise((enum ref_recipe)r, group.x, 1, GROUP, group.codes, &group.scale);
            if (group.codes[0] > 0x7E || group.codes[1] != (group.codes[0] | 0x80) ||
                group.codes[2] != 0)
                ck_abort_msg("%s: maximum %04x has code %02x", ref_recipe_name((enum ref_recipe)r),
                             max, group.codes[0]);
        }
}
END_TEST

/* Channel 0: NaN, 1: -NaN, 2: 1.0, 3: -0; rest 0. */
START_TEST(nan_does_what_each_library_does)
{
    static const struct {
        const char *recipe;
        uint32_t codes[4], scale;
    } rows[] = {
        {"ll", {0x7F, 0x7F, 0x7E, 0x80}, 0x3B124925}, /* That element alone. */
        {"ll_round", {0x7F, 0x7F, 0x78, 0x80}, 0x3B800000},
        {"sglang_cuda_v1", {0x7F, 0x7F, 0x7E, 0x80}, 0x3B124925},
        {"sglang_cuda_v2", {0xFE, 0xFE, 0x7E, 0x80}, 0x3B124925}, /* Clamped from below. */
        {"sglang_triton_col", {0xFE, 0xFE, 0x7E, 0x80}, 0x3B124925},
        {"vllm_cuda", {0xFE, 0xFE, 0x7E, 0x80}, 0x3B124925},
        {"tilelang", {0xFE, 0xFE, 0x7E, 0x80}, 0x3B124925},
        {"py_cuda", {0x7F, 0x7F, 0x7F, 0x7F}, 0x7FFFFFFF}, /* The whole group. */
        {"py_cpu", {0x7F, 0x7F, 0x7F, 0x7F}, 0x7FC00000},
        {"deepgemm_py_cuda", {0x7F, 0x7F, 0x7F, 0x7F}, 0x7FFFFFFF},
        {"deepgemm_py_cpu_ue8m0", {0x7F, 0xFF, 0x00, 0x80}, 0x7F000000},
        {"vllm_torch_cpu", {0x7F, 0xFF, 0x7F, 0x7F}, 0x7FC00000},
        {"vllm_torch_cuda", {0x7F, 0x7F, 0x7F, 0x7F}, 0x7FFFFFFF},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct group group = {.x = {0x7FC0, 0xFFC0, 0x3F80, 0x8000}};
        quantise(rows[i].recipe, &group);
        for (int c = 0; c < 4; c++)
            ck_assert_msg(group.codes[c] == rows[i].codes[c], "%s channel %d: %02x", rows[i].recipe,
                          c, group.codes[c]);
        ck_assert_msg(ref_f32_bits(group.scale) == rows[i].scale, "%s: %08x", rows[i].recipe,
                      ref_f32_bits(group.scale));
    }
    const struct group all = one_valued("ll", 0x7FFF); /* Nothing else: the floor. */
    ck_assert_uint_eq(all.codes[0], 0x7F);
    ck_assert_uint_eq(ref_f32_bits(all.scale), 0x346FACAD);
}
END_TEST

/* Channel 0: infinity, 1: -infinity, 2: 1.0, 3: -1.0, 4: -0. */
START_TEST(infinity_does_what_each_library_does)
{
    static const struct {
        const char *recipe;
        uint32_t codes[5], scale;
    } rows[] = {
        {"ll", {0x7F, 0x7F, 0x00, 0x80, 0x80}, 0x7F800000}, /* Factor 448 / infinity = 0. */
        /* 2^-128 does not exist as shifted bits: the kernel multiplies with -infinity. */
        {"ll_round", {0xFE, 0x7E, 0xFE, 0x7E, 0x7F}, 0x7F800000},
        {"py_cuda", {0x7F, 0x7F, 0x00, 0x80, 0x80}, 0x7F800000},
        {"py_cpu", {0xFF, 0xFF, 0x00, 0x80, 0x80}, 0x7F800000}, /* x86: a new NaN is negative. */
        {"vllm_torch_cpu", {0xFF, 0xFF, 0x00, 0x80, 0x80}, 0x7F800000},
        {"deepgemm_py_cuda_ue8m0", {0x7F, 0xFF, 0x00, 0x80, 0x80}, 0x7F000000},
        {"vllm_cuda", {0xFE, 0xFE, 0x00, 0x80, 0x80}, 0x7F800000},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct group group = {.x = {0x7F80, 0xFF80, 0x3F80, 0xBF80, 0x8000}};
        quantise(rows[i].recipe, &group);
        for (int c = 0; c < 5; c++)
            ck_assert_msg(group.codes[c] == rows[i].codes[c], "%s channel %d: %02x", rows[i].recipe,
                          c, group.codes[c]);
        ck_assert_uint_eq(ref_f32_bits(group.scale), rows[i].scale);
    }
}
END_TEST

START_TEST(a_special_group_leaves_its_neighbours_alone)
{
    uint16_t x[3 * GROUP] = {0};
    uint8_t codes[3 * GROUP];
    float scales[3];
    x[0] = x[2 * GROUP + 7] = 0x3F80;
    x[GROUP + 3] = 0x7FC0;
    ref_quantise(REF_RECIPE_PY_CUDA, x, 1, 3 * GROUP, codes, scales);
    ck_assert_uint_eq(codes[0], 0x7E);
    ck_assert_uint_eq(codes[GROUP], 0x7F);
    ck_assert_uint_eq(codes[2 * GROUP + 7], 0x7E);
    ck_assert_uint_eq(ref_f32_bits(scales[0]), 0x3B124925);
    ck_assert_uint_eq(ref_f32_bits(scales[2]), 0x3B124925);
    ref_quantise(REF_RECIPE_LL, NULL, 0, 128, NULL, NULL); /* No rows: nothing is touched. */
}
END_TEST

Suite *quantise_suite(void)
{
    Suite *suite = suite_create("quantise");
    TCase *tests = tcase_create("quantise");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, names_parse_and_print);
    tcase_add_test(tests, zero_group_keeps_its_signs);
    tcase_add_test(tests, zero_group_tells_recipes_apart);
    tcase_add_test(tests, group_below_the_floor_uses_the_floor);
    tcase_add_test(tests, factor_is_448_over_the_maximum);
    tcase_add_test(tests, stored_scale_is_a_product);
    tcase_add_test(tests, power_of_two_scales_round_up);
    tcase_add_test(tests, exponents_pack_little_endian_and_refuse_mantissas);
    tcase_add_test(tests, scale_layouts_turn_and_turn_back);
    tcase_add_test(tests, bf16_is_a_copy_of_bytes);
    tcase_add_test(tests, every_recipe_matches_an_independent_implementation);
    tcase_add_test(tests, no_maximum_scales_past_the_largest_code);
    tcase_add_test(tests, nan_does_what_each_library_does);
    tcase_add_test(tests, infinity_does_what_each_library_does);
    tcase_add_test(tests, a_special_group_leaves_its_neighbours_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
