/* kernels/gpu_private.cuh - what is behind the two opaque structs of kernels/gpu.h, and how the
 * launchers find their way from ranks to addresses. Only files of kernels/ include it. */
#ifndef KERNELS_GPU_PRIVATE_CUH
#define KERNELS_GPU_PRIVATE_CUH

#include <assert.h>
#include <cuda_runtime.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu.h"

struct gpu_device {
    int ordinal;
    cudaStream_t stream;
    cudaEvent_t reached; /* Where this GPU's stream has come to: others wait for it. */
    cudaEvent_t start, stop;
    uint32_t sm_count;
    uint64_t l2_bytes;
    uint8_t *slab; /* All buffers of the plan, one after the other. */
    uint64_t slab_bytes;
    uint8_t *flush;       /* Four times the L2; NULL before gpu_flush. */
    uint64_t *stamps;     /* Kernels note their times there; NULL outside gpu_stamps_start/stop. */
    uint64_t *stamp_room; /* Where stamps points then; NULL before the first. */
    uint8_t *staging;     /* Of the call in hand: moves, digests. */
    uint64_t staging_bytes;
    uint64_t move_sources; /* gpu_deliver: rows of the last call, if staging still holds it. */
    uint32_t move_first, move_end; /* Vectors of a row that they copy. */
};

struct gpu_buffer {
    uint64_t row_bytes;
    uint64_t rows;        /* In all. */
    uint64_t *rank_start; /* Owned, [ranks + 1]; NULL: on every GPU alike. */
    uint64_t rank_room;
    uint8_t *at[GPU_DEVICES_MAX];      /* Where the GPU's rows begin. */
    uint64_t rows_at[GPU_DEVICES_MAX]; /* How many it has. */
    uint64_t *first_at;                /* Owned, [ranks]: the rank's first row among its GPU's. */
};

struct gpu {
    struct gpu_device device[GPU_DEVICES_MAX];
    struct gpu_buffer buffer[GPU_BUFFERS_MAX];
    uint32_t devices;
    uint32_t buffers; /* Of the current plan. */
    uint32_t ranks;   /* Of the current plan. */
    enum gpu_mapping mapping;
    uint64_t memory_bytes; /* Of gpu_options. */
    uint64_t *stamps;      /* gpu_deliver: per row of the target, the last call that wrote it. */
    uint64_t stamp_rows;
    uint64_t stamp;
    uint32_t *places; /* gpu_deliver: per row of the source, its next target. */
    uint64_t place_rows;
    uint8_t *moves; /* gpu_deliver: the call's sources and targets, as addresses. */
    uint64_t move_bytes;
};

/* One CUDA call, or leave the function with its name and reason. */
#define GPU_TRY(call)                                                                              \
    do {                                                                                           \
        const cudaError_t gpu_status = (call);                                                     \
        if (gpu_status != cudaSuccess) return gpu_failed(gpu_status, #call, err, err_len);         \
    } while (0)

/* The one place that spells a launch; whoever runs the kernels elsewhere defines another. */
#if !defined(GPU_LAUNCH)
#define GPU_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...)                               \
    kernel<<<(grid), (threads), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

/* Writes "cuda: CALL: REASON" and returns -1. */
int gpu_failed(cudaError_t status, const char *call, char *err, size_t err_len);
/* Room for the call in hand on one GPU; what was there is lost. */
int gpu_stage(struct gpu_device *device, uint64_t bytes, char *err, size_t err_len);
/* Every GPU's later work waits for every GPU's earlier work. Nothing to do with one GPU. */
int gpu_fence(struct gpu *gpu, char *err, size_t err_len);

/* Ranks [first, end) that stand side by side on one GPU. */
struct gpu_span {
    uint32_t first, end;
    uint32_t device;
};

/* Step to the next span of ranks below rank_end, starting from a span that ends where the first is
 * to begin, and make its GPU the current one. False when there is none left; a GPU that cannot be
 * selected shows in the launch. */
static inline bool gpu_next_span(const struct gpu *gpu, uint32_t rank_end, struct gpu_span *span)
{
    if (span->end >= rank_end) return false;
    span->first = span->end;
    span->end = gpu_span_end(gpu->mapping, gpu->devices, gpu->ranks, span->first, rank_end);
    span->device = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, span->first);
    (void)cudaSetDevice(gpu->device[span->device].ordinal);
    return true;
}

static inline struct gpu_span gpu_span_before(uint32_t rank)
{
    struct gpu_span span = {rank, rank, 0};
    return span;
}

/* Where row 0 would be if the span's rows stood at their own numbers: add row * row_bytes. An
 * address to compute with, not one to read; NULL for a buffer that is NULL. */
static inline uint8_t *gpu_base(const struct gpu_buffer *buffer, const struct gpu_span *span)
{
    if (buffer == NULL) return NULL;
    if (buffer->rank_start == NULL) return buffer->at[span->device];
    const uint64_t ahead = buffer->first_at[span->first] - buffer->rank_start[span->first];
    return (uint8_t *)((uintptr_t)buffer->at[span->device] + ahead * buffer->row_bytes);
}

/* Rows of the span. */
static inline uint64_t gpu_first_row(const struct gpu_buffer *buffer, const struct gpu_span *span)
{
    return buffer->rank_start[span->first];
}

static inline uint64_t gpu_end_row(const struct gpu_buffer *buffer, const struct gpu_span *span)
{
    return buffer->rank_start[span->end];
}

enum { GPU_LINE_BYTES = 128 };

/* A row of whole lines. */
static inline uint64_t gpu_whole_lines(uint64_t bytes)
{
    return (bytes + GPU_LINE_BYTES - 1) / GPU_LINE_BYTES * GPU_LINE_BYTES;
}

enum { GPU_THREADS = 256, GPU_WARPS = GPU_THREADS / 32 };

/* Blocks of `threads` for this many warps of work, at most what is resident at once: they fill
 * the GPU, then each walks over the rest. At least one. */
template <typename Kernel>
static inline uint32_t gpu_grid(const struct gpu_device *device, uint64_t warps, Kernel kernel,
                                uint32_t shared_bytes = 0, uint32_t threads = GPU_THREADS)
{
    const uint64_t each = threads / 32, blocks = (warps + each - 1) / each;
    int resident = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, (int)threads,
                                                      shared_bytes) != cudaSuccess ||
        resident < 1)
        resident = 1; /* Whatever is wrong shows in the launch. */
    const uint64_t full = (uint64_t)device->sm_count * (uint32_t)resident;
    return (uint32_t)(blocks < 1 ? 1 : blocks < full ? blocks : full);
}

#endif
