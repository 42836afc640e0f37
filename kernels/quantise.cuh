/* kernels/quantise.cuh - one warp casts four groups of 128 BF16 channels by any recipe.
 *
 * A step of a warp is 512 channels: two loads of 16 bytes a lane, each of them one piece of 512
 * bytes over the warp, so that memory is asked for whole lines. Half a warp holds a group, eight
 * channels a lane, and a lane has eight channels of two groups that stand 256 apart; one set of
 * shuffles finds both maxima, packed in a register. (Lanes with 16 channels side by side ask for
 * half sectors: a quarter of the memory's speed is lost by that.)
 *
 * What limits a cast by memory is that it needs more than the memory: about a hundred instructions
 * a step leave room, three hundred do not. So the low-latency recipe's arithmetic has a form of its
 * own, in which the division is written out for the range it can meet, and the others share
 * general forms that read the rule.
 *
 * Finite values take the hardware's conversion. A group with an infinity or a NaN takes the
 * element loop below, which writes out what each library does, NaN signs included; for finite
 * groups that loop gives the same bytes, so the whole warp may take it. */
#ifndef KERNELS_QUANTISE_CUH
#define KERNELS_QUANTISE_CUH

#include "kernels/device.cuh"
#include "kernels/recipe.h"

enum {
    HALF_LANES = WARP / 2, /* They hold a group. */
    VECTOR_CHANNELS = 8,   /* Of a load of 16 bytes. */
    STEP_VECTORS = 2 * WARP,
    STEP_CHANNELS = STEP_VECTORS * VECTOR_CHANNELS,
    STEP_GROUPS = STEP_CHANNELS / GPU_GROUP_CHANNELS
};

enum cast_form {
    CAST_LL,       /* 448 / max(a, 1e-4), scale times fp32(1 / 448). */
    CAST_MULTIPLY, /* Any rule that multiplies. */
    CAST_DIVIDE,   /* Any rule that divides. */
    CAST_ANY       /* Any rule. */
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

static __device__ __forceinline__ uint32_t max_magnitude(uint4 x)
{
    const uint32_t pair = max_magnitudes(x);
    return max_pair(pair, pair >> 16) & 0xFFFFu;
}

/* Maxima of two groups, packed, over the lanes that hold them. */
static __device__ __forceinline__ uint32_t max_over_halves(uint32_t packed)
{
#pragma unroll
    for (int apart = HALF_LANES / 2; apart > 0; apart /= 2)
        packed = max_pair(packed, __shfl_xor_sync(FULL_WARP, packed, apart));
    return packed;
}

/* Eight codes of eight channels. */
template <bool DIVIDE> static __device__ __forceinline__ uint2 codes_of(uint4 x, float factor)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    uint32_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = bf16_low(pairs[i]), high = bf16_high(pairs[i]);
        codes[i] = DIVIDE ? e4m3_pair(__fdiv_rn(low, factor), __fdiv_rn(high, factor))
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

/* Largest magnitude that is no NaN in the low half, 1 in bit 16 when there is a NaN. */
static __device__ __forceinline__ uint32_t special_max(uint4 x)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    uint32_t max = 0, any_nan = 0;
#pragma unroll
    for (int i = 0; i < VECTOR_CHANNELS; i++) {
        const uint32_t magnitude = pairs[i / 2] >> (16 * (i % 2)) & 0x7FFFu;
        if (magnitude > 0x7F80u)
            any_nan = 1u << 16;
        else if (magnitude > max)
            max = magnitude;
    }
    return max | any_nan;
}

/* A group of each half of the warp when something in the warp is not finite. All lanes call. */
static __device__ __noinline__ float special_half(struct gpu_rule rule, uint4 x, uint2 *codes)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    const bool whole_group = rule.nan == GPU_NAN_GROUP_CUDA || rule.nan == GPU_NAN_GROUP_CPU;
    uint32_t max = special_max(x), words[2] = {0, 0};

    for (int apart = HALF_LANES / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(FULL_WARP, max, apart);
        const uint32_t larger = (other & 0xFFFFu) > (max & 0xFFFFu) ? other : max;
        max = (larger & 0xFFFFu) | ((max | other) & 0x10000u);
    }
    const uint32_t chosen = whole_group && max > 0xFFFFu ? 0x7FC0u : max & 0xFFFFu;
    const struct group_scale scale = scale_of_max(rule, __uint_as_float(chosen << 16));
    for (int i = 0; i < VECTOR_CHANNELS; i++) {
        const uint32_t value = pairs[i / 2] >> (16 * (i % 2)) & 0xFFFFu;
        words[i / 4] |= special_code(rule, value, scale.factor) << (8 * (i % 4));
    }
    *codes = make_uint2(words[0], words[1]);
    if (!is_nan_bits(__float_as_uint(scale.stored))) return scale.stored;
    return __uint_as_float(rule.nan == GPU_NAN_GROUP_CUDA ? 0x7FFFFFFFu : 0x7FC00000u);
}

/* A step: eight channels of each of two groups become codes and the groups' stored scales, which
 * every lane of a half has. All lanes call; lanes without a group pass zeros. */
template <enum cast_form FORM>
static __device__ __forceinline__ void cast_step(const struct gpu_rule &rule, const uint4 x[2],
                                                 uint2 codes[2], float stored[2])
{
    const bool divide = FORM == CAST_ANY ? rule.factor == GPU_BY_SCALE : FORM == CAST_DIVIDE;
    const uint32_t max = max_over_halves(max_magnitude(x[0]) | max_magnitude(x[1]) << 16);
    const uint32_t maxima[2] = {max & 0xFFFFu, max >> 16};

    if (__any_sync(FULL_WARP, maxima[0] >= 0x7F80u || maxima[1] >= 0x7F80u)) {
        uint2 special[2]; /* Only these must have an address; codes stay in registers. */
        stored[0] = special_half(rule, x[0], &special[0]);
        stored[1] = special_half(rule, x[1], &special[1]);
        codes[0] = special[0];
        codes[1] = special[1];
        return;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const struct group_scale scale = finite_scale<FORM>(rule, __uint_as_float(maxima[i] << 16));
        stored[i] = scale.stored;
        codes[i] =
            divide ? codes_of<true>(x[i], scale.factor) : codes_of<false>(x[i], scale.factor);
    }
}

/* Steps of a warp are loaded together and cast one after the other. */
enum { FLIGHT_STEPS = 2, FLIGHT_VECTORS = FLIGHT_STEPS * STEP_VECTORS };

/* What a warp casts at once: a lane has the vectors lane, lane + 32 and so on of the flight, and
 * `left` says how many of them there are from the lane's own on, below 1 for none. */
struct cast_flight {
    uint4 held[FLIGHT_STEPS][2];

    __device__ __forceinline__ void load(const uint4 *from, int32_t left)
    {
#pragma unroll
        for (int i = 0; i < 2 * FLIGHT_STEPS; i++)
            held[i / 2][i % 2] =
                left > i * WARP ? load_once(from + i * WARP) : make_uint4(0, 0, 0, 0);
    }

    __device__ __forceinline__ void copy(uint4 *to, int32_t left) const
    {
#pragma unroll
        for (int i = 0; i < 2 * FLIGHT_STEPS; i++)
            if (left > i * WARP) store_once(to + i * WARP, held[i / 2][i % 2]);
    }

    /* `codes` is the lane's first, `scales` the flight's first group's. A flight's eight scales
     * are one sector: eight lanes store them at once. */
    template <enum cast_form FORM>
    __device__ __forceinline__ void cast(const struct gpu_rule &rule, uint2 *codes, float *scales,
                                         int32_t left)
    {
        const uint32_t mine = lane_id() % HALF_LANES, half = lane_id() / HALF_LANES;
        float kept = 0;
#pragma unroll
        for (int step = 0; step < FLIGHT_STEPS; step++) {
            uint2 made[2];
            float stored[2];
            cast_step<FORM>(rule, held[step], made, stored);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = 2 * step + i;
                if (left > at * WARP) store_once(codes + at * WARP, made[i]);
                if (mine == at) kept = stored[i];
            }
        }
        /* Scale 2 * mine + half is there if the group's first vector is. */
        const int32_t before = (int32_t)((2 * mine + half) * HALF_LANES);
        if (mine < 2 * FLIGHT_STEPS && left + (int32_t)lane_id() > before)
            scales[2 * mine + half] = kept;
    }
};

#endif
