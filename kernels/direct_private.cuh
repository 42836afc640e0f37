/* kernels/direct_private.cuh - the memory in which ranks meet, and what every launch is told.
 *
 * Each rank has one space, all with the same layout, on its own GPU; any rank's kernel may store
 * into any space. Arrays that a faster rank could write while a slower one still reads the last
 * operation's stand twice and take turns: a rank cannot be two operations ahead, because each
 * waits for something from every other. */
#ifndef KERNELS_DIRECT_PRIVATE_CUH
#define KERNELS_DIRECT_PRIVATE_CUH

#include "kernels/direct.h"
#include "kernels/direct_sync.cuh"
#include "kernels/gpu_private.cuh"

enum direct_operation {
    DIRECT_LL_DISPATCH,
    DIRECT_LL_COMBINE,
    DIRECT_LAYOUT,
    DIRECT_NORMAL_DISPATCH,
    DIRECT_NORMAL_COMBINE,
    DIRECT_HOLD,
    DIRECT_OPERATIONS
};

/* Byte offsets into a space. L experts a rank, R ranks, T tokens_max. */
struct direct_space_layout {
    uint64_t ll_counts[2];               /* [L][R] tagged: rows of each block. */
    uint64_t ll_tokens[2];               /* [R] tagged: the source's tokens. */
    uint64_t ll_flags[2];                /* [R][T]: operation * 2 + whether the token comes here. */
    uint64_t ll_records[2];              /* [R][T] records. */
    uint64_t ll_ready;                   /* [E] tagged: where the owner has this rank's block. */
    uint64_t layout_counts[2];           /* [R][R] tagged: rows by (destination, source). */
    uint64_t ready[DIRECT_OPERATIONS];   /* [R]: the peer's part of the operation has begun. */
    uint64_t arrived[DIRECT_OPERATIONS]; /* [R]: the peer's blocks that have finished, ever. */
    /* The handle, read by its own rank alone. */
    uint64_t ll_slots;    /* [T][K]: row within its block, or -1. */
    uint64_t ll_starts;   /* [L][R]: first row of each block, and all rows. */
    uint64_t normal_rows; /* [T][R]: row at the destination, or -1. */
    uint64_t stamps;      /* [blocks][2] ns. */
    uint64_t bytes;
};

/* Passed to kernels by value. */
struct direct_peers {
    uint8_t *space[GPU_DIRECT_RANKS_MAX];
};

struct gpu_direct {
    struct gpu *gpu; /* Borrowed. */
    struct gpu_direct_shape shape;
    struct direct_space_layout layout;
    struct direct_peers peers;
    uint64_t record_stride;
    uint32_t number[DIRECT_OPERATIONS];    /* Of the last operation of each kind. */
    uint32_t arrived[DIRECT_OPERATIONS];   /* What `arrived` words have come to by then. */
    uint32_t blocks[GPU_DIRECT_RANKS_MAX]; /* Of the rank's last launch. */
    bool alone;                            /* Every rank has a GPU of its own, and all of it. */
    struct direct_fault *fault;            /* Host memory that kernels can write. */
    volatile uint32_t *go;                 /* Host memory: the number of the hold that may end. */
    uint64_t cycles[GPU_DEVICES_MAX];
};

/* What every kernel is told. */
struct direct_common {
    struct direct_peers peers;
    struct direct_watch watch;
    uint64_t *stamps;
    uint32_t rank, ranks;
    uint32_t number; /* Of the operation. */
};

enum { DIRECT_STAMP_BLOCKS = 1024 };

/* A rank's part of a buffer. */
static inline uint8_t *direct_rows_of(const struct gpu *gpu, const struct gpu_buffer *buffer,
                                      uint32_t rank)
{
    if (buffer == NULL) return NULL;
    const uint32_t device = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, rank);
    const uint64_t first = buffer->rank_start != NULL ? buffer->first_at[rank] : 0;
    return buffer->at[device] + first * buffer->row_bytes;
}

static inline struct gpu_device *direct_device(const struct gpu_direct *direct, uint32_t rank)
{
    struct gpu *gpu = direct->gpu;
    return &gpu->device[gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, rank)];
}

static inline struct direct_common direct_common_of(const struct gpu_direct *direct, uint32_t rank,
                                                    enum direct_operation operation)
{
    struct direct_common common;
    const struct gpu *gpu = direct->gpu;
    const uint32_t device = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, rank);

    common.peers = direct->peers;
    common.watch.fault = direct->fault;
    common.watch.cycles = direct->cycles[device];
    common.watch.rank = rank;
    common.stamps = (uint64_t *)(direct->peers.space[rank] + direct->layout.stamps);
    common.rank = rank;
    common.ranks = direct->shape.ranks;
    common.number = direct->number[operation];
    return common;
}

/* Blocks of the rank's next launch, which has work for `most`: at most one a multiprocessor. Every
 * rank has the same number, since they count each other's. */
uint32_t direct_blocks(struct gpu_direct *direct, uint32_t rank, uint32_t most);

/* Load the kernel on every GPU, before any rank's launch: loading may wait for what runs, and what
 * runs may be waiting for the launch. */
int direct_prepare(struct gpu_direct *direct, const void *kernel, uint32_t shared_bytes, char *err,
                   size_t err_len);

/* One launch of one rank on its GPU's stream. When the rank is alone on its GPU, all its blocks
 * are resident or the launch fails. args is a pointer to the kernel's only argument. */
int direct_launch(struct gpu_direct *direct, uint32_t rank, const void *kernel, uint32_t blocks,
                  uint32_t threads, uint32_t shared_bytes, void *args, char *err, size_t err_len);

#endif
