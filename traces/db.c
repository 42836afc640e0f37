/* traces/db.c - the database as a whole: opening it, the writer's lock, its runs. */
#include "traces/db.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gen/embedded.h"
#include "traces/db_private.h"
#include "traces/text.h"

#define NS_PER_MS UINT64_C(1000000)

/* The byte that a writer locks for as long as it has the file open. SQLite's own locks lie at
 * 2^30 and above, and are let go between two steps: without a lock of ours a second run would
 * slip in there, and each could starve the other in the middle. Readers do not look at it. */
enum { WRITER_LOCK_BYTE = (1 << 30) - 4096, LOCK_POLL_MS = 20 };

/* The single integer that sql answers. */
static int query_int(struct trace_db *db, const char *sql, int64_t *value, char *err,
                     size_t err_len)
{
    sqlite3_stmt *statement = NULL;
    int status = sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL);
    if (status == SQLITE_OK) status = sqlite3_step(statement);
    if (status == SQLITE_ROW)
        *value = sqlite3_column_int64(statement, 0);
    else
        trace_db_fail(db, "cannot read it", err, err_len);
    sqlite3_finalize(statement);
    return status == SQLITE_ROW ? 0 : -1;
}

/* Open the file itself, make it if need be, and take the writer's lock. */
static int lock_file(struct trace_db *db, uint32_t wait_ms, char *err, size_t err_len)
{
    db->lock_fd = open(db->path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    const bool created = db->lock_fd >= 0;
    if (db->lock_fd < 0 && errno == EEXIST)
        db->lock_fd = open(db->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (db->lock_fd < 0)
        return trace_fail(err, err_len, "%s: cannot write it: %s", db->path, strerror(errno));
    struct stat status;
    if (fstat(db->lock_fd, &status) != 0 || !S_ISREG(status.st_mode))
        return trace_fail(err, err_len, "%s: is not a regular file", db->path);

    const uint64_t start_ns = trace_db_now_ns();
    for (;;) {
        /* Locks of the open file description: not lost when SQLite closes a descriptor of its
         * own on this file, and in force between two threads of one process. */
        struct flock lock;
        memset(&lock, 0, sizeof lock);
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = WRITER_LOCK_BYTE;
        lock.l_len = 1;
        const int taken = fcntl(db->lock_fd, F_OFD_SETLK, &lock);
        /* A file system without such locks still has SQLite's. */
        if (taken == 0 || (errno != EAGAIN && errno != EACCES)) {
            db->created = created; /* Only now: nobody else is at work in it. */
            return 0;
        }
        if (trace_db_now_ns() - start_ns >= wait_ms * NS_PER_MS)
            return trace_fail(err, err_len, "%s: another run is writing it (waited %u ms)",
                              db->path, wait_ms);
        const struct timespec nap = {0, (long)(LOCK_POLL_MS * NS_PER_MS)};
        nanosleep(&nap, NULL);
    }
}

/* SQLite takes a file of less than a page for an empty one and would write over it: what is not
 * empty must begin as a database does. */
static int check_beginning(struct trace_db *db, char *err, size_t err_len)
{
    static const char magic[16] = "SQLite format 3"; /* With its NUL. */
    char found[sizeof magic];
    const ssize_t bytes = pread(db->lock_fd, found, sizeof found, 0);

    if (bytes == 0) return 0;
    if (bytes == (ssize_t)sizeof found && memcmp(found, magic, sizeof magic) == 0) return 0;
    if (bytes < 0)
        return trace_fail(err, err_len, "%s: cannot read it: %s", db->path, strerror(errno));
    db->broken = true;
    return trace_fail(err, err_len, "%s: not an epsim database: file is not a database", db->path);
}

static int open_sqlite(struct trace_db *db, uint32_t wait_ms, char *err, size_t err_len)
{
    /* SQLite gives names like ":memory:" a meaning of their own; a path with a slash has none. */
    const size_t name_bytes = strlen(db->path) + 3;
    char *name = (char *)malloc(name_bytes);
    if (name == NULL) return trace_fail(err, err_len, "%s: out of memory", db->path);
    snprintf(name, name_bytes, "%s%s", db->path[0] == '/' ? "" : "./", db->path);
    const int status =
        sqlite3_open_v2(name, &db->sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    free(name);
    if (status != SQLITE_OK) {
        const char *why = db->sqlite != NULL ? sqlite3_errmsg(db->sqlite) : "out of memory";
        return trace_fail(err, err_len, "%s: cannot open it: %s", db->path, why);
    }
    sqlite3_busy_timeout(db->sqlite, (int)wait_ms);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    /* synchronous = NORMAL: a killed process loses nothing committed; a power cut at the wrong
     * moment may cost the run, which can be repeated. FULL would sync twice as often. */
    return trace_db_execute(db,
                            "PRAGMA trusted_schema = OFF; PRAGMA cache_size = -65536;"
                            "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY",
                            "cannot set it up", err, err_len);
}

/* Make the tables in an empty file, or make sure that they are ours. */
static int make_or_check_schema(struct trace_db *db, char *err, size_t err_len)
{
    int64_t version = 0, objects = 0, ours = 0, last = 0;
    if (trace_db_execute(db, "BEGIN IMMEDIATE", "cannot lock it", err, err_len) != 0) return -1;
    if (query_int(db, "PRAGMA user_version", &version, err, err_len) != 0 ||
        query_int(db, "SELECT count(*) FROM sqlite_schema", &objects, err, err_len) != 0 ||
        query_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'run'", &ours, err,
                  err_len) != 0)
        return -1;
    if ((version != 0 || objects > 0) && version != TRACE_DB_VERSION) {
        db->broken = true;
        return trace_fail(err, err_len,
                          "%s: not an epsim database of this version: user_version is %lld, "
                          "expected %d",
                          db->path, (long long)version, TRACE_DB_VERSION);
    }
    /* A file from before a table was added gets that table. */
    assert(strcmp(embedded_schema[0].name, "schema") == 0);
    if ((version == 0 || ours > 0) &&
        trace_db_execute(db, embedded_schema[0].text, "cannot make the tables", err, err_len) != 0)
        return -1;
    if ((version == 0 || ours > 0) &&
        query_int(db, "SELECT coalesce(max(run), 0) FROM run", &last, err, err_len) != 0)
        return -1;
    if (last == INT64_MAX) { /* SQLite would number the next run at random. */
        db->broken = true;
        return trace_fail(err, err_len,
                          "%s: run %lld is the last number there is: use another file", db->path,
                          (long long)last);
    }
    if (version == 0) {
        char pragma[64];
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", TRACE_DB_VERSION);
        if (trace_db_execute(db, pragma, "cannot set its version", err, err_len) != 0) return -1;
    }
    return trace_db_execute(db, "COMMIT", "cannot commit", err, err_len);
}

static int prepare_inserts(struct trace_db *db, char *err, size_t err_len)
{
    for (unsigned i = 0; i < TRACE_DB_TABLES; i++) {
        const char *sql = trace_db_insert_sql((enum trace_db_table)i);
        if (sqlite3_prepare_v3(db->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->inserts[i],
                               NULL) != SQLITE_OK)
            return trace_db_fail(db, "not an epsim database", err, err_len);
    }
    return 0;
}

struct trace_db *trace_db_open(const char *path, uint32_t wait_ms, bool *broken, char *err,
                               size_t err_len)
{
    assert(path != NULL);
    if (broken != NULL) *broken = false;
    struct trace_db *db = (struct trace_db *)calloc(1, sizeof *db);
    if (db == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        return NULL;
    }
    db->lock_fd = -1;
    db->path = strdup(path);
    if (db->path == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        goto close_db;
    }
    if (lock_file(db, wait_ms, err, err_len) != 0) goto close_db;
    if (check_beginning(db, err, err_len) != 0) goto close_db;
    if (open_sqlite(db, wait_ms, err, err_len) != 0) goto close_db;
    if (make_or_check_schema(db, err, err_len) != 0) goto close_db;
    if (prepare_inserts(db, err, err_len) != 0) goto close_db;
    db->created = false;
    return db;

close_db:
    if (broken != NULL) *broken = db->broken;
    trace_db_close(db);
    return NULL;
}

void trace_db_close(struct trace_db *db)
{
    if (db == NULL) return;
    for (unsigned i = 0; i < TRACE_DB_TABLES; i++) sqlite3_finalize(db->inserts[i]);
    if (db->sqlite != NULL) {
        const int status = sqlite3_close(db->sqlite); /* Rolls an open transaction back. */
        assert(status == SQLITE_OK);
        (void)status;
    }
    if (db->created) unlink(db->path);
    /* Last: closing a descriptor of a file drops this process's other locks on it. */
    if (db->lock_fd >= 0) close(db->lock_fd);
    free(db->path);
    free(db);
}

/* Run a statement whose parameters are bound, and finalize it. */
static int run_statement(struct trace_db *db, sqlite3_stmt *statement, char *err, size_t err_len)
{
    assert(statement != NULL);
    const int status = sqlite3_step(statement);
    if (status != SQLITE_DONE) trace_db_fail(db, "run", err, err_len);
    sqlite3_finalize(statement);
    return status == SQLITE_DONE ? 0 : -1;
}

static sqlite3_stmt *prepare(struct trace_db *db, const char *sql, char *err, size_t err_len)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) != SQLITE_OK)
        trace_db_fail(db, "not an epsim database", err, err_len);
    return statement;
}

int trace_db_begin_run(struct trace_db *db, const struct trace_run *settings, uint64_t *run,
                       char *err, size_t err_len)
{
    assert(db != NULL && db->run == 0);
    assert(settings->tool_version != NULL && settings->command != NULL);
    assert(settings->settings_json != NULL && strlen(settings->settings_digest) == 16);
    if (settings->seed > (uint64_t)INT64_MAX)
        return trace_fail(err, err_len, "%s: run: seed %" PRIu64 ": at most 2^63 - 1", db->path,
                          settings->seed);
    char started_utc[32];
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL ||
        strftime(started_utc, sizeof started_utc, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        return trace_fail(err, err_len, "the system's clock gives no date");

    if (trace_db_begin(db, err, err_len) != 0) return -1;
    sqlite3_stmt *insert =
        prepare(db,
                "INSERT INTO run (tool_version, command, settings_json, settings_digest, seed, "
                "complete, started_utc) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
                err, err_len);
    if (insert == NULL) return -1;
    sqlite3_bind_text(insert, 1, settings->tool_version, -1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 2, settings->command, -1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 3, settings->settings_json, -1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 4, settings->settings_digest, -1, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 5, (sqlite3_int64)settings->seed);
    sqlite3_bind_text(insert, 6, started_utc, -1, SQLITE_STATIC);
    if (run_statement(db, insert, err, err_len) != 0) return -1;
    const sqlite3_int64 number = sqlite3_last_insert_rowid(db->sqlite);
    if (number <= 0) {
        (void)sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
        return trace_fail(err, err_len, "%s: run: its runs are not numbered from 1", db->path);
    }
    if (trace_db_commit(db, true, err, err_len) != 0) return -1;
    db->run = (uint64_t)number;
    db->run_start_ns = trace_db_now_ns();
    if (run != NULL) *run = db->run;
    return 0;
}

int trace_db_step_done(struct trace_db *db, uint64_t step, char *err, size_t err_len)
{
    assert(db != NULL && db->run > 0);
    assert(step <= (uint64_t)INT64_MAX);
    if (trace_db_begin(db, err, err_len) != 0) return -1;
    sqlite3_stmt *update =
        prepare(db, "UPDATE run SET last_step = ?1 WHERE run = ?2", err, err_len);
    if (update == NULL) return -1;
    sqlite3_bind_int64(update, 1, (sqlite3_int64)step);
    sqlite3_bind_int64(update, 2, (sqlite3_int64)db->run);
    if (run_statement(db, update, err, err_len) != 0) return -1;
    return trace_db_commit(db, false, err, err_len);
}

/* The indices of the two tables that are written too fast for one. */
static int make_indices(struct trace_db *db, char *err, size_t err_len)
{
    if (db->filled[TRACE_DB_SPAN] &&
        trace_db_execute(db, "CREATE INDEX IF NOT EXISTS span_by_layer ON span (run, step, layer)",
                         "cannot index", err, err_len) != 0)
        return -1;
    if (db->filled[TRACE_DB_MESSAGE] &&
        trace_db_execute(
            db, "CREATE INDEX IF NOT EXISTS message_by_layer ON message (run, step, layer)",
            "cannot index", err, err_len) != 0)
        return -1;
    return 0;
}

int trace_db_end_run(struct trace_db *db, const char *digest, char *err, size_t err_len)
{
    assert(db != NULL && db->run > 0);
    assert(digest != NULL && strlen(digest) == 16);
    if (trace_db_begin(db, err, err_len) != 0) return -1;
    sqlite3_stmt *update = prepare(
        db, "UPDATE run SET complete = 1, digest = ?1, wall_ns = ?2 WHERE run = ?3", err, err_len);
    if (update == NULL) return -1;
    sqlite3_bind_text(update, 1, digest, -1, SQLITE_STATIC);
    sqlite3_bind_int64(update, 2, (sqlite3_int64)(trace_db_now_ns() - db->run_start_ns));
    sqlite3_bind_int64(update, 3, (sqlite3_int64)db->run);
    if (run_statement(db, update, err, err_len) != 0) return -1;
    if (make_indices(db, err, err_len) != 0) return -1;
    if (trace_db_commit(db, true, err, err_len) != 0) return -1;
    db->run = 0;
    memset(db->filled, 0, sizeof db->filled);
    return 0;
}
