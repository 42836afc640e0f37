/* traces/db_cursor.c - walks the rows of a query and checks every value that is taken. */
#include "traces/db_cursor.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "traces/db_read_private.h"
#include "traces/text.h"

int trace_cursor_advance(struct trace_cursor *cursor)
{
    assert(cursor->statement != NULL && !cursor->ended);
    const int status = sqlite3_step(cursor->statement);
    cursor->ended = status == SQLITE_DONE;
    if (cursor->ended) return 0;
    if (status != SQLITE_ROW)
        return trace_reader_fail(cursor->reader, cursor->table, cursor->err, cursor->err_len);
    cursor->step = sqlite3_column_int64(cursor->statement, 0);
    cursor->layer = sqlite3_column_type(cursor->statement, 1) == SQLITE_NULL
                        ? -1
                        : sqlite3_column_int64(cursor->statement, 1);
    return 0;
}

int trace_cursor_open(struct trace_cursor *cursor, struct trace_reader *reader, const char *table,
                      const char *sql, char *err, size_t err_len)
{
    return trace_cursor_open_with(cursor, reader, table, sql, NULL, 0, err, err_len);
}

int trace_cursor_open_with(struct trace_cursor *cursor, struct trace_reader *reader,
                           const char *table, const char *sql, const int64_t *more, int count,
                           char *err, size_t err_len)
{
    memset(cursor, 0, sizeof *cursor);
    cursor->reader = reader;
    cursor->table = table;
    cursor->err = err;
    cursor->err_len = err_len;
    cursor->statement = trace_reader_prepare(reader, sql, err, err_len);
    if (cursor->statement == NULL) return -1;
    sqlite3_bind_int64(cursor->statement, 1, (sqlite3_int64)trace_reader_run(reader)->run);
    for (int i = 0; i < count; i++) sqlite3_bind_int64(cursor->statement, 2 + i, more[i]);
    return trace_cursor_advance(cursor);
}

void trace_cursor_close(struct trace_cursor *cursor)
{
    sqlite3_finalize(cursor->statement);
    cursor->statement = NULL;
}

bool trace_cursor_stands_on(const struct trace_cursor *cursor, int64_t step, int64_t layer)
{
    return !cursor->ended && cursor->step == step && cursor->layer == layer;
}

int trace_cursor_number(const struct trace_cursor *cursor, int i, uint64_t max, uint64_t *out)
{
    const int64_t value = sqlite3_column_int64(cursor->statement, i);
    assert(!cursor->ended && max <= INT64_MAX);
    if (sqlite3_column_type(cursor->statement, i) == SQLITE_INTEGER && value >= 0 &&
        (uint64_t)value <= max) {
        *out = (uint64_t)value;
        return 0;
    }
    return trace_fail(cursor->err, cursor->err_len,
                      "%s: %s: %s: %" PRId64 ": must be a whole number from 0 to %" PRIu64,
                      trace_reader_path(cursor->reader), cursor->table,
                      sqlite3_column_name(cursor->statement, i), value, max);
}

int trace_cursor_rank(const struct trace_cursor *cursor, int i, uint32_t *out)
{
    uint64_t rank = 0;
    if (trace_cursor_number(cursor, i, TRACE_CURSOR_RANKS_MAX - 1, &rank) != 0) return -1;
    *out = (uint32_t)rank;
    return 0;
}

int trace_cursor_times(const struct trace_cursor *cursor, int i, uint64_t *start_ps,
                       uint64_t *end_ps)
{
    if (trace_cursor_number(cursor, i, INT64_MAX, start_ps) != 0 ||
        trace_cursor_number(cursor, i + 1, INT64_MAX, end_ps) != 0)
        return -1;
    if (*start_ps <= *end_ps) return 0;
    return trace_fail(cursor->err, cursor->err_len,
                      "%s: %s: from %" PRIu64 " to %" PRIu64 " ps: ends before it starts",
                      trace_reader_path(cursor->reader), cursor->table, *start_ps, *end_ps);
}

struct trace_name trace_cursor_name(const struct trace_cursor *cursor, int i)
{
    return trace_name_clean(sqlite3_column_text(cursor->statement, i));
}
