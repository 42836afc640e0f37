/* tools/cmd_diff.c - `epsim diff A B`: two runs, or two folders in the capture format. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/diff.h"
#include "sim/capture.h"
#include "sim/verify.h"
#include "tools/commands.h"
#include "tools/diff_totals.h"
#include "tools/report_mismatch.h"
#include "tools/table.h"

static const struct command_spec SPEC = {
    .name = "diff",
    .arguments = "A B",
    .summary = "Two runs (FILE is its last, FILE#N run N): the first result that differs, down to "
               "the bits,\nwhat their settings do not share, and times side by side: by stage, "
               "resource, part and\nlayer. Two folders in the capture format: key by key.",
    .example = "epsim diff before.db after.db",
    .arguments_min = 2,
    .arguments_max = 2,
};

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static json_t *key_json(const struct trace_check_key *key)
{
    return json_pack("{s:I, s:i, s:i, s:s}", "step", (json_int_t)key->step, "layer",
                     (int)key->layer, "rank", (int)key->rank, "stage", key->stage);
}

static json_t *difference_json(const struct sim_diff *diff)
{
    const struct sim_check *check = &diff->check;
    json_t *json = key_json(&diff->digests.key);
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, diff->digests.digest_a);
    json_object_set_new(json, "digest_a", json_string(digest));
    snprintf(digest, sizeof digest, "%016" PRIx64, diff->digests.digest_b);
    json_object_set_new(json, "digest_b", json_string(digest));
    json_object_set_new(json, "note", json_string(diff->element_note));
    if (!diff->element_found) return json;
    json_object_set_new(json, "expert",
                        check->expert < 0 ? json_null() : json_integer(check->expert));
    json_object_set_new(json, "src_rank", json_integer(check->src_rank));
    json_object_set_new(json, "src_token", json_integer(check->src_token));
    json_object_set_new(json, "channel",
                        check->channel < 0 ? json_null() : json_integer(check->channel));
    json_object_set_new(json, "a", json_string(check->expected_hex));
    json_object_set_new(json, "b", json_string(check->actual_hex));
    return json;
}

static void print_difference(const struct sim_diff *diff)
{
    const struct trace_difference *digests = &diff->digests;
    const struct sim_check *check = &diff->check;
    if (!digests->differs) {
        if (digests->compared == 0)
            puts("results   none to compare: the runs moved no bytes");
        else
            printf("results   %" PRIu64 " compared, none differs\n", digests->compared);
    } else {
        printf("results   first difference: step %" PRIu64 ", layer %" PRIu32 ", rank %" PRIu32
               ", %s\n",
               digests->key.step, digests->key.layer, digests->key.rank, digests->key.stage);
        if (diff->element_found) {
            printf("element   ");
            if (check->expert >= 0) printf("expert %" PRId64 ", ", check->expert);
            printf("source rank %" PRIu32 " token %" PRIu32, check->src_rank, check->src_token);
            if (check->channel >= 0) printf(", channel %" PRId64, check->channel);
            printf(": A %s, B %s\n", check->expected_hex, check->actual_hex);
        }
        printf("note      %s\n", diff->element_note);
    }
    if (digests->only_a + digests->only_b > 0)
        printf("only      %" PRIu64 " results in A alone, %" PRIu64 " in B alone\n",
               digests->only_a, digests->only_b);
}

/* Times of every (layer, op) that either run has; the lists are sorted alike. */
struct times {
    struct trace_op_time *rows[2];
    size_t count[2];
};

static int compare_times(const struct trace_op_time *a, const struct trace_op_time *b)
{
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return strcmp(a->op, b->op);
}

/* The next (layer, op) in order; either side may be NULL. false at the end. */
static bool next_times(const struct times *times, size_t at[2], const struct trace_op_time *row[2])
{
    const bool has_a = at[0] < times->count[0], has_b = at[1] < times->count[1];
    if (!has_a && !has_b) return false;
    row[0] = has_a ? &times->rows[0][at[0]] : NULL;
    row[1] = has_b ? &times->rows[1][at[1]] : NULL;
    const int order = !has_a ? 1 : !has_b ? -1 : compare_times(row[0], row[1]);
    if (order > 0) row[0] = NULL;
    if (order < 0) row[1] = NULL;
    for (int s = 0; s < 2; s++) at[s] += row[s] != NULL;
    return true;
}

static void print_times(const struct times *times)
{
    size_t at[2] = {0, 0};
    const struct trace_op_time *row[2];
    struct table *table = table_open("layer|op|>A mean us|>B mean us|>B - A|>A max us|>B max us");
    while (next_times(times, at, row)) {
        const struct trace_op_time *any = row[0] != NULL ? row[0] : row[1];
        if (any->layer < 0)
            table_cell(table, "step");
        else
            table_cell(table, "%" PRId64, any->layer);
        table_cell(table, "%s", any->op);
        for (int s = 0; s < 2; s++) {
            if (row[s] == NULL)
                table_cell(table, "-");
            else
                table_cell(table, "%.2f", (double)row[s]->mean_ps / 1e6);
        }
        if (row[0] == NULL || row[1] == NULL)
            table_cell(table, "-");
        else
            table_cell(table, "%+.2f", ((double)row[1]->mean_ps - (double)row[0]->mean_ps) / 1e6);
        for (int s = 0; s < 2; s++) {
            if (row[s] == NULL)
                table_cell(table, "-");
            else
                table_cell(table, "%.2f", (double)row[s]->max_ps / 1e6);
        }
    }
    table_print(table, stdout);
    table_close(table);
}

static json_t *times_json(const struct times *times)
{
    static const char *const NAMES[2] = {"a_mean_us", "b_mean_us"};
    json_t *list = json_array();
    size_t at[2] = {0, 0};
    const struct trace_op_time *row[2];
    while (next_times(times, at, row)) {
        const struct trace_op_time *any = row[0] != NULL ? row[0] : row[1];
        json_t *json = json_pack("{s:I, s:s}", "layer", (json_int_t)any->layer, "op", any->op);
        for (int s = 0; s < 2; s++)
            json_object_set_new(json, NAMES[s],
                                row[s] == NULL ? json_null()
                                               : json_real((double)row[s]->mean_ps / 1e6));
        json_array_append_new(list, json);
    }
    return list;
}

/* Equal runs are complete, have one digest (routing, results and event times) and no result that
 * differs. */
static bool same_runs(struct trace_reader *readers[2], const struct sim_diff *diff)
{
    const struct trace_run_info *a = trace_reader_run(readers[0]);
    const struct trace_run_info *b = trace_reader_run(readers[1]);
    return a->complete && b->complete && strcmp(a->digest, b->digest) == 0 &&
           !diff->digests.differs && diff->digests.only_a + diff->digests.only_b == 0;
}

static int print_all(const struct command_line *line, struct trace_reader *readers[2],
                     const struct sim_diff *diff)
{
    struct times times = {{NULL, NULL}, {0, 0}};
    struct diff_totals totals;
    char err[512];
    int status = same_runs(readers, diff) ? EXIT_OK : EXIT_NO;

    if (diff_totals_open(readers, &totals, err, sizeof err) != 0) {
        status = command_fail(&SPEC, EXIT_USAGE, err);
        goto free_times;
    }

    for (int s = 0; s < 2; s++) {
        if (trace_reader_op_times(readers[s], &times.rows[s], &times.count[s], err, sizeof err) ==
            0)
            continue;
        status = command_fail(&SPEC, EXIT_USAGE, err);
        goto free_times;
    }
    if (line->json) {
        json_t *json = json_pack("{s:b, s:I, s:I, s:I, s:o, s:o}", "same", status == EXIT_OK,
                                 "compared", (json_int_t)diff->digests.compared, "only_a",
                                 (json_int_t)diff->digests.only_a, "only_b",
                                 (json_int_t)diff->digests.only_b, "first_difference",
                                 diff->digests.differs ? difference_json(diff) : json_null(),
                                 "times", times_json(&times));
        diff_totals_json(&totals, json);
        if (command_print_json(json) != EXIT_OK) status = EXIT_ENVIRONMENT;
    } else {
        for (int s = 0; s < 2; s++) {
            const struct trace_run_info *run = trace_reader_run(readers[s]);
            printf("%c         %s#%" PRIu64 ", digest %s%s\n", "AB"[s],
                   trace_reader_path(readers[s]), run -> run,
                   run -> digest[0] != '\0' ? run->digest : "none",
                   run->complete ? "" : ", incomplete");
        }
        print_difference(diff);
        diff_totals_print(&totals);
        puts("\nby layer, modelled: mean and largest over steps, slowest rank");
        print_times(&times);
    }
free_times:
    for (int s = 0; s < 2; s++) free(times.rows[s]);
    diff_totals_close(&totals);
    return status;
}

static int diff_runs(const struct command_line *line)
{
    struct trace_reader *readers[2] = {NULL, NULL};
    struct sim_diff *diff = (struct sim_diff *)calloc(1, sizeof *diff);
    char err[512] = "out of memory";
    int status = EXIT_ENVIRONMENT;

    if (diff == NULL) return command_fail(&SPEC, status, err);
    status = EXIT_USAGE;
    for (int s = 0; s < 2; s++) {
        readers[s] = trace_reader_open(line->arguments[s], err, sizeof err);
        if (readers[s] == NULL) goto close_readers;
    }
    if (sim_diff_runs(readers[0], readers[1], diff, err, sizeof err) != 0) goto close_readers;
    status = -1;
close_readers:
    if (status >= 0)
        command_fail(&SPEC, status, err);
    else
        status = print_all(line, readers, diff);
    for (int s = 0; s < 2; s++) trace_reader_close(readers[s]);
    free(diff);
    return status;
}

static int diff_folders(const struct command_line *line)
{
    struct sim_verify_report report;
    char err[2048] = "";
    bool usage = true;
    int status = EXIT_OK;

    if (sim_diff_folders(line->arguments[0], line->arguments[1], &report, &usage, err,
                         sizeof err) != 0)
        return command_fail(&SPEC, usage ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    status = report.failed > 0 ? EXIT_NO : EXIT_OK;
    if (line->json) {
        json_t *one_sided = json_array();
        for (uint32_t t = 0; t < SIM_LL_TAGS; t++)
            if ((report.one_sided >> t & 1) != 0)
                json_array_append_new(one_sided, json_string(sim_ll_tag(t)->name));
        json_t *json =
            json_pack("{s:b, s:I, s:I, s:o, s:o}", "same", status == EXIT_OK, "cases",
                      (json_int_t)report.cases, "differ", (json_int_t)report.failed,
                      "first_difference", mismatch_json(&report), "not_compared", one_sided);
        const int printed = command_print_json(json);
        return printed != EXIT_OK ? printed : status;
    }
    if (report.failed > 0) mismatch_print(&report, stdout);
    for (uint32_t t = 0; t < SIM_LL_TAGS; t++)
        if ((report.one_sided >> t & 1) != 0)
            printf("not compared: %s.*, which one side has not at all\n", sim_ll_tag(t)->name);
    printf("%" PRIu64 " cases: %" PRIu64 " equal, %" PRIu64 " differ (expected: A, actual: B)\n",
           report.cases, report.passed, report.failed);
    return status;
}

int cmd_diff(int argc, char **argv)
{
    struct command_line line;
    const int status = command_line_parse(&SPEC, argc, argv, &line);
    if (status >= 0) return status;
    const bool folder_a = is_folder(line.arguments[0]), folder_b = is_folder(line.arguments[1]);
    if (folder_a != folder_b)
        return command_fail(&SPEC, EXIT_USAGE, "one is a folder, the other is not");
    return folder_a ? diff_folders(&line) : diff_runs(&line);
}
