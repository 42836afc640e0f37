/* kernels/handle.cu - the prefix matrices of a dispatch inside one node.
 *
 * Twins of ref_intranode_handle() and ref_send_head_rewrite(). Receivers count the senders'
 * channels themselves, since every GPU has the routing: nothing crosses between GPUs.
 *
 * Bytes that must move: the ids and the tables, microseconds. Launch: a warp a (rank, peer,
 * channel); then a thread a row of a matrix makes sums of counts. */
#include "kernels/gpu_private.cuh"
#include "kernels/routing.cuh"

struct handle {
    const uint64_t *starts;
    const int64_t *topk_idx;
    uint32_t first_rank, rank_count;
    uint32_t ranks, experts, topk, channels;
    int32_t *sent;      /* [rank][R][C], rank 0; NULL: left out, as all below. */
    int32_t *received;  /* [rank][R][C] */
    int32_t *send_head; /* [token][R] */
    int32_t *prefix;    /* [R][R], the whole. */
};

/* Places of one channel's tokens in the queue to one rank; returns how many. */
static __device__ int32_t number_channel(const struct handle &handle, uint64_t begin, uint64_t end,
                                         uint32_t peer)
{
    const int64_t each = handle.experts / handle.ranks;
    int32_t count = 0;

    for (uint64_t base = begin; base < end; base += WARP) {
        const uint64_t t = base + lane_id();
        const bool sent =
            t < end && goes_to(handle.topk_idx + t * handle.topk, handle.topk, peer * each, each);
        const uint32_t all = __ballot_sync(FULL_WARP, sent);
        if (t < end && handle.send_head != NULL)
            handle.send_head[t * handle.ranks + peer] =
                sent ? count + __popc(all & ((1u << lane_id()) - 1)) : -1;
        count += __popc(all);
    }
    return count;
}

static __global__ void channel_counts_kernel(struct handle handle)
{
    const uint64_t items = (uint64_t)handle.rank_count * handle.ranks * handle.channels;
    const int64_t each = handle.experts / handle.ranks;

    for (uint64_t item = grid_warp(); item < items; item += grid_warps()) {
        const uint32_t channel = (uint32_t)(item % handle.channels);
        const uint32_t peer = (uint32_t)(item / handle.channels % handle.ranks);
        const uint32_t me = handle.first_rank + (uint32_t)(item / handle.channels / handle.ranks);
        const uint64_t at = ((uint64_t)me * handle.ranks + peer) * handle.channels + channel;
        uint64_t begin, end;
        channel_range(handle.starts, me, handle.channels, channel, &begin, &end);
        const int32_t sent = number_channel(handle, begin, end, peer);
        if (lane_id() == 0 && handle.sent != NULL) handle.sent[at] = sent;
        if (handle.received == NULL) continue;
        channel_range(handle.starts, peer, handle.channels, channel, &begin, &end);
        const int32_t received =
            warp_count(handle.topk_idx, handle.topk, begin, end, me * each, each);
        if (lane_id() == 0) handle.received[at] = received;
    }
}

/* A thread a row: counts along channels become sums up to and including each, or before it. */
static __global__ void channel_sums_kernel(struct handle handle)
{
    const uint64_t rows = (uint64_t)handle.rank_count * handle.ranks;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t row = (uint64_t)handle.first_rank * handle.ranks + i;
        int32_t sent = 0, received = 0;
        for (uint32_t c = 0; c < handle.channels; c++) {
            const uint64_t at = row * handle.channels + c;
            if (handle.sent != NULL) {
                sent += handle.sent[at];
                handle.sent[at] = sent;
            }
            if (handle.received != NULL) {
                const int32_t count = handle.received[at];
                handle.received[at] = received;
                received += count;
            }
        }
    }
}

/* A block a column: tokens for rank j from sources 0..i. */
static __global__ void rank_prefix_kernel(struct handle handle)
{
    const uint32_t j = blockIdx.x;
    const int64_t each = handle.experts / handle.ranks;

    for (uint32_t i = threadIdx.x / WARP; i < handle.ranks; i += blockDim.x / WARP) {
        const int32_t count = warp_count(handle.topk_idx, handle.topk, handle.starts[i],
                                         handle.starts[i + 1], j * each, each);
        if (lane_id() == 0) handle.prefix[(uint64_t)i * handle.ranks + j] = count;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (uint64_t i = 1; i < handle.ranks; i++)
        handle.prefix[i * handle.ranks + j] += handle.prefix[(i - 1) * handle.ranks + j];
}

extern "C" int gpu_intranode_handle(struct gpu *gpu, const struct gpu_routing *routing,
                                    uint32_t channels, const struct gpu_intranode_out *out,
                                    char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(0);

    assert(channels >= 1 && routing->experts % routing->ranks == 0);
    while (gpu_next_span(gpu, routing->ranks, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        struct handle handle;
        handle.starts = (const uint64_t *)gpu_base(routing->starts, &span);
        handle.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, &span);
        handle.first_rank = span.first;
        handle.rank_count = span.end - span.first;
        handle.ranks = routing->ranks;
        handle.experts = routing->experts;
        handle.topk = routing->topk;
        handle.channels = channels;
        handle.sent = (int32_t *)gpu_base(out->channel_prefix_matrix, &span);
        handle.received = (int32_t *)gpu_base(out->recv_channel_prefix_matrix, &span);
        handle.send_head = (int32_t *)gpu_base(out->send_head, &span);
        handle.prefix = (int32_t *)gpu_base(out->rank_prefix_matrix, &span);
        const uint64_t rows = (uint64_t)handle.rank_count * routing->ranks;
        GPU_LAUNCH(channel_counts_kernel, gpu_grid(device, rows * channels, channel_counts_kernel),
                   GPU_THREADS, 0, device->stream, handle);
        GPU_TRY(cudaGetLastError());
        GPU_LAUNCH(channel_sums_kernel, gpu_grid(device, rows / WARP + 1, channel_sums_kernel),
                   GPU_THREADS, 0, device->stream, handle);
        GPU_TRY(cudaGetLastError());
        if (handle.prefix == NULL) continue;
        GPU_LAUNCH(rank_prefix_kernel, routing->ranks, GPU_THREADS, 0, device->stream, handle);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}

enum { NONE_FOLLOWS = 1 << 25 };

/* A thread a (rank, channel, column), backwards: each -1 becomes -(next sent head) - 1. */
static __global__ void rewrite_kernel(const uint64_t *starts, uint32_t first_rank,
                                      uint32_t rank_count, uint32_t channels, uint32_t columns,
                                      int32_t *heads)
{
    const uint64_t items = (uint64_t)rank_count * channels * columns;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t rank = first_rank + (uint32_t)(i / columns / channels);
        uint64_t begin, end;
        int32_t next = NONE_FOLLOWS;
        channel_range(starts, rank, channels, (uint32_t)(i / columns % channels), &begin, &end);
        for (uint64_t t = end; t-- > begin;) {
            int32_t *head = &heads[t * columns + i % columns];
            if (*head < 0)
                *head = -next - 1;
            else
                next = *head;
        }
    }
}

extern "C" int gpu_send_head_rewrite(struct gpu *gpu, const struct gpu_routing *routing,
                                     uint32_t channels, uint32_t columns,
                                     struct gpu_buffer *send_head, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(0);

    assert(send_head->row_bytes == columns * sizeof(int32_t));
    while (gpu_next_span(gpu, routing->ranks, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint32_t ranks = span.end - span.first;
        GPU_LAUNCH(
            rewrite_kernel,
            gpu_grid(device, (uint64_t)ranks * channels * columns / WARP + 1, rewrite_kernel),
            GPU_THREADS, 0, device->stream, (const uint64_t *)gpu_base(routing->starts, &span),
            span.first, ranks, channels, columns, (int32_t *)gpu_base(send_head, &span));
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
