/* tools/sweep_show.c - a sweep for people: its cells as rows. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/step.h"
#include "tools/sweep.h"
#include "tools/table.h"

double sweep_number(const struct sweep_table *table, uint32_t cell, const char *key)
{
    const json_t *value = json_object_get(table->cells[cell].summary, key);
    assert(cell < table->cell_count);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *sweep_value(const struct sweep_table *table, uint32_t cell, uint32_t axis)
{
    assert(cell < table->cell_count && axis < table->grid.axis_count);
    return table->grid.axes[axis].values[sim_sweep_at(&table->grid, cell, axis)];
}

bool sweep_fits(const struct sweep_table *table, uint32_t cell)
{
    assert(cell < table->cell_count);
    return !json_is_false(json_object_get(table->cells[cell].summary, "fits"));
}

const char *sweep_unfit(const struct sweep_table *table, uint32_t cell)
{
    if (sweep_fits(table, cell)) return "";
    return json_is_false(json_object_get(table->cells[cell].summary, "weights_fit"))
               ? "weights too big"
               : "KV too big";
}

const char *sweep_words(const struct sweep_table *table, uint32_t cell, bool conditions,
                        bool choices, char *text, size_t text_len)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t a = 0; a < table->grid.axis_count && at < text_len; a++) {
        if (table->grid.axes[a].count < 2) continue;
        if (sim_advise_is_condition(&table->grid, a) ? !conditions : !choices) continue;
        at += (size_t)snprintf(text + at, text_len - at, "%s%s %s", at > 0 ? ", " : "",
                               table->grid.axes[a].option, sweep_value(table, cell, a));
    }
    return text;
}

/* --- the table ---------------------------------------------------------------------------------
 */

/* What people compare first. A column without a number in any cell is left out. */
static const struct column {
    const char *key, *heading;
    double divisor;
    bool bytes;
} COLUMNS[] = {
    {"layer_us", "layer us", 1, false},
    {"step_us", "step ms", 1000, false},
    {"tokens_per_s_per_gpu", "tok/s/GPU", 1, false},
    {"nvlink_bytes", "NVLink", 1, true},
    {"nic_bytes", "NIC", 1, true},
    {"rank_bytes", "rank", 1, true},
    {"kv_bytes", "KV room", 1, true},
    {"usd_per_million_tokens", "USD/Mtok", 1, false},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof COLUMNS[0], SHOWN_AXES_MAX = 6 };

static bool any_number(const struct sweep_table *table, const char *key)
{
    for (uint32_t c = 0; c < table->cell_count; c++)
        if (!isnan(sweep_number(table, c, key))) return true;
    return false;
}

int sweep_decimals(double value)
{
    return value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
}

static void print_number(struct table *rows, const struct column *column, double value)
{
    char text[16];
    if (isnan(value))
        table_cell(rows, "-");
    else if (column->bytes)
        table_cell(rows, "%s", table_bytes((uint64_t)value, text));
    else
        table_cell(rows, "%.*f", sweep_decimals(value / column->divisor), value / column->divisor);
}

static void print_rows(const struct sweep_table *table)
{
    char headings[512] = "";
    bool shown[COLUMN_COUNT];
    uint32_t axes[SHOWN_AXES_MAX], axis_count = 0;
    size_t at = 0;

    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        if (table->grid.axes[a].count > 1 && axis_count < SHOWN_AXES_MAX) axes[axis_count++] = a;
    for (uint32_t a = 0; a < axis_count; a++)
        at += (size_t)snprintf(headings + at, sizeof headings - at, "%s%s|", a == 0 ? "" : ">",
                               table->grid.axes[axes[a]].option);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        shown[i] = any_number(table, COLUMNS[i].key);
        if (shown[i])
            at += (size_t)snprintf(headings + at, sizeof headings - at, ">%s|", COLUMNS[i].heading);
    }
    snprintf(headings + at, sizeof headings - at, "~state");
    struct table *rows = table_open(headings);
    for (uint32_t c = 0; c < table->cell_count; c++) {
        const struct sweep_cell *cell = &table->cells[c];
        for (uint32_t a = 0; a < axis_count; a++)
            table_cell(rows, "%s", sweep_value(table, c, axes[a]));
        for (int i = 0; i < COLUMN_COUNT; i++)
            if (shown[i]) print_number(rows, &COLUMNS[i], sweep_number(table, c, COLUMNS[i].key));
        if (cell->state == SIM_SWEEP_DONE)
            table_cell(rows, "%s%s", sweep_unfit(table, c),
                       !cell->reused          ? ""
                       : sweep_fits(table, c) ? "kept"
                                              : ", kept");
        else
            table_cell(rows, "%s", sim_sweep_state_name(cell->state));
    }
    table_print(rows, stdout);
    table_close(rows);
}

const char *sweep_why(const struct sweep_table *table, uint32_t cell)
{
    const char *why = json_string_value(json_object_get(table->cells[cell].summary, "why"));
    if (why == NULL) return "";
    return strncmp(why, "refused: ", 9) == 0 ? why + 9 : why;
}

/* Why cells have no figures: each reason once. */
static void print_reasons(const struct sweep_table *table)
{
    bool any = false;
    for (uint32_t c = 0; c < table->cell_count; c++) {
        uint32_t alike = 0;
        bool said = false;
        if (table->cells[c].state == SIM_SWEEP_DONE) continue;
        for (uint32_t d = 0; d < table->cell_count && !said; d++) {
            if (table->cells[d].state != table->cells[c].state ||
                strcmp(sweep_why(table, d), sweep_why(table, c)) != 0)
                continue;
            said = d < c;
            alike++;
        }
        if (said) continue;
        char line[1024];
        snprintf(line, sizeof line, "%.900s (%" PRIu32 " cell%s)", sweep_why(table, c), alike,
                 alike > 1 ? "s" : "");
        if (!any) putchar('\n');
        table_line(sim_sweep_state_name(table->cells[c].state), line, stdout);
        any = true;
    }
}

/* Does every cell time a whole step? */
static bool all_whole(const struct sweep_table *table)
{
    struct sim_settings settings;

    for (uint32_t c = 0; c < table->cell_count; c++) {
        sim_sweep_settings(&table->grid, c, &settings);
        if (!sim_step_wanted(&settings)) return false;
    }
    return true;
}

void sweep_count(const struct sweep_table *table, uint32_t counts[SIM_SWEEP_STATES])
{
    memset(counts, 0, SIM_SWEEP_STATES * sizeof *counts);
    for (uint32_t c = 0; c < table->cell_count; c++) counts[table->cells[c].state]++;
}

void sweep_print(const struct sweep_table *table)
{
    uint32_t states[SIM_SWEEP_STATES], reused = 0;

    sweep_count(table, states);
    for (uint32_t c = 0; c < table->cell_count; c++) reused += table->cells[c].reused;
    printf("sweep     %s, %" PRIu32 " cells: %" PRIu32 " done, %" PRIu32 " refused, %" PRIu32
           " failed; %" PRIu32 " kept from before\n",
           table->grid.base.model, table->cell_count, states[SIM_SWEEP_DONE],
           states[SIM_SWEEP_REFUSED], states[SIM_SWEEP_FAILED], reused);
    puts(
        "times are modelled: slowest rank, median over steps, mean over layers. NVLink, NIC: bytes "
        "of one\nstep, all ranks. rank: memory of a rank's weights and buffers; KV room: what that "
        "leaves.");
    if (!all_whole(table))
        puts("without --context or --phase a step is dispatch and combine of the layers played, no "
             "more.");
    putchar('\n');
    print_rows(table);
    print_reasons(table);
}
