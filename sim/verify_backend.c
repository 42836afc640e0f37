/* sim/verify_backend.c - a backend's group operations over one case, as tensors of the format. */
#include "sim/verify_backend.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ref/quantise.h"
#include "sim/capture_rows.h"
#include "sim/received.h"
#include "sim/traffic.h"

/* One case on its way through one backend; err gets the first complaint. */
struct job {
    const struct sim_backend_ops *backend;
    void *state;
    const struct sim_capture *capture;
    const struct sim_inputs *inputs;
    const struct sim_expect_options *own;
    struct sim_capture *results;
    struct sim_traffic traffic;
    struct sim_results made; /* Of the operation that ran last. */
    char *err;
    size_t err_len;
};

static struct sim_layer_input layer_input(const struct job *job, uint32_t recipe)
{
    const struct sim_layer_input input = {
        .routing = &job->inputs->routing,
        .traffic = &job->traffic,
        .hidden = job->inputs->hidden,
        .recipe = recipe,
        .expert = job->capture->settings.expert,
        .x = job->inputs->x,
    };
    return input;
}

/* sim_capture_share of the job's results. */
static int share(struct job *job, const char *name, enum trace_dtype dtype, const void *flat,
                 bool by_token, uint64_t columns)
{
    return sim_capture_share(job->results, job->inputs, name, dtype, flat, by_token, columns,
                             job->err, job->err_len);
}

/* The layout of one expert from the backend's own counts: the order of rows is the table's. */
static int add_ll_layout(struct job *job, const struct sim_ll_tag *tag, uint64_t expert)
{
    const uint32_t local = ref_local_experts(&job->inputs->routing);
    const uint64_t ranks = job->results->ranks, shape[1] = {ranks};
    const uint32_t rank = (uint32_t)(expert / local);
    char name[SIM_TENSOR_NAME_MAX];
    uint64_t begin = 0;

    assert(expert < job->inputs->routing.experts);
    snprintf(name, sizeof(name), "%s.e%" PRIu64 ".layout", tag->name, expert % local);
    int64_t *layout = (int64_t *)sim_capture_add(job->results, rank, name, TRACE_I64, 1, shape,
                                                 job->err, job->err_len);
    if (layout == NULL) return -1;
    for (uint64_t s = 0; s < ranks; s++) {
        const uint32_t count = (uint32_t)job->made.received.counts[expert * ranks + s];

        layout[s] = (int64_t)(begin << 32 | count);
        begin += count;
    }
    return 0;
}

static int add_ll_expert(struct job *job, const struct sim_ll_tag *tag, uint64_t expert)
{
    const struct sim_received *made = &job->made.received;
    const struct ref_ll_rows rows = {.payload = made->payload,
                                     .scales = made->scales,
                                     .scales_ue8m0 = made->scales_ue8m0,
                                     .src_token = made->src_token};

    if (add_ll_layout(job, tag, expert) != 0) return -1;
    return sim_capture_add_ll_expert(job->results, job->inputs, tag, &rows, expert, job->err,
                                     job->err_len);
}

static int add_ll_counts(struct job *job, const struct sim_ll_tag *tag)
{
    const uint32_t local = ref_local_experts(&job->inputs->routing);
    const uint64_t ranks = job->results->ranks, shape[1] = {local};
    char name[SIM_TENSOR_NAME_MAX];

    snprintf(name, sizeof(name), "%s.count", tag->name);
    for (uint32_t r = 0; r < ranks; r++) {
        int32_t *count = (int32_t *)sim_capture_add(job->results, r, name, TRACE_I32, 1, shape,
                                                    job->err, job->err_len);

        if (count == NULL) return -1;
        for (uint64_t e = 0; e < local; e++)
            for (uint64_t s = 0; s < ranks; s++)
                count[e] =
                    (int32_t)((uint32_t)count[e] + /* Whatever they say: no overflow. */
                              (uint32_t)job->made.received.counts[(r * local + e) * ranks + s]);
    }
    return 0;
}

static int dispatch(struct job *job, const struct sim_layer_input *input)
{
    assert(job->traffic.ranks == job->inputs->routing.ranks);
    if (sim_results_reserve(&job->made, input, job->err, job->err_len) != 0) return -1;
    return job->backend->dispatch(job->state, input, &job->made.received, job->err, job->err_len);
}

/* The case's own expert output, or the backend's, which is a result of its own then: *rows. */
static int expert_out(struct job *job, const struct sim_layer_input *input, const uint16_t **rows)
{
    *rows = job->own->own_expert_out ? job->inputs->expert_out : job->made.expert_out;
    if (job->own->own_expert_out) return 0;
    return job->backend->expert(job->state, input, &job->made.received, job->made.expert_out,
                                job->err, job->err_len);
}

static int combine(struct job *job, const struct sim_layer_input *input, const uint16_t *rows,
                   const float *weights)
{
    return job->backend->combine(job->state, input, rows, weights, &job->made.combined, job->err,
                                 job->err_len);
}

/* What a backend does not support is left out; what needs it is left out with it. */
static int leave_out(int status)
{
    return status == SIM_BACKEND_UNSUPPORTED ? 0 : status;
}

static int run_ll_combine(struct job *job, const struct sim_layer_input *input)
{
    const uint16_t *rows = NULL;
    int status = expert_out(job, input, &rows);

    if (status == 0) status = combine(job, input, rows, NULL);
    if (status != 0) return status;
    return share(job, "combined_x", TRACE_BF16, job->made.combined.x, true, job->inputs->hidden);
}

static int run_ll(struct job *job)
{
    const struct sim_layer_input bf16 = layer_input(job, REF_RECIPE_BF16);

    for (uint32_t i = 0; i < SIM_LL_TAGS; i++) {
        const struct sim_ll_tag *tag = sim_ll_tag(i);
        const struct sim_layer_input input = layer_input(job, tag->recipe);

        const int status = dispatch(job, &input);
        if (status == SIM_BACKEND_UNSUPPORTED) continue;
        if (status != 0 || add_ll_counts(job, tag) != 0) return -1;
        for (uint64_t e = 0; e < job->inputs->routing.experts; e++)
            if (add_ll_expert(job, tag, e) != 0) return -1;
        if (tag->recipe != REF_RECIPE_BF16) continue;
        if (leave_out(run_ll_combine(job, &bf16)) != 0) return -1;
    }
    return 0;
}

static int run_normal_combine(struct job *job, struct sim_layer_input *input)
{
    const uint64_t hidden = job->inputs->hidden, topk = job->inputs->routing.topk;
    const float *weights = job->made.received.topk_weights;
    const uint16_t *rows = NULL;
    int status = expert_out(job, input, &rows);

    if (status != 0) return status;
    if (share(job, "expert_out", TRACE_BF16, rows, false, hidden) != 0) return -1;
    status = combine(job, input, rows, weights);
    if (status != 0) return status;
    if (share(job, "combined_x", TRACE_BF16, job->made.combined.x, true, hidden) != 0 ||
        share(job, "combined_topk_weights", TRACE_F32, job->made.combined.topk_weights, true,
              topk) != 0)
        return -1;
    input->bias0 = job->inputs->bias0;
    input->bias1 = job->inputs->bias1;
    if (input->bias0 == NULL && input->bias1 == NULL) return 0;
    status = combine(job, input, rows, weights);
    if (status != 0) return status;
    return share(job, "combined_x_bias", TRACE_BF16, job->made.combined.x, true, hidden);
}

static int run_normal(struct job *job)
{
    const uint64_t hidden = job->inputs->hidden, topk = job->inputs->routing.topk;
    const struct sim_received *rows = &job->made.received;
    const struct sim_layer_input fp8 = layer_input(job, REF_RECIPE_PY_CUDA);
    struct sim_layer_input bf16 = layer_input(job, REF_RECIPE_BF16);
    int status = 0;

    assert(job->inputs->hidden % 128 == 0);
    if (!job->own->own_fp8) { /* A backend casts by recipe: somebody else's codes are not its. */
        status = dispatch(job, &fp8);
        if (leave_out(status) != 0) return -1;
        if (status == 0 &&
            (share(job, "recv_x_fp8", TRACE_F8_E4M3, rows->payload, false, hidden) != 0 ||
             share(job, "recv_x_scales", TRACE_F32, rows->scales, false, hidden / 128) != 0))
            return -1;
    }
    status = dispatch(job, &bf16);
    if (status != 0) return leave_out(status);
    if (share(job, "recv_x", TRACE_BF16, rows->payload, false, hidden) != 0 ||
        share(job, "recv_src_idx", TRACE_I32, rows->src_token, false, 0) != 0 ||
        share(job, "recv_topk_idx", TRACE_I64, rows->topk_idx, false, topk) != 0 ||
        share(job, "recv_topk_weights", TRACE_F32, rows->topk_weights, false, topk) != 0)
        return -1;
    return leave_out(run_normal_combine(job, &bf16));
}

int sim_verify_backend(const struct sim_backend_ops *backend, void *state,
                       const struct sim_capture *capture, const struct sim_inputs *inputs,
                       const struct sim_expect_options *own, struct sim_capture *results, char *err,
                       size_t err_len)
{
    const struct sim_traffic_shape shape = {
        .mode = capture->settings.mode, .ranks_per_node = inputs->ranks_per_node, .nvlink = true};
    struct sim_capture made;
    struct job job = {.backend = backend,
                      .state = state,
                      .capture = capture,
                      .inputs = inputs,
                      .own = own,
                      .results = &made,
                      .err = err,
                      .err_len = err_len};
    int status = -1;

    assert(backend->dispatch != NULL && backend->expert != NULL && backend->combine != NULL);
    if (sim_capture_open(capture->name, &capture->settings, &made, err, err_len) != 0) return -1;
    if (sim_traffic_build(&inputs->routing, &shape, &job.traffic, err, err_len) != 0)
        goto close_made;
    assert(job.traffic.received_rows == inputs->rows);
    status = capture->settings.mode == SIM_MODE_LL ? run_ll(&job) : run_normal(&job);
    sim_traffic_free(&job.traffic);
    sim_results_free(&job.made);
close_made:
    if (status == 0)
        *results = made;
    else
        sim_capture_close(&made);
    return status;
}
