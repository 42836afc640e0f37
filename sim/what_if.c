/* sim/what_if.c - see what_if.h. */
#include "sim/what_if.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/sizes.h"
#include "sim/run.h"

struct played { /* One run, as far as it has come. */
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_summary summary;
};

/* What one rank registers before the first layer. */
static uint64_t count_buffers(const struct sim_plan *plan)
{
    uint64_t capacity = 0, bytes = 0;
    if (plan->mode == SIM_MODE_LL) {
        for (uint32_t r = 0; r < plan->ranks; r++)
            if (plan->capacity[r] > capacity) capacity = plan->capacity[r];
        return ref_size_ll(capacity, plan->hidden, plan->experts).total_bytes;
    }
    for (int combine = 0; combine < 2; combine++) { /* One buffer serves both. */
        struct ref_size_config config;
        if (!ref_size_default_config(combine == 1, plan->ranks, plan->settings.sms, &config))
            return 0; /* The library lists no such group. */
        const uint64_t hidden_bytes = (uint64_t)plan->hidden * 2;
        const uint64_t sum = ref_size_nvl(&config, hidden_bytes, plan->ranks) +
                             ref_size_rdma(&config, hidden_bytes, plan->ranks);
        if (sum > bytes) bytes = sum;
    }
    return bytes;
}

static void condense(const struct played *played, struct sim_what_if *out)
{
    const struct sim_plan *plan = played->plan;
    const struct sim_summary *summary = &played->summary;
    uint64_t ratio_ppm = 0;

    assert(summary->layer_count > 0 && summary->steps > 0);
    *out = (struct sim_what_if){.ranks = plan->ranks,
                                .nodes = plan->nodes,
                                .mode = plan->mode,
                                .tokens = plan->token_start[plan->ranks],
                                .layers = summary->layer_count,
                                .step_ps = summary->end_ps / summary->steps,
                                .buffer_bytes = count_buffers(plan),
                                .digest = summary->digest};
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        out->dispatch_ps += sim_summary_times(summary, l, SIM_DISPATCH).p50_ps;
        out->combine_ps += sim_summary_times(summary, l, SIM_COMBINE).p50_ps;
        ratio_ppm += summary->layers[l].expert_ratio_ppm;
    }
    out->dispatch_ps /= summary->layer_count;
    out->combine_ps /= summary->layer_count;
    out->layer_ps = out->dispatch_ps + out->combine_ps;
    out->expert_ratio_ppm = ratio_ppm / (summary->layer_count * summary->steps);
    sim_summary_bytes(summary, &out->bytes);
    out->bytes.formula /= summary->steps;
    out->bytes.distinct_rank /= summary->steps;
    for (int c = 0; c < SIM_LINK_CLASSES; c++) out->bytes.wire[c] /= summary->steps;
}

static int play(const struct sim_settings *settings, struct played *played, char *err,
                size_t err_len)
{
    played->source = sim_source_open(settings, err, err_len);
    if (played->source == NULL) return SIM_WHAT_IF_REFUSED;
    const struct trace_routing *trace = sim_source_trace(played->source);
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      played->plan, err, err_len) != 0 ||
        sim_source_start(played->source, played->plan, err, err_len) != 0)
        return SIM_WHAT_IF_REFUSED;
    if (sim_summary_open(played->plan, &played->summary, err, err_len) != 0) return -1;
    const struct sim_run run = {.plan = played->plan, .source = played->source};
    const int status = sim_run_play(&run, &played->summary, err, err_len);
    return status == SIM_RUN_REFUSED ? SIM_WHAT_IF_REFUSED : status;
}

int sim_what_if(const struct sim_settings *settings, struct sim_what_if *out, char *err,
                size_t err_len)
{
    struct played *played = (struct played *)calloc(1, sizeof *played);
    int status = -1;

    assert(settings != NULL && out != NULL);
    if (played != NULL) played->plan = (struct sim_plan *)malloc(sizeof *played->plan);
    if (played == NULL || played->plan == NULL)
        snprintf(err, err_len, "what-if: out of memory");
    else
        status = play(settings, played, err, err_len);
    if (status == 0) condense(played, out);
    if (played != NULL) {
        sim_summary_close(&played->summary);
        sim_source_close(played->source);
        free(played->plan);
    }
    free(played);
    return status;
}
