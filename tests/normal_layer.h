/* tests/normal_layer.h - one layer's exchange in normal mode, for the suites that time it. */
#ifndef TESTS_NORMAL_LAYER_H
#define TESTS_NORMAL_LAYER_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/exchange.h"

enum { HIDDEN = 1024, DISPATCH_BYTES = 2000, COMBINE_BYTES = 3000, RANKS_MAX = 32 };

static char err[256];
static struct fabric_machine machine;
static struct sim_engine *engine;

struct layer {
    struct ref_routing routing;
    struct sim_traffic traffic;
    uint64_t token_start[RANKS_MAX + 1];
    uint64_t start_ps[RANKS_MAX];
    int64_t *ids;
    struct sim_exchange exchange;
    struct sim_timing timing;
};

static void layer_open(struct layer *layer, uint32_t ranks, uint32_t experts, uint32_t topk,
                       enum sim_direction direction, uint32_t sms)
{
    struct sim_traffic_shape shape = {.mode = SIM_MODE_NORMAL,
                                      .ranks_per_node = machine.gpus_per_node,
                                      .nvlink = machine.nvlink_bytes_per_s > 0};
    layer->routing = (struct ref_routing){.ranks = ranks,
                                          .experts = experts,
                                          .topk = topk,
                                          .token_start = layer->token_start,
                                          .topk_idx = layer->ids};
    shape.row_bytes[SIM_DISPATCH] = shape.formula_bytes[SIM_DISPATCH] = DISPATCH_BYTES;
    shape.row_bytes[SIM_COMBINE] = shape.formula_bytes[SIM_COMBINE] = COMBINE_BYTES;
    memset(&layer->traffic, 0, sizeof layer->traffic);
    ck_assert_int_eq(sim_traffic_build(&layer->routing, &shape, &layer->traffic, err, sizeof err),
                     0);
    layer->exchange = (struct sim_exchange){.machine = &machine,
                                            .traffic = &layer->traffic,
                                            .direction = direction,
                                            .hidden = HIDDEN,
                                            .sms = sms,
                                            .start_ps = layer->start_ps};
    ck_assert_int_eq(sim_timing_open(&layer->timing, ranks, layer->traffic.message_count[direction],
                                     err, sizeof err),
                     0);
}

static void layer_time(struct layer *layer)
{
    ck_assert_int_eq(sim_normal_time(engine, &layer->exchange, &layer->timing, err, sizeof err), 0);
}

static void layer_close(struct layer *layer)
{
    sim_timing_close(&layer->timing);
    sim_traffic_free(&layer->traffic);
    free(layer->ids);
    layer->ids = NULL;
}

#endif
