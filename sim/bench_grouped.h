/* sim/bench_grouped.h - how fast the grouped FP8 GEMMs of one rank are.
 *
 * Shapes of the kernel bench: hidden 7168, 256 experts, top-8, an inner size of 2048; masked rows
 * at 128 tokens a rank, as low-latency dispatch leaves them, contiguous ones at 1024. */
#ifndef SIM_BENCH_GROUPED_H
#define SIM_BENCH_GROUPED_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/gpu.h"
#include "sim/bench_launch.h"

/* Adds the rows of one shape to the bench: ranks, and tokens a rank. Plans the GPU's memory anew.
 * 0, or -1 with err. */
int sim_bench_grouped(struct gpu *gpu, uint32_t ranks, uint32_t tokens, uint32_t rounds,
                      struct sim_bench_kernels *bench, char *err, size_t err_len);

#endif
