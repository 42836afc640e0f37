/* tools/report_verify.c - prints what verify found: counts, failures, the first difference. */
#include "tools/report_verify.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/report_mismatch.h"
#include "tools/table.h"

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

static json_t *report_json(const char *backend, const struct sim_verify_report *report,
                           const struct report_cases *cases)
{
    json_t *json = json_object();

    json_object_set_new(json, "backend", json_string(backend));
    json_object_set_new(json, "cases", json_integer((json_int_t)report->cases));
    json_object_set_new(json, "passed", json_integer((json_int_t)report->passed));
    json_object_set_new(json, "failed", json_integer((json_int_t)report->failed));
    json_object_set_new(json, "skipped", json_integer((json_int_t)report->skipped));
    json_object_set_new(json, "broken", json_integer((json_int_t)report->failure_count));
    json_object_set_new(json, "failures", failures_json(report));
    if (cases == NULL)
        json_object_set_new(json, "compared_tensors", json_integer((json_int_t)report->tensors));
    json_object_set_new(json, "compared_bytes", json_integer((json_int_t)report->bytes));
    json_object_set_new(json, "first_failure", mismatch_json(report));
    if (cases == NULL) return json;
    json_object_set_new(json, "case_bytes_max", json_integer((json_int_t)cases->bytes_max));
    json_object_set_new(json, "wall_s", json_real(cases->wall_s));
    return json;
}

static void print_text(const char *backend, const struct sim_verify_report *report,
                       const struct report_cases *cases)
{
    char bytes[16], most[16];

    if (report->failed > 0) mismatch_print(report, stdout);
    for (uint32_t i = 0; i < report->failure_count; i++)
        printf("broken: %s%s%s\n", report->failures[i].where,
               report->failures[i].where[0] != '\0' ? ": " : "", report->failures[i].text);
    if (report->failure_count == SIM_VERIFY_FAILURES_MAX)
        printf("stopped: %d cases broke the backend\n", SIM_VERIFY_FAILURES_MAX);
    printf("%" PRIu64 " cases by %s: %" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64 " skipped; ",
           report->cases, backend, report->passed, report->failed, report->skipped);
    if (cases == NULL)
        printf("%" PRIu64 " tensors, %s compared bit by bit\n", report->tensors,
               table_bytes(report->bytes, bytes));
    else
        printf("%s compared bit by bit in %.1f s, at most %s of memory a case\n",
               table_bytes(report->bytes, bytes), cases->wall_s,
               table_bytes(cases->bytes_max, most));
}

int report_verify(const struct command_line *line, const char *backend,
                  const struct sim_verify_report *report, const struct report_cases *cases)
{
    const int status = report->failure_count > 0 ? EXIT_ENVIRONMENT
                       : report->failed > 0      ? EXIT_NO
                                                 : EXIT_OK;
    if (!line->json) {
        print_text(backend, report, cases);
        return status;
    }
    const int printed = command_print_json(report_json(backend, report, cases));
    return printed != EXIT_OK ? printed : status;
}
