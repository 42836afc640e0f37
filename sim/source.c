/* sim/source.c - one face for traces (through decode streams) and generators. */
#include "sim/source.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "sim/generator.h"
#include "sim/placement.h"
#include "sim/rules.h"
#include "sim/streams.h"
#include "traces/text.h"

struct sim_source {
    const struct sim_plan *plan; /* Borrowed; NULL before start. */
    uint64_t step;
    bool has_trace;
    struct trace_routing trace;
    struct sim_streams streams;
    struct sim_generator generator;
    bool has_placement;
    struct sim_placement placement;
};

struct sim_source *sim_source_open(const struct sim_settings *settings, char *err, size_t err_len)
{
    struct sim_source *source = (struct sim_source *)calloc(1, sizeof *source);
    const bool weights = strcmp(settings->weights, "none") != 0;
    const struct trace_routing_source files = {settings->routing, settings->offsets,
                                               weights ? settings->weights : NULL, 0, true};
    if (source == NULL) {
        snprintf(err, err_len, "routing: out of memory");
        return NULL;
    }
    if (!sim_plan_is_trace(settings)) return source;
    if (strpbrk(settings->routing, "./") == NULL && access(settings->routing, F_OK) != 0) {
        snprintf(err, err_len, "routing %.64s: no such file: must be %s", settings->routing,
                 sim_option_find("routing")->help);
        free(source);
        return NULL;
    }
    if (trace_routing_open(&files, &source->trace, err, err_len) != 0) {
        free(source);
        return NULL;
    }
    if (!weights) source->trace.has_weights = false; /* --weights none means 1/k. */
    source->has_trace = true;
    return source;
}

const struct trace_routing *sim_source_trace(const struct sim_source *source)
{
    return source->has_trace ? &source->trace : NULL;
}

static void count_ids(const int64_t *ids, uint64_t count, float *row)
{
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] >= 0) row[ids[i]] += 1.0f; /* Exact below 2^24. */
}

/* Count the whole trace, or what the generator will draw in all steps: layers x experts. */
static int open_counts(const struct sim_source *source, struct sim_eplb_weights *weights, char *err,
                       size_t err_len)
{
    const struct sim_plan *plan = source->plan;
    const uint32_t topk = plan->topk, experts = plan->logical_experts;
    const uint64_t tokens = plan->token_start[plan->ranks];
    const uint32_t layers = plan->layers[plan->layer_count - 1] + 1;
    int64_t *ids = (int64_t *)malloc((tokens + 1) * topk * sizeof *ids);

    *weights = (struct sim_eplb_weights){layers, experts,
                                         (float *)calloc((size_t)layers * experts, sizeof(float))};
    if (ids == NULL || weights->values == NULL) {
        free(ids);
        sim_eplb_weights_close(weights);
        snprintf(err, err_len, "--eplb: counting: out of memory");
        return -1;
    }
    for (uint32_t l = 0; l < layers; l++) {
        float *row = weights->values + (size_t)l * experts;
        for (uint64_t t = 0; source->has_trace && t < source->trace.tokens; t++) {
            trace_routing_ids(&source->trace, t, l, ids);
            count_ids(ids, topk, row);
        }
        for (uint64_t s = 0; !source->has_trace && s < plan->settings.steps; s++)
            for (uint32_t r = 0; r < plan->ranks; r++) {
                sim_generator_draw(&source->generator, s, l, r, plan->tokens[r], ids);
                count_ids(ids, (uint64_t)plan->tokens[r] * topk, row);
            }
    }
    free(ids);
    return 0;
}

/* Replicas, when the plan has places for them. */
static int open_placement(struct sim_source *source, char *err, size_t err_len)
{
    const struct sim_plan *plan = source->plan;
    const struct sim_settings *settings = &plan->settings;
    const struct ref_eplb_shape shape = {plan->logical_experts, plan->experts,
                                         settings->eplb_groups, plan->nodes, plan->ranks};
    const bool counted = settings->eplb_weights[0] == '\0';
    struct sim_eplb_weights weights;
    enum sim_replica_policy policy = SIM_REPLICA_STATIC;

    if (settings->eplb == 0) return 0;
    if (!sim_replica_policy_parse(settings->replica, &policy)) assert(!"checked by the settings");
    if ((counted ? open_counts(source, &weights, err, err_len)
                 : sim_eplb_weights_open(settings->eplb_weights, &weights, err, err_len)) != 0)
        return -1;
    int status = -1;
    if (weights.experts != plan->logical_experts ||
        weights.layers <= plan->layers[plan->layer_count - 1])
        snprintf(err, err_len,
                 "--eplb-weights: %.256s: %" PRIu32 " layers of %" PRIu32
                 " experts, but the run needs %" PRIu32 " of %" PRIu32,
                 settings->eplb_weights, weights.layers, weights.experts,
                 plan->layers[plan->layer_count - 1] + 1, plan->logical_experts);
    else
        status = sim_placement_open(&weights, &shape, policy, &source->placement, err, err_len);
    sim_eplb_weights_close(&weights);
    source->has_placement = status == 0;
    return status == 0 ? 0 : -1;
}

int sim_source_start(struct sim_source *source, const struct sim_plan *plan, char *err,
                     size_t err_len)
{
    const struct trace_routing *trace = &source->trace;
    assert(source->plan == NULL);
    if (!source->has_trace) {
        if (sim_generator_parse(plan->settings.routing, plan->logical_experts, plan->topk,
                                plan->nodes, plan->settings.seed, &source->generator, err,
                                err_len) != 0)
            return -1;
        source->plan = plan;
        return open_placement(source, err, err_len);
    }
    if (trace->id_max >= (int64_t)plan->logical_experts) {
        snprintf(err, err_len,
                 "%s: expert %" PRId64 ", but model %s has %" PRIu32 " experts (0 to %" PRIu32 ")",
                 plan->settings.routing, trace->id_max, plan->model.name, plan->logical_experts,
                 plan->logical_experts - 1);
        return -1;
    }
    if (trace->duplicate_rows > 0 && strstr(plan->settings.allow, "duplicate_id") == NULL) {
        snprintf(err, err_len,
                 "%s: duplicate_id: %" PRIu64 " rows name an expert twice; --allow duplicate_id "
                 "plays them all the same",
                 plan->settings.routing, trace->duplicate_rows);
        return -1;
    }
    if (sim_streams_open(trace->offsets, trace->requests, plan->token_start[plan->ranks],
                         &source->streams, err, err_len) != 0)
        return -1;
    source->plan = plan;
    return open_placement(source, err, err_len);
}

void sim_source_describe(const struct sim_source *source, char *text, size_t text_len)
{
    const uint64_t streams = source->streams.count, requests = source->trace.requests;
    text[0] = '\0';
    if (!source->has_trace) return;
    snprintf(text, text_len,
             "%" PRIu64 " over %" PRIu64 " requests, from their first tokens on%s: early steps may "
             "be alike",
             streams, requests, streams > requests ? " or spread over them" : "");
}

void sim_source_remark(const struct sim_source *source, char *text, size_t text_len)
{
    text[0] = '\0';
    if (source->has_trace) sim_rules_weights(&source->trace, text, text_len);
}

void sim_source_remark_model(const struct sim_source *source, char *text, size_t text_len)
{
    const char *named = source->has_trace ? source->trace.model : "";
    const char *slash = strrchr(named, '/'), *own = slash != NULL ? slash + 1 : named;
    char quoted[TRACE_QUOTE_BYTES];

    assert(source->plan != NULL);
    text[0] = '\0';
    if (own[0] == '\0' || strcasecmp(own, source->plan->model.name) == 0) return;
    snprintf(text, text_len, "the trace is of model %s, played is %s",
             trace_quote(named, strlen(named), quoted), source->plan->model.name);
}

/* From experts that the router named to places that kernels send to, in place. */
static void take_places(const struct sim_source *source, uint32_t layer, int64_t *topk_idx)
{
    const struct sim_plan *plan = source->plan;
    assert(source->has_placement);
    for (uint32_t r = 0; r < plan->ranks; r++) {
        const uint64_t first = plan->token_start[r];
        for (uint64_t t = first; t < plan->token_start[r + 1]; t++) {
            for (uint32_t k = 0; k < plan->topk; k++) {
                int64_t *id = &topk_idx[t * plan->topk + k];
                if (*id < 0) continue;
                const struct ref_logical expert = {(int32_t)*id};
                *id = sim_placement_choose(&source->placement, layer, r, t - first, expert).id;
                assert(*id >= 0 && *id < (int64_t)plan->experts);
            }
        }
    }
}

void sim_source_layer(const struct sim_source *source, uint32_t layer, int64_t *topk_idx,
                      float *weights)
{
    const struct sim_plan *plan = source->plan;
    const uint32_t topk = plan->topk;
    const uint64_t tokens = plan->token_start[plan->ranks];

    assert(plan != NULL);
    for (uint64_t i = 0; i < tokens * topk; i++) weights[i] = 1.0f / (float)topk;
    if (!source->has_trace) {
        for (uint32_t r = 0; r < plan->ranks; r++)
            sim_generator_draw(&source->generator, source->step, layer, r, plan->tokens[r],
                               topk_idx + plan->token_start[r] * topk);
        if (source->has_placement) take_places(source, layer, topk_idx);
        return;
    }
    for (uint64_t t = 0; t < tokens; t++) {
        trace_routing_ids(&source->trace, source->streams.token[t], layer, topk_idx + t * topk);
        if (source->trace.has_weights)
            trace_routing_weights(&source->trace, source->streams.token[t], layer,
                                  weights + t * topk);
    }
    if (source->has_placement) take_places(source, layer, topk_idx);
}

const struct sim_placement *sim_source_placement(const struct sim_source *source)
{
    return source->has_placement ? &source->placement : NULL;
}

void sim_source_advance(struct sim_source *source)
{
    source->step++;
    if (source->has_trace) sim_streams_advance(&source->streams);
}

void sim_source_close(struct sim_source *source)
{
    if (source == NULL) return;
    sim_placement_close(&source->placement);
    if (source->has_trace) {
        sim_streams_close(&source->streams);
        trace_routing_close(&source->trace);
    }
    free(source);
}
