/* traces/db_cells.c - reads the cells that earlier sweeps kept. */
#include "traces/db_cells.h"

#include <assert.h>
#include <sqlite3.h>

#include "traces/db_read_private.h"

int trace_reader_cells(struct trace_reader *reader, const char *tool_version, trace_cell_fn take,
                       void *context, char *err, size_t err_len)
{
    assert(reader != NULL && tool_version != NULL && take != NULL);
    sqlite3_stmt *rows = trace_reader_prepare(
        reader,
        "SELECT cell.settings_digest, state, summary_json FROM cell JOIN run USING (run) "
        "WHERE tool_version = ?1 ORDER BY run",
        err, err_len);
    int status = SQLITE_ROW;

    if (rows == NULL) return -1;
    sqlite3_bind_text(rows, 1, tool_version, -1, SQLITE_STATIC);
    while ((status = sqlite3_step(rows)) == SQLITE_ROW) {
        const char *digest = (const char *)sqlite3_column_text(rows, 0);
        const char *state = (const char *)sqlite3_column_text(rows, 1);
        const char *json = (const char *)sqlite3_column_text(rows, 2);
        if (digest != NULL && state != NULL && json != NULL) take(context, digest, state, json);
    }
    if (status != SQLITE_DONE) trace_reader_fail(reader, "cell", err, err_len);
    sqlite3_finalize(rows);
    return status == SQLITE_DONE ? 0 : -1;
}
