/* kernels/direct_normal_dispatch.cu - normal-mode dispatch inside one node, by stores into the
 * receivers' rows.
 *
 * Equal to ref_normal_dispatch() on one node. The layout has told every token's row at every rank,
 * so a token is read once and stored where it ends up: no ring, no second copy, no flow control.
 * In exchange a rank must say when its rows may be overwritten, and waits until all are written.
 *
 * Bytes that must move, H 7168, two ranks: NVLink 14336 a token in each direction (FP8: 7392);
 * device memory one row in, one out. 1024 tokens at 357 GB/s (20 multiprocessors): 41 us, FP8 21;
 * 4096 tokens: 164 and 85.
 *
 * Launch: one block a multiprocessor, sm_count of them; a warp a piece of 224 vectors of a token,
 * seven loads in flight a lane, stored to one rank after the other beginning with the next. */
#include "kernels/device.cuh"
#include "kernels/direct_peers.cuh"

enum { WARPS = 32, THREADS = WARPS * WARP, FLIGHT = 7, PIECE_VECTORS = FLIGHT * WARP };

/* One rank's rows. */
struct rows {
    uint4 *payload;
    uint32_t *scales;
    int64_t *topk_idx;
    float *topk_weights;
    int32_t *src_token;
};

struct dispatch_args {
    struct direct_common common;
    struct rows to[GPU_DIRECT_RANKS_MAX];
    const uint4 *payload; /* The rank's own tokens. */
    const uint32_t *scales;
    const int64_t *topk_idx;
    const float *topk_weights;
    const int32_t *rows; /* Handle. */
    struct direct_meeting meeting;
    uint32_t local_experts, topk, tokens;
    uint32_t payload_vectors, scale_words;
    uint32_t pieces;
};

/* Everything that goes with a token but its payload. */
static __device__ void store_rest(const struct dispatch_args &args, const struct rows &to,
                                  uint32_t rank, uint32_t token, uint64_t row)
{
    const uint32_t first_expert = rank * args.local_experts;
    const uint64_t column = (uint64_t)token * args.topk + lane_id();

    if (args.scale_words > 0)
        warp_copy_words(to.scales + row * args.scale_words,
                        args.scales + (uint64_t)token * args.scale_words, args.scale_words);
    if (to.src_token != NULL && lane_id() == 0) to.src_token[row] = (int32_t)token;
    if (lane_id() >= args.topk || (to.topk_idx == NULL && to.topk_weights == NULL)) return;
    const int64_t local = args.topk_idx[column] - first_expert;
    const bool owned = local >= 0 && local < (int64_t)args.local_experts;
    if (to.topk_idx != NULL) to.topk_idx[row * args.topk + lane_id()] = owned ? local : -1;
    if (to.topk_weights != NULL)
        to.topk_weights[row * args.topk + lane_id()] = owned ? args.topk_weights[column] : 0.0f;
}

/* One piece of a token: loaded once, stored to each rank that wants it. */
struct piece {
    uint4 held[FLIGHT];
    int32_t row;       /* At rank lane_id(), or -1. */
    int32_t row_above; /* At rank WARP + lane_id(). */
};

static __device__ __forceinline__ void load_piece(const struct dispatch_args &args, uint32_t item,
                                                  struct piece *piece)
{
    const uint32_t token = item / args.pieces;
    const uint32_t first = item % args.pieces * PIECE_VECTORS + lane_id();
    const uint4 *from = args.payload + (uint64_t)token * args.payload_vectors;
    const int32_t *rows = args.rows + (uint64_t)token * args.common.ranks + lane_id();

    piece->row = lane_id() < args.common.ranks ? rows[0] : -1;
    piece->row_above = WARP + lane_id() < args.common.ranks ? rows[WARP] : -1;
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
        if (first + i * WARP < args.payload_vectors)
            piece->held[i] = load_once(from + first + i * WARP);
}

static __device__ __forceinline__ void store_piece(const struct dispatch_args &args, uint32_t item,
                                                   const struct piece &piece)
{
    const uint32_t token = item / args.pieces;
    const uint32_t first = item % args.pieces * PIECE_VECTORS + lane_id();

    for (uint32_t i = 1; i <= args.common.ranks; i++) {
        uint32_t rank = args.common.rank + i;
        if (rank >= args.common.ranks) rank -= args.common.ranks;
        const int32_t row = rank < WARP ? __shfl_sync(FULL_WARP, piece.row, rank)
                                        : __shfl_sync(FULL_WARP, piece.row_above, rank - WARP);
        if (row < 0) continue;
        const struct rows &to = args.to[rank];
        uint4 *vectors = to.payload + (uint64_t)row * args.payload_vectors;
#pragma unroll
        for (int v = 0; v < FLIGHT; v++)
            if (first + v * WARP < args.payload_vectors) vectors[first + v * WARP] = piece.held[v];
        if (item % args.pieces == 0) store_rest(args, to, rank, token, (uint64_t)row);
    }
}

static __global__ void __launch_bounds__(THREADS, 1)
    normal_dispatch_kernel(const __grid_constant__ struct dispatch_args args)
{
    const uint32_t items = args.tokens * args.pieces, step = gridDim.x * WARPS;
    uint32_t item = threadIdx.x / WARP * gridDim.x + blockIdx.x;
    struct piece piece;

    stamp_start(args.common.stamps);
    if (item < items) load_piece(args, item, &piece);
    direct_begin(args.common, args.meeting);
    while (item < items) {
        store_piece(args, item, piece);
        item += step;
        if (item < items) load_piece(args, item, &piece);
    }
    direct_finish<true>(args.common, args.meeting);
    stamp_end(args.common.stamps);
}

static int launch_ranks(struct gpu_direct *direct, const struct gpu_routing *routing,
                        const struct gpu_buffer *payload, const struct gpu_buffer *scales,
                        const struct gpu_normal_rows *rows, char *err, size_t err_len)
{
    const struct gpu *gpu = direct->gpu;
    const void *kernel = (const void *)normal_dispatch_kernel;
    struct dispatch_args args;

    if (direct_prepare(direct, kernel, 0, err, err_len) != 0) return -1;
    args.meeting = direct_meeting_of(direct, DIRECT_NORMAL_DISPATCH);
    args.local_experts = routing->experts / routing->ranks;
    args.topk = routing->topk;
    args.payload_vectors = (uint32_t)(payload->row_bytes / sizeof(uint4));
    args.scale_words = scales == NULL ? 0 : (uint32_t)(scales->row_bytes / sizeof(uint32_t));
    args.pieces = (args.payload_vectors + PIECE_VECTORS - 1) / PIECE_VECTORS;
    for (uint32_t r = 0; r < routing->ranks; r++) {
        args.to[r].payload = (uint4 *)direct_rows_of(gpu, rows->payload, r);
        args.to[r].scales = (uint32_t *)direct_rows_of(gpu, rows->scales, r);
        args.to[r].topk_idx = (int64_t *)direct_rows_of(gpu, rows->topk_idx, r);
        args.to[r].topk_weights = (float *)direct_rows_of(gpu, rows->topk_weights, r);
        args.to[r].src_token = (int32_t *)direct_rows_of(gpu, rows->src_token, r);
    }
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t first = routing->token_start[r] * routing->topk;
        args.common = direct_common_of(direct, r, DIRECT_NORMAL_DISPATCH);
        args.tokens = (uint32_t)(routing->token_start[r + 1] - routing->token_start[r]);
        args.payload = (const uint4 *)direct_rows_of(gpu, payload, r);
        args.scales = (const uint32_t *)direct_rows_of(gpu, scales, r);
        args.topk_idx = (const int64_t *)direct_rows_of(gpu, routing->topk_idx, r) + first;
        args.topk_weights =
            routing->topk_weights == NULL
                ? NULL
                : (const float *)direct_rows_of(gpu, routing->topk_weights, r) + first;
        args.rows = (const int32_t *)(direct->peers.space[r] + direct->layout.normal_rows);
        if (direct_launch(direct, r, kernel, direct_blocks(direct, r, UINT32_MAX), THREADS, 0,
                          &args, err, err_len) != 0)
            return -1;
    }
    return direct->alone ? 0 : gpu_fence(direct->gpu, err, err_len);
}

extern "C" int
gpu_direct_normal_dispatch(struct gpu_direct *direct, const struct gpu_routing *routing,
                           const struct gpu_buffer *payload, const struct gpu_buffer *scales,
                           const struct gpu_normal_rows *rows, char *err, size_t err_len)
{
    assert(routing->ranks == direct->shape.ranks && direct->number[DIRECT_LAYOUT] > 0);
    assert(payload->row_bytes % sizeof(uint4) == 0);
    assert(rows->topk_weights == NULL || routing->topk_weights != NULL);
    if (!direct->alone && gpu_fence(direct->gpu, err, err_len) != 0) return -1;
    direct->number[DIRECT_NORMAL_DISPATCH]++;
    direct->arrived[DIRECT_NORMAL_DISPATCH] += direct_blocks(direct, 0, UINT32_MAX);
    return launch_ranks(direct, routing, payload, scales, rows, err, err_len);
}
