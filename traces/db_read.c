/* traces/db_read.c - opens a database for reading and lists its runs. */
#include "traces/db_read.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "traces/db.h"
#include "traces/db_read_private.h"
#include "traces/text.h"

enum {
    VALUE_BYTES_MAX = 64 << 20, /* One text of a hostile file; settings are some kilobytes. */
    READ_WAIT_MS = 5000
};

int trace_reader_fail(const struct trace_reader *reader, const char *what, char *err,
                      size_t err_len)
{
    assert(reader != NULL && what != NULL);
    const int code = sqlite3_errcode(reader->sqlite);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return trace_fail(err, err_len, "%s: in use by another program", reader->path);
    return trace_fail(err, err_len, "%s: %s: %s", reader->path, what,
                      sqlite3_errmsg(reader->sqlite));
}

sqlite3_stmt *trace_reader_prepare(const struct trace_reader *reader, const char *sql, char *err,
                                   size_t err_len)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(reader->sqlite, sql, -1, &statement, NULL) != SQLITE_OK) {
        trace_reader_fail(reader, "not an epsim database", err, err_len);
        sqlite3_finalize(statement);
        return NULL;
    }
    return statement;
}

/* Split FILE#N. *run is 0 where no number is given. */
static int split_name(const char *name, char **path, uint64_t *run, char *err, size_t err_len)
{
    struct stat status;
    *run = 0;
    *path = strdup(name);
    if (*path == NULL) return trace_fail(err, err_len, "%s: out of memory", name);
    char *mark = strrchr(*path, '#');
    if (mark == NULL || mark[1] == '\0' || stat(name, &status) == 0) return 0;
    uint64_t number = 0;
    for (const char *at = mark + 1; *at != '\0'; at++) {
        if (*at < '0' || *at > '9') return 0; /* Then '#' is a part of the name. */
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            number = UINT64_MAX;
        if (number > (uint64_t)INT64_MAX) break;
    }
    if (number == 0 || number > (uint64_t)INT64_MAX)
        return trace_fail(err, err_len, "%s: run numbers begin at 1 and have 63 bits", name);
    *mark = '\0';
    *run = number;
    return 0;
}

/* Open one file read-only, in a mode in which what its schema holds cannot act. */
static int open_sqlite(const char *path, sqlite3 **out)
{
    assert(path != NULL && out != NULL && *out == NULL);
    sqlite3 *sqlite = NULL;
    const size_t name_bytes = strlen(path) + 3;
    char *name = (char *)malloc(name_bytes);
    if (name == NULL) return SQLITE_NOMEM;
    snprintf(name, name_bytes, "%s%s", path[0] == '/' ? "" : "./", path);
    int status = sqlite3_open_v2(name, &sqlite, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    free(name);
    *out = sqlite;
    if (status != SQLITE_OK) return status;
    sqlite3_busy_timeout(sqlite, READ_WAIT_MS);
    sqlite3_limit(sqlite, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    status = sqlite3_exec(sqlite, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON", NULL,
                          NULL, NULL);
    /* The first look at the file: a journal left by a killed run shows here. */
    if (status == SQLITE_OK)
        status = sqlite3_exec(sqlite, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
    return status == SQLITE_OK ? SQLITE_OK : sqlite3_extended_errcode(sqlite);
}

/* A run killed in the middle of a transaction leaves a journal, which a read-only connection may
 * not roll back. So a writer's connection looks at the file once, where the folder allows it. */
static void roll_back(const char *path)
{
    sqlite3 *sqlite = NULL;
    const size_t name_bytes = strlen(path) + 3;
    char *name = (char *)malloc(name_bytes);
    if (name == NULL) return;
    snprintf(name, name_bytes, "%s%s", path[0] == '/' ? "" : "./", path);
    if (sqlite3_open_v2(name, &sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
        SQLITE_OK) {
        sqlite3_busy_timeout(sqlite, READ_WAIT_MS);
        sqlite3_exec(sqlite, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
    }
    sqlite3_close(sqlite);
    free(name);
}

static int copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rbe");
    FILE *out = in != NULL ? fopen(to, "wbxe") : NULL;
    char buffer[1 << 16];
    size_t bytes = 0;
    bool good = out != NULL;
    while (good && (bytes = fread(buffer, 1, sizeof buffer, in)) > 0)
        good = fwrite(buffer, 1, bytes, out) == bytes;
    good = good && ferror(in) == 0;
    if (out != NULL && fclose(out) != 0) good = false;
    if (in != NULL) fclose(in);
    return good ? 0 : -1;
}

/* The same in a folder that cannot be written: roll back a copy, and read that. */
static int open_copy(const char *path, sqlite3 **out)
{
    const char *folder = getenv("TMPDIR");
    char scratch[512], copy[560], journal[560];
    if (folder == NULL || folder[0] == '\0' || strlen(folder) > 400) folder = "/tmp";
    snprintf(scratch, sizeof scratch, "%s/epsim-XXXXXX", folder);
    if (mkdtemp(scratch) == NULL) return SQLITE_CANTOPEN;
    snprintf(copy, sizeof copy, "%s/copy.db", scratch);
    snprintf(journal, sizeof journal, "%s/copy.db-journal", scratch);
    char *original = (char *)malloc(strlen(path) + 16);
    int status = SQLITE_CANTOPEN;
    if (original != NULL) {
        snprintf(original, strlen(path) + 16, "%s-journal", path);
        if (copy_file(path, copy) == 0 && copy_file(original, journal) == 0) {
            roll_back(copy);
            status = open_sqlite(copy, out);
        }
    }
    free(original);
    /* The open connection keeps the bytes. */
    unlink(copy);
    unlink(journal);
    rmdir(scratch);
    return status;
}

static int open_database(struct trace_reader *reader, char *err, size_t err_len)
{
    struct stat status;
    if (stat(reader->path, &status) != 0)
        return trace_fail(err, err_len, "%s: %s", reader->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return trace_fail(err, err_len, "%s: is not a regular file", reader->path);
    assert(reader->sqlite == NULL);
    int code = open_sqlite(reader->path, &reader->sqlite);
    if (code == SQLITE_READONLY_ROLLBACK || code == SQLITE_READONLY_RECOVERY) {
        sqlite3_close(reader->sqlite);
        reader->sqlite = NULL;
        roll_back(reader->path);
        code = open_sqlite(reader->path, &reader->sqlite);
    }
    if (code == SQLITE_READONLY_ROLLBACK) {
        sqlite3_close(reader->sqlite);
        reader->sqlite = NULL;
        code = open_copy(reader->path, &reader->sqlite);
    }
    if (code == SQLITE_OK) return 0;
    if ((code & 0xff) == SQLITE_BUSY)
        return trace_fail(err, err_len, "%s: in use by another program", reader->path);
    return trace_fail(err, err_len, "%s: not an epsim database: %s", reader->path,
                      sqlite3_errstr(code));
}

static int check_version(const struct trace_reader *reader, char *err, size_t err_len)
{
    sqlite3_stmt *statement = trace_reader_prepare(reader, "PRAGMA user_version", err, err_len);
    if (statement == NULL) return -1;
    const int status = sqlite3_step(statement);
    const int64_t version = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    if (status != SQLITE_ROW) return trace_reader_fail(reader, "cannot read it", err, err_len);
    if (version == TRACE_DB_VERSION) return 0;
    return trace_fail(err, err_len,
                      "%s: not an epsim database of this version: user_version is %" PRId64
                      ", expected %d",
                      reader->path, version, TRACE_DB_VERSION);
}

/* A copy of a text column, "" for NULL; NULL when memory is short. */
static char *column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return strdup(text == NULL ? "" : text);
}

/* Grow an array of items by one, zeroed; NULL when memory is short. */
static void *grow(void **items, size_t count, size_t item_bytes)
{
    assert(items != NULL && item_bytes > 0);
    assert(*items != NULL || count == 0);
    if (count % 64 == 0) {
        void *bigger = realloc(*items, (count + 64) * item_bytes);
        if (bigger == NULL) return NULL;
        *items = bigger;
    }
    char *item = (char *)*items + count * item_bytes;
    memset(item, 0, item_bytes);
    return item;
}

static int read_run(struct trace_reader *reader, sqlite3_stmt *statement, char *err, size_t err_len)
{
    void *items = reader->runs;
    struct trace_run_info *info =
        (struct trace_run_info *)grow(&items, reader->run_count, sizeof *info);
    reader->runs = (struct trace_run_info *)items;
    if (info == NULL) return trace_fail(err, err_len, "%s: out of memory", reader->path);
    reader->run_count++;
    const int64_t number = sqlite3_column_int64(statement, 0);
    const int64_t seed = sqlite3_column_int64(statement, 5);
    const int64_t last_step = sqlite3_column_int64(statement, 8);
    const int64_t wall_ns = sqlite3_column_int64(statement, 10);
    const bool has_last_step = sqlite3_column_type(statement, 8) != SQLITE_NULL;
    if (number < 1 || seed < 0 || wall_ns < 0 || (has_last_step && last_step < 0))
        return trace_fail(err, err_len, "%s: run %" PRId64 ": negative figures", reader->path,
                          number);
    info->run = (uint64_t)number;
    info->tool_version = column_text(statement, 1);
    info->command = column_text(statement, 2);
    info->settings_json = column_text(statement, 3);
    info->settings_digest = column_text(statement, 4);
    info->seed = (uint64_t)seed;
    info->digest = column_text(statement, 6);
    info->complete = sqlite3_column_int64(statement, 7) != 0;
    info->last_step = has_last_step ? last_step : -1;
    info->started_utc = column_text(statement, 9);
    info->wall_ns = (uint64_t)wall_ns;
    if (info->tool_version == NULL || info->command == NULL || info->settings_json == NULL ||
        info->settings_digest == NULL || info->digest == NULL || info->started_utc == NULL)
        return trace_fail(err, err_len, "%s: out of memory", reader->path);
    return 0;
}

static int read_runs(struct trace_reader *reader, char *err, size_t err_len)
{
    sqlite3_stmt *statement = trace_reader_prepare(
        reader,
        "SELECT run, tool_version, command, settings_json, settings_digest, seed, digest, "
        "complete, last_step, started_utc, wall_ns FROM run ORDER BY run",
        err, err_len);
    if (statement == NULL) return -1;
    assert(reader->run_count == 0);
    int status;
    while ((status = sqlite3_step(statement)) == SQLITE_ROW)
        if (read_run(reader, statement, err, err_len) != 0) break;
    if (status != SQLITE_DONE && status != SQLITE_ROW)
        trace_reader_fail(reader, "run", err, err_len);
    sqlite3_finalize(statement);
    if (status != SQLITE_DONE) return -1;
    if (reader->run_count > 0) return 0;
    return trace_fail(err, err_len, "%s: holds no run", reader->path);
}

static int choose_run(struct trace_reader *reader, uint64_t number, char *err, size_t err_len)
{
    assert(reader->run_count > 0);
    reader->chosen = reader->run_count - 1;
    if (number == 0) return 0;
    for (size_t i = 0; i < reader->run_count; i++) {
        if (reader->runs[i].run != number) continue;
        reader->chosen = i;
        return 0;
    }
    return trace_fail(err, err_len, "%s#%" PRIu64 ": no such run: expected %" PRIu64 " to %" PRIu64,
                      reader->path, number, reader->runs[0].run,
                      reader->runs[reader->run_count - 1].run);
}

static int read_routing(struct trace_reader *reader, char *err, size_t err_len)
{
    sqlite3_stmt *statement = trace_reader_prepare(
        reader,
        "SELECT path, file_digest, id_space, model FROM routing WHERE run = ?1 ORDER BY "
        "path",
        err, err_len);
    if (statement == NULL) return -1;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)trace_reader_run(reader)->run);
    int status;
    while ((status = sqlite3_step(statement)) == SQLITE_ROW) {
        void *items = reader->routing;
        struct trace_routing_info *info =
            (struct trace_routing_info *)grow(&items, reader->routing_count, sizeof *info);
        reader->routing = (struct trace_routing_info *)items;
        if (info == NULL) break;
        reader->routing_count++;
        const char *digest = (const char *)sqlite3_column_text(statement, 1);
        info->path = column_text(statement, 0);
        info->file_digest = digest == NULL ? 0 : strtoull(digest, NULL, 16);
        info->id_space = column_text(statement, 2);
        info->model = column_text(statement, 3);
        if (info->path == NULL || info->id_space == NULL || info->model == NULL) break;
    }
    if (status == SQLITE_ROW)
        trace_fail(err, err_len, "%s: out of memory", reader->path);
    else if (status != SQLITE_DONE)
        trace_reader_fail(reader, "routing", err, err_len);
    sqlite3_finalize(statement);
    return status == SQLITE_DONE ? 0 : -1;
}

struct trace_reader *trace_reader_open(const char *name, char *err, size_t err_len)
{
    assert(name != NULL);
    struct trace_reader *reader = (struct trace_reader *)calloc(1, sizeof *reader);
    uint64_t number = 0;
    if (reader == NULL) {
        trace_fail(err, err_len, "%s: out of memory", name);
        return NULL;
    }
    if (split_name(name, &reader->path, &number, err, err_len) != 0) goto close_reader;
    if (open_database(reader, err, err_len) != 0) goto close_reader;
    if (check_version(reader, err, err_len) != 0) goto close_reader;
    if (read_runs(reader, err, err_len) != 0) goto close_reader;
    if (choose_run(reader, number, err, err_len) != 0) goto close_reader;
    if (read_routing(reader, err, err_len) != 0) goto close_reader;
    return reader;

close_reader:
    trace_reader_close(reader);
    return NULL;
}

/* free takes a pointer to non-const; the strings of the infos are ours. */
static void free_text(const char *text)
{
    const uintptr_t address = (uintptr_t)text;
    free((void *)address);
}

void trace_reader_close(struct trace_reader *reader)
{
    if (reader == NULL) return;
    for (size_t i = 0; i < reader->run_count; i++) {
        const struct trace_run_info *info = &reader->runs[i];
        free_text(info->tool_version);
        free_text(info->command);
        free_text(info->settings_json);
        free_text(info->settings_digest);
        free_text(info->digest);
        free_text(info->started_utc);
    }
    for (size_t i = 0; i < reader->routing_count; i++) {
        free_text(reader->routing[i].path);
        free_text(reader->routing[i].id_space);
        free_text(reader->routing[i].model);
    }
    free(reader->runs);
    free(reader->routing);
    sqlite3_close(reader->sqlite);
    free(reader->path);
    free(reader);
}

const char *trace_reader_path(const struct trace_reader *reader)
{
    assert(reader != NULL);
    return reader->path;
}

const struct trace_run_info *trace_reader_run(const struct trace_reader *reader)
{
    assert(reader->chosen < reader->run_count);
    return &reader->runs[reader->chosen];
}

const struct trace_run_info *trace_reader_runs(const struct trace_reader *reader, size_t *count)
{
    assert(reader != NULL && count != NULL);
    *count = reader->run_count;
    return reader->runs;
}

const struct trace_routing_info *trace_reader_routing(const struct trace_reader *reader,
                                                      size_t *count)
{
    assert(reader != NULL && count != NULL);
    *count = reader->routing_count;
    return reader->routing;
}
