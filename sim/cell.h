/* sim/cell.h - one layer of one step: its routing, its traffic, its times, its bytes.
 *
 * Prepared on the run's own thread, in order, since a layer starts when the one before it ends;
 * played (data path) on any thread, since a cell's bytes depend on nothing but the cell. A cell's
 * memory is used again for a later one. */
#ifndef SIM_CELL_H
#define SIM_CELL_H

#include <stddef.h>
#include <stdint.h>
#include "sim/arena.h"
#include "sim/datapath.h"
#include "sim/exchange.h"
#include "sim/plan.h"
#include "sim/schedule.h"
#include "sim/source.h"

struct sim_cell {
    const struct sim_plan *plan; /* Borrowed. */
    uint64_t step;
    uint32_t layer;                                     /* Among the model's MoE layers. */
    struct sim_arena idx_arena, weights_arena, x_arena; /* Storage of the routing and of x. */
    struct ref_routing routing;
    struct sim_traffic traffic;
    uint64_t start_ps[SIM_DIRECTIONS][SIM_RANKS_MAX]; /* When each rank's kernel is launched. */
    struct sim_timing timing[SIM_DIRECTIONS];
    struct sim_schedule schedule[SIM_DIRECTIONS];
    bool scheduled; /* By prepare where there are faults, else by play: times need no order. */
    uint64_t routing_digest;
    struct sim_check *checks;     /* Owned, [SIM_STAGES][ranks]; filled by play. */
    struct sim_wrong_rows *wrong; /* Owned; filled by play. */
    bool played;
};

/* Room for any layer of the plan, which is borrowed until close. NULL with err (memory). */
struct sim_cell *sim_cell_open(const struct sim_plan *plan, char *err, size_t err_len);
void sim_cell_close(struct sim_cell *cell); /* NULL is fine. */

/* Take the layer's routing from source (standing at step) and time both directions on engine,
 * dispatch launched at ready_ps [ranks]; ready_ps then becomes when each rank's combine ended.
 * 0, or -1 or -2 with err as sim_schedule_build. */
int sim_cell_prepare(struct sim_cell *cell, const struct sim_source *source, uint64_t step,
                     uint32_t layer, struct sim_engine *engine, uint64_t *ready_ps, char *err,
                     size_t err_len);

/* One direction's exchange, as prepare timed it. Borrows from the cell. */
struct sim_exchange sim_cell_exchange(const struct sim_cell *cell, enum sim_direction direction);

/* Move the cell's bytes and fill checks. 0, or -1 with err. */
int sim_cell_play(struct sim_cell *cell, struct sim_datapath *path, char *err, size_t err_len);

/* What the data path is given for this cell: x is drawn from (seed, step, layer, rank, token).
 * 0, or -1 with err. The input borrows from the cell. */
int sim_cell_input(struct sim_cell *cell, struct sim_layer_input *input, char *err, size_t err_len);

/* Over the cell's routing, event times and check digests, in this order. */
uint64_t sim_cell_digest(const struct sim_cell *cell);

#endif
