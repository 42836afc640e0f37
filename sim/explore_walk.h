/* sim/explore_walk.h - breadth-first walk over the states of a small protocol.
 *
 * Who asks and what the states mean is sim/explore.h's; this only sees numbers. */
#ifndef SIM_EXPLORE_WALK_H
#define SIM_EXPLORE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/explore.h"

/* A protocol as the walk sees it. States are numbered from 0; 0 is where it starts. */
struct sim_explore_model {
    uint64_t state_max; /* States are below it; at most UINT32_MAX. */
    uint32_t moves;     /* Who may act next, 0..moves - 1; at most 255. */
    /* The state after a move, or false when the move is not possible there. */
    bool (*step)(const struct sim_explore_ask *ask, uint64_t state, uint32_t move, uint64_t *next);
    /* Is the promise broken in this state? A broken state is not walked on from. */
    bool (*broken)(const struct sim_explore_ask *ask, uint64_t state);
};

/* Each protocol as states and moves, in the sizes that the ask gives. */
struct sim_explore_model sim_explore_sentinel(const struct sim_explore_ask *ask);
struct sim_explore_model sim_explore_qp(const struct sim_explore_ask *ask);
struct sim_explore_model sim_explore_buffers(const struct sim_explore_ask *ask);

/* The counter once A or B is done (or not) and so many sends are. */
int64_t sim_explore_counter(const struct sim_explore_ask *ask, bool tagged, bool counted,
                            uint64_t sent);

/* The moves of each protocol, in the order in which the walk tries them. */
enum { SENTINEL_TAG, SENTINEL_COUNT, SENTINEL_SEND, SENTINEL_POLL };
enum { QP_POST, QP_TAKE };
enum { BUFFERS_CALL, BUFFERS_READ };

/* Fills states, safe, step_count and steps. 0, or -1 with err. */
int sim_explore_walk(const struct sim_explore_model *model, struct sim_exploration *out, char *err,
                     size_t err_len);

/* Play the schedule on the data path; fills row_count and rows. 0, or -1 with err. */
int sim_explore_replay(struct sim_exploration *exploration, char *err, size_t err_len);

#endif
