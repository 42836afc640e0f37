/* sim/traffic.c - messages of one layer, by mode. */
#include "sim/traffic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/traffic_parts.h"

struct sim_traffic sim_traffic_outline(const struct ref_routing *routing,
                                       const struct sim_traffic_shape *shape)
{
    struct sim_traffic outline = {.mode = shape->mode,
                                  .ranks = routing->ranks,
                                  .ranks_per_node = shape->ranks_per_node,
                                  .nvlink = shape->nvlink,
                                  .experts = routing->experts,
                                  .topk = routing->topk,
                                  .token_start = routing->token_start,
                                  .topk_idx = routing->topk_idx};

    assert(shape->mode == SIM_MODE_LL || shape->mode == SIM_MODE_NORMAL);
    assert(shape->ranks_per_node > 0);
    outline.nodes = (routing->ranks + shape->ranks_per_node - 1) / shape->ranks_per_node;
    memcpy(outline.row_bytes, shape->row_bytes, sizeof outline.row_bytes);
    memcpy(outline.formula_bytes, shape->formula_bytes, sizeof outline.formula_bytes);
    return outline;
}

int sim_traffic_count(const struct ref_routing *routing, const struct sim_traffic_shape *shape,
                      struct sim_traffic *traffic, char *err, size_t err_len)
{
    struct sim_traffic made = sim_traffic_outline(routing, shape);
    const int status = shape->mode == SIM_MODE_LL
                           ? sim_traffic_count_ll(routing, &made, err, err_len)
                           : sim_traffic_build_normal(routing, &made, err, err_len);
    if (status != 0) {
        sim_traffic_free(&made);
        return -1;
    }
    *traffic = made;
    return 0;
}

int sim_traffic_list(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                     size_t err_len)
{
    assert(routing->topk_idx == traffic->topk_idx && traffic->block_start != NULL);
    if (traffic->messages[SIM_COMBINE] != NULL) return 0;
    assert(traffic->mode == SIM_MODE_LL);
    return sim_traffic_list_ll(routing, traffic, err, err_len);
}

int sim_traffic_build(const struct ref_routing *routing, const struct sim_traffic_shape *shape,
                      struct sim_traffic *traffic, char *err, size_t err_len)
{
    struct sim_traffic made;
    if (sim_traffic_count(routing, shape, &made, err, err_len) != 0) return -1;
    if (sim_traffic_list(routing, &made, err, err_len) != 0) {
        sim_traffic_free(&made);
        return -1;
    }
    *traffic = made;
    return 0;
}

void sim_traffic_free(struct sim_traffic *traffic)
{
    for (int d = 0; d < SIM_DIRECTIONS; d++) free(traffic->messages[d]);
    free(traffic->block_start);
    free(traffic->home_start);
    free(traffic->rail_start);
    free(traffic->contribution_start);
    memset(traffic, 0, sizeof *traffic);
}
