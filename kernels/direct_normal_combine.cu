/* kernels/direct_normal_combine.cu - normal-mode combine inside one node: every rank fetches its
 * tokens' rows and adds them.
 *
 * Equal to ref_normal_combine() on one node: bias0 + bias1, then the ranks ascending, in fp32, one
 * rounding to BF16; weights summed in fp32. Rows are loaded from the ranks that hold them, as in
 * kernels/direct_ll_combine.cu, whose two promises are the same.
 *
 * Bytes that must move, H 7168, two ranks: NVLink 14336 a token in each direction, device memory
 * 2 * 14336 in and 14336 out. 1024 tokens at 370 GB/s (20 multiprocessors): 40 us; 4096: 159.
 *
 * Launch: one block a multiprocessor, sm_count of them; a warp a piece of 1024 channels of a
 * token, two ranks' loads in flight, four vectors of each a lane. */
#include "kernels/device.cuh"
#include "kernels/direct_peers.cuh"

enum { WARPS = 20, THREADS = WARPS * WARP, VECTORS = 4, PIECE_VECTORS = VECTORS * WARP };

struct combine_args {
    struct direct_common common;
    const uint4 *expert_out[GPU_DIRECT_RANKS_MAX]; /* Each rank's rows. */
    const float *weights[GPU_DIRECT_RANKS_MAX];    /* Each rank's, [rows][topk]; or NULL. */
    const uint4 *bias[2];                          /* The rank's own tokens; or NULL. */
    const int32_t *rows;                           /* Handle. */
    uint4 *combined;
    float *combined_weights;
    struct direct_meeting meeting;
    uint32_t topk, tokens, row_vectors, pieces;
};

static __device__ __forceinline__ void
load_vectors(const struct combine_args &args, const uint4 *row, uint32_t first, uint4 held[VECTORS])
{
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
        if (first + i * WARP < args.row_vectors) held[i] = direct_load(row + first + i * WARP);
}

static __device__ __forceinline__ void add_vectors(float acc[VECTORS][8], const uint4 held[VECTORS])
{
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const uint32_t pairs[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            acc[i][2 * j] = __fadd_rn(acc[i][2 * j], bf16_low(pairs[j]));
            acc[i][2 * j + 1] = __fadd_rn(acc[i][2 * j + 1], bf16_high(pairs[j]));
        }
    }
}

/* The row of `rank` among what lanes found: lane l has rank l's and rank WARP + l's, -1 if none. */
struct found {
    int32_t row, row_above;
    uint64_t ranks;
};

static __device__ __forceinline__ struct found find_rows(const struct combine_args &args,
                                                         uint32_t token)
{
    const int32_t *rows = args.rows + (uint64_t)token * args.common.ranks + lane_id();
    struct found found;
    found.row = lane_id() < args.common.ranks ? rows[0] : -1;
    found.row_above = WARP + lane_id() < args.common.ranks ? rows[WARP] : -1;
    found.ranks = __ballot_sync(FULL_WARP, found.row >= 0) |
                  (uint64_t)__ballot_sync(FULL_WARP, found.row_above >= 0) << WARP;
    return found;
}

/* Takes the lowest rank off. */
static __device__ __forceinline__ uint64_t next_row(struct found *found, uint32_t *rank)
{
    *rank = __ffsll((long long)found->ranks) - 1;
    found->ranks &= found->ranks - 1;
    const int32_t mine = *rank < WARP ? found->row : found->row_above;
    return (uint64_t)__shfl_sync(FULL_WARP, mine, *rank % WARP);
}

static __device__ __forceinline__ void combine_piece(const struct combine_args &args,
                                                     uint32_t token, uint32_t first)
{
    struct found found = find_rows(args, token);
    float acc[VECTORS][8];
    uint4 held[2][VECTORS];
    /* bias0 + bias1, where one that is missing is +0: only of two can a -0 remain. */
    const float start = args.bias[0] != NULL && args.bias[1] != NULL ? -0.0f : 0.0f;

#pragma unroll
    for (int i = 0; i < VECTORS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] = start;
    for (int b = 0; b < 2; b++) {
        if (args.bias[b] == NULL) continue;
        load_vectors(args, args.bias[b] + (uint64_t)token * args.row_vectors, first, held[0]);
        add_vectors(acc, held[0]);
    }
    while (found.ranks != 0) {
        uint32_t rank;
        const uint64_t row = next_row(&found, &rank);
        load_vectors(args, args.expert_out[rank] + row * args.row_vectors, first, held[0]);
        const bool two = found.ranks != 0;
        if (two) {
            const uint64_t second = next_row(&found, &rank);
            load_vectors(args, args.expert_out[rank] + second * args.row_vectors, first, held[1]);
        }
        add_vectors(acc, held[0]);
        if (two) add_vectors(acc, held[1]);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
        if (first + i * WARP < args.row_vectors)
            store_once(args.combined + (uint64_t)token * args.row_vectors + first + i * WARP,
                       make_uint4(bf16_pair(acc[i][0], acc[i][1]), bf16_pair(acc[i][2], acc[i][3]),
                                  bf16_pair(acc[i][4], acc[i][5]),
                                  bf16_pair(acc[i][6], acc[i][7])));
}

static __device__ void combine_weights(const struct combine_args &args, uint32_t token)
{
    struct found found = find_rows(args, token);
    float sum = 0.0f;
    while (found.ranks != 0) {
        uint32_t rank;
        const uint64_t row = next_row(&found, &rank);
        if (lane_id() < args.topk)
            sum = add_keeping_nan(sum, args.weights[rank][row * args.topk + lane_id()]);
    }
    if (lane_id() < args.topk) args.combined_weights[(uint64_t)token * args.topk + lane_id()] = sum;
}

static __global__ void __launch_bounds__(THREADS, 1)
    normal_combine_kernel(const __grid_constant__ struct combine_args args)
{
    const uint32_t items = args.tokens * args.pieces;

    stamp_start(args.common.stamps);
    direct_begin(args.common, args.meeting);
    for (uint32_t item = threadIdx.x / WARP * gridDim.x + blockIdx.x; item < items;
         item += gridDim.x * WARPS) {
        const uint32_t token = item / args.pieces, piece = item % args.pieces;
        combine_piece(args, token, piece * PIECE_VECTORS + lane_id());
        if (piece == 0 && args.combined_weights != NULL) combine_weights(args, token);
    }
    direct_finish<false>(args.common, args.meeting);
    stamp_end(args.common.stamps);
}

static int launch_ranks(struct gpu_direct *direct, const struct gpu_routing *routing,
                        const struct gpu_buffer *expert_out, const struct gpu_buffer *weights,
                        const struct gpu_buffer *const bias[2], struct gpu_buffer *combined,
                        struct gpu_buffer *combined_weights, char *err, size_t err_len)
{
    const struct gpu *gpu = direct->gpu;
    const void *kernel = (const void *)normal_combine_kernel;
    struct combine_args args;

    if (direct_prepare(direct, kernel, 0, err, err_len) != 0) return -1;
    args.meeting = direct_meeting_of(direct, DIRECT_NORMAL_COMBINE);
    args.topk = routing->topk;
    args.row_vectors = (uint32_t)(combined->row_bytes / sizeof(uint4));
    args.pieces = (args.row_vectors + PIECE_VECTORS - 1) / PIECE_VECTORS;
    for (uint32_t r = 0; r < routing->ranks; r++) {
        args.expert_out[r] = (const uint4 *)direct_rows_of(gpu, expert_out, r);
        args.weights[r] = (const float *)direct_rows_of(gpu, weights, r);
    }
    for (uint32_t r = 0; r < routing->ranks; r++) {
        args.common = direct_common_of(direct, r, DIRECT_NORMAL_COMBINE);
        args.tokens = (uint32_t)(routing->token_start[r + 1] - routing->token_start[r]);
        for (int b = 0; b < 2; b++) args.bias[b] = (const uint4 *)direct_rows_of(gpu, bias[b], r);
        args.rows = (const int32_t *)(direct->peers.space[r] + direct->layout.normal_rows);
        args.combined = (uint4 *)direct_rows_of(gpu, combined, r);
        args.combined_weights =
            weights == NULL ? NULL : (float *)direct_rows_of(gpu, combined_weights, r);
        if (direct_launch(direct, r, kernel, direct_blocks(direct, r, UINT32_MAX), THREADS, 0,
                          &args, err, err_len) != 0)
            return -1;
    }
    return direct->alone ? 0 : gpu_fence(direct->gpu, err, err_len);
}

extern "C" int
gpu_direct_normal_combine(struct gpu_direct *direct, const struct gpu_routing *routing,
                          const struct gpu_buffer *expert_out, const struct gpu_buffer *weights,
                          const struct gpu_buffer *bias0, const struct gpu_buffer *bias1,
                          struct gpu_buffer *combined, struct gpu_buffer *combined_weights,
                          char *err, size_t err_len)
{
    const struct gpu_buffer *const bias[2] = {bias0, bias1};

    assert(routing->ranks == direct->shape.ranks && direct->number[DIRECT_LAYOUT] > 0);
    assert(expert_out->row_bytes == combined->row_bytes);
    assert(combined->row_bytes % sizeof(uint4) == 0);
    if (!direct->alone && gpu_fence(direct->gpu, err, err_len) != 0) return -1;
    direct->number[DIRECT_NORMAL_COMBINE]++;
    direct->arrived[DIRECT_NORMAL_COMBINE] += direct_blocks(direct, 0, UINT32_MAX);
    return launch_ranks(direct, routing, expert_out, weights, bias, combined, combined_weights, err,
                        err_len);
}
