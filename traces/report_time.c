/* traces/report_time.c - how long things took: means by operation, layer by layer. */
#include "traces/report_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/text.h"

/* "attention.a" and "attention.b" are the halves of one operation, and alike to the eye. */
static bool same_operation(const char *a, const char *b)
{
    const size_t length = strcspn(a, ".");
    return length == strcspn(b, ".") && strncmp(a, b, length) == 0;
}

/* The first half, or the operation itself, in the list; op_count when it is not there. */
static uint32_t first_of(const struct report *report, const char *op)
{
    uint32_t i = 0;
    while (i < report->op_count && !same_operation(report->ops[i].text, op)) i++;
    return i;
}

uint32_t report_colour(const struct report *report, const struct trace_name *op)
{
    const uint32_t first = first_of(report, op->text);
    uint32_t colour = 0;

    if (first == report->op_count) return REPORT_COLOURS - 1;
    for (uint32_t i = 0; i < first; i++) colour += first_of(report, report->ops[i].text) == i;
    assert(colour <= first);
    return colour % REPORT_COLOURS;
}

void report_legend(struct report *report)
{
    trace_html_put(&report->html, "<p class=\"legend\">");
    for (uint32_t i = 0; i < report->op_count; i++) {
        const char *text = report->ops[i].text;
        char name[sizeof report->ops[i].text];
        if (first_of(report, text) != i) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "."), text);
        trace_html_put(&report->html, "<span><i class=\"o%" PRIu32 "\"></i>",
                       report_colour(report, &report->ops[i]));
        trace_html_text(&report->html, name);
        trace_html_put(&report->html, "</span> ");
    }
    trace_html_put(&report->html, "</p>\n");
}

/* --- by operation and by layer --------------------------------------------------------------- */

static struct trace_name name_of(const struct trace_op_time *time)
{
    return trace_name_clean((const unsigned char *)time->op);
}

/* Means over the layers, by operation in the order of colours. */
static void put_op_table(struct report *report, const struct trace_op_time *times, size_t count)
{
    struct trace_html *html = &report->html;

    trace_html_table(html,
                     "operation|>layers|>mean|>fastest layer|>slowest layer|>sum over layers");
    for (uint32_t i = 0; i < report->op_count; i++) {
        uint64_t layers = 0, sum_ps = 0, least_ps = UINT64_MAX, most_ps = 0;
        for (size_t t = 0; t < count; t++) {
            const struct trace_name op = name_of(&times[t]);
            if (!trace_name_same(&op, &report->ops[i])) continue;
            layers++;
            sum_ps += times[t].mean_ps;
            if (times[t].mean_ps < least_ps) least_ps = times[t].mean_ps;
            if (times[t].mean_ps > most_ps) most_ps = times[t].mean_ps;
        }
        if (layers == 0) continue;
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, report->ops[i].text);
        trace_html_count_cell(html, layers);
        trace_html_time_cell(html, sum_ps / layers);
        trace_html_time_cell(html, least_ps);
        trace_html_time_cell(html, most_ps);
        trace_html_time_cell(html, sum_ps);
        trace_html_put(html, "</tr>\n");
    }
    trace_html_table_end(html);
}

/* The largest sum of one layer's times; times come by layer. */
static uint64_t tallest_layer_ps(const struct trace_op_time *times, size_t count, uint32_t *layers)
{
    uint64_t tallest_ps = 1, sum_ps = 0;
    *layers = 0;
    for (size_t t = 0; t < count; t++) {
        if (t == 0 || times[t].layer != times[t - 1].layer) {
            sum_ps = 0;
            (*layers)++;
        }
        sum_ps += times[t].mean_ps;
        if (sum_ps > tallest_ps) tallest_ps = sum_ps;
    }
    assert((*layers > 0) == (count > 0));
    return tallest_ps;
}

/* A stacked bar a layer. */
static void put_layer_bars(struct report *report, const struct trace_op_time *times, size_t count)
{
    struct trace_html *html = &report->html;
    uint32_t layers = 0, at = 0;
    const uint64_t tallest_ps = tallest_layer_ps(times, count, &layers);
    const double width = 900.0 / (layers > 0 ? layers : 1);
    double top = 180;

    trace_html_put(html,
                   "<figure class=\"wide\"><svg viewBox=\"0 0 960 210\" role=\"img\" "
                   "aria-label=\"time by layer\">\n<text x=\"0\" y=\"12\">"
                   "%.1f us</text><line x1=\"50\" y1=\"180\" "
                   "x2=\"950\" y2=\"180\"/>\n",
                   (double)tallest_ps / 1e6);
    for (size_t t = 0; t < count; t++) {
        const struct trace_name op = name_of(&times[t]);
        const double height = 172.0 * (double)times[t].mean_ps / (double)tallest_ps;
        if (t == 0 || times[t].layer != times[t - 1].layer) {
            top = 180;
            if (t > 0) at++;
            if (times[t].layer < 0)
                trace_html_put(html,
                               "<text x=\"%.1f\" y=\"195\" text-anchor=\"middle\">dense</text>\n",
                               50 + (at + 0.5) * width);
            else if (layers <= 16 || at % ((layers + 15) / 16) == 0)
                trace_html_put(
                    html, "<text x=\"%.1f\" y=\"195\" text-anchor=\"middle\">%" PRId64 "</text>\n",
                    50 + (at + 0.5) * width, times[t].layer);
        }
        top -= height;
        trace_html_put(html,
                       "<rect class=\"o%" PRIu32 "\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                       "height=\"%.2f\"><title>layer %" PRId64 " ",
                       report_colour(report, &op), 50 + at * width + width * 0.08, top,
                       width * 0.84, height, times[t].layer);
        trace_html_text(html, op.text);
        trace_html_put(html, ": %.2f us</title></rect>\n", (double)times[t].mean_ps / 1e6);
    }
    trace_html_put(html, "</svg><figcaption>MoE layers from left to right; mean over the steps of "
                         "the slowest rank's time</figcaption></figure>\n");
}

int report_times(struct report *report)
{
    struct trace_op_time *times = NULL;
    size_t count = 0;

    if (trace_reader_op_times(report->reader, &times, &count, report->err, report->err_len) != 0)
        return -1;
    trace_html_section(&report->html, "Time by operation and layer",
                       "Modelled times of the slowest rank, averaged over the steps.");
    if (count == 0) {
        trace_html_put(&report->html, "<p>This run has no spans: record it with <code>--detail "
                                      "span</code>.</p>\n");
    } else {
        report_legend(report);
        put_layer_bars(report, times, count);
        put_op_table(report, times, count);
    }
    trace_html_put(&report->html, "</section>\n");
    free(times);
    return 0;
}
