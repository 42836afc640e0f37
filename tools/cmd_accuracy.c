/* tools/cmd_accuracy.c - `epsim accuracy`: predicted against measured times. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/accuracy.h"
#include "sim/predict.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const OPTIONS[] = {"threads", NULL};

static const struct command_flag FLAGS[] = {
    {"measured", "CSV", "measurements; their kind is told from the header line"},
    {"rows", NULL, "print every row, not only the groups"},
    {NULL, NULL, NULL},
};

static const struct command_spec SPEC = {
    .name = "accuracy",
    .arguments = "",
    .summary = "Predict measured dispatch and combine times: errors by row and by group.",
    .example = "epsim accuracy --measured measured.csv",
    .options = OPTIONS,
    .flags = FLAGS,
};

struct result {
    struct sim_measured measured;
    uint64_t *predicted_ps;            /* [measured.count] */
    struct sim_accuracy_group *groups; /* [group_count] */
    int64_t group_count;
};

static json_t *group_json(const struct sim_accuracy_group *group)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:f}", "machine", group->machine, "mode",
                     group->mode, "op", group->op, "ep", (int)group->ep, "n", (int)group->count,
                     "median_abs_error", group->median, "p90_abs_error", group->p90, "bias",
                     group->bias);
}

static json_t *result_json(const struct result *result)
{
    static const char *const MODES[] = {"ll", "normal"};
    const struct sim_measured *measured = &result->measured;
    json_t *rows = json_array(), *groups = json_array(), *modes = json_object();

    for (size_t i = 0; i < measured->count; i++)
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f}", "id", measured->rows[i].id,
                                              "predicted_us", (double)result->predicted_ps[i] / 1e6,
                                              "measured_us",
                                              (double)measured->rows[i].measured_ps / 1e6));
    for (int64_t g = 0; g < result->group_count; g++)
        json_array_append_new(groups, group_json(&result->groups[g]));
    for (int m = 0; m < 2; m++) {
        const struct sim_accuracy_group group =
            sim_accuracy_over(measured, result->predicted_ps, MODES[m], "AB");
        json_object_set_new(modes, MODES[m], group_json(&group));
    }
    return json_pack("{s:o, s:o, s:o, s:f}", "rows", rows, "groups", groups, "grades_a_b", modes,
                     "within_1_5x_a_b", sim_accuracy_within(measured, result->predicted_ps, "AB"));
}

static void print_rows(const struct result *result)
{
    struct table *table = table_open("id|machine|mode|op|>EP|>tokens|>SMs|>measured us|>model us|"
                                     ">error");
    for (size_t i = 0; i < result->measured.count; i++) {
        const struct sim_measured_row *row = &result->measured.rows[i];
        table_cell(table, "%s", row->id);
        table_cell(table, "%s", row->machine);
        table_cell(table, "%s", row->mode);
        table_cell(table, "%s", row->op);
        table_cell(table, "%" PRIu32, row->ep);
        table_cell(table, "%" PRIu32, row->tokens);
        if (row->sms == 0)
            table_cell(table, "-");
        else
            table_cell(table, "%" PRIu32, row->sms);
        table_cell(table, "%.2f", (double)row->measured_ps / 1e6);
        table_cell(table, "%.2f", (double)result->predicted_ps[i] / 1e6);
        table_cell(table, "%+.1f %%",
                   100.0 * ((double)result->predicted_ps[i] / (double)row->measured_ps - 1.0));
    }
    table_print(table, stdout);
    table_close(table);
    putchar('\n');
}

static void print_groups(const struct result *result)
{
    static const char *const MODES[] = {"ll", "normal"};
    struct table *table = table_open("machine|mode|op|>EP|>n|>median error|>90th percentile|>bias");
    for (int64_t g = 0; g < result->group_count; g++) {
        const struct sim_accuracy_group *group = &result->groups[g];
        table_cell(table, "%s", group->machine);
        table_cell(table, "%s", group->mode);
        table_cell(table, "%s", group->op);
        table_cell(table, "%" PRIu32, group->ep);
        table_cell(table, "%zu", group->count);
        table_cell(table, "%.1f %%", 100.0 * group->median);
        table_cell(table, "%.1f %%", 100.0 * group->p90);
        table_cell(table, "%+.1f %%", 100.0 * group->bias);
    }
    table_print(table, stdout);
    table_close(table);
    putchar('\n');
    for (int m = 0; m < 2; m++) {
        const struct sim_accuracy_group group =
            sim_accuracy_over(&result->measured, result->predicted_ps, MODES[m], "AB");
        printf("%-7s grades A and B: %zu rows, median error %.1f %%, 90th percentile %.1f %%\n",
               MODES[m], group.count, 100.0 * group.median, 100.0 * group.p90);
    }
    printf("within 1.5x of the measurement, grades A and B: %.1f %% of rows\n",
           100.0 * sim_accuracy_within(&result->measured, result->predicted_ps, "AB"));
}

/* -1: go on; otherwise the exit status, with err. */
static int predict(const struct command_line *line, const char *path, struct result *result,
                   char *err, size_t err_len)
{
    const struct sim_predict_options options = {.threads = line->settings.threads};
    if (sim_measured_read(path, &result->measured, err, err_len) != 0) return EXIT_USAGE;
    if (result->measured.kind != SIM_MEASURED_CALIBRATE) {
        snprintf(err, err_len,
                 "%.200s: holds %s measurements: this version predicts dispatch and combine only",
                 path, sim_measured_kind_name(result->measured.kind));
        return EXIT_USAGE;
    }
    result->predicted_ps = (uint64_t *)calloc(result->measured.count + 1, sizeof(uint64_t));
    result->groups =
        (struct sim_accuracy_group *)calloc(result->measured.count + 1, sizeof *result->groups);
    if (result->predicted_ps == NULL || result->groups == NULL) {
        snprintf(err, err_len, "out of memory");
        return EXIT_ENVIRONMENT;
    }
    if (sim_predict(&result->measured, &options, result->predicted_ps, err, err_len) != 0)
        return EXIT_USAGE;
    result->group_count =
        sim_accuracy_groups(&result->measured, result->predicted_ps, result->groups, err, err_len);
    return result->group_count < 0 ? EXIT_ENVIRONMENT : -1;
}

int cmd_accuracy(int argc, char **argv)
{
    struct command_line line;
    struct result result = {.group_count = 0};
    char err[1024] = "";
    int status = command_line_parse(&SPEC, argc, argv, &line);

    if (status >= 0) return status;
    const char *path = command_line_flag(&line, "measured");
    if (path == NULL)
        return command_fail(&SPEC, EXIT_USAGE, "--measured: missing: name a CSV of measurements");
    status = predict(&line, path, &result, err, sizeof err);
    if (status >= 0) {
        command_fail(&SPEC, status, err);
    } else if (line.json) {
        status = command_print_json(result_json(&result));
    } else {
        if (command_line_flag(&line, "rows") != NULL) print_rows(&result);
        puts("times are modelled; routing is drawn, since the measured one is not known\n");
        print_groups(&result);
        status = EXIT_OK;
    }
    free(result.predicted_ps);
    free(result.groups);
    sim_measured_free(&result.measured);
    return status;
}
