/* sim/ll_queue.h - what waits at a sending NIC: it serves its queue pairs in turn.
 *
 * One list per destination, each in the order in which its doorbells came; after an entry for one
 * rank the NIC takes one for the next rank that has any, beginning behind its own. Were all served
 * in the order of doorbells, which kernels ring by expert, then every sender would turn to the same
 * few ranks at once, and the last ones would starve. For sim/ll*.c alone. */
#ifndef SIM_LL_QUEUE_H
#define SIM_LL_QUEUE_H

#include <assert.h>
#include <stdint.h>

#define LL_NONE UINT32_MAX

struct ll_queue {
    uint32_t *first; /* [ranks] by destination; borrowed. */
    uint32_t **last; /* [ranks]: where its next entry is written; borrowed. */
    uint32_t *next;  /* [entries]; borrowed. An entry is the caller's number. */
    uint32_t ranks;
    uint32_t peer; /* Last served. */
    uint32_t waiting;
};

/* Empty it; rank is the NIC's own. The arrays are set. */
static inline void ll_queue_clear(struct ll_queue *queue, uint32_t rank)
{
    assert(rank < queue->ranks);
    for (uint32_t p = 0; p < queue->ranks; p++) {
        queue->first[p] = LL_NONE;
        queue->last[p] = &queue->first[p];
    }
    queue->peer = rank;
    queue->waiting = 0;
}

static inline void ll_queue_push(struct ll_queue *queue, uint32_t peer, uint32_t entry)
{
    assert(peer < queue->ranks && entry != LL_NONE);
    queue->next[entry] = LL_NONE;
    *queue->last[peer] = entry;
    queue->last[peer] = &queue->next[entry];
    queue->waiting++;
}

static inline uint32_t ll_queue_pop(struct ll_queue *queue)
{
    assert(queue->waiting > 0);
    uint32_t peer = queue->peer;
    do peer = peer + 1 == queue->ranks ? 0 : peer + 1;
    while (queue->first[peer] == LL_NONE);
    const uint32_t entry = queue->first[peer], follows = queue->next[entry];
    queue->first[peer] = follows;
    queue->last[peer] = follows == LL_NONE ? &queue->first[peer] : queue->last[peer];
    queue->peer = peer;
    queue->waiting--;
    return entry;
}

#endif
