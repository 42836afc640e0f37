/* sim/source.c - one face for traces (through decode streams) and generators. */
#include "sim/source.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/generator.h"
#include "sim/streams.h"

struct sim_source {
    const struct sim_plan *plan; /* Borrowed; NULL before start. */
    uint64_t step;
    bool has_trace;
    struct trace_routing trace;
    struct sim_streams streams;
    struct sim_generator generator;
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

int sim_source_start(struct sim_source *source, const struct sim_plan *plan, char *err,
                     size_t err_len)
{
    const struct trace_routing *trace = &source->trace;
    assert(source->plan == NULL);
    if (!source->has_trace) {
        if (sim_generator_parse(plan->settings.routing, plan->experts, plan->topk, plan->nodes,
                                plan->settings.seed, &source->generator, err, err_len) != 0)
            return -1;
        source->plan = plan;
        return 0;
    }
    if (trace->id_max >= (int64_t)plan->experts) {
        snprintf(err, err_len,
                 "%s: expert %" PRId64 ", but model %s has %" PRIu32 " experts (0 to %" PRIu32 ")",
                 plan->settings.routing, trace->id_max, plan->model.name, plan->experts,
                 plan->experts - 1);
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
    return 0;
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
        return;
    }
    for (uint64_t t = 0; t < tokens; t++) {
        trace_routing_ids(&source->trace, source->streams.token[t], layer, topk_idx + t * topk);
        if (source->trace.has_weights)
            trace_routing_weights(&source->trace, source->streams.token[t], layer,
                                  weights + t * topk);
    }
}

void sim_source_advance(struct sim_source *source)
{
    source->step++;
    if (source->has_trace) sim_streams_advance(&source->streams);
}

void sim_source_close(struct sim_source *source)
{
    if (source == NULL) return;
    if (source->has_trace) {
        sim_streams_close(&source->streams);
        trace_routing_close(&source->trace);
    }
    free(source);
}
