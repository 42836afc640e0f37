/* traces/db_totals.c - what a run's times are made of, by stage, resource and part. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traces/db_read_private.h"
#include "traces/text.h"

enum { TOTALS_MAX = 4096 }; /* Names that a hostile file may make up. */

/* Each asks for op, name, ps, bytes, stall, queue peak; the run is parameter 1. */
static const struct {
    const char *table, *sql;
} QUESTIONS[] = {
    [TRACE_TOTALS_STAGE] =
        {"span", "WITH slow AS (SELECT step, layer, op, max(end_ps - start_ps) AS ps FROM span "
                 "WHERE run = ?1 AND layer IS NOT NULL GROUP BY step, layer, op) "
                 "SELECT op, '', sum(ps) / count(DISTINCT step), 0, 0, 0 FROM slow GROUP BY op "
                 "ORDER BY op"},
    [TRACE_TOTALS_RESOURCE] =
        {"resource_use",
         "WITH own AS (SELECT step, layer, op, substr(resource, instr(resource, '.') + 1) AS name, "
         "max(busy_ps) AS busy, sum(bytes) AS bytes, sum(stall_ps) AS stall, max(queue_peak) AS "
         "peak FROM resource_use WHERE run = ?1 GROUP BY 1, 2, 3, 4) "
         "SELECT op, name, sum(busy) / count(*), sum(bytes) / count(DISTINCT step), "
         "sum(stall) / count(DISTINCT step), max(peak) FROM own GROUP BY op, name "
         "ORDER BY op, name"},
    [TRACE_TOTALS_PART] =
        {"attribution",
         "WITH whole AS (SELECT step, layer, op, rank, sum(ps) AS ps FROM attribution WHERE run = "
         "?1 GROUP BY 1, 2, 3, 4), "
         "most AS (SELECT step, layer, op, max(ps) AS ps FROM whole GROUP BY 1, 2, 3), "
         "slow AS (SELECT step, layer, op, min(rank) AS rank FROM whole JOIN most USING (step, "
         "layer, op, ps) GROUP BY 1, 2, 3) "
         "SELECT op, part, sum(ps) / (SELECT count(DISTINCT step) FROM most), 0, 0, 0 FROM "
         "attribution JOIN slow USING (step, layer, op, rank) WHERE run = ?1 GROUP BY op, part "
         "ORDER BY op, part"},
};

static void copy_name(char *out, size_t out_bytes, const unsigned char *text)
{
    size_t at = 0;
    for (; text != NULL && text[at] != '\0' && at + 1 < out_bytes; at++)
        out[at] = text[at] < 0x20 || text[at] > 0x7e ? '?' : (char)text[at];
    out[at] = '\0';
}

static int add_total(sqlite3_stmt *statement, struct trace_total **totals, size_t *count,
                     const struct trace_reader *reader, const char *table, char *err,
                     size_t err_len)
{
    int64_t figures[4];
    if (*count == TOTALS_MAX)
        return trace_fail(err, err_len, "%s: %s: more than %d names", reader->path, table,
                          TOTALS_MAX);
    if (*count % 64 == 0) {
        struct trace_total *bigger =
            (struct trace_total *)realloc(*totals, (*count + 64) * sizeof **totals);
        if (bigger == NULL) return trace_fail(err, err_len, "%s: out of memory", reader->path);
        *totals = bigger;
    }
    struct trace_total *total = &(*totals)[*count];
    assert(sqlite3_column_count(statement) == 6);
    copy_name(total->op, sizeof total->op, sqlite3_column_text(statement, 0));
    copy_name(total->name, sizeof total->name, sqlite3_column_text(statement, 1));
    for (int i = 0; i < 4; i++) figures[i] = sqlite3_column_int64(statement, 2 + i);
    if (figures[1] < 0 || figures[2] < 0 || figures[3] < 0)
        return trace_fail(err, err_len, "%s: %s: %s: negative figures", reader->path, table,
                          total->op);
    total->ps = figures[0];
    total->bytes = (uint64_t)figures[1];
    total->stall_ps = (uint64_t)figures[2];
    total->queue_peak = (uint64_t)figures[3];
    (*count)++;
    return 0;
}

/* Files of earlier versions lack tables that were added. */
static bool has_table(struct trace_reader *reader, const char *table)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    if (sqlite3_prepare_v2(reader->sqlite, "SELECT 1 FROM sqlite_schema WHERE name = ?1", -1,
                           &statement, NULL) == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
        found = sqlite3_step(statement) == SQLITE_ROW;
    }
    sqlite3_finalize(statement);
    return found;
}

int trace_reader_totals(struct trace_reader *reader, enum trace_totals what,
                        struct trace_total **totals, size_t *count, char *err, size_t err_len)
{
    struct trace_total *made = NULL;
    size_t made_count = 0;
    int status;

    assert(reader != NULL && (unsigned)what < sizeof QUESTIONS / sizeof QUESTIONS[0]);
    *totals = NULL;
    *count = 0;
    if (!has_table(reader, QUESTIONS[what].table)) return 0;
    sqlite3_stmt *statement = trace_reader_prepare(reader, QUESTIONS[what].sql, err, err_len);
    if (statement == NULL) return -1;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)trace_reader_run(reader)->run);
    while ((status = sqlite3_step(statement)) == SQLITE_ROW)
        if (add_total(statement, &made, &made_count, reader, QUESTIONS[what].table, err, err_len) !=
            0)
            break;
    if (status != SQLITE_ROW && status != SQLITE_DONE)
        trace_reader_fail(reader, QUESTIONS[what].table, err, err_len);
    sqlite3_finalize(statement);
    if (status != SQLITE_DONE) {
        free(made);
        return -1;
    }
    *totals = made;
    *count = made_count;
    return 0;
}
