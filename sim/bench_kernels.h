/* sim/bench_kernels.h - how close the kernels of the driven transport come to the memory's speed.
 *
 * One GPU, all ranks of a group on it: hidden 7168, top-8 of 256 experts, FP8, uniform routing,
 * EP8 and EP32, 128 and 1024 tokens a rank. Data are fresh and random; before every launch the L2
 * is filled with clean lines of no use, outside the interval. A kernel's time is from the start of
 * its first warp to the end of its last; the interval between two events around the launch has the
 * launch in it too, about three microseconds. */
#ifndef SIM_BENCH_KERNELS_H
#define SIM_BENCH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

struct gpu;

enum { SIM_BENCH_KERNELS_MAX = 96 };

struct sim_bench_kernel {
    char name[24];
    char mode[12]; /* "ll", "normal"; of a grouped GEMM, "masked" or "contiguous". */
    uint32_t ranks;
    uint32_t tokens;     /* Per rank. */
    uint64_t bytes;      /* That must move through memory: each input once, each output once. */
    uint64_t operations; /* Of a GEMM: two for every product; else 0. */
    uint64_t floor_ps;   /* The longer of bytes and operations at full speed. */
    uint64_t kernel_ps;  /* Median; the copy engine's work has none: that of events. */
    uint64_t event_ps;   /* Median. */
};

struct sim_bench_kernels {
    char gpu[256];
    uint32_t count;
    struct sim_bench_kernel kernels[SIM_BENCH_KERNELS_MAX];
};

/* What device memory of an H200 moves, read plus written, in a large copy. */
#define SIM_BENCH_MEMORY_BYTES_PER_S UINT64_C(4280000000000)
/* Dense FP8 operations of an H200, by its data sheet. */
#define SIM_BENCH_FP8_OPERATIONS_PER_S UINT64_C(1979000000000000)

/* Time `work` on one GPU and append the kernel to the bench; name, mode, shape, bytes and
 * operations are the caller's, the times are filled in here. */
typedef int (*sim_bench_work_fn)(void *context, char *err, size_t err_len);
int sim_bench_kernel_time(struct gpu *gpu, sim_bench_work_fn work, void *context,
                          const struct sim_bench_kernel *kernel, uint32_t rounds,
                          struct sim_bench_kernels *bench, char *err, size_t err_len);

/* Medians of `rounds` launches. 0, or -1 with err. */
int sim_bench_kernels_run(uint32_t rounds, struct sim_bench_kernels *bench, char *err,
                          size_t err_len);

#endif
