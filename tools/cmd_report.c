/* tools/cmd_report.c - a recorded run as one HTML page. */
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

/* A flag's index, or -1 where it is not given. 0, or -1 with err. */
static int read_index(const struct command_line *line, const char *flag, int64_t *index, char *err,
                      size_t err_len)
{
    const char *text = command_line_flag(line, flag);
    uint64_t value = 0;
    *index = -1;
    if (text == NULL) return 0;
    if (sim_parse_u64(text, 0, INT32_MAX, &value) != 0) {
        snprintf(err, err_len, "--%s: %.32s: must be a whole number from 0", flag, text);
        return -1;
    }
    *index = (int64_t)value;
    return 0;
}

int cmd_report(int argc, char **argv)
{
    struct command_line line;
    struct trace_reader *reader = NULL, *against = NULL;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *out = command_line_flag(&line, "out"), *other = command_line_flag(&line, "against");
    struct trace_report_choice choice = {.against = NULL};
    if (out == NULL || out[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--out: missing: name the page to write");
    if (read_index(&line, "step", &choice.step, err, sizeof err) != 0 ||
        read_index(&line, "layer", &choice.layer, err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
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
