/* traces/export_perfetto.c - see export_perfetto.h.
 *
 * Three cursors (spans, resources, messages) walk the run side by side, step by step and layer
 * by layer: of one layer the spans are kept, since the counters take their times and the flows
 * their tracks from them. */
#include "traces/export_perfetto.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "traces/db_cursor.h"
#include "traces/events.h"
#include "traces/text.h"

enum {
    TRACKS_MAX = 32,          /* Of one rank; a span beyond them goes to the last. */
    LAYER_ROWS_MAX = 1 << 22, /* Of one layer, kept in memory. */
    RUN_PROCESS = 1000000     /* Above those of all ranks, which are rank + 1. */
};

struct rank_tracks {
    uint32_t count;
    struct {
        struct trace_name stream;
        uint64_t end_ps;  /* Of its last slice; slices of a track do not overlap. */
    } tracks[TRACKS_MAX]; /* Thread id = index + 1. */
};

struct span {
    uint32_t rank, thread;
    struct trace_name stream, op;
    uint64_t start_ps, end_ps;
    uint64_t bytes, rows;
};

struct use { /* One link or NIC in one operation. */
    struct trace_name resource;
    uint32_t process;
    uint64_t busy_ps, bytes;
    uint64_t start_ps, end_ps; /* Of the operation. */
};

struct exporter {
    struct trace_reader *reader;
    struct trace_events events;
    struct trace_perfetto_counts counts;
    struct trace_cursor spans, uses, messages;
    struct rank_tracks *ranks; /* Owned. */
    uint32_t rank_count;
    struct span *layer_spans; /* Owned. */
    size_t span_count, span_room;
    struct use *layer_uses; /* Owned. */
    size_t use_count, use_room;
    char *err;
    size_t err_len;
};

/* --- a layer in memory ------------------------------------------------------------------------ */

/* Room for one row more of a layer's; NULL with err when there is none. */
static void *grow_rows(const struct exporter *exporter, void *rows, size_t *room, size_t count,
                       size_t row_bytes)
{
    if (count < *room) return rows;
    const size_t wanted = *room == 0 ? 256 : 2 * *room;
    void *grown = wanted <= LAYER_ROWS_MAX ? realloc(rows, wanted * row_bytes) : NULL;
    if (grown != NULL)
        *room = wanted;
    else
        trace_fail(exporter->err, exporter->err_len,
                   "%s: more than %zu rows in one layer: too many, or out of memory",
                   trace_reader_path(exporter->reader), count);
    return grown;
}

/* --- slices ------------------------------------------------------------------------------------
 */

/* Tracks of a rank, whose process is named when it is first seen. */
static int grow_ranks(struct exporter *exporter, uint32_t rank)
{
    char name[32];
    if (rank >= exporter->rank_count) {
        const uint32_t twice = 2 * exporter->rank_count;
        const uint32_t count = rank + 1 > twice ? rank + 1 : twice;
        struct rank_tracks *grown =
            (struct rank_tracks *)realloc(exporter->ranks, count * sizeof *grown);
        if (grown == NULL)
            return trace_fail(exporter->err, exporter->err_len,
                              "%s: rank %" PRIu32 ": out of memory",
                              trace_reader_path(exporter->reader), rank);
        memset(grown + exporter->rank_count, 0, (count - exporter->rank_count) * sizeof *grown);
        exporter->ranks = grown;
        exporter->rank_count = count;
    }
    if (exporter->ranks[rank].count > 0) return 0;
    snprintf(name, sizeof name, "rank %" PRIu32, rank);
    trace_events_process(&exporter->events, rank + 1, name, rank);
    return 0;
}

/* The first track of the stream whose last slice is over; a new one where there is none. */
static uint32_t take_track(struct exporter *exporter, const struct span *span)
{
    struct rank_tracks *rank = &exporter->ranks[span->rank];
    uint32_t found = TRACKS_MAX, number = 1;

    for (uint32_t t = 0; t < rank->count && found == TRACKS_MAX; t++) {
        if (!trace_name_same(&rank->tracks[t].stream, &span->stream)) continue;
        if (rank->tracks[t].end_ps <= span->start_ps) found = t;
        number++;
    }
    if (found == TRACKS_MAX && rank->count < TRACKS_MAX) {
        char name[TRACE_NAME_BYTES + 16];
        found = rank->count++;
        rank->tracks[found].stream = span->stream;
        snprintf(name, sizeof name, number > 1 ? "%s %" PRIu32 : "%s", span->stream.text, number);
        trace_events_thread(&exporter->events, span->rank + 1, found + 1, name);
    }
    if (found == TRACKS_MAX) found = TRACKS_MAX - 1;
    if (rank->tracks[found].end_ps < span->end_ps) rank->tracks[found].end_ps = span->end_ps;
    return found + 1;
}

static void put_slice(struct exporter *exporter, const struct span *span, int64_t step,
                      int64_t layer)
{
    char arguments[256], layer_text[48] = "";
    if (layer >= 0) snprintf(layer_text, sizeof layer_text, "\"layer\":%" PRId64 ",", layer);
    snprintf(arguments, sizeof arguments,
             "\"step\":%" PRId64 ",%s\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64
             ",\"start_ps\":%" PRIu64 ",\"end_ps\":%" PRIu64,
             step, layer_text, span->bytes, span->rows, span->start_ps, span->end_ps);
    trace_events_slice(&exporter->events, span->rank + 1, span->thread, span->op.text,
                       span->stream.text, span->start_ps, span->end_ps, arguments);
    exporter->counts.spans++;
}

static int export_spans(struct exporter *exporter, int64_t step, int64_t layer)
{
    struct trace_cursor *cursor = &exporter->spans;

    for (exporter->span_count = 0; trace_cursor_stands_on(cursor, step, layer);) {
        struct span *grown =
            (struct span *)grow_rows(exporter, exporter->layer_spans, &exporter->span_room,
                                     exporter->span_count, sizeof *grown);
        if (grown == NULL) return -1;
        exporter->layer_spans = grown;
        struct span *span = &grown[exporter->span_count];
        if (trace_cursor_rank(cursor, 2, &span->rank) != 0 ||
            trace_cursor_times(cursor, 5, &span->start_ps, &span->end_ps) != 0 ||
            trace_cursor_number(cursor, 7, INT64_MAX, &span->bytes) != 0 ||
            trace_cursor_number(cursor, 8, INT64_MAX, &span->rows) != 0 ||
            grow_ranks(exporter, span->rank) != 0)
            return -1;
        span->stream = trace_cursor_name(cursor, 3);
        span->op = trace_cursor_name(cursor, 4);
        span->thread = take_track(exporter, span);
        put_slice(exporter, span, step, layer);
        exporter->span_count++;
        if (trace_cursor_advance(cursor) != 0) return -1;
    }
    return 0;
}

/* The layer's first span of the rank, by halving: spans come rank by rank. */
static size_t first_span(const struct exporter *exporter, uint32_t rank)
{
    size_t low = 0, high = exporter->span_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (exporter->layer_spans[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* --- counters of links and NICs ------------------------------------------------------------------
 */

/* When the operation ran: on the rank that the resource is named after ("rank3.nic.in"), or on
 * any, where it is named otherwise. false when no span says. */
static bool set_window(const struct exporter *exporter, const struct trace_name *op,
                       struct use *use)
{
    uint32_t rank = 0;
    int used = 0;
    const bool own = sscanf(use->resource.text, "rank%" SCNu32 ".%n", &rank, &used) == 1 &&
                     used > 0 && rank < TRACE_CURSOR_RANKS_MAX;

    use->process = own ? rank + 1 : RUN_PROCESS;
    use->start_ps = UINT64_MAX;
    use->end_ps = 0;
    for (size_t s = own ? first_span(exporter, rank) : 0; s < exporter->span_count; s++) {
        const struct span *span = &exporter->layer_spans[s];
        if (own && span->rank != rank) break;
        if (!trace_name_same(&span->op, op)) continue;
        if (span->start_ps < use->start_ps) use->start_ps = span->start_ps;
        if (span->end_ps > use->end_ps) use->end_ps = span->end_ps;
    }
    if (own)
        memmove(use->resource.text, use->resource.text + used,
                strlen(use->resource.text + used) + 1);
    return use->start_ps < use->end_ps;
}

static int compare_uses(const void *left, const void *right)
{
    const struct use *a = (const struct use *)left;
    const struct use *b = (const struct use *)right;
    if (a->start_ps != b->start_ps) return a->start_ps < b->start_ps ? -1 : 1;
    if (a->process != b->process) return a->process < b->process ? -1 : 1;
    return strcmp(a->resource.text, b->resource.text);
}

/* Mean rate and busy share while the operation ran, then 0. Operations of a rank come in order of
 * their start, so a 0 at the instant at which the next one starts stands before its value. */
static int export_uses(struct exporter *exporter, int64_t step, int64_t layer)
{
    struct trace_cursor *cursor = &exporter->uses;

    for (exporter->use_count = 0; trace_cursor_stands_on(cursor, step, layer);) {
        struct use *grown =
            (struct use *)grow_rows(exporter, exporter->layer_uses, &exporter->use_room,
                                    exporter->use_count, sizeof *grown);
        if (grown == NULL) return -1;
        exporter->layer_uses = grown;
        struct use *use = &grown[exporter->use_count];
        const struct trace_name op = trace_cursor_name(cursor, 2);
        use->resource = trace_cursor_name(cursor, 3);
        if (trace_cursor_number(cursor, 4, INT64_MAX, &use->busy_ps) != 0 ||
            trace_cursor_number(cursor, 5, INT64_MAX, &use->bytes) != 0)
            return -1;
        exporter->use_count += set_window(exporter, &op, use);
        if (trace_cursor_advance(cursor) != 0) return -1;
    }
    qsort(exporter->layer_uses, exporter->use_count, sizeof *exporter->layer_uses, compare_uses);
    for (size_t u = 0; u < exporter->use_count; u++) {
        const struct use *use = &exporter->layer_uses[u];
        const double ps = (double)(use->end_ps - use->start_ps);
        const double values[2] = {(double)use->bytes * 1e3 / ps, (double)use->busy_ps * 100 / ps};
        static const char *const UNITS[2] = {"GB/s", "busy %"};
        for (int i = 0; i < 2; i++) {
            trace_events_counter(&exporter->events, use->process, use->resource.text, UNITS[i],
                                 use->start_ps, values[i]);
            trace_events_counter(&exporter->events, use->process, use->resource.text, UNITS[i],
                                 use->end_ps, 0);
            exporter->counts.counters += 2;
        }
    }
    return 0;
}

/* --- messages -----------------------------------------------------------------------------------
 */

/* The slice of the rank's operation around an instant. */
static bool find_slice(const struct exporter *exporter, uint32_t rank, const struct trace_name *op,
                       uint64_t at_ps, struct trace_flow_end *end)
{
    for (size_t s = first_span(exporter, rank); s < exporter->span_count; s++) {
        const struct span *span = &exporter->layer_spans[s];
        if (span->rank != rank) break;
        if (!trace_name_same(&span->op, op) || at_ps < span->start_ps || at_ps > span->end_ps)
            continue;
        *end = (struct trace_flow_end){rank + 1, span->thread, at_ps};
        return true;
    }
    return false;
}

static int export_messages(struct exporter *exporter, int64_t step, int64_t layer)
{
    struct trace_cursor *cursor = &exporter->messages;

    while (trace_cursor_stands_on(cursor, step, layer)) {
        struct trace_flow_end from, to;
        uint32_t src = 0, dst = 0;
        uint64_t bytes = 0, rows = 0, send_ps = 0, land_ps = 0;
        char arguments[128];
        const struct trace_name op = trace_cursor_name(cursor, 2),
                                link = trace_cursor_name(cursor, 5);
        if (trace_cursor_rank(cursor, 3, &src) != 0 || trace_cursor_rank(cursor, 4, &dst) != 0 ||
            trace_cursor_number(cursor, 6, INT64_MAX, &bytes) != 0 ||
            trace_cursor_number(cursor, 7, INT64_MAX, &rows) != 0 ||
            trace_cursor_times(cursor, 8, &send_ps, &land_ps) != 0)
            return -1;
        if (find_slice(exporter, src, &op, send_ps, &from) &&
            find_slice(exporter, dst, &op, land_ps, &to)) {
            snprintf(arguments, sizeof arguments, "\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64, bytes,
                     rows);
            trace_events_flow(&exporter->events, ++exporter->counts.flows, link.text, op.text,
                              &from, &to, arguments);
        } else {
            exporter->counts.flows_skipped++;
        }
        if (trace_cursor_advance(cursor) != 0) return -1;
    }
    return 0;
}

/* Bytes that each rank has sent over a kind of link and that have not landed: SQLite sorts what
 * adds and what takes away, on disk where it is much. */
static int export_in_flight(struct exporter *exporter)
{
    struct trace_cursor cursor;
    struct trace_name before = {""};
    uint64_t rank_before = UINT64_MAX;
    int64_t bytes = 0;
    int status = 0;

    memset(&cursor, 0, sizeof cursor);
    status = trace_cursor_open(
        &cursor, exporter->reader, "message",
        "SELECT 0, 0, src_rank, link_class, at_ps, sum(change) FROM ("
        "SELECT src_rank, link_class, send_ps AS at_ps, bytes AS change FROM message "
        "WHERE run = ?1 AND link_class <> 'local' UNION ALL "
        "SELECT src_rank, link_class, land_ps, -bytes FROM message "
        "WHERE run = ?1 AND link_class <> 'local') "
        "GROUP BY src_rank, link_class, at_ps ORDER BY src_rank, link_class, at_ps",
        exporter->err, exporter->err_len);
    while (status == 0 && !cursor.ended) {
        const struct trace_name link = trace_cursor_name(&cursor, 3);
        uint32_t rank = 0;
        uint64_t at_ps = 0;
        status = trace_cursor_rank(&cursor, 2, &rank);
        if (status == 0) status = trace_cursor_number(&cursor, 4, INT64_MAX, &at_ps);
        if (status != 0) break;
        if (rank != rank_before || !trace_name_same(&link, &before)) bytes = 0;
        rank_before = rank;
        before = link;
        if (__builtin_add_overflow(bytes, sqlite3_column_int64(cursor.statement, 5), &bytes))
            bytes = 0; /* Of a broken file alone. */
        trace_events_counter(&exporter->events, rank + 1, link.text, "bytes in flight", at_ps,
                             (double)bytes);
        exporter->counts.counters++;
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    return status;
}

/* --- the whole run
 * --------------------------------------------------------------------------------- */

static int export_steps(struct exporter *exporter)
{
    struct trace_cursor cursor;
    int status = 0;

    memset(&cursor, 0, sizeof cursor);
    trace_events_process(&exporter->events, RUN_PROCESS, "run", -1);
    trace_events_thread(&exporter->events, RUN_PROCESS, 1, "steps");
    status =
        trace_cursor_open(&cursor, exporter->reader, "step",
                          "SELECT step, NULL, start_ps, end_ps, tokens FROM step WHERE run = ?1 "
                          "ORDER BY step",
                          exporter->err, exporter->err_len);
    while (status == 0 && !cursor.ended) {
        uint64_t start_ps = 0, end_ps = 0, tokens = 0;
        char name[32], arguments[64];
        status = trace_cursor_times(&cursor, 2, &start_ps, &end_ps);
        if (status == 0) status = trace_cursor_number(&cursor, 4, INT64_MAX, &tokens);
        if (status != 0) break;
        snprintf(name, sizeof name, "step %" PRId64, cursor.step);
        snprintf(arguments, sizeof arguments, "\"tokens\":%" PRIu64, tokens);
        trace_events_slice(&exporter->events, RUN_PROCESS, 1, name, "step", start_ps, end_ps,
                           arguments);
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    return status;
}

/* The first (step, layer) on which a cursor stands; false when all have ended. */
static bool next_layer(const struct exporter *exporter, int64_t *step, int64_t *layer)
{
    const struct trace_cursor *cursors[3] = {&exporter->spans, &exporter->uses,
                                             &exporter->messages};
    bool found = false;
    for (int i = 0; i < 3; i++) {
        const struct trace_cursor *cursor = cursors[i];
        if (cursor->ended) continue;
        if (found && (cursor->step > *step || (cursor->step == *step && cursor->layer >= *layer)))
            continue;
        found = true;
        *step = cursor->step;
        *layer = cursor->layer;
    }
    return found;
}

static int export_layers(struct exporter *exporter)
{
    int64_t step = 0, layer = 0;

    if (trace_cursor_open(
            &exporter->spans, exporter->reader, "span",
            "SELECT step, layer, rank, stream, op, start_ps, end_ps, bytes, rows FROM span "
            "WHERE run = ?1 ORDER BY step, layer, rank, stream, start_ps, end_ps",
            exporter->err, exporter->err_len) != 0 ||
        trace_cursor_open(&exporter->uses, exporter->reader, "resource_use",
                          "SELECT step, layer, op, resource, busy_ps, bytes FROM resource_use "
                          "WHERE run = ?1 AND kind IN ('link', 'nic') ORDER BY step, layer",
                          exporter->err, exporter->err_len) != 0 ||
        trace_cursor_open(
            &exporter->messages, exporter->reader, "message",
            "SELECT step, layer, op, src_rank, dst_rank, link_class, bytes, rows, send_ps, "
            "land_ps FROM message WHERE run = ?1 AND link_class <> 'local' "
            "ORDER BY step, layer",
            exporter->err, exporter->err_len) != 0)
        return -1;
    if (exporter->spans.ended)
        return trace_fail(
            exporter->err, exporter->err_len,
            "%s#%" PRIu64 ": has no spans: record the run with detail span or message",
            trace_reader_path(exporter->reader), trace_reader_run(exporter->reader)->run);
    while (!exporter->events.failed && next_layer(exporter, &step, &layer))
        if (export_spans(exporter, step, layer) != 0 || export_uses(exporter, step, layer) != 0 ||
            export_messages(exporter, step, layer) != 0)
            return -1;
    return 0;
}

static int end_document(struct exporter *exporter)
{
    const struct trace_run_info *run = trace_reader_run(exporter->reader);
    const struct trace_name version = trace_name_clean((const unsigned char *)run->tool_version);
    const struct trace_name digest = trace_name_clean((const unsigned char *)run->digest);
    char metadata[512];
    snprintf(metadata, sizeof metadata,
             "\"program\":\"%s\",\"times\":\"modelled\",\"seed\":\"%" PRIu64
             "\",\"digest\":\"%s\",\"run\":\"%" PRIu64 "\",\"complete\":\"%s\","
             "\"messages without flow\":\"%" PRIu64 "\"",
             version.text, run->seed, digest.text, run->run, run->complete ? "yes" : "no",
             exporter->counts.flows_skipped);
    return trace_events_end(&exporter->events, metadata);
}

/* Writing over the file that is being read would lose the run. */
static bool same_file(const char *a, const char *b)
{
    struct stat status[2];
    return stat(a, &status[0]) == 0 && stat(b, &status[1]) == 0 &&
           status[0].st_dev == status[1].st_dev && status[0].st_ino == status[1].st_ino;
}

int trace_export_perfetto(struct trace_reader *reader, const char *path,
                          struct trace_perfetto_counts *counts, char *err, size_t err_len)
{
    struct exporter exporter;
    struct trace_output *output = NULL;
    int status = -1;

    assert(reader != NULL && path != NULL && counts != NULL);
    if (same_file(trace_reader_path(reader), path))
        return trace_fail(err, err_len, "%s: is the database itself", path);
    output = trace_output_open(path, err, err_len);
    if (output == NULL) return -2;
    memset(&exporter, 0, sizeof exporter);
    exporter.reader = reader;
    exporter.err = err;
    exporter.err_len = err_len;
    trace_events_begin(&exporter.events, output, err, err_len);
    if (export_steps(&exporter) == 0 && export_layers(&exporter) == 0 &&
        export_in_flight(&exporter) == 0)
        status = 0;
    if (status == 0 && end_document(&exporter) != 0) status = -2;
    trace_cursor_close(&exporter.spans);
    trace_cursor_close(&exporter.uses);
    trace_cursor_close(&exporter.messages);
    free(exporter.ranks);
    free(exporter.layer_spans);
    free(exporter.layer_uses);
    if (status != 0)
        trace_output_abandon(output);
    else if (trace_output_commit(output, err, err_len) != 0)
        status = -2;
    if (status == 0) *counts = exporter.counts;
    return status;
}
