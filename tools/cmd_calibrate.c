/* tools/cmd_calibrate.c - `epsim calibrate`: a machine file fitted to measurements. */
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
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
    {"plain", NULL,
     "as shipped files are made: numbers that are not determined move too, no comments"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "calibrate",
    .arguments = "",
    .summary =
        "Fit a machine file's ll, normal and compute costs to measurements; bandwidths and "
        "flights\n"
        "outside these sections do not move: measure them.\n\n"
        "A number moves when it stands on a line of its own without a comment, or with one that\n"
        "starts with \"fitted\"; any other comment (measured, assumed, ...) keeps it. With\n"
        "\"fitted from NUMBER\" the fit starts from there and not from what stands. Rows count "
        "whose\n"
        "machine is the file's name, its path, or inherits from it; of the longest one in four. "
        "Rows\n"
        "more than 5 % off weigh less, so a spike does not pull; the farthest are named. A number\n"
        "that the rows do not determine (standard error of 50 % or more) stays as it stands, and "
        "the\n"
        "written file says so.",
    .example = "epsim calibrate --measured mine.csv --machine mine.yaml -o fitted.yaml",
    .options = options,
    .flags = flags,
};

enum { ROUNDS = 24, ROUNDS_MAX = 1000, OUTLIERS_SHOWN = 8, PATH_BYTES = 1200 };

/* The first words of a fitted file: a next fit replaces that line. */
static const char head_words[] = "# Fitted by `epsim calibrate` to ";

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

static double size_of(const struct sim_measured *measured, const struct sim_calibration *made,
                      size_t row)
{
    if (made->predicted_ps[row] == 0) return 0; /* Did not count. */
    const double residual =
        sim_calibrate_residual(made->predicted_ps[row], measured->rows[row].measured_ps);
    return residual < 0 ? -residual : residual;
}

/* Rows that weigh less, the farthest off first: how many. found has room for all rows. */
static size_t find_outliers(const struct sim_measured *measured, const struct sim_calibration *made,
                            size_t *found)
{
    size_t count = 0;
    for (size_t i = 0; i < measured->count; i++) {
        const double size = size_of(measured, made, i);
        size_t at = count;
        if (size <= SIM_CALIBRATE_KNEE) continue;
        while (at > 0 && size_of(measured, made, found[at - 1]) < size) at--;
        memmove(&found[at + 1], &found[at], (count - at) * sizeof *found);
        found[at] = i;
        count++;
    }
    assert(count <= measured->count);
    return count;
}

static json_t *outliers_json(const struct sim_measured *measured,
                             const struct sim_calibration *made, const size_t *found, size_t count)
{
    json_t *json = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct sim_measured_row *row = &measured->rows[found[i]];
        json_array_append_new(json, json_pack("{s:s, s:i, s:f, s:f}", "id", row->id, "line",
                                              (int)row->line, "measured_us",
                                              (double)row->measured_ps / 1e6, "predicted_us",
                                              (double)made->predicted_ps[found[i]] / 1e6));
    }
    return json;
}

static void print_outliers(const struct sim_measured *measured, const struct sim_calibration *made,
                           const size_t *found, size_t count)
{
    if (count == 0) return;
    const size_t shown = count < OUTLIERS_SHOWN ? count : OUTLIERS_SHOWN;
    printf("\nset aside as outliers: %zu row%s more than 5 %% off, which weigh%s less", count,
           count == 1 ? "" : "s", count == 1 ? "s" : "");
    printf(shown < count ? "; the %zu farthest:\n" : ":\n", shown);
    struct table *table =
        table_open("~id|line|machine|mode|op|>EP|>tokens|>measured us|>fitted us|>error");
    for (size_t i = 0; i < shown; i++) {
        const struct sim_measured_row *row = &measured->rows[found[i]];
        const double us = (double)row->measured_ps / 1e6;
        const double fitted_us = (double)made->predicted_ps[found[i]] / 1e6;
        table_cell(table, "%s", row->id);
        table_cell(table, "%" PRIu32, row->line);
        table_cell(table, "%s", row->machine);
        table_cell(table, "%s", row->mode);
        table_cell(table, "%s", row->op);
        table_cell(table, "%" PRIu32, row->ep);
        table_cell(table, "%" PRIu32, row->tokens);
        table_cell(table, "%.2f", us);
        table_cell(table, "%.2f", fitted_us);
        table_cell(table, "%+.1f %%", 100 * (fitted_us / us - 1));
    }
    table_print(table, stdout);
    table_close(table);
}

static json_t *document(const struct sim_calibration *made,
                        const struct sim_calibrate_options *wanted)
{
    json_t *numbers = json_array();
    for (size_t i = 0; i < made->knob_count; i++) {
        const struct sim_knob *knob = &made->knobs[i];
        char before[64], after[64];
        json_array_append_new(
            numbers,
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:b, s:b}", "machine",
                      wanted->files[knob->file].name, "stack", knob->stack, "section",
                      knob->field->section, "key", knob->key, "before",
                      value_text(knob, knob->before, before), "after",
                      value_text(knob, knob->after, after), "rows", (json_int_t)knob->rows,
                      "relative_error", knob->relative_error, "determined",
                      knob->relative_error < SIM_CALIBRATE_UNDETERMINED, "held", knob->held));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o, s:I}", "rows", (json_int_t)made->rows,
                     "median_before", made->median_before, "p90_before", made->p90_before,
                     "median_after", made->median_after, "p90_after", made->p90_after, "numbers",
                     numbers, "numbers_without_rows", (json_int_t)made->idle);
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
        table_cell(table, "%s",
                   knob->held                                          ? "held"
                   : knob->relative_error < SIM_CALIBRATE_UNDETERMINED ? ""
                                                                       : "not determined");
    }
    table_print(table, stdout);
    table_close(table);
    printf("\n%zu rows: median error %.1f %% before, %.1f %% after; 90th percentile %.1f %%, %.1f "
           "%%\n",
           made->rows, 100 * made->median_before, 100 * made->median_after, 100 * made->p90_before,
           100 * made->p90_after);
    bool held = false;
    for (size_t i = 0; i < made->knob_count; i++) held = held || made->knobs[i].held;
    if (held) printf("held: the rows do not determine it, so it stays as it stands\n");
    if (made->idle > 0)
        printf("%zu more might move, but no row is of their mode, stack and operation\n",
               made->idle);
}

/* One file to out; several to files of their names in the folder out. */
static void path_of(const struct sim_calibrate_options *wanted, uint32_t index, const char *out,
                    char path[PATH_BYTES])
{
    if (wanted->file_count == 1)
        snprintf(path, PATH_BYTES, "%.1024s", out);
    else
        snprintf(path, PATH_BYTES, "%.1024s/%.63s.yaml", out, wanted->files[index].name);
}

/* What a reader of the file must know: no date, so that the same rows give the same bytes. The
 * text goes on behind the line that an earlier fit put there. */
static bool write_head(FILE *file, const char *measured_path, const struct sim_calibration *made,
                       const struct sim_calibrate_options *wanted, const char **text)
{
    size_t held = 0;
    for (size_t i = 0; i < made->knob_count; i++) held += made->knobs[i].held;
    if (strncmp(*text, head_words, sizeof head_words - 1) == 0) {
        *text += strcspn(*text, "\n");
        *text += **text == '\n';
    }
    fputs(head_words, file);
    fprintf(file, "%zu row%s%s%s of ", made->rows, made->rows == 1 ? "" : "s",
            wanted->mode[0] ? " of mode " : "", wanted->mode);
    for (const char *c = measured_path; *c != '\0'; c++)
        fputc((unsigned char)*c < ' ' ? '?' : *c, file);
    fprintf(file, "; median error %.1f %%; %zu number%s not determined\n", 100 * made->median_after,
            held, held == 1 ? "" : "s");
    return ferror(file) == 0;
}

static int write_file(const struct command_line *line, const struct sim_calibrate_options *wanted,
                      uint32_t index, const char *out, const struct sim_calibration *made)
{
    char err[512], path[PATH_BYTES];
    size_t bytes = 0;
    path_of(wanted, index, out, path);
    char *text =
        sim_knobs_write(&wanted->files[index], index, made->knobs, made->knob_count, &bytes);
    FILE *file = text ? fopen(path, "wb") : NULL;
    const char *rest = text;
    bool written = file != NULL;
    if (written && wanted->hold)
        written = write_head(file, command_line_flag(line, "measured"), made, wanted, &rest);
    if (written) {
        const size_t left = bytes - (size_t)(rest - text);
        written = fwrite(rest, 1, left, file) == left;
    }
    const bool closed = file && fclose(file) == 0;
    free(text);
    if (written && closed) return EXIT_OK;
    if (file) (void)remove(path);
    snprintf(err, sizeof err, "%.256s: cannot be written", path);
    return command_fail(&spec, EXIT_ENVIRONMENT, err);
}

/* Numbers that people may have meant to move. */
static json_t *notes_json(const struct sim_calibrate_options *wanted)
{
    json_t *notes = json_array();
    char key[64];
    for (uint32_t f = 0; f < wanted->file_count; f++)
        if (sim_knobs_stray(&wanted->files[f], key))
            json_array_append_new(
                notes, json_sprintf("%s: %s: its comment says fitted, but only numbers of ll, "
                                    "normal and compute move: measure it",
                                    wanted->files[f].name, key));
    return notes;
}

/* All that was found, for people or as JSON. */
static int show(const struct command_line *line, const char *out,
                const struct sim_measured *measured, const struct sim_calibrate_options *wanted,
                const struct sim_calibration *made)
{
    size_t *outliers = (size_t *)calloc(measured->count + 1, sizeof *outliers);
    json_t *wrote = json_array(), *notes = notes_json(wanted);
    char path[PATH_BYTES];
    int status = EXIT_OK;
    if (!outliers) {
        json_decref(wrote);
        json_decref(notes);
        return command_fail(&spec, EXIT_ENVIRONMENT, "out of memory");
    }
    const size_t count = find_outliers(measured, made, outliers);
    if (!line->json) {
        print_report(made, wanted);
        print_outliers(measured, made, outliers, count);
        for (size_t i = 0; i < json_array_size(notes); i++)
            printf("note: %s\n", json_string_value(json_array_get(notes, i)));
        putchar('\n');
    }
    for (uint32_t f = 0; f < wanted->file_count; f++) {
        path_of(wanted, f, out, path);
        json_array_append_new(wrote, json_string(path));
        if (!line->json) printf("wrote %s\n", path);
    }
    if (line->json) {
        json_t *json = document(made, wanted);
        json_object_set_new(json, "outliers", outliers_json(measured, made, outliers, count));
        json_object_set(json, "wrote", wrote);
        json_object_set(json, "notes", notes);
        status = command_print_json(json);
    }
    json_decref(wrote);
    json_decref(notes);
    free(outliers);
    return status;
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
        status = write_file(line, wanted, f, out, &made);
    if (status == EXIT_OK) status = show(line, out, measured, wanted, &made);
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
        .hold = command_line_flag(line, "plain") == NULL,
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
