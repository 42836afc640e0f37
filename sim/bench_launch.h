/* sim/bench_launch.h - a kernel's row in the bench, and how one is timed: what bench_kernels and
 * bench_grouped share. */
#ifndef SIM_BENCH_LAUNCH_H
#define SIM_BENCH_LAUNCH_H

#include <assert.h>
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

/* Picoseconds that so many bytes or operations take at a rate, rounded down. */
static inline uint64_t sim_bench_ps(uint64_t amount, uint64_t per_s)
{
    assert(per_s >= 1000000000 && amount <= UINT64_MAX / 1000);
    return amount * 1000 / (per_s / 1000000000); /* Of a rate per nanosecond, a thousandth. */
}

#endif
