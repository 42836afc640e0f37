/* traces/db_private.h - an open database, for db.c (the file and its runs), db_rows.c (rows) and
 * what both stand on, db_transaction.c. */
#ifndef TRACES_DB_PRIVATE_H
#define TRACES_DB_PRIVATE_H

#include <sqlite3.h>
#include <stdbool.h>
#include "traces/db.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One prepared statement each; db_rows.c holds their text. */
enum trace_db_table {
    TRACE_DB_STEP,
    TRACE_DB_SPAN,
    TRACE_DB_MESSAGE_STAT,
    TRACE_DB_RESOURCE_USE,
    TRACE_DB_EXPERT_LOAD,
    TRACE_DB_WAIT,
    TRACE_DB_CHECK_RESULT,
    TRACE_DB_ROUTING,
    TRACE_DB_CELL,
    TRACE_DB_MESSAGE,
    TRACE_DB_FAULT,
    TRACE_DB_MEASURED,
    TRACE_DB_ATTRIBUTION,
    TRACE_DB_WHATIF,
    TRACE_DB_WRONG_ROW,
    TRACE_DB_TABLES
};

struct trace_db {
    char *path; /* As given. */
    sqlite3 *sqlite;
    sqlite3_stmt *inserts[TRACE_DB_TABLES];
    int lock_fd;                  /* Holds the writer's lock; -1 = not open. */
    bool created;                 /* By this open: to be removed when open fails. */
    bool broken;                  /* What stands there is no epsim database. */
    uint64_t run;                 /* 0: no run begun. */
    bool filled[TRACE_DB_TABLES]; /* By this run. */
    uint64_t run_start_ns;
    uint64_t begin_ns;      /* When the open transaction began. */
    uint32_t rows_unlooked; /* Rows since the clock was last looked at. */
};

/* The text of a table's INSERT and the table's name, static. */
const char *trace_db_insert_sql(enum trace_db_table table);
const char *trace_db_table_name(enum trace_db_table table);

/* Nanoseconds of the monotonic clock. */
uint64_t trace_db_now_ns(void);

/* "FILE: what: why" in err after a call of SQLite's failed, and db->broken if the file is not ours.
 * Returns -1. */
int trace_db_fail(struct trace_db *db, const char *what, char *err, size_t err_len);

/* Run statements that answer nothing. 0, or -1 with err, where what says what was not possible. */
int trace_db_execute(struct trace_db *db, const char *sql, const char *what, char *err,
                     size_t err_len);

/* Begin a transaction unless one is open. */
int trace_db_begin(struct trace_db *db, char *err, size_t err_len);

/* Commit what is open. Where readers are in the way for longer than the wait, the rows stay in
 * the open transaction and the next commit takes them along, unless this is the last one. */
int trace_db_commit(struct trace_db *db, bool last, char *err, size_t err_len);

/* The same, not for the last time, if the open transaction has lasted a second. */
int trace_db_commit_if_long(struct trace_db *db, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
