/* tools/sweep_page.c - a sweep as one self-contained page: its cells, and its plots inside. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/embedded.h"
#include "tools/sweep.h"
#include "traces/file.h"
#include "traces/html.h"

static const char *const KEYS[] = {"dispatch_us", "combine_us",           "layer_us",
                                   "step_us",     "tokens_per_s_per_gpu", "usd_per_million_tokens"};
static const char *const BYTE_KEYS[] = {"nvlink_bytes", "nic_bytes", "rank_bytes", "kv_bytes",
                                        "buffer_bytes"};
enum {
    KEY_COUNT = sizeof KEYS / sizeof KEYS[0],
    BYTE_KEY_COUNT = sizeof BYTE_KEYS / sizeof BYTE_KEYS[0]
};

static void put_cell(struct trace_html *html, const struct sweep_table *table, uint32_t cell)
{
    const struct sweep_cell *known = &table->cells[cell];

    trace_html_put(html, "<tr>");
    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        trace_html_text_cell(html, sweep_value(table, cell, a));
    if (known->state != SIM_SWEEP_DONE) {
        trace_html_put(html,
                       "<td class=\"wrap\" colspan=\"%d\">%s: ", KEY_COUNT + BYTE_KEY_COUNT + 1,
                       sim_sweep_state_name(known->state));
        trace_html_text(html, sweep_why(table, cell));
        trace_html_put(html, "</td></tr>\n");
        return;
    }
    for (int k = 0; k < KEY_COUNT; k++) {
        const double value = sweep_number(table, cell, KEYS[k]);
        if (isnan(value))
            trace_html_put(html, "<td class=\"n\">-</td>");
        else
            trace_html_put(html, "<td class=\"n\">%.2f</td>", value);
    }
    for (int k = 0; k < BYTE_KEY_COUNT; k++) {
        const double value = sweep_number(table, cell, BYTE_KEYS[k]);
        if (isnan(value))
            trace_html_put(html, "<td class=\"n\">-</td>");
        else
            trace_html_bytes_cell(html, (uint64_t)value);
    }
    trace_html_put(html, "<td>%s</td></tr>\n", sweep_unfit(table, cell));
}

static void put_cells(struct trace_html *html, const struct sweep_table *table)
{
    trace_html_section(html, "Cells",
                       "Modelled times of the slowest rank: median over steps, mean "
                       "over layers. Bytes of one step, all ranks.");
    trace_html_put(html, "<div class=\"wide\"><table>\n<tr>");
    for (uint32_t a = 0; a < table->grid.axis_count; a++) {
        trace_html_put(html, "<th>");
        trace_html_text(html, table->grid.axes[a].option);
        trace_html_put(html, "</th>");
    }
    for (int k = 0; k < KEY_COUNT; k++) trace_html_put(html, "<th class=\"n\">%s</th>", KEYS[k]);
    for (int k = 0; k < BYTE_KEY_COUNT; k++)
        trace_html_put(html, "<th class=\"n\">%s</th>", BYTE_KEYS[k]);
    trace_html_put(html, "<th></th></tr>\n");
    for (uint32_t c = 0; c < table->cell_count; c++) put_cell(html, table, c);
    trace_html_put(html, "</table></div></section>\n");
}

static void put_advice(struct trace_html *html, const struct sweep_table *table,
                       const struct sim_goal *goal)
{
    json_t *advice = sweep_advice_json(table, goal), *each = NULL;
    size_t i = 0, found = 0;
    char value[64];

    json_array_foreach(advice, i, each) found += !json_is_null(json_object_get(each, "best"));
    if (found == 0) { /* Cost, say, without a price in the machine file. */
        json_decref(advice);
        return;
    }
    trace_html_put(html,
                   "<div class=\"wide\"><table>\n<tr><th>conditions</th><th>best for %s</th>"
                   "<th class=\"n\">modelled</th></tr>\n",
                   goal->name);
    json_array_foreach(advice, i, each)
    {
        if (json_is_null(json_object_get(each, "best"))) continue;
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, json_string_value(json_object_get(each, "conditions")));
        trace_html_text_cell(html, json_string_value(json_object_get(each, "choices")));
        trace_html_put(
            html, "<td class=\"n\">%s</td></tr>\n",
            sweep_goal_text(goal, json_number_value(json_object_get(each, "value")), value));
    }
    trace_html_put(html, "</table></div>\n");
    json_decref(advice);
}

static void put_crossovers(struct trace_html *html, const struct sweep_table *table)
{
    json_t *list = sweep_crossovers_json(table), *each = NULL;
    size_t i = 0;

    if (json_array_size(list) > 0)
        trace_html_put(html, "<div class=\"wide\"><table>\n<tr><th>crossover of the modes</th><th "
                             "class=\"n\">low latency is faster up to</th></tr>\n");
    json_array_foreach(list, i, each)
    {
        const json_t *tokens = json_object_get(each, "tokens");
        const char *faster = json_string_value(json_object_get(each, "faster"));
        trace_html_put(html, "<tr>");
        trace_html_text_cell(html, json_string_value(json_object_get(each, "where")));
        if (json_is_real(tokens))
            trace_html_put(html, "<td class=\"n\">%.0f tokens a rank</td></tr>\n",
                           json_real_value(tokens));
        else
            trace_html_put(html, "<td class=\"n\">%s</td></tr>\n",
                           faster == NULL              ? "changes more than once"
                           : strcmp(faster, "ll") == 0 ? "throughout"
                                                       : "never");
    }
    if (json_array_size(list) > 0) trace_html_put(html, "</table></div>\n");
    json_decref(list);
}

/* A plot that gnuplot has drawn, from its <svg> on. */
static void put_drawing(struct trace_html *html, const char *path)
{
    struct trace_file file;
    char err[256];

    if (trace_file_open(path, &file, err, sizeof err) != 0) return; /* Not drawn: no points. */
    const char *text = (const char *)file.data;
    const char *start = (const char *)memmem(text, file.bytes, "<svg", 4);
    const size_t bytes = start == NULL ? 0 : file.bytes - (size_t)(start - text);
    trace_html_put(html, "<figure class=\"wide\">");
    for (size_t at = 0; at < bytes; at += 900)
        trace_html_put(html, "%.*s", (int)(bytes - at < 900 ? bytes - at : 900), start + at);
    trace_html_put(html, "</figure>\n");
    trace_file_close(&file);
}

static void put_plots(struct trace_html *html, const struct sweep_table *table, const char *folder)
{
    static const char *const keys[] = {"step_us", "tokens_per_s_per_gpu"};
    char path[4096];

    trace_html_section(html, "Plots", "One line for every combination of the other axes.");
    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        for (size_t k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s-%s.svg", folder, table->grid.axes[a].option,
                     keys[k]);
            put_drawing(html, path);
        }
    trace_html_put(html, "</section>\n");
}

int sweep_write_page(const struct sweep_table *table, const char *folder, const char *title,
                     char *err, size_t err_len)
{
    static const char *const goals[] = {"latency", "throughput", "memory", "cost"};
    struct trace_html html;
    char path[4096];

    snprintf(path, sizeof path, "%s/index.html", folder);
    struct trace_output *output = trace_output_open(path, err, err_len);
    if (output == NULL) return -1;
    trace_html_begin(&html, output, title, embedded_style[0].text, err, err_len);
    trace_html_put(&html, "<h1><code>");
    trace_html_text(&html, title);
    trace_html_put(&html, "</code></h1>\n<p>All times are modelled.</p>\n");
    trace_html_section(&html, "Advice", "The best choices under each condition.");
    for (size_t g = 0; g < sizeof goals / sizeof goals[0]; g++)
        put_advice(&html, table, sim_goal_find(goals[g]));
    put_crossovers(&html, table);
    trace_html_put(&html, "</section>\n");
    put_plots(&html, table, folder);
    put_cells(&html, table);
    if (trace_html_end(&html) != 0) {
        trace_output_abandon(output);
        return -1;
    }
    return trace_output_commit(output, err, err_len);
}
