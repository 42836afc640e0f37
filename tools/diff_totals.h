/* tools/diff_totals.h - two runs side by side: settings, and times by stage, resource and part. */
#ifndef TOOLS_DIFF_TOTALS_H
#define TOOLS_DIFF_TOTALS_H

#include <jansson.h>
#include "traces/db_read.h"

/* Both runs' figures, to be printed either way. */
struct diff_totals {
    struct {
        struct trace_total *rows[2]; /* Owned. */
        size_t count[2];
    } kinds[3];          /* enum trace_totals */
    json_t *settings[2]; /* Owned; what each run recorded. */
};

/* 0, or -1 with err: a database that cannot be read. Close it either way. */
int diff_totals_open(struct trace_reader *readers[2], struct diff_totals *totals, char *err,
                     size_t err_len);
void diff_totals_close(struct diff_totals *totals);

void diff_totals_print(const struct diff_totals *totals);
/* Keys settings, stages, resources and parts, added to document. */
void diff_totals_json(const struct diff_totals *totals, json_t *document);

#endif
