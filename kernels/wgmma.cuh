/* kernels/wgmma.cuh - Hopper's matrix instruction for FP8, and the copies and barriers that feed
 * it.
 *
 * Thin wrappers, one instruction or two each; names follow PTX. Only sm_90a has them. */
#ifndef KERNELS_WGMMA_CUH
#define KERNELS_WGMMA_CUH

#include <stdint.h>

/* Address in the block's shared memory. */
static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

/* Makes inits visible to the copy engine and to the cluster; a cluster barrier must follow. */
static __device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* One arrival that also says how many bytes copies will bring. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* One arrival at the same barrier of another block of the cluster. It publishes no ordinary stores
 * to that block: a release of cluster scope is a fence of the whole GPU. */
static __device__ __forceinline__ void barrier_arrive_at(uint64_t *barrier, uint32_t block)
{
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}"
                 :
                 : "r"(shared_address(barrier)), "r"(block)
                 : "memory");
}

/* Until the phase of this parity has completed. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

static __device__ __forceinline__ void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;"
                 :
                 :
                 : "memory");
}

static __device__ __forceinline__ uint32_t cluster_block()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ uint32_t cluster_id()
{
    uint32_t id;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}

static __device__ __forceinline__ uint32_t cluster_count()
{
    uint32_t count;
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

/* A box of a tensor map whose first corner is (column, row), to this block... */
static __device__ __forceinline__ void tensor_load(void *to, const void *map, uint32_t column,
                                                   uint32_t row, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                   "r"(shared_address(barrier))
                 : "memory");
}

/* ...or to the same place of every block of the cluster that the mask names. */
static __device__ __forceinline__ void tensor_load_all(void *to, const void *map, uint32_t column,
                                                       uint32_t row, uint64_t *barrier,
                                                       uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                   "r"(shared_address(barrier)), "h"(mask)
                 : "memory");
}

/* A warpgroup takes registers that others of the block have given back, or gives some back. */
template <int COUNT> static __device__ __forceinline__ void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(COUNT));
}

template <int COUNT> static __device__ __forceinline__ void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(COUNT));
}

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
}

/* Behind a wait: nothing that reads d moves before it. */
static __device__ __forceinline__ void wgmma_settled(float d[64])
{
#pragma unroll
    for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i]) : : "memory");
}

/* Rows of 128 bytes, swizzled over 128, groups of eight rows side by side: 1024 bytes apart. */
static __device__ __forceinline__ uint64_t wgmma_operand(const void *at)
{
    return (uint64_t)(shared_address(at) >> 4 & 0x3FFFu) | UINT64_C(1) << 16 |
           (uint64_t)(1024 >> 4) << 32 | UINT64_C(1) << 62;
}

/* d = (add ? d : 0) + a [64][32] * b [128][32], e4m3. A lane has d[4 * i + j]: row 16 * warp +
 * lane / 4 + 8 * (j / 2), column 8 * i + 2 * (lane % 4) + j % 2. */
static __device__ __forceinline__ void wgmma_64x128x32(float d[64], uint64_t a, uint64_t b,
                                                       uint32_t add)
{
#define WGMMA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_16(i) WGMMA_4(i), WGMMA_4(i + 4), WGMMA_4(i + 8), WGMMA_4(i + 12)
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1;\n\t}"
                 : WGMMA_16(0), WGMMA_16(16), WGMMA_16(32), WGMMA_16(48)
                 : "l"(a), "l"(b), "r"(add));
#undef WGMMA_16
#undef WGMMA_4
}

#endif
