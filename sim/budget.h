/* sim/budget.h - how much memory a run will take, before it takes any.
 *
 * Rows are counted, as the arenas are: nothing is kept for tokens that nobody sends. Before the
 * routing is known, a run is held against the most rows that its tokens can make, and has fewer
 * layers in flight where that is too much; each layer is then counted before it is played, and
 * refused with the number of bytes missing where even so there is no room for it. */
#ifndef SIM_BUDGET_H
#define SIM_BUDGET_H

#include <stddef.h>
#include <stdint.h>
#include "sim/plan.h"
#include "sim/traffic.h"

/* Rows of one layer, by what they are (sim/traffic.h). */
struct sim_budget_rows {
    uint64_t tokens;
    uint64_t received;
    uint64_t rails;
    uint64_t contributions;
    uint64_t home;
    uint64_t messages[SIM_DIRECTIONS];
    uint64_t answers; /* Room for what MLPs make, a row each time a token names an expert; a rank
                         that is named has room for all of a token's. */
    uint64_t answers_most; /* Of the rank that has most of them. */
};

struct sim_budget_need {
    uint64_t cell_bytes;   /* Host: a layer's inputs, messages and times. */
    uint64_t worker_bytes; /* Host: its bytes, moved by the backend and by the reference. */
    uint64_t gpu_bytes;    /* Backend cuda: on all GPUs together. */
};

/* What the layer has, and the most that any layer of the plan can have. */
struct sim_budget_rows sim_budget_rows_counted(const struct sim_traffic *traffic);
struct sim_budget_rows sim_budget_rows_most(const struct sim_plan *plan);

/* The plan's backend must move bytes. */
struct sim_budget_need sim_budget_need(const struct sim_plan *plan,
                                       const struct sim_budget_rows *rows);

/* Host memory of so many layers in flight: sim/pool.h keeps two more prepared. */
uint64_t sim_budget_host_bytes(const struct sim_budget_need *need, uint32_t in_flight);

/* Free for this process: what the settings say, else the system; UINT64_MAX when it does not say.
 */
uint64_t sim_budget_host_room(const struct sim_settings *settings);

/* Most layers in flight, 1 to wanted, that fit in both rooms (gpu_room: of all GPUs). */
uint32_t sim_budget_in_flight(const struct sim_budget_need *most, uint32_t wanted,
                              uint64_t host_room, uint64_t gpu_room);

/* 0, or -1 with one line that says how many bytes are missing. */
int sim_budget_fits(const struct sim_budget_need *need, uint32_t in_flight, uint64_t host_room,
                    char *err, size_t err_len);

#endif
