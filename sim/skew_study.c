/* sim/skew_study.c - draws layers, times each three ways. */
#include "sim/skew_study.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ll_phase.h"
#include "ref/quantise.h"
#include "sim/exchange.h"
#include "sim/generator.h"
#include "sim/settings.h"

enum { WAYS = 3 };

struct study {
    const struct sim_skew_ask *ask;
    struct sim_engine *engine;
    struct sim_timing timing;
    struct ref_routing routing;
    uint64_t token_start[SIM_RANKS_MAX + 1];
    int64_t *ids;
    uint64_t together_ps[SIM_RANKS_MAX], start_ps[SIM_RANKS_MAX];
};

static uint64_t mean_ps(struct study *study, const struct sim_exchange *exchange)
{
    const uint32_t ranks = study->ask->ranks;
    uint64_t sum_ps = 0;
    for (uint32_t r = 0; r < ranks; r++) sum_ps += sim_timing_took_ps(&study->timing, exchange, r);
    return sum_ps / ranks;
}

/* One layer, three ways: adds to sums. */
static int add_layer(struct study *study, uint32_t layer, uint64_t sums[WAYS], uint64_t *spread_ps,
                     char *err, size_t err_len)
{
    const struct sim_skew_ask *ask = study->ask;
    struct sim_traffic traffic = {.ranks = 0};
    struct sim_traffic_shape shape = {.mode = SIM_MODE_LL,
                                      .ranks_per_node = ask->machine->gpus_per_node,
                                      .nvlink = ask->machine->nvlink_bytes_per_s > 0};
    const struct sim_generator generator = {.kind = SIM_GENERATOR_UNIFORM,
                                            .experts = ask->experts,
                                            .topk = ask->topk,
                                            .nodes = 1,
                                            .seed = ask->seed};
    int status = -1;

    shape.row_bytes[SIM_DISPATCH] = ref_ll_message_bytes(ask->hidden, REF_RECIPE_LL);
    shape.row_bytes[SIM_COMBINE] = 2 * (uint64_t)ask->hidden;
    shape.formula_bytes[SIM_DISPATCH] = ask->hidden;
    shape.formula_bytes[SIM_COMBINE] = 2 * (uint64_t)ask->hidden;
    for (uint32_t r = 0; r < ask->ranks; r++)
        sim_generator_draw(&generator, 0, layer, r, ask->tokens,
                           study->ids + study->token_start[r] * ask->topk);
    memset(study->start_ps, 0, sizeof study->start_ps);
    sim_skew_add(&ask->skew, ask->seed, 0, layer, ask->ranks, study->start_ps);
    uint64_t last_ps = 0;
    for (uint32_t r = 0; r < ask->ranks; r++)
        if (study->start_ps[r] > last_ps) last_ps = study->start_ps[r];
    *spread_ps += last_ps;
    if (sim_traffic_count(&study->routing, &shape, &traffic, err, err_len) != 0) return -1;
    for (int way = 0; way < WAYS; way++) {
        const struct sim_exchange exchange = {.machine = ask->machine,
                                              .traffic = &traffic,
                                              .direction = SIM_DISPATCH,
                                              .hidden = ask->hidden,
                                              .hook = way == 2,
                                              .pause_ps = ask->pause_ps,
                                              .start_ps =
                                                  way == 0 ? study->together_ps : study->start_ps};
        if (sim_exchange_time(study->engine, &exchange, &study->timing, err, err_len) != 0)
            goto free_traffic;
        sums[way] += mean_ps(study, &exchange);
    }
    status = 0;
free_traffic:
    sim_traffic_free(&traffic);
    return status;
}

static struct study *open_study(const struct sim_skew_ask *ask, char *err, size_t err_len)
{
    struct study *study = (struct study *)calloc(1, sizeof *study);
    const uint64_t choices = (uint64_t)ask->ranks * ask->tokens * ask->topk;
    if (study == NULL) goto no_memory;
    study->ask = ask;
    study->ids = (int64_t *)calloc(choices + 1, sizeof *study->ids);
    if (study->ids == NULL) goto no_memory;
    for (uint32_t r = 0; r < ask->ranks; r++)
        study->token_start[r + 1] = study->token_start[r] + ask->tokens;
    study->routing = (struct ref_routing){.ranks = ask->ranks,
                                          .experts = ask->experts,
                                          .topk = ask->topk,
                                          .token_start = study->token_start,
                                          .topk_idx = study->ids};
    return study;
no_memory:
    free(study);
    snprintf(err, err_len, "skew: out of memory");
    return NULL;
}

int sim_skew_study(const struct sim_skew_ask *ask, struct sim_skew_times *times, char *err,
                   size_t err_len)
{
    uint64_t sums[WAYS] = {0}, spread_ps = 0;
    int status = -1;

    assert(ask->ranks > 0 && ask->ranks <= SIM_RANKS_MAX && ask->experts % ask->ranks == 0);
    assert(ask->layers > 0 && ask->topk <= ask->experts && ask->hidden % 128 == 0);
    struct study *study = open_study(ask, err, err_len);
    if (study == NULL) return -1;
    study->engine = sim_engine_open(1024, err, err_len);
    if (study->engine == NULL) goto close_study;
    if (sim_timing_open(&study->timing, ask->ranks, (uint64_t)ask->ranks * ask->tokens * ask->topk,
                        err, err_len) != 0)
        goto close_study;
    status = 0;
    for (uint32_t layer = 0; status == 0 && layer < ask->layers; layer++)
        status = add_layer(study, layer, sums, &spread_ps, err, err_len);
    if (status == 0)
        *times = (struct sim_skew_times){sums[0] / ask->layers, sums[1] / ask->layers,
                                         sums[2] / ask->layers, spread_ps / ask->layers};
close_study:
    sim_engine_close(study->engine);
    sim_timing_close(&study->timing);
    free(study->ids);
    free(study);
    return status;
}
