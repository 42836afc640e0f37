/* traces/db_transaction.c - the open database's transactions, and what SQLite says in our words.
 *
 * A transaction is begun by the first row and committed by the first look at the clock a second
 * later, so readers see a run grow and a row costs no commit. */
#include "traces/db_private.h"

#include <assert.h>
#include <time.h>

#include "traces/text.h"

#define NS_PER_S UINT64_C(1000000000)

uint64_t trace_db_now_ns(void)
{
    struct timespec now;
    const int status = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(status == 0);
    (void)status;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int trace_db_fail(struct trace_db *db, const char *what, char *err, size_t err_len)
{
    assert(db->sqlite != NULL && what != NULL);
    const int code = sqlite3_errcode(db->sqlite);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return trace_fail(err, err_len, "%s: in use by another program", db->path);
    /* SQLITE_ERROR: a statement of ours does not fit the tables that are there. */
    db->broken = code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_ERROR;
    if (code == SQLITE_NOTADB) what = "not an epsim database";
    return trace_fail(err, err_len, "%s: %s: %s", db->path, what, sqlite3_errmsg(db->sqlite));
}

int trace_db_execute(struct trace_db *db, const char *sql, const char *what, char *err,
                     size_t err_len)
{
    assert(db->sqlite != NULL && sql != NULL);
    if (sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    return trace_db_fail(db, what, err, err_len);
}

int trace_db_begin(struct trace_db *db, char *err, size_t err_len)
{
    assert(db != NULL && db->sqlite != NULL);
    if (!sqlite3_get_autocommit(db->sqlite)) return 0;
    if (trace_db_execute(db, "BEGIN IMMEDIATE", "cannot begin", err, err_len) != 0) return -1;
    db->begin_ns = trace_db_now_ns();
    db->rows_unlooked = 0;
    return 0;
}

int trace_db_commit(struct trace_db *db, bool last, char *err, size_t err_len)
{
    if (sqlite3_get_autocommit(db->sqlite)) return 0;
    assert(db->begin_ns > 0);
    const int status = sqlite3_exec(db->sqlite, "COMMIT", NULL, NULL, NULL);
    if (status == SQLITE_OK) return 0;
    if (status == SQLITE_BUSY && !last) return 0;
    return trace_db_fail(db, "cannot commit", err, err_len);
}

int trace_db_commit_if_long(struct trace_db *db, char *err, size_t err_len)
{
    if (trace_db_now_ns() - db->begin_ns < NS_PER_S) return 0;
    return trace_db_commit(db, false, err, err_len);
}
