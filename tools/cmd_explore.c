/* tools/cmd_explore.c - walks a protocol's interleavings: safe, or the shortest way to break it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ref/sizes.h"
#include "sim/explore.h"
#include "tools/commands.h"

/* flags[0] is everyone's; the others belong to one protocol each, or to two. */
enum { FLAG_TOKENS, FLAG_ORDERING, FLAG_TAG, FLAG_DEPTH, FLAG_CAPACITY, FLAG_OUTSTANDING, FLAGS };

static const struct command_flag flags[] = {
    {"tokens", "N", "rows of one call to one expert of another rank [128]"},
    {"ordering", "TEXT", "sentinel: ordered (poll after counting) or unordered [ordered]"},
    {"tag", "N", "sentinel: the tag added twice [1024]"},
    {"depth", "N", "qp: work requests the queue pair holds [1024]"},
    {"capacity", "M", "qp: rows a kernel may send [tokens rounded up to 128]"},
    {"outstanding", "N", "buffers: results held unread at once [2]"},
    {NULL, NULL, NULL},
};

static const char *const TAKEN_BY[FLAGS] = {"", "sentinel", "sentinel", "qp", "qp", "buffers"};

static const struct command_spec spec = {
    .name = "explore",
    .arguments = "sentinel|qp|buffers|skew",
    .summary =
        "Walk every interleaving of a low-latency protocol: its completion counter, its\n"
        "queue pair's ring, or its two buffers. Prints safe (exit status 0), or the\n"
        "shortest schedule that breaks it and the rows that then are wrong (1). explore skew\n"
        "(see its own --help) shows what late ranks do to a kernel's time.",
    .example = "epsim explore sentinel --tokens 1025 --ordering unordered",
    .flags = flags,
    .arguments_min = 1,
    .arguments_max = 1,
};

/* Complains where the flag belongs to another protocol, or is no number from 1 to max. */
static int read_number(const struct command_line *line, int flag, uint32_t max, uint32_t *out,
                       char *err, size_t err_len)
{
    const char *text = line->flag_values[flag];
    uint64_t value = 0;

    if (text == NULL) return 0;
    if (sim_parse_u64(text, 1, max, &value) != 0) {
        snprintf(err, err_len, "--%s: %.32s: must be a whole number from 1 to %" PRIu32,
                 flags[flag].name, text, max);
        return -1;
    }
    *out = (uint32_t)value;
    return 0;
}

static int read_protocol(const struct command_line *line, struct sim_explore_ask *ask, char *err,
                         size_t err_len)
{
    const char *name = line->arguments[0];
    int p = SIM_EXPLORE_SENTINEL;

    while (p <= SIM_EXPLORE_BUFFERS && strcmp(name, sim_explore_name((enum sim_explore_protocol)p)))
        p++;
    if (p > SIM_EXPLORE_BUFFERS) {
        snprintf(err, err_len, "%.64s: must be sentinel, qp, buffers or skew", name);
        return -1;
    }
    ask->protocol = (enum sim_explore_protocol)p;
    for (int f = 0; f < FLAGS; f++) {
        if (line->flag_values[f] == NULL || TAKEN_BY[f][0] == '\0' || !strcmp(TAKEN_BY[f], name))
            continue;
        snprintf(err, err_len, "--%s: belongs to %s, not to %s", flags[f].name, TAKEN_BY[f], name);
        return -1;
    }
    return 0;
}

static int read_ask(const struct command_line *line, struct sim_explore_ask *ask, char *err,
                    size_t err_len)
{
    const char *ordering = line->flag_values[FLAG_ORDERING];
    uint32_t tokens = 128;

    *ask = (struct sim_explore_ask){.tag = SIM_EXPLORE_TAG,
                                    .ordered = ordering == NULL || !strcmp(ordering, "ordered"),
                                    .depth = SIM_EXPLORE_DEPTH,
                                    .outstanding = 2};
    if (read_protocol(line, ask, err, err_len) != 0) return -1;
    if (!ask->ordered && strcmp(ordering, "unordered") != 0) {
        snprintf(err, err_len, "--ordering: %.32s: must be ordered or unordered", ordering);
        return -1;
    }
    const uint32_t tokens_max =
        ask->protocol == SIM_EXPLORE_QP ? SIM_EXPLORE_CAPACITY_MAX : SIM_EXPLORE_TOKENS_MAX;
    if (read_number(line, FLAG_TOKENS, tokens_max, &tokens, err, err_len) != 0) return -1;
    ask->tokens = tokens;
    if (ask->protocol == SIM_EXPLORE_QP) ask->tokens = (tokens + 127) / 128 * 128;
    if (read_number(line, FLAG_CAPACITY, SIM_EXPLORE_CAPACITY_MAX, &ask->tokens, err, err_len) ||
        read_number(line, FLAG_TAG, SIM_EXPLORE_TOKENS_MAX, &ask->tag, err, err_len) ||
        read_number(line, FLAG_DEPTH, SIM_EXPLORE_DEPTH_MAX, &ask->depth, err, err_len) ||
        read_number(line, FLAG_OUTSTANDING, SIM_EXPLORE_OUTSTANDING_MAX, &ask->outstanding, err,
                    err_len))
        return -1;
    if (line->flag_values[FLAG_TOKENS] != NULL && ask->tokens < tokens) {
        snprintf(err, err_len, "--capacity: %" PRIu32 ": must be at least --tokens %" PRIu32,
                 ask->tokens, tokens);
        return -1;
    }
    return 0;
}

/* What was asked: the numbers that the protocol has, given or not. */
static json_t *ask_json(const struct sim_explore_ask *ask)
{
    switch (ask->protocol) {
    case SIM_EXPLORE_SENTINEL:
        return json_pack("{s:I, s:I, s:s}", "tokens", (json_int_t)ask->tokens, "tag",
                         (json_int_t)ask->tag, "ordering", ask->ordered ? "ordered" : "unordered");
    case SIM_EXPLORE_QP:
        return json_pack("{s:I, s:I}", "capacity", (json_int_t)ask->tokens, "depth",
                         (json_int_t)ask->depth);
    case SIM_EXPLORE_BUFFERS: break;
    }
    return json_pack("{s:I, s:I}", "tokens", (json_int_t)ask->tokens, "outstanding",
                     (json_int_t)ask->outstanding);
}

static json_t *exploration_json(const struct sim_exploration *exploration)
{
    const struct sim_explore_ask *ask = &exploration->ask;
    json_t *json = json_object(), *schedule = json_array(), *rows = json_array();
    struct sim_explore_reader reader = {0, {0}};
    char text[256];

    while (sim_explore_line(exploration, &reader, false, text, sizeof text))
        json_array_append_new(schedule, json_string(text));
    for (uint64_t r = 0; r < exploration->row_count; r++) {
        const struct sim_explore_row *row = &exploration->rows[r];
        json_array_append_new(rows, json_pack("{s:I, s:I, s:I}", "expert", (json_int_t)row->expert,
                                              "src_rank", (json_int_t)row->src_rank, "src_token",
                                              (json_int_t)row->src_token));
    }
    json_object_set_new(json, "protocol", json_string(sim_explore_name(ask->protocol)));
    json_object_set_new(json, "question", ask_json(ask));
    json_object_set_new(json, "tokens", json_integer(ask->tokens));
    json_object_set_new(json, "safe", json_boolean(exploration->safe));
    json_object_set_new(json, "states", json_integer((json_int_t)exploration->states));
    json_object_set_new(json, "schedule", schedule);
    json_object_set_new(json, "wrong_rows", json_integer((json_int_t)exploration->row_count));
    json_object_set_new(json, "rows", rows);
    if (ask->protocol == SIM_EXPLORE_QP)
        json_object_set_new(json, "depth_enough",
                            json_integer((json_int_t)ref_size_qp_depth(ask->tokens)));
    return json;
}

static void print_ask(const struct sim_explore_ask *ask)
{
    switch (ask->protocol) {
    case SIM_EXPLORE_SENTINEL:
        printf("sentinel: %" PRIu32 " sends to one expert, tag %" PRIu32 ", %s\n", ask->tokens,
               ask->tag,
               ask->ordered ? "the poller starts after B (ordered)"
                            : "the poller may start at any time (unordered)");
        return;
    case SIM_EXPLORE_QP:
        printf("qp: ring of %" PRIu32 " work requests, %" PRIu32
               " rows and a flag per kernel, two kernels in flight\n",
               ask->depth, ask->tokens);
        return;
    case SIM_EXPLORE_BUFFERS:
        printf("buffers: two buffers, at most %" PRIu32 " result%s held, read in order\n",
               ask->outstanding, ask->outstanding > 1 ? "s" : "");
        return;
    }
}

/* Source tokens in a row are one range. */
static void print_rows(const struct sim_exploration *exploration)
{
    const struct sim_explore_row *rows = exploration->rows;
    printf("\nreplayed: %" PRIu64 " of %" PRIu32 " rows are wrong\n", exploration->row_count,
           exploration->ask.tokens);
    for (uint64_t r = 0, end = 0; r < exploration->row_count; r = end) {
        for (end = r + 1;
             end < exploration->row_count && rows[end].src_token == rows[end - 1].src_token + 1;)
            end++;
        printf("  expert %" PRIu32 ", source rank %" PRIu32 ", token%s %" PRIu32, rows[r].expert,
               rows[r].src_rank, end - r > 1 ? "s" : "", rows[r].src_token);
        if (end - r > 1) printf(" to %" PRIu32, rows[end - 1].src_token);
        putchar('\n');
    }
}

static void print_exploration(const struct sim_exploration *exploration)
{
    struct sim_explore_reader reader = {0, {0}};
    char text[256];

    print_ask(&exploration->ask);
    if (exploration->safe) {
        printf("safe: none of %" PRIu64 " states breaks it\n", exploration->states);
        return;
    }
    printf("unsafe: %" PRIu64 " states; the shortest schedule that breaks it has %" PRIu64
           " steps:\n",
           exploration->states, exploration->step_count);
    while (sim_explore_line(exploration, &reader, true, text, sizeof text)) printf("  %s\n", text);
    print_rows(exploration);
    if (exploration->ask.protocol == SIM_EXPLORE_QP)
        printf("\nenough: a depth of %" PRIu64 ", 2 * (%" PRIu32 " rows + 1 flag)\n",
               ref_size_qp_depth(exploration->ask.tokens), exploration->ask.tokens);
}

int cmd_explore(int argc, char **argv)
{
    struct command_line line;
    struct sim_explore_ask ask;
    struct sim_exploration exploration;
    char err[256] = "";
    if (argc > 1 && strcmp(argv[1], "skew") == 0) return cmd_explore_skew(argc - 1, argv + 1);
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    if (read_ask(&line, &ask, err, sizeof err) != 0) return command_fail(&spec, EXIT_USAGE, err);
    if (sim_explore(&ask, &exploration, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_ENVIRONMENT, err);
    status = exploration.safe ? EXIT_OK : EXIT_NO;
    if (!line.json)
        print_exploration(&exploration);
    else if (command_print_json(exploration_json(&exploration)) != EXIT_OK)
        status = EXIT_ENVIRONMENT;
    sim_explore_free(&exploration);
    return status;
}
