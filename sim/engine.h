/* sim/engine.h - the clock: a queue of events ordered by (time, sequence).
 *
 * Two events at one instant run in the order in which they were scheduled, whatever the
 * queue's insides, so a run is a function of its inputs alone. The engine knows nothing of
 * what an event means: it hands the event to one handler, which switches on kind. Memory is
 * taken at open and grows only when a run schedules more events than any before it.
 * One engine per thread; no globals. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stddef.h>
#include <stdint.h>

enum { SIM_EVENT_KIND_MAX = 65535 };

struct sim_event {
    uint64_t time_ps;
    uint64_t sequence; /* Set by the engine: the n-th event scheduled since open or reset. */
    uint32_t kind;     /* The protocol's own enumeration, 0..SIM_EVENT_KIND_MAX. */
    uint32_t target;   /* Whatever kind says: a rank, a block, a link. */
    uint64_t payload;  /* Whatever kind says: a message index, a byte count. */
};

struct sim_engine;

/* Handles one event; may schedule others at or after event->time_ps. */
typedef void (*sim_event_fn)(void *model, struct sim_engine *engine, const struct sim_event *event);

/* NULL and a line in err when memory is short. pending_max is a hint, not a limit. */
struct sim_engine *sim_engine_open(size_t pending_max, char *err, size_t err_len);
void sim_engine_close(struct sim_engine *engine); /* NULL is fine. */

/* Forget every event and start again at time 0, sequence 0, digest 0. */
void sim_engine_reset(struct sim_engine *engine);

/* time_ps must not lie before the event being handled (asserted). Out of memory is reported
 * by sim_engine_run. */
void sim_engine_schedule(struct sim_engine *engine, uint64_t time_ps, uint32_t kind,
                         uint32_t target, uint64_t payload);

/* Pop the earliest event into *event; 0 when none is left, else 1. For callers that do not
 * want a handler (the hold benchmark, the order test). */
int sim_engine_pop(struct sim_engine *engine, struct sim_event *event);

/* Handle events until none is left. 0, or -1 with err when the queue could not grow. */
int sim_engine_run(struct sim_engine *engine, sim_event_fn handler, void *model, char *err,
                   size_t err_len);

/* Time of the event being handled, or of the last one; 0 after reset. */
uint64_t sim_engine_now_ps(const struct sim_engine *engine);
uint64_t sim_engine_event_count(const struct sim_engine *engine); /* Handled since reset. */
uint64_t
sim_engine_digest(const struct sim_engine *engine); /* Over every handled time, in order. */

#endif
