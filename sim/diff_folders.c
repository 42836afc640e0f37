/* sim/diff_folders.c - two folders in the capture format, key by key. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "sim/cause.h"
#include "sim/expect.h"
#include "sim/inputs.h"
#include "sim/verify.h"

static void note_missing(struct sim_verify_report *report, const char *label, bool in_a)
{
    report->cases++;
    if (report->failed++ > 0) return;
    snprintf(report->first_case, sizeof(report->first_case), "%s", label);
    memset(&report->first, 0, sizeof(report->first));
    report->first.stage = "input";
    report->first.expert = report->first.src_rank = -1;
    report->first.src_token = report->first.channel = -1;
    snprintf(report->first.tensor, sizeof(report->first.tensor), "case");
    snprintf(report->first.expected, sizeof(report->first.expected), in_a ? "there" : "missing");
    snprintf(report->first.actual, sizeof(report->first.actual), in_a ? "missing" : "there");
    snprintf(report->first.cause, sizeof(report->first.cause), "only one folder has this case");
    report->first_mismatches = 1;
}

/* Where both sides come from the same inputs, say what the other side computed. */
static void explain(const struct sim_capture *a, const struct sim_capture *b,
                    struct sim_mismatch *first)
{
    const struct sim_expect_options own = {.own_fp8 = true, .own_expert_out = true};
    struct sim_inputs inputs;
    struct sim_capture results;
    char ignored[256];

    if (sim_inputs_read(a, &inputs, ignored, sizeof(ignored)) != 0) return;
    if (sim_expect(a, &inputs, &own, &results, ignored, sizeof(ignored)) == 0) {
        sim_cause_explain(&inputs, &results, a, b, first);
        sim_capture_close(&results);
    }
    sim_inputs_free(&inputs);
}

static int diff_case(const struct sim_case_place *a_place, const struct sim_case_place *b_place,
                     struct sim_verify_report *report, char *err, size_t err_len)
{
    const struct sim_compare_options options = {.inputs = true, .both_ways = true};
    struct sim_comparison comparison;
    struct sim_capture a, b;
    int status = -1;

    if (sim_capture_load(a_place, &a, err, err_len) != 0) return -1;
    if (sim_capture_load(b_place, &b, err, err_len) != 0) goto close_a;
    if (a.ranks != b.ranks || a.settings.experts != b.settings.experts ||
        a.settings.mode != b.settings.mode) {
        snprintf(err, err_len,
                 "%.64s: the folders disagree about mode, ranks or experts: nothing to compare",
                 a_place->label);
        goto close_b;
    }
    if (sim_compare_captures(&a, &b, &options, &comparison, err, err_len) != 0) goto close_b;
    report->cases++;
    report->tensors += comparison.tensors;
    report->bytes += comparison.bytes;
    report->one_sided |= comparison.one_sided;
    if (comparison.mismatches == 0) {
        report->passed++;
    } else if (report->failed++ == 0) {
        explain(&a, &b, &comparison.first);
        snprintf(report->first_case, sizeof(report->first_case), "%s", a_place->label);
        report->first = comparison.first;
        report->first_mismatches = comparison.mismatches;
        report->first.expected_row = report->first.actual_row = NULL;
        report->first.expected_scales = report->first.actual_scales = NULL;
    }
    status = 0;
close_b:
    sim_capture_close(&b);
close_a:
    sim_capture_close(&a);
    return status;
}

int sim_diff_folders(const char *a_folder, const char *b_folder, struct sim_verify_report *report,
                     bool *usage, char *err, size_t err_len)
{
    struct sim_case_list a, b;
    size_t i = 0, j = 0;
    int status = -1;

    memset(report, 0, sizeof(*report));
    *usage = true;
    if (sim_case_list(a_folder, true, &a, err, err_len) != 0) return -1;
    if (sim_case_list(b_folder, true, &b, err, err_len) != 0) goto free_a;
    if (a.count == 0 || b.count == 0) {
        snprintf(err, err_len, "%.400s: no NAME.rankR.safetensors in it",
                 a.count == 0 ? a_folder : b_folder);
        goto free_b;
    }
    status = 0;
    while (status == 0 && (i < a.count || j < b.count)) {
        const int order = i == a.count   ? 1
                          : j == b.count ? -1
                                         : strcmp(a.places[i].label, b.places[j].label);

        if (order == 0)
            status = diff_case(&a.places[i], &b.places[j], report, err, err_len);
        else
            note_missing(report, order < 0 ? a.places[i].label : b.places[j].label, order < 0);
        i += order <= 0;
        j += order >= 0;
    }
free_b:
    sim_case_list_free(&b);
free_a:
    sim_case_list_free(&a);
    return status;
}
