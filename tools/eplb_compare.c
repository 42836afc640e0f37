/* tools/eplb_compare.c - plays, adds up, prints. */
#include "tools/eplb_compare.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/run.h"
#include "tools/table.h"

enum { SIDES = 4 };

/* One way to play: none, or a policy. Ratios are largest over mean, means over the steps. */
struct side {
    const char *name;
    struct sim_plan *plan;
    struct sim_summary summary;
};

static int play_side(const struct sim_settings *settings, struct side *side, char *err,
                     size_t err_len)
{
    struct sim_source *source = NULL;
    int status = -1;

    side->plan = (struct sim_plan *)malloc(sizeof *side->plan);
    if (side->plan == NULL) {
        snprintf(err, err_len, "out of memory");
        return EXIT_ENVIRONMENT;
    }
    source = sim_source_open(settings, err, err_len);
    if (source == NULL) return EXIT_USAGE;
    const struct trace_routing *trace = sim_source_trace(source);
    const struct sim_run run = {.plan = side->plan, .source = source};
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      side->plan, err, err_len) != 0 ||
        sim_source_start(source, side->plan, err, err_len) != 0) {
        status = EXIT_USAGE;
    } else if (sim_summary_open(side->plan, &side->summary, err, err_len) != 0 ||
               sim_run_play(&run, &side->summary, err, err_len) != 0) {
        status = EXIT_ENVIRONMENT;
    } else {
        status = EXIT_OK;
    }
    sim_source_close(source);
    return status;
}

static double ratio(const struct side *side, uint64_t ppm)
{
    assert(side->summary.steps > 0);
    return (double)ppm / 1e6 / (double)side->summary.steps;
}

/* Mean over layers, and the worst layer, of expert or rank ratios. */
static double mean_ratio(const struct side *side, bool ranks, double *worst)
{
    const struct sim_summary *summary = &side->summary;
    double sum = 0;
    *worst = 0;
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        const struct sim_layer_summary *layer = &summary->layers[l];
        const double value = ratio(side, ranks ? layer->rank_ratio_ppm : layer->expert_ratio_ppm);
        sum += value;
        if (value > *worst) *worst = value;
    }
    return sum / (double)summary->layer_count;
}

/* Mean over layers of the median step, in us. */
static double mean_us(const struct side *side, enum sim_direction direction)
{
    double sum = 0;
    for (uint32_t l = 0; l < side->summary.layer_count; l++)
        sum += (double)sim_summary_times(&side->summary, l, direction).p50_ps / 1e6;
    return sum / (double)side->summary.layer_count;
}

static json_t *side_json(const struct side *side)
{
    json_t *layers = json_array();
    double worst_expert = 0, worst_rank = 0;
    const double expert = mean_ratio(side, false, &worst_expert);
    const double rank = mean_ratio(side, true, &worst_rank);

    for (uint32_t l = 0; l < side->summary.layer_count; l++) {
        const struct sim_layer_summary *layer = &side->summary.layers[l];
        json_array_append_new(
            layers,
            json_pack("{s:i, s:f, s:f, s:f, s:f}", "layer", (int)layer->layer,
                      "expert_max_over_mean", ratio(side, layer->expert_ratio_ppm),
                      "rank_max_over_mean", ratio(side, layer->rank_ratio_ppm), "dispatch_us",
                      (double)sim_summary_times(&side->summary, l, SIM_DISPATCH).p50_ps / 1e6,
                      "combine_us",
                      (double)sim_summary_times(&side->summary, l, SIM_COMBINE).p50_ps / 1e6));
    }
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:o}", "replica", side->name, "places",
                     (int)side->plan->experts, "expert_max_over_mean", expert, "rank_max_over_mean",
                     rank, "rank_max_over_mean_worst_layer", worst_rank, "dispatch_us",
                     mean_us(side, SIM_DISPATCH), "combine_us", mean_us(side, SIM_COMBINE),
                     "layers", layers);
}

static int print_json(const struct side *sides)
{
    json_t *list = json_array();
    for (int i = 0; i < SIDES; i++) json_array_append_new(list, side_json(&sides[i]));
    return command_print_json(json_pack("{s:s, s:o}", "times", "modelled", "sides", list));
}

static void print_table(const struct side *sides)
{
    const struct sim_plan *plan = sides[0].plan;
    struct table *table = table_open("replicas|>places|>experts|>ranks|>worst layer|>dispatch|"
                                     ">combine|>time saved");
    const double before_us = mean_us(&sides[0], SIM_DISPATCH) + mean_us(&sides[0], SIM_COMBINE);

    printf("%s on %s, EP%" PRIu32 ", %" PRIu64 " tokens a step, %" PRIu64 " steps, %" PRIu32
           " layers\n",
           plan->model.name, plan->machine.name, plan->ranks, plan->token_start[plan->ranks],
           sides[0].summary.steps, plan->layer_count);
    for (int i = 0; i < SIDES; i++) {
        double worst_expert = 0, worst_rank = 0;
        const double dispatch_us = mean_us(&sides[i], SIM_DISPATCH);
        const double combine_us = mean_us(&sides[i], SIM_COMBINE);
        table_cell(table, "%s", sides[i].name);
        table_cell(table, "%" PRIu32, sides[i].plan->experts);
        table_cell(table, "%.2f", mean_ratio(&sides[i], false, &worst_expert));
        table_cell(table, "%.3f", mean_ratio(&sides[i], true, &worst_rank));
        table_cell(table, "%.3f", worst_rank);
        table_cell(table, "%.2f us", dispatch_us);
        table_cell(table, "%.2f us", combine_us);
        table_cell(table, "%.1f %%", (1 - (dispatch_us + combine_us) / before_us) * 100);
    }
    table_print(table, stdout);
    table_close(table);
    puts("experts, ranks: rows of the busiest over the mean, means over steps and layers; worst "
         "layer:\nof ranks. Times are modelled: slowest rank, median step, mean over layers.");
}

int eplb_compare(const struct command_line *line, const struct sim_settings *settings)
{
    static const char *const NAMES[SIDES] = {"none", "static", "row-mod", "row-hash"};
    struct side sides[SIDES] = {{0}};
    char err[2560] = "";
    int status = EXIT_OK;

    for (int i = 0; i < SIDES && status == EXIT_OK; i++) {
        struct sim_settings played = *settings;
        sides[i].name = NAMES[i];
        if (i == 0)
            played.eplb = 0;
        else
            snprintf(played.replica, sizeof played.replica, "%s", NAMES[i]);
        status = play_side(&played, &sides[i], err, sizeof err);
    }
    if (status != EXIT_OK)
        (void)command_fail_line(line, status, err);
    else if (line->json)
        status = print_json(sides);
    else
        print_table(sides);
    for (int i = 0; i < SIDES; i++) {
        sim_summary_close(&sides[i].summary);
        free(sides[i].plan);
    }
    return status;
}
