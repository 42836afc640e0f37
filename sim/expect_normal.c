/* sim/expect_normal.c - normal mode: layout, both dispatches, expert, combine and its handle. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/expert.h"
#include "ref/layout.h"
#include "ref/normal.h"
#include "ref/quantise.h"
#include "sim/capture_rows.h"
#include "sim/expect_parts.h"

/* One case on its way; err gets the first complaint. */
struct job {
    const struct sim_capture *capture;
    const struct sim_inputs *inputs;
    struct sim_capture *results;
    char *err;
    size_t err_len;
};

static void *reserve(const struct job *job, uint64_t count, size_t element_bytes)
{
    void *data = calloc(count + 1, element_bytes);

    if (data == NULL)
        snprintf(job->err, job->err_len, "%.64s: not enough memory", job->results->name);
    return data;
}

/* sim_capture_share of the job's results. */
static int share(const struct job *job, const char *name, enum trace_dtype dtype, const void *flat,
                 bool by_token, uint64_t columns)
{
    return sim_capture_share(job->results, job->inputs, name, dtype, flat, by_token, columns,
                             job->err, job->err_len);
}

/* A table [ranks][rows][columns] of int32 (columns 0: [ranks][rows]), one slab per rank. */
static int share_table(const struct job *job, const char *name, const int32_t *table, uint64_t rows,
                       uint64_t columns)
{
    for (uint32_t r = 0; r < job->results->ranks; r++)
        if (sim_capture_add_rows(job->results, r, name, TRACE_I32, table, r * rows, (r + 1) * rows,
                                 columns, job->err, job->err_len) != 0)
            return -1;
    return 0;
}

static int add_layout(const struct job *job)
{
    const struct sim_inputs *inputs = job->inputs;
    const uint64_t ranks = job->results->ranks, experts = inputs->routing.experts;
    const uint32_t local = ref_local_experts(&inputs->routing);
    int32_t *per_rank = (int32_t *)reserve(job, ranks * ranks, 4);
    int32_t *per_expert = (int32_t *)reserve(job, ranks * experts, 4);
    int32_t *counts = (int32_t *)reserve(job, experts, 4);
    uint8_t *in_rank = (uint8_t *)reserve(job, inputs->tokens * ranks, 1);
    int status = -1;

    if (per_rank != NULL && per_expert != NULL && counts != NULL && in_rank != NULL) {
        const struct ref_layout_out out = {.num_tokens_per_rank = per_rank,
                                           .num_tokens_per_expert = per_expert,
                                           .is_token_in_rank = in_rank};

        ref_layout(&inputs->routing, inputs->ranks_per_node, &out);
        ref_layout_expert_counts(&inputs->routing, job->capture->settings.align, counts);
        if (share_table(job, "num_tokens_per_rank", per_rank, ranks, 0) == 0 &&
            share_table(job, "num_tokens_per_expert", per_expert, experts, 0) == 0 &&
            share_table(job, "num_recv_tokens_per_expert", counts, local, 0) == 0 &&
            share(job, "is_token_in_rank", TRACE_BOOL, in_rank, true, ranks) == 0 &&
            share(job, "is_token_in_rank_h", TRACE_BOOL, in_rank, true, ranks) == 0)
            status = 0;
    }
    free(per_rank);
    free(per_expert);
    free(counts);
    free(in_rank);
    return status;
}

/* rank_prefix_matrix: a rank fills its own column only, and so do we; the rest is 0. */
static int add_rank_prefix(const struct job *job, const int32_t *matrix)
{
    const uint64_t ranks = job->results->ranks, shape[2] = {ranks, ranks};

    assert(matrix != NULL && ranks == job->inputs->routing.ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        int32_t *own = (int32_t *)sim_capture_add(job->results, r, "rank_prefix_matrix", TRACE_I32,
                                                  2, shape, job->err, job->err_len);

        if (own == NULL) return -1;
        for (uint64_t s = 0; s < ranks; s++) own[s * ranks + r] = matrix[s * ranks + r];
    }
    return 0;
}

static int add_handle(const struct job *job)
{
    const struct sim_inputs *inputs = job->inputs;
    const uint64_t ranks = job->results->ranks;
    const uint32_t channels = job->capture->settings.sms / 2;
    int32_t *prefix = (int32_t *)reserve(job, ranks * ranks, 4);
    int32_t *sent = (int32_t *)reserve(job, ranks * ranks * channels, 4);
    int32_t *received = (int32_t *)reserve(job, ranks * ranks * channels, 4);
    int32_t *head = (int32_t *)reserve(job, inputs->tokens * ranks, 4);
    int status = -1;

    assert(channels > 0);
    if (prefix != NULL && sent != NULL && received != NULL && head != NULL) {
        const struct ref_intranode_out out = {.rank_prefix_matrix = prefix,
                                              .channel_prefix_matrix = sent,
                                              .recv_channel_prefix_matrix = received,
                                              .send_head = head};

        ref_intranode_handle(&inputs->routing, channels, &out);
        ref_send_head_rewrite(&inputs->routing, channels, head);
        if (add_rank_prefix(job, prefix) == 0 &&
            share_table(job, "channel_prefix_matrix", sent, ranks, channels) == 0 &&
            share_table(job, "recv_channel_prefix_matrix", received, ranks, channels) == 0 &&
            share(job, "send_head", TRACE_I32, head, true, ranks) == 0)
            status = 0;
    }
    free(prefix);
    free(sent);
    free(received);
    free(head);
    return status;
}

/* The FP8 rows: the case's own, or made by the recipe of the captures; then dispatched. */
static int add_fp8(const struct job *job, const struct sim_expect_options *options)
{
    const struct sim_inputs *inputs = job->inputs;
    const uint64_t hidden = inputs->hidden, groups = hidden / REF_GROUP_CHANNELS;
    const bool given = inputs->x_fp8 != NULL;
    uint8_t *codes = (uint8_t *)reserve(job, inputs->tokens * hidden, 1);
    float *scales = (float *)reserve(job, inputs->tokens * groups, 4);
    uint8_t *recv_codes = (uint8_t *)reserve(job, inputs->rows * hidden, 1);
    float *recv_scales = (float *)reserve(job, inputs->rows * groups, 4);
    int status = -1;

    assert(hidden % REF_GROUP_CHANNELS == 0 && (given == (inputs->x_scales != NULL)));
    if (codes == NULL || scales == NULL || recv_codes == NULL || recv_scales == NULL)
        goto free_rows;
    if (!given || !options->own_fp8) {
        ref_quantise(REF_RECIPE_PY_CUDA, inputs->x, inputs->tokens, inputs->hidden, codes, scales);
        if (share(job, "x_fp8", TRACE_F8_E4M3, codes, true, hidden) != 0 ||
            share(job, "x_scales", TRACE_F32, scales, true, groups) != 0)
            goto free_rows;
    }
    const struct ref_normal_tokens tokens = {
        .payload = given ? inputs->x_fp8 : codes,
        .scales = (const uint8_t *)(given ? inputs->x_scales : scales),
        .payload_bytes = hidden,
        .scale_bytes = groups * 4,
    };
    const struct ref_normal_rows rows = {.payload = recv_codes, .scales = (uint8_t *)recv_scales};
    ref_normal_dispatch(&inputs->routing, inputs->ranks_per_node, &tokens, inputs->block_start,
                        inputs->scratch, &rows);
    if (share(job, "recv_x_fp8", TRACE_F8_E4M3, recv_codes, false, hidden) == 0 &&
        share(job, "recv_x_scales", TRACE_F32, recv_scales, false, groups) == 0)
        status = 0;
free_rows:
    free(codes);
    free(scales);
    free(recv_codes);
    free(recv_scales);
    return status;
}

static int add_combined(const struct job *job, const uint16_t *expert_out, const float *weights)
{
    const struct sim_inputs *inputs = job->inputs;
    const uint64_t hidden = inputs->hidden, topk = inputs->routing.topk;
    uint16_t *combined = (uint16_t *)reserve(job, inputs->tokens * hidden, 2);
    float *sums = (float *)reserve(job, inputs->tokens * topk, 4);
    struct ref_normal_combine_in in = {
        .hidden = inputs->hidden, .expert_out = expert_out, .topk_weights = weights};
    int status = -1;

    if (combined == NULL || sums == NULL) goto free_sums;
    ref_normal_combine(&inputs->routing, inputs->ranks_per_node, &in, inputs->block_start,
                       inputs->scratch, combined, sums);
    if (share(job, "combined_x", TRACE_BF16, combined, true, hidden) != 0 ||
        share(job, "combined_topk_weights", TRACE_F32, sums, true, topk) != 0)
        goto free_sums;
    status = 0;
    if (inputs->bias0 == NULL && inputs->bias1 == NULL) goto free_sums;
    in.bias0 = inputs->bias0;
    in.bias1 = inputs->bias1;
    in.topk_weights = NULL;
    ref_normal_combine(&inputs->routing, inputs->ranks_per_node, &in, inputs->block_start,
                       inputs->scratch, combined, NULL);
    status = share(job, "combined_x_bias", TRACE_BF16, combined, true, hidden);
free_sums:
    free(combined);
    free(sums);
    return status;
}

/* BF16 rows through dispatch, expert and combine. */
static int add_rows(const struct job *job, const struct sim_expect_options *options)
{
    const struct sim_inputs *inputs = job->inputs;
    const uint64_t rows = inputs->rows, hidden = inputs->hidden, topk = inputs->routing.topk;
    uint16_t *recv = (uint16_t *)reserve(job, rows * hidden, 2);
    uint16_t *made = (uint16_t *)reserve(job, rows * hidden, 2);
    int64_t *ids = (int64_t *)reserve(job, rows * topk, 8);
    float *weights = (float *)reserve(job, rows * topk, 4);
    int32_t *src = (int32_t *)reserve(job, rows, 4);
    int status = -1;

    assert(inputs->block_start[inputs->routing.ranks * inputs->routing.ranks] == rows);
    if (recv == NULL || made == NULL || ids == NULL || weights == NULL || src == NULL)
        goto free_rows;
    const struct ref_normal_tokens tokens = {.payload = (const uint8_t *)inputs->x,
                                             .payload_bytes = 2 * hidden};
    const struct ref_normal_rows out = {
        .payload = (uint8_t *)recv, .topk_idx = ids, .topk_weights = weights, .src_token = src};
    ref_normal_dispatch(&inputs->routing, inputs->ranks_per_node, &tokens, inputs->block_start,
                        inputs->scratch, &out);
    if (options->own_expert_out && inputs->expert_out != NULL)
        memcpy(made, inputs->expert_out, rows * hidden * 2);
    else if (job->capture->settings.expert == SIM_EXPERT_IDENTITY)
        ref_expert_identity(REF_RECIPE_BF16, recv, NULL, rows, inputs->hidden, made);
    else
        ref_expert_standin(REF_RECIPE_BF16, recv, NULL, rows, inputs->hidden, made);
    if (share(job, "recv_x", TRACE_BF16, recv, false, hidden) == 0 &&
        share(job, "recv_topk_idx", TRACE_I64, ids, false, topk) == 0 &&
        share(job, "recv_topk_weights", TRACE_F32, weights, false, topk) == 0 &&
        share(job, "recv_src_idx", TRACE_I32, src, false, 0) == 0 &&
        share(job, "expert_out", TRACE_BF16, made, false, hidden) == 0)
        status = add_combined(job, made, weights);
free_rows:
    free(recv);
    free(made);
    free(ids);
    free(weights);
    free(src);
    return status;
}

int sim_expect_normal(const struct sim_capture *capture, const struct sim_inputs *inputs,
                      const struct sim_expect_options *options, struct sim_capture *results,
                      char *err, size_t err_len)
{
    const struct job job = {capture, inputs, results, err, err_len};

    assert(capture->settings.mode == SIM_MODE_NORMAL && capture->settings.sms % 2 == 0);
    if (add_layout(&job) != 0 || add_handle(&job) != 0 || add_fp8(&job, options) != 0) return -1;
    return add_rows(&job, options);
}
