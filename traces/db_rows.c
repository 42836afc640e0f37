/* traces/db_rows.c - the INSERT of every table of db.h. */
#include "traces/db_private.h"

#include <assert.h>
#include <string.h>

#include "traces/text.h"

enum { ROWS_PER_LOOK = 4096 }; /* Some 5 ms of rows: often enough for a limit of one second. */

static const struct insert {
    const char *table;
    const char *sql; /* The run is always parameter 1. */
} inserts[TRACE_DB_TABLES] = {
    [TRACE_DB_STEP] = {"step", "INSERT INTO step (run, step, start_ps, end_ps, tokens) "
                               "VALUES (?1, ?2, ?3, ?4, ?5)"},
    [TRACE_DB_SPAN] = {"span", "INSERT INTO span (run, step, layer, rank, stream, op, start_ps, "
                               "end_ps, bytes, rows) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
                               "?10)"},
    [TRACE_DB_MESSAGE_STAT] = {"message_stat",
                               "INSERT INTO message_stat (run, step, layer, op, src_rank, "
                               "dst_rank, link_class, messages, formula_bytes, "
                               "distinct_rank_bytes, wire_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
                               "?7, ?8, ?9, ?10, ?11)"},
    [TRACE_DB_RESOURCE_USE] = {"resource_use",
                               "INSERT INTO resource_use (run, step, layer, op, resource, kind, "
                               "busy_ps, bytes, queue_peak, stall_ps) VALUES (?1, ?2, ?3, ?4, ?5, "
                               "?6, ?7, ?8, ?9, ?10)"},
    [TRACE_DB_EXPERT_LOAD] = {"expert_load",
                              "INSERT INTO expert_load (run, step, layer, rank, expert, rows) "
                              "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
    [TRACE_DB_WAIT] = {"wait", "INSERT INTO wait (run, step, layer, op, waiter, awaited, wait_ps) "
                               "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
    [TRACE_DB_CHECK_RESULT] = {"check_result",
                               "INSERT INTO check_result (run, step, layer, stage, backend, rank, "
                               "rows, bytes, digest, mismatch_count, expert, src_rank, src_token, "
                               "channel, expected_hex, actual_hex, cause) VALUES (?1, ?2, ?3, ?4, "
                               "?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"},
    [TRACE_DB_ROUTING] = {"routing", "INSERT INTO routing (run, path, file_digest, id_space, "
                                     "model) VALUES (?1, ?2, ?3, ?4, ?5)"},
    [TRACE_DB_CELL] = {"cell", "INSERT OR REPLACE INTO cell (run, settings_digest, state, "
                               "summary_json) VALUES (?1, ?2, ?3, ?4)"},
    [TRACE_DB_MESSAGE] = {"message", "INSERT INTO message (run, step, layer, op, src_rank, "
                                     "dst_rank, link_class, qp, bytes, rows, send_ps, land_ps) "
                                     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"},
    [TRACE_DB_FAULT] = {"fault", "INSERT INTO fault (run, step, at_ps, kind, target, detail) "
                                 "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
    [TRACE_DB_MEASURED] = {"measured", "INSERT INTO measured (run, source, row_id, predicted_ps, "
                                       "measured_ps) VALUES (?1, ?2, ?3, ?4, ?5)"},
    [TRACE_DB_ATTRIBUTION] = {"attribution", "INSERT INTO attribution (run, step, layer, op, rank, "
                                             "part, ps) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
    [TRACE_DB_WHATIF] = {"whatif", "INSERT INTO whatif (run, step, layer, op, knob, before_ps, "
                                   "after_ps) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
    [TRACE_DB_WRONG_ROW] = {"wrong_row", "INSERT INTO wrong_row (run, step, layer, stage, rank, "
                                         "expert, src_rank, src_token) VALUES (?1, ?2, ?3, ?4, "
                                         "?5, ?6, ?7, ?8)"},
};

const char *trace_db_insert_sql(enum trace_db_table table)
{
    assert((unsigned)table < TRACE_DB_TABLES);
    return inserts[table].sql;
}

const char *trace_db_table_name(enum trace_db_table table)
{
    assert((unsigned)table < TRACE_DB_TABLES);
    return inserts[table].table;
}

/* A row under way: parameters are bound in the order of the columns. */
struct row {
    struct trace_db *db;
    enum trace_db_table table;
    sqlite3_stmt *statement;
    int next; /* The next parameter. */
};

static void put_int(struct row *row, uint64_t value)
{
    assert(value <= (uint64_t)INT64_MAX);
    const int status = sqlite3_bind_int64(row->statement, row->next++, (sqlite3_int64)value);
    assert(status == SQLITE_OK);
    (void)status;
}

static void put_signed(struct row *row, int64_t value)
{
    const int status = sqlite3_bind_int64(row->statement, row->next++, (sqlite3_int64)value);
    assert(status == SQLITE_OK);
    (void)status;
}

static void put_int_or_null(struct row *row, int64_t value)
{
    assert(value >= -1);
    if (value >= 0) {
        put_int(row, (uint64_t)value);
        return;
    }
    const int status = sqlite3_bind_null(row->statement, row->next++);
    assert(status == SQLITE_OK);
    (void)status;
}

/* Borrowed: the row is written before put returns to the caller. */
static void put_text_or_null(struct row *row, const char *text)
{
    const int status = sqlite3_bind_text(row->statement, row->next++, text, -1, SQLITE_STATIC);
    assert(status == SQLITE_OK || status == SQLITE_TOOBIG);
    (void)status;
}

static void put_text(struct row *row, const char *text)
{
    assert(text != NULL);
    put_text_or_null(row, text);
}

static int begin_row(struct trace_db *db, enum trace_db_table table, struct row *row, char *err,
                     size_t err_len)
{
    assert(db != NULL && db->run > 0);
    if (trace_db_begin(db, err, err_len) != 0) return -1;
    *row = (struct row){db, table, db->inserts[table], 1};
    put_int(row, db->run);
    return 0;
}

static int end_row(struct row *row, char *err, size_t err_len)
{
    struct trace_db *db = row->db;
    assert(row->next == sqlite3_bind_parameter_count(row->statement) + 1);
    const int status = sqlite3_step(row->statement);
    if (status != SQLITE_DONE)
        trace_fail(err, err_len, "%s: %s: %s", db->path, trace_db_table_name(row->table),
                   sqlite3_errmsg(db->sqlite));
    sqlite3_reset(row->statement);
    if (status != SQLITE_DONE) return -1;
    db->filled[row->table] = true;
    if (++db->rows_unlooked < ROWS_PER_LOOK) return 0;
    db->rows_unlooked = 0;
    return trace_db_commit_if_long(db, err, err_len);
}

int trace_db_step(struct trace_db *db, const struct trace_step *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_STEP, &out, err, err_len) != 0) return -1;
    assert(row->start_ps <= row->end_ps);
    put_int(&out, row->step);
    put_int(&out, row->start_ps);
    put_int(&out, row->end_ps);
    put_int(&out, row->tokens);
    return end_row(&out, err, err_len);
}

int trace_db_span(struct trace_db *db, const struct trace_span *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_SPAN, &out, err, err_len) != 0) return -1;
    assert(row->start_ps <= row->end_ps);
    put_int(&out, row->step);
    put_int_or_null(&out, row->layer == TRACE_NO_LAYER ? -1 : (int64_t)row->layer);
    put_int(&out, row->rank);
    put_text(&out, row->stream);
    put_text(&out, row->op);
    put_int(&out, row->start_ps);
    put_int(&out, row->end_ps);
    put_int(&out, row->bytes);
    put_int(&out, row->rows);
    return end_row(&out, err, err_len);
}

int trace_db_message_stat(struct trace_db *db, const struct trace_message_stat *row, char *err,
                          size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_MESSAGE_STAT, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_int(&out, row->src_rank);
    put_int(&out, row->dst_rank);
    put_text(&out, row->link_class);
    put_int(&out, row->messages);
    put_int(&out, row->formula_bytes);
    put_int(&out, row->distinct_rank_bytes);
    put_int(&out, row->wire_bytes);
    return end_row(&out, err, err_len);
}

int trace_db_resource_use(struct trace_db *db, const struct trace_resource_use *row, char *err,
                          size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_RESOURCE_USE, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_text(&out, row->resource);
    put_text(&out, row->kind);
    put_int(&out, row->busy_ps);
    put_int(&out, row->bytes);
    put_int(&out, row->queue_peak);
    put_int(&out, row->stall_ps);
    return end_row(&out, err, err_len);
}

int trace_db_expert_load(struct trace_db *db, const struct trace_expert_load *row, char *err,
                         size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_EXPERT_LOAD, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_int(&out, row->rank);
    put_int(&out, row->expert);
    put_int(&out, row->rows);
    return end_row(&out, err, err_len);
}

int trace_db_wait(struct trace_db *db, const struct trace_wait *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_WAIT, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_int(&out, row->waiter);
    put_int(&out, row->awaited);
    put_int(&out, row->wait_ps);
    return end_row(&out, err, err_len);
}

int trace_db_check_result(struct trace_db *db, const struct trace_check_result *row, char *err,
                          size_t err_len)
{
    struct row out;
    char digest[17];
    if (begin_row(db, TRACE_DB_CHECK_RESULT, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->stage);
    put_text(&out, row->backend);
    put_int(&out, row->rank);
    put_int(&out, row->rows);
    put_int(&out, row->bytes);
    put_text(&out, trace_hex(row->digest, digest));
    put_int(&out, row->mismatch_count);
    put_int_or_null(&out, row->expert);
    put_int_or_null(&out, row->src_rank);
    put_int_or_null(&out, row->src_token);
    put_int_or_null(&out, row->channel);
    put_text_or_null(&out, row->expected_hex);
    put_text_or_null(&out, row->actual_hex);
    put_text_or_null(&out, row->cause);
    return end_row(&out, err, err_len);
}

int trace_db_wrong_row(struct trace_db *db, const struct trace_wrong_row *row, char *err,
                       size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_WRONG_ROW, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->stage);
    put_int(&out, row->rank);
    put_int_or_null(&out, row->expert);
    put_int(&out, row->src_rank);
    put_int_or_null(&out, row->src_token);
    return end_row(&out, err, err_len);
}

int trace_db_routing(struct trace_db *db, const struct trace_routing_row *row, char *err,
                     size_t err_len)
{
    struct row out;
    char digest[17];
    if (begin_row(db, TRACE_DB_ROUTING, &out, err, err_len) != 0) return -1;
    put_text(&out, row->path);
    put_text(&out, trace_hex(row->file_digest, digest));
    put_text(&out, row->id_space);
    put_text(&out, row->model);
    return end_row(&out, err, err_len);
}

int trace_db_cell(struct trace_db *db, const struct trace_cell *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_CELL, &out, err, err_len) != 0) return -1;
    put_text(&out, row->settings_digest);
    put_text(&out, row->state);
    put_text(&out, row->summary_json);
    return end_row(&out, err, err_len);
}

int trace_db_message(struct trace_db *db, const struct trace_message *row, char *err,
                     size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_MESSAGE, &out, err, err_len) != 0) return -1;
    assert(row->send_ps <= row->land_ps);
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_int(&out, row->src_rank);
    put_int(&out, row->dst_rank);
    put_text(&out, row->link_class);
    put_int_or_null(&out, row->qp);
    put_int(&out, row->bytes);
    put_int(&out, row->rows);
    put_int(&out, row->send_ps);
    put_int(&out, row->land_ps);
    return end_row(&out, err, err_len);
}

int trace_db_fault(struct trace_db *db, const struct trace_fault *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_FAULT, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->at_ps);
    put_text(&out, row->kind);
    put_text(&out, row->target);
    put_text(&out, row->detail);
    return end_row(&out, err, err_len);
}

int trace_db_measured(struct trace_db *db, const struct trace_measured *row, char *err,
                      size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_MEASURED, &out, err, err_len) != 0) return -1;
    put_text(&out, row->source);
    put_text(&out, row->row_id);
    put_int(&out, row->predicted_ps);
    put_int(&out, row->measured_ps);
    return end_row(&out, err, err_len);
}

int trace_db_attribution(struct trace_db *db, const struct trace_attribution *row, char *err,
                         size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_ATTRIBUTION, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_int(&out, row->rank);
    put_text(&out, row->part);
    put_signed(&out, row->ps);
    return end_row(&out, err, err_len);
}

int trace_db_whatif(struct trace_db *db, const struct trace_whatif *row, char *err, size_t err_len)
{
    struct row out;
    if (begin_row(db, TRACE_DB_WHATIF, &out, err, err_len) != 0) return -1;
    put_int(&out, row->step);
    put_int(&out, row->layer);
    put_text(&out, row->op);
    put_text(&out, row->knob);
    put_int(&out, row->before_ps);
    put_int(&out, row->after_ps);
    return end_row(&out, err, err_len);
}
