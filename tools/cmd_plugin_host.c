/* tools/cmd_plugin_host.c - the process in which a plugin is loaded (sim/plugin.h). Started by the
 * program itself, so it is in no list of commands. */
#include <stdio.h>
#include "sim/plugin.h"
#include "tools/commands.h"

int cmd_plugin_host(int argc, char **argv)
{
    int fds[3];
    if (argc != 5) {
        fputs("epsim plugin-host: started by epsim itself, for --backend PATH.so\n", stderr);
        return EXIT_USAGE;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t number = 0;
        if (sim_parse_u64(argv[2 + i], 0, INT32_MAX, &number) != 0) return EXIT_USAGE;
        fds[i] = (int)number;
    }
    return sim_plugin_serve(argv[1], fds[0], fds + 1);
}
