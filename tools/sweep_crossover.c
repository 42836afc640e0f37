/* tools/sweep_crossover.c - up to how many tokens low latency is the faster mode. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sweep.h"

static uint32_t find_axis(const struct sweep_table *table, const char *option)
{
    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        if (strcmp(table->grid.axes[a].option, option) == 0) return a;
    return UINT32_MAX;
}

static uint32_t find_value(const struct sim_sweep_axis *axis, const char *value)
{
    for (uint32_t v = 0; v < axis->count; v++)
        if (strcmp(axis->values[v], value) == 0) return v;
    return UINT32_MAX;
}

/* How far apart two cells are that differ by one on the axis. */
static uint32_t stride_of(const struct sweep_table *table, uint32_t axis)
{
    uint32_t stride = 1;
    assert(axis < table->grid.axis_count);
    for (uint32_t a = axis + 1; a < table->grid.axis_count; a++)
        stride *= table->grid.axes[a].count;
    return stride;
}

struct pair {               /* LL against normal at one token count. */
    double tokens, gain_us; /* Step time of normal - that of LL. */
};

static int by_tokens(const void *a, const void *b)
{
    const double x = ((const struct pair *)a)->tokens, y = ((const struct pair *)b)->tokens;
    return (x > y) - (x < y);
}

/* Tokens at which the gain goes from above 0 to below it, on the straight line between two
 * counts; NaN when it never does. */
static double find_crossing(const struct pair *pairs, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const struct pair a = pairs[i - 1], b = pairs[i];
        assert(a.tokens <= b.tokens);
        if (a.gain_us > 0 && b.gain_us <= 0)
            return a.tokens + (b.tokens - a.tokens) * a.gain_us / (a.gain_us - b.gain_us);
    }
    return (double)NAN;
}

/* One combination of the other axes, whose LL cell of the first token count is first. */
static json_t *cross_json(const struct sweep_table *table, uint32_t first, uint32_t tokens,
                          uint32_t to_normal)
{
    const struct sim_sweep_axis *axis = &table->grid.axes[tokens];
    const uint32_t stride = stride_of(table, tokens);
    struct pair pairs[SIM_SWEEP_VALUES_MAX];
    uint32_t count = 0, for_ll = 0, unfit = 0;
    char text[512] = "";
    size_t at = 0;

    assert(axis->count <= SIM_SWEEP_VALUES_MAX);
    for (uint32_t v = 0; v < axis->count; v++) {
        const uint32_t cell = first + v * stride;
        assert(cell < table->cell_count);
        const double ll = sweep_number(table, cell, "step_us"),
                     normal = sweep_number(table, cell + to_normal, "step_us");
        if (isnan(ll) || isnan(normal)) continue;
        pairs[count++] = (struct pair){strtod(axis->values[v], NULL), normal - ll};
        for_ll += normal > ll;
        unfit += !sweep_fits(table, cell) || !sweep_fits(table, cell + to_normal);
    }
    if (count < 2) return NULL;
    qsort(pairs, count, sizeof *pairs, by_tokens);
    for (uint32_t a = 0; a < table->grid.axis_count && at < sizeof text; a++)
        if (a != tokens && strcmp(table->grid.axes[a].option, "mode") != 0 &&
            table->grid.axes[a].count > 1)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s", at > 0 ? ", " : "",
                                   table->grid.axes[a].option, sweep_value(table, first, a));
    json_t *json = json_object();
    const double crossing = find_crossing(pairs, count);
    json_object_set_new(json, "where", json_string(text));
    json_object_set_new(json, "tokens", isnan(crossing) ? json_null() : json_real(crossing));
    json_object_set_new(json, "unfit", json_integer(unfit));
    json_object_set_new(json, "faster",
                        for_ll == count ? json_string("ll")
                        : for_ll == 0   ? json_string("normal")
                                        : json_null());
    return json;
}

json_t *sweep_crossovers_json(const struct sweep_table *table)
{
    json_t *list = json_array();
    const uint32_t mode = find_axis(table, "mode"), tokens = find_axis(table, "tokens");

    if (mode == UINT32_MAX || tokens == UINT32_MAX) return list;
    const uint32_t ll = find_value(&table->grid.axes[mode], "ll"),
                   normal = find_value(&table->grid.axes[mode], "normal");
    if (ll == UINT32_MAX || normal == UINT32_MAX) return list;
    const uint32_t to_normal = (normal - ll) * stride_of(table, mode); /* May wrap: it is added. */
    for (uint32_t c = 0; c < table->cell_count; c++) {
        if (sim_sweep_at(&table->grid, c, mode) != ll || sim_sweep_at(&table->grid, c, tokens) != 0)
            continue;
        json_t *json = cross_json(table, c, tokens, to_normal);
        if (json != NULL) json_array_append_new(list, json);
    }
    return list;
}

void sweep_print_crossovers(const struct sweep_table *table)
{
    json_t *list = sweep_crossovers_json(table), *each = NULL;
    size_t i = 0;

    if (json_array_size(list) > 0) puts("\ncrossover of the two modes, modelled:");
    json_array_foreach(list, i, each)
    {
        const char *where = json_string_value(json_object_get(each, "where"));
        const char *faster = json_string_value(json_object_get(each, "faster"));
        const json_t *tokens = json_object_get(each, "tokens");
        printf("  %s%s", where, where[0] != '\0' ? ": " : "");
        if (json_is_real(tokens))
            printf("ll is faster up to about %.0f tokens a rank", json_real_value(tokens));
        else
            printf("%s is faster%s", faster != NULL ? faster : "now this, now that mode",
                   faster != NULL ? " throughout" : "");
        if (json_integer_value(json_object_get(each, "unfit")) > 0)
            printf("\n    at %" JSON_INTEGER_FORMAT
                   " of the token counts a mode does not fit into memory",
                   json_integer_value(json_object_get(each, "unfit")));
        putchar('\n');
    }
    json_decref(list);
}
