/* traces/report.h - a recorded run as one HTML page.
 *
 * Self-contained: style and drawings are inside, no script, nothing is fetched. It reads on a
 * phone (wide drawings scroll in place) and prints. What a run did not record is left out, with a
 * sentence on how to record it. */
#ifndef TRACES_REPORT_H
#define TRACES_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include "traces/db_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_report_choice { /* What the page shows beside the whole run. */
    int64_t step, layer;     /* Of the timeline; -1: the slowest layer of the run (of the step). */
    struct trace_reader *against; /* Another run to stand beside it, or NULL. Borrowed. */
};

/* Write the reader's run to path, replaced by rename. 0; -1 with err when the run cannot be shown
 * (broken, or it has no such step or layer); -2 with err when the file cannot be written. */
int trace_report(struct trace_reader *reader, const struct trace_report_choice *choice,
                 const char *path, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
