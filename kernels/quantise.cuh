/* kernels/quantise.cuh - one warp casts four groups of 128 BF16 channels by any recipe.
 *
 * Eight lanes hold a group, 16 channels each: two 16-byte loads and one 16-byte store a lane, and
 * three shuffles for the maximum. A step of a warp is four groups, 512 channels.
 *
 * What limits a cast by memory is that it needs more than the memory: about a hundred instructions
 * a step leave room, three hundred do not. So the low-latency recipe's arithmetic has a form of its
 * own, in which the division is written out for the range it can meet, and the others share two
 * general forms that read the rule.
 *
 * Finite values take the hardware's conversion. A group with an infinity or a NaN takes the
 * element loop below, which writes out what each library does, NaN signs included; for finite
 * groups that loop gives the same bytes, so the whole warp may take it. */
#ifndef KERNELS_QUANTISE_CUH
#define KERNELS_QUANTISE_CUH

#include "kernels/device.cuh"
#include "kernels/recipe.h"

enum { STEP_GROUPS = 4, LANES_PER_GROUP = 8, LANE_CHANNELS = 16, STEP_CHANNELS = 512 };

enum cast_form {
    CAST_LL,       /* 448 / max(a, 1e-4), scale times fp32(1 / 448). */
    CAST_MULTIPLY, /* Any rule that multiplies. */
    CAST_DIVIDE    /* Any rule that divides. */
};

static inline enum cast_form cast_form_of(const struct gpu_rule *rule)
{
    if (rule->factor == GPU_BY_SCALE) return CAST_DIVIDE;
    const bool ll = rule->factor == GPU_F448_OVER_MAX && rule->scale == GPU_TIMES_INV448 &&
                    rule->round == GPU_EXACT && rule->max_floor == 1e-4f && rule->scale_floor == 0;
    return ll ? CAST_LL : CAST_MULTIPLY;
}

struct group_scale {
    float stored; /* What is delivered. */
    float factor; /* x is multiplied with it, or divided by it for BY_SCALE. */
};

/* The least power of two that is not below a positive scale; NaN stays NaN unless clamped. */
static __device__ __forceinline__ float ceil_power(float scale, uint32_t round)
{
    const uint32_t bits = __float_as_uint(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);

    if (round == GPU_CEIL_POWER_CLAMPED)
        return __uint_as_float((exponent < 1 ? 1u : exponent > 254 ? 254u : exponent) << 23);
    return is_nan_bits(bits) ? scale : __uint_as_float(exponent << 23);
}

static __device__ __forceinline__ struct group_scale scale_of_max(const struct gpu_rule &rule,
                                                                  float max)
{
    struct group_scale out;
    const float floored = max < rule.max_floor ? rule.max_floor : max; /* NaN passes. */
    const float plain = rule.scale == GPU_OVER_448
                            ? __fdiv_rn(floored, 448.0f)
                            : __fmul_rn(floored, __uint_as_float(0x3B124925u)); /* fp32(1/448) */
    const float exact = plain < rule.scale_floor ? rule.scale_floor : plain;

    out.stored = rule.round == GPU_EXACT ? exact : ceil_power(exact, rule.round);
    switch (rule.factor) {
    case GPU_F448_OVER_MAX: out.factor = __fdiv_rn(448.0f, floored); break;
    case GPU_RECIPROCAL_448: out.factor = __fmul_rn(__fdiv_rn(1.0f, floored), 448.0f); break;
    case GPU_RECIPROCAL_SCALE: out.factor = __fdiv_rn(1.0f, out.stored); break;
    case GPU_POWER_BITS: /* An infinite maximum borrows and becomes -infinity. */
        out.factor = __uint_as_float((254u - (__float_as_uint(out.stored) >> 23)) << 23);
        break;
    default: out.factor = out.stored; break;
    }
    return out;
}

/* 448 / a as IEEE has it, for a from 1e-4 to the largest finite number. Newton's steps on a guess,
 * as the compiler's own division does them, without its test for operands that cannot come; large
 * a are brought down by 2^-64 and the quotient, which stays normal, with them. All bf16 values of
 * a are tried by tests/gpu_quantise.c. */
static __device__ __forceinline__ float quotient_of_448(float a)
{
    const float down = a < 1.8446744e19f ? 1.0f : 5.4210109e-20f; /* 2^64, 2^-64 */
    const float b = __fmul_rn(a, down);
    const float guess = reciprocal_guess(b);
    const float r = __fmaf_rn(guess, __fmaf_rn(-b, guess, 1.0f), guess);
    const float q0 = __fmul_rn(448.0f, r);
    const float q1 = __fmaf_rn(__fmaf_rn(-b, q0, 448.0f), r, q0);
    const float q2 = __fmaf_rn(__fmaf_rn(-b, q1, 448.0f), r, q1);
    return __fmul_rn(q2, down);
}

template <enum cast_form FORM>
static __device__ __forceinline__ struct group_scale finite_scale(const struct gpu_rule &rule,
                                                                  float max)
{
    if (FORM != CAST_LL) return scale_of_max(rule, max);
    const float floored = fmaxf(max, 1e-4f);
    struct group_scale out = {__fmul_rn(floored, __uint_as_float(0x3B124925u)),
                              quotient_of_448(floored)};
    return out;
}

/* Both halves of a register, as signed numbers: magnitudes have no sign bit. */
static __device__ __forceinline__ uint32_t max_pair(uint32_t a, uint32_t b)
{
    return __vmaxs2(a, b);
}

/* Largest magnitudes of the even and the odd channels, packed. */
static __device__ __forceinline__ uint32_t max_magnitudes(uint4 x)
{
    const uint32_t mask = 0x7FFF7FFFu;
    return max_pair(max_pair(x.x & mask, x.y & mask), max_pair(x.z & mask, x.w & mask));
}

/* Largest magnitude of the group, in every lane that holds it. */
static __device__ __forceinline__ uint32_t group_max(const uint4 x[2])
{
    uint32_t pair = max_pair(max_magnitudes(x[0]), max_magnitudes(x[1]));
#pragma unroll
    for (int apart = LANES_PER_GROUP / 2; apart > 0; apart /= 2)
        pair = max_pair(pair, __shfl_xor_sync(FULL_WARP, pair, apart));
    return max_pair(pair, pair >> 16) & 0xFFFFu;
}

/* Eight codes of eight channels. */
template <enum cast_form FORM>
static __device__ __forceinline__ uint2 codes_of(uint4 x, float factor)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    uint32_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = bf16_low(pairs[i]), high = bf16_high(pairs[i]);
        codes[i] = FORM == CAST_DIVIDE ? e4m3_pair(__fdiv_rn(low, factor), __fdiv_rn(high, factor))
                                       : e4m3_pair(__fmul_rn(low, factor), __fmul_rn(high, factor));
    }
    return make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
}

/* One element of a group that is not finite. */
static __device__ uint32_t special_code(const struct gpu_rule &rule, uint32_t x, float factor)
{
    const float wide = __uint_as_float(x << 16);
    const float value =
        rule.factor == GPU_BY_SCALE ? __fdiv_rn(wide, factor) : __fmul_rn(wide, factor);
    const bool factor_nan = is_nan_bits(__float_as_uint(factor));
    const uint32_t bits = __float_as_uint(value);

    if (!is_nan_bits(bits)) {
        const bool torch_cast = rule.nan == GPU_NAN_GROUP_CUDA || rule.nan == GPU_NAN_GROUP_CPU;
        if (torch_cast && (bits & 0x7FFFFFFFu) > 0x43E80000u) /* Past 464. */
            return 0x7Fu | (bits >> 24 & 0x80u);
        return e4m3_pair(value, 0.0f) & 0xFFu;
    }
    if (rule.nan == GPU_NAN_FE) return 0xFEu;
    if (rule.nan != GPU_NAN_GROUP_CPU) return 0x7Fu;
    /* As on x86: a NaN factor was made from |x| and is positive; a quotient keeps the sign of x;
     * an invalid operation makes a negative NaN. */
    if ((x & 0x7FFFu) > 0x7F80u && (rule.factor == GPU_BY_SCALE || !factor_nan))
        return x & 0x8000u ? 0xFFu : 0x7Fu;
    return factor_nan ? 0x7Fu : 0xFFu;
}

/* Channel i of a lane's 16. */
static __device__ __forceinline__ uint32_t channel(const uint32_t *pairs, int i)
{
    return pairs[i / 2] >> (16 * (i % 2)) & 0xFFFFu;
}

/* All four groups of a warp when something in one of them is not finite. All lanes call. */
static __device__ __noinline__ float quantise_special(struct gpu_rule rule, uint4 x0, uint4 x1,
                                                      uint4 *codes)
{
    const uint32_t pairs[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    const bool whole_group = rule.nan == GPU_NAN_GROUP_CUDA || rule.nan == GPU_NAN_GROUP_CPU;
    uint32_t max = 0, any_nan = 0, words[4] = {0, 0, 0, 0};

#pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) {
        const uint32_t magnitude = channel(pairs, i) & 0x7FFFu;
        if (magnitude > 0x7F80u)
            any_nan = 1;
        else if (magnitude > max)
            max = magnitude;
    }
#pragma unroll
    for (int apart = LANES_PER_GROUP / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(FULL_WARP, max, apart);
        max = other > max ? other : max;
        any_nan |= __shfl_xor_sync(FULL_WARP, any_nan, apart);
    }
    const uint32_t chosen = whole_group && any_nan ? 0x7FC0u : max;
    const struct group_scale scale = scale_of_max(rule, __uint_as_float(chosen << 16));
#pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++)
        words[i / 4] |= special_code(rule, channel(pairs, i), scale.factor) << (8 * (i % 4));
    *codes = make_uint4(words[0], words[1], words[2], words[3]);
    if (!is_nan_bits(__float_as_uint(scale.stored))) return scale.stored;
    return __uint_as_float(rule.nan == GPU_NAN_GROUP_CUDA ? 0x7FFFFFFFu : 0x7FC00000u);
}

/* Sixteen channels a lane become codes; returns the group's stored scale. All lanes call; lanes
 * without a group pass zeros. */
template <enum cast_form FORM>
static __device__ __forceinline__ float quantise_step(const struct gpu_rule &rule, const uint4 x[2],
                                                      uint4 *codes)
{
    const uint32_t max = group_max(x);

    if (__any_sync(FULL_WARP, max >= 0x7F80u)) {
        uint4 special; /* Only this must have an address: codes stay in registers. */
        const float stored = quantise_special(rule, x[0], x[1], &special);
        *codes = special;
        return stored;
    }
    const struct group_scale scale = finite_scale<FORM>(rule, __uint_as_float(max << 16));
    const uint2 low = codes_of<FORM>(x[0], scale.factor), high = codes_of<FORM>(x[1], scale.factor);
    *codes = make_uint4(low.x, low.y, high.x, high.y);
    return scale.stored;
}

#endif
