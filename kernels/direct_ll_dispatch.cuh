/* kernels/direct_ll_dispatch.cuh - what the two halves of kernels/direct_ll_dispatch.cu share. */
#ifndef KERNELS_DIRECT_LL_DISPATCH_CUH
#define KERNELS_DIRECT_LL_DISPATCH_CUH

#include "kernels/device.cuh"
#include "kernels/direct_private.cuh"
#include "kernels/quantise.cuh"

enum {
    WORKERS = 14,
    WARPS = WORKERS + 2,
    THREADS = WARPS * WARP,
    HELD = 4,
    EARLY = 4,
    PLACE_BITS = 20,
    ROW_FLIGHT = 7
};
#define NONE 0xFFFFFFFFu
#define PLACE_MASK ((1u << PLACE_BITS) - 1)

struct dispatch_args {
    struct direct_common common;
    struct gpu_rule rule;
    const uint4 *x; /* The rank's own tokens. */
    const int64_t *topk_idx;
    uint8_t *payload, *scales; /* The rank's own rows. */
    int32_t *src_token, *counts;
    int32_t *slots; /* Handle. */
    uint32_t *starts;
    uint64_t counts_at, tokens_at, flags_at, records_at; /* In every space. */
    uint64_t record_stride, scales_at, words_at;         /* Of a record. */
    uint32_t experts, local_experts, topk, tokens, tokens_max;
    uint32_t token_vectors;                /* Of x. */
    uint32_t payload_vectors, scale_words; /* Of a row. */
    uint32_t steps;                        /* Units of a token. */
    uint32_t chunk_tokens;
    bool own_rows; /* Write the own rank's rows here, not by a record. */
};

/* One block's shared memory. */
struct block {
    uint64_t *masks;     /* Of each of its tokens: ranks that own an expert. */
    uint32_t *before;    /* [experts]: selections by earlier tokens, then by these too. */
    uint32_t *starts;    /* [experts + 1] */
    uint32_t *sources;   /* [ranks]: tokens. */
    uint32_t *chosen;    /* [tokens][topk]: expert << 20 | place, or NONE. */
    uint64_t *known;     /* Barrier: chosen, starts and sources are. */
    uint64_t *stored;    /* A barrier a chunk: the workers have stored it. */
    uint32_t begin, end; /* Its tokens. */
    uint32_t chunks;
};

/* Few tokens go to the last blocks, one each: the first are then free to receive. */
static __device__ __forceinline__ struct block carve(const struct dispatch_args &args,
                                                     uint64_t *shared)
{
    struct block block;
    const uint32_t busy = min(args.tokens, gridDim.x);
    const int64_t index = (int64_t)blockIdx.x - (gridDim.x - busy);
    block.begin = index < 0 ? 0 : (uint32_t)((uint64_t)args.tokens * index / max(busy, 1u));
    block.end = index < 0 ? 0 : (uint32_t)((uint64_t)args.tokens * (index + 1) / max(busy, 1u));
    block.chunks = (block.end - block.begin + args.chunk_tokens - 1) / args.chunk_tokens;
    block.known = shared;
    block.stored = block.known + 1;
    block.masks = block.stored + block.chunks;
    block.before = (uint32_t *)(block.masks + (block.end - block.begin));
    block.starts = block.before + args.experts;
    block.sources = block.starts + args.experts + 1;
    block.chosen = block.sources + args.common.ranks;
    return block;
}

static __device__ __forceinline__ uint8_t *record_at(const struct dispatch_args &args, uint32_t to,
                                                     uint32_t source, uint32_t token)
{
    return args.common.peers.space[to] + args.records_at +
           ((uint64_t)source * args.tokens_max + token) * args.record_stride;
}

#endif
