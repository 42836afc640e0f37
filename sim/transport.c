/* sim/transport.c - the limits of kernels/direct.h, in words. */
#include "sim/transport.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "kernels/direct.h"
#include "ref/quantise.h"

struct sim_transport_shape sim_transport_shape(const struct sim_layer_input *in)
{
    const struct ref_routing *routing = in->routing;
    struct sim_transport_shape shape = {.mode = in->traffic->mode,
                                        .nodes = in->traffic->nodes,
                                        .ranks = routing->ranks,
                                        .experts = routing->experts,
                                        .topk = routing->topk,
                                        .hidden = in->hidden,
                                        .recipe = in->recipe};
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t tokens = routing->token_start[r + 1] - routing->token_start[r];
        if (tokens > shape.tokens_max) shape.tokens_max = tokens;
    }
    return shape;
}

int sim_transport_takes(const struct sim_transport_shape *shape, uint32_t gpus, char *err,
                        size_t err_len)
{
    const bool cast = ref_recipe_payload_bytes((enum ref_recipe)shape->recipe) == 1;

    assert(gpus >= 1 && shape->ranks >= 1);
    if (shape->mode == SIM_MODE_NORMAL && shape->nodes > 1)
        snprintf(err, err_len, "direct: normal mode on %" PRIu32 " nodes: must be one node",
                 shape->nodes);
    else if (shape->ranks > GPU_DIRECT_RANKS_MAX)
        snprintf(err, err_len, "direct: %" PRIu32 " ranks: must be at most %d", shape->ranks,
                 GPU_DIRECT_RANKS_MAX);
    else if (shape->ranks < gpus)
        snprintf(err, err_len, "direct: %" PRIu32 " GPUs: must be at most %" PRIu32 ", a rank each",
                 gpus, shape->ranks);
    else if (shape->experts >= GPU_DIRECT_EXPERTS_END)
        snprintf(err, err_len, "direct: %" PRIu32 " experts: must be below %d", shape->experts,
                 GPU_DIRECT_EXPERTS_END);
    else if (shape->topk > GPU_TOPK_MAX)
        snprintf(err, err_len, "direct: top-%" PRIu32 ": must be at most %d", shape->topk,
                 GPU_TOPK_MAX);
    else if (shape->mode == SIM_MODE_LL && cast && shape->hidden % GPU_DIRECT_CAST_CHANNELS != 0)
        snprintf(err, err_len, "direct: hidden %" PRIu32 " in FP8: must be a multiple of %d",
                 shape->hidden, GPU_DIRECT_CAST_CHANNELS);
    else if (shape->tokens_max * shape->topk >= GPU_DIRECT_SELECTIONS_END)
        snprintf(err, err_len,
                 "direct: %" PRIu64 " tokens by top-%" PRIu32
                 ": must be below %d selections a rank",
                 shape->tokens_max, shape->topk, GPU_DIRECT_SELECTIONS_END);
    else
        return 0;
    return -1;
}
