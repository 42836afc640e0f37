/* traces/report_timeline.c - one layer drawn: a lane for every stream of every rank. */
#include "traces/report_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "traces/text.h"

enum { LANE_LABELS_MAX = 64 };

struct lane { /* A rank's stream. */
    uint32_t rank;
    struct trace_name stream;
};

/* The cursor's rows come by rank and stream, so a new lane is one that differs from the last. */
static bool new_lane(struct lane *lane, uint32_t rank, const struct trace_name *stream,
                     uint64_t lanes)
{
    if (lanes > 0 && lane->rank == rank && trace_name_same(&lane->stream, stream)) return false;
    *lane = (struct lane){rank, *stream};
    return true;
}

struct extent { /* Of what is drawn. */
    uint64_t first_ps, last_ps, lanes;
};

static void put_axis(struct report *report, const struct extent *extent, double height)
{
    const double whole_us = (double)(extent->last_ps - extent->first_ps) / 1e6;
    assert(extent->first_ps < extent->last_ps);
    for (int i = 0; i <= 6; i++)
        trace_html_put(&report->html,
                       "<line x1=\"%d\" y1=\"0\" x2=\"%d\" y2=\"%.1f\"/><text "
                       "x=\"%d\" y=\"-6\" text-anchor=\"middle\">%.4g us</text>\n",
                       90 + i * 140, 90 + i * 140, height, 90 + i * 140, whole_us * i / 6);
}

static void put_label(struct trace_html *html, const struct lane *lane, double y)
{
    trace_html_put(html, "<text x=\"84\" y=\"%.1f\" text-anchor=\"end\">%" PRIu32 " ", y,
                   lane->rank);
    trace_html_text(html, lane->stream.text);
    trace_html_put(html, "</text>\n");
}

static int put_spans(struct report *report, struct trace_cursor *cursor,
                     const struct extent *extent, double lane_height)
{
    struct trace_html *html = &report->html;
    struct lane lane = {0, {""}};
    const double scale = 840.0 / (double)(extent->last_ps - extent->first_ps);
    const uint64_t label_stride = (extent->lanes + LANE_LABELS_MAX - 1) / LANE_LABELS_MAX;
    uint64_t lanes = 0;

    assert(extent->lanes > 0 && label_stride > 0);
    while (!cursor->ended) {
        uint32_t rank = 0;
        uint64_t start_ps = 0, end_ps = 0, bytes = 0, rows = 0;
        const struct trace_name stream = trace_cursor_name(cursor, 3),
                                op = trace_cursor_name(cursor, 4);
        if (trace_cursor_rank(cursor, 2, &rank) != 0 ||
            trace_cursor_times(cursor, 5, &start_ps, &end_ps) != 0 ||
            trace_cursor_number(cursor, 7, INT64_MAX, &bytes) != 0 ||
            trace_cursor_number(cursor, 8, INT64_MAX, &rows) != 0)
            return -1;
        if (new_lane(&lane, rank, &stream, lanes) && lanes++ % label_stride == 0)
            put_label(html, &lane, ((double)lanes - 0.5) * lane_height + 4);
        trace_html_put(html,
                       "<rect class=\"o%" PRIu32 "\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                       "height=\"%.2f\"><title>rank %" PRIu32 ", ",
                       report_colour(report, &op),
                       90 + (double)(start_ps - extent->first_ps) * scale,
                       (double)(lanes - 1) * lane_height + lane_height * 0.1,
                       (double)(end_ps - start_ps) * scale, lane_height * 0.8, rank);
        trace_html_text(html, stream.text);
        trace_html_put(html, ": ");
        trace_html_text(html, op.text);
        trace_html_put(html, ", %.3f to %.3f us, %" PRIu64 " rows, %" PRIu64 " B</title></rect>\n",
                       (double)(start_ps - extent->first_ps) / 1e6,
                       (double)(end_ps - extent->first_ps) / 1e6, rows, bytes);
        if (trace_cursor_advance(cursor) != 0) return -1;
    }
    return 0;
}

/* What is drawn, and how many lanes it has. */
static int measure_layer(struct report *report, struct extent *extent)
{
    struct trace_cursor cursor;
    char sql[320];

    snprintf(sql, sizeof sql,
             "SELECT step, layer, min(start_ps), max(end_ps), count(DISTINCT rank || ' ' || "
             "stream) FROM span WHERE run = ?1 AND step = %" PRId64 " AND layer = %" PRId64
             " GROUP BY step, layer",
             report->step, report->layer);
    int status =
        trace_cursor_open(&cursor, report->reader, "span", sql, report->err, report->err_len);
    if (status == 0 && cursor.ended)
        status = trace_fail(report->err, report->err_len,
                            "%s: run %" PRIu64 " has no spans of step %" PRId64 ", layer %" PRId64,
                            trace_reader_path(report->reader),
                            trace_reader_run(report->reader)->run, report->step, report->layer);
    if (status == 0) status = trace_cursor_times(&cursor, 2, &extent->first_ps, &extent->last_ps);
    if (status == 0) status = trace_cursor_number(&cursor, 4, INT64_MAX, &extent->lanes);
    if (status == 0 && extent->lanes == 0)
        status = trace_fail(report->err, report->err_len,
                            "%s: span: step %" PRId64 ", layer %" PRId64
                            ": no span has both a rank and a stream",
                            trace_reader_path(report->reader), report->step, report->layer);
    trace_cursor_close(&cursor);
    if (status == 0 && extent->last_ps == extent->first_ps) extent->last_ps++; /* Scale by it. */
    return status;
}

static int draw_layer(struct report *report, const struct extent *extent)
{
    struct trace_cursor cursor;
    char sql[320];
    const double lane_height = extent->lanes <= 16 ? 24 : extent->lanes <= 64 ? 14 : 6;
    const double height = lane_height * (double)extent->lanes;

    assert(extent->lanes > 0 && extent->first_ps < extent->last_ps);
    snprintf(sql, sizeof sql,
             "SELECT step, layer, rank, stream, op, start_ps, end_ps, bytes, rows FROM span WHERE "
             "run = ?1 AND step = %" PRId64 " AND layer = %" PRId64
             " ORDER BY rank, stream, start_ps",
             report->step, report->layer);
    int status =
        trace_cursor_open(&cursor, report->reader, "span", sql, report->err, report->err_len);
    if (status == 0) {
        trace_html_put(&report->html,
                       "<figure class=\"wide\"><svg viewBox=\"0 -24 960 %.1f\" role=\"img\" "
                       "aria-label=\"timeline\">\n",
                       height + 30);
        put_axis(report, extent, height);
        status = put_spans(report, &cursor, extent, lane_height);
        trace_html_put(&report->html, "</svg><figcaption>down: rank and stream; across: modelled "
                                      "time since the layer began</figcaption></figure>\n");
    }
    trace_cursor_close(&cursor);
    return status;
}

int report_timeline(struct report *report)
{
    struct extent extent = {0, 0, 0};

    if (report->layer < 0) return 0; /* The section before has said that there are no spans. */
    if (measure_layer(report, &extent) != 0) return -1;
    trace_html_section(&report->html, "Timeline of one layer",
                       "What ran where and when. Hover over a bar for its rows and bytes.");
    trace_html_put(&report->html, "<p>Step %" PRId64 ", MoE layer %" PRId64 ".</p>\n", report->step,
                   report->layer);
    report_legend(report);
    if (draw_layer(report, &extent) != 0) return -1;
    trace_html_put(&report->html, "</section>\n");
    return 0;
}
