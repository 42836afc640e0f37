/* tests/attribute_layer.h - one exchange of either mode, for the suites that take it apart. */
#ifndef TESTS_ATTRIBUTE_LAYER_H
#define TESTS_ATTRIBUTE_LAYER_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/attribute.h"
#include "sim/generator.h"
#include "tests/exchange.h"

enum { LAYER_RANKS_MAX = 32 };

struct layer {
    struct fabric_machine machine;
    struct ref_routing routing;
    struct sim_traffic traffic;
    uint64_t token_start[LAYER_RANKS_MAX + 1];
    uint64_t start_ps[LAYER_RANKS_MAX];
    struct sim_exchange exchange;
};

struct layer_shape {
    const char *machine;
    enum sim_mode mode;
    enum sim_direction direction;
    uint32_t ranks, experts, topk, tokens, hidden, sms, qp_depth;
    bool uneven; /* Each rank has its own token count, up to tokens. */
};

/* Uniform routing from the seed. Memory stays until the test's process ends. */
static inline struct layer *layer_make(const struct layer_shape *shape, uint64_t seed)
{
    struct layer *layer = TEST_ARRAY(struct layer, 1);
    char err[256] = "";
    uint64_t state = seed;
    ck_assert_msg(fabric_machine_load(shape->machine, &layer->machine, err, sizeof err) == 0, "%s",
                  err);
    const struct sim_generator generator = {.kind = SIM_GENERATOR_UNIFORM,
                                            .experts = shape->experts,
                                            .topk = shape->topk,
                                            .nodes = 1,
                                            .seed = seed};
    int64_t *ids = TEST_ARRAY(int64_t, (uint64_t)shape->ranks * shape->tokens * shape->topk);
    for (uint32_t r = 0; r < shape->ranks; r++) {
        const uint32_t tokens =
            shape->uneven ? test_below(&state, shape->tokens + 1) : shape->tokens;
        layer->token_start[r + 1] = layer->token_start[r] + tokens;
        sim_generator_draw(&generator, 0, 0, r, tokens, ids + layer->token_start[r] * shape->topk);
    }
    layer->routing = (struct ref_routing){.ranks = shape->ranks,
                                          .experts = shape->experts,
                                          .topk = shape->topk,
                                          .token_start = layer->token_start,
                                          .topk_idx = ids};
    struct sim_traffic_shape wires = {.mode = shape->mode,
                                      .ranks_per_node = layer->machine.gpus_per_node,
                                      .nvlink = layer->machine.nvlink_bytes_per_s > 0};
    wires.row_bytes[SIM_DISPATCH] = wires.formula_bytes[SIM_DISPATCH] = shape->hidden + 16;
    wires.row_bytes[SIM_COMBINE] = wires.formula_bytes[SIM_COMBINE] = 2 * shape->hidden;
    if (wires.ranks_per_node > shape->ranks) wires.ranks_per_node = shape->ranks;
    ck_assert_msg(sim_traffic_build(&layer->routing, &wires, &layer->traffic, err, sizeof err) == 0,
                  "%s", err);
    layer->exchange = (struct sim_exchange){.machine = &layer->machine,
                                            .traffic = &layer->traffic,
                                            .direction = shape->direction,
                                            .hidden = shape->hidden,
                                            .sms = shape->sms,
                                            .qp_depth = shape->qp_depth,
                                            .start_ps = layer->start_ps};
    return layer;
}

#endif
