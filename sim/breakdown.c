/* sim/breakdown.c - takes cells apart, one after the other. */
#include "sim/breakdown.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sim_breakdown_open(const uint32_t *layer, uint32_t layer_count, uint32_t threads,
                       struct sim_breakdown *breakdown, char *err, size_t err_len)
{
    assert(layer_count >= 1);
    memset(breakdown, 0, sizeof *breakdown);
    breakdown->layer_count = layer_count;
    breakdown->layer = layer;
    breakdown->by_layer = (struct sim_breakdown_sum *)calloc((size_t)layer_count * SIM_DIRECTIONS,
                                                             sizeof *breakdown->by_layer);
    if (breakdown->by_layer == NULL) {
        snprintf(err, err_len, "explain: out of memory");
        return -1;
    }
    breakdown->bench = sim_vary_open(threads, err, err_len);
    if (breakdown->bench != NULL) return 0;
    sim_breakdown_close(breakdown);
    return -1;
}

void sim_breakdown_close(struct sim_breakdown *breakdown)
{
    sim_vary_close(breakdown->bench);
    free(breakdown->by_layer);
    for (int d = 0; d < SIM_DIRECTIONS; d++) sim_attribution_free(&breakdown->cell[d]);
    memset(breakdown, 0, sizeof *breakdown);
}

static void add_sum(struct sim_breakdown_sum *sum, const struct sim_attribution *made)
{
    const int64_t *part_ps = made->part_ps + (size_t)made->slowest * SIM_PARTS;
    assert(made->slowest < made->ranks);
    sum->cells++;
    sum->took_ps += made->took_ps[made->slowest];
    for (int part = 0; part < SIM_PARTS; part++) sum->part_ps[part] += part_ps[part];
}

static int add_direction(struct sim_breakdown *breakdown, const struct sim_exchange *exchange,
                         uint32_t layer_index, char *err, size_t err_len)
{
    const enum sim_direction d = exchange->direction;
    struct sim_attribution *made = &breakdown->cell[d];
    uint64_t *after_ps = breakdown->cell_after_ps[d];
    const bool first = breakdown->all[d].cells == 0;

    assert(d < SIM_DIRECTIONS && layer_index < breakdown->layer_count);
    if (sim_attribute(breakdown->bench, exchange, sim_attribute_parts(exchange),
                      sim_attribute_shifts(exchange), made, err, err_len) != 0)
        return -1;
    if (sim_widen(breakdown->bench, exchange, made->took_ps[made->slowest], after_ps, err,
                  err_len) != 0)
        return -1;
    add_sum(&breakdown->all[d], made);
    add_sum(&breakdown->by_layer[(size_t)layer_index * SIM_DIRECTIONS + d], made);
    for (int k = 0; k < SIM_WIDENINGS; k++) {
        const char *idle = sim_widening_idle((enum sim_widening)k, exchange);
        breakdown->after_ps[d][k] += after_ps[k];
        if (first || idle == NULL) breakdown->idle[d][k] = idle;
    }
    return 0;
}

static int add_assumptions(struct sim_breakdown *breakdown, const struct sim_exchange *exchanges,
                           const uint64_t *now_ps, size_t count, const char *skew, char *err,
                           size_t err_len)
{
    const int found = sim_assumptions(breakdown->bench, exchanges, now_ps, count, skew,
                                      breakdown->assumptions, err, err_len);
    breakdown->assumption_count = found;
    return found < 0 ? -1 : 0;
}

int sim_breakdown_add(struct sim_breakdown *breakdown, const struct sim_cell *cell,
                      uint32_t layer_index, char *err, size_t err_len)
{
    struct sim_exchange exchanges[SIM_DIRECTIONS];
    uint64_t now_ps[SIM_DIRECTIONS];
    assert(layer_index < breakdown->layer_count);
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_attribution *made = &breakdown->cell[d];
        exchanges[d] = sim_cell_exchange(cell, (enum sim_direction)d);
        if (add_direction(breakdown, &exchanges[d], layer_index, err, err_len) != 0) return -1;
        now_ps[d] = made->took_ps[made->slowest];
    }
    if (breakdown->all[SIM_DISPATCH].cells > 1) return 0;
    const char *skew = cell->plan->skew.kind != SIM_SKEW_NONE ? cell->plan->settings.skew : NULL;
    return add_assumptions(breakdown, exchanges, now_ps, SIM_DIRECTIONS, skew, err, err_len);
}

int sim_breakdown_add_exchange(struct sim_breakdown *breakdown, const struct sim_exchange *exchange,
                               char *err, size_t err_len)
{
    const struct sim_attribution *made = &breakdown->cell[exchange->direction];
    if (add_direction(breakdown, exchange, 0, err, err_len) != 0) return -1;
    return add_assumptions(breakdown, exchange, &made->took_ps[made->slowest], 1, NULL, err,
                           err_len);
}
