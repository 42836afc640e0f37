/* sim/engine.c - the clock and the loop over the event queue. */
#include "sim/engine.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim/engine_queue.h"

enum { PENDING_MIN = 64 };
#define SEQUENCE_MAX (UINT64_MAX >> SIM_QUEUE_KIND_BITS)
_Static_assert(SIM_EVENT_KIND_MAX < 1 << SIM_QUEUE_KIND_BITS, "a kind fits");

struct sim_engine {
    uint64_t now_ps; /* Time of the last popped event. */
    uint64_t sequence, handled, digest;
    struct sim_queue queue;
};

struct sim_engine *sim_engine_open(size_t pending_max, char *err, size_t err_len)
{
    const size_t wanted = pending_max < PENDING_MIN ? PENDING_MIN : pending_max;
    const uint32_t capacity = wanted < UINT32_MAX ? (uint32_t)wanted : UINT32_MAX;
    struct sim_engine *engine = (struct sim_engine *)calloc(1, sizeof *engine);
    if (engine && sim_queue_open(&engine->queue, capacity) == 0) return engine;
    snprintf(err, err_len, "engine: no memory for %zu pending events", wanted);
    free(engine);
    return NULL;
}

void sim_engine_close(struct sim_engine *engine)
{
    if (!engine) return;
    sim_queue_close(&engine->queue);
    free(engine);
}

void sim_engine_reset(struct sim_engine *engine)
{
    sim_queue_reset(&engine->queue);
    engine->now_ps = engine->sequence = engine->handled = engine->digest = 0;
}

void sim_engine_schedule(struct sim_engine *engine, uint64_t time_ps, uint32_t kind,
                         uint32_t target, uint64_t payload)
{
    assert(time_ps >= engine->now_ps);
    assert(kind <= SIM_EVENT_KIND_MAX && engine->sequence < SEQUENCE_MAX);
    sim_queue_add(&engine->queue, time_ps, payload,
                  engine->sequence++ << SIM_QUEUE_KIND_BITS | kind, target);
}

int sim_engine_pop(struct sim_engine *engine, struct sim_event *event)
{
    struct sim_queue_due due;
    if (!sim_queue_take(&engine->queue, &due)) return 0;
    const struct sim_queue_node *node = &engine->queue.nodes[due.index];
    event->time_ps = due.time_ps;
    event->sequence = node->sequence_kind >> SIM_QUEUE_KIND_BITS;
    event->kind = (uint32_t)(node->sequence_kind & SIM_EVENT_KIND_MAX);
    event->target = node->target;
    event->payload = node->payload;

    assert(event->time_ps >= engine->now_ps);
    engine->now_ps = event->time_ps;
    engine->handled++;
    engine->digest = (engine->digest ^ event->time_ps) * UINT64_C(0x9e3779b97f4a7c15);
    engine->digest ^= engine->digest >> 29;
    return 1;
}

int sim_engine_run(struct sim_engine *engine, sim_event_fn handler, void *model, char *err,
                   size_t err_len)
{
    struct sim_event event;
    const struct sim_queue *queue = &engine->queue;
    while (!queue->out_of_memory && sim_engine_pop(engine, &event)) handler(model, engine, &event);
    if (!queue->out_of_memory) return 0;
    snprintf(err, err_len, "engine: no memory for more than %u pending events", queue->capacity);
    return -1;
}

uint64_t sim_engine_now_ps(const struct sim_engine *engine)
{
    return engine->now_ps;
}

uint64_t sim_engine_event_count(const struct sim_engine *engine)
{
    return engine->handled;
}

uint64_t sim_engine_digest(const struct sim_engine *engine)
{
    return engine->digest;
}
