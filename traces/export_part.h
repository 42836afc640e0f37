/* traces/export_part.h - which steps and layers of a run an export holds.
 *
 * A viewer loads a document whole, and a long run has gigabytes of them. So an export holds the
 * steps that were chosen, or else as much from the run's beginning as a viewer takes at ease. */
#ifndef TRACES_EXPORT_PART_H
#define TRACES_EXPORT_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/db_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows (of span, message and resource_use) without a choice: some 40 MB of JSON. */
#define TRACE_EXPORT_ROWS UINT64_C(200000)

struct trace_export_choice {
    int64_t first_step, last_step; /* Inclusive, and whole; last below first: not chosen. */
    uint64_t rows_max;             /* Where no steps are chosen; 0 = no limit. */
};

struct trace_export_part {
    int64_t first_step, last_step; /* Inclusive; all that the run has lies in 0..INT64_MAX. */
    /* The first step and layer behind the limit: they and all later ones are left out. Layer -1:
     * the whole step. INT64_MAX, -1 where nothing is. */
    int64_t end_step, end_layer;
};

/* Find the part. The first layer is always in it, however many rows it has. 0; -1 with err: the run
 * has no spans, or none in the steps chosen. */
int trace_export_part_find(struct trace_reader *reader, const struct trace_export_choice *choice,
                           struct trace_export_part *part, char *err, size_t err_len);

static inline bool trace_export_part_cut(const struct trace_export_part *part)
{
    return part->end_step != INT64_MAX;
}

/* "step 12, layer 3": where what is left out begins. Returns text. */
const char *trace_export_part_end(const struct trace_export_part *part, char text[64]);

#ifdef __cplusplus
}
#endif

#endif
