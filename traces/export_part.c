/* traces/export_part.c - how much of a run is exported: counts rows by layer until there are
 * enough. */
#include "traces/export_part.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "traces/db_cursor.h"
#include "traces/text.h"

/* The first and last step with spans. */
static int find_steps(struct trace_reader *reader, int64_t *first, int64_t *last, char *err,
                      size_t err_len)
{
    struct trace_cursor cursor;
    int status = trace_cursor_open(&cursor, reader, "span",
                                   "SELECT min(step), max(step) FROM span WHERE run = ?1 "
                                   "HAVING count(*) > 0",
                                   err, err_len);
    if (status == 0 && cursor.ended)
        status =
            trace_fail(err, err_len,
                       "%s#%" PRIu64 ": has no spans: record the run with detail span or message",
                       trace_reader_path(reader), trace_reader_run(reader)->run);
    *first = cursor.step;
    *last = cursor.layer; /* The second column. */
    trace_cursor_close(&cursor);
    return status;
}

static int find_end(struct trace_reader *reader, uint64_t rows_max, struct trace_export_part *part,
                    char *err, size_t err_len)
{
    struct trace_cursor cursor;
    uint64_t rows = 0;
    int64_t step = -1;
    int status = trace_cursor_open(
        &cursor, reader, "span",
        "SELECT step, layer, sum(n) FROM ("
        "SELECT step, layer, count(*) AS n FROM span WHERE run = ?1 GROUP BY 1, 2 UNION ALL "
        "SELECT step, layer, count(*) FROM message WHERE run = ?1 GROUP BY 1, 2 UNION ALL "
        "SELECT step, layer, count(*) FROM resource_use WHERE run = ?1 GROUP BY 1, 2) "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        err, err_len);
    while (status == 0 && !cursor.ended) {
        uint64_t more = 0;
        status = trace_cursor_number(&cursor, 2, INT64_MAX, &more);
        if (status == 0 && rows > 0 && rows + more > rows_max) {
            part->end_step = cursor.step;
            part->end_layer = cursor.step == step ? cursor.layer : -1;
            break;
        }
        rows += more;
        step = cursor.step;
        if (status == 0) status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    return status;
}

int trace_export_part_find(struct trace_reader *reader, const struct trace_export_choice *choice,
                           struct trace_export_part *part, char *err, size_t err_len)
{
    struct trace_export_part made = {0, INT64_MAX, INT64_MAX, -1};
    int64_t first = 0, last = 0;

    assert(choice->first_step >= 0);
    if (find_steps(reader, &first, &last, err, err_len) != 0) return -1;
    if (choice->last_step >= choice->first_step) {
        if (choice->first_step > last || choice->last_step < first)
            return trace_fail(
                err, err_len,
                "%s#%" PRIu64 ": spans of steps %" PRId64 " to %" PRId64 ", none of those chosen",
                trace_reader_path(reader), trace_reader_run(reader)->run, first, last);
        made.first_step = choice->first_step;
        made.last_step = choice->last_step;
    } else if (choice->rows_max > 0 &&
               find_end(reader, choice->rows_max, &made, err, err_len) != 0) {
        return -1;
    }
    *part = made;
    return 0;
}

const char *trace_export_part_end(const struct trace_export_part *part, char text[64])
{
    assert(trace_export_part_cut(part));
    if (part->end_layer < 0)
        snprintf(text, 64, "step %" PRId64, part->end_step);
    else
        snprintf(text, 64, "step %" PRId64 ", layer %" PRId64, part->end_step, part->end_layer);
    return text;
}
