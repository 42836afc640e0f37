/* sim/breakdown.h - where a whole run's time went: its layers taken apart and added up.
 *
 * Asked for with --explain. Of every layer and step, each rank's time is attributed to parts
 * (sim/attribute.h), every knob is turned (sim/widen.h), and the sums are kept for the slowest
 * rank, which is the one that the run's own times are of. The first layer is also asked which of
 * the machine's numbers its time hangs on. Nothing here is done for a run that does not ask. */
#ifndef SIM_BREAKDOWN_H
#define SIM_BREAKDOWN_H

#include <jansson.h>
#include "sim/attribute.h"
#include "sim/cell.h"
#include "sim/widen.h"

struct sim_breakdown_sum { /* Over layers or steps; the slowest rank of each. */
    uint64_t cells;
    uint64_t took_ps;
    int64_t part_ps[SIM_PARTS]; /* Sum to took_ps. */
};

struct sim_breakdown {
    struct sim_vary_bench *bench;
    uint32_t layer_count;
    const uint32_t *layer; /* Borrowed: their indices among the model's MoE layers. */
    struct sim_breakdown_sum all[SIM_DIRECTIONS];
    struct sim_breakdown_sum *by_layer;               /* Owned, [layers][SIM_DIRECTIONS]. */
    uint64_t after_ps[SIM_DIRECTIONS][SIM_WIDENINGS]; /* Sums like took_ps, with the knob turned. */
    /* Why a knob did nothing in any cell so far; NULL: it was turned, or no cell was added. */
    const char *idle[SIM_DIRECTIONS][SIM_WIDENINGS];
    int assumption_count;
    struct sim_assumption assumptions[SIM_ASSUMPTIONS];
    /* The cell added last, for the database. */
    struct sim_attribution cell[SIM_DIRECTIONS];
    uint64_t cell_after_ps[SIM_DIRECTIONS][SIM_WIDENINGS];
};

/* layer [layer_count] is borrowed; threads as in settings. 0, or -1 with err (memory). */
int sim_breakdown_open(const uint32_t *layer, uint32_t layer_count, uint32_t threads,
                       struct sim_breakdown *breakdown, char *err, size_t err_len);
void sim_breakdown_close(struct sim_breakdown *breakdown); /* Safe on a zeroed struct. */

/* Take a prepared cell apart and add it up. layer_index counts the plan's layers from 0. 0, or
 * -1 with err (memory). */
int sim_breakdown_add(struct sim_breakdown *breakdown, const struct sim_cell *cell,
                      uint32_t layer_index, char *err, size_t err_len);

/* The same for one exchange alone, of either direction. */
int sim_breakdown_add_exchange(struct sim_breakdown *breakdown, const struct sim_exchange *exchange,
                               char *err, size_t err_len);

/* The document under "explain"; picoseconds as integers, so that parts sum. A new reference. */
json_t *sim_breakdown_json(const struct sim_breakdown *breakdown);

#endif
