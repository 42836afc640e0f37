/* tools/sweep_data.c - a sweep for other programs: JSON and CSV. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sweep.h"
#include "traces/file.h"

json_t *sweep_json(const struct sweep_table *table)
{
    json_t *json = json_object(), *cells = json_array(), *axes = json_object(),
           *counts = json_object();
    uint32_t states[SIM_SWEEP_STATES];

    sweep_count(table, states);

    for (uint32_t a = 0; a < table->grid.axis_count; a++) {
        json_t *values = json_array();
        for (uint32_t v = 0; v < table->grid.axes[a].count; v++)
            json_array_append_new(values, json_string(table->grid.axes[a].values[v]));
        json_object_set_new(axes, table->grid.axes[a].option, values);
    }
    for (uint32_t c = 0; c < table->cell_count; c++) {
        json_t *cell = json_object(), *settings = json_object();
        for (uint32_t a = 0; a < table->grid.axis_count; a++)
            json_object_set_new(settings, table->grid.axes[a].option,
                                json_string(sweep_value(table, c, a)));
        json_object_set_new(cell, "settings", settings);
        json_object_set_new(cell, "state",
                            json_string(sim_sweep_state_name(table->cells[c].state)));
        json_object_set_new(cell, "kept", json_boolean(table->cells[c].reused));
        json_object_set(cell, "result", table->cells[c].summary);
        json_array_append_new(cells, cell);
    }
    for (int s = 0; s < SIM_SWEEP_STATES; s++)
        json_object_set_new(counts, sim_sweep_state_name((enum sim_sweep_state)s),
                            json_integer(states[s]));
    json_object_set_new(json, "model", json_string(table->grid.base.model));
    json_object_set_new(json, "counts", counts);
    json_object_set_new(json, "axes", axes);
    json_object_set_new(json, "cells", cells);
    return json;
}

static void write_field(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* A cell with every key, to name the columns by; NULL when no cell is done. */
static json_t *find_done(const struct sweep_table *table)
{
    for (uint32_t c = 0; c < table->cell_count; c++)
        if (table->cells[c].state == SIM_SWEEP_DONE) return table->cells[c].summary;
    return NULL;
}

static void write_lines(const struct sweep_table *table, FILE *out)
{
    json_t *keys = find_done(table), *value = NULL;
    const char *key = NULL;

    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        fprintf(out, "%s_given,", table->grid.axes[a].option);
    fputs("state,why", out);
    json_object_foreach(keys, key, value) fprintf(out, ",%s", key);
    fputc('\n', out);
    for (uint32_t c = 0; c < table->cell_count; c++) {
        const json_t *summary = table->cells[c].summary;
        const char *why = json_string_value(json_object_get(summary, "why"));
        for (uint32_t a = 0; a < table->grid.axis_count; a++) {
            write_field(out, sweep_value(table, c, a));
            fputc(',', out);
        }
        fprintf(out, "%s,", sim_sweep_state_name(table->cells[c].state));
        write_field(out, why != NULL ? why : "");
        json_object_foreach(keys, key, value)
        {
            const json_t *own = json_object_get(summary, key);
            fputc(',', out);
            if (json_is_string(own)) write_field(out, json_string_value(own));
            if (json_is_integer(own))
                fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(own));
            if (json_is_real(own)) fprintf(out, "%.10g", json_real_value(own));
            if (json_is_boolean(own)) fputs(json_is_true(own) ? "true" : "false", out);
        }
        fputc('\n', out);
    }
}

int sweep_write_csv(const struct sweep_table *table, const char *path, char *err, size_t err_len)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int status = -1;

    assert(out != NULL);
    write_lines(table, out);
    fclose(out);
    struct trace_output *file = trace_output_open(path, err, err_len);
    if (file != NULL) {
        status = trace_output_write(file, text, bytes, err, err_len);
        if (status == 0)
            status = trace_output_commit(file, err, err_len);
        else
            trace_output_abandon(file);
    }
    free(text);
    return status;
}
