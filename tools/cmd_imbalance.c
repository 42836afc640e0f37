/* tools/cmd_imbalance.c - `epsim imbalance`: how uneven a trace or a generator is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim/imbalance.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const options[] = {"routing", "offsets", "model",  "machine",      "ep",
                                      "nodes",   "mode",    "tokens", "steps",        "layers",
                                      "allow",   "seed",    "eplb",   "eplb-weights", "eplb-groups",
                                      "replica", NULL};

static const struct command_spec spec = {
    .name = "imbalance",
    .arguments = "[TRACE]",
    .summary =
        "Count a captured trace, or what --routing draws: load of experts and ranks, and how\n"
        "many experts adjacent tokens share, layer by layer.",
    .example = "epsim imbalance --routing decode --model deepseek-v3 --ep 32 --batch 64 --steps 16",
    .options = options,
    .arguments_max = 1,
};

/* The columns, in the order of figure(). */
enum { FIGURES = 6 };
static const char *const keys[FIGURES] = {"expert_max_over_mean",   "busiest_eighth_share",
                                          "rank_max_over_mean",     "rank_max_over_mean_step",
                                          "shared_with_row_before", "shared_with_step_before"};

static double figure(const struct sim_imbalance *layer, int column)
{
    const uint64_t ppm[FIGURES] = {layer->expert_ppm,    layer->eighth_ppm, layer->rank_ppm,
                                   layer->rank_step_ppm, layer->row_ppm,    layer->step_ppm};
    return (double)ppm[column] / 1e6;
}

static int ascending(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Least, median and most of a column over the layers. */
static void spread(const struct sim_plan *plan, const struct sim_imbalance *layers, int column,
                   double out[3])
{
    double values[SIM_LAYERS_MAX];
    const uint32_t count = plan->layer_count;
    for (uint32_t l = 0; l < count; l++) values[l] = figure(&layers[l], column);
    qsort(values, count, sizeof *values, ascending);
    out[0] = values[0];
    out[1] = (values[(count - 1) / 2] + values[count / 2]) / 2;
    out[2] = values[count - 1];
}

static int print_json(const struct sim_plan *plan, const struct sim_imbalance *layers)
{
    json_t *list = json_array(), *over = json_object();
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        json_t *layer = json_pack("{s:i}", "layer", (int)layers[l].layer);
        for (int c = 0; c < FIGURES; c++)
            json_object_set_new(layer, keys[c], json_real(figure(&layers[l], c)));
        json_array_append_new(list, layer);
    }
    for (int c = 0; c < FIGURES; c++) {
        double out[3];
        spread(plan, layers, c, out);
        json_object_set_new(
            over, keys[c],
            json_pack("{s:f, s:f, s:f}", "min", out[0], "median", out[1], "max", out[2]));
    }
    return command_print_json(json_pack(
        "{s:I, s:i, s:i, s:o, s:o}", "seed", (json_int_t)plan->settings.seed, "experts",
        (int)plan->experts, "ranks", (int)plan->ranks, "over_layers", over, "layers", list));
}

static void print_table(const struct sim_plan *plan, const struct sim_imbalance *layers)
{
    static const char *const names[3] = {"least", "median", "most"};
    struct table *table = table_open(">layer|>experts|>busiest eighth|>ranks|>ranks in a step|"
                                     ">shared with row before|>with step before");
    double over[FIGURES][3];

    printf("%" PRIu32 " experts, top-%" PRIu32 ", EP%" PRIu32 ", %" PRIu64
           " tokens a step, %" PRIu32 " steps, seed %" PRIu64 "\n",
           plan->experts, plan->topk, plan->ranks, plan->token_start[plan->ranks],
           plan->settings.steps, plan->settings.seed);
    for (uint32_t n = 0; n < plan->note_count; n++) printf("note: %s\n", plan->notes[n]);
    for (int c = 0; c < FIGURES; c++) spread(plan, layers, c, over[c]);
    for (uint32_t l = 0; l < plan->layer_count + 3; l++) {
        const bool layer = l < plan->layer_count;
        if (layer)
            table_cell(table, "%" PRIu32, layers[l].layer);
        else
            table_cell(table, "%s", names[l - plan->layer_count]);
        for (int c = 0; c < FIGURES; c++)
            table_cell(table, c == 0 || c == 2 || c == 3 ? "%.2f" : "%.3f",
                       layer ? figure(&layers[l], c) : over[c][l - plan->layer_count]);
    }
    table_print(table, stdout);
    table_close(table);
    puts("experts, ranks: rows of the busiest over the mean, all steps together; shares of 1");
}

static int count(const struct command_line *line, struct sim_plan *plan, char *err, size_t err_len)
{
    int status = EXIT_USAGE;
    struct sim_source *source = sim_source_open(&line->settings, err, err_len);
    struct sim_imbalance *layers = NULL;

    if (source == NULL) return EXIT_USAGE;
    const struct trace_routing *trace = sim_source_trace(source);
    if (sim_plan_make(&line->settings, trace != NULL ? trace->layers : 0,
                      trace != NULL ? trace->topk : 0, plan, err, err_len) != 0 ||
        sim_source_start(source, plan, err, err_len) != 0)
        goto close_source;
    status = EXIT_ENVIRONMENT;
    layers = (struct sim_imbalance *)calloc(plan->layer_count, sizeof *layers);
    if (layers == NULL) {
        snprintf(err, err_len, "out of memory");
    } else if (sim_imbalance_count(plan, source, layers, err, err_len) == 0) {
        status = EXIT_OK;
        if (line->json)
            status = print_json(plan, layers);
        else
            print_table(plan, layers);
    }
    free(layers);
close_source:
    sim_source_close(source);
    return status;
}

int cmd_imbalance(int argc, char **argv)
{
    struct command_line line;
    char err[2560] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    if (line.argument_count > 0 &&
        sim_settings_set(&line.settings, "routing", line.arguments[0], err, sizeof err) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (line.argument_count > 0) command_typed_as(&line, "routing", "TRACE");
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);
    if (plan == NULL) return command_fail(&spec, EXIT_ENVIRONMENT, "out of memory");
    status = count(&line, plan, err, sizeof err);
    free(plan);
    return status == EXIT_OK || err[0] == '\0' ? status : command_fail_line(&line, status, err);
}
