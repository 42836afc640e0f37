/* kernels/direct_ll_send.cuh - first half of kernels/direct_ll_dispatch.cu: tokens are cast, placed
 * and stored as records, and into the own rank's rows. */
#ifndef KERNELS_DIRECT_LL_SEND_CUH
#define KERNELS_DIRECT_LL_SEND_CUH

#include "kernels/direct_ll_dispatch.cuh"

/* --- units: 512 channels of a token ---------------------------------------------------------- */

/* As a lane holds it. Cast: 16 codes in data[0]. BF16: eight channels of each half. */
struct unit {
    uint4 data[2];
    uint4 scales;   /* Of all four groups; packed exponents in x. */
    int64_t chosen; /* The token's column lane_id(). */
};

/* Warp `worker`'s i-th unit of a chunk. */
static __device__ __forceinline__ uint32_t unit_index(uint32_t i)
{
    return threadIdx.x / WARP + i * WORKERS;
}

static __device__ __forceinline__ void load_units(const struct dispatch_args &args, uint32_t first,
                                                  uint32_t tokens, struct unit units[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t index = unit_index(i);
        const uint32_t token = index / args.steps, step = index % args.steps;
        if (token >= tokens) break; /* The rest are not looked at either. */
        const uint4 *x = args.x + (uint64_t)(first + token) * args.token_vectors;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t v = (2 * step + half) * WARP + lane_id();
            units[i].data[half] =
                v < args.token_vectors ? load_once(x + v) : make_uint4(0, 0, 0, 0);
        }
        units[i].chosen = -1;
        if (lane_id() < args.topk)
            units[i].chosen = args.topk_idx[(uint64_t)(first + token) * args.topk + lane_id()];
    }
}

/* Ranks that own an expert of the unit's token. */
static __device__ __forceinline__ uint64_t unit_mask(const struct dispatch_args &args,
                                                     const struct unit &unit)
{
    const bool named = unit.chosen >= 0 && unit.chosen < (int64_t)args.experts;
    const uint64_t mine =
        named ? UINT64_C(1) << (uint32_t)unit.chosen / args.local_experts : UINT64_C(0);
    const uint64_t low = __reduce_or_sync(FULL_WARP, (uint32_t)mine);
    if (args.common.ranks <= WARP) return low;
    return low | (uint64_t)__reduce_or_sync(FULL_WARP, (uint32_t)(mine >> 32)) << 32;
}

/* Lanes of a pair swap halves, so that each stores 16 codes side by side: the even lane of the
 * first 256 channels, the odd one of the second. */
static __device__ __forceinline__ uint4 pair_codes(const uint2 codes[2])
{
    const bool odd = lane_id() % 2 == 1;
    const uint2 mine = odd ? codes[1] : codes[0], given = odd ? codes[0] : codes[1];
    uint2 taken;
    taken.x = __shfl_xor_sync(FULL_WARP, given.x, 1);
    taken.y = __shfl_xor_sync(FULL_WARP, given.y, 1);
    return odd ? make_uint4(taken.x, taken.y, mine.x, mine.y)
               : make_uint4(mine.x, mine.y, taken.x, taken.y);
}

static __device__ __forceinline__ void cast_unit(const struct dispatch_args &args,
                                                 struct unit *unit)
{
    uint2 codes[2];
    float stored[2];
    uint4 all;

    cast_step<CAST_ANY>(args.rule, unit->data, codes, stored);
    unit->data[0] = pair_codes(codes);
    all.x = __float_as_uint(__shfl_sync(FULL_WARP, stored[0], 0));
    all.y = __float_as_uint(__shfl_sync(FULL_WARP, stored[0], 16));
    all.z = __float_as_uint(__shfl_sync(FULL_WARP, stored[1], 0));
    all.w = __float_as_uint(__shfl_sync(FULL_WARP, stored[1], 16));
    if (args.rule.kind == GPU_SCALE_UE8M0)
        all.x = all.x >> 23 | all.y >> 23 << 8 | all.z >> 23 << 16 | all.w >> 23 << 24;
    unit->scales = all;
}

template <bool FP8>
static __device__ __forceinline__ void cast_units(const struct dispatch_args &args, uint32_t tokens,
                                                  struct unit units[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (!FP8 || unit_index(i) >= tokens * args.steps) break;
        cast_unit(args, &units[i]);
    }
}

template <bool FP8>
static __device__ __forceinline__ void store_unit(const struct dispatch_args &args,
                                                  const struct unit &unit, uint32_t step,
                                                  uint8_t *payload, uint8_t *scales)
{
    uint4 *vectors = (uint4 *)payload;
    if (!FP8) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t v = (2 * step + half) * WARP + lane_id();
            if (v < args.payload_vectors) vectors[v] = unit.data[half];
        }
        return;
    }
    vectors[step * WARP + lane_id() % 2 * (WARP / 2) + lane_id() / 2] = unit.data[0];
    if (lane_id() != 0) return;
    if (args.rule.kind == GPU_SCALE_UE8M0)
        ((uint32_t *)scales)[step] = unit.scales.x;
    else
        ((uint4 *)scales)[step] = unit.scales;
}

/* --- sending --------------------------------------------------------------------------------- */

/* Ranks that get a record, beginning with the one after this: bit i is rank (own + 1 + i). */
static __device__ __forceinline__ uint64_t record_ranks(const struct dispatch_args &args,
                                                        uint64_t mask)
{
    const uint32_t own = args.common.rank, ranks = args.common.ranks;
    if (args.own_rows) mask &= ~(UINT64_C(1) << own);
    const uint64_t above = own + 1 < ranks ? mask >> (own + 1) : 0;
    return above | (mask & ((UINT64_C(2) << own) - 1)) << (ranks - own - 1);
}

static __device__ __forceinline__ uint32_t next_rank(const struct dispatch_args &args,
                                                     uint64_t *turned)
{
    const uint32_t to = args.common.rank + __ffsll((long long)*turned);
    *turned &= *turned - 1;
    return to < args.common.ranks ? to : to - args.common.ranks;
}

/* What a thread has loaded before there is room to count. */
struct early {
    int64_t idx[EARLY]; /* Selections before the block's own. */
    int64_t own;        /* The controller's: the block's own first selections. */
};

static __device__ __forceinline__ void load_early(const struct dispatch_args &args,
                                                  const struct block &block, struct early *early)
{
    const uint32_t first = block.begin * args.topk, end = block.end * args.topk;
#pragma unroll
    for (int i = 0; i < EARLY; i++) {
        const uint32_t at = threadIdx.x + i * THREADS;
        early->idx[i] = at < first ? args.topk_idx[at] : -1;
    }
    early->own = first + lane_id() < end ? args.topk_idx[first + lane_id()] : -1;
}

static __device__ __forceinline__ void count_one(const struct dispatch_args &args,
                                                 const struct block &block, int64_t idx)
{
    if (idx >= 0 && idx < (int64_t)args.experts) atomicAdd(&block.before[idx], 1u);
}

static __device__ void count_before(const struct dispatch_args &args, const struct block &block,
                                    const struct early &early)
{
    const uint32_t count = block.begin * args.topk;
#pragma unroll
    for (int i = 0; i < EARLY; i++) count_one(args, block, early.idx[i]);
#pragma unroll 4
    for (uint32_t i = threadIdx.x + EARLY * THREADS; i < count; i += THREADS)
        count_one(args, block, args.topk_idx[i]);
}

/* The block's own selections, in order; `own` are the first of them. One warp. */
static __device__ __forceinline__ void choose(const struct dispatch_args &args,
                                              const struct block &block, int64_t own)
{
    const uint32_t first = block.begin * args.topk, count = block.end * args.topk - first;

    for (uint32_t base = 0; base < count; base += WARP) {
        const uint32_t i = base + lane_id();
        const int64_t idx = base == 0 ? own : i < count ? args.topk_idx[first + i] : -1;
        const bool named = idx >= 0 && idx < (int64_t)args.experts;
        const uint32_t expert = named ? (uint32_t)idx : ~lane_id();
        const uint32_t same = __match_any_sync(FULL_WARP, expert);
        const uint32_t earlier = __popc(same & ((1u << lane_id()) - 1));
        const uint32_t place = named ? block.before[expert] + earlier : 0;
        __syncwarp();
        if (named && same >> lane_id() == 1) block.before[expert] = place + 1; /* The last. */
        __syncwarp();
        if (i >= count) continue;
        block.chosen[i] = named ? expert << PLACE_BITS | place : NONE;
        args.slots[first + i] = named ? (int32_t)place : -1;
        if (named)
            atomicOr((unsigned long long *)&block.masks[i / args.topk],
                     1ull << expert / args.local_experts);
    }
    __syncwarp();
    barrier_arrive(block.known); /* Every lane: each has written some of what becomes known. */
}

/* The last block has counted everything. One warp. */
static __device__ void send_counts(const struct dispatch_args &args, const struct block &block)
{
    const struct direct_common &common = args.common;
    for (uint32_t e = lane_id(); e < args.experts; e += WARP) {
        uint64_t *to = (uint64_t *)(common.peers.space[e / args.local_experts] + args.counts_at);
        store_tagged(to + e % args.local_experts * common.ranks + common.rank, common.number,
                     block.before[e]);
    }
    for (uint32_t r = lane_id(); r < common.ranks; r += WARP)
        store_tagged((uint64_t *)(common.peers.space[r] + args.tokens_at) + common.rank,
                     common.number, args.tokens);
}

/* What the receiver needs to place the chunk's records. One warp. */
static __device__ void send_words(const struct dispatch_args &args, const struct block &block,
                                  uint32_t first, uint32_t tokens)
{
    for (uint32_t t = first; t < first + tokens; t++) {
        uint64_t turned = record_ranks(args, block.masks[t - block.begin]);
        const uint32_t chosen =
            lane_id() < args.topk ? block.chosen[(t - block.begin) * args.topk + lane_id()] : NONE;
        while (turned != 0) {
            const uint32_t to = next_rank(args, &turned);
            const uint32_t first_expert = to * args.local_experts;
            const uint32_t local = (chosen >> PLACE_BITS) - first_expert;
            uint32_t *words =
                (uint32_t *)(record_at(args, to, args.common.rank, t) + args.words_at);
            if (lane_id() < args.topk)
                words[lane_id()] = chosen != NONE && local < args.local_experts
                                       ? local << PLACE_BITS | (chosen & PLACE_MASK)
                                       : NONE;
        }
    }
}

/* Everything stored for the chunk by anybody in the block is there. One warp. */
static __device__ void send_flags(const struct dispatch_args &args, const struct block &block,
                                  uint32_t first, uint32_t tokens)
{
    const struct direct_common &common = args.common;

    fence_everybody();
    for (uint32_t i = lane_id(); i < tokens * common.ranks; i += WARP) {
        const uint32_t to = i / tokens, token = first + i % tokens;
        if (args.own_rows && to == common.rank) continue;
        const uint32_t present = block.masks[token - block.begin] >> to & 1;
        uint32_t *flags = (uint32_t *)(common.peers.space[to] + args.flags_at);
        store_flag(flags + (uint64_t)common.rank * args.tokens_max + token,
                   2 * common.number + present);
    }
}

static __device__ void control_sending(const struct dispatch_args &args, const struct block &block)
{
    if (blockIdx.x == gridDim.x - 1) send_counts(args, block);
    for (uint32_t chunk = 0; chunk < block.chunks; chunk++) {
        const uint32_t first = block.begin + chunk * args.chunk_tokens;
        const uint32_t tokens = min(args.chunk_tokens, block.end - first);
        send_words(args, block, first, tokens);
        await_barrier(args.common.watch, block.stored + chunk);
        send_flags(args, block, first, tokens);
    }
}

template <bool FP8>
static __device__ void send_units(const struct dispatch_args &args, uint32_t first, uint32_t tokens,
                                  const struct unit units[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t index = unit_index(i);
        const uint32_t token = first + index / args.steps, step = index % args.steps;
        if (index >= tokens * args.steps) break;
        uint64_t turned = record_ranks(args, unit_mask(args, units[i]));
        while (turned != 0) {
            uint8_t *record = record_at(args, next_rank(args, &turned), args.common.rank, token);
            store_unit<FP8>(args, units[i], step, record, record + args.scales_at);
        }
    }
}

/* The own rank's experts. */
template <bool FP8>
static __device__ void write_own_rows(const struct dispatch_args &args, const struct block &block,
                                      uint32_t first, uint32_t tokens,
                                      const struct unit units[HELD])
{
    const struct direct_common &common = args.common;
    const uint64_t payload_bytes = (uint64_t)args.payload_vectors * sizeof(uint4);
    const uint64_t scale_bytes = args.scale_words * sizeof(uint32_t);

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t index = unit_index(i);
        const uint32_t token = first + index / args.steps, step = index % args.steps;
        if (index >= tokens * args.steps) break;
        const uint32_t chosen = lane_id() < args.topk
                                    ? block.chosen[(token - block.begin) * args.topk + lane_id()]
                                    : NONE;
        const uint32_t local = (chosen >> PLACE_BITS) - common.rank * args.local_experts;
        const bool mine = chosen != NONE && local < args.local_experts;
        const uint32_t row =
            mine ? block.starts[local * common.ranks + common.rank] + (chosen & PLACE_MASK) : 0;
        if (mine && step == 0 && args.src_token != NULL) args.src_token[row] = (int32_t)token;
        for (uint32_t left = __ballot_sync(FULL_WARP, mine); left != 0; left &= left - 1) {
            const uint64_t to = __shfl_sync(FULL_WARP, row, __ffs(left) - 1);
            store_unit<FP8>(args, units[i], step, args.payload + to * payload_bytes,
                            args.scales + to * scale_bytes);
        }
    }
}

/* units: the first chunk, cast. */
template <bool FP8, int PHASE>
static __device__ void work(const struct dispatch_args &args, const struct block &block,
                            struct unit units[HELD])
{
    for (uint32_t chunk = 0; chunk < block.chunks; chunk++) {
        const uint32_t first = block.begin + chunk * args.chunk_tokens;
        const uint32_t tokens = min(args.chunk_tokens, block.end - first);
        if (chunk > 0) {
            load_units(args, first, tokens, units);
            cast_units<FP8>(args, tokens, units);
        }
        send_units<FP8>(args, first, tokens, units);
        __syncwarp();
        if (lane_id() == 0) barrier_arrive(block.stored + chunk);
        if (PHASE != GPU_DIRECT_BOTH) continue;
        await_barrier(args.common.watch, block.known);
        write_own_rows<FP8>(args, block, first, tokens, units);
    }
}

#endif
