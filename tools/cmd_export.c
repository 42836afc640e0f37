/* tools/cmd_export.c - a recorded run in the format of another program. */
#include <inttypes.h>
#include <stdio.h>
#include "tools/commands.h"
#include "traces/export_perfetto.h"

static const struct command_flag flags[] = {
    {"perfetto", NULL, "trace events as JSON, for ui.perfetto.dev and chrome://tracing"},
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

int cmd_export(int argc, char **argv)
{
    struct command_line line;
    struct trace_perfetto_counts counts;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *out = command_line_flag(&line, "out");
    if (command_line_flag(&line, "perfetto") == NULL)
        return command_fail(&spec, EXIT_USAGE, "name a format: --perfetto");
    if (out == NULL || out[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--out: missing: name the file to write");
    struct trace_reader *reader = trace_reader_open(line.arguments[0], err, sizeof err);
    if (reader == NULL) return command_fail(&spec, EXIT_USAGE, err);
    status = trace_export_perfetto(reader, out, &counts, err, sizeof err);
    trace_reader_close(reader);
    if (status != 0) return command_fail(&spec, status == -1 ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    if (line.json)
        return command_print_json(
            json_pack("{s:s, s:I, s:I, s:I, s:I}", "out", out, "spans", (json_int_t)counts.spans,
                      "counters", (json_int_t)counts.counters, "flows", (json_int_t)counts.flows,
                      "flows_skipped", (json_int_t)counts.flows_skipped));
    printf("%" PRIu64 " spans, %" PRIu64 " counter values, %" PRIu64 " flows written to %s\n",
           counts.spans, counts.counters, counts.flows, out);
    if (counts.flows_skipped > 0)
        printf("%" PRIu64
               " messages leave outside of their rank's span or land behind it: no flow\n",
               counts.flows_skipped);
    return EXIT_OK;
}
