/* kernels/direct_ll_combine.cu - low-latency combine: every rank fetches its tokens' rows.
 *
 * Equal to ref_ll_combine(): from +0, columns ascending, fused multiply-add in fp32, one rounding
 * to BF16. A token's home loads the rows straight from the memory of the experts' ranks and adds
 * them as they come: nothing is staged, so each byte crosses once and rests nowhere. In exchange
 * a rank must say where its blocks start and that they are written (one tagged word an expert),
 * and is not done before all others have read from it.
 *
 * Bytes that must move, H 7168, top-8 of 64, two ranks: NVLink 4 * 14336 a token in each
 * direction, device memory 8 * 14336 in and 14336 out. 8 tokens: latencies, about 5 us; 128
 * tokens: 20 us of NVLink (370 GB/s); 1024 tokens: 159 us.
 *
 * Launch: one block a multiprocessor, a warp a piece of 256 channels of a token, all its rows'
 * loads in flight at once. Lanes find the rows, one a column. Shared memory: a word an expert. */
#include "kernels/device.cuh"
#include "kernels/direct_peers.cuh"

enum { WARPS = 32, THREADS = WARPS * WARP, ROWS_IN_FLIGHT = 8 };

struct combine_args {
    struct direct_common common;
    const uint4 *expert_out[GPU_DIRECT_RANKS_MAX]; /* Each rank's rows. */
    const int64_t *topk_idx;                       /* The rank's own tokens. */
    const float *topk_weights;
    const int32_t *slots; /* Handle. */
    const uint32_t *starts;
    uint4 *combined;
    struct direct_meeting meeting; /* The tagged words stand in for its beginning. */
    uint64_t ready_at;             /* In every space. */
    uint32_t experts, local_experts, topk, tokens;
    uint32_t row_vectors, pieces;
};

/* Tell every rank where its blocks among this rank's rows start. */
static __device__ void send_ready(const struct combine_args &args)
{
    const struct direct_common &common = args.common;
    const uint32_t first_expert = common.rank * args.local_experts;

    for (uint32_t i = threadIdx.x; i < args.experts; i += THREADS) { /* [local][rank] */
        const uint32_t local = i / common.ranks, to = i % common.ranks;
        const uint32_t start = args.starts[i];
        fence_everybody(); /* The rows themselves, written by earlier kernels. */
        store_tagged((uint64_t *)(common.peers.space[to] + args.ready_at) + first_expert + local,
                     common.number, start);
    }
}

/* Where each expert's rows for this rank start, wherever it lives. */
static __device__ void find_ready(const struct combine_args &args, uint32_t *starts)
{
    const struct direct_common &common = args.common;
    const uint64_t *ready = (const uint64_t *)(common.peers.space[common.rank] + args.ready_at);

    for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS)
        starts[e] = await_tagged(common.watch, ready + e, common.number, DIRECT_AWAIT_READY, e);
    __syncthreads();
}

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

/* One lane's column of a token, as it is in memory. */
struct column {
    int64_t idx; /* -1 beyond the last. */
    int32_t slot;
    float weight; /* Not used where there is no expert. */
};

static __device__ __forceinline__ void load_column(const struct combine_args &args, uint32_t item,
                                                   struct column *column)
{
    const uint32_t at = item / args.pieces * args.topk + lane_id();
    column->idx = -1;
    if (item >= args.tokens * args.pieces || lane_id() >= args.topk) return;
    column->idx = args.topk_idx[at];
    column->slot = args.slots[at];
    column->weight = args.topk_weights[at];
}

static __device__ __forceinline__ bool is_named(const struct combine_args &args,
                                                const struct column &column)
{
    return column.idx >= 0 && column.idx < (int64_t)args.experts;
}

static __device__ __forceinline__ const uint4 *
find_row(const struct combine_args &args, const uint32_t *starts, const struct column &column)
{
    if (!is_named(args, column)) return NULL;
    const uint32_t expert = (uint32_t)column.idx;
    return args.expert_out[expert / args.local_experts] +
           (uint64_t)(starts[expert] + (uint32_t)column.slot) * args.row_vectors;
}

static __device__ __forceinline__ const uint4 *shuffle_pointer(const uint4 *pointer, uint32_t lane)
{
    return (const uint4 *)(uintptr_t)__shfl_sync(FULL_WARP, (unsigned long long)(uintptr_t)pointer,
                                                 (int)lane);
}

static __device__ __forceinline__ void combine_piece(const struct combine_args &args,
                                                     const uint32_t *starts, uint32_t item,
                                                     const struct column &column)
{
    const uint32_t v = item % args.pieces * WARP + lane_id();
    const uint4 *own_row = find_row(args, starts, column);
    const bool inside = v < args.row_vectors;
    uint32_t left = __ballot_sync(FULL_WARP, is_named(args, column));
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};

    while (left != 0) {
        uint32_t next = left;
        uint4 held[ROWS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
            if (next == 0) break;
            const uint4 *row = shuffle_pointer(own_row, __ffs(next) - 1);
            if (inside) held[i] = direct_load(row + v);
            next &= next - 1;
        }
#pragma unroll
        for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
            if (left == 0) break;
            const float weight = __shfl_sync(FULL_WARP, column.weight, __ffs(left) - 1);
            if (inside) add_weighted(acc, held[i], weight);
            left &= left - 1;
        }
    }
    if (inside)
        store_once(args.combined + (uint64_t)(item / args.pieces) * args.row_vectors + v,
                   make_uint4(bf16_pair(acc[0], acc[1]), bf16_pair(acc[2], acc[3]),
                              bf16_pair(acc[4], acc[5]), bf16_pair(acc[6], acc[7])));
}

template <int PHASE>
static __global__ void __launch_bounds__(THREADS, 1)
    ll_combine_kernel(const __grid_constant__ struct combine_args args)
{
    extern __shared__ uint32_t starts[];
    const uint32_t items = args.tokens * args.pieces, step = gridDim.x * WARPS;
    uint32_t item = threadIdx.x / WARP * gridDim.x + blockIdx.x;
    struct column column;

    stamp_start(args.common.stamps);
    if (PHASE & GPU_DIRECT_RECEIVE) load_column(args, item, &column);
    if ((PHASE & GPU_DIRECT_SEND) && blockIdx.x == 0) send_ready(args);
    if (PHASE & GPU_DIRECT_RECEIVE) {
        find_ready(args, starts);
        for (; item < items; item += step) {
            const struct column now = column;
            load_column(args, item + step, &column); /* Under way while this one is added. */
            combine_piece(args, starts, item, now);
        }
        direct_finish<false>(args.common, args.meeting);
    }
    stamp_end(args.common.stamps);
}

static const void *kernel_of(enum gpu_direct_phase phase)
{
    static const void *const kernels[3] = {(const void *)ll_combine_kernel<GPU_DIRECT_SEND>,
                                           (const void *)ll_combine_kernel<GPU_DIRECT_RECEIVE>,
                                           (const void *)ll_combine_kernel<GPU_DIRECT_BOTH>};
    return kernels[phase - 1];
}

static int launch_ranks(struct gpu_direct *direct, enum gpu_direct_phase phase,
                        const struct gpu_routing *routing, const struct gpu_buffer *expert_out,
                        struct gpu_buffer *combined, char *err, size_t err_len)
{
    const struct gpu *gpu = direct->gpu;
    const uint32_t shared_bytes = routing->experts * (uint32_t)sizeof(uint32_t);
    struct combine_args args;

    if (direct_prepare(direct, kernel_of(phase), shared_bytes, err, err_len) != 0) return -1;
    args.ready_at = direct->layout.ll_ready;
    args.meeting = direct_meeting_of(direct, DIRECT_LL_COMBINE);
    args.experts = routing->experts;
    args.local_experts = routing->experts / routing->ranks;
    args.topk = routing->topk;
    args.row_vectors = direct->shape.hidden / 8;
    args.pieces = (args.row_vectors + WARP - 1) / WARP;
    for (uint32_t r = 0; r < routing->ranks; r++)
        args.expert_out[r] = (const uint4 *)direct_rows_of(gpu, expert_out, r);
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t first = routing->token_start[r] * routing->topk;
        const uint8_t *space = direct->peers.space[r];
        args.common = direct_common_of(direct, r, DIRECT_LL_COMBINE);
        args.tokens = (uint32_t)(routing->token_start[r + 1] - routing->token_start[r]);
        args.topk_idx = (const int64_t *)direct_rows_of(gpu, routing->topk_idx, r) + first;
        args.topk_weights = (const float *)direct_rows_of(gpu, routing->topk_weights, r) + first;
        args.slots = (const int32_t *)(space + direct->layout.ll_slots);
        args.starts = (const uint32_t *)(space + direct->layout.ll_starts);
        args.combined = (uint4 *)direct_rows_of(gpu, combined, r);
        const uint32_t blocks = direct_blocks(direct, r, phase == GPU_DIRECT_SEND ? 1 : UINT32_MAX);
        if (direct_launch(direct, r, kernel_of(phase), blocks, THREADS, shared_bytes, &args, err,
                          err_len) != 0)
            return -1;
    }
    return direct->alone ? 0 : gpu_fence(direct->gpu, err, err_len);
}

extern "C" int gpu_direct_ll_combine(struct gpu_direct *direct, enum gpu_direct_phase phase,
                                     const struct gpu_routing *routing,
                                     const struct gpu_buffer *expert_out,
                                     struct gpu_buffer *combined, char *err, size_t err_len)
{
    const bool split = phase == GPU_DIRECT_BOTH && !direct->alone;
    const enum gpu_direct_phase last = split ? GPU_DIRECT_RECEIVE : phase;

    assert(direct->shape.ll && routing->ranks == direct->shape.ranks);
    assert(routing->experts == direct->shape.experts && routing->topk == direct->shape.topk);
    assert(routing->topk_weights != NULL);
    if (phase & GPU_DIRECT_SEND) direct->number[DIRECT_LL_COMBINE]++;
    if (phase & GPU_DIRECT_RECEIVE)
        direct->arrived[DIRECT_LL_COMBINE] += direct_blocks(direct, 0, UINT32_MAX);
    if (split &&
        launch_ranks(direct, GPU_DIRECT_SEND, routing, expert_out, combined, err, err_len) != 0)
        return -1;
    return launch_ranks(direct, last, routing, expert_out, combined, err, err_len);
}
