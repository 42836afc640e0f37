/* sim/skew.h - ranks that reach a layer's dispatch at different times.
 *
 * What ran before dispatch (attention over contexts of different lengths, the host) takes each
 * rank another time, and everybody spins for the last: a kernel's time in a server is longer
 * than in a test that starts all ranks together. The skew says how late each rank is behind the
 * earliest, anew in every layer, from the seed. */
#ifndef SIM_SKEW_H
#define SIM_SKEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sim_skew_kind { SIM_SKEW_NONE, SIM_SKEW_NORMAL, SIM_SKEW_LATE };

struct sim_skew {
    enum sim_skew_kind kind;
    uint32_t rank; /* LATE: which. */
    uint64_t ps;   /* NORMAL: standard deviation; LATE: how late. */
};

enum { SIM_SKEW_US_MAX = 1000000 };

/* "none", "normal:US" or "late:RANK:US", US with decimals. 0, or -1 with err, naming --skew. */
int sim_skew_parse(const char *text, uint32_t ranks, struct sim_skew *skew, char *err,
                   size_t err_len);

/* "90", "12.5": microseconds to picoseconds, at most SIM_SKEW_US_MAX. 0, or -1. */
int sim_skew_parse_us(const char *text, uint64_t *ps);

/* Add each rank's lateness in (step, layer) to start_ps [ranks]. Of NORMAL the earliest rank's is
 * 0: deviates are twelve uniforms less six, cut at six standard deviations. */
void sim_skew_add(const struct sim_skew *skew, uint64_t seed, uint64_t step, uint32_t layer,
                  uint32_t ranks, uint64_t *start_ps);

#ifdef __cplusplus
}
#endif

#endif
