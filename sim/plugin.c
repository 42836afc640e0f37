/* sim/plugin.c - the table that stands for a plugin: what is offered, and under which name. */
#include "sim/plugin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plugin_private.h"

bool sim_plugin_is_path(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') != NULL || strstr(name, ".so.") != NULL ||
           (length >= 3 && strcmp(name + length - 3, ".so") == 0);
}

static void fill_table(struct sim_plugin *plugin, bool phases)
{
    plugin->ops = (struct sim_backend_ops){.abi = SIM_BACKEND_ABI,
                                           .table_bytes = sizeof(struct sim_backend_ops),
                                           .name = plugin->name,
                                           .open = plugin_open_state,
                                           .close = plugin_close_state,
                                           .dispatch = plugin_dispatch,
                                           .expert = plugin_expert,
                                           .combine = plugin_combine};
    if (!phases) return;
    plugin->ops.begin = plugin_begin;
    plugin->ops.pack = plugin_pack;
    plugin->ops.deliver = plugin_deliver;
    plugin->ops.forward = plugin_forward;
    plugin->ops.unpack = plugin_unpack;
    plugin->ops.run_expert = plugin_run_expert;
    plugin->ops.read = plugin_read;
}

struct sim_plugin *sim_plugin_open(const char *path, const struct sim_plugin_options *options,
                                   char *err, size_t err_len)
{
    const char *program = options->program != NULL ? options->program : "/proc/self/exe";
    struct sim_plugin *plugin = (struct sim_plugin *)calloc(1, sizeof *plugin);
    bool phases = false;

    assert(options->limit_s <= SIM_PLUGIN_LIMIT_S_MAX);
    if (plugin == NULL) {
        snprintf(err, err_len, "%.256s: out of memory", path);
        return NULL;
    }
    /* dlopen searches the system's folders for a name without a '/'; a user means the file. */
    const int path_length = snprintf(plugin->path, sizeof plugin->path, "%s%s",
                                     strchr(path, '/') != NULL ? "" : "./", path);
    const int program_length = snprintf(plugin->program, sizeof plugin->program, "%s", program);
    if ((size_t)path_length >= sizeof plugin->path ||
        (size_t)program_length >= sizeof plugin->program) {
        snprintf(err, err_len, "%.256s: path is too long", path);
        goto free_plugin;
    }
    plugin->limit_s = options->limit_s > 0 ? options->limit_s : SIM_PLUGIN_LIMIT_S;
    plugin->spare = plugin_child_open(plugin, &phases, err, err_len);
    if (plugin->spare == NULL) goto free_plugin;
    fill_table(plugin, phases);
    return plugin;
free_plugin:
    free(plugin);
    return NULL;
}

void sim_plugin_close(struct sim_plugin *plugin)
{
    if (plugin == NULL) return;
    plugin_child_close(plugin->spare);
    free(plugin);
}

const struct sim_backend_ops *sim_plugin_ops(const struct sim_plugin *plugin)
{
    return &plugin->ops;
}

const char *sim_plugin_name(const struct sim_plugin *plugin)
{
    return plugin->name;
}

const char *sim_plugin_complaint(const struct sim_plugin *plugin)
{
    return plugin->complaint;
}
