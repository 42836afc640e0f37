/* tools/verify_record.c - makes a record of a GPU's digests, or holds one against the reference. */
#include "tools/verify_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/evidence.h"
#include "sim/plan.h"
#include "tools/report_mismatch.h"

static struct sim_evidence_question question_of(const struct command_line *line,
                                                const struct sim_case_table *table)
{
    const bool trace = sim_plan_is_trace(&line->settings);
    const struct sim_evidence_question question = {
        .table = table,
        .routing = trace ? line->settings.routing : NULL,
        .offsets = trace ? line->settings.offsets : NULL,
        .threads = line->settings.threads,
        .progress = isatty(STDERR_FILENO) ? command_show_cases : NULL};
    return question;
}

static int print_json(const struct sim_evidence_report *report, double wall_s)
{
    json_t *json = json_object();

    json_object_set_new(json, "lines", json_integer((json_int_t)report->lines));
    json_object_set_new(json, "matched", json_integer((json_int_t)report->matched));
    json_object_set_new(json, "mismatched", json_integer((json_int_t)report->mismatched));
    json_object_set_new(json, "stale", json_integer((json_int_t)report->stale));
    json_object_set_new(json, "missing", json_integer((json_int_t)report->missing));
    json_object_set_new(json, "pinned", json_integer((json_int_t)report->pinned));
    json_object_set_new(json, "kernels", json_string(sim_evidence_kernels()));
    json_object_set_new(json, "first_mismatch",
                        report->first[0] != '\0' ? json_string(report->first) : json_null());
    json_object_set_new(json, "wall_s", json_real(wall_s));
    return command_print_json(json);
}

static void print_text(const char *path, const struct sim_evidence_report *report, double wall_s)
{
    if (report->first[0] != '\0') printf("%s\n", report->first);
    if (report->stale > 0)
        printf("STALE: %" PRIu64 " lines are of other kernels than this build's (%s): "
               "record them again on a GPU\n",
               report->stale, sim_evidence_kernels());
    if (report->missing > 0)
        printf("missing: %" PRIu64 " cases, jobs or faults have no line\n", report->missing);
    if (report->pinned > 0)
        printf("%" PRIu64 " main jobs held against pinned digests; --routing and --offsets name "
               "the trace to play\n",
               report->pinned);
    printf("%s: %" PRIu64 " lines: %" PRIu64 " matched, %" PRIu64 " mismatched, %" PRIu64
           " stale, in %.1f s\n",
           path, report->lines, report->matched, report->mismatched, report->stale, wall_s);
}

/* Hold it against the reference and print. Frees nothing. */
static int hold(const struct command_line *line, const char *path,
                const struct sim_evidence *evidence, const struct sim_case_table *table)
{
    const struct sim_evidence_question question = question_of(line, table);
    const double start_s = command_now_s();
    struct sim_evidence_report report;
    char err[2048] = "";
    bool usage = true;

    if (sim_evidence_check(evidence, &question, &report, &usage, err, sizeof err) != 0)
        return command_fail(line->spec, usage ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    const int status = report.matched == report.lines ? EXIT_OK : EXIT_NO;
    if (!line->json) {
        print_text(path, &report, command_now_s() - start_s);
        return status;
    }
    const int printed = print_json(&report, command_now_s() - start_s);
    return printed != EXIT_OK ? printed : status;
}

int verify_recorded(const struct command_line *line, const char *path)
{
    struct sim_case_table table;
    struct sim_evidence evidence;
    char err[2048] = "";

    if (sim_case_table_load(command_line_flag(line, "cases"), &table, err, sizeof err) != 0)
        return command_fail(line->spec, EXIT_USAGE, err);
    int status = EXIT_USAGE;
    if (sim_evidence_load(path, &evidence, err, sizeof err) != 0) {
        (void)command_fail(line->spec, status, err);
    } else {
        status = hold(line, path, &evidence, &table);
        sim_evidence_free(&evidence);
    }
    sim_case_table_free(&table);
    return status;
}

/* What went wrong on the GPU goes to standard error: the record is what standard output is about.
 */
static void complain(const struct sim_verify_report *cases)
{
    if (cases->failed > 0) mismatch_print(cases, stderr);
    for (uint32_t i = 0; i < cases->failure_count; i++)
        fprintf(stderr, "broken: %s: %s\n", cases->failures[i].where, cases->failures[i].text);
    if (cases->failed + cases->failure_count > 0)
        fprintf(stderr, "%" PRIu64 " cases failed, %" PRIu32 " broke the backend\n", cases->failed,
                cases->failure_count);
}

int verify_record(const struct command_line *line, const char *path)
{
    struct sim_case_table table;
    struct sim_verify_report cases;
    struct sim_evidence evidence;
    char err[2048] = "";
    bool usage = true;

    if (sim_case_table_load(command_line_flag(line, "cases"), &table, err, sizeof err) != 0)
        return command_fail(line->spec, EXIT_USAGE, err);
    const struct sim_evidence_question question = question_of(line, &table);
    int status = EXIT_ENVIRONMENT;
    memset(&cases, 0, sizeof cases);
    if (sim_evidence_make(&question, &evidence, &cases, &usage, err, sizeof err) != 0) {
        status = command_fail(line->spec, usage ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    } else {
        complain(&cases);
        if (sim_evidence_write(&evidence, path, err, sizeof err) != 0)
            status = command_fail(line->spec, EXIT_ENVIRONMENT, err);
        else
            status = hold(line, path, &evidence, &table);
        if (status == EXIT_OK && cases.failure_count > 0) status = EXIT_ENVIRONMENT;
        sim_evidence_free(&evidence);
    }
    sim_case_table_free(&table);
    return status;
}
