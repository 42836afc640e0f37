/* sim/what_if.c - plays settings without bytes and condenses the run to a few figures. */
#include "sim/what_if.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/run.h"

struct played { /* One run, as far as it has come. */
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_summary summary;
};

static int open_plan(const struct sim_settings *settings, struct played *played, char *err,
                     size_t err_len)
{
    played->source = sim_source_open(settings, err, err_len);
    if (played->source == NULL) return -1;
    const struct trace_routing *trace = sim_source_trace(played->source);
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      played->plan, err, err_len) != 0)
        return -1;
    return sim_source_start(played->source, played->plan, err, err_len);
}

/* Dispatch and combine of every layer, one after the other. */
static int play_exchange(struct played *played, struct sim_what_if *out, char *err, size_t err_len)
{
    const struct sim_summary *summary = &played->summary;
    const struct sim_run run = {.plan = played->plan, .source = played->source};
    struct sim_bytes bytes;

    if (sim_summary_open(played->plan, &played->summary, err, err_len) != 0) return -1;
    const int status = sim_run_play(&run, &played->summary, err, err_len);
    if (status != 0) return status == SIM_RUN_REFUSED ? SIM_WHAT_IF_REFUSED : status;
    assert(summary->layer_count > 0 && summary->steps > 0);
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        out->dispatch_ps += sim_summary_times(summary, l, SIM_DISPATCH).p50_ps;
        out->combine_ps += sim_summary_times(summary, l, SIM_COMBINE).p50_ps;
    }
    out->layers = summary->layer_count;
    out->dispatch_ps /= summary->layer_count;
    out->combine_ps /= summary->layer_count;
    out->layer_ps = out->dispatch_ps + out->combine_ps;
    out->step_ps = summary->end_ps / summary->steps;
    sim_summary_bytes(summary, &bytes);
    for (int c = 0; c < SIM_LINK_CLASSES; c++) out->wire_bytes[c] = bytes.wire[c] / summary->steps;
    return 0;
}

static int play_step(struct played *played, struct sim_what_if *out, char *err, size_t err_len)
{
    if (sim_step_play(played->plan, played->source, &out->times, err, err_len) != 0)
        return SIM_WHAT_IF_REFUSED;
    out->whole = true;
    out->layers = out->times.moe_layers;
    out->dispatch_ps = out->times.op_ps[SIM_OP_DISPATCH] + out->times.op_ps[SIM_OP_DISPATCH_SEND];
    out->combine_ps = out->times.op_ps[SIM_OP_COMBINE] + out->times.op_ps[SIM_OP_COMBINE_SEND];
    out->layer_ps = out->times.layer_ps;
    out->step_ps = out->times.step_ps;
    for (int c = 0; c < SIM_LINK_CLASSES; c++) out->wire_bytes[c] = out->times.wire_bytes[c];
    return 0;
}

/* Every request keeps its context and gets the step's rows; ranks that share attention's heads
 * hold all of their requests. */
uint64_t sim_what_if_kv_tokens(const struct sim_plan *plan)
{
    const struct sim_settings *settings = &plan->settings;
    const bool prefill =
        settings->phase[0] == 'p' || (settings->phase[0] == 'a' && plan->mode == SIM_MODE_NORMAL);
    uint64_t rows = 0;

    for (uint32_t r = 0; r < plan->ranks; r++)
        if (plan->tokens[r] > rows) rows = plan->tokens[r];
    const uint64_t per_request = prefill ? settings->prompt : settings->verify;
    const uint64_t requests = per_request > 0 ? (rows + per_request - 1) / per_request : 1;
    return settings->attn_tp * (rows + requests * settings->context);
}

static int play(const struct sim_settings *settings, struct played *played, struct sim_what_if *out,
                char *err, size_t err_len)
{
    const struct sim_plan *plan = played->plan;

    if (open_plan(settings, played, err, err_len) != 0) return SIM_WHAT_IF_REFUSED;
    *out = (struct sim_what_if){.ranks = plan->ranks,
                                .nodes = plan->nodes,
                                .mode = plan->mode,
                                .tokens = plan->token_start[plan->ranks],
                                .gpu_hour_microusd = plan->machine.gpu_hour_microusd};
    sim_step_memory(plan, &out->memory);
    if (settings->context > 0) out->kv_needed_tokens = sim_what_if_kv_tokens(plan);
    out->weights_fit = out->memory.held_bytes <= out->memory.hbm_bytes;
    out->fits = out->weights_fit && out->kv_needed_tokens <= out->memory.kv_tokens;
    return sim_step_wanted(settings) ? play_step(played, out, err, err_len)
                                     : play_exchange(played, out, err, err_len);
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
        status = play(settings, played, out, err, err_len);
    if (played != NULL) {
        sim_summary_close(&played->summary);
        sim_source_close(played->source);
        free(played->plan);
    }
    free(played);
    return status;
}
