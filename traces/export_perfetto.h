/* traces/export_perfetto.h - a recorded run as trace events, for Perfetto and chrome://tracing.
 *
 * One JSON document in the Trace Event Format. A process per rank and in it a track per stream
 * with a slice per span; a flow from the sender's slice to the receiver's for every message
 * between two ranks. Counters of links and NICs: the mean rate and the busy share during each
 * operation, from its first rank's start to its last one's end (resource_use says no more), and
 * the bytes in flight, from message. One process more, "run", has the steps.
 *
 * Times are microseconds with three decimals, both ends of a slice rounded down to the same
 * nanosecond grid, so neighbours touch and never overlap; the picoseconds stand in the
 * arguments. Rows go from the database to the file in order: memory holds one layer's spans. */
#ifndef TRACES_EXPORT_PERFETTO_H
#define TRACES_EXPORT_PERFETTO_H

#include <stddef.h>
#include <stdint.h>
#include "traces/db_read.h"
#include "traces/export_part.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_perfetto_counts {
    uint64_t spans;
    uint64_t counters; /* Counter values. */
    uint64_t flows;    /* Pairs. */
    struct trace_export_part part;
    uint64_t
        flows_skipped; /* Messages that leave outside of their rank's span, or land behind it. */
};

/* Write the chosen part of the reader's run to path, replaced by rename. 0; -1 with err when the
 * run cannot be shown (broken, recorded without spans, or none in the steps chosen); -2 with err
 * when the file cannot be written. */
int trace_export_perfetto(struct trace_reader *reader, const struct trace_export_choice *choice,
                          const char *path, struct trace_perfetto_counts *counts, char *err,
                          size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
