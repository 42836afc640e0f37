/* tests/plugin_ref.c - the reference as a plugin, linked with the library: a table with phase
 * operations on the far side of a plugin's process. */
#include "sim/backend.h"

const struct sim_backend_ops *sim_backend_v1(void)
{
    return sim_backend_ref();
}
