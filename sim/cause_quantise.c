/* sim/cause_quantise.c - scale formulas and code formulas, tried on one row. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/quantise.h"
#include "sim/cause.h"

static const float inv448 = 1.0f / 448.0f; /* 3B124925 */
static const float floor_ll = 1e-4f;       /* DeepEP's floor of amax. */
static const float floor_other = 1e-10f;   /* SGLang's and vLLM's. */

static float group_amax(const uint16_t *x)
{
    float amax = 0.0f;

    for (uint32_t c = 0; c < REF_GROUP_CHANNELS; c++)
        amax = fmaxf(amax, fabsf(ref_bf16_to_f32(x[c]))); /* Drops NaN, as the kernel does. */
    assert(amax >= 0.0f);
    return amax;
}

/* 2^e with e = exponent of the value, plus one where it has a mantissa and up is set. */
static float power_of_two(float value, bool up)
{
    const uint32_t bits = ref_f32_bits(value);

    return ref_f32_from_bits((bits & 0x7F800000u) +
                             (up && (bits & 0x007FFFFFu) != 0 ? 0x00800000u : 0));
}

enum scale_form {
    SCALE_MULTIPLIED,
    SCALE_DIVIDED,
    SCALE_MULTIPLIED_LOW_FLOOR,
    SCALE_DIVIDED_LOW_FLOOR,
    SCALE_MULTIPLIED_NO_FLOOR,
    SCALE_DIVIDED_NO_FLOOR,
    SCALE_INVERSE,
    SCALE_AMAX,
    SCALE_FNUZ,
    SCALE_ROUNDED_UP,
    SCALE_ROUNDED_UP_LOW_FLOOR,
    SCALE_ROUNDED_DOWN,
    SCALE_ROUNDED_NEAREST,
    SCALE_FORMS
};

static const char *const scale_texts[SCALE_FORMS] = {
    [SCALE_MULTIPLIED] = "amax * fp32(1/448): not rounded to a power of two",
    [SCALE_DIVIDED] = "amax / 448: divided instead of multiplied by fp32(1/448)",
    [SCALE_MULTIPLIED_LOW_FLOOR] = "amax * fp32(1/448) with a floor of 1e-10 instead of 1e-4",
    [SCALE_DIVIDED_LOW_FLOOR] = "amax / 448 with a floor of 1e-10 instead of 1e-4",
    [SCALE_MULTIPLIED_NO_FLOOR] = "amax * fp32(1/448) without a floor",
    [SCALE_DIVIDED_NO_FLOOR] = "amax / 448 without a floor",
    [SCALE_INVERSE] = "448 / amax: the inverse of the scale was stored",
    [SCALE_AMAX] = "amax: not divided by 448",
    [SCALE_FNUZ] = "amax / 240: the range of e4m3fnuz",
    [SCALE_ROUNDED_UP] = "amax / 448 rounded up to a power of two",
    [SCALE_ROUNDED_UP_LOW_FLOOR] = "a power of two with a floor of 1e-10 instead of 1e-4",
    [SCALE_ROUNDED_DOWN] = "the power of two below: the mantissa was dropped, not rounded up",
    [SCALE_ROUNDED_NEAREST] = "the nearest power of two: not always the one above",
};

static float scale_of(enum scale_form form, float raw)
{
    const float amax = fmaxf(raw, floor_ll), low = fmaxf(raw, floor_other);

    switch (form) {
    case SCALE_MULTIPLIED: return amax * inv448;
    case SCALE_DIVIDED: return amax / 448.0f;
    case SCALE_MULTIPLIED_LOW_FLOOR: return low * inv448;
    case SCALE_DIVIDED_LOW_FLOOR: return low / 448.0f;
    case SCALE_MULTIPLIED_NO_FLOOR: return raw * inv448;
    case SCALE_DIVIDED_NO_FLOOR: return raw / 448.0f;
    case SCALE_INVERSE: return 448.0f / amax;
    case SCALE_AMAX: return amax;
    case SCALE_FNUZ: return amax / 240.0f;
    case SCALE_ROUNDED_UP: return power_of_two(amax * inv448, true);
    case SCALE_ROUNDED_UP_LOW_FLOOR: return power_of_two(low * inv448, true);
    case SCALE_ROUNDED_DOWN: return power_of_two(amax * inv448, false);
    case SCALE_ROUNDED_NEAREST: return power_of_two(amax * inv448 * 1.33333337f, false);
    case SCALE_FORMS: break;
    }
    assert(false && "a scale form without a formula");
    return 0.0f;
}

enum code_form {
    CODE_FACTOR,
    CODE_EXACT_SCALE,
    CODE_RECIPROCAL,
    CODE_DIVIDED,
    CODE_TWO_ROUNDINGS,
    CODE_LOW_FLOOR,
    CODE_POWER,
    CODE_TRUNCATED,
    CODE_NOT_SATURATED,
    CODE_FORMS
};

static const char *const code_texts[CODE_FORMS] = {
    [CODE_FACTOR] = "x * (448 / amax): a true division, whatever the stored scale",
    [CODE_RECIPROCAL] = "x * (1 / scale): multiplied by the reciprocal of the stored scale",
    [CODE_DIVIDED] = "x / scale: divided by the stored scale",
    [CODE_TWO_ROUNDINGS] = "x * (fp32(1 / amax) * 448): two roundings, as torch on CUDA",
    [CODE_LOW_FLOOR] = "x * (448 / amax) with a floor of 1e-10 instead of 1e-4",
    [CODE_EXACT_SCALE] = "x * (448 / amax): cast before the scale was rounded up",
    [CODE_POWER] = "x / 2^e: a scale rounded up to a power of two",
    [CODE_TRUNCATED] = "x * (448 / amax) rounded toward zero",
    [CODE_NOT_SATURATED] = "a cast that does not saturate: NaN above 448",
};

/* Toward zero: the code whose value does not exceed |x|. */
static uint8_t truncated(float value)
{
    const uint8_t code = ref_e4m3_from_f32_sat(value);
    const float back = ref_e4m3_to_f32(code);

    if ((code & 0x7F) == 0 || (code & 0x7F) == 0x7F || fabsf(back) <= fabsf(value)) return code;
    return (uint8_t)(code - 1);
}

static uint8_t code_of(enum code_form form, float x, float raw, float scale)
{
    const float amax = fmaxf(raw, floor_ll), low = fmaxf(raw, floor_other);

    switch (form) {
    case CODE_FACTOR:
    case CODE_EXACT_SCALE: return ref_e4m3_from_f32_sat(x * (448.0f / amax));
    case CODE_RECIPROCAL: return ref_e4m3_from_f32_sat(x * (1.0f / scale));
    case CODE_DIVIDED: return ref_e4m3_from_f32_sat(x / scale);
    case CODE_TWO_ROUNDINGS: return ref_e4m3_from_f32_sat(x * (1.0f / amax * 448.0f));
    case CODE_LOW_FLOOR: return ref_e4m3_from_f32_sat(x * (448.0f / low));
    case CODE_POWER: return ref_e4m3_from_f32_sat(x / power_of_two(amax * inv448, true));
    case CODE_TRUNCATED: return truncated(x * (448.0f / amax));
    case CODE_NOT_SATURATED: return ref_e4m3_from_f32_torch(x * (448.0f / amax));
    case CODE_FORMS: break;
    }
    assert(false && "a code form without a formula");
    return 0;
}

static bool same_float(float a, float b)
{
    return ref_f32_bits(a) == ref_f32_bits(b);
}

static bool scales_match(enum scale_form form, const uint16_t *x, uint32_t groups,
                         const float *scales)
{
    for (uint32_t g = 0; g < groups; g++)
        if (!same_float(scale_of(form, group_amax(&x[g * REF_GROUP_CHANNELS])), scales[g]))
            return false;
    return true;
}

static bool codes_match(enum code_form form, const uint16_t *x, uint32_t groups,
                        const uint8_t *codes, const float *scales)
{
    for (uint32_t g = 0; g < groups; g++) {
        const uint16_t *group = &x[g * REF_GROUP_CHANNELS];
        const float raw = group_amax(group);

        for (uint32_t c = 0; c < REF_GROUP_CHANNELS; c++)
            if (code_of(form, ref_bf16_to_f32(group[c]), raw, scales[g]) !=
                codes[g * REF_GROUP_CHANNELS + c])
                return false;
    }
    return true;
}

/* What the recipe itself would have given: not a cause. */
static bool is_right_scale(enum ref_recipe recipe, enum scale_form form)
{
    const bool power = recipe == REF_RECIPE_LL_ROUND || recipe == REF_RECIPE_LL_UE8M0;

    return form == (power ? SCALE_ROUNDED_UP : SCALE_MULTIPLIED);
}

static bool is_right_code(enum ref_recipe recipe, enum code_form form)
{
    const bool power = recipe == REF_RECIPE_LL_ROUND || recipe == REF_RECIPE_LL_UE8M0;

    if (recipe == REF_RECIPE_PY_CUDA) return form == CODE_TWO_ROUNDINGS;
    /* With a power-of-two scale both divisions are exact, so they say nothing. */
    if (power) return form == CODE_POWER || form == CODE_FACTOR;
    return form == CODE_FACTOR || form == CODE_EXACT_SCALE;
}

/* A recipe of some library that makes both codes and scales; they are few, so try them all. */
static const char *find_recipe(enum ref_recipe but, const uint16_t *x, uint32_t groups,
                               const uint8_t *codes, const float *scales)
{
    assert(groups > 0);
    for (int r = 0; r < REF_RECIPE_COUNT; r++) {
        const enum ref_recipe recipe = (enum ref_recipe)r;
        bool same = recipe != but && ref_recipe_scales(recipe) != REF_SCALE_NONE;

        for (uint32_t g = 0; g < groups && same; g++) { /* Recipes know no more than a group. */
            uint8_t group_codes[REF_GROUP_CHANNELS];
            float scale = 0.0f;

            ref_quantise(recipe, &x[g * REF_GROUP_CHANNELS], 1, REF_GROUP_CHANNELS, group_codes,
                         &scale);
            same = same_float(scale, scales[g]) &&
                   memcmp(group_codes, &codes[g * REF_GROUP_CHANNELS], sizeof(group_codes)) == 0;
        }
        if (same) return ref_recipe_name(recipe);
    }
    return NULL;
}

/* Sides of the row that are what they should be. */
static void right_parts(enum ref_recipe recipe, const uint16_t *x, uint32_t groups,
                        const uint8_t *codes, const float *scales, bool *codes_right,
                        bool *scales_right)
{
    *codes_right = *scales_right = true;
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t group_codes[REF_GROUP_CHANNELS];
        float scale = 0.0f;

        ref_quantise(recipe, &x[g * REF_GROUP_CHANNELS], 1, REF_GROUP_CHANNELS, group_codes,
                     &scale);
        if (!same_float(scale, scales[g])) *scales_right = false;
        if (memcmp(group_codes, &codes[g * REF_GROUP_CHANNELS], sizeof(group_codes)) != 0)
            *codes_right = false;
    }
}

bool sim_cause_quantise(uint32_t recipe_number, const uint16_t *x, uint32_t hidden,
                        const uint8_t *codes, const float *scales, char cause[SIM_CAUSE_MAX])
{
    const enum ref_recipe recipe = (enum ref_recipe)recipe_number;
    const uint32_t groups = hidden / REF_GROUP_CHANNELS;
    const char *code_text = NULL, *scale_text = NULL;
    bool codes_right = true, scales_right = true;

    assert(hidden % REF_GROUP_CHANNELS == 0 && ref_recipe_scales(recipe) != REF_SCALE_NONE);
    right_parts(recipe, x, groups, codes, scales, &codes_right, &scales_right);
    if (codes_right && scales_right) return false;
    for (int f = 0; f < CODE_FORMS && !codes_right && code_text == NULL; f++)
        if (!is_right_code(recipe, (enum code_form)f) &&
            codes_match((enum code_form)f, x, groups, codes, scales))
            code_text = code_texts[f];
    for (int f = 0; f < SCALE_FORMS && !scales_right && scale_text == NULL; f++)
        if (!is_right_scale(recipe, (enum scale_form)f) &&
            scales_match((enum scale_form)f, x, groups, scales))
            scale_text = scale_texts[f];

    if ((codes_right || code_text != NULL) && (scales_right || scale_text != NULL)) {
        snprintf(cause, SIM_CAUSE_MAX, "%s%s%s%s%s", code_text != NULL ? "codes match " : "",
                 code_text != NULL ? code_text : "",
                 code_text != NULL && scale_text != NULL ? "; " : "",
                 scale_text != NULL ? "scales match " : "", scale_text != NULL ? scale_text : "");
        return true;
    }
    const char *name = find_recipe(recipe, x, groups, codes, scales);
    if (name == NULL) return false;
    snprintf(cause, SIM_CAUSE_MAX, "codes and scales match recipe %s", name);
    return true;
}
