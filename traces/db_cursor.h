/* traces/db_cursor.h - rows of a run that go elsewhere, one at a time and none trusted.
 *
 * For exporters: a query of one table in the order of step and layer, so that several of them can
 * be walked side by side. */
#ifndef TRACES_DB_CURSOR_H
#define TRACES_DB_CURSOR_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/db_read.h"
#include "traces/events.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_CURSOR_RANKS_MAX = 65536 };

struct trace_cursor {
    struct trace_reader *reader; /* Borrowed. */
    const char *table;           /* Stands in errors. */
    sqlite3_stmt *statement;
    bool ended;
    int64_t step, layer; /* Of the row it stands on; layer -1: NULL, the whole step. */
    char *err;           /* Borrowed: where every function that returns -1 has said why. */
    size_t err_len;
};

/* Stand on the first row of what sql finds, with the run's number for ?1. Its first two columns
 * are step and layer. 0 or -1; close it in either case. */
int trace_cursor_open(struct trace_cursor *cursor, struct trace_reader *reader, const char *table,
                      const char *sql, char *err, size_t err_len);
/* The same, with more numbers for ?2 and so on. */
int trace_cursor_open_with(struct trace_cursor *cursor, struct trace_reader *reader,
                           const char *table, const char *sql, const int64_t *more, int count,
                           char *err, size_t err_len);
void trace_cursor_close(struct trace_cursor *cursor); /* Safe on a zeroed struct. */

int trace_cursor_advance(struct trace_cursor *cursor); /* It must not have ended. */

/* Does it stand on a row of this step and layer? */
bool trace_cursor_stands_on(const struct trace_cursor *cursor, int64_t step, int64_t layer);

/* Column i: a whole number from 0 to max; a rank; with the next column, the first and last
 * instant of something; a name. */
int trace_cursor_number(const struct trace_cursor *cursor, int i, uint64_t max, uint64_t *out);
int trace_cursor_rank(const struct trace_cursor *cursor, int i, uint32_t *out);
int trace_cursor_times(const struct trace_cursor *cursor, int i, uint64_t *start_ps,
                       uint64_t *end_ps);
struct trace_name trace_cursor_name(const struct trace_cursor *cursor, int i);

#ifdef __cplusplus
}
#endif

#endif
