/* traces/report_attribution.c - where predicted time went, and what widening would give. */
#include "traces/report_private.h"

#include <inttypes.h>

#include "traces/text.h"

/* Runs of earlier versions have no such table. */
static int has_table(struct report *report, const char *sql, bool *has)
{
    struct trace_cursor cursor;
    const int status = trace_cursor_open(&cursor, report->reader, "sqlite_master", sql, report->err,
                                         report->err_len);
    *has = status == 0 && !cursor.ended;
    trace_cursor_close(&cursor);
    return status;
}

/* Means over ranks, layers and steps; a part may be below 0. */
static int put_parts(struct report *report, bool *any)
{
    struct trace_cursor cursor;
    struct trace_html *html = &report->html;
    int status = trace_cursor_open(
        &cursor, report->reader, "attribution",
        "WITH sums AS (SELECT op, part, sum(ps) AS ps FROM attribution WHERE run = ?1 GROUP BY op, "
        "part), ops AS (SELECT op, sum(ps) AS whole, (SELECT count(*) FROM (SELECT DISTINCT step, "
        "layer, rank FROM attribution AS a WHERE run = ?1 AND a.op = attribution.op)) AS cells "
        "FROM attribution WHERE run = ?1 GROUP BY op) SELECT 0, 0, sums.op, part, "
        "CAST(ps / cells AS REAL), 100.0 * ps / whole FROM sums JOIN ops USING (op) WHERE whole > "
        "0 "
        "AND ps <> 0 ORDER BY sums.op DESC, ps DESC",
        report->err, report->err_len);

    *any = status == 0 && !cursor.ended;
    if (*any)
        trace_html_put(html, "<div class=\"wide\"><table>\n<tr><th>operation</th><th>part</th><th "
                             "class=\"n\">mean</th><th class=\"n\">share</th></tr>\n");
    while (status == 0 && !cursor.ended) {
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, trace_cursor_name(&cursor, 2).text);
        trace_html_text_cell(html, trace_cursor_name(&cursor, 3).text);
        trace_html_put(html, "<td class=\"n\">%.2f us</td><td class=\"n\">%.1f %%</td></tr>\n",
                       sqlite3_column_double(cursor.statement, 4) / 1e6,
                       sqlite3_column_double(cursor.statement, 5));
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    if (*any) trace_html_put(html, "</table></div>\n");
    return status;
}

static int put_knobs(struct report *report)
{
    struct trace_cursor cursor;
    struct trace_html *html = &report->html;
    int status = trace_cursor_open(
        &cursor, report->reader, "whatif",
        "SELECT 0, 0, op, knob, CAST(avg(before_ps) AS INTEGER), CAST(avg(after_ps) AS INTEGER) "
        "FROM whatif WHERE run = ?1 GROUP BY op, knob ORDER BY op DESC, avg(after_ps), knob",
        report->err, report->err_len);
    const bool any = status == 0 && !cursor.ended;

    if (any)
        trace_html_put(html, "<div class=\"wide\"><table>\n<tr><th>operation</th><th>widen</th><th "
                             "class=\"n\">slowest rank now</th><th class=\"n\">then</th><th "
                             "class=\"n\">gain</th></tr>\n");
    while (status == 0 && !cursor.ended) {
        uint64_t before_ps = 0, after_ps = 0;
        if (trace_cursor_number(&cursor, 4, INT64_MAX, &before_ps) != 0 ||
            trace_cursor_number(&cursor, 5, INT64_MAX, &after_ps) != 0) {
            status = -1;
            break;
        }
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, trace_cursor_name(&cursor, 2).text);
        trace_html_text_cell(html, trace_cursor_name(&cursor, 3).text);
        trace_html_time_cell(html, before_ps);
        trace_html_time_cell(html, after_ps);
        if (before_ps == after_ps || before_ps == 0)
            trace_html_put(html, "<td class=\"n\">nothing</td></tr>\n");
        else
            trace_html_put(html, "<td class=\"n\">%.1f %%</td></tr>\n",
                           100 * ((double)before_ps - (double)after_ps) / (double)before_ps);
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    if (any) trace_html_put(html, "</table></div>\n");
    return status;
}

int report_attribution(struct report *report)
{
    bool has = false, any = false;

    if (has_table(report,
                  "SELECT 0, 0 FROM sqlite_master WHERE name = 'attribution' AND ?1 = ?1 AND "
                  "EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'whatif')",
                  &has) != 0)
        return -1;
    if (!has) return 0;
    trace_html_section(&report->html, "Where the time went",
                       "Parts of each operation's modelled time, mean over ranks, layers and "
                       "steps; below, what the slowest rank would gain from a wider resource.");
    if (put_parts(report, &any) != 0 || put_knobs(report) != 0) return -1;
    if (!any)
        trace_html_put(&report->html, "<p>Not recorded: add <code>--explain</code> to the run."
                                      "</p>\n");
    trace_html_put(&report->html, "</section>\n");
    return 0;
}
