/* tools/cmd_explore_skew.c - `epsim explore skew`: one dispatch kernel in a unit test, in a server,
 * and in a server that works between its halves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/generator.h"
#include "sim/model.h"
#include "sim/skew_study.h"
#include "tools/commands.h"
#include "tools/table.h"

/* EP72 is the published group: 256 experts and 32 replicas, four to a rank. Its tokens per rank,
 * its skew and the kernel between the halves were not published. 40 tokens take the unit test's
 * 0.06 ms here; skew and pause then follow from the two other times. */
static const struct command_flag flags[] = {
    {"machine", "NAME|FILE", "machine preset or YAML file [h100-hgx]"},
    {"model", "NAME|FILE", "model preset or YAML file [deepseek-v3]"},
    {"ep", "N", "ranks [72]"},
    {"experts", "N", "physical experts, replicas included [the model's, up to a multiple of ep]"},
    {"tokens", "N", "tokens per rank, assumed [40]"},
    {"skew", "TEXT", "how late ranks are: normal:US or late:RANK:US [normal:54]"},
    {"hook", "US", "other work between send and receive, assumed [81]"},
    {"layers", "N", "layers drawn and averaged over [20]"},
    {"seed", "N", "of routing and skew [1]"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "explore skew",
    .arguments = "",
    .summary = "What ranks that start at different times do to a low-latency dispatch kernel:\n"
               "all together (unit test), skewed (server), and skewed with send and receive as\n"
               "two kernels and other work between them (hook).",
    .example = "epsim explore skew --tokens 40 --skew normal:54 --hook 81",
    .flags = flags,
};

struct asked {
    struct fabric_machine machine;
    struct sim_model model;
    struct sim_skew_ask ask;
};

static int read_number(const struct command_line *line, const char *flag, uint64_t max,
                       uint64_t *out, char *err, size_t err_len)
{
    const char *text = command_line_flag(line, flag);
    const uint64_t min = strcmp(flag, "seed") != 0;
    if (text == NULL || sim_parse_u64(text, min, max, out) == 0) return 0;
    snprintf(err, err_len, "--%s: %.32s: must be a whole number from %" PRIu64 " to %" PRIu64, flag,
             text, min, max);
    return -1;
}

static int read_skew(const struct command_line *line, struct sim_skew_ask *ask, char *err,
                     size_t err_len)
{
    const char *skew = command_line_flag(line, "skew"), *hook = command_line_flag(line, "hook");
    if (sim_skew_parse(skew != NULL ? skew : "normal:54", ask->ranks, &ask->skew, err, err_len) !=
        0)
        return -1;
    if (sim_skew_parse_us(hook != NULL ? hook : "81", &ask->pause_ps) == 0) return 0;
    snprintf(err, err_len, "--hook: %.32s: must be microseconds from 0 to %d", hook,
             SIM_SKEW_US_MAX);
    return -1;
}

static int read_asked(const struct command_line *line, struct asked *asked, char *err,
                      size_t err_len)
{
    const char *machine = command_line_flag(line, "machine");
    const char *model = command_line_flag(line, "model");
    uint64_t ranks = 72, experts = 0, tokens = 40, layers = 20, seed = 1;

    if (fabric_machine_load(machine != NULL ? machine : "h100-hgx", &asked->machine, err,
                            err_len) != 0 ||
        sim_model_load(model != NULL ? model : "deepseek-v3", &asked->model, err, err_len) != 0 ||
        read_number(line, "ep", SIM_RANKS_MAX, &ranks, err, err_len) != 0 ||
        read_number(line, "experts", SIM_EXPERTS_MAX, &experts, err, err_len) != 0 ||
        read_number(line, "tokens", 1024, &tokens, err, err_len) != 0 ||
        read_number(line, "layers", 1000, &layers, err, err_len) != 0 ||
        read_number(line, "seed", INT64_MAX, &seed, err, err_len) != 0)
        return -1;
    if (experts == 0) experts = (asked->model.experts + ranks - 1) / ranks * ranks;
    asked->ask = (struct sim_skew_ask){.machine = &asked->machine,
                                       .ranks = (uint32_t)ranks,
                                       .experts = (uint32_t)experts,
                                       .topk = asked->model.topk,
                                       .hidden = asked->model.hidden_padded,
                                       .tokens = (uint32_t)tokens,
                                       .layers = (uint32_t)layers,
                                       .seed = seed};
    if (experts % ranks != 0 || experts > SIM_EXPERTS_MAX || experts < asked->ask.topk) {
        snprintf(err, err_len,
                 "--experts: %" PRIu64 ": must be a multiple of ep, from top-%" PRIu32 " to %d",
                 experts, asked->ask.topk, SIM_EXPERTS_MAX);
        return -1;
    }
    if (ranks > asked->machine.gpus_per_node && asked->machine.nic_bytes_per_s == 0) {
        snprintf(err, err_len, "--machine: %.64s has no NIC: one node at most",
                 asked->machine.name);
        return -1;
    }
    return read_skew(line, &asked->ask, err, err_len);
}

static const struct {
    const char *name, *text;
} WAYS[3] = {{"unit_test", "unit test: all ranks start together"},
             {"server", "server: skewed, one kernel sends, spins and receives"},
             {"hook", "hook: skewed, other work between send and receive"}};

static int print_json(const struct asked *asked, const struct sim_skew_times *times)
{
    const struct sim_skew_ask *ask = &asked->ask;
    const uint64_t took_ps[3] = {times->unit_ps, times->server_ps, times->hook_ps};
    json_t *us = json_object(), *ratios = json_object();
    for (int way = 0; way < 3; way++) {
        json_object_set_new(us, WAYS[way].name, json_real((double)took_ps[way] / 1e6));
        json_object_set_new(ratios, WAYS[way].name,
                            json_real((double)took_ps[way] / (double)took_ps[0]));
    }
    return command_print_json(json_pack(
        "{s:I, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:o, s:o}", "seed",
        (json_int_t)ask->seed, "machine", asked->machine.name, "model", asked->model.name, "ep",
        (int)ask->ranks, "experts", (int)ask->experts, "tokens_per_rank_assumed", (int)ask->tokens,
        "layers", (int)ask->layers, "skew",
        ask->skew.kind == SIM_SKEW_NORMAL ? "normal"
        : ask->skew.kind == SIM_SKEW_LATE ? "late"
                                          : "none",
        "skew_us", (double)ask->skew.ps / 1e6, "hook_us", (double)ask->pause_ps / 1e6, "spread_us",
        (double)times->spread_ps / 1e6, "dispatch_us", us, "ratios", ratios));
}

static void print_table(const struct asked *asked, const struct sim_skew_times *times)
{
    const struct sim_skew_ask *ask = &asked->ask;
    const uint64_t took_ps[3] = {times->unit_ps, times->server_ps, times->hook_ps};
    struct table *table = table_open("dispatch kernels|>us|>ratio");
    printf("seed      %" PRIu64 "\n", ask->seed);
    printf("group     %s on %s, EP%" PRIu32 ", %" PRIu32 " physical experts, top-%" PRIu32 "\n",
           asked->model.name, asked->machine.name, ask->ranks, ask->experts, ask->topk);
    printf("assumed   %" PRIu32
           " tokens per rank, %.1f us of other work between send and receive\n",
           ask->tokens, (double)ask->pause_ps / 1e6);
    printf("skew      %s %.1f us; the last rank starts %.1f us after the first\n",
           ask->skew.kind == SIM_SKEW_NORMAL ? "normal, standard deviation"
           : ask->skew.kind == SIM_SKEW_LATE ? "one rank late by"
                                             : "none,",
           (double)ask->skew.ps / 1e6, (double)times->spread_ps / 1e6);
    printf("times are modelled: mean over ranks and %" PRIu32
           " layers, spinning included, other work not\n\n",
           ask->layers);
    for (int way = 0; way < 3; way++) {
        table_cell(table, "%s", WAYS[way].text);
        table_cell(table, "%.1f", (double)took_ps[way] / 1e6);
        table_cell(table, "%.2f", (double)took_ps[way] / (double)took_ps[0]);
    }
    table_print(table, stdout);
    table_close(table);
}

int cmd_explore_skew(int argc, char **argv)
{
    struct command_line line;
    struct sim_skew_times times;
    char err[512] = "";
    int status = command_line_parse(&spec, argc, argv, &line);
    struct asked *asked = NULL;

    if (status >= 0) return status;
    asked = (struct asked *)calloc(1, sizeof *asked);
    if (asked == NULL) return command_fail(&spec, EXIT_ENVIRONMENT, "out of memory");
    status = EXIT_OK;
    if (read_asked(&line, asked, err, sizeof err) != 0)
        status = command_fail_line(&line, EXIT_USAGE, err);
    else if (sim_skew_study(&asked->ask, &times, err, sizeof err) != 0)
        status = command_fail(&spec, EXIT_ENVIRONMENT, err);
    else if (line.json)
        status = print_json(asked, &times);
    else
        print_table(asked, &times);
    free(asked);
    return status;
}
