/* fabric/share.h - a server that splits its rate evenly over the streams it has.
 *
 * A job is some streams of equal length, usually warps of one block; every stream gets
 * min(stream rate, capacity / streams) at every instant (processor sharing, one cap for all).
 * It stands for hardware that arbitrates packet by packet: the NVLink port of a GPU, the
 * memory behind a copy by many SMs. Warps that start together end together here, where a
 * queue would spread them out; low-latency dispatch shows the former.
 *
 * The state is one virtual clock, the work done for each stream since the server was last idle,
 * so a job that leaves costs nothing, and one that arrives only passes those that end later: few,
 * as jobs are much alike. Owns no clock and no queue: the caller says what time it is, never
 * going back. Jobs with equal ends leave in order of arrival. */
#ifndef FABRIC_SHARE_H
#define FABRIC_SHARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

__extension__ typedef unsigned __int128 fabric_u128;

struct fabric_share_job {
    fabric_u128 end; /* Value of the virtual clock at which it is done. */
    uint32_t id;     /* The caller's. */
    uint32_t streams;
};

struct fabric_share {
    uint64_t capacity_bytes_per_s;
    uint64_t stream_bytes_per_s;
    uint64_t unshared;         /* So many streams have their whole rate. */
    uint64_t rate_bytes_per_s; /* Of a stream now, while there are any. */
    uint64_t now_ps;
    fabric_u128 served; /* Bytes x 10^12 done for every stream since the server was idle. */
    uint64_t streams;   /* Of all jobs. */
    uint32_t first, count, max;
    struct fabric_share_job *jobs; /* Sorted by end from first on; borrowed, [max]. */
};

/* Rates above 0. jobs must outlive the server. */
void fabric_share_init(struct fabric_share *share, uint64_t capacity_bytes_per_s,
                       uint64_t stream_bytes_per_s, struct fabric_share_job *jobs, uint32_t max);

/* One more job from now on: streams > 0 of bytes > 0 each. At most max jobs at once. */
void fabric_share_add(struct fabric_share *share, uint64_t now_ps, uint32_t id, uint32_t streams,
                      uint64_t bytes);

/* When the next job is done if none arrives before; UINT64_MAX when there is none. */
uint64_t fabric_share_next_ps(const struct fabric_share *share);

/* Take one job that is done by now: 1 and its id, or 0. */
int fabric_share_take(struct fabric_share *share, uint64_t now_ps, uint32_t *id);

/* Both, for who lets the server run: if none arrives before, take the next job that is done by
 * until_ps and say when, which is now from then on; UINT64_MAX, and nothing changes, when there is
 * none. */
uint64_t fabric_share_pop(struct fabric_share *share, uint64_t until_ps, uint32_t *id);

#ifdef __cplusplus
}
#endif

#endif
