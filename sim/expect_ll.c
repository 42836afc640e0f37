/* sim/expect_ll.c - low latency: four dispatches and the combine of the first. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "ref/expert.h"
#include "ref/ll.h"
#include "ref/quantise.h"
#include "sim/capture_rows.h"
#include "sim/expect_parts.h"

static int add_layouts(struct sim_capture *results, const struct sim_inputs *inputs,
                       const struct sim_ll_tag *tag, uint32_t rank, char *err, size_t err_len)
{
    const uint32_t local = ref_local_experts(&inputs->routing);
    const uint64_t ranks = results->ranks, shape[1] = {local};
    int64_t *layout = (int64_t *)calloc(local * ranks, sizeof(*layout));
    char name[SIM_TENSOR_NAME_MAX];
    int status = -1;

    assert(rank < ranks && inputs->routing.experts == local * ranks);
    if (layout == NULL) {
        snprintf(err, err_len, "%.64s: not enough memory", results->name);
        return -1;
    }
    ref_ll_layout_range(&inputs->routing, inputs->block_start, rank, layout);
    snprintf(name, sizeof(name), "%s.count", tag->name);
    int32_t *count =
        (int32_t *)sim_capture_add(results, rank, name, TRACE_I32, 1, shape, err, err_len);
    if (count == NULL) goto free_layout;
    for (uint32_t e = 0; e < local; e++) {
        const uint64_t block = ((uint64_t)rank * local + e) * ranks;

        count[e] = (int32_t)(inputs->block_start[block + ranks] - inputs->block_start[block]);
        snprintf(name, sizeof(name), "%s.e%" PRIu32 ".layout", tag->name, e);
        if (sim_capture_add_rows(results, rank, name, TRACE_I64, layout, e * ranks, (e + 1) * ranks,
                                 0, err, err_len) != 0)
            goto free_layout;
    }
    status = 0;
free_layout:
    free(layout);
    return status;
}

static int add_combined(struct sim_capture *results, const struct sim_inputs *inputs, bool logfmt,
                        const uint16_t *expert_out, char *err, size_t err_len)
{
    const char *name = logfmt ? "combined_x_logfmt" : "combined_x";
    uint16_t *combined = (uint16_t *)calloc(inputs->tokens * inputs->hidden + 1, 2);

    if (combined == NULL || (logfmt && sim_expect_logfmt(inputs, expert_out, combined) != 0)) {
        snprintf(err, err_len, "%.64s: not enough memory", results->name);
        free(combined);
        return -1;
    }
    if (!logfmt)
        ref_ll_combine(&inputs->routing, inputs->hidden, expert_out, inputs->block_start,
                       inputs->scratch, combined);
    const int status = sim_capture_share(results, inputs, name, TRACE_BF16, combined, true,
                                         inputs->hidden, err, err_len);
    free(combined);
    return status;
}

/* The case's own expert output goes out as it came in. */
static int add_expert_out(struct sim_capture *results, const struct sim_inputs *inputs,
                          const uint16_t *expert_out, char *err, size_t err_len)
{
    const uint32_t local = ref_local_experts(&inputs->routing);
    const uint64_t ranks = results->ranks;

    assert(inputs->block_start[inputs->routing.experts * ranks] == inputs->rows);
    for (uint64_t e = 0; e < inputs->routing.experts; e++) {
        char name[SIM_TENSOR_NAME_MAX];

        snprintf(name, sizeof(name), "expert_out.e%" PRIu64, e % local);
        if (sim_capture_add_rows(results, (uint32_t)(e / local), name, TRACE_BF16, expert_out,
                                 inputs->block_start[e * ranks],
                                 inputs->block_start[(e + 1) * ranks], inputs->hidden, err,
                                 err_len) != 0)
            return -1;
    }
    return 0;
}

static int run_expert(const struct sim_capture *capture, const struct sim_inputs *inputs,
                      const struct sim_expect_options *options, const uint8_t *payload,
                      struct sim_capture *results, char *err, size_t err_len)
{
    uint16_t *made = NULL;
    int status = -1;

    if (!options->own_expert_out || inputs->expert_out == NULL) {
        made = (uint16_t *)calloc(inputs->rows * inputs->hidden + 1, 2);
        if (made == NULL) {
            snprintf(err, err_len, "%.64s: not enough memory", results->name);
            return -1;
        }
        if (capture->settings.expert == SIM_EXPERT_IDENTITY)
            ref_expert_identity(REF_RECIPE_BF16, payload, NULL, inputs->rows, inputs->hidden, made);
        else
            ref_expert_standin(REF_RECIPE_BF16, payload, NULL, inputs->rows, inputs->hidden, made);
    }
    const uint16_t *expert_out = made != NULL ? made : inputs->expert_out;
    if (inputs->expert_out != NULL &&
        add_expert_out(results, inputs, expert_out, err, err_len) != 0)
        goto free_made;
    status = add_combined(results, inputs, false, expert_out, err, err_len);
    if (status == 0 && capture->settings.logfmt)
        status = add_combined(results, inputs, true, expert_out, err, err_len);
free_made:
    free(made);
    return status;
}

static int run_tag(const struct sim_capture *capture, const struct sim_inputs *inputs,
                   const struct sim_ll_tag *tag, const struct sim_expect_options *options,
                   struct sim_capture *results, char *err, size_t err_len)
{
    const uint64_t local = ref_local_experts(&inputs->routing);
    const uint64_t row_bytes = (uint64_t)inputs->hidden * tag->payload_bytes;
    const uint64_t words = tag->scale_channels > 0 ? inputs->hidden / tag->scale_channels : 0;
    uint8_t *payload = (uint8_t *)malloc(inputs->rows * row_bytes + 1);
    void *scales = malloc(inputs->rows * words * 4 + 1);
    int32_t *src = (int32_t *)malloc(inputs->rows * sizeof(int32_t) + 1);
    int status = -1;

    assert(tag->payload_bytes == 1 || tag->payload_bytes == 2);
    if (payload == NULL || scales == NULL || src == NULL) {
        snprintf(err, err_len, "%.64s: not enough memory", results->name);
        goto free_rows;
    }
    const bool packed = tag->scale_channels == 512;
    const struct ref_ll_rows rows = {
        .payload = payload,
        .scales = words > 0 && !packed ? (float *)scales : NULL,
        .scales_ue8m0 = packed ? (uint32_t *)scales : NULL,
        .src_token = src,
    };
    ref_ll_dispatch(&inputs->routing, inputs->hidden, tag->recipe, inputs->x, inputs->block_start,
                    inputs->scratch, &rows);
    status = 0;
    for (uint32_t r = 0; r < results->ranks && status == 0; r++) {
        status = add_layouts(results, inputs, tag, r, err, err_len);
        for (uint64_t e = 0; e < local && status == 0; e++)
            status =
                sim_capture_add_ll_expert(results, inputs, tag, &rows, r * local + e, err, err_len);
    }
    if (status == 0 && tag->recipe == REF_RECIPE_BF16)
        status = run_expert(capture, inputs, options, payload, results, err, err_len);
free_rows:
    free(payload);
    free(scales);
    free(src);
    return status;
}

int sim_expect_ll(const struct sim_capture *capture, const struct sim_inputs *inputs,
                  const struct sim_expect_options *options, struct sim_capture *results, char *err,
                  size_t err_len)
{
    assert(capture->settings.mode == SIM_MODE_LL && inputs->hidden % 512 == 0);
    for (uint32_t i = 0; i < SIM_LL_TAGS; i++)
        if (run_tag(capture, inputs, sim_ll_tag(i), options, results, err, err_len) != 0) return -1;
    return 0;
}
