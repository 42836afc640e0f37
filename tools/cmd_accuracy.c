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
#include "tools/accuracy_show.h"
#include "tools/commands.h"
#include "tools/explain.h"
#include "tools/origins.h"

enum { SPLIT_ROUNDS = 12, WAIT_S = 2 };

static const char *const options[] = {"threads", "attention", NULL};

static const struct command_flag flags[] = {
    {"measured", "CSV", "rows to predict; its header line tells the kind"},
    {"mode", "MODE", "only rows of ll, or of normal"},
    {"split", NULL, "fit the machines to half of the rows, judge them on the other half"},
    {"rows", NULL, "print every row, not only the groups"},
    {"explain", "ID", "of the first row with this id alone: where its predicted time goes"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "accuracy",
    .arguments = "",
    .summary =
        "Predict every row of a file of measurements and say how far off. Beside the model:\n"
        "rule = bytes over the datasheet rate of the busiest link; line = the best\n"
        "a + b x tokens of each curve, fitted to the same rows (- where a group has one or two,\n"
        "which it would go through).",
    .example = "epsim accuracy --measured calibrate.csv",
    .options = options,
    .flags = flags,
    .notes =
        "Columns of the CSV, in any order, others ignored:\n"
        "  machine          preset or path of a machine file\n"
        "  nodes            whose GPUs took part, joined by NICs\n"
        "  gpus_per_node    that took part on each, joined by NVLink; may be fewer than the\n"
        "                   machine has; nodes x gpus_per_node is ep (on one node: at least ep)\n"
        "  mode, op         ll: dispatch, combine, and with _send, _recv the halves of hook mode;\n"
        "                   normal: dispatch, combine, and with _notify the exchange before them\n"
        "  ep, tokens_per_rank, hidden, topk, experts, dispatch_dtype (fp8, bf16)\n"
        "  comm_sms         of normal mode, at least 2; may be missing where no row is of it\n"
        "  us               microseconds of one call: the mean over ranks, or rank 0's mean over\n"
        "                   many calls. (`run` prints the slowest rank's time, which is larger.)\n"
        "                   Normal mode over several nodes: without _notify\n"
        "  id, grade (A: all settings known, B: one inferred, C: noisy, in no total), stack "
        "(which\n"
        "  build was timed), capacity: may be missing; ids may repeat\n"
        "Other kinds of file: expert_compute (kernel, layout masked or contiguous, routing "
        "uniform\n"
        "or power_law_A, ep, tokens_per_rank, hidden, moe_inter, topk, experts) and attention\n"
        "(kernel mla_..., heads, batch_per_rank, kv_tokens).\n\n"
        "--split fits before it judges, which takes some fifty times as long.\n",
};

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
    if (count == 0) {
        snprintf(err, err_len,
                 "--split: fits presets, and no row is of one: calibrate your files "
                 "with epsim calibrate");
        return -1;
    }
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

/* For people who wait: a line that counts, from a few seconds on. */
struct waiting {
    double start_s;
    bool shown;
};

static void show_waiting(void *context, size_t done, size_t count)
{
    struct waiting *waiting = (struct waiting *)context;
    if (!waiting->shown && command_now_s() - waiting->start_s < WAIT_S) return;
    waiting->shown = true;
    fprintf(stderr, "\r%zu of %zu predicted", done, count);
}

static int predict(const struct command_line *line, struct sim_measured *measured,
                   uint64_t *predicted_ps, uint64_t *floor_ps, char *err, size_t err_len)
{
    const char *mode = command_line_flag(line, "mode");
    struct sim_predict_options wanted = {.threads = line->settings.threads,
                                         .roofline = line->settings.attention[0] == 'r' ||
                                                     command_line_flag(line, "split") != NULL};
    struct sim_calibration fitted = {.rows = 0};
    struct waiting waiting = {.shown = false};
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
    waiting.start_s = command_now_s();
    wanted.progress = isatty(STDERR_FILENO) ? show_waiting : NULL;
    wanted.progress_context = &waiting;
    if (status == 0) status = sim_predict(measured, &wanted, predicted_ps, floor_ps, err, err_len);
    if (waiting.shown) fputs("\r\033[K", stderr);
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
        status = command_print_json(accuracy_json(measured, predicted_ps, &accuracy, origins));
    else {
        static const char *const remarks[SIM_MEASURED_KINDS] = {
            "Times are modelled; routing is drawn, since the measured one is not known.\n",
            "Times are modelled. Contiguous rows under 128 per expert stand at their host's launch "
            "floor:\ngrade C, not judged.\n",
            "Times are modelled, through the machine's measured table where it has one; "
            "--attention roofline\njudges the model alone.\n"};
        puts(remarks[measured->kind]);
        if (command_line_flag(line, "rows")) accuracy_print_rows(measured, predicted_ps, stdout);
        origins_print(origins, stdout);
        accuracy_print_grades(measured, stdout);
        accuracy_print_groups(&accuracy, stdout);
        accuracy_print_worst(measured, predicted_ps, stdout);
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
