/* fabric/sm_pool.h - k equal servers: the SMs that a kernel's blocks run on.
 *
 * Work goes to the server that is free first, the lowest index where several are, so the same
 * calls always give the same places. A partition of a GPU (communication against compute SMs)
 * is two pools. */
#ifndef FABRIC_SM_POOL_H
#define FABRIC_SM_POOL_H

#include <stdint.h>
#include "fabric/use.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_sm {
    uint64_t free_ps; /* Free from here on. */
    uint32_t index;
};

struct fabric_sm_pool {
    struct fabric_sm *heap; /* [count], borrowed: least (free_ps, index) first. */
    uint32_t count;
    struct fabric_use use; /* busy_ps sums the servers; bytes stays 0. */
    struct fabric_waiting waiting;
};

struct fabric_run {
    uint32_t sm; /* Index of the server, below count. */
    uint64_t start_ps;
    uint64_t end_ps;
};

/* All free from free_ps on. storage[count] outlives the pool; count is at least 1. */
void fabric_sm_pool_init(struct fabric_sm_pool *pool, struct fabric_sm *storage, uint32_t count,
                         uint64_t free_ps);

/* Run work of duration_ps, wanted at now_ps, on the server free first. In event order. */
struct fabric_run fabric_sm_pool_run(struct fabric_sm_pool *pool, uint64_t now_ps,
                                     uint64_t duration_ps);

/* When the first server, and when every one, has nothing left to do. */
uint64_t fabric_sm_pool_first_free_ps(const struct fabric_sm_pool *pool);
uint64_t fabric_sm_pool_all_free_ps(const struct fabric_sm_pool *pool); /* O(count). */

#ifdef __cplusplus
}
#endif

#endif
