/* kernels/ll_combine.cu - expert output staged, and added up at home with the weights.
 *
 * Twins of ref_ll_combine_pack() and ref_ll_combine_unpack(): from +0, columns ascending, fused
 * multiply-add in fp32, one rounding to BF16; a column without expert is skipped and its weight
 * not read.
 *
 * Bytes that must move: pack, 4 H a row; unpack, 2 H in for every row of the token and 2 H out.
 * H 7168, top-8: 129024 bytes a token, 30 ns at 4.28 TB/s.
 *
 * Launch of unpack: a warp a piece of 256 channels of a token, eight rows' loads in flight a lane;
 * a token's rows stand side by side in its home slots. Weights are found by lanes, one a column,
 * and passed around. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"

enum { PIECE_VECTORS = 32, ROWS_IN_FLIGHT = 8 };

struct ll_combine {
    const uint64_t *home_start; /* Of token 0. */
    const uint4 *home;          /* Slot 0. */
    uint4 *combined;            /* Token 0. */
    const int64_t *topk_idx;
    const float *topk_weights;
    uint64_t first_token;
    uint32_t items;  /* Pieces of all tokens of the launch. */
    uint32_t pieces; /* Of a token. */
    uint32_t row_vectors;
    uint32_t experts, topk;
    uint64_t *stamps;
};

/* acc = fma(x, weight, acc) for the eight channels of a vector. */
static __device__ __forceinline__ void add_weighted(float acc[8], uint4 x, float weight)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[2 * i] = __fmaf_rn(bf16_low(pairs[i]), weight, acc[2 * i]);
        acc[2 * i + 1] = __fmaf_rn(bf16_high(pairs[i]), weight, acc[2 * i + 1]);
    }
}

static __global__ void __launch_bounds__(GPU_THREADS) ll_combine_kernel(struct ll_combine combine)
{
    const kernel_stamp stamp(combine.stamps);
    for (uint32_t item = (uint32_t)grid_warp(); item < combine.items;
         item += (uint32_t)grid_warps()) {
        const uint64_t token = combine.first_token + item / combine.pieces;
        const uint32_t v = item % combine.pieces * PIECE_VECTORS + lane_id();
        const uint64_t column = token * combine.topk + lane_id();
        const bool is_column = lane_id() < combine.topk;
        const int64_t idx = is_column ? combine.topk_idx[column] : -1;
        const bool named = idx >= 0 && idx < (int64_t)combine.experts;
        const float weight = named ? combine.topk_weights[column] : 0.0f;
        uint32_t left = __ballot_sync(FULL_WARP, named); /* Columns not added yet. */
        const uint4 *row = combine.home + combine.home_start[token] * combine.row_vectors + v;
        const bool inside = v < combine.row_vectors;
        float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};

        while (left != 0) {
            const uint32_t count = __popc(left);
            uint4 held[ROWS_IN_FLIGHT];
#pragma unroll
            for (int i = 0; i < ROWS_IN_FLIGHT; i++)
                if (i < count && inside) held[i] = load_once(row + i * combine.row_vectors);
#pragma unroll
            for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
                if (i >= count) break;
                const float w = __shfl_sync(FULL_WARP, weight, __ffs(left) - 1);
                left &= left - 1;
                if (inside) add_weighted(acc, held[i], w);
            }
            row += (uint64_t)ROWS_IN_FLIGHT * combine.row_vectors;
        }
        if (inside)
            store_once(combine.combined + token * combine.row_vectors + v,
                       make_uint4(bf16_pair(acc[0], acc[1]), bf16_pair(acc[2], acc[3]),
                                  bf16_pair(acc[4], acc[5]), bf16_pair(acc[6], acc[7])));
    }
}

extern "C" int gpu_ll_combine_pack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                                   const struct gpu_buffer *expert_out, struct gpu_buffer *staged,
                                   char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(expert_out->row_bytes == staged->row_bytes);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const uint64_t first = gpu_first_row(staged, &span) * staged->row_bytes;
        const uint64_t bytes = gpu_end_row(staged, &span) * staged->row_bytes - first;
        if (bytes == 0) continue;
        GPU_TRY(cudaMemcpyAsync(gpu_base(staged, &span) + first,
                                gpu_base(expert_out, &span) + first, bytes,
                                cudaMemcpyDeviceToDevice, gpu->device[span.device].stream));
    }
    return 0;
}

extern "C" int gpu_ll_combine_unpack(struct gpu *gpu, const struct gpu_routing *routing,
                                     uint32_t rank, uint32_t rank_count, uint32_t hidden,
                                     const struct gpu_buffer *home_start,
                                     const struct gpu_buffer *home, struct gpu_buffer *combined,
                                     char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(routing->topk <= GPU_TOPK_MAX && routing->topk_weights != NULL);
    assert(hidden % GPU_GROUP_CHANNELS == 0 && home->row_bytes == 2 * (uint64_t)hidden);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t tokens = gpu_end_row(combined, &span) - gpu_first_row(combined, &span);
        struct ll_combine combine;
        combine.home_start = (const uint64_t *)gpu_base(home_start, &span);
        combine.home = (const uint4 *)gpu_base(home, &span);
        combine.combined = (uint4 *)gpu_base(combined, &span);
        combine.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, &span);
        combine.topk_weights = (const float *)gpu_base(routing->topk_weights, &span);
        combine.first_token = gpu_first_row(combined, &span);
        combine.row_vectors = hidden / 8;
        combine.pieces = (combine.row_vectors + PIECE_VECTORS - 1) / PIECE_VECTORS;
        combine.stamps = device->stamps;
        combine.experts = routing->experts;
        combine.topk = routing->topk;
        assert(tokens * combine.pieces < UINT32_MAX / 2);
        combine.items = (uint32_t)(tokens * combine.pieces);
        if (combine.items == 0) continue;
        GPU_LAUNCH(ll_combine_kernel, gpu_grid(device, combine.items, ll_combine_kernel),
                   GPU_THREADS, 0, device->stream, combine);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
