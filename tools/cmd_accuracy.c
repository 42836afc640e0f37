/* tools/cmd_accuracy.c - the model against a file of measurements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim/accuracy.h"
#include "sim/predict.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const options[] = {"threads", NULL};

static const struct command_flag flags[] = {
    {"measured", "CSV", "rows to predict; its header line tells the kind"},
    {"rows", NULL, "print every row, not only the groups"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "accuracy",
    .arguments = "",
    .summary =
        "Predict every row of a file of measurements and say how far off. Beside the model:\n"
        "rule = bytes over the datasheet rate of the busiest link; line = the best\n"
        "a + b x tokens of each curve, fitted to the same rows.",
    .example = "epsim accuracy --measured calibrate.csv",
    .options = options,
    .flags = flags,
};

static json_t *errors_json(const struct sim_accuracy_errors *errors)
{
    return json_pack("{s:f, s:f, s:f}", "median_abs_error", errors->median, "p90_abs_error",
                     errors->p90, "bias", errors->bias);
}

static json_t *document(const struct sim_measured *measured, const uint64_t *predicted_ps,
                        const struct sim_accuracy *accuracy)
{
    json_t *rows = json_array(), *groups = json_array();
    for (size_t i = 0; i < measured->count; i++)
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f}", "id", measured->rows[i].id,
                                              "predicted_us", (double)predicted_ps[i] / 1e6,
                                              "measured_us",
                                              (double)measured->rows[i].measured_ps / 1e6));
    for (size_t i = 0; i < accuracy->count; i++) {
        const struct sim_accuracy_group *group = &accuracy->groups[i];
        json_t *json =
            json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:I}", "machine", group->machine, "mode",
                      group->mode, "op", group->op, "ep", (int)group->ep, "grade", group->grade,
                      "n", (json_int_t)group->rows, "within_1_5x", (json_int_t)group->within);
        json_object_update_new(json, errors_json(&group->model));
        json_object_set_new(json, "rule", errors_json(&group->rule));
        json_object_set_new(json, "line", errors_json(&group->line));
        json_array_append_new(groups, json);
    }
    return json_pack("{s:s, s:o, s:o}", "kind", sim_measured_kind_name(measured->kind), "rows",
                     rows, "groups", groups);
}

static void print_rows(const struct sim_measured *measured, const uint64_t *predicted_ps)
{
    struct table *table = table_open("id|machine|mode|op|>EP|>hidden|>tokens|>SMs|>measured us|"
                                     ">model us|>error");
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        const double us = (double)row->measured_ps / 1e6, model_us = (double)predicted_ps[i] / 1e6;
        table_cell(table, "%s", row->id);
        table_cell(table, "%s", row->machine);
        table_cell(table, "%s", row->mode);
        table_cell(table, "%s", row->op);
        table_cell(table, "%" PRIu32, row->ep);
        table_cell(table, "%" PRIu32, row->hidden);
        table_cell(table, "%" PRIu32, row->tokens);
        if (row->sms == 0)
            table_cell(table, "-");
        else
            table_cell(table, "%" PRIu32, row->sms);
        table_cell(table, "%.2f", us);
        table_cell(table, "%.2f", model_us);
        table_cell(table, "%+.1f %%", 100 * (model_us / us - 1));
    }
    table_print(table, stdout);
    table_close(table);
    putchar('\n');
}

static void print_table(const struct sim_accuracy *accuracy)
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
        table_cell(table, "%.1f %%", 100 * group->line.median);
        table_cell(table, "%zu", group->within);
    }
    table_print(table, stdout);
    table_close(table);
}

static int report(const struct command_line *line, const struct sim_measured *measured)
{
    const struct sim_predict_options wanted = {.threads = line->settings.threads};
    struct sim_accuracy accuracy = {.count = 0};
    uint64_t *predicted_ps = (uint64_t *)calloc(2 * measured->count + 1, sizeof *predicted_ps);
    uint64_t *floor_ps = predicted_ps ? predicted_ps + measured->count : NULL;
    char err[512] = "out of memory";
    int status = EXIT_OK;

    if (!predicted_ps)
        status = command_fail(&spec, EXIT_ENVIRONMENT, err);
    else if (sim_predict(measured, &wanted, predicted_ps, floor_ps, err, sizeof err) != 0 ||
             sim_accuracy_compute(measured, predicted_ps, floor_ps, &accuracy, err, sizeof err))
        status = command_fail(&spec, EXIT_USAGE, err);
    else if (line->json)
        status = command_print_json(document(measured, predicted_ps, &accuracy));
    else {
        puts("Times are modelled; routing is drawn, since the measured one is not known.\n");
        if (command_line_flag(line, "rows")) print_rows(measured, predicted_ps);
        print_table(&accuracy);
    }
    sim_accuracy_free(&accuracy);
    free(predicted_ps);
    return status;
}

int cmd_accuracy(int argc, char **argv)
{
    struct command_line line;
    struct sim_measured measured = {.count = 0};
    char err[512];
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *path = command_line_flag(&line, "measured");
    if (!path) return command_fail(&spec, EXIT_USAGE, "--measured CSV is missing");
    if (sim_measured_read(path, &measured, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (measured.kind != SIM_MEASURED_CALIBRATE) {
        snprintf(err, sizeof err, "%.256s: rows of kind %s: there is no model of them yet", path,
                 sim_measured_kind_name(measured.kind));
        status = command_fail(&spec, EXIT_USAGE, err);
    } else {
        status = report(&line, &measured);
    }
    sim_measured_free(&measured);
    return status;
}
