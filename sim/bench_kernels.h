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

#include "sim/bench_launch.h"

/* Medians of `rounds` launches. 0, or -1 with err. */
int sim_bench_kernels_run(uint32_t rounds, struct sim_bench_kernels *bench, char *err,
                          size_t err_len);

#endif
