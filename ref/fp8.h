/* ref/fp8.h - fp32 to e4m3fn and back, in every variant that libraries disagree about.
 *
 * e4m3fn: sign, 4 exponent bits with bias 7, 3 mantissa bits, no infinity, NaN only at 7F and
 * FF, largest finite 448 (7E), smallest subnormal 2^-9. All converters round to nearest, ties
 * to even, and agree bit for bit while |x| <= 464; above that, and on NaN, they are:
 *
 *   input       cuda satfinite  cuda nosat  torch <= 2.11  torch >= 2.12  ml_dtypes
 *   464.00003   7E              7F          7F             7E             7F
 *   -480        FE              FF          FF             FE             FF
 *   +Inf        7E              7F          7F             not known      7F
 *   NaN, -NaN   7F, 7F          7F, 7F      7F, FF         not known      7F, FF
 *
 * The saturating one is branch free, for the quantising loops. */
#ifndef REF_FP8_H
#define REF_FP8_H

#include <stdint.h>

#include "ref/bf16.h"

#define REF_E4M3_MAX 448.0f

/* Rounds a magnitude that is at most 464 (43E80000) to its code 00..7E. */
static inline uint32_t ref_e4m3_round_magnitude(uint32_t magnitude_bits)
{
    /* Normal codes: drop 20 mantissa bits, ties to even, then move the bias from 127 to 7. */
    const uint32_t normal = magnitude_bits + 0x7FFFFu + ((magnitude_bits >> 20) & 1u);
    /* Below 2^-6 the step is 2^-9, which is one ulp at 2^14: the addition rounds for us. */
    const float shifted = ref_f32_from_bits(magnitude_bits) + 16384.0f;
    const uint32_t subnormal = ref_f32_bits(shifted) - 0x46800000u;
    return magnitude_bits < 0x3C800000u ? subnormal : (normal >> 20) - (120u << 3);
}

/* CUDA __NV_SATFINITE: what is above 448 becomes 448, infinities too; any NaN becomes 7F. */
static inline uint8_t ref_e4m3_from_f32_sat(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t clamped = magnitude < 0x43E00000u ? magnitude : 0x43E00000u;
    const uint32_t code = ref_e4m3_round_magnitude(clamped) | ((bits >> 24) & 0x80u);
    return (uint8_t)(magnitude > 0x7F800000u ? 0x7Fu : code);
}

/* CUDA __NV_NOSAT: what rounds past 448, and the infinities, become NaN of that sign. */
static inline uint8_t ref_e4m3_from_f32_nosat(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t clamped = magnitude < 0x43E00000u ? magnitude : 0x43E00000u;
    const uint32_t code = magnitude > 0x43E80000u ? 0x7Fu : ref_e4m3_round_magnitude(clamped);
    const uint32_t with_sign = code | ((bits >> 24) & 0x80u);
    return (uint8_t)(magnitude > 0x7F800000u ? 0x7Fu : with_sign);
}

/* torch up to 2.11 (c10, the same on CPU and CUDA): as nosat, but NaN keeps its sign. */
static inline uint8_t ref_e4m3_from_f32_torch(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t clamped = magnitude < 0x43E00000u ? magnitude : 0x43E00000u;
    const uint32_t code = magnitude > 0x43E80000u ? 0x7Fu : ref_e4m3_round_magnitude(clamped);
    return (uint8_t)(code | ((bits >> 24) & 0x80u));
}

/* torch from 2.12: finite values saturate. NaN and infinities are not verified there; they
 * are taken to keep their sign as before and to saturate. */
static inline uint8_t ref_e4m3_from_f32_torch_2_12(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t clamped = magnitude < 0x43E00000u ? magnitude : 0x43E00000u;
    const uint32_t code = magnitude > 0x7F800000u ? 0x7Fu : ref_e4m3_round_magnitude(clamped);
    return (uint8_t)(code | ((bits >> 24) & 0x80u));
}

/* ml_dtypes: the same function as torch up to 2.11. */
static inline uint8_t ref_e4m3_from_f32_ml_dtypes(float value)
{
    return ref_e4m3_from_f32_torch(value);
}

/* Exact for every code; 7F and FF become quiet NaNs of their sign. Branch free as well. */
static inline float ref_e4m3_to_f32(uint8_t code)
{
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    const uint32_t subnormal = ref_f32_bits((float)(int32_t)magnitude * 0.001953125f);
    const uint32_t finite = magnitude < 8u ? subnormal : normal;
    return ref_f32_from_bits((magnitude == 0x7Fu ? 0x7FC00000u : finite) | sign);
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
