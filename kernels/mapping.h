/* kernels/mapping.h - which GPU a rank lives on.
 *
 * Ranks are virtual: any number of them shares any number of GPUs, and no result depends on how.
 * Header only and free of CUDA, so that every build can test it. */
#ifndef KERNELS_MAPPING_H
#define KERNELS_MAPPING_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpu_mapping {
    GPU_MAP_BLOCKS,      /* Neighbouring ranks share a GPU: 0 0 0 1 1 1. */
    GPU_MAP_ROUND_ROBIN, /* Neighbouring ranks sit on different GPUs: 0 1 0 1 0 1. */
    GPU_MAPPINGS
};

/* 0..devices-1. With blocks no GPU holds more than one rank above another, and ranks ascend with
 * the GPUs. */
static inline uint32_t gpu_rank_device(enum gpu_mapping mapping, uint32_t devices, uint32_t ranks,
                                       uint32_t rank)
{
    assert(devices >= 1 && rank < ranks);
    if (mapping == GPU_MAP_ROUND_ROBIN) return rank % devices;
    return (uint32_t)((uint64_t)rank * devices / ranks);
}

/* First rank above `rank` that lives elsewhere, at most rank_end: the ranks between stand side by
 * side in the memory of one GPU, so one launch serves them all. */
static inline uint32_t gpu_span_end(enum gpu_mapping mapping, uint32_t devices, uint32_t ranks,
                                    uint32_t rank, uint32_t rank_end)
{
    const uint32_t device = gpu_rank_device(mapping, devices, ranks, rank);
    uint32_t end = rank + 1;

    assert(rank < rank_end && rank_end <= ranks);
    while (end < rank_end && gpu_rank_device(mapping, devices, ranks, end) == device) end++;
    return end;
}

#ifdef __cplusplus
}
#endif

#endif
