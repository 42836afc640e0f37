/* kernels/stamp.cuh - how long a kernel took by the GPU's own clock, from inside.
 *
 * Each warp notes when it began and when it ended, in a place of its own: no atomics, nothing that
 * waits. The earliest beginning and the latest end, found by gpu_stamps_stop(), leave out the
 * launch, which an interval between two events contains. When nobody asked, stamps is NULL and a
 * kernel pays a test. */
#ifndef KERNELS_STAMP_CUH
#define KERNELS_STAMP_CUH

#include "kernels/device.cuh"

enum { STAMP_WARPS = 1 << 16, STAMP_SECOND = STAMP_WARPS / 2 };

static __device__ __forceinline__ uint64_t stamp_now()
{
    uint64_t ns = 1;
#if defined(__CUDA_ARCH__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
#endif
    return ns;
}

/* Declared first in a kernel. A launch that follows another in one interval begins at place
 * STAMP_SECOND. Of more warps than places, the first note when they begin, and each place keeps the
 * end that came last. */
class kernel_stamp
{
    uint64_t *at;

  public:
    __device__ __forceinline__ explicit kernel_stamp(uint64_t *stamps, uint64_t first = 0)
    {
        const uint64_t place = first + grid_warp();
        at = stamps != NULL && lane_id() == 0 ? stamps + 2 * (place % STAMP_WARPS) : NULL;
        if (at != NULL && place < STAMP_WARPS) at[0] = stamp_now();
    }
    __device__ __forceinline__ ~kernel_stamp()
    {
        if (at != NULL) at[1] = stamp_now();
    }
    kernel_stamp(const kernel_stamp &) = delete;
    kernel_stamp &operator=(const kernel_stamp &) = delete;
};

#endif
