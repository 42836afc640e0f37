/* tools/cmd_export.c - a recorded run in the format of another program. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tools/commands.h"
#include "traces/export_perfetto.h"

static const struct command_flag flags[] = {
    {"perfetto", NULL, "trace events as JSON, for ui.perfetto.dev and chrome://tracing"},
    {"steps", "TEXT",
     "N = the first N, A-B = from A to B; without it at most 200000 rows of spans, messages and "
     "link use, from the first step on"},
    {"out", "FILE", "the file to write, replaced in one step (also -o)"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "export",
    .arguments = "RUN",
    .summary = "A run (FILE: its last; FILE#N) in the format of another program: a track per rank\n"
               "and stream, counters of links and NICs, flows where messages were recorded.",
    .example = "epsim export --perfetto run.db -o run.json",
    .flags = flags,
    .arguments_min = 1,
    .arguments_max = 1,
};

/* NULL, "N" or "A-B". 0 or -1. */
static int read_steps(const char *text, struct trace_export_choice *choice)
{
    const char *dash = text != NULL ? strchr(text, '-') : NULL;
    char first[24] = "0";
    uint64_t from = 0, to = 0;
    if (text == NULL) return 0;
    if (dash != NULL) snprintf(first, sizeof first, "%.*s", (int)(dash - text), text);
    if (sim_parse_u64(first, 0, INT32_MAX, &from) != 0 ||
        sim_parse_u64(dash != NULL ? dash + 1 : text, dash != NULL ? from : 1, INT32_MAX, &to) != 0)
        return -1;
    choice->first_step = (int64_t)from;
    choice->last_step = (int64_t)(dash != NULL ? to : to - 1);
    return 0;
}

/* Where what is left out begins; null when nothing is. */
static json_t *left_out_json(const struct trace_export_part *part)
{
    if (!trace_export_part_cut(part)) return json_null();
    return json_pack("{s:I, s:o}", "step", (json_int_t)part->end_step, "layer",
                     part->end_layer < 0 ? json_null() : json_integer(part->end_layer));
}

int cmd_export(int argc, char **argv)
{
    struct command_line line;
    struct trace_perfetto_counts counts;
    struct trace_export_choice choice = {0, -1, TRACE_EXPORT_ROWS};
    char err[1024] = "", end[64];
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *out = command_line_flag(&line, "out");
    if (command_line_flag(&line, "perfetto") == NULL)
        return command_fail(&spec, EXIT_USAGE, "name a format: --perfetto");
    if (out == NULL || out[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--out: missing: name the file to write");
    if (read_steps(command_line_flag(&line, "steps"), &choice) != 0)
        return command_fail(&spec, EXIT_USAGE,
                            "--steps: must be N (the first N) or A-B with steps from 0");
    struct trace_reader *reader = trace_reader_open(line.arguments[0], err, sizeof err);
    if (reader == NULL) return command_fail(&spec, EXIT_USAGE, err);
    status = trace_export_perfetto(reader, &choice, out, &counts, err, sizeof err);
    trace_reader_close(reader);
    if (status != 0) return command_fail(&spec, status == -1 ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    if (line.json)
        return command_print_json(
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "out", out, "spans",
                      (json_int_t)counts.spans, "counters", (json_int_t)counts.counters, "flows",
                      (json_int_t)counts.flows, "flows_skipped", (json_int_t)counts.flows_skipped,
                      "left_out_from", left_out_json(&counts.part)));
    printf("%" PRIu64 " spans, %" PRIu64 " counter values, %" PRIu64 " flows written to %s\n",
           counts.spans, counts.counters, counts.flows, out);
    if (counts.flows_skipped > 0)
        printf("%" PRIu64
               " messages leave outside of their rank's span or land behind it: no flow\n",
               counts.flows_skipped);
    if (trace_export_part_cut(&counts.part))
        printf("left out: from %s on, beyond %" PRIu64
               " rows; --steps A-B chooses, and has no limit\n",
               trace_export_part_end(&counts.part, end), choice.rows_max);
    return EXIT_OK;
}
