/* tools/cmd_models.c - model files: the presets, and every figure of one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "sim/model.h"
#include "tools/commands.h"
#include "tools/table.h"

static const struct command_spec spec = {
    .name = "models",
    .arguments = "[NAME|FILE]",
    .summary = "List the model presets, or show every figure of one. Layers are counted among MoE\n"
               "layers everywhere else: MoE layer 0 is decoder layer moe_layer_offset.",
    .example = "epsim models deepseek-v3",
    .arguments_max = 1,
};

struct figure {
    const char *name;
    uint64_t value;
    bool unknown_when_0;
};

enum { FIGURES_MAX = 40 };

static size_t figures_of(const struct sim_model *model, struct figure figures[FIGURES_MAX])
{
    const struct figure all[] = {
        {"hidden", model->hidden, false},
        {"hidden_padded", model->hidden_padded, false},
        {"layers", model->layers, false},
        {"dense_layers", model->dense_layers, false},
        {"moe_layers", model->moe_layers, false},
        {"moe_layer_offset", model->dense_layers, false},
        {"experts", model->experts, false},
        {"topk", model->topk, false},
        {"groups", model->groups, false},
        {"groups_kept", model->groups_kept, false},
        {"moe_inter", model->moe_inter, false},
        {"shared_experts", model->shared_experts, false},
        {"vocabulary", model->vocabulary, true},
        {"query_heads", model->query_heads, true},
        {"kv_bytes", model->kv_bytes, true},
        {"kv_bytes_fp8", model->kv_bytes_fp8, true},
        {"dense_inter", model->dense_inter, true},
        {"attention_context_max", model->attention_context_max, false},
        {"window_context_max", model->window_context_max, false},
        {"window_layers", model->window_layers, false},
        {"indexer_bytes", model->indexer_bytes, false},
        {"indexer_layers", model->indexer_layers, false},
        {"indexer_flop", model->indexer_flop, false},
        {"attention_params", model->attention_params, true},
        {"attention_weight_bytes", model->attention_weight_bytes, true},
        {"attention_flop", model->attention_flop, true},
        {"prefill_flop", model->prefill_flop, true},
        {"expert_32_bytes", model->expert_32_bytes, false},
        {"math_bytes", model->math_bytes, false},
    };

    _Static_assert(sizeof(all) / sizeof(all[0]) <= FIGURES_MAX, "figures_of overflows");
    memcpy(figures, all, sizeof(all));
    return sizeof(all) / sizeof(all[0]);
}

static json_t *model_json(const struct sim_model *model)
{
    struct figure figures[FIGURES_MAX];
    const size_t count = figures_of(model, figures);
    json_t *json = json_object();

    json_object_set_new(json, "name", json_string(model->name));
    json_object_set_new(json, "source", json_string(model->source));
    for (size_t i = 0; i < count; i++)
        json_object_set_new(json, figures[i].name,
                            figures[i].unknown_when_0 && figures[i].value == 0
                                ? json_null()
                                : json_integer((json_int_t)figures[i].value));
    json_object_set_new(json, "router", json_string(sim_router_name(model->router)));
    json_object_set_new(json, "routed_scale", json_real((double)model->routed_scale));
    return json;
}

static int list(bool as_json, char *err, size_t err_len)
{
    json_t *json = json_array();
    struct table *table = table_open("model|>hidden|>padded|>layers|>MoE|>first MoE|>experts|"
                                     ">topk|>inter|>shared|router");

    for (size_t i = 0; sim_model_preset(i) != NULL; i++) {
        struct sim_model model;

        if (sim_model_load(sim_model_preset(i), &model, err, err_len) != 0) {
            json_decref(json);
            table_close(table);
            return -1;
        }
        json_array_append_new(json, model_json(&model));
        table_cell(table, "%s", model.name);
        table_cell(table, "%" PRIu32, model.hidden);
        table_cell(table, "%" PRIu32, model.hidden_padded);
        table_cell(table, "%" PRIu32, model.layers);
        table_cell(table, "%" PRIu32, model.moe_layers);
        table_cell(table, "%" PRIu32, model.dense_layers);
        table_cell(table, "%" PRIu32, model.experts);
        table_cell(table, "%" PRIu32, model.topk);
        table_cell(table, "%" PRIu32, model.moe_inter);
        table_cell(table, "%" PRIu32, model.shared_experts);
        table_cell(table, "%s", sim_router_name(model.router));
    }
    int status = EXIT_OK;
    if (as_json) {
        status = command_print_json(json_pack("{s:o}", "models", json));
    } else {
        table_print(table, stdout);
        puts("\nfirst MoE: the decoder layer that is MoE layer 0. `epsim models NAME` shows one.");
        json_decref(json);
    }
    table_close(table);
    return status;
}

static void show(const struct sim_model *model)
{
    struct figure figures[FIGURES_MAX];
    const size_t count = figures_of(model, figures);
    struct table *table = table_open("figure|>value");

    printf("%s\nsource  %s\n\n", model->name, model->source);
    for (size_t i = 0; i < count; i++) {
        table_cell(table, "%s", figures[i].name);
        if (figures[i].unknown_when_0 && figures[i].value == 0)
            table_cell(table, "unknown");
        else
            table_cell(table, "%" PRIu64, figures[i].value);
    }
    table_cell(table, "router");
    table_cell(table, "%s", sim_router_name(model->router));
    table_cell(table, "routed_scale");
    table_cell(table, "%g", (double)model->routed_scale);
    table_print(table, stdout);
    table_close(table);
}

int cmd_models(int argc, char **argv)
{
    struct command_line line;
    struct sim_model model;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    if (line.argument_count == 0) {
        status = list(line.json, err, sizeof(err));
        return status >= 0 ? status : command_fail(&spec, EXIT_ENVIRONMENT, err);
    }
    if (sim_model_load(line.arguments[0], &model, err, sizeof(err)) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (line.json) return command_print_json(model_json(&model));
    show(&model);
    return EXIT_OK;
}
