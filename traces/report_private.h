/* traces/report_private.h - the sections of a report, and what they share. */
#ifndef TRACES_REPORT_PRIVATE_H
#define TRACES_REPORT_PRIVATE_H

#include "traces/db_cursor.h"
#include "traces/html.h"
#include "traces/report.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REPORT_OPS_MAX = 32, REPORT_COLOURS = 8 };

struct report {
    struct trace_reader *reader;
    struct trace_html html;
    int64_t step, layer;                   /* Of the timeline; -1 where there are no spans. */
    struct trace_name ops[REPORT_OPS_MAX]; /* In the order of their first start: colours. */
    uint32_t op_count;
    char *err;
    size_t err_len;
};

/* The colour class of an operation, 0 to REPORT_COLOURS - 1. */
uint32_t report_colour(const struct report *report, const struct trace_name *op);
void report_legend(struct report *report);

/* What a table shows: a query for trace_cursor_open, and trace_html_table's columns. */
struct report_query {
    const char *table, *sql, *columns;
};
/* Put one row, or leave it out. 0, or -1 with err. */
typedef int (*report_row_fn)(struct report *report, const struct trace_cursor *cursor,
                             void *context);
/* A table of what the query finds, put_row called for each row; no table where there is none. *any
 * (may be NULL): was there one? 0, or -1 with err. */
int report_table(struct report *report, const struct report_query *query, report_row_fn put_row,
                 void *context, bool *any);
/* Columns [first, first + count) of the row: whole numbers; or names, put into a cell each. */
int report_numbers(const struct trace_cursor *cursor, int first, int count, uint64_t *numbers);
void report_names(struct report *report, const struct trace_cursor *cursor, int first, int count);

/* The sections. 0, or -1 with err: the run is broken. */
int report_times(struct report *report);       /* By operation, and layer by layer. */
int report_timeline(struct report *report);    /* Of one layer. */
int report_attribution(struct report *report); /* Where predicted time went, if recorded. */
int report_waits(struct report *report);
int report_links(struct report *report);
int report_bytes(struct report *report);
int report_experts(struct report *report);
int report_checks(struct report *report);
int report_settings(struct report *report);
int report_against(struct report *report, struct trace_reader *other);

#ifdef __cplusplus
}
#endif

#endif
