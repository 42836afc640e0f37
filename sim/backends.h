/* sim/backends.h - backends by name. */
#ifndef SIM_BACKENDS_H
#define SIM_BACKENDS_H

#include <stddef.h>
#include "sim/backend.h"

/* none (*ops = NULL: nothing is moved), ref or cuda. 0, or -1 with one line: the environment
 * lacks it. */
int sim_backend_find(const char *name, const struct sim_backend_ops **ops, char *err,
                     size_t err_len);

#endif
