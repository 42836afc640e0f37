/* kernels/direct_sync.cuh - words that one GPU stores and another waits for.
 *
 * A flag carries the number of the operation it belongs to, so nothing is ever cleaned. A count
 * carries it in its upper half and needs no flag. Whoever sets a flag has made what it stands for
 * visible first (release); whoever has seen it may read that (acquire). */
#ifndef KERNELS_DIRECT_SYNC_CUH
#define KERNELS_DIRECT_SYNC_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* In host memory: the wait that a kernel gave up on. */
struct direct_fault {
    uint32_t what; /* enum direct_awaited; 0: none. */
    uint32_t rank;
    uint32_t block;
    uint32_t item;
    uint32_t seen;
    uint32_t wanted;
};

enum direct_awaited {
    DIRECT_AWAIT_GO = 1,
    DIRECT_AWAIT_PEERS,
    DIRECT_AWAIT_COUNTS,
    DIRECT_AWAIT_RECORD,
    DIRECT_AWAIT_READY,
    DIRECT_AWAIT_READERS,
    DIRECT_AWAIT_WRITERS,
    DIRECT_AWAIT_BLOCK,
};

struct direct_watch {
    struct direct_fault *fault;
    uint64_t cycles; /* Longest wait. */
    uint32_t rank;
};

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

/* For counts: nothing else hangs on the word, so it orders nothing. */
static __device__ __forceinline__ uint64_t load_tagged(const uint64_t *at)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_tagged_acquire(const uint64_t *at)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ void store_flag(uint32_t *at, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

static __device__ __forceinline__ void store_tagged(uint64_t *at, uint32_t tag, uint32_t value)
{
    const uint64_t word = (uint64_t)tag << 32 | value;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(at), "l"(word) : "memory");
}

/* Everything before it is done for everybody before a flag that the same thread sets after it. */
static __device__ __forceinline__ void fence_everybody()
{
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

static __device__ __forceinline__ void add_flag(uint32_t *at, uint32_t value)
{
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

/* Barriers inside a block, on one of which some warps arrive and go on while others wait. Used
 * once each, so that nobody can arrive for the next time before the last to wait has seen this. */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(barrier)), "r"(arrivals)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(barrier))
                 : "memory");
}

static __device__ __forceinline__ bool barrier_passed(uint64_t *barrier)
{
    uint32_t passed;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(passed)
                 : "r"((uint32_t)__cvta_generic_to_shared(barrier))
                 : "memory");
    return passed != 0;
}

static __device__ __forceinline__ uint64_t global_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}

/* Reports, then ends the kernel: going on would use what has not arrived. */
static __device__ __noinline__ void give_up(const struct direct_watch watch, uint32_t what,
                                            uint32_t item, uint32_t seen, uint32_t wanted)
{
    volatile struct direct_fault *fault = watch.fault;
    fault->rank = watch.rank;
    fault->block = blockIdx.x;
    fault->item = item;
    fault->seen = seen;
    fault->wanted = wanted;
    __threadfence_system();
    fault->what = what;
    __threadfence_system();
    __trap();
}

/* Is `seen` the operation `wanted` or a later one? Numbers may wrap. */
static __device__ __forceinline__ bool has_reached(uint32_t seen, uint32_t wanted)
{
    return (int32_t)(seen - wanted) >= 0;
}

/* Until *at has reached wanted; what it then is. One thread waits. */
static __device__ __forceinline__ uint32_t await_flag(const struct direct_watch &watch,
                                                      const uint32_t *at, uint32_t wanted,
                                                      uint32_t what, uint32_t item)
{
    const int64_t start = clock64();
    uint32_t seen;
    while (!has_reached(seen = load_acquire(at), wanted))
        if ((uint64_t)(clock64() - start) > watch.cycles) give_up(watch, what, item, seen, wanted);
    return seen;
}

/* Until the word's tag is `tag`; its value. What was made visible before it may be read then. */
static __device__ __forceinline__ uint32_t await_tagged(const struct direct_watch &watch,
                                                        const uint64_t *at, uint32_t tag,
                                                        uint32_t what, uint32_t item)
{
    const int64_t start = clock64();
    uint64_t seen;
    while ((uint32_t)((seen = load_tagged_acquire(at)) >> 32) != tag)
        if ((uint64_t)(clock64() - start) > watch.cycles)
            give_up(watch, what, item, (uint32_t)(seen >> 32), tag);
    return (uint32_t)seen;
}

/* Until all arrivals at a barrier of the block. */
static __device__ __forceinline__ void await_barrier(const struct direct_watch &watch,
                                                     uint64_t *barrier)
{
    const int64_t start = clock64();
    while (!barrier_passed(barrier))
        if ((uint64_t)(clock64() - start) > watch.cycles)
            give_up(watch, DIRECT_AWAIT_BLOCK, 0, 0, 1);
}

/* A block's first and last moment, two words a block, or NULL. */
static __device__ __forceinline__ void stamp_start(uint64_t *stamps)
{
    if (stamps != NULL && threadIdx.x == 0) stamps[2 * blockIdx.x] = global_ns();
}

/* All threads call. */
static __device__ __forceinline__ void stamp_end(uint64_t *stamps)
{
    if (stamps == NULL) return;
    __syncthreads();
    if (threadIdx.x == 0) stamps[2 * blockIdx.x + 1] = global_ns();
}

#endif
