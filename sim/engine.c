/* sim/engine.c - a binary heap of events and the loop over it. */
#include "sim/engine.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct sim_engine {
    struct sim_event *heap; /* Children of i are 2i + 1 and 2i + 2. */
    size_t count, capacity;
    uint64_t now_ps, sequence, handled, digest;
    int out_of_memory;
};

static int before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time_ps != b->time_ps ? a->time_ps < b->time_ps : a->sequence < b->sequence;
}

struct sim_engine *sim_engine_open(size_t pending_max, char *err, size_t err_len)
{
    struct sim_engine *engine = (struct sim_engine *)calloc(1, sizeof *engine);
    const size_t capacity = pending_max < 64 ? 64 : pending_max;
    struct sim_event *heap = (struct sim_event *)calloc(capacity, sizeof *heap);
    if (!engine || !heap) {
        snprintf(err, err_len, "engine: no memory for %zu pending events", capacity);
        free(engine);
        free(heap);
        return NULL;
    }
    engine->heap = heap;
    engine->capacity = capacity;
    return engine;
}

void sim_engine_close(struct sim_engine *engine)
{
    if (!engine) return;
    free(engine->heap);
    free(engine);
}

void sim_engine_reset(struct sim_engine *engine)
{
    engine->count = 0;
    engine->now_ps = engine->sequence = engine->handled = engine->digest = 0;
    engine->out_of_memory = 0;
}

static int grow(struct sim_engine *engine)
{
    struct sim_event *heap =
        (struct sim_event *)realloc(engine->heap, 2 * engine->capacity * sizeof *heap);
    if (!heap) return -1;
    engine->heap = heap;
    engine->capacity *= 2;
    return 0;
}

void sim_engine_schedule(struct sim_engine *engine, uint64_t time_ps, uint32_t kind,
                         uint32_t target, uint64_t payload)
{
    assert(time_ps >= engine->now_ps);
    if (engine->count == engine->capacity && grow(engine) != 0) {
        engine->out_of_memory = 1;
        return;
    }
    const struct sim_event event = {time_ps, engine->sequence++, kind, target, payload};
    size_t i = engine->count++;
    while (i > 0 && before(&event, &engine->heap[(i - 1) / 2])) {
        engine->heap[i] = engine->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    engine->heap[i] = event;
}

int sim_engine_pop(struct sim_engine *engine, struct sim_event *event)
{
    if (engine->count == 0) return 0;
    *event = engine->heap[0];
    const struct sim_event last = engine->heap[--engine->count];
    size_t i = 0;
    for (size_t child = 1; child < engine->count; child = 2 * i + 1) {
        if (child + 1 < engine->count && before(&engine->heap[child + 1], &engine->heap[child]))
            child++;
        if (!before(&engine->heap[child], &last)) break;
        engine->heap[i] = engine->heap[child];
        i = child;
    }
    engine->heap[i] = last;
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
    while (sim_engine_pop(engine, &event) && !engine->out_of_memory) handler(model, engine, &event);
    if (!engine->out_of_memory) return 0;
    snprintf(err, err_len, "engine: no memory for more than %zu pending events", engine->capacity);
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
