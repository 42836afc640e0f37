/* tools/cmd_expect.c - inputs in the capture format in, the reference's results out. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include "sim/expect.h"
#include "tools/commands.h"

static const struct command_flag flags[] = {
    {"out", "DIR", "folder for the results, under the same file names"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "expect",
    .arguments = "DIR",
    .summary = "What the reference makes of inputs in the capture format, in the same format.",
    .example = "epsim expect inputs/ --out results/",
    .flags = flags,
    .arguments_min = 1,
    .arguments_max = 1,
};

int cmd_expect(int argc, char **argv)
{
    struct command_line line;
    char err[1024] = "";
    uint64_t cases = 0, files = 0;
    bool usage = true;
    const int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *out = command_line_flag(&line, "out");
    if (out == NULL || out[0] == '\0')
        return command_fail(&spec, EXIT_USAGE, "--out: missing: name a folder for the results");
    if (sim_expect_folder(line.arguments[0], out, isatty(STDERR_FILENO) ? command_show_cases : NULL,
                          NULL, &cases, &files, &usage, err, sizeof(err)) != 0)
        return command_fail(&spec, usage ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    if (line.json)
        return command_print_json(json_pack("{s:I,s:I,s:s}", "cases", (json_int_t)cases, "files",
                                            (json_int_t)files, "out", out));
    printf("%" PRIu64 " case%s, %" PRIu64 " file%s written to %s\n", cases, cases == 1 ? "" : "s",
           files, files == 1 ? "" : "s", out);
    return EXIT_OK;
}
