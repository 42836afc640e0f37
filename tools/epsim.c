/* tools/epsim.c - the program: picks the subcommand. */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "gen/config.h"
#include "gen/version.h"
#include "tools/commands.h"
#include "traces/file_cut.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

/* One line each; a command's own file says more. */
static const struct command COMMANDS[] = {
    {"verify", cmd_verify, "a backend against captures of the real kernels, or over named cases"},
    {"expect", cmd_expect, "the reference's results for inputs in the capture format"},
    {"check", cmd_check, "every precondition of a deployment"},
    {"ledger", cmd_ledger, "bytes per crossing: by formula, counted, on the wire"},
    {"machines", cmd_machines, "list and show machine files"},
    {"models", cmd_models, "list and show model files"},
    {"run", cmd_run, "simulate steps with generated routing"},
    {"replay", cmd_replay, "the same with routing from a captured trace"},
    {"sweep", cmd_sweep, "a grid of what-ifs: compare, plot, advise"},
    {"diff", cmd_diff, "two runs or two folders: first difference, and times side by side"},
    {"accuracy", cmd_accuracy, "predicted against measured times, by row and by group"},
    {"calibrate", cmd_calibrate, "fit a machine file to measurements"},
    {"export", cmd_export, "a run for Perfetto and chrome://tracing"},
    {"report", cmd_report, "a run as one HTML page"},
    {"eplb", cmd_eplb, "placement of expert replicas from weights"},
    {"imbalance", cmd_imbalance, "load of experts and ranks, and what adjacent tokens share"},
    {"explore", cmd_explore, "walk a protocol's interleavings: safe, or the way to break it"},
    {"bench", cmd_bench, "the speed of engine, simulation, reference and kernels themselves"},
    {NULL, NULL, NULL},
};

static void print_usage(void)
{
    fputs("epsim: simulate and verify expert-parallel dispatch and combine\n\n"
          "usage: epsim COMMAND [options]; `epsim COMMAND --help` says more\n\n",
          stdout);
    for (const struct command *command = COMMANDS; command->name != NULL; command++)
        printf("  %-10s %s\n", command->name, command->summary);
    fputs("\n  --version  name, version, commit, CUDA yes or no\n", stdout);
}

/* What was printed must have arrived: a full disk or a closed pipe is a failure. */
static int check_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "epsim: standard output: %s\n", strerror(errno));
    return EXIT_ENVIRONMENT;
}

int main(int argc, char **argv)
{
#ifdef __GLIBC__
    /* Keep what one layer gives back for the next: taking pages anew costs a tenth of a run. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
    trace_file_cut_watch();
    (void)signal(SIGXFSZ, SIG_IGN); /* A file that may not grow is an error, not a death. */
    if (argc < 2) {
        print_usage();
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage();
        return check_output(EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("epsim %s (commit %s, CUDA %s)\n", EPSIM_VERSION, EPSIM_COMMIT,
               EPSIM_CUDA ? "yes" : "no");
        return EXIT_OK;
    }
    for (const struct command *command = COMMANDS; command->name != NULL; command++)
        if (strcmp(argv[1], command->name) == 0)
            return check_output(command->run(argc - 1, argv + 1));
    if (strcmp(argv[1], "plugin-host") == 0) return cmd_plugin_host(argc - 1, argv + 1);
    fprintf(stderr, "epsim: %.64s: no such command; `epsim --help` lists them\n", argv[1]);
    return EXIT_USAGE;
}
