/* kernels/direct_ll_receive.cuh - second half of kernels/direct_ll_dispatch.cu: counts become
 * places, and records rows. */
#ifndef KERNELS_DIRECT_LL_RECEIVE_CUH
#define KERNELS_DIRECT_LL_RECEIVE_CUH

#include "kernels/direct_ll_dispatch.cuh"

enum { COUNT_FLIGHT = 4 };

/* Counts from `base` on, and the tokens of source lane_id(). Every word of a round is under way
 * before the first is looked at. */
struct count_round {
    uint64_t counts[COUNT_FLIGHT];
    uint64_t source;
};

static __device__ __forceinline__ void await_counts(const struct dispatch_args &args,
                                                    const uint64_t *counts, const uint64_t *tokens,
                                                    uint32_t base, uint32_t end,
                                                    struct count_round *round)
{
    const uint32_t number = args.common.number;
    const int64_t start = clock64();

    while (true) {
        bool all = true;
        round->source = load_tagged(tokens + min(lane_id(), args.common.ranks - 1));
#pragma unroll
        for (int i = 0; i < COUNT_FLIGHT; i++)
            round->counts[i] = load_tagged(counts + min(base + i, args.experts - 1));
#pragma unroll
        for (int i = 0; i < COUNT_FLIGHT; i++)
            all &= base + i >= end || round->counts[i] >> 32 == number;
        if (all && round->source >> 32 == number) return;
        if ((uint64_t)(clock64() - start) > args.common.watch.cycles)
            give_up(args.common.watch, DIRECT_AWAIT_COUNTS, base,
                    (uint32_t)(round->counts[0] >> 32), number);
    }
}

/* Everybody's counts, then where each block of rows starts. One warp. */
static __device__ void find_starts(const struct dispatch_args &args, const struct block &block)
{
    const struct direct_common &common = args.common;
    const uint8_t *space = common.peers.space[common.rank];
    const uint64_t *counts = (const uint64_t *)(space + args.counts_at);
    const uint64_t *tokens = (const uint64_t *)(space + args.tokens_at);
    const uint32_t per_lane = (args.experts + WARP - 1) / WARP;
    const uint32_t first = min(lane_id() * per_lane, args.experts);
    const uint32_t end = min(first + per_lane, args.experts);
    uint32_t sum = 0, base = first;

    do {
        struct count_round round;
        await_counts(args, counts, tokens, base, end, &round);
        if (lane_id() < common.ranks) block.sources[lane_id()] = (uint32_t)round.source;
#pragma unroll
        for (int i = 0; i < COUNT_FLIGHT; i++) {
            if (base + i >= end) break;
            block.starts[base + i] = (uint32_t)round.counts[i];
            sum += (uint32_t)round.counts[i];
        }
        base += COUNT_FLIGHT;
    } while (base < end);
    for (uint32_t r = WARP + lane_id(); r < common.ranks; r += WARP)
        block.sources[r] =
            await_tagged(common.watch, tokens + r, common.number, DIRECT_AWAIT_COUNTS, r);
    __syncwarp();
    uint32_t before = sum;
#pragma unroll
    for (int apart = 1; apart < WARP; apart *= 2) {
        const uint32_t lower = __shfl_up_sync(FULL_WARP, before, apart);
        if (lane_id() >= apart) before += lower;
    }
    if (lane_id() == WARP - 1) block.starts[args.experts] = before;
    before -= sum;
    for (uint32_t i = first; i < end; i++) {
        const uint32_t count = block.starts[i];
        block.starts[i] = before;
        before += count;
    }
    __syncwarp();
    barrier_arrive(block.known);
    if (blockIdx.x != 0) return;
    for (uint32_t i = lane_id(); i <= args.experts; i += WARP) args.starts[i] = block.starts[i];
    for (uint32_t i = lane_id(); i < args.experts && args.counts != NULL; i += WARP)
        args.counts[i] = (int32_t)(block.starts[i + 1] - block.starts[i]);
}

/* A lane's vectors of a record, the base-th of the whole warp and on. */
static __device__ __forceinline__ void load_vectors(const uint4 *from, uint32_t base, uint32_t end,
                                                    uint4 held[ROW_FLIGHT])
{
#pragma unroll
    for (int i = 0; i < ROW_FLIGHT; i++)
        if (base + i * WARP + lane_id() < end) held[i] = __ldcg(from + base + i * WARP + lane_id());
}

/* To every row that takes them. */
static __device__ __forceinline__ void store_vectors(const struct dispatch_args &args,
                                                     uint32_t base, uint32_t end, uint32_t row,
                                                     uint32_t takers, const uint4 held[ROW_FLIGHT])
{
    for (uint32_t left = takers; left != 0; left &= left - 1) {
        const uint64_t taker = __shfl_sync(FULL_WARP, row, __ffs(left) - 1);
        uint4 *to = (uint4 *)args.payload + taker * args.payload_vectors;
#pragma unroll
        for (int i = 0; i < ROW_FLIGHT; i++)
            if (base + i * WARP + lane_id() < end) to[base + i * WARP + lane_id()] = held[i];
    }
}

/* A record's scales, a vector a lane or with packed exponents a word. */
static __device__ __forceinline__ uint4 load_scales(const struct dispatch_args &args,
                                                    const uint8_t *record)
{
    const uint8_t *scales = record + args.scales_at;
    uint4 held = make_uint4(0, 0, 0, 0);
    if (args.rule.kind == GPU_SCALE_UE8M0) {
        if (lane_id() < args.scale_words) held.x = __ldcg((const uint32_t *)scales + lane_id());
    } else if (lane_id() < args.scale_words / 4) {
        held = __ldcg((const uint4 *)scales + lane_id());
    }
    return held;
}

static __device__ __forceinline__ void store_scales(const struct dispatch_args &args, uint4 held,
                                                    uint32_t row, uint32_t takers)
{
    for (uint32_t left = takers; left != 0; left &= left - 1) {
        const uint64_t taker = __shfl_sync(FULL_WARP, row, __ffs(left) - 1);
        uint32_t *to = (uint32_t *)args.scales + taker * args.scale_words;
        if (args.rule.kind == GPU_SCALE_UE8M0) {
            if (lane_id() < args.scale_words) to[lane_id()] = held.x;
        } else if (lane_id() < args.scale_words / 4) {
            ((uint4 *)to)[lane_id()] = held;
        }
    }
}

/* The part-th of `parts` pieces of one token's record; the first piece brings the rest along. */
template <bool FP8>
static __device__ __forceinline__ void
receive_part(const struct dispatch_args &args, const struct block &block, uint32_t source,
             uint32_t token, uint32_t part, uint32_t part_vectors)
{
    const struct direct_common &common = args.common;
    const uint8_t *record = record_at(args, common.rank, source, token);
    const uint32_t *words = (const uint32_t *)(record + args.words_at);
    const uint32_t *flag = (const uint32_t *)(common.peers.space[common.rank] + args.flags_at) +
                           (uint64_t)source * args.tokens_max + token;
    uint32_t seen = 0;

    if (lane_id() == 0)
        seen = await_flag(common.watch, flag, 2 * common.number, DIRECT_AWAIT_RECORD, token);
    __syncwarp(); /* What lane 0 has seen to be there, the others may read now. */
    seen = __shfl_sync(FULL_WARP, seen, 0);
    if (seen % 2 == 0) return; /* It does not come here. */
    const uint4 *payload = (const uint4 *)record;
    const uint32_t first = part * part_vectors;
    const uint32_t end = min(first + part_vectors, args.payload_vectors);
    const bool scaled = FP8 && part == 0;
    uint4 held[ROW_FLIGHT];
    load_vectors(payload, first, end, held); /* All loads are under way before the first use. */
    const uint4 scales = scaled ? load_scales(args, record) : make_uint4(0, 0, 0, 0);
    const uint32_t word = lane_id() < args.topk ? __ldcg(words + lane_id()) : NONE;
    const uint32_t takers = __ballot_sync(FULL_WARP, word != NONE);
    uint32_t row = 0;
    if (word != NONE)
        row = block.starts[(word >> PLACE_BITS) * common.ranks + source] + (word & PLACE_MASK);

    store_vectors(args, first, end, row, takers, held);
    for (uint32_t base = first + ROW_FLIGHT * WARP; base < end; base += ROW_FLIGHT * WARP) {
        load_vectors(payload, base, end, held);
        store_vectors(args, base, end, row, takers, held);
    }
    if (part != 0) return;
    if (scaled) store_scales(args, scales, row, takers);
    if (word != NONE && args.src_token != NULL) args.src_token[row] = (int32_t)token;
}

/* Records are cut into as many parts as there are warps for them, of whole warps of vectors. */
template <bool FP8, int PHASE>
static __device__ void receive(const struct dispatch_args &args, const struct block &block)
{
    const struct direct_common &common = args.common;
    const uint32_t warps = gridDim.x * WARPS;
    uint32_t records = 0;

    await_barrier(args.common.watch, block.known);
    for (uint32_t s = 0; s < common.ranks; s++)
        if (!args.own_rows || s != common.rank) records += block.sources[s];
    if (records == 0) return;
    const uint32_t row_warps = (args.payload_vectors + WARP - 1) / WARP;
    const uint32_t wanted = max(1u, min(warps / records, row_warps));
    const uint32_t part_vectors = (row_warps + wanted - 1) / wanted * WARP;
    const uint32_t parts = (args.payload_vectors + part_vectors - 1) / part_vectors;
    for (uint32_t item = threadIdx.x / WARP * gridDim.x + blockIdx.x; item < records * parts;
         item += warps) {
        uint32_t token = item / parts, source = 0;
        for (;; source++) {
            if (args.own_rows && source == common.rank) continue;
            if (token < block.sources[source]) break;
            token -= block.sources[source];
        }
        receive_part<FP8>(args, block, source, token, item % parts, part_vectors);
    }
}

#endif
