/* tools/report_mismatch.c - the first difference as JSON and as lines for people. */
#include "tools/report_mismatch.h"
#include <assert.h>
#include <inttypes.h>

static json_t *number_or_null(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *mismatch_json(const struct sim_verify_report *report)
{
    const struct sim_mismatch *first = &report->first;

    if (report->failed == 0) return json_null();
    assert(first->stage != NULL);
    json_t *json = json_object();
    json_object_set_new(json, "case", json_string(report->first_case));
    json_object_set_new(json, "stage", json_string(first->stage));
    json_object_set_new(json, "tensor", json_string(first->tensor));
    json_object_set_new(json, "rank", json_integer(first->rank));
    json_object_set_new(json, "expert", number_or_null(first->expert));
    json_object_set_new(json, "src_rank", number_or_null(first->src_rank));
    json_object_set_new(json, "src_token", number_or_null(first->src_token));
    json_object_set_new(json, "channel", number_or_null(first->channel));
    json_object_set_new(json, "expected", json_string(first->expected));
    json_object_set_new(json, "actual", json_string(first->actual));
    json_object_set_new(json, "cause",
                        first->cause[0] != '\0' ? json_string(first->cause) : json_null());
    json_object_set_new(json, "mismatches", json_integer((json_int_t)report->first_mismatches));
    return json;
}

static void print_part(FILE *out, const char *name, int64_t value)
{
    if (value >= 0) fprintf(out, ", %s %" PRId64, name, value);
}

void mismatch_print(const struct sim_verify_report *report, FILE *out)
{
    const struct sim_mismatch *first = &report->first;

    fprintf(out, "%s: %s: %s of rank %" PRIu32, report->first_case, first->stage, first->tensor,
            first->rank);
    print_part(out, "expert", first->expert);
    print_part(out, "source rank", first->src_rank);
    print_part(out, "source token", first->src_token);
    print_part(out, "channel", first->channel);
    fprintf(out, ": expected %s, got %s%s%s\n", first->expected, first->actual,
            first->cause[0] != '\0' ? ": " : "", first->cause);
}
