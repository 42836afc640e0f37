/* sim/summary.h - what a run found, layer by layer: times, bytes, imbalance, checks. */
#ifndef SIM_SUMMARY_H
#define SIM_SUMMARY_H

#include <stddef.h>
#include <stdint.h>
#include "sim/bytes.h"
#include "sim/cell.h"
#include "sim/plan.h"

struct sim_distribution { /* Over steps. Percentiles by nearest rank. */
    uint64_t mean_ps, p50_ps, p99_ps, max_ps;
};

struct sim_layer_summary {
    uint32_t layer;                       /* Among the model's MoE layers. */
    uint64_t *slowest_ps[SIM_DIRECTIONS]; /* Owned, [steps]: launch to end, slowest rank. */
    uint64_t *floor_ps[SIM_DIRECTIONS];   /* Owned, [steps]: what no schedule can beat. */
    struct sim_bytes bytes;               /* Both directions, all steps. */
    uint64_t expert_ratio_ppm;            /* Sum over steps of max / mean rows, x 10^6. */
    uint64_t rank_ratio_ppm;
};

struct sim_summary {
    uint64_t steps; /* Steps added. */
    uint64_t steps_max;
    uint32_t layer_count;
    struct sim_layer_summary *layers; /* Owned. */
    uint64_t compared_bytes;
    uint64_t mismatches;         /* Rows that differ, over all stages, ranks, layers, steps. */
    struct sim_check first;      /* The first mismatch; meaningful when mismatches > 0. */
    struct sim_wrong_rows wrong; /* The mismatches by name. */
    uint64_t first_step;
    uint32_t first_layer;
    uint64_t end_ps; /* When the last rank ended. */
    uint64_t events;
    uint64_t digest;
    uint64_t run; /* Number in the database; 0 when there is none. */
};

int sim_summary_open(const struct sim_plan *plan, struct sim_summary *summary, char *err,
                     size_t err_len);
void sim_summary_close(struct sim_summary *summary); /* Safe on a zeroed struct. */

/* Add a cell; cells come in order. layer_index counts the plan's layers from 0; pairs is
 * [SIM_DIRECTIONS][ranks * ranks] of sim_bytes_pairs. */
void sim_summary_add(struct sim_summary *summary, const struct sim_cell *cell, uint32_t layer_index,
                     const struct sim_pair_bytes *pairs);

/* Times of the slowest rank, and floors, of one layer over the steps. A step's time is never below
 * its floor, so neither is the median. */
struct sim_distribution sim_summary_times(const struct sim_summary *summary, uint32_t layer_index,
                                          enum sim_direction direction);
struct sim_distribution sim_summary_floors(const struct sim_summary *summary, uint32_t layer_index,
                                           enum sim_direction direction);
void sim_summary_bytes(const struct sim_summary *summary, struct sim_bytes *sum);

/* The document of `run --json` and `replay --json`; a new reference. */
json_t *sim_summary_json(const struct sim_summary *summary, const struct sim_plan *plan);

#endif
