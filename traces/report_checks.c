/* traces/report_checks.c - what was compared, what differed, and which faults were injected. */
#include "traces/report_private.h"

#include <inttypes.h>

struct tally {
    uint64_t compared, wrong; /* Results. */
};

static int put_stage(struct report *report, const struct trace_cursor *cursor, void *context)
{
    struct tally *tally = (struct tally *)context;
    struct trace_html *html = &report->html;
    uint64_t numbers[5];

    if (report_numbers(cursor, 4, 5, numbers) != 0) return -1;
    tally->compared += numbers[0];
    tally->wrong += numbers[3];
    trace_html_put(html, "<tr>");
    report_names(report, cursor, 2, 2);
    trace_html_count_cell(html, numbers[0]);
    trace_html_count_cell(html, numbers[1]);
    trace_html_bytes_cell(html, numbers[2]);
    trace_html_count_cell(html, numbers[3]);
    trace_html_count_cell(html, numbers[4]);
    trace_html_put(html, "</tr>\n");
    return 0;
}

static int put_stages(struct report *report, struct tally *tally)
{
    static const struct report_query stages = {
        "check_result",
        "SELECT 0, 0, stage, backend, count(*), sum(rows), sum(bytes), sum(mismatch_count > 0), "
        "sum(mismatch_count) FROM check_result WHERE run = ?1 GROUP BY stage, backend "
        "ORDER BY CASE stage WHEN 'layout' THEN 0 WHEN 'quantise' THEN 1 WHEN 'dispatch' THEN 2 "
        "WHEN 'expert' THEN 3 WHEN 'combine' THEN 4 ELSE 5 END, stage",
        "stage|backend|>results|>rows|>bytes|>results that differ|>elements that differ"};
    return report_table(report, &stages, put_stage, tally, NULL);
}

/* Foreign text, one table row: every column behind step and layer, as SQLite prints it. */
static int put_texts(struct report *report, const struct trace_cursor *cursor, void *context)
{
    (void)context;
    trace_html_put(&report->html, "<tr>");
    for (int i = 2; i < sqlite3_column_count(cursor->statement); i++)
        trace_html_text_cell(&report->html,
                             (const char *)sqlite3_column_text(cursor->statement, i));
    trace_html_put(&report->html, "</tr>\n");
    return 0;
}

int report_checks(struct report *report)
{
    static const struct report_query mismatches = {
        "check_result",
        "SELECT 0, 0, step, layer, stage, rank, expert, src_rank, src_token, channel, "
        "expected_hex, actual_hex, cause FROM check_result WHERE run = ?1 AND "
        "mismatch_count > 0 ORDER BY step, layer, rank LIMIT 20",
        "step|layer|stage|rank|expert|source rank|token|channel|expected|got|likely cause"};
    static const struct report_query faults = {
        "fault",
        "SELECT 0, 0, step, kind, target, detail FROM fault WHERE run = ?1 ORDER BY "
        "step, at_ps LIMIT 200",
        "step|fault injected|target|detail"};
    struct trace_html *html = &report->html;
    struct tally tally = {0, 0};

    trace_html_section(html, "Checks", "Every stage's output against the reference, bit by bit.");
    if (put_stages(report, &tally) != 0) return -1;
    if (tally.compared == 0)
        trace_html_put(html, "<p>Nothing was moved: <code>--backend ref</code> moves and compares "
                             "the bytes.</p>\n");
    else if (tally.wrong == 0)
        trace_html_put(html, "<p><b class=\"good\">All %" PRIu64 " results are equal.</b></p>\n",
                       tally.compared);
    else
        trace_html_put(html,
                       "<p><b class=\"bad\">%" PRIu64 " of %" PRIu64 " results differ."
                       "</b> The first element of each:</p>\n",
                       tally.wrong, tally.compared);
    if (tally.wrong > 0 && report_table(report, &mismatches, put_texts, NULL, NULL) != 0) return -1;
    if (report_table(report, &faults, put_texts, NULL, NULL) != 0) return -1;
    trace_html_put(html, "</section>\n");
    return 0;
}
