/* ref/fp8.h - fp32 to e4m3fn and back, in every variant that libraries disagree about.
 *
 * e4m3fn: sign, 4 exponent bits with bias 7, 3 mantissa bits, no infinity, NaN only at 7F and
 * FF, largest finite 448 (7E), smallest subnormal 2^-9. All converters round to nearest, ties
 * to even, and agree bit for bit while |x| <= 464; above that, and on NaN, they are:
 *
 *   input       cuda satfinite  cuda nosat  torch <= 2.11  torch >= 2.12  ml_dtypes
 *   464.00003   7E              7F          7F             7E             7F
 *   -480        FE              FF          FF             FE             FF
 *   +Inf        7E              7F          7F             7E             7F
 *   NaN, -NaN   7F, 7F          7F, 7F      7F, FF         7F, FF         7F, FF
 *
 * The saturating one is branch free, for the quantising loops. */
#ifndef REF_FP8_H
#define REF_FP8_H

#include <stdint.h>

#include "ref/bf16.h"

#define REF_E4M3_MAX 448.0f

/* The code 00..7E of a magnitude (sign bit 0) that is at most 464. An addition does the
 * rounding: next to a number 2^20 times the value's own power of two, or times 2^-6 for
 * subnormal codes, one ulp is one step of the code, so the low bits of the sum count the steps. */
static inline uint32_t ref_e4m3_round_magnitude(float magnitude)
{
    const uint32_t power = ref_f32_bits(magnitude) & 0x7F800000u;
    const uint32_t at_least = (int32_t)power > 0x3C800000 ? power : 0x3C800000u; /* 2^-6 */
    const uint32_t large = at_least + (20u << 23);
    const float sum = magnitude + ref_f32_from_bits(large);
    /* Steps 8..16 of a normal code hold its leading 1, hence 121 and not 120 of bias. */
    return ref_f32_bits(sum) - large + (at_least >> 20) - (121u << 3);
}

/* The same for any magnitude up to infinity: above 448 it saturates. */
static inline uint32_t ref_e4m3_saturate(uint32_t magnitude_bits)
{
    const uint32_t clamped = magnitude_bits < 0x43E00000u ? magnitude_bits : 0x43E00000u;
    return ref_e4m3_round_magnitude(ref_f32_from_bits(clamped));
}

/* CUDA __NV_SATFINITE: what is above 448 becomes 448, infinities too; any NaN becomes 7F. */
static inline uint8_t ref_e4m3_from_f32_sat(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = ref_e4m3_saturate(magnitude) | ((bits >> 24) & 0x80u);
    return (uint8_t)ref_select(magnitude > 0x7F800000u, 0x7Fu, code);
}

/* CUDA __NV_NOSAT: what rounds past 448, and the infinities, become NaN of that sign. */
static inline uint8_t ref_e4m3_from_f32_nosat(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = magnitude > 0x43E80000u ? 0x7Fu : ref_e4m3_saturate(magnitude);
    const uint32_t with_sign = code | ((bits >> 24) & 0x80u);
    return (uint8_t)(magnitude > 0x7F800000u ? 0x7Fu : with_sign);
}

/* torch up to 2.11 (c10, the same on CPU and CUDA): as nosat, but NaN keeps its sign. */
static inline uint8_t ref_e4m3_from_f32_torch(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = magnitude > 0x43E80000u ? 0x7Fu : ref_e4m3_saturate(magnitude);
    return (uint8_t)(code | ((bits >> 24) & 0x80u));
}

/* torch from 2.12: all but NaN saturates, infinities too; NaN keeps its sign (seen with 2.15 on
 * a CPU). */
static inline uint8_t ref_e4m3_from_f32_torch_2_12(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = magnitude > 0x7F800000u ? 0x7Fu : ref_e4m3_saturate(magnitude);
    return (uint8_t)(code | ((bits >> 24) & 0x80u));
}

/* ml_dtypes: the same function as torch up to 2.11. */
static inline uint8_t ref_e4m3_from_f32_ml_dtypes(float value)
{
    return ref_e4m3_from_f32_torch(value);
}

/* Exact for every code but the two NaNs, which come out as +-480. */
static inline float ref_e4m3_finite_to_f32(uint8_t code)
{
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    const uint32_t subnormal = ref_f32_bits((float)(int32_t)magnitude * 0.001953125f); /* 2^-9 */
    return ref_f32_from_bits(ref_select(magnitude < 8u, subnormal, normal) | sign);
}

/* Exact for every code; 7F and FF become quiet NaNs of their sign. */
static inline float ref_e4m3_to_f32(uint8_t code)
{
    if ((code & 0x7Fu) != 0x7Fu) return ref_e4m3_finite_to_f32(code);
    return ref_f32_from_bits(0x7FC00000u | (uint32_t)(code & 0x80u) << 24);
}

/* Is there a NaN among the codes? Loops ask once, then take the finite conversion. */
static inline uint32_t ref_e4m3_any_nan(const uint8_t *codes, uint32_t count)
{
    uint8_t found = 0;
    for (uint32_t i = 0; i < count; i++) found |= (uint8_t)((codes[i] & 0x7F) == 0x7F);
    return found;
}

/* e4m3fnuz (AMD MI300): bias 8, one NaN (80), no negative zero, largest finite 240. */
static inline float ref_e4m3fnuz_to_f32(uint8_t code)
{
    const uint32_t magnitude = code & 0x7Fu;
    if (code == 0x80u) return ref_f32_from_bits(0x7FC00000u);
    if (magnitude < 8u) {
        const float value = (float)(int32_t)magnitude * 0.0009765625f;
        return code & 0x80u ? -value : value;
    }
    return ref_f32_from_bits(((magnitude << 20) + (119u << 23)) | ((uint32_t)(code & 0x80u) << 24));
}

#endif
