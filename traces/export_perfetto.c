/* traces/export_perfetto.c - a run's spans, messages and counters as trace events.
 *
 * Two cursors (spans, messages) walk the run side by side, step by step and layer by layer: of
 * one layer the spans are kept, since flows take their tracks from them. Counters follow, one
 * after the other. */
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
    bool named; /* Its process. */
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

struct exporter {
    struct trace_reader *reader;
    struct trace_events events;
    struct trace_perfetto_counts counts;
    struct trace_cursor spans, messages;
    struct rank_tracks *ranks; /* Owned. */
    uint32_t rank_count;
    struct span *layer_spans; /* Owned. */
    size_t span_count, span_room;
    char *err;
    size_t err_len;
};

/* --- a layer in memory --------------------------------------------------------------------- */

/* Room for one row more of a layer's; NULL with err when there is none. */
static void *grow_rows(const struct exporter *exporter, void *rows, size_t *room, size_t count,
                       size_t row_bytes)
{
    assert(count <= *room && row_bytes > 0);
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

/* --- slices ------------------------------------------------------------------------------ */

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
    assert(rank < exporter->rank_count);
    if (exporter->ranks[rank].named) return 0;
    exporter->ranks[rank].named = true;
    snprintf(name, sizeof name, "rank %" PRIu32, rank);
    trace_events_process(&exporter->events, rank + 1, name, rank);
    return 0;
}

/* The first track of the stream whose last slice is over; a new one where there is none. */
static uint32_t take_track(struct exporter *exporter, const struct span *span)
{
    struct rank_tracks *rank = &exporter->ranks[span->rank];
    uint32_t found = TRACKS_MAX, number = 1;

    assert(span->rank < exporter->rank_count && span->start_ps <= span->end_ps);
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
    assert(found < rank->count);
    if (rank->tracks[found].end_ps < span->end_ps) rank->tracks[found].end_ps = span->end_ps;
    return found + 1;
}

static void put_slice(struct exporter *exporter, const struct span *span, int64_t step,
                      int64_t layer)
{
    char arguments[256], layer_text[48] = "";
    assert(span->thread >= 1 && span->thread <= TRACKS_MAX);
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
        assert(exporter->span_count < exporter->span_room);
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

/* --- messages ---------------------------------------------------------------------------- */

/* The slice of the rank's operation around an instant. What lands before its receiver has begun
 * (early) is there when it begins. */
static bool find_slice(const struct exporter *exporter, uint32_t rank, const struct trace_name *op,
                       uint64_t at_ps, bool early, struct trace_flow_end *end)
{
    for (size_t s = first_span(exporter, rank); s < exporter->span_count; s++) {
        const struct span *span = &exporter->layer_spans[s];
        if (span->rank != rank) break;
        if (!trace_name_same(&span->op, op) || at_ps > span->end_ps) continue;
        if (at_ps < span->start_ps && !early) continue;
        *end = (struct trace_flow_end){rank + 1, span->thread,
                                       at_ps < span->start_ps ? span->start_ps : at_ps};
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
        if (find_slice(exporter, src, &op, send_ps, false, &from) &&
            find_slice(exporter, dst, &op, land_ps, true, &to)) {
            snprintf(arguments, sizeof arguments,
                     "\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"land_ps\":%" PRIu64, bytes, rows,
                     land_ps);
            trace_events_flow(&exporter->events, ++exporter->counts.flows, link.text, op.text,
                              &from, &to, arguments);
        } else {
            exporter->counts.flows_skipped++;
        }
        if (trace_cursor_advance(cursor) != 0) return -1;
    }
    return 0;
}

/* --- counters ------------------------------------------------------------------------------ */

/* Of the part that is exported: ?2 to ?5 are its first and last step, and where it ends. */
#define IN_PART "step BETWEEN ?2 AND ?3 AND (step, ifnull(layer, -1)) < (?4, ?5) "

/* What a counter's value changes by, and when. SQLite sorts it, on disk where it is much. Columns
 * behind the first two: the counter ("rank3.NAME"), the instant, and as many changes as units. */
struct series {
    const char *table;
    const char *sql;
    const char *units[2];
    int unit_count;
    int parts; /* Of a unit: what the changes count. */
};

static const struct series SERIES[] = {
    {"resource_use",
     "WITH times AS MATERIALIZED (SELECT step, layer, op, min(start_ps) AS first_ps, "
     "max(end_ps) AS last_ps FROM span WHERE run = ?1 AND " IN_PART "GROUP BY step, layer, op), "
     "uses AS MATERIALIZED (SELECT resource || ' ' || u.op AS name, first_ps, last_ps, "
     "CAST(round(bytes * 1e6 / (last_ps - first_ps)) AS INTEGER) AS rate, "
     "CAST(round(busy_ps * 1e5 / (last_ps - first_ps)) AS INTEGER) AS busy "
     "FROM resource_use AS u JOIN times AS t ON t.step = u.step AND t.layer = u.layer AND "
     "t.op = u.op WHERE u.run = ?1 AND kind IN ('link', 'nic') AND first_ps < last_ps) "
     "SELECT 0, 0, name, at_ps, sum(rate), sum(busy) FROM ("
     "SELECT name, first_ps AS at_ps, rate, busy FROM uses UNION ALL "
     "SELECT name, last_ps, -rate, -busy FROM uses) GROUP BY name, at_ps ORDER BY name, at_ps",
     {"GB/s", "busy %"},
     2,
     1000},
    {"message",
     "SELECT 0, 0, name, at_ps, sum(change) FROM ("
     "SELECT 'rank' || src_rank || '.' || link_class AS name, send_ps AS at_ps, bytes AS change "
     "FROM message WHERE run = ?1 AND link_class <> 'local' AND " IN_PART "UNION ALL "
     "SELECT 'rank' || src_rank || '.' || link_class, land_ps, -bytes "
     "FROM message WHERE run = ?1 AND link_class <> 'local' AND " IN_PART ") "
     "GROUP BY name, at_ps ORDER BY name, at_ps",
     {"bytes in flight", NULL},
     1,
     1}};

/* "rank3.NAME" is NAME in rank 3's process, any other name is one of the run's. */
static const char *find_process(const struct trace_name *name, uint32_t *rank, bool *own)
{
    int used = 0;
    *own = sscanf(name->text, "rank%" SCNu32 ".%n", rank, &used) == 1 && used > 0 &&
           *rank < TRACE_CURSOR_RANKS_MAX;
    return *own ? name->text + used : name->text;
}

static int export_change(struct exporter *exporter, const struct trace_cursor *cursor,
                         const struct series *series, const struct trace_name *name,
                         int64_t values[2])
{
    uint32_t rank = 0;
    uint64_t at_ps = 0;
    bool own = false;
    const char *label = find_process(name, &rank, &own);

    assert(series->unit_count >= 1 && series->unit_count <= 2 && series->parts > 0);
    if (trace_cursor_number(cursor, 3, INT64_MAX, &at_ps) != 0 ||
        (own && grow_ranks(exporter, rank) != 0))
        return -1;
    for (int i = 0; i < series->unit_count; i++) {
        const int64_t change = sqlite3_column_int64(cursor->statement, 4 + i);
        if (__builtin_add_overflow(values[i], change, &values[i]) || values[i] < 0)
            return trace_fail(
                exporter->err, exporter->err_len, "%s: %s: %s: %s: below 0, or too much to count",
                trace_reader_path(exporter->reader), series->table, name->text, series->units[i]);
        trace_events_counter(&exporter->events, own ? rank + 1 : RUN_PROCESS, label,
                             series->units[i], at_ps, (double)values[i] / series->parts);
        exporter->counts.counters++;
    }
    return 0;
}

static int open_part(const struct exporter *exporter, struct trace_cursor *cursor,
                     const char *table, const char *sql)
{
    const struct trace_export_part *part = &exporter->counts.part;
    const int64_t more[4] = {part->first_step, part->last_step, part->end_step, part->end_layer};
    return trace_cursor_open_with(cursor, exporter->reader, table, sql, more, 4, exporter->err,
                                  exporter->err_len);
}

static int export_series(struct exporter *exporter, const struct series *series)
{
    struct trace_cursor cursor;
    struct trace_name before = {""};
    int64_t values[2] = {0, 0};
    int status = open_part(exporter, &cursor, series->table, series->sql);

    while (status == 0 && !cursor.ended && !exporter->events.failed) {
        const struct trace_name name = trace_cursor_name(&cursor, 2);
        if (!trace_name_same(&name, &before)) memset(values, 0, sizeof values);
        before = name;
        status = export_change(exporter, &cursor, series, &name, values);
        if (status == 0) status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    return status;
}

/* --- the whole run ------------------------------------------------------------------------- */

static int export_steps(struct exporter *exporter)
{
    struct trace_cursor cursor;
    int status = 0;

    trace_events_process(&exporter->events, RUN_PROCESS, "run", -1);
    trace_events_thread(&exporter->events, RUN_PROCESS, 1, "steps");
    status = open_part(exporter, &cursor, "step",
                       "SELECT step, NULL, start_ps, end_ps, tokens FROM step WHERE run = ?1 AND "
                       "step BETWEEN ?2 AND ?3 AND (step, -1) < (?4, ?5) ORDER BY step");
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
    const struct trace_cursor *cursors[2] = {&exporter->spans, &exporter->messages};
    bool found = false;
    for (int i = 0; i < 2; i++) {
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

    if (open_part(exporter, &exporter->spans, "span",
                  "SELECT step, layer, rank, stream, op, start_ps, end_ps, bytes, rows FROM span "
                  "WHERE run = ?1 AND " IN_PART
                  "ORDER BY step, layer, rank, stream, start_ps, end_ps") != 0 ||
        open_part(exporter, &exporter->messages, "message",
                  "SELECT step, layer, op, src_rank, dst_rank, link_class, bytes, rows, send_ps, "
                  "land_ps FROM message WHERE run = ?1 AND link_class <> 'local' AND " IN_PART
                  "ORDER BY step, layer") != 0)
        return -1;
    while (!exporter->events.failed && next_layer(exporter, &step, &layer))
        if (export_spans(exporter, step, layer) != 0 || export_messages(exporter, step, layer) != 0)
            return -1;
    return 0;
}

static int end_document(struct exporter *exporter)
{
    const struct trace_run_info *run = trace_reader_run(exporter->reader);
    const struct trace_name version = trace_name_clean((const unsigned char *)run->tool_version);
    const struct trace_name digest = trace_name_clean((const unsigned char *)run->digest);
    char metadata[640], end[64] = "";
    if (trace_export_part_cut(&exporter->counts.part))
        trace_export_part_end(&exporter->counts.part, end);
    snprintf(metadata, sizeof metadata,
             "\"program\":\"%s\",\"times\":\"modelled\",\"seed\":\"%" PRIu64
             "\",\"digest\":\"%s\",\"run\":\"%" PRIu64 "\",\"complete\":\"%s\","
             "\"messages without flow\":\"%" PRIu64 "\",\"left out\":\"%s%s%s\"",
             version.text, run->seed, digest.text, run->run, run->complete ? "yes" : "no",
             exporter->counts.flows_skipped, end[0] != '\0' ? "from " : "", end,
             end[0] != '\0' ? " on" : "");
    return trace_events_end(&exporter->events, metadata);
}

/* Writing over the file that is being read would lose the run. */
static bool same_file(const char *a, const char *b)
{
    struct stat status[2];
    return stat(a, &status[0]) == 0 && stat(b, &status[1]) == 0 &&
           status[0].st_dev == status[1].st_dev && status[0].st_ino == status[1].st_ino;
}

int trace_export_perfetto(struct trace_reader *reader, const struct trace_export_choice *choice,
                          const char *path, struct trace_perfetto_counts *counts, char *err,
                          size_t err_len)
{
    struct exporter exporter;
    struct trace_output *output = NULL;
    int status = -1;

    assert(reader != NULL && path != NULL && counts != NULL);
    if (same_file(trace_reader_path(reader), path))
        return trace_fail(err, err_len, "%s: is the database itself: name another file", path);
    memset(&exporter, 0, sizeof exporter);
    if (trace_export_part_find(reader, choice, &exporter.counts.part, err, err_len) != 0) return -1;
    output = trace_output_open(path, err, err_len);
    if (output == NULL) return -2;
    exporter.reader = reader;
    exporter.err = err;
    exporter.err_len = err_len;
    trace_events_begin(&exporter.events, output, err, err_len);
    if (export_steps(&exporter) == 0 && export_layers(&exporter) == 0 &&
        export_series(&exporter, &SERIES[0]) == 0 && export_series(&exporter, &SERIES[1]) == 0)
        status = 0;
    if (status == 0 && end_document(&exporter) != 0) status = -2;
    trace_cursor_close(&exporter.spans);
    trace_cursor_close(&exporter.messages);
    free(exporter.ranks);
    free(exporter.layer_spans);
    if (status != 0)
        trace_output_abandon(output);
    else if (trace_output_commit(output, err, err_len) != 0)
        status = -2;
    if (status == 0) *counts = exporter.counts;
    return status;
}
