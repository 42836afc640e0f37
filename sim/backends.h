/* sim/backends.h - backends by name. */
#ifndef SIM_BACKENDS_H
#define SIM_BACKENDS_H

#include <stddef.h>
#include "sim/backend.h"

enum { SIM_BACKEND_UNKNOWN = -2 };

/* none (*ops = NULL: nothing is moved), ref or cuda. 0; -1 with one line when the environment
 * lacks it; SIM_BACKEND_UNKNOWN with one line when there is no such backend. */
int sim_backend_find(const char *name, const struct sim_backend_ops **ops, char *err,
                     size_t err_len);

#endif
