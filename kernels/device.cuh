/* kernels/device.cuh - what kernels share: wide accesses, BF16 and FP8 conversion, copies, search.
 *
 * Conversions are the hardware's; ref/bf16.h and ref/fp8.h state the same functions on bits. */
#ifndef KERNELS_DEVICE_CUH
#define KERNELS_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define FULL_WARP 0xFFFFFFFFu

enum { WARP = 32 };

static __device__ __forceinline__ uint32_t lane_id()
{
    return threadIdx.x % WARP;
}

/* Warps of the whole grid are numbered; each takes items index, index + count, ... */
static __device__ __forceinline__ uint64_t grid_warp()
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

static __device__ __forceinline__ uint64_t grid_warps()
{
    return (uint64_t)gridDim.x * blockDim.x / WARP;
}

/* What is read once, or written for somebody else, should not push out what is read again. */
static __device__ __forceinline__ uint4 load_once(const uint4 *at)
{
    return __ldcs(at);
}

static __device__ __forceinline__ void store_once(uint4 *at, uint4 value)
{
    __stcs(at, value);
}

static __device__ __forceinline__ void store_once(uint2 *at, uint2 value)
{
    __stcs(at, value);
}

static __device__ __forceinline__ float bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xFFFF0000u);
}

/* Nearest, ties to even; any NaN becomes 7FFF. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Two e4m3 codes, low byte first: nearest, ties to even, saturating; any NaN becomes 7F. */
static __device__ __forceinline__ uint32_t e4m3_pair(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/* The values of two codes, exact by way of half; 7F and FF are NaN. */
static __device__ __forceinline__ float2 e4m3_values(uint32_t pair)
{
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)pair, __NV_E4M3);
    return __half22float2(__half2(halves));
}

/* About 1 / x, a unit in the last place off at most, for normal x whose reciprocal is normal. */
static __device__ __forceinline__ float reciprocal_guess(float x)
{
#if defined(__CUDA_ARCH__)
    float guess;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(x));
    return guess;
#else
    return 1.0f / x;
#endif
}

static __device__ __forceinline__ bool is_nan_bits(uint32_t bits)
{
    return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

/* A sum whose NaN is x86's: the first NaN operand made quiet, or FFC00000 for an invalid
 * operation. Only sums that leave as fp32 need it: rounding to BF16 has one NaN. */
static __device__ __forceinline__ float add_keeping_nan(float a, float b)
{
    const float sum = __fadd_rn(a, b);
    if (!is_nan_bits(__float_as_uint(sum))) return sum;
    if (is_nan_bits(__float_as_uint(a))) return __uint_as_float(__float_as_uint(a) | 0x400000u);
    if (is_nan_bits(__float_as_uint(b))) return __uint_as_float(__float_as_uint(b) | 0x400000u);
    return __uint_as_float(0xFFC00000u);
}

/* The last i below count with start[i] <= value, for ascending starts with start[0] <= value.
 * The whole warp asks; 32 places are tried at a time. */
static __device__ __forceinline__ uint32_t warp_find(const uint64_t *start, uint32_t count,
                                                     uint64_t value)
{
    uint32_t low = 0, left = count;
    while (left > 1) {
        const uint32_t step = (left + WARP - 1) / WARP;
        const uint32_t at = low + lane_id() * step;
        const bool reached = at < low + left && start[at] <= value;
        const uint32_t steps = __popc(__ballot_sync(FULL_WARP, reached)) - 1;
        const uint32_t end = low + left;
        low += steps * step;
        left = end - low < step ? end - low : step;
    }
    return low;
}

/* Some vectors of a row on their way through one warp's registers: all loads are in flight before
 * the first store waits, and other work may stand between. Lanes take neighbouring vectors, so a
 * row that begins on 128 bytes is moved in whole lines. One address and constant offsets serve all
 * accesses of a lane: `left` counts vectors from the lane's own to the end, below 1 for none. */
struct flight {
    enum { VECTORS = 8, SPAN = VECTORS * WARP };
    uint4 held[VECTORS];

    __device__ __forceinline__ void load(const uint4 *from, int32_t left)
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            if (left > i * WARP) held[i] = load_once(from + i * WARP);
    }

    __device__ __forceinline__ void store(uint4 *to, int32_t left) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            if (left > i * WARP) store_once(to + i * WARP, held[i]);
    }
};

/* One warp goes on with a row from behind the flight's span, in the same registers: predicated
 * loads keep others from being shared. */
static __device__ __forceinline__ void warp_copy_rest(struct flight &flight, uint4 *to,
                                                      const uint4 *from, int32_t left)
{
#pragma unroll 1
    for (left -= flight::SPAN; __any_sync(FULL_WARP, left > 0); left -= flight::SPAN) {
        from += flight::SPAN;
        to += flight::SPAN;
        flight.load(from, left);
        flight.store(to, left);
    }
}

/* The same for 32-bit words, where fields do not stand on 16 bytes. */
static __device__ __forceinline__ void warp_copy_words(uint32_t *to, const uint32_t *from,
                                                       uint32_t count)
{
#pragma unroll 2
    for (uint32_t i = lane_id(); i < count; i += WARP) to[i] = from[i];
}

#endif
