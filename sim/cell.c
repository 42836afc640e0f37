/* sim/cell.c - prepares and plays one layer of one step. */
#include "sim/cell.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/digest.h"
#include "ref/hot.h"
#include "sim/rng.h"

enum { PURPOSE_X = 4, GROUP = REF_GROUP_CHANNELS };

struct sim_cell *sim_cell_open(const struct sim_plan *plan, char *err, size_t err_len)
{
    struct sim_cell *cell = (struct sim_cell *)calloc(1, sizeof *cell);
    assert(plan->ranks >= 1 && plan->ranks <= SIM_RANKS_MAX);
    assert(plan->topk >= 1 && plan->topk <= REF_TOPK_MAX);
    if (cell != NULL)
        cell->checks =
            (struct sim_check *)calloc((size_t)SIM_STAGES * plan->ranks, sizeof *cell->checks);
    if (cell != NULL) cell->wrong = (struct sim_wrong_rows *)calloc(1, sizeof *cell->wrong);
    if (cell == NULL || cell->checks == NULL || cell->wrong == NULL) {
        sim_cell_close(cell);
        snprintf(err, err_len, "layer: out of memory");
        return NULL;
    }
    cell->plan = plan;
    return cell;
}

void sim_cell_close(struct sim_cell *cell)
{
    if (cell == NULL) return;
    sim_arena_free(&cell->idx_arena);
    sim_arena_free(&cell->weights_arena);
    sim_arena_free(&cell->x_arena);
    sim_traffic_free(&cell->traffic);
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        sim_timing_close(&cell->timing[d]);
        sim_schedule_free(&cell->schedule[d]);
    }
    free(cell->checks);
    free(cell->wrong);
    free(cell);
}

static int take_routing(struct sim_cell *cell, const struct sim_source *source, char *err,
                        size_t err_len)
{
    const struct sim_plan *plan = cell->plan;
    const uint64_t choices = plan->token_start[plan->ranks] * plan->topk;

    if (sim_arena_reserve(&cell->idx_arena, choices, sizeof(int64_t), err, err_len) != 0 ||
        sim_arena_reserve(&cell->weights_arena, choices, sizeof(float), err, err_len) != 0)
        return -1;
    int64_t *topk_idx = (int64_t *)(void *)cell->idx_arena.bytes;
    float *weights = (float *)(void *)cell->weights_arena.bytes;
    sim_source_layer(source, cell->layer, topk_idx, weights);
    cell->routing = (struct ref_routing){plan->ranks,       plan->experts, plan->topk,
                                         plan->token_start, topk_idx,      weights};
    cell->routing_digest = ref_digest(topk_idx, choices * sizeof(int64_t));
    return 0;
}

/* Launch instants of one direction, with skew before dispatch and the scenario's delays. */
static void set_starts(struct sim_cell *cell, enum sim_direction direction,
                       const uint64_t *ready_ps)
{
    const struct sim_scenario *scenario = &cell->plan->scenario;
    memcpy(cell->start_ps[direction], ready_ps, cell->plan->ranks * sizeof *ready_ps);
    if (direction == SIM_DISPATCH)
        sim_skew_add(&cell->plan->skew, cell->plan->settings.seed, cell->step, cell->layer,
                     cell->plan->ranks, cell->start_ps[direction]);
    for (uint32_t f = 0; f < scenario->count; f++) {
        const struct sim_fault *fault = &scenario->faults[f];
        assert(fault->stage < SIM_DIRECTIONS);
        if (fault->kind == SIM_FAULT_DELAY && fault->step == cell->step &&
            fault->layer == cell->layer && fault->stage == direction &&
            fault->rank < cell->plan->ranks)
            cell->start_ps[direction][fault->rank] += fault->delay_ps;
    }
}

struct sim_exchange sim_cell_exchange(const struct sim_cell *cell, enum sim_direction direction)
{
    struct sim_exchange exchange = sim_plan_exchange(cell->plan, &cell->traffic, direction);
    assert((unsigned)direction < SIM_DIRECTIONS && cell->traffic.ranks == cell->plan->ranks);
    exchange.start_ps = cell->start_ps[direction];
    return exchange;
}

static int time_direction(struct sim_cell *cell, enum sim_direction direction,
                          struct sim_engine *engine, char *err, size_t err_len)
{
    const struct sim_exchange exchange = sim_cell_exchange(cell, direction);
    struct sim_timing *timing = &cell->timing[direction];

    if (sim_timing_fit(timing, cell->plan->ranks, cell->traffic.message_count[direction], err,
                       err_len) != 0)
        return -1;
    return sim_exchange_time(engine, &exchange, timing, err, err_len);
}

static int build_schedules(struct sim_cell *cell, char *err, size_t err_len)
{
    assert(!cell->scheduled);
    if (sim_traffic_list(&cell->routing, &cell->traffic, err, err_len) != 0) return -1;
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const int status = sim_schedule_build(&cell->traffic, (enum sim_direction)d,
                                              &cell->timing[d], &cell->plan->scenario, cell->step,
                                              cell->layer, &cell->schedule[d], err, err_len);
        if (status != 0) return status;
    }
    cell->scheduled = true;
    return 0;
}

int sim_cell_prepare(struct sim_cell *cell, const struct sim_source *source, uint64_t step,
                     uint32_t layer, struct sim_engine *engine, uint64_t *ready_ps, char *err,
                     size_t err_len)
{
    const struct sim_plan *plan = cell->plan;
    const struct sim_traffic_shape shape = sim_plan_shape(plan);

    cell->step = step;
    cell->layer = layer;
    cell->played = cell->scheduled = false;
    if (take_routing(cell, source, err, err_len) != 0) return -1;
    sim_traffic_free(&cell->traffic);
    if (sim_traffic_count(&cell->routing, &shape, &cell->traffic, err, err_len) != 0) return -1;
    assert(cell->traffic.ranks == plan->ranks && cell->traffic.mode == shape.mode);
    if (strcmp(plan->settings.detail, "message") == 0 &&
        sim_traffic_list(&cell->routing, &cell->traffic, err, err_len) != 0)
        return -1;
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const enum sim_direction direction = (enum sim_direction)d;
        set_starts(cell, direction, ready_ps);
        if (time_direction(cell, direction, engine, err, err_len) != 0) return -1;
        memcpy(ready_ps, cell->timing[d].end_ps, plan->ranks * sizeof *ready_ps);
    }
    return plan->scenario.count > 0 ? build_schedules(cell, err, err_len) : 0;
}

/* One token's channels: per 128-group a power of two from 2^-6 to 2^9 times 1.m with 7 bits of m
 * and a sign, from a 32-bit mixer over the channel; about one channel in 256 is a zero. */
static REF_HOT void draw_row(uint64_t key, uint32_t hidden, uint16_t *row)
{
    for (uint32_t g = 0; g < hidden / GROUP; g++) {
        const uint64_t group_key = sim_rng_mix(key + (g + 1) * UINT64_C(0x9e3779b97f4a7c15));
        const uint32_t top = 121 + (uint32_t)(group_key >> 60); /* Largest biased exponent. */
        const uint32_t base = (uint32_t)group_key;
        for (uint32_t c = 0; c < GROUP; c++) {
            uint32_t h = (base + c * UINT32_C(0x9e3779b9)) * UINT32_C(0x85ebca6b);
            h = (h ^ (h >> 15)) * UINT32_C(0xc2b2ae35);
            h ^= h >> 16;
            const uint32_t bits = (h & 0x80ff) | (top - ((h >> 8) & 7)) << 7;
            row[(size_t)g * GROUP + c] = (uint16_t)((h >> 24) == 0 ? (h & 0x8000) : bits);
        }
    }
}

int sim_cell_input(struct sim_cell *cell, struct sim_layer_input *input, char *err, size_t err_len)
{
    const struct sim_plan *plan = cell->plan;
    const uint64_t tokens = plan->token_start[plan->ranks];

    assert(plan->hidden > 0 && plan->hidden % GROUP == 0);
    if (sim_arena_reserve(&cell->x_arena, tokens, 2 * (uint64_t)plan->hidden, err, err_len) != 0)
        return -1;
    uint16_t *x = (uint16_t *)(void *)cell->x_arena.bytes;
    for (uint32_t r = 0; r < plan->ranks; r++) {
        struct sim_rng rng =
            sim_rng_stream(plan->settings.seed, PURPOSE_X, cell->step, cell->layer, r);
        for (uint64_t t = plan->token_start[r]; t < plan->token_start[r + 1]; t++)
            draw_row(sim_rng_next(&rng), plan->hidden, x + t * plan->hidden);
    }
    *input =
        (struct sim_layer_input){.routing = &cell->routing,
                                 .traffic = &cell->traffic,
                                 .hidden = plan->hidden,
                                 .recipe = (uint32_t)plan->recipe,
                                 .expert = (uint32_t)plan->expert,
                                 .mlp_inter = (plan->model.moe_inter + GROUP - 1) / GROUP * GROUP,
                                 .weight_seed = plan->settings.seed + cell->layer,
                                 .x = x};
    return 0;
}

int sim_cell_play(struct sim_cell *cell, struct sim_datapath *path, char *err, size_t err_len)
{
    struct sim_layer_input input;
    assert(cell->traffic.ranks == cell->plan->ranks); /* Prepared. */
    if (sim_cell_input(cell, &input, err, err_len) != 0) return -1;
    if (!cell->scheduled && build_schedules(cell, err, err_len) != 0) return -1;
    if (sim_datapath_layer(path, &input, cell->schedule, cell->checks, cell->wrong, err, err_len) !=
        0)
        return -1;
    cell->played = true;
    return 0;
}

uint64_t sim_cell_digest(const struct sim_cell *cell)
{
    uint64_t digest = ref_digest_mix(cell->routing_digest, cell->step);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        digest = ref_digest_mix(digest, cell->timing[d].digest);
    for (uint32_t i = 0; cell->played && i < SIM_STAGES * cell->plan->ranks; i++)
        digest = ref_digest_mix(digest, cell->checks[i].digest);
    return digest;
}
