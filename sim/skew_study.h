/* sim/skew_study.h - what one skew does to the time of a dispatch kernel, seen three ways.
 *
 *   unit test   all ranks start together
 *   server      ranks start as the skew says; one kernel sends, spins and receives
 *   hook        the same starts; send and receive are two kernels with other work between, in
 *               which the late ranks catch up
 *
 * The time is that of a rank's kernels, spinning included and other work left out, as a profiler
 * adds it up: the mean over ranks and layers. */
#ifndef SIM_SKEW_STUDY_H
#define SIM_SKEW_STUDY_H

#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "sim/skew.h"

struct sim_skew_ask {
    const struct fabric_machine *machine; /* Borrowed for the call. */
    uint32_t ranks, experts, topk, hidden;
    uint32_t tokens; /* Per rank. */
    uint32_t layers; /* Drawn and averaged over; at least 1. */
    struct sim_skew skew;
    uint64_t pause_ps; /* Other work between send and receive. */
    uint64_t seed;
};

struct sim_skew_times {
    uint64_t unit_ps, server_ps, hook_ps;
    uint64_t spread_ps; /* Mean over layers: the latest rank's start behind the earliest's. */
};

/* Low-latency dispatch in FP8 with uniform routing. experts is a multiple of ranks. 0, or -1 with
 * err (memory). */
int sim_skew_study(const struct sim_skew_ask *ask, struct sim_skew_times *times, char *err,
                   size_t err_len);

#endif
