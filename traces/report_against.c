/* traces/report_against.c - another run beside this one: settings, times, results. */
#include "traces/report_private.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "traces/text.h"

/* --- settings --------------------------------------------------------------------------------- */

static void put_value(struct trace_html *html, const json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    trace_html_text_cell(html, text != NULL ? text : "-");
    free(text);
}

static void put_settings(struct report *report, struct trace_reader *other)
{
    struct trace_html *html = &report->html;
    json_t *a = json_loads(trace_reader_run(report->reader)->settings_json, 0, NULL);
    json_t *b = json_loads(trace_reader_run(other)->settings_json, 0, NULL), *value = NULL;
    const char *name = NULL;
    bool any = false;

    json_object_foreach(a, name, value)
    {
        const json_t *there = json_object_get(b, name);
        if (there != NULL && json_equal(value, there)) continue;
        if (!any) trace_html_table(html, "setting|this run|the other");
        any = true;
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, name);
        put_value(html, value);
        put_value(html, there);
        trace_html_put(html, "</tr>\n");
    }
    if (any)
        trace_html_table_end(html);
    else
        trace_html_put(html, "<p>The settings are the same.</p>\n");
    json_decref(a);
    json_decref(b);
}

/* --- times ------------------------------------------------------------------------------------ */

/* Mean over the layers of an operation's mean times; 0 where the run has none. */
static uint64_t mean_of(const struct trace_op_time *times, size_t count,
                        const struct trace_name *op)
{
    uint64_t sum_ps = 0, layers = 0;
    for (size_t t = 0; t < count; t++) {
        const struct trace_name name = trace_name_clean((const unsigned char *)times[t].op);
        if (!trace_name_same(&name, op)) continue;
        sum_ps += times[t].mean_ps;
        layers++;
    }
    return layers > 0 ? sum_ps / layers : 0;
}

static int put_times(struct report *report, struct trace_reader *other)
{
    struct trace_html *html = &report->html;
    struct trace_op_time *a = NULL, *b = NULL;
    size_t count_a = 0, count_b = 0;

    if (trace_reader_op_times(report->reader, &a, &count_a, report->err, report->err_len) != 0)
        return -1;
    if (trace_reader_op_times(other, &b, &count_b, report->err, report->err_len) != 0) {
        free(a);
        return -1;
    }
    trace_html_table(html, "operation|>this run|>the other|>other / this");
    for (uint32_t i = 0; i < report->op_count; i++) {
        const uint64_t mine_ps = mean_of(a, count_a, &report->ops[i]);
        const uint64_t theirs_ps = mean_of(b, count_b, &report->ops[i]);
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, report->ops[i].text);
        trace_html_time_cell(html, mine_ps);
        trace_html_time_cell(html, theirs_ps);
        if (mine_ps > 0)
            trace_html_put(html, "<td class=\"n\">%.3f</td></tr>\n",
                           (double)theirs_ps / (double)mine_ps);
        else
            trace_html_put(html, "<td class=\"n\">-</td></tr>\n");
    }
    trace_html_table_end(html);
    free(a);
    free(b);
    return 0;
}

/* --- resources and parts ---------------------------------------------------------------------- */

static int compare_totals(const struct trace_total *a, const struct trace_total *b)
{
    const int by_op = strcmp(a->op, b->op);
    return by_op != 0 ? by_op : strcmp(a->name, b->name);
}

static void put_total(struct trace_html *html, const struct trace_total *mine,
                      const struct trace_total *theirs)
{
    const struct trace_total *named = mine != NULL ? mine : theirs;

    assert(mine != NULL || theirs != NULL);
    trace_html_put(html, "<tr>");
    trace_html_text_cell(html, named->op);
    trace_html_text_cell(html, named->name);
    for (int side = 0; side < 2; side++) {
        const struct trace_total *total = side == 0 ? mine : theirs;
        if (total == NULL)
            trace_html_put(html, "<td class=\"n\">-</td>");
        else
            trace_html_put(html, "<td class=\"n\">%.2f us</td>", (double)total->ps / 1e6);
    }
    if (mine != NULL && theirs != NULL && mine->ps > 0)
        trace_html_put(html, "<td class=\"n\">%.3f</td></tr>\n",
                       (double)theirs->ps / (double)mine->ps);
    else
        trace_html_put(html, "<td class=\"n\">-</td></tr>\n");
}

/* Both lists are sorted, so they are walked side by side; what is 0 on both sides is left out. */
static int put_totals(struct report *report, struct trace_reader *other, enum trace_totals what,
                      const char *columns)
{
    struct trace_total *a = NULL, *b = NULL;
    size_t count_a = 0, count_b = 0, i = 0, j = 0;

    if (trace_reader_totals(report->reader, what, &a, &count_a, report->err, report->err_len) != 0)
        return -1;
    if (trace_reader_totals(other, what, &b, &count_b, report->err, report->err_len) != 0) {
        free(a);
        return -1;
    }
    if (count_a + count_b > 0) trace_html_table(&report->html, columns);
    while (i < count_a || j < count_b) {
        const int order = i == count_a ? 1 : j == count_b ? -1 : compare_totals(&a[i], &b[j]);
        const struct trace_total *mine = order <= 0 ? &a[i++] : NULL;
        const struct trace_total *theirs = order >= 0 ? &b[j++] : NULL;
        if ((mine != NULL && mine->ps != 0) || (theirs != NULL && theirs->ps != 0))
            put_total(&report->html, mine, theirs);
    }
    if (count_a + count_b > 0) trace_html_table_end(&report->html);
    free(a);
    free(b);
    return 0;
}

/* --- results ---------------------------------------------------------------------------------- */

static int put_results(struct report *report, struct trace_reader *other)
{
    struct trace_html *html = &report->html;
    struct trace_difference difference;

    if (trace_db_first_difference(report->reader, other, &difference, report->err,
                                  report->err_len) != 0)
        return -1;
    if (difference.compared == 0)
        trace_html_put(html, "<p>No result was checked in both runs.</p>\n");
    else if (!difference.differs)
        trace_html_put(html,
                       "<p><b class=\"good\">All %" PRIu64 " results that both runs checked "
                       "are equal.</b></p>\n",
                       difference.compared);
    else {
        trace_html_put(html,
                       "<p><b class=\"bad\">Results differ, first in step %" PRIu64
                       ", layer %" PRIu32 ", rank %" PRIu32 ", stage ",
                       difference.key.step, difference.key.layer, difference.key.rank);
        trace_html_text(html, difference.key.stage);
        trace_html_put(html, ".</b></p>\n");
    }
    return 0;
}

int report_against(struct report *report, struct trace_reader *other)
{
    trace_html_section(&report->html, "Beside another run",
                       "Means over layers and steps of the slowest rank; ratios above 1: the "
                       "other run is slower.");
    trace_html_put(&report->html, "<p>Run %" PRIu64 " of <code>", trace_reader_run(other)->run);
    trace_html_text(&report->html, trace_reader_path(other));
    trace_html_put(&report->html, "</code>: <code>");
    trace_html_text(&report->html, trace_reader_run(other)->command);
    trace_html_put(&report->html, "</code></p>\n");
    put_settings(report, other);
    if (put_times(report, other) != 0 ||
        put_totals(report, other, TRACE_TOTALS_RESOURCE,
                   "operation|resource of the busiest rank|>this run|>the other|>other / this") !=
            0 ||
        put_totals(report, other, TRACE_TOTALS_PART,
                   "operation|part of the time|>this run|>the other|>other / this") != 0 ||
        put_results(report, other) != 0)
        return -1;
    trace_html_put(&report->html, "</section>\n");
    return 0;
}
