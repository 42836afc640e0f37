/* kernels/exact_gemm.cuh - a tile of a block-scaled FP8 GEMM, every sum in the reference's order.
 *
 * For each 128-block of the summed dimension, ascending: s = fma(a, b, s) over ascending k from +0,
 * then acc = fma(s, scale_a * scale_b, acc); one rounding to BF16 at the end. Tensor cores add in
 * an order of their own, so this one is made of scalar fused multiply-adds: for comparing, not for
 * speed.
 *
 * 256 threads make a tile of 64 rows by 64 outputs, 4 by 4 a thread; 16 steps of k at a time are
 * decoded into shared memory, 8.5 KiB, so each code is decoded once a tile. */
#ifndef KERNELS_EXACT_GEMM_CUH
#define KERNELS_EXACT_GEMM_CUH

#include "kernels/device.cuh"
#include "kernels/recipe.h"

enum { TILE = 64, STEPS = 16, EACH = 4, GROUP = GPU_GROUP_CHANNELS };

struct operand {
    const uint8_t *codes;   /* [rows][depth] */
    const uint32_t *scales; /* [rows][depth / 128] fp32, or [rows][words] packed exponents. */
    uint32_t kind;
    uint64_t rows;
    uint32_t depth;
};

struct weights {
    const uint8_t *codes; /* [outputs][depth] */
    const float *scales;  /* [outputs / 128][depth / 128] */
    uint32_t outputs;
};

static __device__ __forceinline__ float scale_of(const struct operand &a, uint64_t row,
                                                 uint32_t block)
{
    const uint32_t groups = a.depth / GROUP;
    if (a.kind == GPU_SCALE_F32) return __uint_as_float(a.scales[row * groups + block]);
    const uint32_t word = a.scales[row * gpu_packed_words(groups) + block / 4];
    return __uint_as_float((word >> (8 * (block % 4)) & 0xFFu) << 23);
}

/* Four codes of one row, k..k+3, decoded into column `index` of a tile. */
static __device__ __forceinline__ void decode(const uint8_t *codes, bool exists,
                                              float tile[STEPS][TILE + 4], uint32_t index,
                                              uint32_t step)
{
    const uint32_t word = exists ? *(const uint32_t *)codes : 0u;
    const float2 low = e4m3_values(word & 0xFFFFu), high = e4m3_values(word >> 16);
    tile[step][index] = low.x;
    tile[step + 1][index] = low.y;
    tile[step + 2][index] = high.x;
    tile[step + 3][index] = high.y;
}

/* Rows [row0, min(row0 + 64, a.rows)) and outputs [out0, out0 + 64); out has b.outputs columns. The
 * whole block calls. */
static __device__ __forceinline__ void exact_tile(const struct operand &a, const struct weights &b,
                                                  uint64_t row0, uint32_t out0,
                                                  uint16_t *__restrict__ out)
{
    __shared__ float a_tile[STEPS][TILE + 4], b_tile[STEPS][TILE + 4];
    const uint32_t row_at = threadIdx.x / 16 * EACH, out_at = threadIdx.x % 16 * EACH;
    const uint32_t load_index = threadIdx.x / 4, load_step = threadIdx.x % 4 * 4;
    const bool load_row = row0 + load_index < a.rows;
    const uint8_t *a_from = a.codes + (row0 + load_index) * a.depth + load_step;
    const uint8_t *b_from = b.codes + (uint64_t)(out0 + load_index) * a.depth + load_step;
    float acc[EACH][EACH] = {};

    for (uint32_t block = 0; block < a.depth / GROUP; block++) {
        const float b_scale = b.scales[(uint64_t)(out0 / GROUP) * (a.depth / GROUP) + block];
        float sum[EACH][EACH] = {};
        for (uint32_t k = block * GROUP; k < (block + 1) * GROUP; k += STEPS) {
            decode(a_from + k, load_row, a_tile, load_index, load_step);
            decode(b_from + k, true, b_tile, load_index, load_step);
            __syncthreads();
#pragma unroll
            for (int s = 0; s < STEPS; s++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] =
                            __fmaf_rn(a_tile[s][row_at + i], b_tile[s][out_at + j], sum[i][j]);
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++) {
            if (row0 + row_at + i >= a.rows) break;
            const float scale = __fmul_rn(scale_of(a, row0 + row_at + i, block), b_scale);
            for (int j = 0; j < EACH; j++) acc[i][j] = __fmaf_rn(sum[i][j], scale, acc[i][j]);
        }
    }
    for (int i = 0; i < EACH && row0 + row_at + i < a.rows; i++) {
        uint2 *to = (uint2 *)(out + (row0 + row_at + i) * b.outputs + out0 + out_at);
        *to = make_uint2(bf16_pair(acc[i][0], acc[i][1]), bf16_pair(acc[i][2], acc[i][3]));
    }
}

#endif
