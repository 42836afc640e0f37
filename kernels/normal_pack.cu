/* kernels/normal_pack.cu - a rank's tokens as normal mode's records, and its count words.
 *
 * Twin of ref_normal_pack(). A record: payload | scales | meta | ids | weights | zeros up to a
 * multiple of 16 bytes (ref/normal_phase.h).
 *
 * Bytes that must move, a token: payload, scales, ids and weights in, the record out.
 *
 * Launch: as in ll_pack.cu the first block of every rank counts in shared memory, here tokens per
 * destination rank; the others copy, a warp a record, whose payload is under way while what
 * follows it is moved in words. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"
#include "kernels/routing.cuh"

struct normal_pack {
    struct gpu_record record;
    uint64_t stride;        /* Of a record's row. */
    const uint8_t *payload; /* Row 0, as all below. */
    const uint8_t *scales;
    uint8_t *staged;
    int32_t *sent_words;
    const uint64_t *starts;
    const int64_t *topk_idx;
    const float *topk_weights; /* NULL: 0 is staged. */
    uint64_t first_row, end_row;
    uint32_t first_rank, rank_count;
    uint32_t ranks, experts, ranks_per_node;
    uint64_t *stamps;
};

/* One block: tokens of the rank that go to each rank, as -count - 1. */
static __device__ void count_words(const struct normal_pack &pack, uint32_t rank, uint32_t *counts)
{
    const uint32_t topk = pack.record.topk, each = pack.experts / pack.ranks;

    for (uint32_t d = threadIdx.x; d < pack.ranks; d += blockDim.x) counts[d] = 0;
    __syncthreads();
    for (uint64_t t = pack.starts[rank] + threadIdx.x; t < pack.starts[rank + 1]; t += blockDim.x)
        count_ranks(pack.topk_idx + t * topk, topk, pack.experts, each, counts);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < pack.ranks; d += blockDim.x)
        pack.sent_words[(uint64_t)rank * pack.ranks + d] = -(int32_t)counts[d] - 1;
}

/* Word w of what follows the scales in the record of a token. */
static __device__ __forceinline__ uint32_t tail_word(const struct normal_pack &pack, uint64_t row,
                                                     uint32_t meta, uint32_t w)
{
    const struct gpu_record &record = pack.record;
    const uint64_t at = record.meta_at + w * 4;

    if (at < record.ids_at) return at == record.meta_at ? meta : 0;
    if (at < record.weights_at) {
        const uint32_t word = (uint32_t)(at - record.ids_at) / 4;
        const uint32_t k = record.internode ? word : word / 2;
        const int64_t idx = pack.topk_idx[row * record.topk + k];
        const int64_t id = idx >= 0 && idx < (int64_t)pack.experts ? idx : -1;
        return (uint32_t)(!record.internode && word % 2 == 1 ? (uint64_t)id >> 32 : (uint64_t)id);
    }
    const uint32_t k = (uint32_t)(at - record.weights_at) / 4;
    if (k >= record.topk || pack.topk_weights == NULL) return 0;
    return __float_as_uint(pack.topk_weights[row * record.topk + k]);
}

static __global__ void __launch_bounds__(GPU_THREADS, 4) normal_pack_kernel(struct normal_pack pack)
{
    extern __shared__ uint32_t counts[];
    const kernel_stamp stamp(pack.stamps);
    const struct gpu_record &record = pack.record;
    if (blockIdx.x < pack.rank_count) {
        count_words(pack, pack.first_rank + blockIdx.x, counts);
        return;
    }
    const uint64_t counting = (uint64_t)pack.rank_count * GPU_WARPS;
    const uint64_t *starts = pack.starts + pack.first_rank;
    const int32_t left = (int32_t)(record.payload_bytes / sizeof(uint4)) - (int32_t)lane_id();

    for (uint64_t row = pack.first_row + grid_warp() - counting; row < pack.end_row;
         row += grid_warps() - counting) {
        uint8_t *bytes = pack.staged + row * pack.stride;
        const uint4 *from = (const uint4 *)(pack.payload + row * record.payload_bytes) + lane_id();
        struct flight flight;
        flight.load(from, left);
        const uint32_t rank = warp_find(starts, pack.rank_count, row);
        const uint32_t meta = record.internode ? (pack.first_rank + rank) / pack.ranks_per_node
                                               : (uint32_t)(row - starts[rank]);
        uint32_t *tail = (uint32_t *)(bytes + record.meta_at);
        const uint32_t tail_words = (uint32_t)(record.bytes - record.meta_at) / 4;
        warp_copy_words((uint32_t *)(bytes + record.scales_at),
                        (const uint32_t *)(pack.scales + row * record.scale_bytes),
                        (uint32_t)record.scale_bytes / 4);
#pragma unroll 1
        for (uint32_t w = lane_id(); w < tail_words; w += WARP)
            tail[w] = tail_word(pack, row, meta, w);
        flight.store((uint4 *)bytes + lane_id(), left);
        warp_copy_rest(flight, (uint4 *)bytes + lane_id(), from, left);
    }
}

extern "C" struct gpu_slot gpu_normal_record(const struct gpu_record *record)
{
    const struct gpu_slot slot = {gpu_whole_lines(record->bytes), 0, record->bytes};
    assert(record->bytes % sizeof(uint4) == 0 && record->payload_bytes % sizeof(uint4) == 0);
    return slot;
}

extern "C" int gpu_normal_pack(struct gpu *gpu, const struct gpu_routing *routing,
                               uint32_t ranks_per_node, uint32_t rank, uint32_t rank_count,
                               const struct gpu_record *record, const struct gpu_buffer *payload,
                               const struct gpu_buffer *scales, struct gpu_buffer *staged,
                               struct gpu_buffer *sent_words, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(staged->row_bytes == gpu_normal_record(record).row_bytes);
    assert(payload->row_bytes == record->payload_bytes);
    assert(sent_words->row_bytes == routing->ranks * sizeof(int32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint32_t ranks = span.end - span.first;
        struct normal_pack pack;
        pack.record = *record;
        pack.stride = staged->row_bytes;
        pack.payload = gpu_base(payload, &span);
        pack.scales = gpu_base(scales, &span);
        pack.staged = gpu_base(staged, &span);
        pack.sent_words = (int32_t *)gpu_base(sent_words, &span);
        pack.starts = (const uint64_t *)gpu_base(routing->starts, &span);
        pack.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, &span);
        pack.topk_weights = (const float *)gpu_base(routing->topk_weights, &span);
        pack.first_row = gpu_first_row(staged, &span);
        pack.end_row = gpu_end_row(staged, &span);
        pack.first_rank = span.first;
        pack.rank_count = ranks;
        pack.ranks = routing->ranks;
        pack.experts = routing->experts;
        pack.ranks_per_node = ranks_per_node;
        pack.stamps = device->stamps;
        const uint32_t shared_bytes = routing->ranks * sizeof(uint32_t);
        GPU_LAUNCH(normal_pack_kernel,
                   ranks + gpu_grid(device, pack.end_row - pack.first_row, normal_pack_kernel,
                                    shared_bytes),
                   GPU_THREADS, shared_bytes, device->stream, pack);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
