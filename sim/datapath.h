/* sim/datapath.h - one layer's bytes, moved twice and compared.
 *
 * Once as the clock says: the backend's phase operations, message by message in landing order
 * (or, for a backend without phases and on the direct transport, its group operations). Once by the
 * reference's group operations, straight from routing and inputs by index arithmetic. Every stage's
 * output of every rank is compared byte by byte and digested. One datapath per thread. */
#ifndef SIM_DATAPATH_H
#define SIM_DATAPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/datapath_check.h"
#include "sim/schedule.h"
#include "sim/wrong_rows.h"

struct sim_datapath;

/* backend is borrowed until close; its state is opened at the place (NULL: the default) and owned
 * here. NULL with err on failure. */
struct sim_datapath *sim_datapath_open(const struct sim_backend_ops *backend,
                                       const struct sim_backend_place *place, char *err,
                                       size_t err_len);
void sim_datapath_close(struct sim_datapath *path); /* NULL is fine. */

/* Play one layer. schedules: [SIM_DIRECTIONS]. checks: [SIM_STAGES][ranks], filled; wrong (or
 * NULL): the rows that differ, filled. 0, or -1 with err when the backend or memory failed; a
 * mismatch is an answer, not a failure. */
int sim_datapath_layer(struct sim_datapath *path, const struct sim_layer_input *input,
                       const struct sim_schedule *schedules, struct sim_check *checks,
                       struct sim_wrong_rows *wrong, char *err, size_t err_len);

/* Drive a backend's phases through both schedules: begin, dispatch's calls, every rank's experts,
 * combine's calls. *view: what read shows, valid until the state's next call. 0, or -1 with err. */
int sim_datapath_phases(const struct sim_backend_ops *ops, void *state,
                        const struct sim_layer_input *input, const struct sim_schedule *schedules,
                        struct sim_layer_results *view, char *err, size_t err_len);

/* What the last layer left, for whoever wants to look closer (diff): valid until the next. */
const struct sim_layer_results *sim_datapath_expected(const struct sim_datapath *path);
const struct sim_layer_results *sim_datapath_actual(const struct sim_datapath *path);

#endif
