/* kernels/direct_cast.cuh - the cast of kernels/quantise.cuh with another share for each lane: half
 * a warp holds a group, eight channels a lane, and a lane has eight channels of two groups that
 * stand 256 apart. So a token's BF16 and its codes lie in the lanes alike, and one set of shuffles
 * finds both maxima, packed in a register. */
#ifndef KERNELS_DIRECT_CAST_CUH
#define KERNELS_DIRECT_CAST_CUH

#include "kernels/quantise.cuh"

enum { HALF_LANES = WARP / 2 };

static __device__ __forceinline__ uint32_t max_magnitude(uint4 x)
{
    const uint32_t pair = max_magnitudes(x);
    return max_pair(pair, pair >> 16) & 0xFFFFu;
}

/* Maxima of two groups, packed, over the 16 lanes that hold them. */
static __device__ __forceinline__ uint32_t max_over_halves(uint32_t packed)
{
#pragma unroll
    for (int apart = HALF_LANES / 2; apart > 0; apart /= 2)
        packed = max_pair(packed, __shfl_xor_sync(FULL_WARP, packed, apart));
    return packed;
}

/* Largest magnitude that is no NaN in the low half, 1 in bit 16 when there is a NaN. */
static __device__ __forceinline__ uint32_t special_max(uint4 x)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    uint32_t max = 0, any_nan = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t magnitude = pairs[i / 2] >> (16 * (i % 2)) & 0x7FFFu;
        if (magnitude > 0x7F80u)
            any_nan = 1u << 16;
        else if (magnitude > max)
            max = magnitude;
    }
    return max | any_nan;
}

/* The same group as lanes see it when something in the warp is not finite. All lanes call. */
static __device__ __noinline__ float special_half(const struct gpu_rule &rule, uint4 x,
                                                  uint2 *codes)
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
    for (int i = 0; i < 8; i++) {
        const uint32_t value = pairs[i / 2] >> (16 * (i % 2)) & 0xFFFFu;
        words[i / 4] |= special_code(rule, value, scale.factor) << (8 * (i % 4));
    }
    *codes = make_uint2(words[0], words[1]);
    if (!is_nan_bits(__float_as_uint(scale.stored))) return scale.stored;
    return __uint_as_float(rule.nan == GPU_NAN_GROUP_CUDA ? 0x7FFFFFFFu : 0x7FC00000u);
}

/* Eight channels of each of two groups: codes and the groups' stored scales. All lanes call;
 * lanes without a group pass zeros. */
static __device__ __forceinline__ void cast_halves(const struct gpu_rule &rule, const uint4 x[2],
                                                   uint2 codes[2], float stored[2])
{
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
        const struct group_scale scale = scale_of_max(rule, __uint_as_float(maxima[i] << 16));
        stored[i] = scale.stored;
        codes[i] = rule.factor == GPU_BY_SCALE ? codes_of<CAST_DIVIDE>(x[i], scale.factor)
                                               : codes_of<CAST_MULTIPLY>(x[i], scale.factor);
    }
}

#endif
