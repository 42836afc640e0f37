/* kernels/direct_peers.cuh - how the ranks of one operation begin and end together, and how one
 * loads another's rows.
 *
 * Beginning: a word a rank says that this rank's part may start, that is that its rows may be read
 * or overwritten. Ending: every block of every rank counts itself on all others when it has read
 * or written all it will; block 0 stays until all have. Both are needed only where launches of
 * several ranks run side by side. */
#ifndef KERNELS_DIRECT_PEERS_CUH
#define KERNELS_DIRECT_PEERS_CUH

#include "kernels/direct_private.cuh"

/* Words [ranks] in every space. */
struct direct_meeting {
    uint64_t ready_at, arrived_at;
    uint32_t blocks; /* What the words at arrived_at come to when all blocks are done. */
    bool waits;
};

static inline struct direct_meeting direct_meeting_of(const struct gpu_direct *direct,
                                                      enum direct_operation operation)
{
    struct direct_meeting meeting;
    meeting.ready_at = direct->layout.ready[operation];
    meeting.arrived_at = direct->layout.arrived[operation];
    meeting.blocks = direct->arrived[operation];
    meeting.waits = direct->alone;
    return meeting;
}

static __device__ __forceinline__ uint32_t *direct_word(const struct direct_common &common,
                                                        uint32_t space, uint64_t at, uint32_t index)
{
    return (uint32_t *)(common.peers.space[space] + at) + index;
}

/* What earlier kernels wrote to this rank's rows is there for whoever is told so; when this
 * returns everybody has said the same. All threads call; at least ranks threads. */
static __device__ __forceinline__ void direct_begin(const struct direct_common &common,
                                                    const struct direct_meeting &meeting)
{
    const uint32_t peer = threadIdx.x;
    if (!meeting.waits) return;
    if (peer < common.ranks) {
        if (blockIdx.x == 0) {
            fence_everybody();
            store_flag(direct_word(common, peer, meeting.ready_at, common.rank), common.number);
        }
        await_flag(common.watch, direct_word(common, common.rank, meeting.ready_at, peer),
                   common.number, DIRECT_AWAIT_READY, peer);
    }
    __syncthreads();
}

/* This block is done with the others' rows. Stores need a fence first; loads do not, since their
 * values were used before the barrier. */
template <bool STORED>
static __device__ __forceinline__ void direct_finish(const struct direct_common &common,
                                                     const struct direct_meeting &meeting)
{
    const uint32_t peer = threadIdx.x;

    __syncthreads();
    if (!meeting.waits || peer >= common.ranks || peer == common.rank) return;
    if (STORED) fence_everybody();
    add_flag(direct_word(common, peer, meeting.arrived_at, common.rank), 1);
    if (blockIdx.x == 0)
        await_flag(common.watch, direct_word(common, common.rank, meeting.arrived_at, peer),
                   meeting.blocks, STORED ? DIRECT_AWAIT_WRITERS : DIRECT_AWAIT_READERS, peer);
}

/* Rows change between calls without the kernel's doing, so never by way of the read-only path;
 * each is read once, so it should not stay either. */
static __device__ __forceinline__ uint4 direct_load(const uint4 *at)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

#endif
