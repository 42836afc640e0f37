/* kernels/grouped.cuh - which rows belong to which group of a grouped GEMM.
 *
 * Counts are read on the GPU: the host does not know them when it launches. A count that would
 * leave the group's room, or the rank's rows, counts as what fits. */
#ifndef KERNELS_GROUPED_CUH
#define KERNELS_GROUPED_CUH

#include "kernels/exact_gemm.cuh"
#include "kernels/gpu_private.cuh"

/* One rank's groups. */
struct grouped {
    struct operand rows;   /* Of the rank: all that there are. */
    const int32_t *counts; /* [groups] */
    uint32_t groups;
    uint64_t capacity;    /* Masked: a group's room. 0: groups follow each other... */
    uint32_t alignment;   /* ...each beginning on a multiple of this. */
    const uint8_t *codes; /* [groups][outputs][depth] */
    const float *scales;  /* [groups][outputs / 128][depth / 128] */
    uint32_t outputs;
    uint16_t *out; /* [rows][outputs] BF16 */
    uint64_t *stamps;
};

/* Walks over the groups: where the one in hand begins, and how many rows it has. */
struct group_walk {
    uint32_t group;
    uint64_t first, count;

    __device__ __forceinline__ void look(const struct grouped &grouped)
    {
        const int32_t named = group < grouped.groups ? grouped.counts[group] : 0;
        const uint64_t left = first < grouped.rows.rows ? grouped.rows.rows - first : 0;
        const uint64_t room =
            grouped.capacity != 0 && grouped.capacity < left ? grouped.capacity : left;
        count = named < 0 ? 0 : (uint64_t)named < room ? (uint64_t)named : room;
    }

    __device__ __forceinline__ void begin(const struct grouped &grouped)
    {
        group = 0;
        first = 0;
        look(grouped);
    }

    __device__ __forceinline__ void next(const struct grouped &grouped)
    {
        const uint64_t taken = grouped.capacity != 0 ? grouped.capacity
                                                     : (count + grouped.alignment - 1) /
                                                           grouped.alignment * grouped.alignment;
        first += taken;
        group++;
        look(grouped);
    }

    __device__ __forceinline__ uint32_t tiles(uint32_t tile_rows) const
    {
        return (uint32_t)((count + tile_rows - 1) / tile_rows);
    }
};

/* Tiles of so many rows that any counts can make. */
static inline uint64_t grouped_tiles_most(const struct grouped *grouped, uint32_t tile_rows)
{
    const uint64_t each = (grouped->capacity + tile_rows - 1) / tile_rows;
    return grouped->capacity != 0 ? grouped->groups * each
                                  : grouped->rows.rows / tile_rows + grouped->groups;
}

/* The rank's part of every buffer, on the span's GPU. */
struct grouped gpu_grouped_of(const struct gpu *gpu, const struct gpu_grouped *grouped,
                              const struct gpu_span *span, const struct gpu_buffer *rows,
                              const struct gpu_buffer *row_scales, const struct gpu_buffer *out);

#endif
