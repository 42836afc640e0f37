/* traces/db.h - writing a run into an epsim database (traces/schema.sql).
 *
 * One writer per file at a time, for the whole run; readers may look between two steps. A
 * transaction holds at most one step, or one second of a long one, so a killed run loses at most
 * that and stands there with complete = 0 and its last step. Rows of a step above last_step
 * belong to a step that was not finished.
 *
 * Order of calls: open, begin_run, then for every step its rows and step_done, end_run, close.
 * Integers must not exceed INT64_MAX, since SQLite's are signed (asserted). Strings are borrowed
 * for the call and never NULL unless said. One trace_db per thread. */
#ifndef TRACES_DB_H
#define TRACES_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_DB_VERSION = 1, TRACE_DB_WAIT_MS = 5000 };

#define TRACE_NO_LAYER UINT32_MAX /* struct trace_span only: stored as NULL. */

struct trace_db;

/* Create the file, or append to one that is an epsim database. Waits wait_ms (callers outside
 * tests: TRACE_DB_WAIT_MS) for another writer, then fails naming the file. NULL with a line in
 * err on failure; a file that was made by this call is then removed. *broken, where broken is not
 * NULL, tells a file that is no epsim database (true: bad input) from one that cannot be written
 * now (false). */
struct trace_db *trace_db_open(const char *path, uint32_t wait_ms, bool *broken, char *err,
                               size_t err_len);

/* Forget what was not committed and close. NULL is fine. */
void trace_db_close(struct trace_db *db);

struct trace_run {
    const char *tool_version;
    const char *command;
    const char *settings_json;
    const char *settings_digest; /* 16 hex digits. */
    uint64_t seed;               /* Above INT64_MAX: begin_run fails. */
};

/* Add a run and commit it with complete = 0. *run gets its number where run is not NULL. */
int trace_db_begin_run(struct trace_db *db, const struct trace_run *settings, uint64_t *run,
                       char *err, size_t err_len);

/* Commit a step: last_step = step. Call it for every step, in order. */
int trace_db_step_done(struct trace_db *db, uint64_t step, char *err, size_t err_len);

/* complete = 1, the digest (16 hex digits) and the wall time; commit. */
int trace_db_end_run(struct trace_db *db, const char *digest, char *err, size_t err_len);

struct trace_step {
    uint64_t step;
    uint64_t start_ps;
    uint64_t end_ps;
    uint64_t tokens;
};

struct trace_span {
    uint64_t step;
    uint32_t layer; /* Or TRACE_NO_LAYER. */
    uint32_t rank;
    const char *stream;
    const char *op;
    uint64_t start_ps;
    uint64_t end_ps;
    uint64_t bytes;
    uint64_t rows;
};

struct trace_message_stat { /* One per (step, layer, op, src_rank, dst_rank, link_class). */
    uint64_t step;
    uint32_t layer;
    const char *op;
    uint32_t src_rank;
    uint32_t dst_rank;
    const char *link_class; /* local | nvlink | nic */
    uint64_t messages;
    uint64_t formula_bytes;
    uint64_t distinct_rank_bytes;
    uint64_t wire_bytes;
};

struct trace_resource_use { /* One per (step, layer, op, resource). */
    uint64_t step;
    uint32_t layer;
    const char *op;
    const char *resource;
    const char *kind; /* link | nic | qp | sm_pool | hbm */
    uint64_t busy_ps;
    uint64_t bytes;
    uint64_t queue_peak;
    uint64_t stall_ps;
};

struct trace_expert_load { /* One per (step, layer, expert). */
    uint64_t step;
    uint32_t layer;
    uint32_t rank;
    uint32_t expert;
    uint64_t rows;
};

struct trace_wait { /* One per (step, layer, op, waiter, awaited). */
    uint64_t step;
    uint32_t layer;
    const char *op;
    uint32_t waiter;
    uint32_t awaited;
    uint64_t wait_ps;
};

struct trace_check_result { /* One per (step, layer, rank, stage, backend). */
    uint64_t step;
    uint32_t layer;
    const char *stage;
    const char *backend;
    uint32_t rank;
    uint64_t rows;
    uint64_t bytes;
    uint64_t digest; /* Stored as 16 hex digits. */
    uint64_t mismatch_count;
    /* The first mismatch: -1 and NULL are stored as NULL. */
    int64_t expert;
    int64_t src_rank;
    int64_t src_token;
    int64_t channel;
    const char *expected_hex;
    const char *actual_hex;
    const char *cause;
};

struct trace_wrong_row { /* A row behind mismatch_count. */
    uint64_t step;
    uint32_t layer;
    const char *stage;
    uint32_t rank;
    int64_t expert; /* -1: NULL. */
    uint32_t src_rank;
    int64_t src_token; /* -1: NULL. */
};

struct trace_routing_row { /* One per (run, path). */
    const char *path;
    uint64_t file_digest; /* Stored as 16 hex digits. */
    const char *id_space; /* logical | physical */
    const char *model;    /* "" = the container does not say. */
};

struct trace_cell { /* One per settings_digest; a second one replaces the first. */
    const char *settings_digest;
    const char *state;
    const char *summary_json;
};

struct trace_message {
    uint64_t step;
    uint32_t layer;
    const char *op;
    uint32_t src_rank;
    uint32_t dst_rank;
    const char *link_class; /* local | nvlink | nic */
    int64_t qp;             /* -1 is stored as NULL. */
    uint64_t bytes;
    uint64_t rows;
    uint64_t send_ps;
    uint64_t land_ps;
};

struct trace_fault {
    uint64_t step;
    uint64_t at_ps;
    const char *kind;
    const char *target;
    const char *detail;
};

struct trace_measured { /* One per (source, row_id). */
    const char *source;
    const char *row_id;
    uint64_t predicted_ps;
    uint64_t measured_ps;
};

struct trace_attribution { /* One per (step, layer, op, rank, part). */
    uint64_t step;
    uint32_t layer;
    const char *op;
    uint32_t rank;
    const char *part;
    int64_t ps; /* May be below 0. */
};

struct trace_whatif { /* One per (step, layer, op, knob). */
    uint64_t step;
    uint32_t layer;
    const char *op;
    const char *knob;
    uint64_t before_ps;
    uint64_t after_ps;
};

/* Add one row to the current run. 0, or -1 with "FILE: TABLE: why" in err. */
int trace_db_step(struct trace_db *db, const struct trace_step *row, char *err, size_t err_len);
int trace_db_span(struct trace_db *db, const struct trace_span *row, char *err, size_t err_len);
int trace_db_message_stat(struct trace_db *db, const struct trace_message_stat *row, char *err,
                          size_t err_len);
int trace_db_resource_use(struct trace_db *db, const struct trace_resource_use *row, char *err,
                          size_t err_len);
int trace_db_expert_load(struct trace_db *db, const struct trace_expert_load *row, char *err,
                         size_t err_len);
int trace_db_wait(struct trace_db *db, const struct trace_wait *row, char *err, size_t err_len);
int trace_db_check_result(struct trace_db *db, const struct trace_check_result *row, char *err,
                          size_t err_len);
int trace_db_wrong_row(struct trace_db *db, const struct trace_wrong_row *row, char *err,
                       size_t err_len);
int trace_db_routing(struct trace_db *db, const struct trace_routing_row *row, char *err,
                     size_t err_len);
int trace_db_cell(struct trace_db *db, const struct trace_cell *row, char *err, size_t err_len);
int trace_db_message(struct trace_db *db, const struct trace_message *row, char *err,
                     size_t err_len);
int trace_db_fault(struct trace_db *db, const struct trace_fault *row, char *err, size_t err_len);
int trace_db_measured(struct trace_db *db, const struct trace_measured *row, char *err,
                      size_t err_len);
int trace_db_attribution(struct trace_db *db, const struct trace_attribution *row, char *err,
                         size_t err_len);
int trace_db_whatif(struct trace_db *db, const struct trace_whatif *row, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
