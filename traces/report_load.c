/* traces/report_load.c - who waited, what the links carried, where the rows went. */
#include "traces/report_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "traces/text.h"

enum { HEAT_SIDE_MAX = 4096, HEAT_RANKS_MAX = 256, UNKNOWN_SHARE = 1000000 };

/* --- maps ------------------------------------------------------------------------------------- */

/* Find the largest row and column + 1 and read [rows][columns] values: sql's columns behind the
 * first two are row, column, value. *values is the caller's to free, NULL when there are none. */
static int read_map(struct report *report, const char *table, const char *sql, uint64_t **values,
                    uint32_t *rows, uint32_t *columns)
{
    struct trace_cursor cursor;
    uint64_t *map = NULL;
    int status = 0;

    *rows = *columns = 0;
    *values = NULL;
    for (int pass = 0; pass < 2 && status == 0; pass++) {
        status =
            trace_cursor_open(&cursor, report->reader, table, sql, report->err, report->err_len);
        while (status == 0 && !cursor.ended) {
            uint64_t row = 0, column = 0, value = 0;
            if (trace_cursor_number(&cursor, 2, HEAT_SIDE_MAX - 1, &row) != 0 ||
                trace_cursor_number(&cursor, 3, HEAT_SIDE_MAX - 1, &column) != 0 ||
                trace_cursor_number(&cursor, 4, INT64_MAX, &value) != 0) {
                status = -1;
                break;
            }
            if (pass == 0 && row >= *rows) *rows = (uint32_t)row + 1;
            if (pass == 0 && column >= *columns) *columns = (uint32_t)column + 1;
            if (pass == 1 && row < *rows && column < *columns) map[row * *columns + column] = value;
            status = trace_cursor_advance(&cursor);
        }
        trace_cursor_close(&cursor);
        if (pass == 1 || status != 0 || *rows == 0) continue;
        map = (uint64_t *)calloc((size_t)*rows * *columns, sizeof *map);
        if (map == NULL)
            status = trace_fail(report->err, report->err_len, "%s: %s: out of memory",
                                trace_reader_path(report->reader), table);
    }
    if (status != 0) {
        free(map);
        return -1;
    }
    *values = map;
    return 0;
}

/* --- waits ------------------------------------------------------------------------------------ */

static void put_awaited(struct report *report, const uint64_t *waits, uint32_t waiters,
                        uint32_t ranks)
{
    struct trace_html *html = &report->html;
    uint64_t all_ps = 0, most_ps = 0;
    uint32_t most = 0;

    assert(waits != NULL && waiters > 0 && ranks > 0);
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t sum_ps = 0;
        for (uint32_t w = 0; w < waiters; w++) sum_ps += waits[(size_t)w * ranks + r];
        all_ps += sum_ps;
        if (sum_ps > most_ps) {
            most_ps = sum_ps;
            most = r;
        }
    }
    trace_html_put(html, "<p>Waited in all: %.3f ms, summed over ranks, layers and steps.",
                   (double)all_ps / 1e9);
    if (all_ps > 0)
        trace_html_put(html, " Rank %" PRIu32 " is waited for most: %.1f %% of it.", most,
                       100.0 * (double)most_ps / (double)all_ps);
    trace_html_put(html, "</p>\n");
}

int report_waits(struct report *report)
{
    uint64_t *waits = NULL;
    uint32_t waiters = 0, awaited = 0;

    if (read_map(report, "wait",
                 "SELECT 0, 0, waiter, awaited, sum(wait_ps) FROM wait WHERE run = ?1 GROUP BY "
                 "waiter, awaited",
                 &waits, &waiters, &awaited) != 0)
        return -1;
    trace_html_section(&report->html, "Waits",
                       "Time that ranks spent waiting for another rank's messages.");
    if (waits == NULL) {
        trace_html_put(&report->html, "<p>No rank waited for another.</p>\n");
    } else {
        const struct trace_heat heat = {waits, waiters, awaited, "who waits", "for whom (rank)",
                                        "us",  1000000};
        put_awaited(report, waits, waiters, awaited);
        if (waiters <= HEAT_RANKS_MAX && awaited <= HEAT_RANKS_MAX)
            trace_html_heat(&report->html, &heat);
    }
    trace_html_put(&report->html, "</section>\n");
    free(waits);
    return 0;
}

/* --- links ------------------------------------------------------------------------------------ */

/* By operation and class of resource ("nvlink.out" of "rank3.nvlink.out"): the busy share is
 * that of the operation's time, from the first rank's start to the last one's end. */
static const char LINKS_SQL[] =
    "WITH times AS MATERIALIZED (SELECT step, layer, op, max(end_ps) - min(start_ps) AS long_ps "
    "FROM span WHERE run = ?1 GROUP BY step, layer, op), "
    "uses AS (SELECT u.op AS op, substr(resource, instr(resource, '.') + 1) AS class, kind, "
    "resource, sum(busy_ps) AS busy_ps, sum(bytes) AS bytes, max(queue_peak) AS peak, "
    "sum(stall_ps) AS stall_ps, sum(long_ps) AS long_ps FROM resource_use AS u LEFT JOIN times AS "
    "t "
    "ON t.step = u.step AND t.layer = u.layer AND t.op = u.op WHERE u.run = ?1 "
    "GROUP BY u.op, resource, kind) "
    "SELECT 0, 0, op, class, kind, count(*), "
    "CAST(ifnull(avg(1000.0 * busy_ps / long_ps), 1000000) AS INTEGER), "
    "CAST(ifnull(max(1000.0 * busy_ps / long_ps), 1000000) AS INTEGER), sum(bytes), max(peak), "
    "sum(stall_ps) FROM uses GROUP BY op, class, kind ORDER BY op, kind, class";

static int put_link(struct report *report, const struct trace_cursor *cursor, void *context)
{
    struct trace_html *html = &report->html;
    uint64_t numbers[6];

    (void)context;
    if (report_numbers(cursor, 5, 6, numbers) != 0) return -1;
    if (numbers[3] == 0 && numbers[1] == 0) return 0; /* It did nothing. */
    trace_html_put(html, "<tr>");
    report_names(report, cursor, 2, 3);
    trace_html_count_cell(html, numbers[0]);
    /* An SM pool's time is summed over its SMs; kernels of a whole step have names of their own. */
    if (trace_cursor_name(cursor, 4).text[0] == 's' || numbers[1] >= UNKNOWN_SHARE)
        trace_html_put(html, "<td class=\"n\">-</td><td class=\"n\">-</td>");
    else
        trace_html_put(html, "<td class=\"n\">%.1f %%</td><td class=\"n\">%.1f %%</td>",
                       (double)numbers[1] / 10, (double)numbers[2] / 10);
    trace_html_bytes_cell(html, numbers[3]);
    trace_html_count_cell(html, numbers[4]);
    trace_html_time_cell(html, numbers[5]);
    trace_html_put(html, "</tr>\n");
    return 0;
}

int report_links(struct report *report)
{
    static const struct report_query links = {
        "resource_use", LINKS_SQL,
        "operation|resource|kind|>count|>busy, mean|>busiest|>bytes|>longest queue|>stalled"};
    bool any = false;

    trace_html_section(&report->html, "Links, NICs, queue pairs, SMs",
                       "How busy each class of resource was while the operation ran; what stood "
                       "idle is left out.");
    if (report_table(report, &links, put_link, NULL, &any) != 0) return -1;
    if (!any) trace_html_put(&report->html, "<p>This run recorded no use of resources.</p>\n");
    trace_html_put(&report->html, "</section>\n");
    return 0;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static int put_bytes(struct report *report, const struct trace_cursor *cursor, void *context)
{
    struct trace_html *html = &report->html;
    uint64_t numbers[4];

    (void)context;
    if (report_numbers(cursor, 4, 4, numbers) != 0) return -1;
    trace_html_put(html, "<tr>");
    report_names(report, cursor, 2, 2);
    trace_html_count_cell(html, numbers[0]);
    for (int i = 1; i < 4; i++) trace_html_bytes_cell(html, numbers[i]);
    trace_html_put(html, "</tr>\n");
    return 0;
}

int report_bytes(struct report *report)
{
    static const struct report_query bytes = {
        "message_stat",
        "SELECT 0, 0, op, link_class, sum(messages), sum(formula_bytes), "
        "sum(distinct_rank_bytes), sum(wire_bytes) FROM message_stat WHERE run = ?1 "
        "GROUP BY op, link_class ORDER BY op DESC, link_class",
        "operation|link|>messages|>formula|>distinct ranks|>on the wire"};
    bool any = false;

    trace_html_section(&report->html, "Bytes",
                       "Formula: selections times row bytes. Distinct: once per "
                       "token and rank. Wire: whole messages with headers and "
                       "scales, on that hop.");
    if (report_table(report, &bytes, put_bytes, NULL, &any) != 0) return -1;
    if (!any) trace_html_put(&report->html, "<p>This run recorded no messages.</p>\n");
    trace_html_put(&report->html, "</section>\n");
    return 0;
}

/* --- experts ---------------------------------------------------------------------------------- */

/* The fullest column against the mean one, row by row: its mean and its largest. */
static void put_imbalance(struct report *report, const uint64_t *loads, uint32_t rows,
                          uint32_t columns, const char *what)
{
    double mean = 0, worst = 0;
    uint32_t worst_row = 0, counted = 0;

    for (uint32_t y = 0; y < rows; y++) {
        uint64_t sum = 0, most = 0;
        for (uint32_t x = 0; x < columns; x++) {
            const uint64_t load = loads[(size_t)y * columns + x];
            sum += load;
            if (load > most) most = load;
        }
        if (sum == 0) continue;
        const double ratio = (double)most * columns / (double)sum;
        counted++;
        mean += ratio;
        if (ratio > worst) {
            worst = ratio;
            worst_row = y;
        }
    }
    if (counted > 0)
        trace_html_put(&report->html,
                       "<p>Fullest %s over the mean one: %.2f on average over the "
                       "layers, %.2f at worst (layer %" PRIu32 ").</p>\n",
                       what, mean / counted, worst, worst_row);
}

int report_experts(struct report *report)
{
    uint64_t *experts = NULL, *ranks = NULL;
    uint32_t layers = 0, expert_count = 0, rank_layers = 0, rank_count = 0;
    int status =
        read_map(report, "expert_load",
                 "SELECT 0, 0, layer, expert, sum(rows) FROM expert_load WHERE run = ?1 GROUP BY "
                 "layer, expert",
                 &experts, &layers, &expert_count);

    if (status == 0)
        status =
            read_map(report, "expert_load",
                     "SELECT 0, 0, layer, rank, sum(rows) FROM expert_load WHERE run = ?1 GROUP "
                     "BY layer, rank",
                     &ranks, &rank_layers, &rank_count);
    if (status == 0) {
        trace_html_section(&report->html, "Expert load",
                           "Rows that each expert received, summed over the steps.");
        if (experts == NULL) {
            trace_html_put(&report->html, "<p>This run recorded no expert loads.</p>\n");
        } else {
            const struct trace_heat heat = {experts, layers, expert_count, "MoE layer", "expert",
                                            "rows",  1};
            put_imbalance(report, experts, layers, expert_count, "expert");
            put_imbalance(report, ranks, rank_layers, rank_count, "rank");
            trace_html_heat(&report->html, &heat);
        }
        trace_html_put(&report->html, "</section>\n");
    }
    free(experts);
    free(ranks);
    return status;
}
