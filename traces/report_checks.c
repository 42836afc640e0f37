/* traces/report_checks.c - what was compared, what differed, and which faults were injected. */
#include "traces/report_private.h"

#include <inttypes.h>
#include <stdio.h>

#include "traces/text.h"

enum { MISMATCHES_SHOWN = 20 };

static int put_stages(struct report *report, uint64_t *compared, uint64_t *wrong)
{
    struct trace_cursor cursor;
    struct trace_html *html = &report->html;
    int status = trace_cursor_open(
        &cursor, report->reader, "check_result",
        "SELECT 0, 0, stage, backend, count(*), sum(rows), sum(bytes), sum(mismatch_count > 0), "
        "sum(mismatch_count) FROM check_result WHERE run = ?1 GROUP BY stage, backend "
        "ORDER BY CASE stage WHEN 'layout' THEN 0 WHEN 'quantise' THEN 1 WHEN 'dispatch' THEN 2 "
        "WHEN 'expert' THEN 3 WHEN 'combine' THEN 4 ELSE 5 END, stage",
        report->err, report->err_len);

    *compared = *wrong = 0;
    if (status == 0 && !cursor.ended)
        trace_html_put(html, "<div class=\"wide\"><table>\n<tr><th>stage<th>backend<th "
                             "class=\"n\">results<th class=\"n\">rows<th class=\"n\">bytes<th "
                             "class=\"n\">results that differ<th class=\"n\">elements that "
                             "differ</tr>\n");
    while (status == 0 && !cursor.ended) {
        uint64_t numbers[5];
        for (int i = 0; i < 5 && status == 0; i++)
            status = trace_cursor_number(&cursor, 4 + i, INT64_MAX, &numbers[i]);
        if (status != 0) break;
        *compared += numbers[0];
        *wrong += numbers[3];
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, trace_cursor_name(&cursor, 2).text);
        trace_html_text_cell(html, trace_cursor_name(&cursor, 3).text);
        trace_html_count_cell(html, numbers[0]);
        trace_html_count_cell(html, numbers[1]);
        trace_html_bytes_cell(html, numbers[2]);
        trace_html_count_cell(html, numbers[3]);
        trace_html_count_cell(html, numbers[4]);
        trace_html_put(html, "</tr>\n");
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    if (status == 0 && *compared > 0) trace_html_put(html, "</table></div>\n");
    return status;
}

/* Foreign text, one table row: the columns from first on, as SQLite prints them. */
static void put_texts(struct trace_html *html, const struct trace_cursor *cursor, int first,
                      int count)
{
    trace_html_put(html, "<tr>");
    for (int i = first; i < first + count; i++)
        trace_html_text_cell(html, (const char *)sqlite3_column_text(cursor->statement, i));
    trace_html_put(html, "</tr>\n");
}

static int put_texts_of(struct report *report, const char *table, const char *sql,
                        const char *heading, int columns)
{
    struct trace_cursor cursor;
    struct trace_html *html = &report->html;
    int status =
        trace_cursor_open(&cursor, report->reader, table, sql, report->err, report->err_len);
    const bool any = status == 0 && !cursor.ended;

    if (any) trace_html_put(html, "<div class=\"wide\"><table>\n%s\n", heading);
    while (status == 0 && !cursor.ended) {
        put_texts(html, &cursor, 2, columns);
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    if (any) trace_html_put(html, "</table></div>\n");
    return status;
}

int report_checks(struct report *report)
{
    struct trace_html *html = &report->html;
    uint64_t compared = 0, wrong = 0;

    trace_html_section(html, "Checks", "Every stage's output against the reference, bit by bit.");
    if (put_stages(report, &compared, &wrong) != 0) return -1;
    if (compared == 0)
        trace_html_put(html, "<p>Nothing was moved: <code>--backend ref</code> moves and compares "
                             "the bytes.</p>\n");
    else if (wrong == 0)
        trace_html_put(html, "<p><b class=\"good\">All %" PRIu64 " results are equal.</b></p>\n",
                       compared);
    else
        trace_html_put(html,
                       "<p><b class=\"bad\">%" PRIu64 " of %" PRIu64 " results differ."
                       "</b> The first element of each:</p>\n",
                       wrong, compared);
    char sql[480];
    snprintf(sql, sizeof sql,
             "SELECT 0, 0, step, layer, stage, rank, expert, src_rank, src_token, channel, "
             "expected_hex, actual_hex, cause FROM check_result WHERE run = ?1 AND "
             "mismatch_count > 0 ORDER BY step, layer, rank LIMIT %d",
             MISMATCHES_SHOWN);
    if (wrong > 0 &&
        put_texts_of(report, "check_result", sql,
                     "<tr><th>step<th>layer<th>stage<th>rank<th>expert<th>source rank<th>token<th>"
                     "channel<th>expected<th>got<th>likely cause</tr>",
                     11) != 0)
        return -1;
    if (put_texts_of(report, "fault",
                     "SELECT 0, 0, step, kind, target, detail FROM fault WHERE run = ?1 ORDER BY "
                     "step, at_ps LIMIT 200",
                     "<tr><th>step<th>fault injected<th>target<th>detail</tr>", 4) != 0)
        return -1;
    trace_html_put(html, "</section>\n");
    return 0;
}
