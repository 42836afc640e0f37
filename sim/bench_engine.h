/* sim/bench_engine.h - the hold model: how fast is the event queue itself?
 *
 * With a fixed number of events pending, each hold pops the earliest and schedules one anew, a
 * random time later. Nothing else is timed: times to add are drawn beforehand. Seconds are those
 * of one core's work, so a busy machine measures the same. */
#ifndef SIM_BENCH_ENGINE_H
#define SIM_BENCH_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Holds per second with that many events pending and increments uniform in [0, 2^20) ps: the
 * best of rounds rounds of at least round_ns each. Below 0 with err when memory is short. */
double sim_bench_engine_hold(uint64_t pending, uint32_t rounds, uint64_t round_ns, char *err,
                             size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
