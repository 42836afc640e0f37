/* sim/bench_engine.h - how fast is the event queue by itself, and with packets on it?
 *
 * The hold model: with a fixed number of events pending, each hold pops the earliest and
 * schedules one anew, a random time later. Nothing else is timed: times to add are drawn
 * beforehand. The all-to-all (sim/all_to_all.h) has ports, a switch and handlers, too. Seconds
 * are those of one core's work, so a busy machine measures the same. */
#ifndef SIM_BENCH_ENGINE_H
#define SIM_BENCH_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include "sim/all_to_all.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Holds per second with that many events pending and increments uniform in [0, 2^20) ps: the
 * best of rounds rounds of at least round_ns each. Below 0 with err when memory is short. */
double sim_bench_engine_hold(uint64_t pending, uint32_t rounds, uint64_t round_ns, char *err,
                             size_t err_len);

struct sim_bench_all_to_all {
    struct sim_all_to_all_result result; /* The same in every round. */
    double best_s;                       /* Seconds of the best round, set-up included. */
};

/* The exchange, rounds times over. 0, or -1 with err when memory is short. */
int sim_bench_all_to_all(const struct sim_all_to_all *shape, uint32_t rounds,
                         struct sim_bench_all_to_all *bench, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
