/* sim/bench_direct.h - how long the direct transport takes between two GPUs.
 *
 * A rank a GPU: hidden 7168, top-8 of 64 experts, uniform routing, as DeepEP was measured on the
 * same pair. Several sets of random inputs take turns; before each operation the L2 is flushed;
 * both GPUs are released together once everything is enqueued. */
#ifndef SIM_BENCH_DIRECT_H
#define SIM_BENCH_DIRECT_H

#include <stddef.h>
#include <stdint.h>

enum { SIM_BENCH_DIRECT_MAX = 32 };

struct sim_bench_direct_row {
    char name[24];
    char mode[8];          /* "ll" or "normal" */
    uint32_t tokens;       /* Per rank. */
    uint32_t sms;          /* Per rank; 0: all. */
    uint64_t nvlink_bytes; /* That must cross, in the fuller direction. */
    uint64_t memory_bytes; /* That must move through one GPU's memory, read plus written. */
    uint64_t floor_ps;     /* The longer of both at SIM_BENCH_*_BYTES_PER_S. */
    uint64_t kernel_ps;    /* Median of the ranks' mean, first block's start to last one's end. */
    uint64_t event_ps;     /* The same between two events around the call. */
    uint64_t deepep_ps;    /* DeepEP 567632d on two H200s; 0: not measured. LL: a profiler's time
                              of the kernel; normal: events around the cached call. */
};

struct sim_bench_direct {
    char gpu[256];
    uint32_t count;
    struct sim_bench_direct_row rows[SIM_BENCH_DIRECT_MAX];
};

#define SIM_BENCH_NVLINK_BYTES_PER_S UINT64_C(370000000000) /* Stores, one direction of a pair. */

/* rounds: of each row's median. 0, or -1 with err. */
int sim_bench_direct_run(uint32_t rounds, struct sim_bench_direct *bench, char *err,
                         size_t err_len);

#endif
