/* sim/bench_sim.h - how fast the protocols themselves are simulated.
 *
 * For `epsim bench sim`, never for a test. Shape: hidden 7168, top-8 of 256 experts, FP8 dispatch
 * and BF16 combine on h100-hgx. A layer is its rows counted, dispatch and combine, with the
 * landing time of each message; a step is what `epsim run` does for one, routing drawn and results
 * added up; a cell is a dispatch and a combine of normal mode with the library's chunk sizes. */
#ifndef SIM_BENCH_SIM_H
#define SIM_BENCH_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sim_bench_layer {
    uint64_t spent_ns;
    uint64_t messages, events;
};

/* A low-latency layer of so many ranks with 128 tokens each: medians of rounds rounds, in CPU time
 * of the calling thread. 0, or -1 with err. */
int sim_bench_layer(uint32_t ranks, uint32_t rounds, struct sim_bench_layer *bench, char *err,
                    size_t err_len);

/* A decode step of so many low-latency layers: the median over rounds rounds, in nanoseconds of the
 * calling thread's CPU time; 0 with err on failure. */
uint64_t sim_bench_step(uint32_t ranks, uint32_t layers, uint32_t rounds, char *err,
                        size_t err_len);

enum { SIM_BENCH_CELLS = 3 * 6 * 23 };

/* All cells of EP 8, 16 and 32, 6 SM counts and 23 token counts from 1 to 32,768, once, on so many
 * threads (0 = all cores): nanoseconds of wall time, *cpu_ns of CPU time over all threads, which a
 * busy machine hardly changes, and *events handled; 0 with err on failure. */
uint64_t sim_bench_cells(uint32_t threads, uint64_t *cpu_ns, uint64_t *events, char *err,
                         size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
