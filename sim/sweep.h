/* sim/sweep.h - a grid of what-ifs: which settings, and what each of them gave.
 *
 * A cell is a run: base settings with one value of every axis. Cells are numbered with the last
 * axis varying fastest. Workers evaluate them in any order; results are taken by number, so they
 * do not depend on the number of workers. Nothing here writes: the caller keeps what is done. */
#ifndef SIM_SWEEP_H
#define SIM_SWEEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/settings.h"

enum { SIM_SWEEP_AXES_MAX = 16, SIM_SWEEP_VALUES_MAX = 256, SIM_SWEEP_CELLS_MAX = 1000000 };

struct sim_sweep_axis {
    const char *option; /* Name in sim_options(): "ep". */
    char *text;         /* Owned: the list, cut into its values. */
    uint32_t count;     /* Of values; at least 1. */
    const char *values[SIM_SWEEP_VALUES_MAX];
};

struct sim_sweep {
    struct sim_settings base;
    uint32_t axis_count;
    struct sim_sweep_axis axes[SIM_SWEEP_AXES_MAX];
};

void sim_sweep_init(struct sim_sweep *sweep, const struct sim_settings *base);
void sim_sweep_free(struct sim_sweep *sweep); /* Safe on a zeroed struct. */

/* Add an axis: a comma list of values of an option, "8,16,32". Each value must be one that the
 * option takes, and stands once. 0, or -1 with one line in err. */
int sim_sweep_add(struct sim_sweep *sweep, const char *option, const char *list, char *err,
                  size_t err_len);

uint32_t sim_sweep_cells(const struct sim_sweep *sweep); /* Product of the counts; at least 1. */

/* Which value of an axis a cell has. */
uint32_t sim_sweep_at(const struct sim_sweep *sweep, uint32_t cell, uint32_t axis);

/* The cell's settings. */
void sim_sweep_settings(const struct sim_sweep *sweep, uint32_t cell,
                        struct sim_settings *settings);

/* --- evaluating ----------------------------------------------------------------------------- */

enum sim_sweep_state { SIM_SWEEP_DONE, SIM_SWEEP_REFUSED, SIM_SWEEP_FAILED, SIM_SWEEP_STATES };
const char *sim_sweep_state_name(enum sim_sweep_state state); /* done, refused, failed */

struct sim_sweep_result {
    uint32_t cell;
    enum sim_sweep_state state;
    json_t *summary; /* New reference: sim_what_if_json, or {"why": LINE} when not done. */
};

/* Take one result, in the order of ending; free to write and print. Return false to stop early. */
typedef bool (*sim_sweep_take_fn)(void *context, const struct sim_sweep_result *result);

/* Evaluate the cells for which skip (may be NULL; [cells]) is false, on threads workers (0: all
 * cores). take is called from the calling thread alone. 0, or -1 with err when a thread cannot be
 * started. */
int sim_sweep_play(const struct sim_sweep *sweep, const bool *skip, uint32_t threads,
                   sim_sweep_take_fn take, void *context, char *err, size_t err_len);

#endif
