/* fabric/use.h - what a resource did: the figures every server in fabric/ keeps of itself.
 *
 * Kept by the server as it answers, read by whoever reports (table resource_use). */
#ifndef FABRIC_USE_H
#define FABRIC_USE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_use {
    uint64_t busy_ps;    /* Time spent serving; for a pool, summed over its servers. */
    uint64_t bytes;      /* Bytes served. */
    uint64_t stall_ps;   /* Time requests waited before being served, summed over requests. */
    uint64_t queue_peak; /* Most requests waiting at once. */
};

/* The start times of requests that wait, oldest first, so that queue_peak is exact. The storage
 * is the caller's and outlives the server; peaks beyond its capacity read as the capacity.
 * A zeroed struct tracks nothing and leaves queue_peak 0. */
struct fabric_waiting {
    uint64_t *start_ps; /* Ring [capacity], borrowed. */
    uint32_t capacity;
    uint32_t oldest, count;
};

/* Nobody waits. start_ps: [capacity], borrowed for as long as waiting is used. */
void fabric_waiting_init(struct fabric_waiting *waiting, uint64_t *start_ps, uint32_t capacity);

/* A request made at now_ps will be served from start_ps on; both never fall from call to call. */
void fabric_waiting_add(struct fabric_waiting *waiting, struct fabric_use *use, uint64_t now_ps,
                        uint64_t start_ps);

#ifdef __cplusplus
}
#endif

#endif
