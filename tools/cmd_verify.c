/* tools/cmd_verify.c - does a backend reproduce captures of the real kernels, or what the reference
 * makes of named cases? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sim/backends.h"
#include "sim/verify_cases.h"
#include "tools/commands.h"
#include "tools/report_verify.h"
#include "tools/verify_record.h"

static const struct command_flag flags[] = {
    {"golden", "DIR", "captures: NAME.rankR.safetensors, in DIR and the folders below it"},
    {"backend", "NAME", "who computes: ref, cuda, PATH.so [ref]"},
    {"cases", "[FILE]", "named cases: the built-in table, or one like it; so does --backend alone"},
    {"record", "FILE", "--backend cuda: write what the kernels make of cases, faults and main job"},
    {"recorded", "FILE", "hold such a record against the reference, without a GPU"},
    {NULL, NULL, NULL},
};

static const char *const options[] = {"transport", "gpus",    "mapping", "time-limit-s",
                                      "threads",   "routing", "offsets", NULL};

static const struct command_spec spec = {
    .name = "verify",
    .arguments = "",
    .summary =
        "Compare a backend with captures of the real kernels, or with the reference over named\n"
        "cases, bit by bit.",
    .example = "epsim verify --golden tests/golden --backend ref\n"
               "  epsim verify --cases --backend cuda\n"
               "  epsim verify --recorded tests/golden/gpu_h200.csv --routing ids.npy "
               "--offsets offsets.npy",
    .flags = flags,
    .options = options,
};

/* A backend that cannot even be opened is the one line of complaint: there is nothing to report.
 * Programs get it as a report, like every other failure. */
static int report_unopened(const struct command_line *line, const char *backend, const char *err)
{
    struct sim_verify_report *report = (struct sim_verify_report *)calloc(1, sizeof *report);
    (void)command_fail(&spec, EXIT_ENVIRONMENT, err);
    if (report == NULL || !line->json) {
        free(report);
        return EXIT_ENVIRONMENT;
    }
    (void)sim_verify_note(report, "", err);
    const int status = report_verify(line, backend, report, NULL);
    free(report);
    return status;
}

/* The named cases of the table that --cases says. */
static int play_cases(const struct command_line *line, const struct sim_backend_ops *backend,
                      const struct sim_backend_place *place, struct sim_verify_report *report,
                      uint64_t *bytes_max, bool *usage, char *err, size_t err_len)
{
    struct sim_case_table table;
    int status = -1;

    *usage = true;
    if (sim_case_table_load(command_line_flag(line, "cases"), &table, err, err_len) != 0) return -1;
    struct sim_case_verdict *verdicts =
        (struct sim_case_verdict *)calloc(table.count, sizeof *verdicts);
    const struct sim_cases_job job = {.table = &table,
                                      .backend = backend,
                                      .place = place,
                                      .threads = line->settings.threads,
                                      .progress =
                                          isatty(STDERR_FILENO) ? command_show_cases : NULL};
    *usage = false;
    if (verdicts == NULL)
        snprintf(err, err_len, "cases: out of memory");
    else
        status = sim_verify_cases(&job, verdicts, report, bytes_max, usage, err, err_len);
    free(verdicts);
    sim_case_table_free(&table);
    return status;
}

/* NULL, or what is wrong with the question. */
static const char *contradiction(const struct command_line *line)
{
    const char *golden = command_line_flag(line, "golden");
    const char *backend = command_line_flag(line, "backend");
    const char *record = command_line_flag(line, "record");
    const char *recorded = command_line_flag(line, "recorded");
    const bool cases = command_line_flag(line, "cases") != NULL;

    if (recorded == NULL && command_line_given(line, "routing"))
        return "--routing: needs --recorded: the record's main job";
    if (recorded == NULL && command_line_given(line, "offsets"))
        return "--offsets: needs --recorded: the record's main job";
    if (record != NULL && (backend == NULL || strcmp(backend, "cuda") != 0))
        return "--record: needs --backend cuda: only kernels make evidence of kernels";
    if (recorded != NULL && (backend != NULL || record != NULL))
        return "--recorded: held against the reference: no --backend, no --record";
    if (golden != NULL && (cases || record != NULL || recorded != NULL))
        return "--golden: not together with --cases, --record or --recorded";
    if ((record != NULL && record[0] == '\0') || (recorded != NULL && recorded[0] == '\0'))
        return "--record, --recorded: name a file";
    /* A backend alone is asked the built-in cases. */
    if (cases || record != NULL || recorded != NULL || (golden == NULL && backend != NULL))
        golden = "-";
    if (golden == NULL) return "--golden DIR (captures), --cases, --record or --recorded: missing";
    if (golden[0] == '\0') return "--golden: missing: name a folder of captures";
    if (backend != NULL && strcmp(backend, "none") == 0)
        return "--backend: none: must be ref, cuda or PATH.so";
    return NULL;
}

int cmd_verify(int argc, char **argv)
{
    struct command_line line;
    struct sim_verify_report report;
    struct sim_backend_choice choice = {NULL, NULL};
    struct sim_backend_place place;
    struct report_cases extra = {0, 0};
    char err[2048] = "", complaint[2048] = "";
    bool usage = true;
    const int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *golden = command_line_flag(&line, "golden");
    const char *backend_flag = command_line_flag(&line, "backend");
    const char *name = backend_flag != NULL ? backend_flag : "ref";
    const char *wrong = contradiction(&line);
    if (wrong != NULL) return command_fail(&spec, EXIT_USAGE, wrong);
    if (command_line_flag(&line, "recorded") != NULL)
        return verify_recorded(&line, command_line_flag(&line, "recorded"));
    if (sim_settings_set(&line.settings, "backend", name, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (sim_backend_place(&line.settings, &place, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (strcmp(name, "ref") != 0) {
        const int found = sim_backend_choose(&line.settings, &choice, err, sizeof err);
        if (found == SIM_BACKEND_UNKNOWN) { /* "none", which runs take, has nothing to verify. */
            snprintf(err, sizeof err, "--backend: %.200s: must be ref, cuda or PATH.so", name);
            return command_fail(&spec, EXIT_USAGE, err);
        }
        if (found != 0 && command_line_flag(&line, "record") != NULL)
            return command_fail(&spec, EXIT_ENVIRONMENT, err);
        if (found != 0) return report_unopened(&line, name, err);
    }
    if (command_line_flag(&line, "record") != NULL)
        return verify_record(&line, command_line_flag(&line, "record"));
    const double start_s = command_now_s();
    const int verified = golden == NULL
                             ? play_cases(&line, choice.ops, &place, &report, &extra.bytes_max,
                                          &usage, err, sizeof err)
                             : sim_verify_golden(golden, choice.ops, &place,
                                                 isatty(STDERR_FILENO) ? command_show_cases : NULL,
                                                 NULL, &report, &usage, err, sizeof(err));
    extra.wall_s = command_now_s() - start_s;
    if (sim_backend_release(&choice, complaint, sizeof complaint) != 0 && verified == 0 &&
        report.failure_count < SIM_VERIFY_FAILURES_MAX)
        (void)sim_verify_note(&report, "", complaint);
    if (verified != 0 && !usage) return report_unopened(&line, name, err);
    if (verified != 0) return command_fail(&spec, EXIT_USAGE, err);
    if (report.bytes == 0 && report.tensors == 0 && report.failure_count == 0) {
        snprintf(err, sizeof err, "%.256s: %" PRIu64 " cases, but no results in them to compare",
                 golden != NULL ? golden : "--cases", report.cases);
        return command_fail(&spec, EXIT_USAGE, err);
    }
    if (report.failure_count > 0)
        (void)command_fail(&spec, EXIT_ENVIRONMENT, report.failures[0].text);
    return report_verify(&line, name, &report, golden != NULL ? NULL : &extra);
}
