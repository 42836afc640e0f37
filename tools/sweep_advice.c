/* tools/sweep_advice.c - a sweep's best choices, in words and as JSON. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "tools/sweep.h"
#include "tools/table.h"

const char *sweep_goal_text(const struct sim_goal *goal, double value, char text[64])
{
    char bytes[16];

    if (strcmp(goal->key, "step_us") == 0)
        snprintf(text, 64, "%.*f ms a step", sweep_decimals(value / 1000), value / 1000);
    else if (strcmp(goal->key, "rank_bytes") == 0)
        snprintf(text, 64, "%s a rank", table_bytes((uint64_t)value, bytes));
    else
        snprintf(text, 64, "%.*f %s", sweep_decimals(value), value, goal->unit);
    return text;
}

static double *goal_values(const struct sweep_table *table, const struct sim_goal *goal)
{
    double *values = (double *)calloc(table->cell_count, sizeof *values);
    assert(values != NULL);                          /* Small beside the cells themselves. */
    for (uint32_t c = 0; c < table->cell_count; c++) /* What does not fit is no answer. */
        values[c] = sweep_fits(table, c) ? sweep_number(table, c, goal->key) : (double)NAN;
    return values;
}

/* What each choice is worth: the best cell without it. */
static void print_others(const struct sweep_table *table, const struct sim_advice *advice)
{
    char words[256];
    for (uint32_t a = 0; a < table->grid.axis_count; a++) {
        const struct sim_rival *other = &advice->other[a];
        if (sim_advise_is_condition(&table->grid, a) || table->grid.axes[a].count < 2) continue;
        if (other->cell == SIM_NO_CELL)
            printf("            %s: no other value runs\n", table->grid.axes[a].option);
        else
            printf("            another %s: %.1f %% worse at best (%s)\n",
                   table->grid.axes[a].option, 100 * other->worse,
                   sweep_words(table, other->cell, false, true, words, sizeof words));
    }
}

/* How many cells are no answer, and why. */
static void print_left_out(const struct sweep_table *table, const char *unfit, const char *why)
{
    uint32_t cells = 0;
    for (uint32_t c = 0; c < table->cell_count; c++)
        cells += strcmp(sweep_unfit(table, c), unfit) == 0;
    if (cells > 0) printf("; %" PRIu32 " cell%s left out: %s", cells, cells > 1 ? "s" : "", why);
}

/* Why a combination of conditions has no best cell. */
static const char *no_answer(const struct sweep_table *table, const struct sim_goal *goal,
                             uint32_t condition)
{
    const char *why = "every cell is refused";
    for (uint32_t c = 0; c < table->cell_count; c++) {
        if (sim_advise_condition_of(&table->grid, c) != condition) continue;
        if (table->cells[c].state != SIM_SWEEP_DONE) continue;
        if (!sweep_fits(table, c)) why = "nothing fits into a GPU's memory";
        if (isnan(sweep_number(table, c, goal->key))) return "no cell has a figure for it";
    }
    return why;
}

/* A cell of a combination of conditions, to name them by. */
static uint32_t cell_of(const struct sweep_table *table, uint32_t condition)
{
    uint32_t cell = 0;
    while (sim_advise_condition_of(&table->grid, cell) != condition) cell++;
    assert(cell < table->cell_count);
    return cell;
}

void sweep_print_advice(const struct sweep_table *table, const struct sim_goal *goal)
{
    double *values = goal_values(table, goal);
    const uint32_t conditions = sim_advise_conditions(&table->grid);
    uint32_t before = SIM_NO_CELL, changes = 0, answered = 0;
    char words[256], where[256], value[64];

    printf("\nadvice    for %s, modelled", goal->name);
    print_left_out(table, "weights too big", "weights and buffers exceed the GPU's memory");
    print_left_out(table, "KV too big", "the KV cache does not fit");
    puts(":");
    for (uint32_t condition = 0; condition < conditions; condition++) {
        struct sim_advice advice;
        sim_advise(&table->grid, values, goal, condition, &advice);
        sweep_words(table, cell_of(table, condition), true, false, where, sizeof where);
        if (advice.best == SIM_NO_CELL) {
            printf("  %s%s%s\n", where, where[0] != '\0' ? ": " : "",
                   no_answer(table, goal, condition));
            continue;
        }
        sweep_words(table, advice.best, false, true, words, sizeof words);
        printf("  %s%s%s: %s%s\n", where, where[0] != '\0' ? ": " : "",
               words[0] != '\0' ? words : "the only choice",
               sweep_goal_text(goal, advice.value, value),
               before != SIM_NO_CELL && !sim_advise_same_choice(&table->grid, before, advice.best)
                   ? "   <- the answer changes here"
                   : "");
        if (before != SIM_NO_CELL && !sim_advise_same_choice(&table->grid, before, advice.best))
            changes++;
        print_others(table, &advice);
        before = advice.best;
        answered++;
    }
    if (answered > 1 && changes == 0)
        puts("  the answer is the same throughout");
    else if (answered > 1)
        printf("  over these conditions the answer changes %" PRIu32 " time%s\n", changes,
               changes == 1 ? "" : "s");
    free(values);
}

json_t *sweep_advice_json(const struct sweep_table *table, const struct sim_goal *goal)
{
    json_t *list = json_array();
    double *values = goal_values(table, goal);
    char words[256];

    for (uint32_t condition = 0; condition < sim_advise_conditions(&table->grid); condition++) {
        struct sim_advice advice;
        json_t *json = json_object(), *others = json_object();
        sim_advise(&table->grid, values, goal, condition, &advice);
        json_array_append_new(list, json);
        json_object_set_new(json, "goal", json_string(goal->name));
        json_object_set_new(json, "unit", json_string(goal->unit));
        json_object_set_new(json, "others", others);
        if (advice.best == SIM_NO_CELL) {
            json_object_set_new(json, "best", json_null());
            json_object_set_new(json, "why", json_string(no_answer(table, goal, condition)));
            continue;
        }
        json_object_set_new(json, "best", json_integer(advice.best));
        json_object_set_new(json, "value", json_real(advice.value));
        json_object_set_new(
            json, "conditions",
            json_string(sweep_words(table, advice.best, true, false, words, sizeof words)));
        json_object_set_new(
            json, "choices",
            json_string(sweep_words(table, advice.best, false, true, words, sizeof words)));
        for (uint32_t a = 0; a < table->grid.axis_count; a++)
            if (advice.other[a].cell != SIM_NO_CELL && !sim_advise_is_condition(&table->grid, a))
                json_object_set_new(others, table->grid.axes[a].option,
                                    json_pack("{s:I, s:f}", "cell",
                                              (json_int_t)advice.other[a].cell, "worse_percent",
                                              100 * advice.other[a].worse));
    }
    free(values);
    return list;
}
