/* sim/imbalance.h - how unevenly a routing loads experts and ranks, and how much it repeats. */
#ifndef SIM_IMBALANCE_H
#define SIM_IMBALANCE_H

#include <stddef.h>
#include <stdint.h>
#include "sim/plan.h"
#include "sim/source.h"

/* One layer. Ratios and shares x 10^6. */
struct sim_imbalance {
    uint32_t layer;
    uint64_t expert_ppm;    /* Rows of the busiest expert over the mean, all steps together. */
    uint64_t eighth_ppm;    /* Share of all rows that the busiest eighth of experts take. */
    uint64_t rank_ppm;      /* Rows of the busiest rank over the mean, all steps together. */
    uint64_t rank_step_ppm; /* The same in one step, mean over steps. */
    uint64_t row_ppm;       /* Share of its experts that a row has in common with the row before it
                               on its rank, mean: adjacent tokens where a prompt is laid out. */
    uint64_t step_ppm;      /* The same with its own row of the step before: adjacent tokens where
                               rows are decode streams. 0 with one step. */
};

/* Count every layer of the plan over its steps; advances the source. layers [plan->layer_count]. 0,
 * or -1 with err (memory). */
int sim_imbalance_count(const struct sim_plan *plan, struct sim_source *source,
                        struct sim_imbalance *layers, char *err, size_t err_len);

#endif
