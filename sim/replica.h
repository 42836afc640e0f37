/* sim/replica.h - one layer of a recorded run, executed again from its settings.
 *
 * Payloads are never stored: whoever wants to see the bytes of a (step, layer) makes them anew.
 * Everything that the bytes depend on is in the settings: routing, seed, shapes, faults. */
#ifndef SIM_REPLICA_H
#define SIM_REPLICA_H

#include <stddef.h>
#include <stdint.h>
#include "sim/backends.h"
#include "sim/cell.h"

struct sim_replica {
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_engine *engine;
    struct sim_cell *cell;
    struct sim_backend_choice backend;
    struct sim_datapath *path;
    struct sim_layer_input input; /* Borrows from cell. */
};

/* Play (step, layer) of a run with these settings. 0; -1 with one line when it cannot be played
 * here (a trace is gone, a backend is not at hand). Free with sim_replica_close either way. */
int sim_replica_open(const struct sim_settings *settings, uint64_t step, uint32_t layer,
                     struct sim_replica *replica, char *err, size_t err_len);
void sim_replica_close(struct sim_replica *replica); /* Safe on a zeroed struct. */

#endif
