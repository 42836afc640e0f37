/* tools/cmd_sweep.c - a grid of what-ifs: played on all cores, resumed, shown, advised on. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/version.h"
#include "ref/digest.h"
#include "sim/plan.h"
#include "tools/commands.h"
#include "tools/sweep.h"
#include "traces/db.h"
#include "traces/db_cells.h"
#include "traces/file.h"

/* Axes: an option of the same name, as a comma list. */
static const char *const AXES[] = {"machine", "ep",      "nodes",   "mode",    "recipe",
                                   "sms",     "overlap", "attn-tp", "routing", "capacity",
                                   "eplb",    "replica", "context", "tokens",  NULL};

static const struct command_flag flags[] = {
    {"machine", "LIST", "axis: machine presets or files [h200-hgx]"},
    {"ep", "LIST", "axis: ranks of the expert-parallel group [8]"},
    {"nodes", "LIST", "axis: nodes; 0 = ep over the machine's node size [0]"},
    {"mode", "LIST", "axis: ll, normal, auto [auto]"},
    {"recipe", "LIST", "axis: what dispatch carries [fp8]"},
    {"sms", "LIST", "axis: SMs the normal kernels take [20]"},
    {"overlap", "LIST", "axis: schedules of communication and compute [none]"},
    {"attn-tp", "LIST", "axis: ranks that share attention's heads [1]"},
    {"routing", "LIST", "axis: generators or trace files [uniform]"},
    {"capacity", "LIST", "axis: tokens a rank may send, the same for all ranks"},
    {"eplb", "LIST", "axis: physical experts, hot ones replicated; 0 = none [0]"},
    {"replica", "LIST", "axis: which replica a token takes: static, row-mod, row-hash [static]"},
    {"context", "LIST", "axis: tokens each request has read; above 0 times the whole step [0]"},
    {"tokens", "LIST", "axis: tokens per rank, the same for all ranks [128]"},
    {"advise", "GOAL", "name the best: latency, throughput, memory, cost"},
    {"db", "FILE", "keep cells here; cells found there are not played again"},
    {"csv", "FILE", "write every cell as a line, replaced in one step"},
    {"out", "DIR", "write cells.csv, plots (SVG, PNG) and index.html there (also -o)"},
    {NULL, NULL, NULL},
};

static const char *const options[] = {"model",
                                      "layers",
                                      "steps",
                                      "seed",
                                      "allow",
                                      "after",
                                      "threads",
                                      "offsets",
                                      "qp-depth",
                                      "phase",
                                      "verify",
                                      "prompt",
                                      "gather",
                                      "padding",
                                      "gemm",
                                      "comm-sms",
                                      "attention",
                                      "fabric-routing",
                                      "congestion-control",
                                      "background",
                                      "skew",
                                      "hook",
                                      "eplb-weights",
                                      "eplb-groups",
                                      NULL};

static const struct command_spec spec = {
    .name = "sweep",
    .arguments = "",
    .summary = "Play every combination of the axes' values and compare them: time, throughput,\n"
               "bytes, memory. A cell that a rule refuses says why.",
    .example = "epsim sweep --ep 8,16,32 --mode ll,normal --tokens 32,128,512 --layers 2 "
               "--context 4096 --advise latency",
    .options = options,
    .flags = flags,
};

struct sweeping { /* A sweep, as far as it has come. */
    struct sweep_table table;
    struct trace_db *db;
    char (*digests)[17]; /* Owned: settings and the files they name, by cell. */
    bool *skip;          /* Owned. */
    uint32_t wanted, done;
    bool broken; /* The database could not be written: err says why. */
    char err[1024];
};

#define TOOL_VERSION "epsim " EPSIM_VERSION " (commit " EPSIM_COMMIT ")"

/* Ctrl-C ends the sweep after the cells in flight, so that what is done is kept. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* --- cells ------------------------------------------------------------------------------------ */

/* A cell's key: the settings, and what the files they name hold. */
static void digest_cell(const struct sim_settings *settings, char digest[17])
{
    const char *const names[] = {settings->machine, settings->model, settings->routing,
                                 settings->offsets, settings->eplb_weights};
    char err[256];
    uint64_t files = 0;

    sim_settings_digest(settings, digest);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct trace_file file;
        if (strchr(names[n], '/') == NULL && strchr(names[n], '.') == NULL) continue;
        if (trace_file_open(names[n], &file, err, sizeof err) != 0) continue;
        files = ref_digest_mix(files + n, ref_digest(file.data, file.bytes));
        trace_file_close(&file);
    }
    if (files != 0) {
        const uint64_t own = strtoull(digest, NULL, 16);
        snprintf(digest, 17, "%016" PRIx64, own ^ files);
    }
}

static int compare_digests(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct lookup { /* Cells by digest. */
    struct sweeping *sweeping;
    const char **sorted; /* Into sweeping->digests. */
};

/* A cell of an earlier sweep: keep its result unless it failed. */
static void reuse(void *context, const char *digest, const char *state, const char *summary)
{
    struct lookup *lookup = (struct lookup *)context;
    struct sweep_table *table = &lookup->sweeping->table;
    const char **found = (const char **)bsearch(&digest, lookup->sorted, table->cell_count,
                                                sizeof *lookup->sorted, compare_digests);
    const bool done = strcmp(state, "done") == 0;

    if (found == NULL || (!done && strcmp(state, "refused") != 0)) return;
    const uint32_t cell = (uint32_t)((*found - lookup->sweeping->digests[0]) / 17);
    json_t *json = json_loads(summary, 0, NULL);
    if (!json_is_object(json)) { /* Somebody edited it: play the cell again. */
        json_decref(json);
        return;
    }
    json_decref(table->cells[cell].summary);
    table->cells[cell] = (struct sweep_cell){.known = true,
                                             .reused = true,
                                             .summary = json,
                                             .state = done ? SIM_SWEEP_DONE : SIM_SWEEP_REFUSED};
}

static int reuse_cells(struct sweeping *sweeping, const char *path)
{
    struct sweep_table *table = &sweeping->table;
    struct lookup lookup = {sweeping, NULL};
    struct trace_reader *reader = NULL;
    int status = -1;

    if (access(path, F_OK) != 0) return 0; /* The first sweep. */
    reader = trace_reader_open(path, sweeping->err, sizeof sweeping->err);
    lookup.sorted = (const char **)calloc(table->cell_count, sizeof *lookup.sorted);
    if (reader != NULL && lookup.sorted != NULL) {
        for (uint32_t c = 0; c < table->cell_count; c++) lookup.sorted[c] = sweeping->digests[c];
        qsort(lookup.sorted, table->cell_count, sizeof *lookup.sorted, compare_digests);
        status = trace_reader_cells(reader, TOOL_VERSION, reuse, &lookup, sweeping->err,
                                    sizeof sweeping->err);
    }
    free(lookup.sorted);
    trace_reader_close(reader);
    return status;
}

static int keep(struct sweeping *sweeping, uint32_t cell)
{
    const struct sweep_cell *known = &sweeping->table.cells[cell];
    /* In the summary's own order, which names the columns of the CSV when the cell is read again.
     */
    char *text = json_dumps(known->summary, JSON_COMPACT);
    int status = 0;

    if (sweeping->db != NULL && text != NULL) {
        const struct trace_cell row = {sweeping->digests[cell], sim_sweep_state_name(known->state),
                                       text};
        status = trace_db_cell(sweeping->db, &row, sweeping->err, sizeof sweeping->err);
    }
    free(text);
    return status;
}

static bool take(void *context, const struct sim_sweep_result *result)
{
    struct sweeping *sweeping = (struct sweeping *)context;
    struct sweep_cell *cell = &sweeping->table.cells[result->cell];

    *cell = (struct sweep_cell){
        .known = true, .state = result->state, .summary = json_incref(result->summary)};
    sweeping->done++;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%" PRIu32 " of %" PRIu32 " cells%s", sweeping->done, sweeping->wanted,
                sweeping->done == sweeping->wanted ? "\r                              \r" : "");
    if (keep(sweeping, result->cell) != 0) {
        sweeping->broken = true;
        return false;
    }
    return interrupted == 0;
}

/* --- the command ------------------------------------------------------------------------------ */

/* A list for an option that is no axis. Looked for before anything is read, since most options
 * refuse a list in their own words. 0, or -1 with err. */
static int check_lists(int argc, char **argv, char *err, size_t err_len)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) continue;
        const size_t length = strcspn(argv[i] + 2, "=");
        const char *value = argv[i][2 + length] == '=' ? argv[i] + 3 + length : argv[i + 1];
        const char *const *option = options;
        while (*option != NULL &&
               (strlen(*option) != length || memcmp(*option, argv[i] + 2, length) != 0))
            option++;
        if (*option == NULL || strcmp(*option, "allow") == 0) continue;
        if (value == NULL || strchr(value, ',') == NULL || strchr(value, '/') != NULL) continue;
        snprintf(err, err_len,
                 "--%s: %.64s: is no axis and takes one value for all cells; sweep once for each "
                 "value (cells of all fit into one --db)",
                 *option, value);
        return -1;
    }
    return 0;
}

/* Money needs a price: has a machine of the grid one? 0, or -1 with err. */
static int check_price(const struct sweep_table *table, char *err, size_t err_len)
{
    struct sim_settings settings = table->grid.base;

    for (uint32_t c = 0; c < table->cell_count; c++) {
        struct fabric_machine machine;
        char unread[512]; /* The cell will say it. */
        sim_sweep_settings(&table->grid, c, &settings);
        if (fabric_machine_load(settings.machine, &machine, unread, sizeof unread) == 0 &&
            machine.gpu_hour_microusd > 0)
            return 0;
    }
    snprintf(err, err_len,
             "--advise: cost: no machine here has a price: give --machine a file with 'inherits: "
             "%.64s' and 'gpu_hour_usd: N', the price of a GPU for an hour",
             settings.machine);
    return -1;
}

/* What no cell would look at. */
static int check_partners(const struct command_line *line, bool places, bool trace, char *err,
                          size_t err_len)
{
    return command_line_partner(line, "eplb-weights", places, "--eplb N", err, err_len) != 0 ||
                   command_line_partner(line, "eplb-groups", places, "--eplb N", err, err_len) !=
                       0 ||
                   command_line_partner(line, "offsets", trace, "--routing TRACE", err, err_len) !=
                       0
               ? -1
               : 0;
}

static int build_grid(const struct command_line *line, struct sweeping *sweeping)
{
    struct sweep_table *table = &sweeping->table;

    sim_sweep_init(&table->grid, &line->settings);
    memcpy(table->grid.base.detail, "summary", sizeof "summary");
    for (size_t a = 0; AXES[a] != NULL; a++) {
        const char *list = command_line_flag(line, AXES[a]);
        if (list == NULL) continue;
        if (sim_sweep_add(&table->grid, AXES[a], list, sweeping->err, sizeof sweeping->err) != 0)
            return -1;
    }
    table->cell_count = sim_sweep_cells(&table->grid);
    table->cells = (struct sweep_cell *)calloc(table->cell_count, sizeof *table->cells);
    sweeping->digests = (char(*)[17])calloc(table->cell_count, sizeof *sweeping->digests);
    sweeping->skip = (bool *)calloc(table->cell_count, sizeof *sweeping->skip);
    if (table->cells == NULL || sweeping->digests == NULL || sweeping->skip == NULL) {
        snprintf(sweeping->err, sizeof sweeping->err, "%" PRIu32 " cells: out of memory",
                 table->cell_count);
        return -1;
    }
    bool places = false, trace = false;
    for (uint32_t c = 0; c < table->cell_count; c++) {
        struct sim_settings settings;
        sim_sweep_settings(&table->grid, c, &settings);
        digest_cell(&settings, sweeping->digests[c]);
        places |= settings.eplb > 0;
        trace |= sim_plan_is_trace(&settings);
    }
    return check_partners(line, places, trace, sweeping->err, sizeof sweeping->err);
}

static int begin_database(struct sweeping *sweeping, const char *path, const char *command,
                          bool *usage)
{
    json_t *settings = sim_settings_json(&sweeping->table.grid.base);
    char *text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);
    char digest[17];
    int status = -1;

    json_decref(settings);
    sim_settings_digest(&sweeping->table.grid.base, digest);
    sweeping->db =
        trace_db_open(path, TRACE_DB_WAIT_MS, usage, sweeping->err, sizeof sweeping->err);
    const struct trace_run run = {TOOL_VERSION, command, text, digest,
                                  sweeping->table.grid.base.seed};
    if (sweeping->db != NULL && text != NULL)
        status = trace_db_begin_run(sweeping->db, &run, NULL, sweeping->err, sizeof sweeping->err);
    free(text);
    for (uint32_t c = 0; c < sweeping->table.cell_count && status == 0; c++)
        if (sweeping->table.cells[c].known) status = keep(sweeping, c);
    return status;
}

/* Over every cell's state and summary, in order. */
static uint64_t digest_all(const struct sweep_table *table)
{
    uint64_t digest = 0;
    for (uint32_t c = 0; c < table->cell_count; c++) {
        char *text = json_dumps(table->cells[c].summary, JSON_COMPACT | JSON_SORT_KEYS);
        if (text != NULL) digest = ref_digest_mix(digest, ref_digest(text, strlen(text)));
        free(text);
    }
    return digest;
}

static int play(const struct command_line *line, struct sweeping *sweeping, const char *command)
{
    const char *path = command_line_flag(line, "db");
    bool usage = false;
    char digest[17];

    if (path != NULL && reuse_cells(sweeping, path) != 0) return EXIT_USAGE;
    for (uint32_t c = 0; c < sweeping->table.cell_count; c++) {
        sweeping->skip[c] = sweeping->table.cells[c].known;
        sweeping->wanted += !sweeping->skip[c];
    }
    if (path != NULL && begin_database(sweeping, path, command, &usage) != 0)
        return usage ? EXIT_USAGE : EXIT_ENVIRONMENT;
    signal(SIGINT, interrupt);
    if (sweeping->wanted > 0 &&
        sim_sweep_play(&sweeping->table.grid, sweeping->skip, line->settings.threads, take,
                       sweeping, sweeping->err, sizeof sweeping->err) != 0)
        return EXIT_ENVIRONMENT;
    if (sweeping->broken) return EXIT_ENVIRONMENT;
    snprintf(digest, sizeof digest, "%016" PRIx64, digest_all(&sweeping->table));
    if (interrupted) {
        snprintf(sweeping->err, sizeof sweeping->err,
                 "interrupted after %" PRIu32 " of %" PRIu32 " cells%s", sweeping->done,
                 sweeping->wanted, path != NULL ? ": the same command goes on from there" : "");
        if (sweeping->db != NULL) /* Commit what is done. */
            trace_db_step_done(sweeping->db, 0, digest, sizeof digest);
        return EXIT_ENVIRONMENT;
    }
    if (sweeping->db != NULL &&
        trace_db_end_run(sweeping->db, digest, sweeping->err, sizeof sweeping->err) != 0)
        return EXIT_ENVIRONMENT;
    return EXIT_OK;
}

/* EXIT_OK where a cell has figures to show; otherwise what the sweep comes to, with err: no cell
 * could be asked, or (rather said, where there is one) none was finished. */
static int judge(struct sweeping *sweeping)
{
    const struct sweep_table *table = &sweeping->table;
    uint32_t counts[SIM_SWEEP_STATES], first = 0;
    char before[64] = "";

    sweep_count(table, counts);
    if (counts[SIM_SWEEP_DONE] > 0) return EXIT_OK;
    const bool failed = counts[SIM_SWEEP_FAILED] > 0;
    while (failed && table->cells[first].state != SIM_SWEEP_FAILED) first++;
    if (table->cell_count > 1)
        snprintf(before, sizeof before, "all %" PRIu32 " cells %s, the first: ", table->cell_count,
                 failed ? "failed or are refused" : "are refused");
    snprintf(sweeping->err, sizeof sweeping->err, "%s%s", before, sweep_why(table, first));
    return failed ? EXIT_ENVIRONMENT : EXIT_USAGE;
}

static int show(const struct command_line *line, struct sweeping *sweeping,
                const struct sim_goal *goal, const char *command)
{
    const struct sweep_table *table = &sweeping->table;
    const char *csv = command_line_flag(line, "csv"), *out = command_line_flag(line, "out");
    uint32_t plots = 0;

    if (csv != NULL && sweep_write_csv(table, csv, sweeping->err, sizeof sweeping->err) != 0)
        return EXIT_ENVIRONMENT;
    if (out != NULL &&
        (sweep_write_plots(table, out, &plots, sweeping->err, sizeof sweeping->err) != 0 ||
         sweep_write_page(table, out, command, sweeping->err, sizeof sweeping->err) != 0))
        return EXIT_ENVIRONMENT;
    if (line->json) {
        json_t *json = sweep_json(table);
        char digest[17];
        snprintf(digest, sizeof digest, "%016" PRIx64, digest_all(table));
        json_object_set_new(json, "seed", json_integer((json_int_t)table->grid.base.seed));
        json_object_set_new(json, "digest", json_string(digest));
        json_object_set_new(json, "crossovers", sweep_crossovers_json(table));
        if (goal != NULL) json_object_set_new(json, "advice", sweep_advice_json(table, goal));
        return command_print_json(json);
    }
    printf("seed      %" PRIu64 "\n", table->grid.base.seed);
    sweep_print(table);
    sweep_print_crossovers(table);
    if (goal != NULL) sweep_print_advice(table, goal);
    if (out != NULL)
        printf("\nwritten   %s/index.html, cells.csv, %" PRIu32 " plots\n", out, plots);
    printf("digest    %016" PRIx64 "\n", digest_all(table));
    return EXIT_OK;
}

int cmd_sweep(int argc, char **argv)
{
    struct command_line line;
    struct sweeping sweeping;
    const struct sim_goal *goal = NULL;
    char command[4096];
    char list[256];
    if (check_lists(argc, argv, list, sizeof list) != 0)
        return command_fail(&spec, EXIT_USAGE, list);
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    memset(&sweeping, 0, sizeof sweeping);
    size_t at = (size_t)snprintf(command, sizeof command, "epsim");
    for (int i = 0; i < argc && at < sizeof command; i++)
        at += (size_t)snprintf(command + at, sizeof command - at, " %s", argv[i]);
    const char *goal_name = command_line_flag(&line, "advise");
    if (goal_name != NULL) goal = sim_goal_find(goal_name);
    if (goal_name != NULL && goal == NULL)
        return command_fail(&spec, EXIT_USAGE,
                            "--advise: must be one of latency, throughput, memory, cost");
    status = build_grid(&line, &sweeping);
    if (status == 0 && goal != NULL && strcmp(goal->name, "cost") == 0)
        status = check_price(&sweeping.table, sweeping.err, sizeof sweeping.err);
    status = status != 0 ? EXIT_USAGE : play(&line, &sweeping, command);
    if (status == EXIT_OK) status = judge(&sweeping);
    if (status == EXIT_OK) status = show(&line, &sweeping, goal, command);
    if (status != EXIT_OK) command_fail_line(&line, status, sweeping.err);
    trace_db_close(sweeping.db);
    for (uint32_t c = 0; c < sweeping.table.cell_count && sweeping.table.cells != NULL; c++)
        json_decref(sweeping.table.cells[c].summary);
    free(sweeping.table.cells);
    free(sweeping.digests);
    free(sweeping.skip);
    sim_sweep_free(&sweeping.table.grid);
    return status;
}
