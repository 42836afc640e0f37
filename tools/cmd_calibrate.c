/* tools/cmd_calibrate.c - `epsim calibrate`: a machine file fitted to measurements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sim/calibrate.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const options[] = {"threads", NULL};

static const struct command_flag flags[] = {
    {"measured", "CSV", "rows to fit to: the columns of `epsim accuracy`, times in microseconds"},
    {"machine", "FILE[,FILE]", "machine file to start from; several are fitted together"},
    {"out", "FILE|DIR", "where to write the fitted file, or several files; also -o"},
    {"mode", "MODE", "fit the numbers of ll or of normal alone"},
    {"rounds", "N", "rounds at most [24]"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "calibrate",
    .arguments = "",
    .summary =
        "Fit a machine file's ll and normal costs to measurements.\n\n"
        "A number moves when it stands on a line of its own without a comment, or with one that\n"
        "starts with \"fitted\"; any other comment (measured, assumed, ...) keeps it. With\n"
        "\"fitted from NUMBER\" the fit starts from there and not from what stands. Rows of\n"
        "machines that inherit the number count too; of the longest rows one in four. Rows more\n"
        "than 5 % off weigh less, so a spike does not pull. A number the rows say nothing of is\n"
        "named; it hardly moves.",
    .example = "epsim calibrate --measured mine.csv --machine mine.yaml -o fitted.yaml",
    .options = options,
    .flags = flags,
};

enum { ROUNDS = 24, ROUNDS_MAX = 1000 };
#define UNDETERMINED 0.5 /* Relative error from which a number is not determined. */

static void progress(void *context, unsigned round, double loss)
{
    (void)context;
    fprintf(stderr, "\rround %u: loss %.4f ", round + 1, loss);
}

static const char *value_text(const struct sim_knob *knob, uint64_t value, char text[64])
{
    fabric_decimal_format(value, knob->unit, text, 64);
    return text;
}

static json_t *document(const struct sim_calibration *made,
                        const struct sim_calibrate_options *wanted)
{
    json_t *numbers = json_array();
    for (size_t i = 0; i < made->knob_count; i++) {
        const struct sim_knob *knob = &made->knobs[i];
        char before[64], after[64];
        json_array_append_new(
            numbers, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:b}", "machine",
                               wanted->files[knob->file].name, "stack", knob->stack, "section",
                               knob->field->section, "key", knob->key, "before",
                               value_text(knob, knob->before, before), "after",
                               value_text(knob, knob->after, after), "rows", (json_int_t)knob->rows,
                               "relative_error", knob->relative_error, "determined",
                               knob->relative_error < UNDETERMINED));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "rows", (json_int_t)made->rows,
                     "median_before", made->median_before, "p90_before", made->p90_before,
                     "median_after", made->median_after, "p90_after", made->p90_after, "numbers",
                     numbers);
}

static void print_report(const struct sim_calibration *made,
                         const struct sim_calibrate_options *wanted)
{
    struct table *table = table_open("machine|stack|section|number|>before|>after|>rows|>error|~");
    for (size_t i = 0; i < made->knob_count; i++) {
        const struct sim_knob *knob = &made->knobs[i];
        char text[64];
        table_cell(table, "%s", wanted->files[knob->file].name);
        table_cell(table, "%s", knob->stack[0] ? knob->stack : "-");
        table_cell(table, "%s", knob->field->section);
        table_cell(table, "%s", knob->key);
        table_cell(table, "%s", value_text(knob, knob->before, text));
        table_cell(table, "%s", value_text(knob, knob->after, text));
        table_cell(table, "%zu", knob->rows);
        if (knob->relative_error < 1)
            table_cell(table, "%.0f %%", 100 * knob->relative_error);
        else
            table_cell(table, "-");
        table_cell(table, "%s", knob->relative_error < UNDETERMINED ? "" : "not determined");
    }
    table_print(table, stdout);
    table_close(table);
    printf("\n%zu rows: median error %.1f %% before, %.1f %% after; 90th percentile %.1f %%, %.1f "
           "%%\n",
           made->rows, 100 * made->median_before, 100 * made->median_after, 100 * made->p90_before,
           100 * made->p90_after);
}

/* One file to out; several to files of their names in the folder out. */
static int write_file(const struct sim_calibrate_options *wanted, uint32_t index, const char *out,
                      const struct sim_calibration *made)
{
    const struct sim_calibrate_file *from = &wanted->files[index];
    char err[512], path[1200];
    size_t bytes = 0;
    if (wanted->file_count == 1)
        snprintf(path, sizeof path, "%.1024s", out);
    else
        snprintf(path, sizeof path, "%.1024s/%.63s.yaml", out, from->name);
    char *text = sim_knobs_write(from, index, made->knobs, made->knob_count, &bytes);
    FILE *file = text ? fopen(path, "wb") : NULL;
    const bool written = file && fwrite(text, 1, bytes, file) == bytes;
    const bool closed = file && fclose(file) == 0;
    free(text);
    if (written && closed) return EXIT_OK;
    if (file) (void)remove(path);
    snprintf(err, sizeof err, "%.256s: cannot be written", path);
    return command_fail(&spec, EXIT_ENVIRONMENT, err);
}

static int run(const struct command_line *line, const char *out,
               const struct sim_measured *measured, const struct sim_calibrate_options *wanted)
{
    static const size_t err_bytes = 512;
    char err[512];
    struct sim_calibration made;
    int status = EXIT_OK;
    const int result = sim_calibrate(measured, wanted, &made, err, err_bytes);
    if (wanted->report) fputc('\n', stderr);
    if (result != 0) return command_fail(&spec, EXIT_USAGE, err);
    for (uint32_t f = 0; f < wanted->file_count && status == EXIT_OK; f++)
        status = write_file(wanted, f, out, &made);
    if (status == EXIT_OK && line->json)
        status = command_print_json(document(&made, wanted));
    else if (status == EXIT_OK)
        print_report(&made, wanted);
    sim_calibration_free(&made);
    return status;
}

/* The files of a comma list; list is cut up and must outlive them. How many, or -1 with err. */
static int read_files(char *list, struct sim_calibrate_file *files, char *err, size_t err_len)
{
    int count = 0;
    for (char *path = list, *next; path; path = next) {
        next = strchr(path, ',');
        if (next) *next++ = '\0';
        if (count == SIM_CALIBRATE_FILES_MAX) {
            snprintf(err, err_len, "--machine: more than %d files", (int)SIM_CALIBRATE_FILES_MAX);
            count++;
            break;
        }
        if (sim_calibrate_file_read(path, &files[count], err, err_len) != 0) {
            sim_calibrate_files_free(files, (size_t)count);
            return -1;
        }
        count++;
    }
    if (count <= SIM_CALIBRATE_FILES_MAX) return count;
    sim_calibrate_files_free(files, SIM_CALIBRATE_FILES_MAX);
    return -1;
}

/* All is read: ask. */
static int fit(const struct command_line *line, const char *out, const char *mode, uint64_t rounds,
               const struct sim_measured *measured, const struct sim_calibrate_file *files,
               size_t file_count)
{
    const struct sim_calibrate_options wanted = {
        .files = files,
        .file_count = file_count,
        .mode = mode ? mode : "",
        .threads = line->settings.threads,
        .rounds = (unsigned)rounds,
        .report = isatty(STDERR_FILENO) && !line->json ? progress : NULL};
    return run(line, out, measured, &wanted);
}

int cmd_calibrate(int argc, char **argv)
{
    struct command_line line;
    struct sim_measured measured = {.count = 0};
    struct sim_calibrate_file files[SIM_CALIBRATE_FILES_MAX];
    uint64_t rounds = ROUNDS;
    char err[512];
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    const char *path = command_line_flag(&line, "measured");
    const char *machine = command_line_flag(&line, "machine");
    const char *out = command_line_flag(&line, "out");
    const char *mode = command_line_flag(&line, "mode");
    const char *limit = command_line_flag(&line, "rounds");
    if (!path || !machine || !out)
        return command_fail(&spec, EXIT_USAGE, "--measured, --machine and --out: all are needed");
    if (mode && strcmp(mode, "ll") != 0 && strcmp(mode, "normal") != 0)
        return command_fail(&spec, EXIT_USAGE, "--mode: must be ll or normal");
    if (limit && sim_parse_u64(limit, 1, ROUNDS_MAX, &rounds) != 0)
        return command_fail(&spec, EXIT_USAGE, "--rounds: must be a whole number from 1 to 1000");
    char *list = strdup(machine);
    const int count = list ? read_files(list, files, err, sizeof err) : -1;
    if (!list) snprintf(err, sizeof err, "out of memory");
    if (count < 0 || sim_measured_read(path, &measured, err, sizeof err) != 0)
        status = command_fail(&spec, EXIT_USAGE, err);
    else
        status = fit(&line, out, mode, rounds, &measured, files, (size_t)count);
    if (count > 0) sim_calibrate_files_free(files, (size_t)count);
    sim_measured_free(&measured);
    free(list);
    return status;
}
