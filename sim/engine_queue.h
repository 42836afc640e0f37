/* sim/engine_queue.h - the event queue inside the engine; only sim/engine.c includes it.
 *
 * Nothing is scheduled in the past, so the queue hardly compares. A time is read as six digits;
 * an event waits at the level of the highest digit in which its time differs from the queue's
 * position, in the slot of that digit:
 *
 *     level     5       4        3        2        1        0
 *     bits   63..58   57..46   45..34   33..22   21..10    9..0
 *     a slot    -       -      17 ms    4.2 us   1 ns     1 ps wide
 *
 * The earliest event is in the first used slot of the lowest used level. A long list is dealt
 * to lower levels; short lists of level 1 are sorted on the spot. Either way the next few events
 * end up in a small array, due[], and the position moves to the last of them. Popping is a step
 * through due[]; since that needs nothing a schedule just wrote, the processor overlaps the two.
 *
 * An event scheduled at or after the position joins its list. One before it is inserted into
 * due[], or, where due[] is full, into a heap beside it, so a burst costs a heap at worst.
 *
 * Why equal times pop in the order of their sequence: lists are first in first out and dealt in
 * order; an event that joins a list comes later than all dealt to it before; an event at the
 * position's own time joins a list and so pops after due[]; insertion passes over equals; the
 * heap compares sequences. */
#ifndef SIM_ENGINE_QUEUE_H
#define SIM_ENGINE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIM_QUEUE_LEVELS = 6,
    SIM_QUEUE_SLOTS = 4096, /* Of a level, at most. */
    SIM_QUEUE_WORDS = SIM_QUEUE_SLOTS / 64,
    SIM_QUEUE_DUE = 64,
    SIM_QUEUE_KIND_BITS = 16
};
#define SIM_QUEUE_NONE UINT32_MAX /* No node. */

struct sim_queue_node { /* A pending event. */
    uint64_t time_ps;
    uint64_t payload;
    uint64_t sequence_kind; /* sequence << SIM_QUEUE_KIND_BITS | kind. */
    uint32_t target;
    uint32_t next; /* In its list, or in the list of free nodes. */
};

struct sim_queue_list { /* Indices of nodes. */
    uint32_t head, tail;
};

struct sim_queue_level {
    uint64_t used_words;             /* Bit w: words[w] is not 0. */
    uint64_t words[SIM_QUEUE_WORDS]; /* Bit s % 64 of word s / 64: slot s holds events. */
    struct sim_queue_list slots[SIM_QUEUE_SLOTS]; /* Stale where its bit is 0. */
};

struct sim_queue_due {
    uint64_t time_ps;
    uint32_t index;
};

struct sim_queue {
    uint32_t due_head, due_end; /* due[head..end) pops next, sorted by (time, sequence). */
    struct sim_queue_due due[SIM_QUEUE_DUE];
    struct sim_queue_due *heap; /* Events before the position that found due[] full. */
    uint32_t heap_count, heap_capacity;
    uint32_t used_levels; /* Bit l: levels[l].used_words is not 0. */
    uint64_t position_ps; /* Time of the last event moved to due[]: lists hold no earlier one. */
    struct sim_queue_node *nodes;
    uint32_t capacity;  /* Of nodes. */
    uint32_t fresh;     /* Nodes from here on were never used since reset. */
    uint32_t free_head; /* Nodes to use again. */
    int out_of_memory;
    struct sim_queue_level levels[SIM_QUEUE_LEVELS];
};

/* Room for capacity events, which grows on demand. 0, or -1 when memory is short. */
int sim_queue_open(struct sim_queue *queue, uint32_t capacity);
void sim_queue_close(struct sim_queue *queue);
void sim_queue_reset(struct sim_queue *queue); /* Forget every event; back to position 0. */

/* The slow ways of the two functions below. */
void sim_queue_add_fresh(struct sim_queue *queue, uint64_t time_ps, uint64_t payload,
                         uint64_t sequence_kind, uint32_t target);
void sim_queue_place(struct sim_queue *queue, uint32_t index, uint64_t position_ps);
void sim_queue_insert(struct sim_queue *queue, uint32_t index);
int sim_queue_refill(struct sim_queue *queue); /* 0: the queue is empty. */
struct sim_queue_due sim_queue_take_either(struct sim_queue *queue);

/* Add an event at or after the last time taken. Without memory it is dropped, and out_of_memory
 * set. */
static inline void sim_queue_add(struct sim_queue *queue, uint64_t time_ps, uint64_t payload,
                                 uint64_t sequence_kind, uint32_t target)
{
    const uint32_t index = queue->free_head;
    if (index == SIM_QUEUE_NONE) {
        sim_queue_add_fresh(queue, time_ps, payload, sequence_kind, target);
        return;
    }
    struct sim_queue_node *node = &queue->nodes[index];
    queue->free_head = node->next;
    node->time_ps = time_ps;
    node->payload = payload;
    node->sequence_kind = sequence_kind;
    node->target = target;
    if (time_ps < queue->position_ps)
        sim_queue_insert(queue, index);
    else
        sim_queue_place(queue, index, queue->position_ps);
}

/* Take the earliest event; 0 when there is none. Its node stays readable until the next add. */
static inline int sim_queue_take(struct sim_queue *queue, struct sim_queue_due *due)
{
    if (queue->heap_count > 0) {
        *due = sim_queue_take_either(queue);
    } else {
        if (queue->due_head == queue->due_end && !sim_queue_refill(queue)) return 0;
        *due = queue->due[queue->due_head++];
    }
    queue->nodes[due->index].next = queue->free_head;
    queue->free_head = due->index;
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif
