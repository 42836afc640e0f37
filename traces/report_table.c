/* traces/report_table.c - a section's table: a heading, and what a query finds, row by row. */
#include "traces/report_private.h"

#include <assert.h>

int report_table(struct report *report, const struct report_query *query, report_row_fn put_row,
                 void *context, bool *any)
{
    struct trace_cursor cursor;
    int status = trace_cursor_open(&cursor, report->reader, query->table, query->sql, report->err,
                                   report->err_len);
    const bool found = status == 0 && !cursor.ended;

    if (found) trace_html_table(&report->html, query->columns);
    while (status == 0 && !cursor.ended) {
        status = put_row(report, &cursor, context);
        if (status == 0) status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    if (found) trace_html_table_end(&report->html);
    if (any != NULL) *any = found;
    return status;
}

int report_numbers(const struct trace_cursor *cursor, int first, int count, uint64_t *numbers)
{
    assert(count > 0);
    for (int i = 0; i < count; i++)
        if (trace_cursor_number(cursor, first + i, INT64_MAX, &numbers[i]) != 0) return -1;
    return 0;
}

void report_names(struct report *report, const struct trace_cursor *cursor, int first, int count)
{
    for (int i = first; i < first + count; i++)
        trace_html_text_cell(&report->html, trace_cursor_name(cursor, i).text);
}
