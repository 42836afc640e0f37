/* sim/bench_kernels.h - how close the kernels of the driven transport come to the memory's speed.
 *
 * One GPU, all ranks of a group on it: hidden 7168, top-8 of 256 experts, FP8, uniform routing,
 * EP8 and EP32, 128 and 1024 tokens a rank. Data are fresh and random; before every launch the L2
 * is filled with clean lines of no use, outside the interval. Time is the interval between two
 * events around one launch, so a launch's own few microseconds are in it. */
#ifndef SIM_BENCH_KERNELS_H
#define SIM_BENCH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { SIM_BENCH_KERNELS_MAX = 64 };

struct sim_bench_kernel {
    char name[24];
    char mode[8]; /* "ll" or "normal" */
    uint32_t ranks;
    uint32_t tokens;     /* Per rank. */
    uint64_t bytes;      /* That must move through memory: each input once, each output once. */
    uint64_t elapsed_ps; /* Median. */
};

struct sim_bench_kernels {
    char gpu[256];
    uint32_t count;
    struct sim_bench_kernel kernels[SIM_BENCH_KERNELS_MAX];
};

/* What device memory of an H200 moves, read plus written, in a large copy. */
#define SIM_BENCH_MEMORY_BYTES_PER_S UINT64_C(4280000000000)

/* Medians of `rounds` launches. 0, or -1 with err. */
int sim_bench_kernels_run(uint32_t rounds, struct sim_bench_kernels *bench, char *err,
                          size_t err_len);

#endif
