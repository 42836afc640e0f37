/* tools/cmd_accuracy.c - the model against a file of measurements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sim/accuracy.h"
#include "sim/breakdown.h"
#include "sim/calibrate.h"
#include "sim/predict.h"
#include "tools/commands.h"
#include "tools/explain.h"
#include "tools/origins.h"
#include "tools/table.h"

enum { SPLIT_ROUNDS = 12 };

static const char *const options[] = {"threads", "attention", NULL};

static const struct command_flag flags[] = {
    {"measured", "CSV", "rows to predict; its header line tells the kind"},
    {"mode", "MODE", "only rows of ll, or of normal"},
    {"split", NULL, "fit the machines to half of the rows, judge them on the other half"},
    {"rows", NULL, "print every row, not only the groups"},
    {"explain", "ID", "of the row with this id alone: where its predicted time goes"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "accuracy",
    .arguments = "",
    .summary =
        "Predict every row of a file of measurements and say how far off. Beside the model:\n"
        "rule = bytes over the datasheet rate of the busiest link; line = the best\n"
        "a + b x tokens of each curve, fitted to the same rows.\n\n"
        "Columns of the CSV, in any order, others ignored: machine (preset or path), nodes,\n"
        "gpus_per_node, mode (ll, normal), op (dispatch, combine; ll also with _send, _recv: the\n"
        "halves of hook mode; normal also with _notify), ep, tokens_per_rank, hidden, topk,\n"
        "experts, dispatch_dtype (fp8, bf16), comm_sms (normal), us; may be missing: id, grade,\n"
        "stack, capacity. Other kinds of file: expert_compute (layout masked or contiguous, "
        "routing\n"
        "uniform or power_law_A, ep, tokens_per_rank, hidden, moe_inter, topk, experts) and "
        "attention\n"
        "(kernel mla_..., heads, batch_per_rank, kv_tokens).",
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
                        const struct sim_accuracy *accuracy, const json_t *origins)
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
    return json_pack("{s:s, s:o, s:o, s:O}", "kind", sim_measured_kind_name(measured->kind), "rows",
                     rows, "groups", groups, "machines", origins);
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

/* Keep the rows that keep says, in order. */
static void select_rows(struct sim_measured *measured, const bool *keep)
{
    size_t count = 0;
    for (size_t i = 0; i < measured->count; i++)
        if (keep[i]) measured->rows[count++] = measured->rows[i];
    measured->count = count;
}

/* One half of the rows by a number of their ids, so that the same row is always in the same half,
 * whatever stands around it. */
static bool in_first_half(const struct sim_measured_row *row)
{
    return sim_calibrate_hash(row->id) % 2 == 0;
}

static void progress(void *context, unsigned round, double loss)
{
    (void)context;
    fprintf(stderr, "\rfitting one half: round %u: loss %.4f ", round + 1, loss);
}

/* Fit every preset that the rows name to one half; leave the other half in *measured, and its
 * machines in *fitted. */
static int fit_half(const struct command_line *line, const char *mode,
                    struct sim_measured *measured, bool *judged, struct sim_calibration *fitted,
                    char *err, size_t err_len)
{
    struct sim_calibrate_file files[SIM_CALIBRATE_FILES_MAX];
    bool *half = judged + measured->count;
    size_t kept = 0;
    for (size_t i = 0; i < measured->count; i++) {
        half[i] = in_first_half(&measured->rows[i]);
        judged[i] = !half[i];
        kept += judged[i];
    }
    if (kept == 0 || kept == measured->count) {
        snprintf(err, err_len, "--split: all %zu rows fall into one half by their ids: give more",
                 measured->count);
        return -1;
    }
    const int64_t count =
        sim_calibrate_files_of(measured, files, SIM_CALIBRATE_FILES_MAX, err, err_len);
    if (count < 0) return -1;
    const struct sim_calibrate_options wanted = {
        .files = files,
        .file_count = (size_t)count,
        .mode = mode,
        .wanted = half,
        .threads = line->settings.threads,
        .rounds = SPLIT_ROUNDS,
        .report = isatty(STDERR_FILENO) && !line->json ? progress : NULL};
    const int status = sim_calibrate(measured, &wanted, fitted, err, err_len);
    if (wanted.report) fputc('\n', stderr);
    sim_calibrate_files_free(files, (size_t)count);
    if (status != 0) return -1;
    kept = 0;
    for (size_t i = 0; i < measured->count; i++)
        if (judged[i]) fitted->machines[kept++] = fitted->machines[i];
    if (!line->json)
        printf("Machines fitted to %zu rows (median error there %.1f %%, before %.1f %%); judged on"
               " the other %zu.\n",
               fitted->rows, 100 * fitted->median_after, 100 * fitted->median_before, kept);
    select_rows(measured, judged);
    return 0;
}

static int predict(const struct command_line *line, struct sim_measured *measured,
                   uint64_t *predicted_ps, uint64_t *floor_ps, char *err, size_t err_len)
{
    const char *mode = command_line_flag(line, "mode");
    struct sim_predict_options wanted = {.threads = line->settings.threads,
                                         .roofline = line->settings.attention[0] == 'r' ||
                                                     command_line_flag(line, "split") != NULL};
    struct sim_calibration fitted = {.rows = 0};
    bool *keep = (bool *)calloc(2 * measured->count + 1, sizeof *keep);
    int status = keep ? 0 : -1;

    if (!keep) snprintf(err, err_len, "out of memory");
    for (size_t i = 0; status == 0 && i < measured->count; i++)
        keep[i] = !mode || strcmp(measured->rows[i].mode, mode) == 0;
    if (status == 0) select_rows(measured, keep);
    if (status == 0 && measured->count == 0) {
        snprintf(err, err_len, "--measured: %.300s: no row%s%s",
                 command_line_flag(line, "measured"), mode ? " of mode " : " below its header",
                 mode ? mode : "");
        status = -1;
    }
    if (status == 0 && command_line_flag(line, "split")) {
        status = fit_half(line, mode ? mode : "", measured, keep, &fitted, err, err_len);
        wanted.machines = fitted.machines;
    }
    if (status == 0) status = sim_predict(measured, &wanted, predicted_ps, floor_ps, err, err_len);
    sim_calibration_free(&fitted);
    free(keep);
    return status;
}

static int report(const struct command_line *line, struct sim_measured *measured)
{
    struct sim_accuracy accuracy = {.count = 0};
    json_t *origins = NULL;
    uint64_t *predicted_ps = (uint64_t *)calloc(2 * measured->count + 1, sizeof *predicted_ps);
    uint64_t *floor_ps = predicted_ps ? predicted_ps + measured->count : NULL;
    char err[512] = "out of memory";
    int status = EXIT_OK;

    if (!predicted_ps)
        status = command_fail(&spec, EXIT_ENVIRONMENT, err);
    else if (predict(line, measured, predicted_ps, floor_ps, err, sizeof err) != 0 ||
             sim_accuracy_compute(measured, predicted_ps, floor_ps, &accuracy, err, sizeof err) ||
             !(origins = origins_json(measured, err, sizeof err)))
        status = command_fail(&spec, EXIT_USAGE, err);
    else if (line->json)
        status = command_print_json(document(measured, predicted_ps, &accuracy, origins));
    else {
        static const char *const remarks[SIM_MEASURED_KINDS] = {
            "Times are modelled; routing is drawn, since the measured one is not known.\n",
            "Times are modelled. Contiguous rows under 128 per expert stand at their host's launch "
            "floor:\ngrade C, not judged.\n",
            "Times are modelled, through the machine's measured table where it has one; "
            "--attention roofline\njudges the model alone.\n"};
        puts(remarks[measured->kind]);
        if (command_line_flag(line, "rows")) print_rows(measured, predicted_ps);
        origins_print(origins, stdout);
        print_table(&accuracy);
    }
    json_decref(origins);
    sim_accuracy_free(&accuracy);
    free(predicted_ps);
    return status;
}

static int take_apart(void *context, const struct sim_exchange *exchange, char *err, size_t err_len)
{
    return sim_breakdown_add_exchange((struct sim_breakdown *)context, exchange, err, err_len);
}

/* One row: predicted, measured, and the prediction's first draw in parts. */
static int explain_row(const struct command_line *line, const struct sim_measured *measured)
{
    static const uint32_t layer = 0;
    const char *id = command_line_flag(line, "explain");
    struct sim_breakdown breakdown;
    struct sim_measured one = *measured;
    const struct sim_predict_options wanted = {
        .threads = 1, .observe = take_apart, .observe_context = &breakdown};
    uint64_t predicted_ps = 0;
    char err[512];
    size_t at = 0;

    while (at < measured->count && strcmp(measured->rows[at].id, id) != 0) at++;
    if (at == measured->count || measured->kind != SIM_MEASURED_CALIBRATE) {
        snprintf(err, sizeof err, "--explain: %.64s: no row of an exchange has this id", id);
        return command_fail(&spec, EXIT_USAGE, err);
    }
    one.rows = measured->rows + at;
    one.count = 1;
    if (sim_breakdown_open(&layer, 1, line->settings.threads, &breakdown, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_ENVIRONMENT, err);
    int status = EXIT_OK;
    if (sim_predict(&one, &wanted, &predicted_ps, NULL, err, sizeof err) != 0) {
        status = command_fail(&spec, EXIT_USAGE, err);
    } else if (line->json) {
        json_t *json =
            json_pack("{s:s, s:f, s:f, s:o}", "id", id, "predicted_us", (double)predicted_ps / 1e6,
                      "measured_us", (double)one.rows->measured_ps / 1e6, "explain",
                      sim_breakdown_json(&breakdown));
        status = command_print_json(json);
    } else {
        printf("row       %s: %s %s, EP%" PRIu32 ", %" PRIu32 " tokens per rank\n", id,
               one.rows->mode, one.rows->op, one.rows->ep, one.rows->tokens);
        printf(
            "time      predicted %.2f us, measured %.2f us; below: whole kernels of one draw of\n"
            "          routing, count exchange and both halves included\n",
            (double)predicted_ps / 1e6, (double)one.rows->measured_ps / 1e6);
        explain_print(&breakdown);
    }
    sim_breakdown_close(&breakdown);
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
    const char *mode = command_line_flag(&line, "mode");
    if (mode && strcmp(mode, "ll") != 0 && strcmp(mode, "normal") != 0)
        return command_fail(&spec, EXIT_USAGE, "--mode: must be ll or normal");
    if (!path) return command_fail(&spec, EXIT_USAGE, "--measured CSV is missing");
    if (sim_measured_read(path, &measured, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    status = command_line_flag(&line, "explain") ? explain_row(&line, &measured)
                                                 : report(&line, &measured);
    sim_measured_free(&measured);
    return status;
}
