/* sim/advise.h - which cell of a sweep is best, by how much, and what would change the answer.
 *
 * Axes are of two kinds. Conditions are what the users of a cluster bring (tokens, context,
 * routing); choices are what its owner decides (everything else). For every combination of
 * conditions the best combination of choices is found. Ties go to the lower cell. */
#ifndef SIM_ADVISE_H
#define SIM_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/sweep.h"

struct sim_goal {
    const char *name; /* latency | throughput | memory | cost */
    const char *key;  /* Of the what-if's object. */
    const char *unit;
    bool more_is_better;
};

/* NULL when there is none of that name. */
const struct sim_goal *sim_goal_find(const char *name);

#define SIM_NO_CELL UINT32_MAX

struct sim_rival { /* The best cell that differs; cell SIM_NO_CELL where there is none. */
    uint32_t cell;
    double value;
    double worse; /* By this share of the best one's value: 0.12 = 12 % more time (or less gain). */
};

struct sim_advice {
    uint32_t best; /* SIM_NO_CELL: no cell of these conditions has a value. */
    double value;
    struct sim_rival second;                    /* Differs in any choice. */
    struct sim_rival other[SIM_SWEEP_AXES_MAX]; /* Differs in this choice; others are free. */
};

/* Is the axis a condition? Otherwise it is a choice. */
bool sim_advise_is_condition(const struct sim_sweep *sweep, uint32_t axis);

/* Combinations of conditions; at least 1. Numbered like cells, choices left out. */
uint32_t sim_advise_conditions(const struct sim_sweep *sweep);
/* Which of them a cell belongs to, below sim_advise_conditions. */
uint32_t sim_advise_condition_of(const struct sim_sweep *sweep, uint32_t cell);

/* Fill *out for one combination of conditions. values [cells]: of the goal's key; NaN where a cell
 * has none. */
void sim_advise(const struct sim_sweep *sweep, const double *values, const struct sim_goal *goal,
                uint32_t condition, struct sim_advice *out);

/* Do two cells make the same choices? */
bool sim_advise_same_choice(const struct sim_sweep *sweep, uint32_t a, uint32_t b);

#endif
