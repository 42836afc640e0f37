/* sim/step_estimate.c - whole steps of a plan: routing, layers, mean; a what-if in one call. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/source.h"
#include "sim/step.h"

struct playing {
    const struct sim_plan *plan;
    struct sim_source *source;
    struct sim_step *step;
    int64_t *choices;
    float *weights;
};

static int open_playing(struct playing *playing, char *err, size_t err_len)
{
    const uint64_t choices = playing->plan->token_start[playing->plan->ranks] * playing->plan->topk;
    playing->choices = (int64_t *)malloc((choices + 1) * sizeof *playing->choices);
    playing->weights = (float *)malloc((choices + 1) * sizeof *playing->weights);
    if (playing->choices == NULL || playing->weights == NULL) {
        snprintf(err, err_len, "step: out of memory");
        return -1;
    }
    playing->step = sim_step_open(playing->plan, NULL, NULL, err, err_len);
    return playing->step == NULL ? -1 : 0;
}

static int play_step(struct playing *playing, uint64_t number, struct sim_step_times *times,
                     char *err, size_t err_len)
{
    const struct sim_plan *plan = playing->plan;
    if (sim_step_begin(playing->step, number, err, err_len) != 0) return -1;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        sim_source_layer(playing->source, plan->layers[l], playing->choices, playing->weights);
        const struct ref_routing routing = {plan->ranks,       plan->experts,    plan->topk,
                                            plan->token_start, playing->choices, playing->weights};
        if (sim_step_layer(playing->step, &routing, plan->layers[l], err, err_len) != 0) return -1;
    }
    sim_source_advance(playing->source);
    return sim_step_end(playing->step, times, err, err_len);
}

int sim_step_play(const struct sim_plan *plan, struct sim_source *source,
                  struct sim_step_times *times, char *err, size_t err_len)
{
    struct playing playing = {.plan = plan, .source = source};
    struct sim_step_times sum = {.step_ps = 0};

    assert(plan->settings.steps > 0);
    int status = open_playing(&playing, err, err_len);
    for (uint32_t s = 0; status == 0 && s < plan->settings.steps; s++) {
        struct sim_step_times one;
        status = play_step(&playing, s, &one, err, err_len);
        if (status == 0) sim_step_times_add(&sum, &one);
    }
    if (status == 0) {
        sim_step_times_divide(&sum, plan->settings.steps);
        *times = sum;
    }
    sim_step_close(playing.step);
    free(playing.choices);
    free(playing.weights);
    return status;
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

/* The settings' plan and the source that goes with it; both are the caller's, even after -1. */
static int open_plan(const struct sim_settings *settings, struct sim_plan **plan,
                     struct sim_source **source, char *err, size_t err_len)
{
    *plan = (struct sim_plan *)malloc(sizeof **plan);
    if (*plan == NULL) {
        snprintf(err, err_len, "step: out of memory");
        return -1;
    }
    *source = sim_source_open(settings, err, err_len);
    if (*source == NULL) return -1;
    const struct trace_routing *trace = sim_source_trace(*source);
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      *plan, err, err_len) != 0)
        return -1;
    return sim_source_start(*source, *plan, err, err_len);
}

int sim_step_estimate(const struct sim_settings *settings, struct sim_step_times *times,
                      struct sim_step_memory *memory, char *err, size_t err_len)
{
    struct sim_plan *plan = NULL;
    struct sim_source *source = NULL;
    int status = open_plan(settings, &plan, &source, err, err_len);

    if (status == 0 && times != NULL) status = sim_step_play(plan, source, times, err, err_len);
    if (status == 0 && memory != NULL) sim_step_memory(plan, memory);
    sim_source_close(source);
    free(plan);
    return status;
}
