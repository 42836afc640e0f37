/* tools/cmd_run.c - `epsim run`: steps with generated routing. */
#include "tools/play.h"

static const char *const OPTIONS[] = {"model",        "machine",        "ep",
                                      "nodes",        "mode",           "recipe",
                                      "tokens",       "capacity",       "steps",
                                      "layers",       "routing",        "qp-depth",
                                      "sms",          "expert",         "backend",
                                      "after",        "allow",          "scenario",
                                      "skew",         "hook",           "detail",
                                      "overlap",      "context",        "phase",
                                      "verify",       "prompt",         "attn-tp",
                                      "attention",    "gather",         "padding",
                                      "gemm",         "comm-sms",       "seed",
                                      "threads",      "transport",      "gpus",
                                      "mapping",      "host-mib",       "gpu-mib",
                                      "time-limit-s", "fabric-routing", "congestion-control",
                                      "background",   "eplb",           "eplb-weights",
                                      "eplb-groups",  "replica",        NULL};

static const struct command_spec SPEC = {
    .name = "run",
    .arguments = "",
    .summary = "Simulate dispatch and combine of every MoE layer with generated routing.",
    .example = "epsim run --model deepseek-v3 --machine h200-hgx --ep 16 --tokens 128 --steps 4",
    .options = OPTIONS,
    .flags = PLAY_FLAGS,
};

int cmd_run(int argc, char **argv)
{
    struct command_line line;
    const int status = command_line_parse(&SPEC, argc, argv, &line);
    return status >= 0 ? status : play_run(&line, argc, argv);
}
