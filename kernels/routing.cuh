/* kernels/routing.cuh - questions about a token's choices that several kernels ask. */
#ifndef KERNELS_ROUTING_CUH
#define KERNELS_ROUTING_CUH

#include "kernels/device.cuh"

/* Does a token choose an expert of [first, first + each)? A rank owns such a run, and a node. */
static __device__ __forceinline__ bool goes_to(const int64_t *columns, uint32_t topk, int64_t first,
                                               int64_t each)
{
    bool found = false; /* No early exit: the loads are to be in flight together. */
#pragma unroll 4
    for (uint32_t k = 0; k < topk; k++) found |= columns[k] >= first && columns[k] < first + each;
    return found;
}

/* counts[r] += 1 for every rank r that owns one of a token's experts, however many. Eight columns
 * are under way at a time; the first 64 ranks are remembered in bits. */
static __device__ __forceinline__ void count_ranks(const int64_t *columns, uint32_t topk,
                                                   uint32_t experts, uint32_t each,
                                                   uint32_t *counts)
{
    enum { LOADS = 8, BITS = 64 };
    uint64_t seen = 0;

    for (uint32_t base = 0; base < topk; base += LOADS) {
        int64_t idx[LOADS];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) idx[i] = base + i < topk ? columns[base + i] : -1;
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (idx[i] < 0 || idx[i] >= (int64_t)experts) continue;
            const uint32_t rank = (uint32_t)idx[i] / each;
            const bool again = rank < BITS ? (seen >> rank & 1) != 0
                                           : goes_to(columns, base + i, (int64_t)rank * each, each);
            if (rank < BITS) seen |= UINT64_C(1) << rank;
            if (!again) atomicAdd(&counts[rank], 1u);
        }
    }
}

/* How many of tokens [begin, end) do; asked by a whole warp, every lane gets the answer. */
static __device__ __forceinline__ int32_t warp_count(const int64_t *topk_idx, uint32_t topk,
                                                     uint64_t begin, uint64_t end, int64_t first,
                                                     int64_t each)
{
    int32_t count = 0;
    for (uint64_t t = begin + lane_id(); t < end; t += WARP)
        count += goes_to(topk_idx + t * topk, topk, first, each);
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        count += __shfl_xor_sync(FULL_WARP, count, apart);
    return count;
}

/* Tokens [*begin, *end) of a channel among the rank's: slices of ceil(count / channels). */
static __device__ __forceinline__ void channel_range(const uint64_t *starts, uint32_t rank,
                                                     uint32_t channels, uint32_t channel,
                                                     uint64_t *begin, uint64_t *end)
{
    const uint64_t first = starts[rank], count = starts[rank + 1] - first;
    const uint64_t per = (count + channels - 1) / channels, from = per * channel;
    *begin = first + (from < count ? from : count);
    *end = first + (from + per < count ? from + per : count);
}

#endif
