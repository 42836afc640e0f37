/* traces/report.c - the report's page, from its heading to its settings. */
#include "traces/report.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gen/embedded.h"
#include "traces/report_private.h"
#include "traces/text.h"

/* --- what is shown ---------------------------------------------------------------------------- */

/* The layer of the timeline: as chosen, or the one that took longest. */
static int choose_layer(struct report *report, const struct trace_report_choice *choice)
{
    struct trace_cursor cursor;
    char sql[400];

    snprintf(sql, sizeof sql,
             "SELECT step, layer, max(end_ps) - min(start_ps) AS long_ps FROM span WHERE run = ?1 "
             "AND layer IS NOT NULL AND (%" PRId64 " < 0 OR step = %" PRId64 ") AND (%" PRId64
             " < 0 OR layer = %" PRId64 ") GROUP BY step, layer ORDER BY long_ps DESC, step, "
             "layer LIMIT 1",
             choice->step, choice->step, choice->layer, choice->layer);
    if (trace_cursor_open(&cursor, report->reader, "span", sql, report->err, report->err_len) != 0)
        return -1;
    report->step = cursor.ended ? -1 : cursor.step;
    report->layer = cursor.ended ? -1 : cursor.layer;
    trace_cursor_close(&cursor);
    if (report->layer >= 0 || (choice->step < 0 && choice->layer < 0)) return 0;
    return trace_fail(report->err, report->err_len,
                      "%s: run %" PRIu64 " has no spans of that step and layer: leave --step and "
                      "--layer out for its slowest one",
                      trace_reader_path(report->reader), trace_reader_run(report->reader)->run);
}

/* Operations get colours in the order in which they first start. */
static int list_ops(struct report *report)
{
    struct trace_cursor cursor;
    int status = trace_cursor_open(&cursor, report->reader, "span",
                                   "SELECT 0, 0, op FROM span WHERE run = ?1 GROUP BY op ORDER BY "
                                   "min(start_ps), op LIMIT 32",
                                   report->err, report->err_len);

    while (status == 0 && !cursor.ended && report->op_count < REPORT_OPS_MAX) {
        report->ops[report->op_count++] = trace_cursor_name(&cursor, 2);
        status = trace_cursor_advance(&cursor);
    }
    trace_cursor_close(&cursor);
    return status;
}

/* --- heading and settings --------------------------------------------------------------------- */

static json_t *load_settings(const struct trace_reader *reader)
{
    return json_loads(trace_reader_run(reader)->settings_json, JSON_REJECT_DUPLICATES, NULL);
}

/* A setting as text in room bytes; "" when there is none of that name. */
static const char *setting_text(const json_t *value, char *out, size_t room)
{
    out[0] = '\0';
    if (json_is_string(value)) snprintf(out, room, "%s", json_string_value(value));
    if (json_is_integer(value)) snprintf(out, room, "%lld", (long long)json_integer_value(value));
    if (json_is_boolean(value)) snprintf(out, room, "%s", json_is_true(value) ? "yes" : "no");
    return out;
}

static void put_fact(struct report *report, const char *name, const char *value)
{
    if (value[0] == '\0') return;
    trace_html_put(&report->html, "<div><span>%s</span><b>", name);
    trace_html_text(&report->html, value);
    trace_html_put(&report->html, "</b></div>\n");
}

static void put_heading(struct report *report)
{
    static const char *const shown[] = {"model",  "machine", "ep",      "mode", "recipe",
                                        "tokens", "overlap", "backend", "seed"};
    const struct trace_run_info *run = trace_reader_run(report->reader);
    json_t *settings = load_settings(report->reader);
    char value[256];

    trace_html_put(&report->html, "<h1><code>");
    trace_html_text(&report->html, run->command);
    trace_html_put(&report->html, "</code></h1>\n<p>Run %" PRIu64 " of <code>", run->run);
    trace_html_text(&report->html, trace_reader_path(report->reader));
    trace_html_put(&report->html, "</code>, ");
    trace_html_text(&report->html, run->started_utc);
    trace_html_put(&report->html, ", ");
    trace_html_text(&report->html, run->tool_version);
    trace_html_put(&report->html,
                   ". All times are modelled, on the machine named here%s</p>\n"
                   "<div class=\"facts\">\n",
                   run->complete ? "."
                                 : ". <b class=\"bad\">The run did not finish: this is what it "
                                   "recorded.</b>");
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        put_fact(report, shown[i],
                 setting_text(json_object_get(settings, shown[i]), value, sizeof value));
    put_fact(report, "digest", run->digest);
    trace_html_put(&report->html, "</div>\n");
    json_decref(settings);
}

int report_settings(struct report *report)
{
    const struct trace_run_info *run = trace_reader_run(report->reader);
    json_t *settings = load_settings(report->reader), *value = NULL;
    const char *name = NULL;
    char text[1024];

    trace_html_section(&report->html, "Settings",
                       "Every option after defaults. The same settings, seed and version give the "
                       "same digest.");
    trace_html_put(&report->html, "<p>Settings digest <code>");
    trace_html_text(&report->html, run->settings_digest);
    trace_html_put(&report->html, "</code>, result digest <code>");
    trace_html_text(&report->html, run->digest[0] != '\0' ? run->digest : "none, unfinished");
    trace_html_put(&report->html, "</code>.</p>\n<div class=\"wide\"><table>\n");
    json_object_foreach(settings, name, value)
    {
        trace_html_put(&report->html, "<tr>");
        trace_html_text_cell(&report->html, name);
        trace_html_put(&report->html, "<td class=\"wrap\"><code>");
        trace_html_text(&report->html, setting_text(value, text, sizeof text));
        trace_html_put(&report->html, "</code></td></tr>\n");
    }
    trace_html_put(&report->html, "</table></div></section>\n");
    json_decref(settings);
    return 0;
}

/* --- the whole page --------------------------------------------------------------------------- */

static int put_page(struct report *report, const struct trace_report_choice *choice)
{
    if (choose_layer(report, choice) != 0 || list_ops(report) != 0) return -1;
    put_heading(report);
    if (report_times(report) != 0 || report_timeline(report) != 0 ||
        report_attribution(report) != 0 || report_waits(report) != 0 || report_links(report) != 0 ||
        report_bytes(report) != 0 || report_experts(report) != 0 || report_checks(report) != 0)
        return -1;
    if (choice->against != NULL && report_against(report, choice->against) != 0) return -1;
    return report_settings(report);
}

/* Writing over the file that is being read would lose the run. */
static bool is_database(const struct trace_reader *reader, const char *path)
{
    struct stat status[2];
    return reader != NULL && stat(trace_reader_path(reader), &status[0]) == 0 &&
           stat(path, &status[1]) == 0 && status[0].st_dev == status[1].st_dev &&
           status[0].st_ino == status[1].st_ino;
}

int trace_report(struct trace_reader *reader, const struct trace_report_choice *choice,
                 const char *path, char *err, size_t err_len)
{
    struct report report;

    assert(reader != NULL && choice != NULL && path != NULL);
    assert(strcmp(embedded_style[0].name, "report") == 0);
    if (is_database(reader, path) || is_database(choice->against, path))
        return trace_fail(err, err_len, "%s: is the database itself: name another file", path);
    struct trace_output *output = trace_output_open(path, err, err_len);
    if (output == NULL) return -2;
    memset(&report, 0, sizeof report);
    report.reader = reader;
    report.err = err;
    report.err_len = err_len;
    trace_html_begin(&report.html, output, trace_reader_run(reader)->command,
                     embedded_style[0].text, err, err_len);
    int status = put_page(&report, choice);
    if (trace_html_end(&report.html) != 0) status = -2;
    if (status != 0)
        trace_output_abandon(output);
    else if (trace_output_commit(output, err, err_len) != 0)
        status = -2;
    return status;
}
