/* sim/backends.h - backends by name, and how they are opened. */
#ifndef SIM_BACKENDS_H
#define SIM_BACKENDS_H

#include <stddef.h>
#include "sim/backend.h"
#include "sim/plugin.h"
#include "sim/settings.h"

enum { SIM_BACKEND_UNKNOWN = -2 };

/* none (*ops = NULL: nothing is moved), ref or cuda. 0; -1 with one line when the environment
 * lacks it; SIM_BACKEND_UNKNOWN with one line when there is no such backend. */
int sim_backend_find(const char *name, const struct sim_backend_ops **ops, char *err,
                     size_t err_len);

/* What --backend named: one of ours, or somebody's plugin. */
struct sim_backend_choice {
    const struct sim_backend_ops *ops; /* NULL: none. */
    struct sim_plugin *plugin;         /* Owned; NULL where the table is one of ours. */
};

/* The same for settings->backend, which may also be the path of a plugin; that is loaded now, in
 * its own process (sim/plugin.h), with settings->time_limit_s. *choice is written on success. */
int sim_backend_choose(const struct sim_settings *settings, struct sim_backend_choice *choice,
                       char *err, size_t err_len);
/* After every state is closed. 0, or -1 with one line when a plugin failed in its close. Safe on
 * a zeroed struct. */
int sim_backend_release(struct sim_backend_choice *choice, char *err, size_t err_len);

/* What --transport, --gpus and --mapping say; all else is the default. 0, or -1 with one line when
 * they ask something of a backend that has no GPUs. */
int sim_backend_place(const struct sim_settings *settings, struct sim_backend_place *place,
                      char *err, size_t err_len);

/* Bytes free on the settings' GPUs together, of what --gpu-mib allows. 0, or -1 with err: no GPU,
 * or fewer than --gpus. */
int sim_backend_cuda_room(const struct sim_settings *settings, uint64_t *bytes, char *err,
                          size_t err_len);

/* Open there (NULL: the default). A backend that cannot choose is opened as it is. */
int sim_backend_open(const struct sim_backend_ops *ops, const struct sim_backend_place *place,
                     void **state_out, char *err, size_t err_len);

#endif
