/* sim/model.c - model files into struct sim_model. */
#include "sim/model.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "fabric/fields.h"
#include "fabric/units.h"
#include "fabric/yaml.h"
#include "gen/embedded.h"

#define FIELD(name, min, max, required) FABRIC_FIELD(struct sim_model, name, min, max, required)

static const struct fabric_field fields[] = {
    FIELD(hidden, 1, 65536, true),
    FIELD(layers, 1, 4096, true),
    FIELD(dense_layers, 0, 4096, true),
    FIELD(experts, 1, 4096, true),
    FIELD(topk, 1, 32, true),
    FIELD(groups, 1, 4096, false),
    FIELD(groups_kept, 1, 4096, false),
    FIELD(moe_inter, 1, 1 << 20, true),
    FIELD(shared_experts, 0, 64, true),
    FIELD(vocabulary, 1, 1 << 24, false),
    FIELD(query_heads, 1, 65536, false),
    FIELD(kv_bytes, 1, 1 << 24, false),
    FIELD(kv_bytes_fp8, 1, 1 << 24, false),
    FIELD(dense_inter, 1, 1 << 20, false),
    FIELD(attention_context_max, 1, 1 << 30, false),
    FIELD(window_context_max, 1, 1 << 30, false),
    FIELD(window_layers, 1, 4096, false),
    FIELD(indexer_bytes, 1, 1 << 20, false),
    FIELD(indexer_layers, 1, 4096, false),
    FIELD(indexer_flop, 1, 1 << 30, false),
    FIELD(attention_params, 1, UINT32_MAX, false),
    FIELD(attention_weight_bytes, 1, UINT32_MAX, false),
    FIELD(attention_flop, 1, 1 << 30, false),
    FIELD(prefill_flop, 1, 1 << 30, false),
    FIELD(expert_32_bytes, 1, 128, false),
    FIELD(math_bytes, 1, 2, false),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* Hidden sizes that the low-latency kernels are compiled for. */
static const uint32_t ll_hidden[] = {2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};

static const char *const router_names[SIM_ROUTERS] = {
    [SIM_ROUTER_UNKNOWN] = "unknown",
    [SIM_ROUTER_SIGMOID_BIAS] = "sigmoid_bias",
    [SIM_ROUTER_SOFTMAX] = "softmax",
    [SIM_ROUTER_SOFTMAX_NORM] = "softmax_norm",
    [SIM_ROUTER_SOFTMAX_SELECTED] = "softmax_selected",
};

const char *sim_router_name(enum sim_router router)
{
    assert(router < SIM_ROUTERS);
    return router_names[router];
}

static uint32_t pad_hidden(uint32_t hidden)
{
    assert(hidden > 0);
    for (size_t i = 0; i < sizeof ll_hidden / sizeof ll_hidden[0]; i++)
        if (hidden <= ll_hidden[i]) return ll_hidden[i];
    return hidden;
}

static int read_router(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                       struct sim_model *model, char *err, size_t err_len)
{
    for (int i = 0; i < SIM_ROUTERS && node->text; i++) {
        if (strcmp(node->text, router_names[i]) != 0) continue;
        model->router = (enum sim_router)i;
        return 0;
    }
    return fabric_yaml_refuse(
        yaml, node, "must be sigmoid_bias, softmax, softmax_norm, softmax_selected or unknown", err,
        err_len);
}

/* A decimal with at most six places below 16: both integers below are exact in a float, so the
 * one division rounds once and gives the float nearest to what the file says. */
static int read_scale(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      struct sim_model *model, char *err, size_t err_len)
{
    const struct fabric_unit millionths = {1000000, 1};
    uint64_t value = 0;
    if (!node->text || fabric_decimal_parse(node->text, millionths, &value) != FABRIC_DECIMAL_OK ||
        value == 0 || value > 16000000)
        return fabric_yaml_refuse(yaml, node, "must lie in 0.000001..16, six decimals", err,
                                  err_len);
    model->routed_scale = (float)value / 1000000.0f;
    return 0;
}

static int apply(const struct fabric_yaml *yaml, struct sim_model *model, uint8_t *said, char *err,
                 size_t err_len)
{
    if (yaml->root->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, yaml->root, "a model file holds fields", err, err_len);
    for (const struct fabric_yaml_node *node = yaml->root->child; node; node = node->next) {
        int result;
        if (strcmp(node->key, "source") == 0)
            result =
                fabric_yaml_text(yaml, node, model->source, sizeof model->source, err, err_len);
        else if (strcmp(node->key, "router") == 0)
            result = read_router(yaml, node, model, err, err_len);
        else if (strcmp(node->key, "routed_scale") == 0)
            result = read_scale(yaml, node, model, err, err_len);
        else if (node->text && strcmp(node->text, "unknown") == 0)
            result = fabric_field_skip(yaml, node, fields, FIELDS, err, err_len);
        else
            result = fabric_field_read(yaml, node, fields, FIELDS, model, said, 0, err, err_len);
        if (result != 0) return -1;
    }
    return fabric_field_check(yaml->name, fields, FIELDS, said, err, err_len);
}

/* Figures of some layers and how many layers those are: one without the other would not be used.
 */
static int check_layers(const char *file, const char *count_name, uint32_t count,
                        const char *figure_name, uint32_t figure, uint32_t layers, char *err,
                        size_t err_len)
{
    if (figure > 0 && count == 0)
        snprintf(err, err_len, "%s: %s: %u: needs %s", file, figure_name, figure, count_name);
    else if (figure == 0 && count > 0)
        snprintf(err, err_len, "%s: %s: %u: needs %s", file, count_name, count, figure_name);
    else if (count > layers)
        snprintf(err, err_len, "%s: %s: %u: must not exceed layers %u", file, count_name, count,
                 layers);
    else
        return 0;
    return -1;
}

/* What no single field shows. */
static int check(const char *file, const struct sim_model *model, char *err, size_t err_len)
{
    if (model->dense_layers >= model->layers)
        snprintf(err, err_len, "%s: dense_layers: %u: must be below layers %u", file,
                 model->dense_layers, model->layers);
    else if (model->experts % model->groups != 0)
        snprintf(err, err_len, "%s: groups: %u: must divide experts %u", file, model->groups,
                 model->experts);
    else if (model->groups_kept > model->groups)
        snprintf(err, err_len, "%s: groups_kept: %u: must not exceed groups %u", file,
                 model->groups_kept, model->groups);
    else if (model->topk > model->experts / model->groups * model->groups_kept)
        snprintf(err, err_len, "%s: topk: %u: the kept groups hold only %u experts", file,
                 model->topk, model->experts / model->groups * model->groups_kept);
    else if (model->indexer_flop > 0 && model->indexer_layers == 0)
        snprintf(err, err_len, "%s: indexer_flop: %u: needs indexer_layers", file,
                 model->indexer_flop);
    else
        return check_layers(file, "window_layers", model->window_layers, "window_context_max",
                            model->window_context_max, model->layers, err, err_len) != 0 ||
                       check_layers(file, "indexer_layers", model->indexer_layers, "indexer_bytes",
                                    model->indexer_bytes, model->layers, err, err_len) != 0
                   ? -1
                   : 0;
    return -1;
}

/* Frees yaml. */
static int build(struct fabric_yaml *yaml, struct sim_model *model, char *err, size_t err_len)
{
    struct sim_model made = {.groups = 1,
                             .groups_kept = 1,
                             .expert_32_bytes = 32,
                             .math_bytes = 1,
                             .routed_scale = 1.0f};
    uint8_t said[FIELDS];
    memset(said, FABRIC_FIELD_UNSAID, sizeof said);
    int result = apply(yaml, &made, said, err, err_len);
    if (result == 0) result = check(yaml->name, &made, err, err_len);
    if (result == 0) {
        fabric_yaml_stem(yaml->name, made.name, sizeof made.name);
        made.hidden_padded = pad_hidden(made.hidden);
        made.moe_layers = made.layers - made.dense_layers;
        assert(made.hidden_padded >= made.hidden && made.moe_layers > 0);
        *model = made;
    }
    fabric_yaml_free(yaml);
    return result;
}

int sim_model_parse(const char *name, const char *text, size_t bytes, struct sim_model *model,
                    char *err, size_t err_len)
{
    struct fabric_yaml yaml;
    if (fabric_yaml_parse(name, text, bytes, &yaml, err, err_len) != 0) return -1;
    return build(&yaml, model, err, err_len);
}

int sim_model_load(const char *name_or_path, struct sim_model *model, char *err, size_t err_len)
{
    struct fabric_yaml yaml;
    const struct embedded_file *file = embedded_models;
    if (fabric_yaml_is_path(name_or_path)) {
        if (fabric_yaml_read(name_or_path, &yaml, err, err_len) != 0) return -1;
        return build(&yaml, model, err, err_len);
    }
    while (file->name && strcmp(file->name, name_or_path) != 0) file++;
    if (file->name) {
        char name[80];
        snprintf(name, sizeof name, "%s.yaml", file->name);
        return sim_model_parse(name, file->text, file->bytes, model, err, err_len);
    }
    size_t used = (size_t)snprintf(err, err_len, "model %.64s: unknown; there are", name_or_path);
    for (size_t i = 0; sim_model_preset(i) && used < err_len; i++)
        used += (size_t)snprintf(err + used, err_len - used, " %s", sim_model_preset(i));
    return -1;
}

bool sim_model_is_preset(const char *name)
{
    for (const struct embedded_file *file = embedded_models; file->name; file++)
        if (strcmp(file->name, name) == 0) return true;
    return false;
}

const char *sim_model_preset(size_t index)
{
    /* The build lists files by file name, where glm-5.3-article.yaml precedes glm-5.3.yaml. */
    for (const struct embedded_file *file = embedded_models; file->name; file++) {
        size_t earlier = 0;
        for (const struct embedded_file *other = embedded_models; other->name; other++)
            if (strcmp(other->name, file->name) < 0) earlier++;
        if (earlier == index) return file->name;
    }
    return NULL;
}
