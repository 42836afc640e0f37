/* traces/db_compare.c - the questions of db_read.h: the first difference, and times.
 *
 * Both runs' check_results come in one order and are merged like two sorted lists, so runs of
 * any length need no memory. */
#include "traces/db_read.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traces/db_read_private.h"
#include "traces/text.h"

/* The place of a stage in the data path. A new stage joins here and in db_read.h. */
#define STAGE_PLACE                                                                                \
    "CASE stage WHEN 'layout' THEN 0 WHEN 'quantise' THEN 1 WHEN 'dispatch' THEN 2 "               \
    "WHEN 'expert' THEN 3 WHEN 'combine' THEN 4 ELSE 5 END"

/* One run's rows, the current one read. */
struct rows {
    struct trace_reader *reader;
    sqlite3_stmt *statement;
    bool ended;
    struct trace_check_key key;
    int64_t place; /* Of key.stage. */
    uint64_t digest;
    char backend[64];
};

static void copy_text(char *out, size_t out_bytes, const unsigned char *text)
{
    assert(out_bytes > 0);
    const char *from = text == NULL ? "" : (const char *)text;
    const size_t length = strnlen(from, out_bytes - 1);
    memcpy(out, from, length);
    out[length] = '\0';
}

/* 16 hex digits, or false. */
static bool read_digest(const unsigned char *text, uint64_t *digest)
{
    uint64_t value = 0;
    if (text == NULL) return false;
    for (unsigned i = 0; i < 16; i++) {
        const unsigned char c = text[i];
        const unsigned digit = c >= '0' && c <= '9'   ? c - (unsigned)'0'
                               : c >= 'a' && c <= 'f' ? c - (unsigned)'a' + 10
                                                      : 16;
        if (digit == 16) return false; /* The NUL of a short text too. */
        value = value << 4 | digit;
    }
    *digest = value;
    return text[16] == '\0';
}

/* Read the next row into rows, or note that there is none. */
static int next_row(struct rows *rows, char *err, size_t err_len)
{
    sqlite3_stmt *statement = rows->statement;
    assert(statement != NULL && !rows->ended);
    const int status = sqlite3_step(statement);
    rows->ended = status == SQLITE_DONE;
    if (rows->ended) return 0;
    if (status != SQLITE_ROW) return trace_reader_fail(rows->reader, "check_result", err, err_len);
    const int64_t step = sqlite3_column_int64(statement, 0);
    const int64_t layer = sqlite3_column_int64(statement, 1);
    const int64_t rank = sqlite3_column_int64(statement, 2);
    if (step < 0 || layer < 0 || layer > UINT32_MAX || rank < 0 || rank > UINT32_MAX)
        return trace_fail(err, err_len,
                          "%s: check_result: step %" PRId64 ", layer %" PRId64 ", rank %" PRId64
                          ": not from 0 to 2^32 - 1",
                          rows->reader->path, step, layer, rank);
    rows->key.step = (uint64_t)step;
    rows->key.layer = (uint32_t)layer;
    rows->key.rank = (uint32_t)rank;
    rows->place = sqlite3_column_int64(statement, 3);
    copy_text(rows->key.stage, sizeof rows->key.stage, sqlite3_column_text(statement, 4));
    copy_text(rows->backend, sizeof rows->backend, sqlite3_column_text(statement, 5));
    if (!read_digest(sqlite3_column_text(statement, 6), &rows->digest))
        return trace_fail(err, err_len,
                          "%s: check_result: step %" PRId64 ", layer %" PRId64 ", rank %" PRId64
                          ": digest: expected 16 hex digits",
                          rows->reader->path, step, layer, rank);
    return 0;
}

static int open_rows(struct trace_reader *reader, struct rows *rows, char *err, size_t err_len)
{
    assert(reader != NULL);
    memset(rows, 0, sizeof *rows);
    rows->reader = reader;
    rows->statement = trace_reader_prepare(
        reader,
        "SELECT step, layer, rank, " STAGE_PLACE " AS place, stage, backend, digest "
        "FROM check_result WHERE run = ?1 ORDER BY step, layer, rank, place, stage, backend",
        err, err_len);
    if (rows->statement == NULL) return -1;
    sqlite3_bind_int64(rows->statement, 1, (sqlite3_int64)trace_reader_run(reader)->run);
    return next_row(rows, err, err_len);
}

static int compare_keys(const struct rows *a, const struct rows *b)
{
    if (a->key.step != b->key.step) return a->key.step < b->key.step ? -1 : 1;
    if (a->key.layer != b->key.layer) return a->key.layer < b->key.layer ? -1 : 1;
    if (a->key.rank != b->key.rank) return a->key.rank < b->key.rank ? -1 : 1;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return strcmp(a->key.stage, b->key.stage);
}

static bool same_key(const struct trace_check_key *key, const struct rows *rows)
{
    return !rows->ended && key->step == rows->key.step && key->layer == rows->key.layer &&
           key->rank == rows->key.rank && strcmp(key->stage, rows->key.stage) == 0;
}

/* Note a pair of digests that differ, unless an earlier key has one already. */
static void note(struct trace_difference *out, const struct trace_check_key *key, uint64_t digest_a,
                 const char *backend_a, uint64_t digest_b, const char *backend_b)
{
    assert(backend_a != NULL && backend_b != NULL);
    if (out->differs || digest_a == digest_b) return;
    out->differs = true;
    out->key = *key;
    out->digest_a = digest_a;
    out->digest_b = digest_b;
    memcpy(out->backend_a, backend_a, sizeof out->backend_a);
    memcpy(out->backend_b, backend_b, sizeof out->backend_b);
}

/* Both runs have this key: every backend's digest must equal those of the other run. It is
 * enough to hold all rows of each run against the first row of the other. */
static int compare_key(struct rows *a, struct rows *b, struct trace_difference *out, char *err,
                       size_t err_len)
{
    const struct trace_check_key key = a->key;
    const struct rows first_a = *a, first_b = *b;
    assert(compare_keys(a, b) == 0);
    out->compared++;
    while (same_key(&key, a)) {
        note(out, &key, a->digest, a->backend, first_b.digest, first_b.backend);
        if (next_row(a, err, err_len) != 0) return -1;
    }
    while (same_key(&key, b)) {
        note(out, &key, first_a.digest, first_a.backend, b->digest, b->backend);
        if (next_row(b, err, err_len) != 0) return -1;
    }
    return 0;
}

/* One run alone has this key: count it once and pass over it. */
static int skip_key(struct rows *rows, uint64_t *only, struct trace_check_key *first_only,
                    char *err, size_t err_len)
{
    const struct trace_check_key key = rows->key;
    assert(same_key(&key, rows)); /* So at least one row is passed over. */
    if (*only == 0) *first_only = key;
    ++*only;
    while (same_key(&key, rows))
        if (next_row(rows, err, err_len) != 0) return -1;
    return 0;
}

int trace_db_first_difference(struct trace_reader *a, struct trace_reader *b,
                              struct trace_difference *out, char *err, size_t err_len)
{
    assert(a != NULL && b != NULL && out != NULL);
    struct trace_difference made;
    struct rows rows_a, rows_b;
    int status = -1;
    memset(&made, 0, sizeof made);
    memset(&rows_b, 0, sizeof rows_b);
    if (open_rows(a, &rows_a, err, err_len) != 0) goto finalize;
    if (open_rows(b, &rows_b, err, err_len) != 0) goto finalize;
    while (!rows_a.ended || !rows_b.ended) {
        const int order = rows_a.ended ? 1 : rows_b.ended ? -1 : compare_keys(&rows_a, &rows_b);
        int step_status;
        if (order < 0)
            step_status = skip_key(&rows_a, &made.only_a, &made.first_only_a, err, err_len);
        else if (order > 0)
            step_status = skip_key(&rows_b, &made.only_b, &made.first_only_b, err, err_len);
        else
            step_status = compare_key(&rows_a, &rows_b, &made, err, err_len);
        if (step_status != 0) goto finalize;
    }
    *out = made;
    status = 0;
finalize:
    sqlite3_finalize(rows_a.statement);
    sqlite3_finalize(rows_b.statement);
    return status;
}

static int add_time(sqlite3_stmt *statement, struct trace_op_time **times, size_t *count,
                    const struct trace_reader *reader, char *err, size_t err_len)
{
    if (*count % 64 == 0) {
        struct trace_op_time *bigger =
            (struct trace_op_time *)realloc(*times, (*count + 64) * sizeof **times);
        if (bigger == NULL) return trace_fail(err, err_len, "%s: out of memory", reader->path);
        *times = bigger;
    }
    struct trace_op_time *time = &(*times)[(*count)++];
    assert(sqlite3_column_count(statement) == 5);
    const int64_t layer = sqlite3_column_int64(statement, 0);
    const int64_t steps = sqlite3_column_int64(statement, 2);
    const int64_t sum_ps = sqlite3_column_int64(statement, 3);
    const int64_t max_ps = sqlite3_column_int64(statement, 4);
    if (layer < -1 || steps < 1 || sum_ps < 0 || max_ps < 0)
        return trace_fail(err, err_len, "%s: span: layer %" PRId64 ": negative figures",
                          reader->path, layer);
    time->layer = layer;
    copy_text(time->op, sizeof time->op, sqlite3_column_text(statement, 1));
    time->steps = (uint64_t)steps;
    time->mean_ps = (uint64_t)(sum_ps / steps);
    time->max_ps = (uint64_t)max_ps;
    return 0;
}

int trace_reader_op_times(struct trace_reader *reader, struct trace_op_time **times, size_t *count,
                          char *err, size_t err_len)
{
    assert(reader != NULL && times != NULL && count != NULL);
    sqlite3_stmt *statement = trace_reader_prepare(
        reader,
        "SELECT ifnull(layer, -1), op, count(*), sum(slowest), max(slowest) FROM "
        "(SELECT step, layer, op, max(end_ps - start_ps) AS slowest FROM span WHERE run = ?1 "
        "GROUP BY step, layer, op) GROUP BY layer, op ORDER BY 1, 2",
        err, err_len);
    if (statement == NULL) return -1;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)trace_reader_run(reader)->run);
    struct trace_op_time *made = NULL;
    size_t made_count = 0;
    int status;
    while ((status = sqlite3_step(statement)) == SQLITE_ROW)
        if (add_time(statement, &made, &made_count, reader, err, err_len) != 0) break;
    if (status != SQLITE_ROW && status != SQLITE_DONE)
        trace_reader_fail(reader, "span", err, err_len);
    sqlite3_finalize(statement);
    if (status != SQLITE_DONE) {
        free(made);
        return -1;
    }
    *times = made;
    *count = made_count;
    return 0;
}
