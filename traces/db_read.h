/* traces/db_read.h - reading an epsim database, which may come from anywhere.
 *
 * Opened read-only, from a read-only folder too. A broken or hostile file gives one line. */
#ifndef TRACES_DB_READ_H
#define TRACES_DB_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct trace_reader; /* An open database and one run of it. */

struct trace_run_info { /* Strings live until close. */
    uint64_t run;
    const char *tool_version;
    const char *command;
    const char *settings_json;
    const char *settings_digest;
    uint64_t seed;
    const char *digest; /* "" until complete. */
    bool complete;
    int64_t last_step; /* -1 before the first. */
    const char *started_utc;
    uint64_t wall_ns; /* 0 until complete. */
};

/* name is FILE (its last run) or FILE#N (run N). A file whose whole name ends in #N is taken as
 * that file. NULL with a line in err on failure. */
struct trace_reader *trace_reader_open(const char *name, char *err, size_t err_len);
void trace_reader_close(struct trace_reader *reader); /* NULL is fine. */

const char *trace_reader_path(const struct trace_reader *reader); /* Without #N. */
const struct trace_run_info *trace_reader_run(const struct trace_reader *reader);

/* Every run of the file, by number; at least one. */
const struct trace_run_info *trace_reader_runs(const struct trace_reader *reader, size_t *count);

struct trace_routing_info { /* Strings live until close. */
    const char *path;
    uint64_t file_digest;
    const char *id_space;
    const char *model;
};

/* The routing files of the run, the first recorded first; *count may be 0. */
const struct trace_routing_info *trace_reader_routing(const struct trace_reader *reader,
                                                      size_t *count);

/* One check_result's key. The order of keys is step, layer, rank, then stage in the order of the
 * data path: layout, quantise, dispatch, expert, combine, and others by name after these. */
struct trace_check_key {
    uint64_t step;
    uint32_t layer;
    uint32_t rank;
    char stage[24];
};

struct trace_difference {
    uint64_t compared;          /* Keys that both runs have. */
    bool differs;               /* A digest differs; the next three lines say which. */
    struct trace_check_key key; /* The first such key. */
    uint64_t digest_a, digest_b;
    char backend_a[64], backend_b[64];
    uint64_t only_a, only_b; /* Keys that one run alone has (up to the shorter's last step they
                                mean other stages, layers or ranks; beyond it, more steps). */
    struct trace_check_key first_only_a, first_only_b; /* Where only_a, only_b are above 0. */
};

/* Compare the check_result digests of two runs, of one file or two. Every backend's row of a key
 * must agree. 0 with *out filled, or -1 with err. */
int trace_db_first_difference(struct trace_reader *a, struct trace_reader *b,
                              struct trace_difference *out, char *err, size_t err_len);

struct trace_op_time { /* Of the slowest rank in each step. */
    int64_t layer;     /* -1: spans of the whole step. */
    char op[32];
    uint64_t steps;
    uint64_t mean_ps;
    uint64_t max_ps;
};

/* Times of every (layer, op) of the run, by layer and op. The array is the caller's to free;
 * *count may be 0 (a run of detail summary). */
int trace_reader_op_times(struct trace_reader *reader, struct trace_op_time **times, size_t *count,
                          char *err, size_t err_len);

/* What a run's times are made of, added up over its layers. */
enum trace_totals {
    TRACE_TOTALS_STAGE, /* By op: time of the slowest rank, summed over layers, mean over steps. */
    TRACE_TOTALS_RESOURCE, /* By op and resource of a rank ("nic.out"): mean over layers and steps
                              of the busiest rank's; bytes and stalls of all ranks per step. */
    TRACE_TOTALS_PART      /* By op and part of attribution: of the slowest rank, like STAGE. */
};

struct trace_total { /* Sorted by op, then name. Unprintable bytes read as '?'. */
    char op[32];
    char name[40];       /* Resource or part; "" for stages. */
    int64_t ps;          /* Only parts may lie below 0. */
    uint64_t bytes;      /* Resources, else 0. */
    uint64_t stall_ps;   /* Resources: summed over those who waited. */
    uint64_t queue_peak; /* Resources. */
};

/* The array is the caller's to free; *count may be 0: the run did not record it. 0, or -1. */
int trace_reader_totals(struct trace_reader *reader, enum trace_totals what,
                        struct trace_total **totals, size_t *count, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
