/* sim/step_estimate.c - a what-if in one call: plan, routing, steps, mean. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/source.h"
#include "sim/step.h"

struct estimate {
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_step *step;
    int64_t *choices;
    float *weights;
    struct sim_step_times sum;
};

static int open_estimate(struct estimate *estimate, const struct sim_settings *settings, char *err,
                         size_t err_len)
{
    const struct trace_routing *trace = NULL;
    estimate->plan = (struct sim_plan *)malloc(sizeof *estimate->plan);
    if (estimate->plan == NULL) {
        snprintf(err, err_len, "step: out of memory");
        return -1;
    }
    estimate->source = sim_source_open(settings, err, err_len);
    if (estimate->source == NULL) return -1;
    trace = sim_source_trace(estimate->source);
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      estimate->plan, err, err_len) != 0)
        return -1;
    if (sim_source_start(estimate->source, estimate->plan, err, err_len) != 0) return -1;
    const uint64_t choices =
        estimate->plan->token_start[estimate->plan->ranks] * estimate->plan->topk;
    estimate->choices = (int64_t *)malloc((choices + 1) * sizeof *estimate->choices);
    estimate->weights = (float *)malloc((choices + 1) * sizeof *estimate->weights);
    if (estimate->choices == NULL || estimate->weights == NULL) {
        snprintf(err, err_len, "step: out of memory");
        return -1;
    }
    estimate->step = sim_step_open(estimate->plan, NULL, NULL, err, err_len);
    return estimate->step == NULL ? -1 : 0;
}

static int play_step(struct estimate *estimate, uint64_t number, struct sim_step_times *times,
                     char *err, size_t err_len)
{
    const struct sim_plan *plan = estimate->plan;
    if (sim_step_begin(estimate->step, number, err, err_len) != 0) return -1;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        sim_source_layer(estimate->source, plan->layers[l], estimate->choices, estimate->weights);
        const struct ref_routing routing = {plan->ranks,       plan->experts,
                                            plan->topk,        plan->token_start,
                                            estimate->choices, estimate->weights};
        if (sim_step_layer(estimate->step, &routing, plan->layers[l], err, err_len) != 0) return -1;
    }
    sim_source_advance(estimate->source);
    return sim_step_end(estimate->step, times, err, err_len);
}

void sim_step_times_add(struct sim_step_times *sum, const struct sim_step_times *times)
{
    const struct sim_step_times before = *sum;
    *sum = *times; /* What does not add up. */
    sum->step_ps += before.step_ps;
    sum->layer_ps += before.layer_ps;
    sum->dense_ps += before.dense_ps;
    sum->rows_per_s_gpu += before.rows_per_s_gpu;
    sum->collective_bytes += before.collective_bytes;
    for (int o = 0; o < SIM_OPS; o++) {
        sum->op_ps[o] += before.op_ps[o];
        sum->dense_op_ps[o] += before.dense_op_ps[o];
    }
    for (int c = 0; c < SIM_LINK_CLASSES; c++) sum->wire_bytes[c] += before.wire_bytes[c];
}

void sim_step_times_divide(struct sim_step_times *sum, uint64_t steps)
{
    assert(steps > 0);
    sum->step_ps /= steps;
    sum->layer_ps /= steps;
    sum->dense_ps /= steps;
    sum->rows_per_s_gpu /= steps;
    sum->collective_bytes /= steps;
    for (int o = 0; o < SIM_OPS; o++) {
        sum->op_ps[o] /= steps;
        sum->dense_op_ps[o] /= steps;
    }
    for (int c = 0; c < SIM_LINK_CLASSES; c++) sum->wire_bytes[c] /= steps;
}

int sim_step_estimate(const struct sim_settings *settings, struct sim_step_times *times,
                      struct sim_step_memory *memory, char *err, size_t err_len)
{
    struct estimate estimate = {.plan = NULL};
    int status = open_estimate(&estimate, settings, err, err_len);
    for (uint32_t s = 0; status == 0 && times != NULL && s < settings->steps; s++) {
        struct sim_step_times one;
        status = play_step(&estimate, s, &one, err, err_len);
        if (status == 0) sim_step_times_add(&estimate.sum, &one);
    }
    if (status == 0 && times != NULL) {
        sim_step_times_divide(&estimate.sum, settings->steps);
        *times = estimate.sum;
    }
    if (status == 0 && memory != NULL) sim_step_memory(estimate.plan, memory);
    sim_step_close(estimate.step);
    sim_source_close(estimate.source);
    free(estimate.plan);
    free(estimate.choices);
    free(estimate.weights);
    return status;
}
