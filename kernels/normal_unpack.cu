/* kernels/normal_unpack.cu - landed records become a rank's rows.
 *
 * Twin of ref_normal_unpack(): ids as the receiver numbers them, weights where it owns the expert,
 * fewer rows where a landed word says so. Across nodes a record does not name its token: a second
 * kernel numbers each block's rows by walking over the source's tokens.
 *
 * Bytes that must move, a row: the record in; payload, scales, ids, weights and source out.
 *
 * Launch: a warp a record, grid-stride; a column a lane. The numbering: a warp a (rank, source)
 * block, 32 tokens at a time. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/routing.cuh"
#include "kernels/stamp.cuh"

enum { META_GPUS = 32 };

struct normal_unpack {
    struct gpu_record record;
    uint64_t stride;             /* Of a record's row. */
    const uint64_t *block_start; /* Of the launch's first block, as words and counts. */
    const int32_t *words;
    int32_t *counts;
    uint32_t blocks;
    uint64_t first_row, end_row;
    const uint8_t *landed; /* Row 0, as all below. */
    uint8_t *payload;
    uint8_t *scales;
    int64_t *topk_idx;
    float *topk_weights;
    int32_t *src_token;
    int32_t *src_meta;
    const uint64_t *starts;
    const int64_t *routing_idx;
    uint32_t first_rank, ranks, experts, ranks_per_node;
    uint64_t *stamps;
};

static __device__ __forceinline__ int64_t record_id(const struct gpu_record &record,
                                                    const uint8_t *bytes, uint32_t k)
{
    const uint32_t *ids = (const uint32_t *)(bytes + record.ids_at);
    if (record.internode) return (int32_t)ids[k];
    return (int64_t)((uint64_t)ids[2 * k] | (uint64_t)ids[2 * k + 1] << 32);
}

/* A column a lane. Damaged ids name no expert, or another one. Returns the mask of the receiver's
 * node that the ids make, in every lane. */
static __device__ __forceinline__ uint32_t take_columns(const struct normal_unpack &unpack,
                                                        uint32_t rank, const uint8_t *bytes,
                                                        uint64_t row)
{
    const struct gpu_record &record = unpack.record;
    const uint32_t each = unpack.experts / unpack.ranks, k = lane_id();
    uint32_t bit = 0;

    if (k < record.topk) {
        const int64_t id = record_id(record, bytes, k);
        const bool named = id >= 0 && id < (int64_t)unpack.experts;
        const uint32_t owner = named ? (uint32_t)id / each : 0;
        const bool mine = named && owner == rank;
        const uint32_t weight = ((const uint32_t *)(bytes + record.weights_at))[k];
        if (named && owner / unpack.ranks_per_node == rank / unpack.ranks_per_node &&
            unpack.ranks_per_node <= META_GPUS)
            bit = 1u << owner % unpack.ranks_per_node;
        unpack.topk_idx[row * record.topk + k] = mine ? (int64_t)((uint32_t)id % each) : -1;
        unpack.topk_weights[row * record.topk + k] = __uint_as_float(mine ? weight : 0u);
    }
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) bit |= __shfl_xor_sync(FULL_WARP, bit, apart);
    return bit;
}

static __global__ void __launch_bounds__(GPU_THREADS, 4)
    normal_unpack_kernel(struct normal_unpack unpack)
{
    const kernel_stamp stamp(unpack.stamps);
    const struct gpu_record &record = unpack.record;
    for (uint64_t b = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; b < unpack.blocks;
         b += (uint64_t)gridDim.x * blockDim.x)
        unpack.counts[b] = ~unpack.words[b]; /* -word - 1 */

    const int32_t left = (int32_t)(record.payload_bytes / sizeof(uint4)) - (int32_t)lane_id();
    for (uint64_t row = unpack.first_row + grid_warp(); row < unpack.end_row; row += grid_warps()) {
        const uint8_t *bytes = unpack.landed + row * unpack.stride;
        const uint32_t *meta = (const uint32_t *)(bytes + record.meta_at);
        const uint4 *from = (const uint4 *)bytes + lane_id();
        uint4 *to = (uint4 *)(unpack.payload + row * record.payload_bytes) + lane_id();
        struct flight flight;
        flight.load(from, left);
        const uint32_t block = warp_find(unpack.block_start, unpack.blocks, row);
        const int32_t count = ~unpack.words[block];
        if ((int64_t)(row - unpack.block_start[block]) >= count) continue;
        const uint32_t rank = unpack.first_rank + block / unpack.ranks;
        const uint32_t mask = take_columns(unpack, rank, bytes, row);
        if (lane_id() == 0 && !record.internode) unpack.src_token[row] = (int32_t)meta[0];
        if (lane_id() == 0 && record.internode && unpack.src_meta != NULL) {
            unpack.src_meta[2 * row] = (int32_t)meta[0];
            unpack.src_meta[2 * row + 1] = (int32_t)mask;
        }
        if (unpack.scales != NULL)
            warp_copy_words((uint32_t *)(unpack.scales + row * record.scale_bytes),
                            (const uint32_t *)(bytes + record.scales_at),
                            (uint32_t)record.scale_bytes / 4);
        flight.store(to, left);
        warp_copy_rest(flight, to, from, left);
    }
}

/* The n-th token of the source that goes to the rank is the block's n-th row, as far as rows were
 * written. */
static __global__ void number_kernel(struct normal_unpack unpack)
{
    const kernel_stamp stamp(unpack.stamps, STAMP_SECOND);
    const uint32_t topk = unpack.record.topk;
    const int64_t each = unpack.experts / unpack.ranks;

    for (uint64_t block = grid_warp(); block < unpack.blocks; block += grid_warps()) {
        const uint32_t source = (uint32_t)(block % unpack.ranks);
        const int64_t first_expert = (unpack.first_rank + block / unpack.ranks) * each;
        const uint64_t first = unpack.starts[source], end = unpack.starts[source + 1];
        const int64_t count = ~unpack.words[block];
        const uint64_t begin = unpack.block_start[block], room = unpack.block_start[block + 1];
        uint64_t row = begin;
        for (uint64_t base = first; base < end; base += WARP) {
            const uint64_t t = base + lane_id();
            const bool found =
                t < end && goes_to(unpack.routing_idx + t * topk, topk, first_expert, each);
            const uint32_t all = __ballot_sync(FULL_WARP, found);
            const uint64_t mine = row + __popc(all & ((1u << lane_id()) - 1));
            if (found && mine < room && (int64_t)(mine - begin) < count)
                unpack.src_token[mine] = (int32_t)(t - first);
            row += __popc(all);
        }
    }
}

static struct normal_unpack fill(const struct gpu_routing *routing, uint32_t ranks_per_node,
                                 const struct gpu_record *record,
                                 const struct gpu_buffer *block_start,
                                 const struct gpu_buffer *landed_words,
                                 const struct gpu_buffer *landed,
                                 const struct gpu_normal_rows *rows, const struct gpu_span *span)
{
    const uint64_t first_block = (uint64_t)span->first * routing->ranks;
    struct normal_unpack unpack;
    unpack.record = *record;
    unpack.stride = landed->row_bytes;
    unpack.block_start = (const uint64_t *)gpu_base(block_start, span) + first_block;
    unpack.words = (const int32_t *)gpu_base(landed_words, span) + first_block;
    unpack.counts = (int32_t *)gpu_base(rows->counts, span) + first_block;
    unpack.blocks = (span->end - span->first) * routing->ranks;
    unpack.first_row = gpu_first_row(landed, span);
    unpack.end_row = gpu_end_row(landed, span);
    unpack.landed = gpu_base(landed, span);
    unpack.payload = gpu_base(rows->payload, span);
    unpack.scales = gpu_base(rows->scales, span);
    unpack.topk_idx = (int64_t *)gpu_base(rows->topk_idx, span);
    unpack.topk_weights = (float *)gpu_base(rows->topk_weights, span);
    unpack.src_token = (int32_t *)gpu_base(rows->src_token, span);
    unpack.src_meta = (int32_t *)gpu_base(rows->src_meta, span);
    unpack.starts = (const uint64_t *)gpu_base(routing->starts, span);
    unpack.routing_idx = (const int64_t *)gpu_base(routing->topk_idx, span);
    unpack.first_rank = span->first;
    unpack.ranks = routing->ranks;
    unpack.experts = routing->experts;
    unpack.ranks_per_node = ranks_per_node;
    return unpack;
}

extern "C" int gpu_normal_unpack(struct gpu *gpu, const struct gpu_routing *routing,
                                 uint32_t ranks_per_node, uint32_t rank, uint32_t rank_count,
                                 const struct gpu_record *record,
                                 const struct gpu_buffer *block_start,
                                 const struct gpu_buffer *landed_words,
                                 const struct gpu_buffer *landed,
                                 const struct gpu_normal_rows *rows, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(landed->row_bytes == gpu_normal_record(record).row_bytes);
    assert(record->topk <= GPU_TOPK_MAX);
    assert(rows->payload->row_bytes == record->payload_bytes);
    assert(landed_words->row_bytes == routing->ranks * sizeof(int32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        struct normal_unpack unpack =
            fill(routing, ranks_per_node, record, block_start, landed_words, landed, rows, &span);
        unpack.stamps = device->stamps;
        const uint64_t warps = unpack.end_row - unpack.first_row + unpack.blocks / WARP;
        GPU_LAUNCH(normal_unpack_kernel, gpu_grid(device, warps, normal_unpack_kernel), GPU_THREADS,
                   0, device->stream, unpack);
        GPU_TRY(cudaGetLastError());
        if (!record->internode) continue;
        GPU_LAUNCH(number_kernel, gpu_grid(device, unpack.blocks, number_kernel), GPU_THREADS, 0,
                   device->stream, unpack);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
