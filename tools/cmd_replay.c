/* tools/cmd_replay.c - `epsim replay`: steps with routing from a captured trace. */
#include "tools/play.h"

static const char *const OPTIONS[] = {"offsets",
                                      "weights",
                                      "model",
                                      "machine",
                                      "ep",
                                      "nodes",
                                      "mode",
                                      "recipe",
                                      "tokens",
                                      "capacity",
                                      "steps",
                                      "layers",
                                      "qp-depth",
                                      "sms",
                                      "expert",
                                      "backend",
                                      "after",
                                      "allow",
                                      "scenario",
                                      "skew",
                                      "hook",
                                      "detail",
                                      "overlap",
                                      "context",
                                      "phase",
                                      "verify",
                                      "prompt",
                                      "attn-tp",
                                      "attention",
                                      "gather",
                                      "padding",
                                      "gemm",
                                      "comm-sms",
                                      "seed",
                                      "threads",
                                      "transport",
                                      "gpus",
                                      "mapping",
                                      "host-mib",
                                      "gpu-mib",
                                      "time-limit-s",
                                      "fabric-routing",
                                      "congestion-control",
                                      "background",
                                      "eplb",
                                      "eplb-weights",
                                      "eplb-groups",
                                      "replica",
                                      NULL};

static const struct command_spec SPEC = {
    .name = "replay",
    .arguments = "TRACE",
    .summary = "Play a captured routing trace: --batch decode streams per rank, step by step.",
    .example = "epsim replay topk_ids.npy --offsets offsets.npy --model gpt-oss-20b --ep 8 "
               "--batch 64 --steps 32 --backend ref --db run.db",
    .options = OPTIONS,
    .flags = PLAY_FLAGS,
    .arguments_min = 1,
    .arguments_max = 1,
};

int cmd_replay(int argc, char **argv)
{
    struct command_line line;
    char err[512];
    int status = command_line_parse(&SPEC, argc, argv, &line);
    if (status >= 0) return status;
    if (sim_settings_set(&line.settings, "routing", line.arguments[0], err, sizeof err) != 0)
        return command_fail(&SPEC, EXIT_USAGE, err);
    command_typed_as(&line, "routing", "TRACE");
    return play_run(&line, argc, argv);
}
