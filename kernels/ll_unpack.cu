/* kernels/ll_unpack.cu - what landed in a rank's blocks becomes rows.
 *
 * Twin of ref_ll_unpack(): rows past a block's landed count are left alone; a word that never came
 * writes none and leaves -1 as the count.
 *
 * Bytes that must move, a row: the message in, payload, scales and source token out. H 7168 FP8:
 * 7408 + 7396, 3.5 ns at 4.28 TB/s.
 *
 * Launch: a warp a row, grid-stride over the launch's rows. Loads of the payload are under way
 * while the warp finds the row's block, with 32 tries at a time, and moves the scales in words: a
 * row of them need not stand on 16 bytes, and it is 3 % of the bytes. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"

struct ll_unpack {
    const uint64_t *block_start; /* Of the launch's first block. */
    const int32_t *words;        /* The same. */
    int32_t *counts;             /* The same. */
    uint32_t blocks;
    uint64_t first_row, end_row;
    const uint8_t *landed; /* Row 0, as all below; of a message, its payload. */
    uint64_t stride;
    uint8_t *payload;
    uint64_t payload_bytes;
    uint32_t *scales; /* fp32, or NULL. */
    uint32_t *packed; /* Exponents, or NULL. */
    uint32_t groups;
    int32_t *src_token;
    uint64_t *stamps;
};

static __device__ __forceinline__ void take_exponents(const uint32_t *scales, uint32_t groups,
                                                      uint32_t *packed)
{
#pragma unroll 1
    for (uint32_t w = lane_id(); w < gpu_packed_words(groups); w += WARP) {
        uint32_t word = 0;
#pragma unroll
        for (uint32_t b = 0; b < 4; b++)
            if (4 * w + b < groups) word |= (scales[4 * w + b] >> 23 & 0xFFu) << (8 * b);
        packed[w] = word;
    }
}

static __global__ void __launch_bounds__(GPU_THREADS, 4) ll_unpack_kernel(struct ll_unpack unpack)
{
    const kernel_stamp stamp(unpack.stamps);
    for (uint64_t b = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; b < unpack.blocks;
         b += (uint64_t)gridDim.x * blockDim.x)
        unpack.counts[b] = ~unpack.words[b]; /* -word - 1 */

    const uint32_t vectors = (uint32_t)(unpack.payload_bytes / sizeof(uint4));
    const int32_t left = (int32_t)vectors - (int32_t)lane_id();
    for (uint64_t row = unpack.first_row + grid_warp(); row < unpack.end_row; row += grid_warps()) {
        const uint4 *payload = (const uint4 *)(unpack.landed + row * unpack.stride);
        const uint32_t *scales = (const uint32_t *)(payload + vectors);
        const uint4 *from = payload + lane_id();
        uint4 *to = (uint4 *)(unpack.payload + row * unpack.payload_bytes) + lane_id();
        struct flight flight;
        flight.load(from, left);
        const uint32_t block = warp_find(unpack.block_start, unpack.blocks, row);
        const int32_t count = ~unpack.words[block];
        if ((int64_t)(row - unpack.block_start[block]) >= count) continue;
        if (lane_id() == 0) unpack.src_token[row] = (int32_t)payload[-1].x; /* The header. */
        if (unpack.scales != NULL)
            warp_copy_words(unpack.scales + row * unpack.groups, scales, unpack.groups);
        if (unpack.packed != NULL)
            take_exponents(scales, unpack.groups,
                           unpack.packed + row * gpu_packed_words(unpack.groups));
        flight.store(to, left);
        warp_copy_rest(flight, to, from, left);
    }
}

extern "C" int gpu_ll_unpack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                             uint32_t rank_count, uint32_t hidden, uint32_t recipe,
                             const struct gpu_buffer *block_start,
                             const struct gpu_buffer *landed_words, const struct gpu_buffer *landed,
                             const struct gpu_ll_rows *rows, char *err, size_t err_len)
{
    const uint32_t blocks_per_rank = routing->experts;
    const struct gpu_slot slot = gpu_ll_message(hidden, recipe);
    struct gpu_span span = gpu_span_before(rank);

    assert(landed->row_bytes == slot.row_bytes);
    assert(rows->payload->row_bytes == gpu_payload_bytes(hidden, recipe));
    assert(landed_words->row_bytes == routing->experts * sizeof(int32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first_block = (uint64_t)span.first * blocks_per_rank;
        struct ll_unpack unpack;
        unpack.block_start = (const uint64_t *)gpu_base(block_start, &span) + first_block;
        unpack.words = (const int32_t *)gpu_base(landed_words, &span) + first_block;
        unpack.counts = (int32_t *)gpu_base(rows->counts, &span) + first_block;
        unpack.blocks = (span.end - span.first) * blocks_per_rank;
        unpack.first_row = gpu_first_row(landed, &span);
        unpack.end_row = gpu_end_row(landed, &span);
        unpack.landed = gpu_base(landed, &span) + GPU_LINE_BYTES;
        unpack.stride = landed->row_bytes;
        unpack.payload = gpu_base(rows->payload, &span);
        unpack.payload_bytes = rows->payload->row_bytes;
        unpack.scales = (uint32_t *)gpu_base(rows->scales, &span);
        unpack.packed = (uint32_t *)gpu_base(rows->scales_ue8m0, &span);
        unpack.groups = gpu_scale_groups(hidden);
        unpack.src_token = (int32_t *)gpu_base(rows->src_token, &span);
        unpack.stamps = device->stamps;
        const uint64_t warps = unpack.end_row - unpack.first_row + unpack.blocks / WARP;
        GPU_LAUNCH(ll_unpack_kernel, gpu_grid(device, warps, ll_unpack_kernel), GPU_THREADS, 0,
                   device->stream, unpack);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
