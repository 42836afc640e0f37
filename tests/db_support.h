/* tests/db_support.h - short ways to make runs and to ask SQLite itself what is in a file. */
#ifndef TESTS_DB_SUPPORT_H
#define TESTS_DB_SUPPORT_H

#include <check.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include "tests/support.h"
#include "traces/db.h"

static char err[512];

#define DB_OK(call) ck_assert_msg((call) == 0, "%s", err)

static inline struct trace_db *db_open(const char *path)
{
    struct trace_db *db = trace_db_open(path, TRACE_DB_WAIT_MS, NULL, err, sizeof err);
    ck_assert_msg(db != NULL, "%s", err);
    return db;
}

static inline uint64_t db_begin(struct trace_db *db)
{
    const struct trace_run settings = {"epsim 1", "epsim run --ep 2", "{\"ep\": 2}",
                                       "00112233445566ff", 7};
    uint64_t run = 0;
    DB_OK(trace_db_begin_run(db, &settings, &run, err, sizeof err));
    return run;
}

static inline struct trace_check_result db_check(uint64_t step, uint32_t layer, uint32_t rank,
                                                 const char *stage, const char *backend,
                                                 uint64_t digest)
{
    const struct trace_check_result row = {step, layer, stage, backend, rank, 4,    512,  digest,
                                           0,    -1,    -1,    -1,      -1,   NULL, NULL, NULL};
    return row;
}

static inline void db_put_check(struct trace_db *db, uint64_t step, uint32_t layer, uint32_t rank,
                                const char *stage, const char *backend, uint64_t digest)
{
    const struct trace_check_result row = db_check(step, layer, rank, stage, backend, digest);
    DB_OK(trace_db_check_result(db, &row, err, sizeof err));
}

/* Whatever SQL answers, columns joined by '|' and rows by ';', as SQLite sees the file. */
static inline const char *db_ask(const char *path, const char *sql)
{
    static char answer[8192];
    sqlite3 *sqlite = NULL;
    sqlite3_stmt *statement = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &sqlite, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    ck_assert_msg(sqlite3_prepare_v2(sqlite, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(sqlite));
    size_t used = 0;
    answer[0] = '\0';
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            const char *text = (const char *)sqlite3_column_text(statement, i);
            if (text == NULL) text = "NULL";
            ck_assert_uint_lt(used + strlen(text) + 2, sizeof answer);
            if (used > 0) answer[used++] = i == 0 ? ';' : '|';
            memcpy(answer + used, text, strlen(text) + 1);
            used += strlen(text);
        }
    }
    sqlite3_finalize(statement);
    sqlite3_close(sqlite);
    return answer;
}

static inline void db_execute(const char *path, const char *sql)
{
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(path, &sqlite), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(sqlite, sql, NULL, NULL, NULL) == SQLITE_OK, "%s",
                  sqlite3_errmsg(sqlite));
    sqlite3_close(sqlite);
}

/* Take all right to write from path, its journal and its folder, and let others look into the
 * folder above, which belongs to the test runner and is closed to them. */
static inline void db_make_read_only(const char *folder, const char *path)
{
    const char *above = test_join(folder, "..");
    struct stat status;
    ck_assert_int_eq(stat(above, &status), 0);
    ck_assert_int_eq(chmod(above, (status.st_mode & 07777) | 0111), 0);
    ck_assert_int_eq(chmod(path, 0444), 0);
    const char *journal = test_join(folder, "run.db-journal");
    if (test_exists(journal)) ck_assert_int_eq(chmod(journal, 0444), 0);
    ck_assert_int_eq(chmod(folder, 0555), 0);
}

#endif
