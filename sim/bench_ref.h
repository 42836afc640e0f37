/* sim/bench_ref.h - how fast the reference itself is, on one core.
 *
 * In CPU time of the calling thread, for `epsim bench`, never for a test. Shape: hidden 7168, top-8
 * of 256 experts on 8 ranks, 128 tokens a rank, uniform routing, low-latency FP8 dispatch and
 * BF16 combine by the group operations. */
#ifndef SIM_BENCH_REF_H
#define SIM_BENCH_REF_H

#include <stddef.h>
#include <stdint.h>

struct sim_bench_ref {
    double quantise_bytes_per_s; /* BF16 bytes read. */
    double dispatch_bytes_per_s; /* Row bytes delivered (codes and scales), quantising left out. */
    double combine_bytes_per_s;  /* BF16 row bytes summed. */
    double sequence_bytes_per_s; /* Quantise, dispatch, stand-in expert, combine: row bytes
                                    delivered in both directions over the whole time. */
};

/* Median of `rounds` rounds. 0, or -1 with err (memory). */
int sim_bench_ref_run(uint32_t rounds, struct sim_bench_ref *bench, char *err, size_t err_len);

#endif
