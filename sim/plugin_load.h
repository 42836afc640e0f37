/* sim/plugin_load.h - a shared object becomes a table that can be called, or a reason why not. */
#ifndef SIM_PLUGIN_LOAD_H
#define SIM_PLUGIN_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include "sim/backend.h"

/* Load the shared object into this process and check its table: version, size, required
 * operations, phase operations all or none. On success text gets the table's own name; otherwise
 * NULL and text says why, without the path. Nothing is unloaded. */
const struct sim_backend_ops *plugin_load(const char *path, char *text, size_t text_len);

/* Is the table good? The same checks, on a table that is there (NULL is not good). */
bool plugin_check_table(const struct sim_backend_ops *ops, char *text, size_t text_len);

/* Of a good table. */
bool plugin_offers_phases(const struct sim_backend_ops *ops);

#endif
