/* tools/cmd_eplb.c - a placement of expert replicas from measured or counted weights. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "sim/eplb.h"
#include "sim/plan.h"
#include "tools/commands.h"
#include "tools/eplb_compare.h"
#include "tools/table.h"

static const struct command_flag flags[] = {
    {"weights", "FILE", "layers x experts, JSON or .npy; - = standard input"},
    {"replicas", "N", "physical experts in all, a multiple of --gpus"},
    {"groups", "N", "groups that experts are routed in [1]"},
    {"nodes", "N", "nodes [1]; groups a multiple of it: hierarchical, else global"},
    {"gpus", "N", "GPUs [8]"},
    {"trace", "FILE", "before and after: play a captured routing trace with and without replicas"},
    {NULL, NULL, NULL},
};

/* With --trace or --routing: what is played. */
static const char *const options[] = {"routing", "offsets", "model",  "machine", "ep",
                                      "mode",    "recipe",  "tokens", "steps",   "layers",
                                      "sms",     "allow",   "seed",   NULL};

static const struct command_spec spec = {
    .name = "eplb",
    .arguments = "",
    .summary =
        "Place replicas of experts on GPUs by weight, as deepseek-ai/EPLB does with ties\n"
        "broken by the lowest index. Physical expert p stands on GPU p / (replicas / gpus).\n"
        "With --trace FILE or --routing GENERATOR, play steps without and with the replicas\n"
        "(placed by --weights, else by the counts of what is played): imbalance and time.",
    .example = "epsim eplb --weights counts.npy --replicas 40 --gpus 8 --json\n"
               "  epsim eplb --trace topk_ids.npy --offsets offsets.npy --model gpt-oss-20b --ep 8 "
               "--batch 64 --steps 8 --replicas 40",
    .options = options,
    .flags = flags,
};

static int read_number(const struct command_line *line, const char *flag, uint32_t fallback,
                       uint32_t max, uint32_t *out, char *err, size_t err_len)
{
    const char *text = command_line_flag(line, flag);
    uint64_t value = fallback;

    if (text == NULL && fallback == 0) {
        snprintf(err, err_len, "--%s: is missing", flag);
        return -1;
    }
    if (text != NULL && sim_parse_u64(text, 1, max, &value) != 0) {
        snprintf(err, err_len, "--%s: %.32s: must be a whole number from 1 to %" PRIu32, flag, text,
                 max);
        return -1;
    }
    *out = (uint32_t)value;
    return 0;
}

/* 0; -1 usage; -2 environment. */
static int place(struct command_line *line, struct sim_eplb *eplb, char *err, size_t err_len)
{
    const char *path = command_line_flag(line, "weights");
    const uint32_t max = SIM_EPLB_REPLICAS_MAX;
    struct sim_eplb_weights weights;
    struct ref_eplb_shape shape = {0, 0, 0, 0, 0};

    for (const char *const *name = spec.options; *name != NULL; name++) {
        if (!command_line_given(line, *name)) continue;
        snprintf(err, err_len, "--%s: needs --trace or --routing: nothing is played without",
                 *name);
        return -1;
    }
    command_typed_as(line, "ep", "--gpus");
    if (path == NULL) {
        snprintf(err, err_len, "--weights: is missing");
        return -1;
    }
    if (read_number(line, "replicas", 0, max, &shape.replicas, err, err_len) != 0 ||
        read_number(line, "groups", 1, max, &shape.groups, err, err_len) != 0 ||
        read_number(line, "nodes", 1, max, &shape.nodes, err, err_len) != 0 ||
        read_number(line, "gpus", 8, max, &shape.gpus, err, err_len) != 0)
        return -1;
    int status = sim_eplb_weights_open(path, &weights, err, err_len);
    if (status != 0) return status;
    shape.experts = weights.experts;
    status = sim_eplb_open(&weights, &shape, eplb, err, err_len);
    sim_eplb_weights_close(&weights);
    return status;
}

static const char *double_text(const struct sim_eplb_double *found, char text[96])
{
    snprintf(text, 96,
             "layer %" PRIu32 ": expert %" PRId32 " has %" PRIu32 " replicas on gpu %" PRIu32,
             found->layer, found->expert.id, found->replicas, found->gpu);
    return text;
}

/* Largest over mean of one layer's GPUs; 1 when nothing is loaded. */
static double imbalance(const double *load, uint32_t gpus)
{
    double sum = 0, largest = 0;
    for (uint32_t g = 0; g < gpus; g++) {
        sum += load[g];
        if (load[g] > largest) largest = load[g];
    }
    return sum > 0 ? largest * gpus / sum : 1;
}

static json_t *reals(const double *values, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) json_array_append_new(list, json_real(values[i]));
    return list;
}

static json_t *imbalances(const struct sim_eplb *eplb, const double *load)
{
    if (load == NULL) return json_null();
    json_t *list = json_array();
    for (uint64_t l = 0; l < eplb->layers; l++)
        json_array_append_new(list,
                              json_real(imbalance(load + l * eplb->shape.gpus, eplb->shape.gpus)));
    return list;
}

static json_t *layer_log2phy(const struct sim_eplb *eplb, uint64_t layer)
{
    json_t *list = json_array();
    for (uint64_t e = layer * eplb->shape.experts; e < (layer + 1) * eplb->shape.experts; e++) {
        json_t *replicas = json_array();
        for (uint32_t r = 0; r < eplb->width; r++)
            json_array_append_new(replicas, json_integer(eplb->log2phy[e * eplb->width + r].id));
        json_array_append_new(list, replicas);
    }
    return list;
}

static json_t *eplb_json(const struct sim_eplb *eplb)
{
    const struct ref_eplb_shape *shape = &eplb->shape;
    json_t *phy2log = json_array(), *log2phy = json_array(), *logcnt = json_array();
    json_t *gpu_load = json_array(), *warnings = json_array();
    struct sim_eplb_double found;
    char text[96];

    for (uint64_t l = 0; l < eplb->layers; l++) {
        json_t *places = json_array(), *counts = json_array();
        for (uint32_t p = 0; p < shape->replicas; p++)
            json_array_append_new(places, json_integer(eplb->phy2log[l * shape->replicas + p].id));
        for (uint32_t e = 0; e < shape->experts; e++)
            json_array_append_new(counts, json_integer(eplb->logcnt[l * shape->experts + e]));
        json_array_append_new(phy2log, places);
        json_array_append_new(logcnt, counts);
        json_array_append_new(log2phy, layer_log2phy(eplb, l));
        json_array_append_new(gpu_load, reals(eplb->gpu_load + l * shape->gpus, shape->gpus));
    }
    for (uint64_t at = 0; sim_eplb_next_double(eplb, &at, &found);)
        json_array_append_new(warnings, json_string(double_text(&found, text)));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "policy",
        ref_eplb_is_hierarchical(shape) && shape->nodes * shape->groups > 1 ? "hierarchical"
                                                                            : "global",
        "phy2log", phy2log, "log2phy", log2phy, "logcnt", logcnt, "gpu_load", gpu_load, "warnings",
        warnings, "imbalance_before", imbalances(eplb, eplb->gpu_load_before), "imbalance_after",
        imbalances(eplb, eplb->gpu_load));
}

static void print_eplb(const struct sim_eplb *eplb)
{
    const struct ref_eplb_shape *shape = &eplb->shape;
    struct table *table =
        table_open(">layer|>max / mean before|>after|>most replicas|~most replicated expert");
    struct sim_eplb_double found;
    char text[96];

    printf("%" PRIu32 " experts, %" PRIu32 " replicas on %" PRIu32 " GPUs; load of the fullest GPU "
           "over the mean\n",
           shape->experts, shape->replicas, shape->gpus);
    for (uint64_t l = 0; l < eplb->layers; l++) {
        const uint32_t *logcnt = eplb->logcnt + l * shape->experts;
        uint32_t most = 0;
        for (uint32_t e = 1; e < shape->experts; e++)
            if (logcnt[e] > logcnt[most]) most = e;
        table_cell(table, "%" PRIu64, l);
        if (eplb->gpu_load_before != NULL)
            table_cell(table, "%.3f",
                       imbalance(eplb->gpu_load_before + l * shape->gpus, shape->gpus));
        else
            table_cell(table, "%s", "-");
        table_cell(table, "%.3f", imbalance(eplb->gpu_load + l * shape->gpus, shape->gpus));
        table_cell(table, "%" PRIu32, logcnt[most]);
        table_cell(table, "%" PRIu32, most);
    }
    table_print(table, stdout);
    table_close(table);
    puts("before: experts in order, without replicas; --json has the placement");
    for (uint64_t at = 0; sim_eplb_next_double(eplb, &at, &found);)
        printf("warning: %s\n", double_text(&found, text));
}

/* Settings of the run to play. 0, or -1 with err. */
static int read_played(struct command_line *line, char *err, size_t err_len)
{
    struct sim_settings *settings = &line->settings;
    const char *trace = command_line_flag(line, "trace"),
               *path = command_line_flag(line, "weights");
    static const char *const not_here[2] = {"gpus", "nodes"};

    for (int i = 0; i < 2; i++) {
        if (command_line_flag(line, not_here[i]) == NULL) continue;
        snprintf(err, err_len, "--%s: what is played has --ep ranks on --machine's nodes",
                 not_here[i]);
        return -1;
    }
    if (trace != NULL) command_typed_as(line, "routing", "--trace");
    if (trace != NULL && sim_settings_set(settings, "routing", trace, err, err_len) != 0) return -1;
    if (command_line_partner(line, "offsets", sim_plan_is_trace(settings), "--trace FILE", err,
                             err_len) != 0)
        return -1;
    if (path != NULL && sim_settings_set(settings, "eplb-weights", path, err, err_len) != 0)
        return -1;
    return read_number(line, "replicas", 0, 4096, &settings->eplb, err, err_len) != 0 ||
                   read_number(line, "groups", 1, 4096, &settings->eplb_groups, err, err_len) != 0
               ? -1
               : 0;
}

int cmd_eplb(int argc, char **argv)
{
    struct command_line line;
    struct sim_eplb eplb;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    command_typed_as(&line, "eplb", "--replicas");
    command_typed_as(&line, "eplb-groups", "--groups");
    command_typed_as(&line, "eplb-weights", "--weights");
    if (command_line_flag(&line, "trace") != NULL || command_line_given(&line, "routing")) {
        if (read_played(&line, err, sizeof err) != 0)
            return command_fail_line(&line, EXIT_USAGE, err);
        return eplb_compare(&line, &line.settings);
    }
    status = place(&line, &eplb, err, sizeof err);
    if (status != 0)
        return command_fail_line(&line, status == -1 ? EXIT_USAGE : EXIT_ENVIRONMENT, err);
    status = EXIT_OK;
    if (line.json)
        status = command_print_json(eplb_json(&eplb));
    else
        print_eplb(&eplb);
    sim_eplb_close(&eplb);
    return status;
}
