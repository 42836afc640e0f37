/* traces/report_attribution.c - where predicted time went, and what widening would give. */
#include "traces/report_private.h"

#include <inttypes.h>

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
static int put_part(struct report *report, const struct trace_cursor *cursor, void *context)
{
    (void)context;
    trace_html_put(&report->html, "<tr>");
    report_names(report, cursor, 2, 2);
    trace_html_put(&report->html, "<td class=\"n\">%.2f us</td><td class=\"n\">%.1f %%</td></tr>\n",
                   sqlite3_column_double(cursor->statement, 4) / 1e6,
                   sqlite3_column_double(cursor->statement, 5));
    return 0;
}

static int put_knob(struct report *report, const struct trace_cursor *cursor, void *context)
{
    struct trace_html *html = &report->html;
    uint64_t ps[2]; /* Before, after. */

    (void)context;
    if (report_numbers(cursor, 4, 2, ps) != 0) return -1;
    trace_html_put(html, "<tr>");
    report_names(report, cursor, 2, 2);
    trace_html_time_cell(html, ps[0]);
    trace_html_time_cell(html, ps[1]);
    if (ps[0] == ps[1] || ps[0] == 0)
        trace_html_put(html, "<td class=\"n\">nothing</td></tr>\n");
    else
        trace_html_put(html, "<td class=\"n\">%.1f %%</td></tr>\n",
                       100 * ((double)ps[0] - (double)ps[1]) / (double)ps[0]);
    return 0;
}

int report_attribution(struct report *report)
{
    static const struct report_query parts = {
        "attribution",
        "WITH sums AS (SELECT op, part, sum(ps) AS ps FROM attribution WHERE run = ?1 GROUP BY op, "
        "part), ops AS (SELECT op, sum(ps) AS whole, (SELECT count(*) FROM (SELECT DISTINCT step, "
        "layer, rank FROM attribution AS a WHERE run = ?1 AND a.op = attribution.op)) AS cells "
        "FROM attribution WHERE run = ?1 GROUP BY op) SELECT 0, 0, sums.op, part, "
        "CAST(ps / cells AS REAL), 100.0 * ps / whole FROM sums JOIN ops USING (op) WHERE whole > "
        "0 "
        "AND ps <> 0 ORDER BY sums.op DESC, ps DESC",
        "operation|part|>mean|>share"};
    static const struct report_query knobs = {
        "whatif",
        "SELECT 0, 0, op, knob, CAST(avg(before_ps) AS INTEGER), CAST(avg(after_ps) AS INTEGER) "
        "FROM whatif WHERE run = ?1 GROUP BY op, knob ORDER BY op DESC, avg(after_ps), knob",
        "operation|widen|>slowest rank now|>then|>gain"};
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
    if (report_table(report, &parts, put_part, NULL, &any) != 0 ||
        report_table(report, &knobs, put_knob, NULL, NULL) != 0)
        return -1;
    if (!any)
        trace_html_put(&report->html, "<p>Not recorded: add <code>--explain</code> to the run."
                                      "</p>\n");
    trace_html_put(&report->html, "</section>\n");
    return 0;
}
