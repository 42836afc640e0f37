/* kernels/direct_ll_dispatch.cu - low-latency dispatch, ranks storing into each other's memory.
 *
 * Equal to ref_ll_dispatch(). A token travels once to every rank that owns one of its experts, not
 * once an expert: it is cast in registers, stored as one record into that rank's space and copied
 * there to all its rows, which costs device memory, of which there is ten times as much as NVLink.
 * A token's place in each block is counted, not taken from an atomic: every block of the grid
 * counts the selections of the tokens before its own.
 *
 *   record   payload | scales | a word a column: local expert << 20 | place, or NONE
 *
 * Bytes that must move, H 7168, top-8 of 64, two ranks, FP8: NVLink 7424 a token, device memory
 * 14336 in and 8 * 7392 out. 8 tokens: latencies, about 5 us; 128 tokens: 2.6 us of NVLink (370
 * GB/s) over the latencies; 1024 tokens: 20 us of NVLink beside 18 us of device memory.
 *
 * Launch: one block a multiprocessor, 18 warps. Workers cast units of 512 channels, four in flight
 * a warp. One controller places tokens, sends the counts and, when the workers are done with a
 * chunk of tokens, sets its flags; the other waits for everybody's counts and finds where blocks
 * start. The own rank's rows are written from registers. Then all warps copy records to rows.
 * Shared memory: two words an expert, a few a token of the block. */
#include "kernels/direct_ll_receive.cuh"
#include "kernels/direct_ll_send.cuh"

static uint32_t shared_bytes(const struct dispatch_args *args, uint32_t block_tokens)
{
    const uint32_t chunks = (block_tokens + args->chunk_tokens - 1) / args->chunk_tokens;
    const uint32_t words = 2 * args->experts + 1 + args->common.ranks + block_tokens * args->topk;
    return (1 + chunks + block_tokens) * (uint32_t)sizeof(uint64_t) +
           words * (uint32_t)sizeof(uint32_t);
}

template <bool FP8, int PHASE>
static __global__ void __launch_bounds__(THREADS, 1)
    ll_dispatch_kernel(const __grid_constant__ struct dispatch_args args)
{
    extern __shared__ uint64_t shared[];
    const struct block block = carve(args, shared);
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t first_tokens = min(args.chunk_tokens, block.end - block.begin);
    const bool sends = PHASE & GPU_DIRECT_SEND, receives = PHASE & GPU_DIRECT_RECEIVE;
    struct unit units[HELD];
    struct early early;

    stamp_start(args.common.stamps);
    if (sends) load_early(args, block, &early);
    if (sends && warp < WORKERS) load_units(args, block.begin, first_tokens, units);
    for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS) block.before[e] = 0;
    for (uint32_t t = threadIdx.x; t < block.end - block.begin; t += THREADS) block.masks[t] = 0;
    if (threadIdx.x == 0) barrier_init(block.known, (sends + receives) * WARP);
    for (uint32_t c = threadIdx.x; c < block.chunks; c += THREADS)
        barrier_init(block.stored + c, WORKERS);
    __syncthreads();
    if (sends) {
        count_before(args, block, early);
        __syncthreads();
        if (warp < WORKERS) {
            cast_units<FP8>(args, first_tokens, units);
            work<FP8, PHASE>(args, block, units);
        } else if (warp == WORKERS) {
            choose(args, block, early.own);
            control_sending(args, block);
        }
    }
    if (receives) {
        if (warp == WORKERS + 1) find_starts(args, block);
        receive<FP8, PHASE>(args, block);
    }
    stamp_end(args.common.stamps);
}

static const void *kernel_of(bool fp8, enum gpu_direct_phase phase)
{
    static const void *const kernels[2][3] = {
        {(const void *)ll_dispatch_kernel<false, GPU_DIRECT_SEND>,
         (const void *)ll_dispatch_kernel<false, GPU_DIRECT_RECEIVE>,
         (const void *)ll_dispatch_kernel<false, GPU_DIRECT_BOTH>},
        {(const void *)ll_dispatch_kernel<true, GPU_DIRECT_SEND>,
         (const void *)ll_dispatch_kernel<true, GPU_DIRECT_RECEIVE>,
         (const void *)ll_dispatch_kernel<true, GPU_DIRECT_BOTH>}};
    return kernels[fp8][phase - 1];
}

/* What does not depend on the rank. */
static void describe(const struct gpu_direct *direct, const struct gpu_routing *routing,
                     uint32_t recipe, struct dispatch_args *args)
{
    const struct direct_space_layout *layout = &direct->layout;
    const uint32_t turn = direct->number[DIRECT_LL_DISPATCH] % 2;
    const uint32_t hidden = direct->shape.hidden, groups = gpu_scale_groups(hidden);

    args->rule = gpu_recipe_of(recipe).rule;
    args->counts_at = layout->ll_counts[turn];
    args->tokens_at = layout->ll_tokens[turn];
    args->flags_at = layout->ll_flags[turn];
    args->records_at = layout->ll_records[turn];
    args->experts = routing->experts;
    args->local_experts = routing->experts / routing->ranks;
    args->topk = routing->topk;
    args->tokens_max = direct->shape.tokens_max;
    args->token_vectors = hidden / 8;
    args->payload_vectors = (uint32_t)(gpu_payload_bytes(hidden, recipe) / sizeof(uint4));
    args->scale_words = args->rule.kind == GPU_SCALE_NONE    ? 0
                        : args->rule.kind == GPU_SCALE_UE8M0 ? gpu_packed_words(groups)
                                                             : groups;
    args->scales_at = gpu_payload_bytes(hidden, recipe);
    args->words_at = args->scales_at + (args->scale_words + 3) / 4 * 4 * sizeof(uint32_t);
    args->record_stride = (args->words_at + args->topk * sizeof(uint32_t) + 127) / 128 * 128;
    args->steps = (hidden + 511) / 512;
    args->chunk_tokens = WORKERS * HELD / args->steps;
    assert(args->record_stride <= direct->record_stride && args->chunk_tokens >= 1);
    assert(args->scale_words <= (args->rule.kind == GPU_SCALE_UE8M0 ? WARP : 4 * WARP));
}

static int launch_ranks(struct gpu_direct *direct, enum gpu_direct_phase phase,
                        const struct gpu_routing *routing, uint32_t recipe,
                        const struct gpu_buffer *x, const struct gpu_ll_rows *rows, char *err,
                        size_t err_len)
{
    struct gpu *gpu = direct->gpu;
    const void *kernel = kernel_of(recipe != GPU_RECIPE_BF16, phase);
    struct dispatch_args args;

    describe(direct, routing, recipe, &args);
    args.own_rows = phase == GPU_DIRECT_BOTH;
    args.common.ranks = routing->ranks;
    const uint32_t blocks = direct_blocks(direct, 0, UINT32_MAX);
    const uint32_t most = (args.tokens_max + blocks - 1) / blocks; /* Tokens of a block. */
    if (direct_prepare(direct, kernel, shared_bytes(&args, most), err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t tokens = routing->token_start[r + 1] - routing->token_start[r];
        const uint64_t first = routing->token_start[r] * routing->topk;
        uint8_t *space = direct->peers.space[r];
        assert(tokens <= args.tokens_max);
        args.common = direct_common_of(direct, r, DIRECT_LL_DISPATCH);
        args.tokens = (uint32_t)tokens;
        args.x = (const uint4 *)direct_rows_of(gpu, x, r);
        args.topk_idx = (const int64_t *)direct_rows_of(gpu, routing->topk_idx, r) + first;
        args.payload = direct_rows_of(gpu, rows->payload, r);
        args.scales = direct_rows_of(
            gpu, args.rule.kind == GPU_SCALE_UE8M0 ? rows->scales_ue8m0 : rows->scales, r);
        args.src_token = (int32_t *)direct_rows_of(gpu, rows->src_token, r);
        args.counts = (int32_t *)direct_rows_of(gpu, rows->counts, r);
        args.slots = (int32_t *)(space + direct->layout.ll_slots);
        args.starts = (uint32_t *)(space + direct->layout.ll_starts);
        if (direct_launch(direct, r, kernel, direct_blocks(direct, r, UINT32_MAX), THREADS,
                          shared_bytes(&args, most), &args, err, err_len) != 0)
            return -1;
    }
    return direct->alone ? 0 : gpu_fence(gpu, err, err_len);
}

extern "C" int gpu_direct_ll_dispatch(struct gpu_direct *direct, enum gpu_direct_phase phase,
                                      const struct gpu_routing *routing, uint32_t recipe,
                                      const struct gpu_buffer *x, const struct gpu_ll_rows *rows,
                                      char *err, size_t err_len)
{
    const bool split = phase == GPU_DIRECT_BOTH && !direct->alone;

    assert(direct->shape.ll && routing->ranks == direct->shape.ranks);
    assert(routing->experts == direct->shape.experts && routing->topk == direct->shape.topk);
    assert(recipe == GPU_RECIPE_BF16 || direct->shape.hidden % GPU_DIRECT_CAST_CHANNELS == 0);
    if (phase & GPU_DIRECT_SEND) direct->number[DIRECT_LL_DISPATCH]++;
    if (!split) return launch_ranks(direct, phase, routing, recipe, x, rows, err, err_len);
    if (launch_ranks(direct, GPU_DIRECT_SEND, routing, recipe, x, rows, err, err_len) != 0)
        return -1;
    return launch_ranks(direct, GPU_DIRECT_RECEIVE, routing, recipe, x, rows, err, err_len);
}
