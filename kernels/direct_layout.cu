/* kernels/direct_layout.cu - normal mode's counts, exchanged, and every token's place.
 *
 * A token has one row at every rank that owns one of its experts; rows stand by (source rank,
 * token), as in ref_normal_blocks(). The handle is, for every token and rank, the row there: with
 * it a dispatch knows where to store and a combine where to fetch.
 *
 * Launch: one block a multiprocessor. Each counts the tokens before its own by rank; the last one
 * then has all counts and sends them to everybody. Shared memory: a few words a rank. */
#include "kernels/device.cuh"
#include "kernels/direct_private.cuh"

enum { THREADS = 512 };

struct layout_args {
    struct direct_common common;
    const int64_t *topk_idx; /* The rank's own tokens. */
    int32_t *rows;           /* Handle: [tokens][ranks]. */
    int32_t *counts;         /* [ranks]: own rows by source; or NULL. */
    uint64_t counts_at;      /* In every space: [destination][source]. */
    uint32_t experts, local_experts, topk, tokens;
};

/* Ranks that own an expert of the token. */
static __device__ __forceinline__ uint64_t token_mask(const struct layout_args &args,
                                                      uint32_t token)
{
    uint64_t mask = 0;
    for (uint32_t k = 0; k < args.topk; k++) {
        const int64_t idx = args.topk_idx[(uint64_t)token * args.topk + k];
        if (idx >= 0 && idx < (int64_t)args.experts)
            mask |= UINT64_C(1) << (uint32_t)idx / args.local_experts;
    }
    return mask;
}

static __device__ void count_tokens(const struct layout_args &args, uint32_t begin, uint32_t end,
                                    uint32_t *counts)
{
    for (uint32_t base = begin; base < end; base += THREADS) {
        const uint32_t token = base + threadIdx.x;
        const uint64_t mask = token < end ? token_mask(args, token) : 0;
        for (uint32_t r = 0; r < args.common.ranks; r++) {
            const uint32_t count = __popc(__ballot_sync(FULL_WARP, mask >> r & 1));
            if (lane_id() == 0 && count > 0) atomicAdd(&counts[r], count);
        }
    }
}

/* One warp gives the block's tokens their places, in order; before counts them as well. */
static __device__ void place_tokens(const struct layout_args &args, uint32_t begin, uint32_t end,
                                    uint32_t *before, const uint32_t *starts)
{
    for (uint32_t base = begin; base < end; base += WARP) {
        const uint32_t token = base + lane_id();
        const uint64_t mask = token < end ? token_mask(args, token) : 0;
        for (uint32_t r = 0; r < args.common.ranks; r++) {
            const uint32_t taking = __ballot_sync(FULL_WARP, mask >> r & 1);
            const uint32_t place = before[r] + __popc(taking & ((1u << lane_id()) - 1));
            __syncwarp();
            if (lane_id() == 0) before[r] += __popc(taking);
            __syncwarp();
            if (token < end)
                args.rows[(uint64_t)token * args.common.ranks + r] =
                    mask >> r & 1 ? (int32_t)(starts[r] + place) : -1;
        }
    }
}

static __device__ void send_counts(const struct layout_args &args, const uint32_t *before,
                                   const uint32_t *own)
{
    const struct direct_common &common = args.common;
    for (uint32_t i = lane_id(); i < common.ranks * common.ranks; i += WARP) {
        const uint32_t to = i / common.ranks, r = i % common.ranks;
        store_tagged((uint64_t *)(common.peers.space[to] + args.counts_at) + r * common.ranks +
                         common.rank,
                     common.number, before[r] + own[r]);
    }
}

/* Where this rank's block starts at every rank: the rows of the ranks below it. */
static __device__ void find_starts(const struct layout_args &args, uint32_t *starts)
{
    const struct direct_common &common = args.common;
    const uint64_t *counts = (const uint64_t *)(common.peers.space[common.rank] + args.counts_at);

    for (uint32_t i = threadIdx.x; i < common.ranks * common.ranks; i += THREADS) {
        const uint32_t to = i / common.ranks, source = i % common.ranks;
        const uint32_t count =
            await_tagged(common.watch, counts + i, common.number, DIRECT_AWAIT_COUNTS, i);
        if (source < common.rank) atomicAdd(&starts[to], count);
        if (blockIdx.x == 0 && to == common.rank && args.counts != NULL)
            args.counts[source] = (int32_t)count;
    }
}

template <int PHASE>
static __global__ void __launch_bounds__(THREADS, 1)
    layout_kernel(const __grid_constant__ struct layout_args args)
{
    __shared__ uint32_t before[GPU_DIRECT_RANKS_MAX], own[GPU_DIRECT_RANKS_MAX];
    __shared__ uint32_t starts[GPU_DIRECT_RANKS_MAX];
    const uint32_t begin = (uint32_t)((uint64_t)args.tokens * blockIdx.x / gridDim.x);
    const uint32_t end = (uint32_t)((uint64_t)args.tokens * (blockIdx.x + 1) / gridDim.x);
    const bool sends = (PHASE & GPU_DIRECT_SEND) && blockIdx.x == gridDim.x - 1;

    stamp_start(args.common.stamps);
    if (threadIdx.x < GPU_DIRECT_RANKS_MAX)
        before[threadIdx.x] = own[threadIdx.x] = starts[threadIdx.x] = 0;
    __syncthreads();
    count_tokens(args, 0, begin, before);
    if (sends) count_tokens(args, begin, end, own);
    __syncthreads();
    if (sends && threadIdx.x < WARP) send_counts(args, before, own);
    if (PHASE & GPU_DIRECT_RECEIVE) {
        find_starts(args, starts);
        __syncthreads();
        if (threadIdx.x < WARP) place_tokens(args, begin, end, before, starts);
    }
    stamp_end(args.common.stamps);
}

static const void *kernel_of(enum gpu_direct_phase phase)
{
    static const void *const kernels[3] = {(const void *)layout_kernel<GPU_DIRECT_SEND>,
                                           (const void *)layout_kernel<GPU_DIRECT_RECEIVE>,
                                           (const void *)layout_kernel<GPU_DIRECT_BOTH>};
    return kernels[phase - 1];
}

static int launch_ranks(struct gpu_direct *direct, enum gpu_direct_phase phase,
                        const struct gpu_routing *routing, struct gpu_buffer *counts, char *err,
                        size_t err_len)
{
    const struct gpu *gpu = direct->gpu;
    struct layout_args args;

    if (direct_prepare(direct, kernel_of(phase), 0, err, err_len) != 0) return -1;
    args.counts_at = direct->layout.layout_counts[direct->number[DIRECT_LAYOUT] % 2];
    args.experts = routing->experts;
    args.local_experts = routing->experts / routing->ranks;
    args.topk = routing->topk;
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t first = routing->token_start[r] * routing->topk;
        args.common = direct_common_of(direct, r, DIRECT_LAYOUT);
        args.tokens = (uint32_t)(routing->token_start[r + 1] - routing->token_start[r]);
        assert(args.tokens <= direct->shape.tokens_max);
        args.topk_idx = (const int64_t *)direct_rows_of(gpu, routing->topk_idx, r) + first;
        args.rows = (int32_t *)(direct->peers.space[r] + direct->layout.normal_rows);
        args.counts = (int32_t *)direct_rows_of(gpu, counts, r);
        if (direct_launch(direct, r, kernel_of(phase), direct_blocks(direct, r, UINT32_MAX),
                          THREADS, 0, &args, err, err_len) != 0)
            return -1;
    }
    return direct->alone ? 0 : gpu_fence(direct->gpu, err, err_len);
}

extern "C" int gpu_direct_normal_layout(struct gpu_direct *direct,
                                        const struct gpu_routing *routing,
                                        struct gpu_buffer *counts, char *err, size_t err_len)
{
    assert(routing->ranks == direct->shape.ranks && routing->topk <= GPU_TOPK_MAX);
    direct->number[DIRECT_LAYOUT]++;
    if (direct->alone) return launch_ranks(direct, GPU_DIRECT_BOTH, routing, counts, err, err_len);
    if (launch_ranks(direct, GPU_DIRECT_SEND, routing, counts, err, err_len) != 0) return -1;
    return launch_ranks(direct, GPU_DIRECT_RECEIVE, routing, counts, err, err_len);
}
