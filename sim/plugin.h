/* sim/plugin.h - a backend in a shared object of somebody else's, held at arm's length.
 *
 * The shared object is loaded by a process of its own, this program again with a hidden
 * subcommand, started before anything here touches a GPU. What it computes comes back through
 * shared memory; whatever it does to itself (a crash, a hang, an exit) comes back as one line of
 * text. To its user it is a table like any other: sim_plugin_ops. Nothing outlives the run: the
 * shared memory has no name, and the process dies with its parent. */
#ifndef SIM_PLUGIN_H
#define SIM_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"

enum { SIM_PLUGIN_LIMIT_S = 60, SIM_PLUGIN_LIMIT_S_MAX = 86400 };

struct sim_plugin;

struct sim_plugin_options {
    const char *program; /* What runs sim_plugin_serve; NULL: the program that is running. */
    uint32_t limit_s;    /* For each operation, loading included; 0: SIM_PLUGIN_LIMIT_S. */
};

/* Load path once, in a process that the first open of the table then takes over, and check its
 * table: version, size, required operations. NULL with one line that starts with the path:
 *     ./x.so: table has abi 2, this program speaks 1
 *     ./x.so: table of 40 bytes ends before `expert`, which is required
 *     ./x.so: SIGSEGV in load */
struct sim_plugin *sim_plugin_open(const char *path, const struct sim_plugin_options *options,
                                   char *err, size_t err_len);
void sim_plugin_close(struct sim_plugin *plugin); /* After every state; NULL is fine. */

/* The table, valid until sim_plugin_close. Phase operations are NULL where the plugin has none.
 * open and close are called from one thread at a time; each open starts a process. Operations fail
 * with SIM_BACKEND_FAILED and a line like "./x.so: SIGSEGV in dispatch"; dispatch puts
 * rows of low-latency blocks in order (sim/backend.h). */
const struct sim_backend_ops *sim_plugin_ops(const struct sim_plugin *plugin);
const char *sim_plugin_name(const struct sim_plugin *plugin); /* As its table says. */

/* What went wrong in the table's close, which cannot say so itself; "" when nothing did. */
const char *sim_plugin_complaint(const struct sim_plugin *plugin);

/* Is it the path of a plugin, rather than the name of a backend of ours: has it a '/' or ".so"? */
bool sim_plugin_is_path(const char *name);

/* The other side: load path, answer on socket_fd until it ends, with the shared memory region_fds
 * [2]. Returns the exit status of its process. */
int sim_plugin_serve(const char *path, int socket_fd, const int *region_fds);

#endif
