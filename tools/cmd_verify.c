/* tools/cmd_verify.c - does a backend reproduce captures of the real kernels? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sim/backends.h"
#include "sim/verify.h"
#include "tools/commands.h"
#include "tools/report_mismatch.h"
#include "tools/table.h"

static const struct command_flag flags[] = {
    {"golden", "DIR", "captures: NAME.rankR.safetensors, in DIR and the folders below it"},
    {"backend", "NAME", "who computes: ref, cuda, PATH.so [ref]"},
    {"cases", NULL, "the built-in cases (not in this version)"},
    {NULL, NULL, NULL},
};

static const char *const options[] = {"transport", "gpus", "mapping", "time-limit-s", NULL};

static const struct command_spec spec = {
    .name = "verify",
    .arguments = "",
    .summary = "Compare a backend with captures of the real kernels, bit by bit.",
    .example = "epsim verify --golden tests/golden --backend ref",
    .flags = flags,
    .options = options,
};

static void show_progress(void *context, uint64_t done, uint64_t cases)
{
    (void)context;
    fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " cases%s", done, cases,
            done == cases ? "\r                              \r" : "");
}

static json_t *failures_json(const struct sim_verify_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < report->failure_count; i++) {
        json_t *failure = json_object();
        json_object_set_new(failure, "case", json_string(report->failures[i].where));
        json_object_set_new(failure, "text", json_string(report->failures[i].text));
        json_array_append_new(list, failure);
    }
    return list;
}

/* A broken backend is a failing environment, whatever else was found. */
static int print_report(const struct command_line *line, const char *backend,
                        const struct sim_verify_report *report)
{
    const int status = report->failure_count > 0 ? EXIT_ENVIRONMENT
                       : report->failed > 0      ? EXIT_NO
                                                 : EXIT_OK;
    char bytes[16];

    if (line->json) {
        json_t *json = json_object();

        json_object_set_new(json, "backend", json_string(backend));
        json_object_set_new(json, "cases", json_integer((json_int_t)report->cases));
        json_object_set_new(json, "passed", json_integer((json_int_t)report->passed));
        json_object_set_new(json, "failed", json_integer((json_int_t)report->failed));
        json_object_set_new(json, "skipped", json_integer((json_int_t)report->skipped));
        json_object_set_new(json, "broken", json_integer((json_int_t)report->failure_count));
        json_object_set_new(json, "failures", failures_json(report));
        json_object_set_new(json, "compared_tensors", json_integer((json_int_t)report->tensors));
        json_object_set_new(json, "compared_bytes", json_integer((json_int_t)report->bytes));
        json_object_set_new(json, "first_failure", mismatch_json(report));
        const int printed = command_print_json(json);
        return printed != EXIT_OK ? printed : status;
    }
    if (report->failed > 0) mismatch_print(report, stdout);
    for (uint32_t i = 0; i < report->failure_count; i++)
        printf("broken: %s%s%s\n", report->failures[i].where,
               report->failures[i].where[0] != '\0' ? ": " : "", report->failures[i].text);
    if (report->failure_count == SIM_VERIFY_FAILURES_MAX)
        printf("stopped: %d cases broke the backend\n", SIM_VERIFY_FAILURES_MAX);
    printf("%" PRIu64 " cases by %s: %" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64
           " skipped; %" PRIu64 " tensors, %s compared bit by bit\n",
           report->cases, backend, report->passed, report->failed, report->skipped, report->tensors,
           table_bytes(report->bytes, bytes));
    return status;
}

/* A backend that cannot even be opened is a report of one line. */
static int report_unopened(const struct command_line *line, const char *backend, const char *err)
{
    struct sim_verify_report *report = (struct sim_verify_report *)calloc(1, sizeof *report);
    if (report == NULL) return command_fail(&spec, EXIT_ENVIRONMENT, err);
    (void)sim_verify_note(report, "", err);
    (void)command_fail(&spec, EXIT_ENVIRONMENT, err);
    const int status = print_report(line, backend, report);
    free(report);
    return status;
}

int cmd_verify(int argc, char **argv)
{
    struct command_line line;
    struct sim_verify_report report;
    struct sim_backend_choice choice = {NULL, NULL};
    struct sim_backend_place place;
    char err[2048] = "", complaint[2048] = "";
    bool usage = true;
    const int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *golden = command_line_flag(&line, "golden");
    const char *backend_flag = command_line_flag(&line, "backend");
    const char *name = backend_flag != NULL ? backend_flag : "ref";
    if (command_line_flag(&line, "cases") != NULL)
        return command_fail(&spec, EXIT_USAGE, "--cases: not in this version: use --golden DIR");
    if (golden == NULL || golden[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--golden: missing: name a folder of captures");
    if (strcmp(name, "none") == 0)
        return command_fail(&spec, EXIT_USAGE, "--backend: none: must be ref, cuda or PATH.so");
    if (sim_settings_set(&line.settings, "backend", name, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (sim_backend_place(&line.settings, &place, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (strcmp(name, "ref") != 0) {
        const int found = sim_backend_choose(&line.settings, &choice, err, sizeof err);
        if (found == SIM_BACKEND_UNKNOWN) return command_fail(&spec, EXIT_USAGE, err);
        if (found != 0) return report_unopened(&line, name, err);
    }
    const int verified =
        sim_verify_golden(golden, choice.ops, &place, isatty(STDERR_FILENO) ? show_progress : NULL,
                          NULL, &report, &usage, err, sizeof(err));
    if (sim_backend_release(&choice, complaint, sizeof complaint) != 0 && verified == 0 &&
        report.failure_count < SIM_VERIFY_FAILURES_MAX)
        (void)sim_verify_note(&report, "", complaint);
    if (verified != 0 && !usage) return report_unopened(&line, name, err);
    if (verified != 0) return command_fail(&spec, EXIT_USAGE, err);
    if (report.tensors == 0 && report.failure_count == 0) {
        snprintf(err, sizeof err, "%.256s: %" PRIu64 " cases, but no results in them to compare",
                 golden, report.cases);
        return command_fail(&spec, EXIT_USAGE, err);
    }
    if (report.failure_count > 0)
        (void)command_fail(&spec, EXIT_ENVIRONMENT, report.failures[0].text);
    return print_report(&line, name, &report);
}
