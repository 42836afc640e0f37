/* tools/accuracy_show.c - tables and JSON of predictions beside measurements. */
#include "tools/accuracy_show.h"
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "tools/table.h"

enum { WORST = 5, LINE_ROWS_MIN = 3 };

static double error_of(const struct sim_measured_row *row, uint64_t predicted_ps)
{
    assert(row->measured_ps > 0);
    return (double)predicted_ps / (double)row->measured_ps - 1;
}

static json_t *row_json(const struct sim_measured_row *row, uint64_t predicted_ps)
{
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"nodes", row->nodes},
                   {"gpus_per_node", row->gpus_per_node},
                   {"ep", row->ep},
                   {"tokens_per_rank", row->tokens},
                   {"hidden", row->hidden},
                   {"moe_inter", row->moe_inter},
                   {"topk", row->topk},
                   {"experts", row->experts},
                   {"comm_sms", row->sms},
                   {"heads", row->heads},
                   {"batch_per_rank", row->batch}};
    json_t *json =
        json_pack("{s:s, s:f, s:f, s:f, s:s, s:s, s:s, s:s, s:s}", "id", row->id, "predicted_us",
                  (double)predicted_ps / 1e6, "measured_us", (double)row->measured_ps / 1e6,
                  "error", error_of(row, predicted_ps), "machine", row->machine, "mode", row->mode,
                  "op", row->op, "grade", row->grade, "stack", row->stack);
    if (row->dtype[0] != '\0') json_object_set_new(json, "dispatch_dtype", json_string(row->dtype));
    if (row->routing[0] != '\0') json_object_set_new(json, "routing", json_string(row->routing));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value > 0 || strcmp(numbers[i].name, "tokens_per_rank") == 0)
            json_object_set_new(json, numbers[i].name, json_integer(numbers[i].value));
    return json;
}

static json_t *errors_json(const struct sim_accuracy_errors *errors)
{
    return json_pack("{s:f, s:f, s:f}", "median_abs_error", errors->median, "p90_abs_error",
                     errors->p90, "bias", errors->bias);
}

json_t *accuracy_json(const struct sim_measured *measured, const uint64_t *predicted_ps,
                      const struct sim_accuracy *accuracy, const json_t *origins)
{
    json_t *rows = json_array(), *groups = json_array();
    for (size_t i = 0; i < measured->count; i++)
        json_array_append_new(rows, row_json(&measured->rows[i], predicted_ps[i]));
    for (size_t i = 0; i < accuracy->count; i++) {
        const struct sim_accuracy_group *group = &accuracy->groups[i];
        json_t *json =
            json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:I}", "machine", group->machine, "mode",
                      group->mode, "op", group->op, "ep", (int)group->ep, "grade", group->grade,
                      "n", (json_int_t)group->rows, "within_1_5x", (json_int_t)group->within);
        json_object_update_new(json, errors_json(&group->model));
        json_object_set_new(json, "rule", errors_json(&group->rule));
        json_object_set_new(json, "line",
                            group->rows < LINE_ROWS_MIN ? json_null() : errors_json(&group->line));
        json_array_append_new(groups, json);
    }
    return json_pack("{s:s, s:o, s:o, s:O}", "kind", sim_measured_kind_name(measured->kind), "rows",
                     rows, "groups", groups, "machines", origins);
}

static void number_cell(struct table *table, uint32_t value)
{
    if (value == 0)
        table_cell(table, "-");
    else
        table_cell(table, "%" PRIu32, value);
}

static struct table *open_rows(void)
{
    return table_open("~id|machine|mode|op|>EP|>hidden|>tokens|>SMs|~stack|>measured us|"
                      ">predicted us|>error");
}

static void add_row(struct table *table, const struct sim_measured_row *row, uint64_t predicted_ps)
{
    table_cell(table, "%s", row->id);
    table_cell(table, "%s", row->machine);
    table_cell(table, "%s", row->mode);
    table_cell(table, "%s", row->op);
    number_cell(table, row->ep);
    number_cell(table, row->hidden);
    table_cell(table, "%" PRIu32, row->tokens);
    number_cell(table, row->sms);
    table_cell(table, "%s", row->stack[0] != '\0' ? row->stack : "-");
    table_cell(table, "%.2f", (double)row->measured_ps / 1e6);
    table_cell(table, "%.2f", (double)predicted_ps / 1e6);
    table_cell(table, "%+.1f %%", 100 * error_of(row, predicted_ps));
}

void accuracy_print_rows(const struct sim_measured *measured, const uint64_t *predicted_ps,
                         FILE *out)
{
    struct table *table = open_rows();
    for (size_t i = 0; i < measured->count; i++)
        add_row(table, &measured->rows[i], predicted_ps[i]);
    table_print(table, out);
    table_close(table);
    fputc('\n', out);
}

/* The row of the largest absolute error that stands behind the one printed last: smaller error,
 * or the same further down the file. count when there is none. */
static size_t next_worst(const struct sim_measured *measured, const uint64_t *predicted_ps,
                         size_t last)
{
    size_t found = measured->count;
    double largest = -1, limit = 0;
    if (last < measured->count) {
        limit = error_of(&measured->rows[last], predicted_ps[last]);
        limit = limit < 0 ? -limit : limit;
    }
    for (size_t i = 0; i < measured->count; i++) {
        double error = error_of(&measured->rows[i], predicted_ps[i]);
        if (error < 0) error = -error;
        if (last < measured->count && (error > limit || (error >= limit && i <= last))) continue;
        if (error <= largest) continue;
        largest = error;
        found = i;
    }
    return found;
}

void accuracy_print_worst(const struct sim_measured *measured, const uint64_t *predicted_ps,
                          FILE *out)
{
    struct table *table = open_rows();
    const size_t count = measured->count < WORST ? measured->count : WORST;
    size_t row = measured->count;
    assert(measured->count > 0);
    for (size_t i = 0; i < count; i++) {
        row = next_worst(measured, predicted_ps, row);
        assert(row < measured->count);
        add_row(table, &measured->rows[row], predicted_ps[row]);
    }
    fprintf(out, "\nLargest errors (--rows: all %zu; --explain ID: where one's time goes)\n",
            measured->count);
    table_print(table, out);
    table_close(table);
}

void accuracy_print_groups(const struct sim_accuracy *accuracy, FILE *out)
{
    struct table *table =
        table_open("machine|mode|op|>EP|grade|>rows|>median|>p90|>bias|>rule median|"
                   ">line median|>in 1.5x");
    for (size_t i = 0; i < accuracy->count; i++) {
        const struct sim_accuracy_group *group = &accuracy->groups[i];
        table_cell(table, "%s", group->machine);
        table_cell(table, "%s", group->mode);
        table_cell(table, "%s", group->op);
        if (group->ep > 0)
            table_cell(table, "%" PRIu32, group->ep);
        else
            table_cell(table, "all");
        table_cell(table, "%s", group->grade);
        table_cell(table, "%zu", group->rows);
        table_cell(table, "%.1f %%", 100 * group->model.median);
        table_cell(table, "%.1f %%", 100 * group->model.p90);
        table_cell(table, "%+.1f %%", 100 * group->model.bias);
        table_cell(table, "%.0f %%", 100 * group->rule.median);
        if (group->rows < LINE_ROWS_MIN)
            table_cell(table, "-");
        else
            table_cell(table, "%.1f %%", 100 * group->line.median);
        table_cell(table, "%zu", group->within);
    }
    table_print(table, out);
    table_close(table);
}

void accuracy_print_grades(const struct sim_measured *measured, FILE *out)
{
    const struct sim_measured_row *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        if (row->grade[0] == '\0' || (strchr("ABC", row->grade[0]) && row->grade[1] == '\0'))
            continue;
        if (!first) first = row;
        count++;
    }
    if (!first) return;
    fprintf(out,
            "Grades are A, B and C; %zu row%s another (%s: '%s'), which counts as A and B do."
            "\n\n",
            count, count == 1 ? " has" : "s have", first->id, first->grade);
}
