/* tools/diff_totals.c - reads both runs' totals and lays them side by side. */
#include "tools/diff_totals.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/table.h"

enum { KINDS = 3 };

int diff_totals_open(struct trace_reader *readers[2], struct diff_totals *totals, char *err,
                     size_t err_len)
{
    memset(totals, 0, sizeof *totals);
    for (int s = 0; s < 2; s++) {
        json_error_t error;
        const struct trace_run_info *run = trace_reader_run(readers[s]);
        for (int k = 0; k < KINDS; k++)
            if (trace_reader_totals(readers[s], (enum trace_totals)k, &totals->kinds[k].rows[s],
                                    &totals->kinds[k].count[s], err, err_len) != 0)
                return -1;
        totals->settings[s] = json_loads(run->settings_json, JSON_REJECT_DUPLICATES, &error);
        if (json_is_object(totals->settings[s])) continue;
        snprintf(err, err_len, "%.256s: settings_json: %.100s", trace_reader_path(readers[s]),
                 totals->settings[s] == NULL ? error.text : "not an object");
        return -1;
    }
    return 0;
}

void diff_totals_close(struct diff_totals *totals)
{
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < KINDS; k++) free(totals->kinds[k].rows[s]);
        json_decref(totals->settings[s]);
    }
}

/* The next (op, name) that either run has, in order; either side may be NULL. false at the end. */
static bool next_rows(const struct diff_totals *totals, int kind, size_t at[2],
                      const struct trace_total *row[2])
{
    int order = 0;
    assert(kind >= 0 && kind < KINDS);
    for (int s = 0; s < 2; s++)
        row[s] = at[s] < totals->kinds[kind].count[s] ? &totals->kinds[kind].rows[s][at[s]] : NULL;
    if (row[0] == NULL && row[1] == NULL) return false;
    if (row[0] == NULL || row[1] == NULL)
        order = row[0] == NULL ? 1 : -1;
    else if ((order = strcmp(row[0]->op, row[1]->op)) == 0)
        order = strcmp(row[0]->name, row[1]->name);
    if (order > 0) row[0] = NULL;
    if (order < 0) row[1] = NULL;
    for (int s = 0; s < 2; s++) {
        static const struct trace_total nothing = {.ps = 0};
        at[s] += row[s] != NULL;
        /* A part that is not there is 0, in a run that recorded parts. */
        if (row[s] == NULL && kind == TRACE_TOTALS_PART && totals->kinds[kind].count[s] > 0)
            row[s] = &nothing;
    }
    return true;
}

/* The side that names the row: A, unless it is not there or stands for a part of 0. */
static const struct trace_total *either(const struct trace_total *const row[2])
{
    assert(row[0] != NULL || row[1] != NULL);
    return row[0] != NULL && (row[0]->op[0] != '\0' || row[1] == NULL) ? row[0] : row[1];
}

static void time_cells(struct table *table, const struct trace_total *const row[2])
{
    for (int s = 0; s < 2; s++) {
        if (row[s] == NULL)
            table_cell(table, "-");
        else
            table_cell(table, "%.2f", (double)row[s]->ps / 1e6);
    }
    if (row[0] == NULL || row[1] == NULL)
        table_cell(table, "-");
    else
        table_cell(table, "%+.2f", ((double)row[1]->ps - (double)row[0]->ps) / 1e6);
}

static void print_times(const struct diff_totals *totals, int kind, const char *columns)
{
    struct table *table = table_open(columns);
    const struct trace_total *row[2];
    size_t at[2] = {0, 0};
    while (next_rows(totals, kind, at, row)) {
        table_cell(table, "%s", either(row)->op);
        if (kind == TRACE_TOTALS_PART) table_cell(table, "%s", either(row)->name);
        time_cells(table, row);
    }
    table_print(table, stdout);
    table_close(table);
}

static void print_resources(const struct diff_totals *totals)
{
    struct table *table = table_open("op|resource|>A busy us|>B busy us|>B - A|>A bytes|>B bytes|"
                                     ">A stall us|>B stall us");
    const struct trace_total *row[2];
    size_t at[2] = {0, 0};
    while (next_rows(totals, TRACE_TOTALS_RESOURCE, at, row)) {
        char text[16];
        table_cell(table, "%s", either(row)->op);
        table_cell(table, "%s", either(row)->name);
        time_cells(table, row);
        for (int s = 0; s < 2; s++)
            table_cell(table, "%s", row[s] == NULL ? "-" : table_bytes(row[s]->bytes, text));
        for (int s = 0; s < 2; s++) {
            if (row[s] == NULL)
                table_cell(table, "-");
            else
                table_cell(table, "%.1f", (double)row[s]->stall_ps / 1e6);
        }
    }
    table_print(table, stdout);
    table_close(table);
}

/* A setting as people write it; "-" where the run's version did not know it. */
static char *setting_text(const json_t *value)
{
    char *text = NULL;
    if (json_is_string(value))
        text = strdup(json_string_value(value)[0] != '\0' ? json_string_value(value) : "(none)");
    else if (value != NULL)
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    else
        text = strdup("-");
    for (char *c = text; c != NULL && *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7e) *c = '?';
    return text;
}

/* Every setting that the runs do not share, in order of name; print or collect. */
static json_t *changed_settings(const struct diff_totals *totals)
{
    json_t *changed = json_object(), *all = json_copy(totals->settings[0]);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_update_missing(all, totals->settings[1]);
    json_object_foreach(all, name, value)
    {
        json_t *pair[2];
        for (int s = 0; s < 2; s++) pair[s] = json_object_get(totals->settings[s], name);
        if (pair[0] != NULL && pair[1] != NULL && json_equal(pair[0], pair[1])) continue;
        for (int s = 0; s < 2; s++) pair[s] = pair[s] != NULL ? pair[s] : json_null();
        json_object_set_new(changed, name, json_pack("{s:O, s:O}", "a", pair[0], "b", pair[1]));
    }
    json_decref(all);
    return changed;
}

static void print_settings(const struct diff_totals *totals)
{
    json_t *changed = changed_settings(totals);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(changed, name, value)
    {
        char *text[2];
        for (int s = 0; s < 2; s++)
            text[s] = setting_text(json_object_get(totals->settings[s], name));
        printf("setting   %s: A %.200s, B %.200s\n", name, text[0] != NULL ? text[0] : "?",
               text[1] != NULL ? text[1] : "?");
        free(text[0]);
        free(text[1]);
    }
    if (json_object_size(changed) == 0) puts("settings  the same");
    json_decref(changed);
}

void diff_totals_print(const struct diff_totals *totals)
{
    print_settings(totals);
    if (totals->kinds[TRACE_TOTALS_STAGE].count[0] + totals->kinds[TRACE_TOTALS_STAGE].count[1] >
        0) {
        puts("\nby stage, modelled: slowest rank, all layers, mean over steps");
        print_times(totals, TRACE_TOTALS_STAGE, "op|>A us|>B us|>B - A");
    }
    if (totals->kinds[TRACE_TOTALS_PART].count[0] + totals->kinds[TRACE_TOTALS_PART].count[1] > 0) {
        puts("\nwhere it went (--explain), modelled: slowest rank, all layers, mean over steps");
        print_times(totals, TRACE_TOTALS_PART, "op|part|>A us|>B us|>B - A");
    }
    if (totals->kinds[TRACE_TOTALS_RESOURCE].count[0] +
            totals->kinds[TRACE_TOTALS_RESOURCE].count[1] >
        0) {
        puts("\nby resource, modelled: busiest rank's, mean over layers; bytes and stalls of all "
             "ranks, a step\n(a stall: waiting summed over the requests that waited, so it may be "
             "longer than the step)");
        print_resources(totals);
    }
}

static json_t *total_json(int kind, const struct trace_total *const row[2])
{
    json_t *json = json_object();
    json_object_set_new(json, "op", json_string(either(row)->op));
    if (kind != TRACE_TOTALS_STAGE)
        json_object_set_new(json, kind == TRACE_TOTALS_PART ? "part" : "resource",
                            json_string(either(row)->name));
    for (int s = 0; s < 2; s++) {
        json_t *side = row[s] == NULL ? json_null() : json_object();
        if (row[s] != NULL) {
            json_object_set_new(side, "ps", json_integer(row[s]->ps));
            if (kind == TRACE_TOTALS_RESOURCE) {
                json_object_set_new(side, "bytes", json_integer((json_int_t)row[s]->bytes));
                json_object_set_new(side, "stall_ps", json_integer((json_int_t)row[s]->stall_ps));
                json_object_set_new(side, "queue_peak",
                                    json_integer((json_int_t)row[s]->queue_peak));
            }
        }
        json_object_set_new(json, s == 0 ? "a" : "b", side);
    }
    return json;
}

void diff_totals_json(const struct diff_totals *totals, json_t *document)
{
    static const char *const KEYS[KINDS] = {[TRACE_TOTALS_STAGE] = "stages",
                                            [TRACE_TOTALS_RESOURCE] = "resources",
                                            [TRACE_TOTALS_PART] = "parts"};
    json_object_set_new(document, "settings", changed_settings(totals));
    for (int kind = 0; kind < KINDS; kind++) {
        json_t *list = json_array();
        const struct trace_total *row[2];
        size_t at[2] = {0, 0};
        while (next_rows(totals, kind, at, row)) json_array_append_new(list, total_json(kind, row));
        json_object_set_new(document, KEYS[kind], list);
    }
}
