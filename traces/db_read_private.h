/* traces/db_read_private.h - what db_read.c (opening) and db_compare.c (questions) share. */
#ifndef TRACES_DB_READ_PRIVATE_H
#define TRACES_DB_READ_PRIVATE_H

#include <sqlite3.h>
#include "traces/db_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_reader {
    char *path;
    sqlite3 *sqlite;
    struct trace_run_info *runs;
    size_t run_count;
    size_t chosen; /* Index into runs. */
    struct trace_routing_info *routing;
    size_t routing_count;
};

/* Write SQLite's own last error into err and return -1. */
int trace_reader_fail(const struct trace_reader *reader, const char *what, char *err,
                      size_t err_len);

/* NULL with err when the file lacks what sql asks for. */
sqlite3_stmt *trace_reader_prepare(const struct trace_reader *reader, const char *sql, char *err,
                                   size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
