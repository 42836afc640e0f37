/* kernels/plan.h - how much memory a plan takes on each GPU, before any is taken.
 *
 * Rows are counted, not reserved by capacity: a part has as many rows as its ranks have. Header
 * only and free of CUDA, so that every build can test it. */
#ifndef KERNELS_PLAN_H
#define KERNELS_PLAN_H

#include <assert.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/mapping.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_part {
    const uint64_t *rank_start; /* [ranks + 1]: rows of each rank. NULL: on every GPU alike... */
    uint64_t rows;              /* ...this many. */
    uint64_t row_bytes;
};

enum { GPU_PLAN_ALIGNMENT = 256 };

/* Where the next part begins. */
static inline uint64_t gpu_plan_align(uint64_t bytes)
{
    return (bytes + GPU_PLAN_ALIGNMENT - 1) / GPU_PLAN_ALIGNMENT * GPU_PLAN_ALIGNMENT;
}

/* Rows of the part on one GPU. */
static inline uint64_t gpu_plan_rows(enum gpu_mapping mapping, uint32_t devices, uint32_t ranks,
                                     const struct gpu_part *part, uint32_t device)
{
    uint64_t rows = 0;

    if (part->rank_start == NULL) return part->rows;
    for (uint32_t r = 0; r < ranks; r++) {
        assert(part->rank_start[r] <= part->rank_start[r + 1]);
        if (gpu_rank_device(mapping, devices, ranks, r) == device)
            rows += part->rank_start[r + 1] - part->rank_start[r];
    }
    return rows;
}

/* Bytes of all parts on one GPU, or UINT64_MAX when they are beyond counting. */
static inline uint64_t gpu_plan_bytes(enum gpu_mapping mapping, uint32_t devices, uint32_t ranks,
                                      const struct gpu_part *parts, uint32_t count, uint32_t device)
{
    uint64_t sum = 0;

    for (uint32_t p = 0; p < count; p++) {
        const uint64_t rows = gpu_plan_rows(mapping, devices, ranks, &parts[p], device);
        const uint64_t row_bytes = parts[p].row_bytes;
        if (row_bytes > 0 && rows > (UINT64_MAX / 4 - sum) / row_bytes) return UINT64_MAX;
        sum += gpu_plan_align(rows * row_bytes);
    }
    return sum;
}

/* Do these bytes fit where free_bytes are free and, unless 0, limit_bytes allowed? 0, or -1 with
 * one line that names the GPU, what asks, and how many bytes are missing. */
static inline int gpu_plan_fits(int device, const char *what, uint64_t bytes, uint64_t free_bytes,
                                uint64_t limit_bytes, char *err, size_t err_len)
{
    const uint64_t room = limit_bytes != 0 && limit_bytes < free_bytes ? limit_bytes : free_bytes;

    if (bytes <= room) return 0;
    snprintf(err, err_len,
             "cuda: GPU %d: %s needs %" PRIu64 " bytes, %" PRIu64 " are %s: %" PRIu64
             " bytes missing",
             device, what, bytes, room, room == free_bytes ? "free" : "allowed", bytes - room);
    return -1;
}

#ifdef __cplusplus
}
#endif

#endif
