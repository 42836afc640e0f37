/* sim/placement.h - a run whose experts have replicas: which place each choice of a token takes.
 *
 * The router names experts of the model (logical ids); kernels send to places (physical ids), of
 * which --eplb has more than experts. Everything behind the source of a run's routing sees places
 * alone: expert p of the run is place p, on rank p / (places / ranks). */
#ifndef SIM_PLACEMENT_H
#define SIM_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>
#include "sim/eplb.h"

enum sim_replica_policy {
    SIM_REPLICA_STATIC,   /* By rank: its own GPU's, else its node's, else dealt. */
    SIM_REPLICA_ROW_MOD,  /* Token row mod count, as SGLang without an all-to-all backend. */
    SIM_REPLICA_ROW_HASH, /* ((row * 2654435769) mod 2^32) mod count, as vLLM. */
};

struct sim_placement {
    enum sim_replica_policy policy;
    struct sim_eplb eplb;         /* Owned. */
    struct ref_physical *by_rank; /* Owned, [layers][ranks][experts]; NULL with other policies. */
};

/* "static", "row-mod" or "row-hash"; false for anything else. */
bool sim_replica_policy_parse(const char *text, enum sim_replica_policy *policy);

/* Place the replicas by weight. 0; -1 with "--OPTION: value: what is allowed"; -2 with err
 * (memory). *placement is written only on success. */
int sim_placement_open(const struct sim_eplb_weights *weights, const struct ref_eplb_shape *shape,
                       enum sim_replica_policy policy, struct sim_placement *placement, char *err,
                       size_t err_len);
void sim_placement_close(struct sim_placement *placement); /* Safe on a zeroed struct. */

/* The place of one choice: token row `row` among those of its rank. */
struct ref_physical sim_placement_choose(const struct sim_placement *placement, uint32_t layer,
                                         uint32_t rank, uint64_t row, struct ref_logical expert);

/* Whose replica stands at a place. */
struct ref_logical sim_placement_expert(const struct sim_placement *placement, uint32_t layer,
                                        struct ref_physical place);

#endif
