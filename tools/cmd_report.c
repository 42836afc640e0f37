/* tools/cmd_report.c - a recorded run as one HTML page. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "tools/commands.h"
#include "traces/report.h"

static const struct command_flag flags[] = {
    {"out", "FILE", "the page to write, replaced in one step (also -o)"},
    {"against", "RUN", "another run to stand beside it: settings, times, results"},
    {"step", "N", "step of the timeline [that of the slowest layer]"},
    {"layer", "N", "MoE layer of the timeline [the slowest]"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "report",
    .arguments = "RUN",
    .summary = "A run (FILE: its last; FILE#N) as one self-contained HTML page: times, a layer's\n"
               "timeline, waits, link use, expert loads, check results, settings.",
    .example = "epsim report run.db -o run.html",
    .flags = flags,
    .arguments_min = 1,
    .arguments_max = 1,
};

/* An index given as text, or -1 where it is not given; -2: neither. */
static int64_t read_index(const char *text)
{
    char *end = NULL;
    if (text == NULL) return -1;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    return errno != 0 || end == text || *end != '\0' || value < 0 || value > INT32_MAX ? -2 : value;
}

int cmd_report(int argc, char **argv)
{
    struct command_line line;
    struct trace_reader *reader = NULL, *against = NULL;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *out = command_line_flag(&line, "out"), *other = command_line_flag(&line, "against");
    struct trace_report_choice choice = {.step = read_index(command_line_flag(&line, "step")),
                                         .layer = read_index(command_line_flag(&line, "layer")),
                                         .against = NULL};
    if (out == NULL || out[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--out: missing: name the page to write");
    if (choice.step == -2 || choice.layer == -2)
        return command_fail(&spec, EXIT_USAGE, "--step, --layer: must be a whole number from 0");
    reader = trace_reader_open(line.arguments[0], err, sizeof err);
    if (reader == NULL) return command_fail(&spec, EXIT_USAGE, err);
    if (other != NULL) {
        against = choice.against = trace_reader_open(other, err, sizeof err);
        status = against != NULL ? 0 : -1;
    } else {
        status = 0;
    }
    if (status == 0) status = trace_report(reader, &choice, out, err, sizeof err);
    trace_reader_close(reader);
    trace_reader_close(against);
    if (status != 0) return command_fail(&spec, status == -1 ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    if (line.json) return command_print_json(json_pack("{s:s}", "out", out));
    printf("%s written: open it in a browser\n", out);
    return EXIT_OK;
}
