/* kernels/layout.cu - who gets how many tokens, and where every block of received rows begins.
 *
 * Twins of ref_layout(), ref_ll_blocks() and ref_normal_blocks(). Prefix counts give every row its
 * place, so nothing depends on the order in which threads run.
 *
 * Bytes that must move: the ids, 8 a choice, and the tables: microseconds, so these kernels are
 * simple. Launch: a block a rank; a warp a destination. */
#include "kernels/gpu_private.cuh"
#include "kernels/routing.cuh"

struct choices {
    const uint64_t *starts;
    const int64_t *topk_idx;
    uint32_t first_rank; /* Of the launch: block b does rank first_rank + b. */
    uint32_t ranks, experts, topk;
};

static struct choices choices_of(const struct gpu_routing *routing, const struct gpu_span *span)
{
    struct choices choices;
    choices.starts = (const uint64_t *)gpu_base(routing->starts, span);
    choices.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, span);
    choices.first_rank = span->first;
    choices.ranks = routing->ranks;
    choices.experts = routing->experts;
    choices.topk = routing->topk;
    return choices;
}

/* out[expert * stride] for one rank's choices, counted in shared memory. */
template <typename Count>
static __device__ void count_experts(const struct choices &choices, uint32_t rank, uint32_t *counts,
                                     Count *out, uint32_t stride)
{
    const uint64_t begin = choices.starts[rank] * choices.topk;
    const uint64_t end = choices.starts[rank + 1] * choices.topk;

    for (uint32_t e = threadIdx.x; e < choices.experts; e += blockDim.x) counts[e] = 0;
    __syncthreads();
    for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const int64_t idx = choices.topk_idx[i];
        if (idx >= 0 && idx < (int64_t)choices.experts) atomicAdd(&counts[idx], 1u);
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < choices.experts; e += blockDim.x)
        out[(uint64_t)e * stride] = (Count)counts[e];
}

/* Tokens of one rank for each of `columns` equal runs of experts: out[column * stride]. */
template <typename Count>
static __device__ void count_runs(const struct choices &choices, uint32_t rank, uint32_t columns,
                                  Count *out, uint32_t stride)
{
    const int64_t each = choices.experts / columns;
    for (uint32_t c = threadIdx.x / WARP; c < columns; c += blockDim.x / WARP) {
        const int32_t count = warp_count(choices.topk_idx, choices.topk, choices.starts[rank],
                                         choices.starts[rank + 1], c * each, each);
        if (lane_id() == 0) out[(uint64_t)c * stride] = (Count)count;
    }
}

static __global__ void block_counts_kernel(struct choices choices, bool by_expert,
                                           uint64_t *block_start)
{
    extern __shared__ uint32_t counts[];
    if (by_expert)
        count_experts(choices, blockIdx.x, counts, block_start + blockIdx.x, choices.ranks);
    else
        count_runs(choices, blockIdx.x, choices.ranks, block_start + blockIdx.x, choices.ranks);
}

enum { SCAN_THREADS = 512 };

/* One block: counts become sums of all before; the sum of all stands at [count]. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(uint64_t *values, uint64_t count)
{
    __shared__ uint64_t sums[SCAN_THREADS];
    const uint64_t per = (count + SCAN_THREADS - 1) / SCAN_THREADS;
    const uint64_t begin = per * threadIdx.x;
    uint64_t sum = 0;

    for (uint64_t i = begin; i < begin + per && i < count; i++) sum += values[i];
    sums[threadIdx.x] = sum;
    for (uint32_t apart = 1; apart < SCAN_THREADS; apart *= 2) {
        __syncthreads();
        const uint64_t before = threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    uint64_t running = sums[threadIdx.x] - sum; /* Of the threads before: sums are inclusive. */
    for (uint64_t i = begin; i < begin + per && i < count; i++) {
        const uint64_t value = values[i];
        values[i] = running;
        running += value;
    }
    if (threadIdx.x == SCAN_THREADS - 1) values[count] = sums[threadIdx.x];
}

static int blocks(struct gpu *gpu, const struct gpu_routing *routing, bool by_expert,
                  struct gpu_buffer *block_start, char *err, size_t err_len)
{
    const uint64_t count =
        (uint64_t)routing->ranks * (by_expert ? routing->experts : routing->ranks);

    assert(block_start->rank_start == NULL && block_start->row_bytes == sizeof(uint64_t));
    assert(block_start->rows >= count + 1);
    for (uint32_t d = 0; d < gpu->devices; d++) {
        const struct gpu_span span = {0, routing->ranks, d};
        const struct gpu_device *device = &gpu->device[d];
        uint64_t *out = (uint64_t *)gpu_base(block_start, &span);
        GPU_TRY(cudaSetDevice(device->ordinal));
        GPU_LAUNCH(block_counts_kernel, routing->ranks, GPU_THREADS,
                   routing->experts * sizeof(uint32_t), device->stream, choices_of(routing, &span),
                   by_expert, out);
        GPU_TRY(cudaGetLastError());
        GPU_LAUNCH(scan_kernel, 1, SCAN_THREADS, 0, device->stream, out, count);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}

extern "C" int gpu_ll_blocks(struct gpu *gpu, const struct gpu_routing *routing,
                             struct gpu_buffer *block_start, char *err, size_t err_len)
{
    return blocks(gpu, routing, true, block_start, err, err_len);
}

extern "C" int gpu_normal_blocks(struct gpu *gpu, const struct gpu_routing *routing,
                                 struct gpu_buffer *block_start, char *err, size_t err_len)
{
    return blocks(gpu, routing, false, block_start, err, err_len);
}

struct layout_tables { /* Of rank 0 and token 0, as gpu_base; NULL: left out. */
    int32_t *per_rank, *per_node, *per_expert;
    uint8_t *in_rank;
    uint32_t nodes;
};

static __global__ void layout_kernel(struct choices choices, struct layout_tables out)
{
    extern __shared__ uint32_t counts[];
    const uint32_t me = choices.first_rank + blockIdx.x, ranks = choices.ranks;
    const int64_t each = choices.experts / ranks;

    if (out.per_rank != NULL)
        count_runs(choices, me, ranks, out.per_rank + (uint64_t)me * ranks, 1);
    if (out.per_node != NULL)
        count_runs(choices, me, out.nodes, out.per_node + (uint64_t)me * out.nodes, 1);
    if (out.per_expert != NULL)
        count_experts(choices, me, counts, out.per_expert + (uint64_t)me * choices.experts, 1);
    if (out.in_rank == NULL) return;
    const uint64_t first = choices.starts[me] * ranks, end = choices.starts[me + 1] * ranks;
    for (uint64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        out.in_rank[i] = goes_to(choices.topk_idx + i / ranks * choices.topk, choices.topk,
                                 (int64_t)(i % ranks) * each, each);
}

extern "C" int gpu_layout(struct gpu *gpu, const struct gpu_routing *routing,
                          uint32_t ranks_per_node, uint32_t rank, uint32_t rank_count,
                          const struct gpu_layout_out *out, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        struct layout_tables tables;
        tables.per_rank = (int32_t *)gpu_base(out->num_tokens_per_rank, &span);
        tables.per_node = (int32_t *)gpu_base(out->num_tokens_per_rdma_rank, &span);
        tables.per_expert = (int32_t *)gpu_base(out->num_tokens_per_expert, &span);
        tables.in_rank = gpu_base(out->is_token_in_rank, &span);
        tables.nodes = routing->ranks <= ranks_per_node ? 1 : routing->ranks / ranks_per_node;
        GPU_LAUNCH(layout_kernel, span.end - span.first, GPU_THREADS,
                   routing->experts * sizeof(uint32_t), gpu->device[span.device].stream,
                   choices_of(routing, &span), tables);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
