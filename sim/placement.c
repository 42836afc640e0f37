/* sim/placement.c - one step from a placement to the ids that kernels are given. */
#include "sim/placement.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sim_replica_policy_parse(const char *text, enum sim_replica_policy *policy)
{
    static const char *const NAMES[] = {"static", "row-mod", "row-hash"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, NAMES[i]) != 0) continue;
        *policy = (enum sim_replica_policy)i;
        return true;
    }
    return false;
}

static struct ref_placement layer_placement(const struct sim_eplb *eplb, uint32_t layer)
{
    const uint64_t first = (uint64_t)layer * eplb->shape.experts;
    return (struct ref_placement){eplb->shape, eplb->width, eplb->log2phy + first * eplb->width,
                                  eplb->logcnt + first};
}

static int open_static(struct sim_placement *placement, char *err, size_t err_len)
{
    const struct sim_eplb *eplb = &placement->eplb;
    const uint64_t cells = (uint64_t)eplb->shape.gpus * eplb->shape.experts;
    uint32_t *scratch = (uint32_t *)malloc(eplb->width * sizeof *scratch);

    placement->by_rank =
        (struct ref_physical *)calloc(eplb->layers * cells, sizeof *placement->by_rank);
    if (scratch == NULL || placement->by_rank == NULL) {
        free(scratch);
        snprintf(err, err_len, "replicas of experts: out of memory");
        return -2;
    }
    for (uint32_t l = 0; l < eplb->layers; l++) {
        const struct ref_placement layer = layer_placement(eplb, l);
        ref_replica_static(&layer, placement->by_rank + l * cells, scratch);
    }
    free(scratch);
    return 0;
}

int sim_placement_open(const struct sim_eplb_weights *weights, const struct ref_eplb_shape *shape,
                       enum sim_replica_policy policy, struct sim_placement *placement, char *err,
                       size_t err_len)
{
    struct sim_placement made = {.policy = policy};
    int status = sim_eplb_open(weights, shape, &made.eplb, err, err_len);

    if (status == 0 && policy == SIM_REPLICA_STATIC) status = open_static(&made, err, err_len);
    if (status == 0)
        *placement = made;
    else
        sim_placement_close(&made);
    return status;
}

void sim_placement_close(struct sim_placement *placement)
{
    sim_eplb_close(&placement->eplb);
    free(placement->by_rank);
    placement->by_rank = NULL;
}

struct ref_physical sim_placement_choose(const struct sim_placement *placement, uint32_t layer,
                                         uint32_t rank, uint64_t row, struct ref_logical expert)
{
    const struct sim_eplb *eplb = &placement->eplb;
    const struct ref_placement of_layer = layer_placement(eplb, layer);

    assert(layer < eplb->layers && rank < eplb->shape.gpus);
    assert(expert.id >= 0 && (uint32_t)expert.id < eplb->shape.experts);
    if (placement->policy == SIM_REPLICA_ROW_MOD)
        return ref_replica_row_mod(&of_layer, expert, row);
    if (placement->policy == SIM_REPLICA_ROW_HASH)
        return ref_replica_row_hash(&of_layer, expert, row);
    return placement->by_rank[((uint64_t)layer * eplb->shape.gpus + rank) * eplb->shape.experts +
                              (uint64_t)expert.id];
}

struct ref_logical sim_placement_expert(const struct sim_placement *placement, uint32_t layer,
                                        struct ref_physical place)
{
    const struct sim_eplb *eplb = &placement->eplb;
    assert(layer < eplb->layers);
    assert(place.id >= 0 && (uint32_t)place.id < eplb->shape.replicas);
    return eplb->phy2log[(uint64_t)layer * eplb->shape.replicas + (uint64_t)place.id];
}
