/* traces/events.h - trace events as JSON, one at a time (Trace Event Format, which Perfetto and
 * chrome://tracing read).
 *
 * Knows the format and nothing of a run. A failure to write is kept: later events are dropped,
 * and trace_events_end tells. Times are given in picoseconds and written as microseconds with
 * three decimals, rounded down to whole nanoseconds, so slices that touch still touch. */
#ifndef TRACES_EVENTS_H
#define TRACES_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_NAME_BYTES = 40 };

/* A name out of a file that nobody should trust, ready to stand between quotes: printable ASCII
 * without quotes and backslashes; '?' in place of others, cut where it is long. */
struct trace_name {
    char text[TRACE_NAME_BYTES];
};
struct trace_name trace_name_clean(const unsigned char *text); /* NULL gives "". */
bool trace_name_same(const struct trace_name *a, const struct trace_name *b);

struct trace_events {
    struct trace_output *output; /* Borrowed. */
    bool first;
    bool failed;
    char *err; /* Borrowed: says how it failed. */
    size_t err_len;
};

/* Start and end the document. metadata: the inside of an object, may be "". end: 0 or -1. */
void trace_events_begin(struct trace_events *events, struct trace_output *output, char *err,
                        size_t err_len);
int trace_events_end(struct trace_events *events, const char *metadata);

void trace_events_process(struct trace_events *events, uint32_t process, const char *name,
                          int64_t sort_index);
void trace_events_thread(struct trace_events *events, uint32_t process, uint32_t thread,
                         const char *name);

/* arguments: the inside of an object. */
void trace_events_slice(struct trace_events *events, uint32_t process, uint32_t thread,
                        const char *name, const char *category, uint64_t start_ps, uint64_t end_ps,
                        const char *arguments);

/* The value of the counter "NAME UNIT" from now on. */
void trace_events_counter(struct trace_events *events, uint32_t process, const char *name,
                          const char *unit, uint64_t at_ps, double value);

/* An arrow from the slice around from_ps on one track to the slice around to_ps on another. */
struct trace_flow_end {
    uint32_t process, thread;
    uint64_t at_ps;
};
void trace_events_flow(struct trace_events *events, uint64_t id, const char *name,
                       const char *category, const struct trace_flow_end *from,
                       const struct trace_flow_end *to, const char *arguments);

#ifdef __cplusplus
}
#endif

#endif
