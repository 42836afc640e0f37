/* tools/play.c - settings to a run to a printed result. */
#include "tools/play.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/version.h"
#include "ref/digest.h"
#include "sim/backends.h"
#include "sim/record.h"
#include "sim/run.h"
#include "tools/explain.h"
#include "tools/report_step.h"
#include "tools/table.h"
#include "traces/db.h"

const struct command_flag PLAY_FLAGS[] = {
    {"db", "FILE", "append the run to this SQLite database"},
    {"explain", NULL, "where the time went, and what a wider resource would give"},
    {"explain-schedule", NULL, "print which kernel stands on which stream and waits for what"},
    {NULL, NULL, NULL},
};

enum { COMMAND_BYTES = 4096 };

/* One play, as far as it has come. */
struct play {
    const struct command_line *line;
    char command[COMMAND_BYTES];
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_backend_choice backend;
    struct trace_db *db;
    struct sim_summary summary;
    struct sim_step_record *step;   /* NULL: exchanges alone. */
    struct sim_breakdown breakdown; /* Open with --explain. */
    char err[2560];
};

static bool explained(const struct play *play)
{
    return command_line_flag(play->line, "explain") != NULL;
}

static void show_progress(void *context, uint64_t done, uint64_t all)
{
    uint64_t *percent = (uint64_t *)context;
    if (done * 100 / all == *percent && done != all) return;
    *percent = done * 100 / all;
    fprintf(stderr, "\r%3" PRIu64 " %% of %" PRIu64 " layers%s", *percent, all,
            done == all ? "\r                              \r" : "");
}

static void join_command(int argc, char **argv, char *text, size_t text_len)
{
    size_t at = (size_t)snprintf(text, text_len, "epsim");
    for (int i = 0; i < argc && at < text_len; i++)
        at += (size_t)snprintf(text + at, text_len - at, " %s", argv[i]);
}

/* Start the run in the database, with the files its routing came from. */
static int begin_record(struct play *play)
{
    const struct sim_plan *plan = play->plan;
    const struct trace_routing *trace = sim_source_trace(play->source);
    json_t *settings = sim_settings_json(&plan->settings);
    char *text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);
    char digest[17];
    int status = -1;

    json_decref(settings);
    if (text == NULL) {
        snprintf(play->err, sizeof play->err, "settings: out of memory");
        return -1;
    }
    sim_settings_digest(&plan->settings, digest);
    const struct trace_run run = {"epsim " EPSIM_VERSION " (commit " EPSIM_COMMIT ")",
                                  play->command, text, digest, plan->settings.seed};
    if (trace_db_begin_run(play->db, &run, &play->summary.run, play->err, sizeof play->err) != 0)
        goto free_text;
    for (uint32_t f = 0; trace != NULL && f < trace->file_count; f++) {
        const struct trace_routing_row row = {trace->files[f].path, trace->files[f].digest,
                                              trace->id_space, trace->model};
        if (trace_db_routing(play->db, &row, play->err, sizeof play->err) != 0) goto free_text;
    }
    status = sim_record_faults(play->db, &plan->scenario, play->err, sizeof play->err);
free_text:
    free(text);
    return status;
}

static bool has_phases(const struct play *play)
{
    return play->backend.ops != NULL && play->backend.ops->begin != NULL;
}

/* What a plugin changes about a run: faults need messages, which only phase operations have. -1:
 * refused, with err. */
static int check_plugin(struct play *play)
{
    struct sim_plan *plan = play->plan;
    const struct sim_scenario *scenario = &plan->scenario;

    if (plan->note_count < SIM_NOTES_MAX)
        snprintf(plan->notes[plan->note_count++], sizeof plan->notes[0], "plugin %s: %s",
                 sim_plugin_name(play->backend.plugin),
                 has_phases(play) ? "its phase operations, message by message"
                                  : "its group operations alone, which know no order of landing: "
                                    "it offers no phase operations");
    for (uint32_t f = 0; f < scenario->count && !has_phases(play); f++) {
        if (scenario->faults[f].kind == SIM_FAULT_DELAY) continue;
        snprintf(play->err, sizeof play->err,
                 "%.256s: fault %" PRIu32 " (%s): %.256s has no phase operations, so no messages: "
                 "only delays",
                 plan->settings.scenario, f + 1, sim_fault_name(scenario->faults[f].kind),
                 plan->settings.backend);
        return -1;
    }
    return 0;
}

/* Everything that can refuse, before anything is written. -1: go on. */
static int prepare(struct play *play)
{
    const struct sim_settings *settings = &play->line->settings;
    const struct trace_routing *trace = NULL;

    play->plan = (struct sim_plan *)malloc(sizeof *play->plan);
    if (play->plan == NULL) {
        snprintf(play->err, sizeof play->err, "run: out of memory");
        return EXIT_ENVIRONMENT;
    }
    play->source = sim_source_open(settings, play->err, sizeof play->err);
    if (play->source == NULL) return EXIT_USAGE;
    trace = sim_source_trace(play->source);
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      play->plan, play->err, sizeof play->err) != 0)
        return EXIT_USAGE;
    if (sim_source_start(play->source, play->plan, play->err, sizeof play->err) != 0)
        return EXIT_USAGE;
    static void (*const remarks[])(const struct sim_source *, char *,
                                   size_t) = {sim_source_remark_model, sim_source_remark};
    for (size_t i = 0; i < 2 && play->plan->note_count < SIM_NOTES_MAX; i++) {
        char *note = play->plan->notes[play->plan->note_count];
        remarks[i](play->source, note, sizeof play->plan->notes[0]);
        if (note[0] != '\0') play->plan->note_count++;
    }
    const int found = sim_backend_choose(settings, &play->backend, play->err, sizeof play->err);
    if (found != 0) return found == SIM_BACKEND_UNKNOWN ? EXIT_USAGE : EXIT_ENVIRONMENT;
    uint64_t gpu_bytes = 0; /* Are the GPUs there? */
    if (play->backend.ops != NULL && play->backend.ops == sim_backend_cuda() &&
        sim_backend_cuda_room(settings, &gpu_bytes, play->err, sizeof play->err) != 0)
        return EXIT_ENVIRONMENT;
    if (play->backend.plugin != NULL && check_plugin(play) != 0) return EXIT_USAGE;
    if (sim_summary_open(play->plan, &play->summary, play->err, sizeof play->err) != 0)
        return EXIT_ENVIRONMENT;
    if (explained(play) &&
        sim_breakdown_open(play->plan->layers, play->plan->layer_count, settings->threads,
                           &play->breakdown, play->err, sizeof play->err) != 0)
        return EXIT_ENVIRONMENT;
    if (!sim_step_wanted(settings)) return -1;
    if (strcmp(settings->detail, "message") == 0) {
        snprintf(play->err, sizeof play->err,
                 "--detail message: a whole step has no times of messages, only exchanges by "
                 "themselves do: span, or without --context, --phase and --overlap");
        return EXIT_USAGE;
    }
    play->step = (struct sim_step_record *)calloc(1, sizeof *play->step);
    if (play->step == NULL) {
        snprintf(play->err, sizeof play->err, "step: out of memory");
        return EXIT_ENVIRONMENT;
    }
    if (sim_step_record_open(play->plan, play->step, play->err, sizeof play->err) != 0)
        return EXIT_USAGE;
    return -1;
}

static int play_all(struct play *play)
{
    const char *db_path = command_line_flag(play->line, "db");
    uint64_t percent = 101;
    char digest[17];
    int status = prepare(play);

    if (status >= 0) return status;
    if (db_path != NULL) {
        bool broken;
        play->db = trace_db_open(db_path, TRACE_DB_WAIT_MS, &broken, play->err, sizeof play->err);
        if (play->db == NULL) return broken ? EXIT_USAGE : EXIT_ENVIRONMENT;
        if (begin_record(play) != 0) return EXIT_ENVIRONMENT;
    }
    const bool one = play->backend.plugin != NULL && play->plan->settings.threads == 0;
    const uint32_t threads = one ? 1 : 0; /* Each process of a plugin may hold a GPU. */
    const struct sim_run run = {.plan = play->plan,
                                .source = play->source,
                                .backend = play->backend.ops,
                                .threads = threads,
                                .db = play->db,
                                .step = play->step,
                                .breakdown = explained(play) ? &play->breakdown : NULL,
                                .progress = isatty(STDERR_FILENO) ? show_progress : NULL,
                                .progress_context = &percent};
    if (play->step != NULL) play->step->db = play->db;
    status = sim_run_play(&run, &play->summary, play->err, sizeof play->err);
    if (status != 0) return status == SIM_RUN_REFUSED ? EXIT_USAGE : EXIT_ENVIRONMENT;
    if (play->step != NULL) {
        sim_step_record_mean(play->step);
        play->summary.digest = ref_digest_mix(play->summary.digest, play->step->digest);
        play->summary.end_ps = sim_step_now_ps(play->step->step);
    }
    snprintf(digest, sizeof digest, "%016" PRIx64, play->summary.digest);
    if (play->db != NULL && trace_db_end_run(play->db, digest, play->err, sizeof play->err) != 0)
        return EXIT_ENVIRONMENT;
    return -1;
}

/* Microseconds in at most six characters, so that a row fits 100 columns. */
static void time_cell(struct table *table, uint64_t ps)
{
    table_cell(table, ps < UINT64_C(100000000) ? "%.2f" : "%.1f", (double)ps / 1e6);
}

static void print_layers(const struct play *play)
{
    const struct sim_summary *summary = &play->summary;
    struct table *table = table_open("layer|>dispatch|>p99|>floor|>ratio|>combine|>p99|>floor|"
                                     ">ratio|>NVLink|>NIC|>hottest");
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        const struct sim_layer_summary *layer = &summary->layers[l];
        char bytes[16];
        table_cell(table, "%" PRIu32, layer->layer);
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            const enum sim_direction direction = (enum sim_direction)d;
            const struct sim_distribution times = sim_summary_times(summary, l, direction);
            const uint64_t floor_ps = sim_summary_floors(summary, l, direction).p50_ps;
            time_cell(table, times.p50_ps);
            time_cell(table, times.p99_ps);
            if (floor_ps > 0) {
                time_cell(table, floor_ps);
                table_cell(table, "%.2f", (double)times.p50_ps / (double)floor_ps);
            } else { /* Hook mode has none. */
                table_cell(table, "-");
                table_cell(table, "-");
            }
        }
        table_cell(table, "%s", table_bytes(layer->bytes.wire[SIM_LINK_NVLINK], bytes));
        table_cell(table, "%s", table_bytes(layer->bytes.wire[SIM_LINK_NIC], bytes));
        table_cell(table, "%.2f", (double)layer->expert_ratio_ppm / 1e6 / (double)summary->steps);
    }
    table_print(table, stdout);
    table_close(table);
}

static void print_checks(const struct play *play)
{
    const struct sim_summary *summary = &play->summary;
    const struct sim_check *check = &summary->first;
    char bytes[16];

    if (play->backend.ops == NULL) {
        puts("checks    none: --backend ref moves and compares the bytes");
        return;
    }
    printf("checks    %s compared, %" PRIu64 " rows differ\n",
           table_bytes(summary->compared_bytes, bytes), summary->mismatches);
    if (summary->mismatches == 0) return;
    printf("first     step %" PRIu64 ", layer %" PRIu32 ", %s: rank %" PRIu32, summary->first_step,
           summary->first_layer, sim_stage_name(check->stage), check->rank);
    if (check->expert >= 0) printf(", expert %" PRId64, check->expert);
    printf(", source rank %" PRIu32 " token %" PRIu32, check->src_rank, check->src_token);
    if (check->channel >= 0) printf(", channel %" PRId64, check->channel);
    printf(": expected %s, got %s\n          %s\n", check->expected_hex, check->actual_hex,
           check->cause);
    printf("wrong     rows by name: --json, or table wrong_row of --db; digest of the list "
           "%016" PRIx64 "\n",
           summary->wrong.digest);
}

static void print_result(const struct play *play)
{
    const struct sim_plan *plan = play->plan;
    const struct sim_summary *summary = &play->summary;
    const char *db_path = command_line_flag(play->line, "db");
    struct sim_bytes bytes;
    /* Options that the first two lines say in their own words. */
    static const char *const SAID[] = {"machine", "model",  "ep",    "nodes", "mode",
                                       "tokens",  "layers", "steps", "seed",  NULL};
    char text[5][16], streams[192], options[2048];

    printf("seed      %" PRIu64 "\n", plan->settings.seed);
    printf("run       %s on %s, EP%" PRIu32 " on %" PRIu32 " node%s, %s, %" PRIu64
           " tokens a step, %" PRIu64 " step%s\n",
           plan->model.name, plan->machine.name, plan->ranks, plan->nodes,
           plan->nodes > 1 ? "s" : "", plan->mode == SIM_MODE_LL ? "low latency" : "normal",
           plan->token_start[plan->ranks], summary->steps, summary->steps > 1 ? "s" : "");
    sim_settings_words(&plan->settings, SAID, options, sizeof options);
    if (options[0] != '\0') table_line("options", options, stdout);
    for (uint32_t n = 0; n < plan->note_count; n++) table_line("note", plan->notes[n], stdout);
    sim_source_describe(play->source, streams, sizeof streams);
    if (streams[0] != '\0') table_line("streams", streams, stdout);
    puts(
        "times in us are modelled: slowest rank, median and p99 over the steps; floor: the busiest "
        "port's\nbytes at its datasheet rate, and one flight; ratio: median over floor. NVLink and "
        "NIC: bytes of all\nranks and steps, both operations. hottest: rows of the busiest expert "
        "over the mean.\n");
    print_layers(play);
    if (explained(play) && play->step != NULL)
        puts("\nof the exchanges by themselves, without what a whole step computes between them:");
    if (explained(play)) explain_print(&play->breakdown);
    if (play->step != NULL)
        report_step_print(play->step, command_line_flag(play->line, "explain-schedule") != NULL);
    sim_summary_bytes(summary, &bytes);
    printf("\nbytes     formula %s, distinct ranks %s;\n"
           "          on the wire: local %s, NVLink %s, NIC %s\n",
           table_bytes(bytes.formula, text[0]), table_bytes(bytes.distinct_rank, text[1]),
           table_bytes(bytes.wire[SIM_LINK_LOCAL], text[2]),
           table_bytes(bytes.wire[SIM_LINK_NVLINK], text[3]),
           table_bytes(bytes.wire[SIM_LINK_NIC], text[4]));
    print_checks(play);
    printf("time      %.3f ms simulated, %" PRIu64 " events\n", (double)summary->end_ps / 1e9,
           summary->events);
    if (play->db != NULL) printf("database  %s#%" PRIu64 "\n", db_path, summary->run);
    printf("digest    %016" PRIx64 "\n", summary->digest);
}

static int print_json(const struct play *play)
{
    json_t *json = sim_summary_json(&play->summary, play->plan);
    if (explained(play)) json_object_set_new(json, "explain", sim_breakdown_json(&play->breakdown));
    if (play->step != NULL)
        json_object_set_new(
            json, "step",
            report_step_json(play->step,
                             command_line_flag(play->line, "explain-schedule") != NULL));
    return command_print_json(json);
}

int play_run(const struct command_line *line, int argc, char **argv)
{
    struct play *play = (struct play *)calloc(1, sizeof *play);
    char complaint[1024];
    int status = EXIT_ENVIRONMENT;

    if (play == NULL) return command_fail(line->spec, EXIT_ENVIRONMENT, "out of memory");
    play->line = line;
    join_command(argc, argv, play->command, sizeof play->command);
    status = play_all(play);
    if (status >= 0) {
        command_fail_line(line, status, play->err);
    } else {
        status = play->summary.mismatches > 0 ? EXIT_NO : EXIT_OK;
        if (line->json) {
            if (print_json(play) != EXIT_OK) status = EXIT_ENVIRONMENT;
        } else {
            print_result(play);
        }
    }
    if (sim_backend_release(&play->backend, complaint, sizeof complaint) != 0 &&
        status != EXIT_ENVIRONMENT)
        status = command_fail(line->spec, EXIT_ENVIRONMENT, complaint);
    trace_db_close(play->db);
    sim_summary_close(&play->summary);
    if (play->step != NULL) sim_step_record_close(play->step);
    free(play->step);
    sim_breakdown_close(&play->breakdown);
    sim_source_close(play->source);
    free(play->plan);
    free(play);
    return status;
}
