/* tests/test_kernel_recipes.c - the kernels' table of recipes against the reference, row by row.
 *
 * The reference's own table is hidden in ref/quantise.c, so a row of kernels/recipe.h is carried
 * out here, a scalar step at a time, and must give what ref_quantise() gives: groups whose largest
 * magnitude lies on either side of every floor, at powers of two and between, and a NaN. A wrong
 * floor, form or fate in any row shows in one of them. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernels/recipe.h"
#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/quantise.h"
#include "tests/support.h"

enum { GROUP = GPU_GROUP_CHANNELS };

struct scales {
    float stored, factor;
};

/* The least power of two not below a positive scale. */
static float ceil_power(float scale, uint32_t round)
{
    const uint32_t bits = ref_f32_bits(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
    if (round != GPU_CEIL_POWER_CLAMPED) return ref_f32_from_bits(exponent << 23);
    return ref_f32_from_bits((exponent < 1 ? 1 : exponent > 254 ? 254 : exponent) << 23);
}

static struct scales scales_of(const struct gpu_rule *rule, float max)
{
    const float floored = max < rule->max_floor ? rule->max_floor : max;
    const float inverse = 1.0f / 448.0f;
    const float plain = rule->scale == GPU_OVER_448 ? floored / 448.0f : floored * inverse;
    const float exact = plain < rule->scale_floor ? rule->scale_floor : plain;
    struct scales out = {rule->round == GPU_EXACT ? exact : ceil_power(exact, rule->round), 0};

    switch (rule->factor) {
    case GPU_F448_OVER_MAX: out.factor = 448.0f / floored; break;
    case GPU_RECIPROCAL_448: out.factor = 1.0f / floored * 448.0f; break;
    case GPU_RECIPROCAL_SCALE: out.factor = 1.0f / out.stored; break;
    case GPU_POWER_BITS:
        out.factor = ref_f32_from_bits((254 - (ref_f32_bits(out.stored) >> 23)) << 23);
        break;
    default: out.factor = out.stored; break;
    }
    return out;
}

/* A group that falls from `max` to a thousandth of it, signs alternating. */
static void fill_group(float max, uint16_t x[GROUP])
{
    for (int i = 0; i < GROUP; i++) {
        const float value = ldexpf(max, -i / 12) * (1.0f - (float)(i % 12) / 24.0f);
        x[i] = ref_bf16_from_f32(i % 2 != 0 ? -value : value);
    }
}

static float bf16_max(const uint16_t x[GROUP])
{
    float max = 0;
    for (int i = 0; i < GROUP; i++) max = fmaxf(max, fabsf(ref_bf16_to_f32(x[i])));
    return max;
}

START_TEST(a_row_has_the_references_name_and_sizes)
{
    const enum ref_recipe recipe = (enum ref_recipe)_i;
    const struct gpu_recipe row = gpu_recipe_of((uint32_t)_i);
    ck_assert_str_eq(row.name, ref_recipe_name(recipe));
    ck_assert_uint_eq(row.rule.kind, (unsigned)ref_recipe_scales(recipe));
    ck_assert_uint_eq(gpu_payload_bytes(128, (uint32_t)_i),
                      UINT64_C(128) * ref_recipe_payload_bytes(recipe));
}
END_TEST

START_TEST(there_are_as_many_rows_and_the_constants_name_theirs)
{
    ck_assert_uint_eq(GPU_RECIPES, REF_RECIPE_COUNT);
    ck_assert_uint_eq(GPU_RECIPE_BF16, REF_RECIPE_BF16);
    ck_assert_uint_eq(GPU_RECIPE_LL, REF_RECIPE_LL);
    ck_assert_uint_eq(GPU_SCALE_NONE, REF_SCALE_NONE);
    ck_assert_uint_eq(GPU_SCALE_F32, REF_SCALE_F32);
    ck_assert_uint_eq(GPU_SCALE_UE8M0, REF_SCALE_UE8M0);
}
END_TEST

START_TEST(a_row_casts_finite_groups_as_the_reference_does)
{
    /* Around 1e-10 and 1e-4, 448 times each, 448, powers of two, and numbers of no pattern. */
    static const float maxima[] = {0,     1e-12f,  9e-11f, 1.1e-10f, 4e-8f,  5e-8f, 1e-6f,
                                   9e-5f, 1.1e-4f, 0.04f,  0.05f,    0.3f,   1,     1.7f,
                                   2,     3.3f,    447,    448,      449,    512,   777,
                                   1e4f,  6.1e9f,  1e20f,  3e37f,    3.3e38f};
    const enum ref_recipe recipe = (enum ref_recipe)_i;
    const struct gpu_rule rule = gpu_recipe_of((uint32_t)_i).rule;

    if (rule.kind == GPU_SCALE_NONE) return;
    for (size_t m = 0; m < sizeof maxima / sizeof maxima[0]; m++) {
        uint16_t x[GROUP];
        uint8_t codes[GROUP], scale_bytes[8] = {0};
        fill_group(maxima[m], x);
        ref_quantise(recipe, x, 1, GROUP, codes, (float *)(void *)scale_bytes);
        const struct scales scales = scales_of(&rule, bf16_max(x));
        float stored;
        memcpy(&stored, scale_bytes, sizeof stored);
        ck_assert_msg(ref_f32_bits(stored) == ref_f32_bits(scales.stored),
                      "%s, largest %g: scale %a, not %a", gpu_recipe_of((uint32_t)_i).name,
                      (double)maxima[m], (double)scales.stored, (double)stored);
        for (int i = 0; i < GROUP; i++) {
            const float wide = ref_bf16_to_f32(x[i]);
            const float value =
                rule.factor == GPU_BY_SCALE ? wide / scales.factor : wide * scales.factor;
            ck_assert_msg(codes[i] == ref_e4m3_from_f32_sat(value),
                          "%s, largest %g, channel %d: code %02x, not %02x",
                          gpu_recipe_of((uint32_t)_i).name, (double)maxima[m], i,
                          ref_e4m3_from_f32_sat(value), codes[i]);
        }
    }
}
END_TEST

START_TEST(a_row_knows_what_becomes_of_a_nan)
{
    const struct gpu_rule rule = gpu_recipe_of((uint32_t)_i).rule;
    uint16_t x[GROUP];
    uint8_t codes[GROUP];
    float stored = 0;

    if (rule.kind == GPU_SCALE_NONE) return;
    fill_group(3.0f, x);
    x[5] = 0xFFC0; /* Negative. */
    ref_quantise((enum ref_recipe)_i, x, 1, GROUP, codes, &stored);
    /* A clamped scale is a number even for a NaN. */
    const bool whole_group = (rule.nan == GPU_NAN_GROUP_CUDA || rule.nan == GPU_NAN_GROUP_CPU) &&
                             rule.round != GPU_CEIL_POWER_CLAMPED;
    ck_assert_msg((codes[0] & 0x7F) == 0x7F ? whole_group : !whole_group, "%s",
                  gpu_recipe_of((uint32_t)_i).name);
    switch (rule.nan) {
    case GPU_NAN_7F: ck_assert_uint_eq(codes[5], 0x7F); break;
    case GPU_NAN_FE: ck_assert_uint_eq(codes[5], 0xFE); break;
    case GPU_NAN_GROUP_CUDA:
        ck_assert_uint_eq(codes[5], 0x7F);
        if (rule.round != GPU_CEIL_POWER_CLAMPED)
            ck_assert_uint_eq(ref_f32_bits(stored), 0x7FFFFFFF);
        break;
    default:
        ck_assert_uint_eq(codes[5] & 0x7F, 0x7F);
        if (rule.round != GPU_CEIL_POWER_CLAMPED)
            ck_assert_uint_eq(ref_f32_bits(stored), 0x7FC00000);
        break;
    }
}
END_TEST

Suite *kernel_recipes_suite(void)
{
    Suite *suite = suite_create("kernel_recipes");
    TCase *tests = tcase_create("kernel_recipes");
    tcase_add_test(tests, there_are_as_many_rows_and_the_constants_name_theirs);
    tcase_add_loop_test(tests, a_row_has_the_references_name_and_sizes, 0, GPU_RECIPES);
    tcase_add_loop_test(tests, a_row_casts_finite_groups_as_the_reference_does, 0, GPU_RECIPES);
    tcase_add_loop_test(tests, a_row_knows_what_becomes_of_a_nan, 0, GPU_RECIPES);
    suite_add_tcase(suite, tests);
    return suite;
}
