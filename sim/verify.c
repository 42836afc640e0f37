/* sim/verify.c - holds a folder of captures against the reference or a backend, case by case. */
#include "sim/verify.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/quantise.h"
#include "sim/backends.h"
#include "sim/cause.h"
#include "sim/expect.h"
#include "sim/inputs.h"
#include "sim/transport.h"
#include "sim/verify_backend.h"

/* How many rows of a tensor of both captures are equal, over all ranks. */
static uint64_t equal_rows(const struct sim_capture *a, const struct sim_capture *b,
                           const char *name, uint64_t *rows_out)
{
    uint64_t equal = 0;

    *rows_out = 0;
    for (uint32_t r = 0; r < a->ranks; r++) {
        const struct sim_tensor *left = sim_capture_find(a, r, name);
        const struct sim_tensor *right = sim_capture_find(b, r, name);

        if (left == NULL || right == NULL || left->bytes != right->bytes || left->axes != 2)
            continue;
        const uint64_t rows = left->shape[0], row_bytes = rows > 0 ? left->bytes / rows : 0;
        *rows_out += rows;
        for (uint64_t i = 0; i < rows; i++)
            equal +=
                memcmp(left->data + i * row_bytes, right->data + i * row_bytes, row_bytes) == 0;
    }
    return equal;
}

/* Did the capture bring its own expert? Its expert_out is checked like any other result, unless
 * fewer than half of its rows are what the case's expert gives: then it is taken as an input. */
static bool own_expert(const struct sim_capture *capture, const struct sim_capture *results)
{
    uint64_t rows = 0, all = 0, equal = 0;

    if (capture->settings.mode == SIM_MODE_NORMAL) {
        equal = equal_rows(capture, results, "expert_out", &rows);
        return 2 * equal < rows;
    }
    for (uint32_t e = 0; e < capture->settings.experts / capture->ranks; e++) {
        char name[SIM_TENSOR_NAME_MAX];

        snprintf(name, sizeof(name), "expert_out.e%" PRIu32, e);
        equal += equal_rows(capture, results, name, &rows);
        all += rows;
    }
    return 2 * equal < all;
}

/* The same for x_fp8: an input when fewer than half of its rows have the scales of the format's own
 * recipe, or when all of it is exactly another recipe's. */
static bool own_fp8(const struct sim_inputs *inputs, const struct sim_capture *capture,
                    const struct sim_capture *results)
{
    const uint64_t values = inputs->tokens * inputs->hidden, groups = values / REF_GROUP_CHANNELS;
    uint64_t rows = 0;
    bool own = false;

    if (inputs->x_fp8 == NULL || inputs->tokens == 0) return false;
    const uint64_t equal = equal_rows(capture, results, "x_fp8", &rows);
    const uint64_t equal_scales = equal_rows(capture, results, "x_scales", &rows);
    assert(equal <= inputs->tokens && equal_scales <= inputs->tokens);
    if (equal == inputs->tokens && equal_scales == inputs->tokens) return false;
    if (2 * equal_scales < inputs->tokens) return true;
    uint8_t *codes = (uint8_t *)malloc(values);
    float *scales = (float *)malloc(groups * sizeof(float));
    for (int r = 0; r < REF_RECIPE_COUNT && codes != NULL && scales != NULL && !own; r++) {
        const enum ref_recipe recipe = (enum ref_recipe)r;

        if (ref_recipe_scales(recipe) == REF_SCALE_NONE) continue;
        ref_quantise(recipe, inputs->x, inputs->tokens, inputs->hidden, codes, scales);
        own = memcmp(codes, inputs->x_fp8, values) == 0 &&
              memcmp(scales, inputs->x_scales, groups * sizeof(float)) == 0;
    }
    free(codes);
    free(scales);
    return own;
}

/* The reference's results, with what the capture brought of its own taken as inputs. */
static int expect_results(const struct sim_capture *capture, const struct sim_inputs *inputs,
                          struct sim_expect_options *own, struct sim_capture *results, char *err,
                          size_t err_len)
{
    memset(own, 0, sizeof(*own));
    if (sim_expect(capture, inputs, own, results, err, err_len) != 0) return -1;
    if (inputs->expert_out != NULL) own->own_expert_out = own_expert(capture, results);
    own->own_fp8 = own_fp8(inputs, capture, results);
    if (!own->own_expert_out && !own->own_fp8) return 0;
    sim_capture_close(results);
    return sim_expect(capture, inputs, own, results, err, err_len);
}

/* Did LogFMT change any combined element? Then chunks were encoded, and the device's own log2 and
 * exp2 are in the capture's bits. */
static bool logfmt_encodes(const struct sim_capture *results)
{
    for (uint32_t r = 0; r < results->ranks; r++) {
        const struct sim_tensor *plain = sim_capture_find(results, r, "combined_x");
        const struct sim_tensor *logfmt = sim_capture_find(results, r, "combined_x_logfmt");

        if (plain == NULL || logfmt == NULL) continue;
        assert(plain->bytes == logfmt->bytes);
        if (memcmp(plain->data, logfmt->data, plain->bytes) != 0) return true;
    }
    return false;
}

/* Every rank must hold the same results: a tensor of the format that stands on rank 0 alone is a
 * broken capture, not a difference. */
static int check_complete(const struct sim_capture *capture, const struct sim_capture *results,
                          char *err, size_t err_len)
{
    assert(capture->ranks == results->ranks);
    for (uint32_t r = 1; r < capture->ranks; r++) {
        for (size_t i = 0; i < results->rank[r].count; i++) {
            const char *name = results->rank[r].tensors[i].name;
            const bool on_first = sim_capture_find(capture, 0, name) != NULL;
            const bool here = sim_capture_find(capture, r, name) != NULL;
            const bool empty = results->rank[r].tensors[i].bytes == 0;

            if (on_first == here || empty || sim_capture_find(results, 0, name) == NULL) continue;
            snprintf(err, err_len, "%.600s: %s: missing here, but rank %d has it",
                     capture->rank[here ? 0 : r].path, name, here ? (int)r : 0);
            return -1;
        }
    }
    return 0;
}

static void count(struct sim_verify_report *report, const char *label,
                  const struct sim_comparison *comparison)
{
    assert(comparison->mismatches == 0 || comparison->tensors > 0);
    report->cases++;
    report->tensors += comparison->tensors;
    report->bytes += comparison->bytes;
    if (comparison->tensors == 0)
        report->skipped++;
    else if (comparison->mismatches == 0)
        report->passed++;
    else if (report->failed++ == 0) {
        snprintf(report->first_case, sizeof(report->first_case), "%s", label);
        report->first = comparison->first;
        report->first_mismatches = comparison->mismatches;
    }
    struct sim_mismatch *first = &report->first;
    first->expected_row = first->actual_row = NULL; /* They go with the captures. */
    first->expected_scales = first->actual_scales = NULL;
}

/* Whose results are compared. */
struct side {
    const struct sim_backend_ops *backend; /* NULL: the reference. */
    const struct sim_backend_place *place; /* NULL: the default. */
    void *state;
};

static bool takes(const struct side *side, const struct sim_capture *capture,
                  const struct sim_inputs *inputs)
{
    const struct sim_transport_shape shape = {.mode = capture->settings.mode,
                                              .nodes = capture->ranks / inputs->ranks_per_node,
                                              .ranks = capture->ranks,
                                              .experts = inputs->routing.experts,
                                              .topk = inputs->routing.topk,
                                              .hidden = inputs->hidden,
                                              .recipe = REF_RECIPE_LL,
                                              .tokens_max = inputs->tokens};
    char why[192];

    if (side->place == NULL || side->place->transport != SIM_TRANSPORT_DIRECT) return true;
    return sim_transport_takes(&shape, side->place->gpus, why, sizeof why) == 0;
}

bool sim_verify_note(struct sim_verify_report *report, const char *where, const char *text)
{
    struct sim_verify_failure *failure = &report->failures[report->failure_count];

    assert(report->failure_count < SIM_VERIFY_FAILURES_MAX);
    snprintf(failure->where, sizeof failure->where, "%s", where);
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return ++report->failure_count < SIM_VERIFY_FAILURES_MAX;
}

enum { BACKEND_FAILED = -2 };

static int verify_case(const struct sim_case_place *place, const struct side *side,
                       struct sim_verify_report *report, bool *usage, char *err, size_t err_len)
{
    struct sim_capture capture, results, made;
    const struct sim_capture *actual = &results;
    struct sim_inputs inputs;
    struct sim_expect_options own;
    struct sim_comparison comparison;
    int status = -1;

    *usage = true;
    memset(&made, 0, sizeof(made));
    if (sim_capture_load(place, &capture, err, err_len) != 0) return -1;
    if (sim_inputs_read(&capture, &inputs, err, err_len) != 0) goto close_capture;
    *usage = false;
    if (!takes(side, &capture, &inputs)) {
        report->cases++;
        report->skipped++;
        status = 0;
        goto free_inputs;
    }
    if (expect_results(&capture, &inputs, &own, &results, err, err_len) != 0) goto free_inputs;
    *usage = true;
    if (check_complete(&capture, &results, err, err_len) != 0) goto close_results;
    *usage = false;
    if (side->backend != NULL) {
        if (sim_verify_backend(side->backend, side->state, &capture, &inputs, &own, &made, err,
                               err_len) != 0) {
            status = BACKEND_FAILED;
            goto close_results;
        }
        actual = &made;
    }
    const struct sim_compare_options options = {.skip_expert_out = own.own_expert_out,
                                                .skip_logfmt = logfmt_encodes(&results)};
    if (sim_compare_captures(&capture, actual, &options, &comparison, err, err_len) != 0)
        goto close_results;
    if (comparison.mismatches > 0)
        sim_cause_explain(&inputs, &results, &capture, actual, &comparison.first);
    count(report, place->label, &comparison);
    status = 0;
close_results:
    sim_capture_close(&made);
    sim_capture_close(&results);
free_inputs:
    sim_inputs_free(&inputs);
close_capture:
    sim_capture_close(&capture);
    return status;
}

/* After a failure: note it and open the backend anew. 0; 1 when that is enough of it. */
static int go_on(struct side *side, struct sim_verify_report *report, const char *label, char *err,
                 size_t err_len)
{
    report->cases++;
    const bool more = sim_verify_note(report, label, err);
    side->backend->close(side->state);
    side->state = NULL;
    if (!more) return 1;
    if (sim_backend_open(side->backend, side->place, &side->state, err, err_len) == 0) return 0;
    (void)sim_verify_note(report, "", err);
    return 1;
}

int sim_verify_golden(const char *folder, const struct sim_backend_ops *backend,
                      const struct sim_backend_place *where, sim_verify_progress_fn progress,
                      void *context, struct sim_verify_report *report, bool *usage, char *err,
                      size_t err_len)
{
    struct sim_case_list list;
    struct side side = {backend, where, NULL};
    int status = -1;

    memset(report, 0, sizeof(*report));
    *usage = true;
    if (sim_case_list(folder, true, &list, err, err_len) != 0) return -1;
    if (list.count == 0) {
        snprintf(err, err_len, "%.400s: no NAME.rankR.safetensors in it", folder);
        goto free_list;
    }
    if (backend != NULL && sim_backend_open(backend, where, &side.state, err, err_len) != 0) {
        *usage = false;
        goto free_list;
    }
    status = 0;
    for (size_t i = 0; i < list.count && status == 0; i++) {
        status = verify_case(&list.places[i], &side, report, usage, err, err_len);
        if (status == BACKEND_FAILED)
            status = go_on(&side, report, list.places[i].label, err, err_len);
        if (status == 0 && progress != NULL) progress(context, i + 1, list.count);
    }
    if (status > 0) status = 0;
    if (backend != NULL) backend->close(side.state);
free_list:
    sim_case_list_free(&list);
    return status;
}
