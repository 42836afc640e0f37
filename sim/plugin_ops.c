/* sim/plugin_ops.c - the operations of sim/backend.h as calls to a plugin's process. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "sim/plugin_private.h"

int plugin_open_state(const struct sim_backend_ops *self, void **state_out, char *err,
                      size_t err_len)
{
    struct sim_plugin *plugin = (struct sim_plugin *)(uintptr_t)self; /* ops is its first member. */
    struct plugin_child *child = plugin->spare;
    bool phases = false;

    plugin->spare = NULL;
    if (child == NULL) child = plugin_child_open(plugin, &phases, err, err_len);
    if (child == NULL) return -1;
    if (plugin_child_call(child, PLUGIN_OPEN, NULL, err, err_len) != 0) {
        plugin_child_close(child);
        return -1;
    }
    plugin->states++;
    *state_out = child;
    return 0;
}

void plugin_close_state(void *state)
{
    struct plugin_child *child = (struct plugin_child *)state;
    char err[PLUGIN_TEXT_MAX] = "";

    if (child == NULL) return;
    assert(child->plugin->states > 0);
    child->plugin->states--;
    if (child->pid > 0 &&
        (plugin_child_call(child, PLUGIN_CLOSE, NULL, err, sizeof err) != 0 ||
         plugin_child_end(child, err, sizeof err) != 0) &&
        child->plugin->complaint[0] == '\0')
        memcpy(child->plugin->complaint, err, sizeof err);
    plugin_child_close(child);
}

static void add_array(struct plugin_array *arrays, enum plugin_part part, const void *source,
                      uint64_t count, uint64_t item_bytes)
{
    if (source != NULL) arrays[part] = (struct plugin_array){true, source, count * item_bytes};
}

/* The layer as the plugin is shown it. The structs' pointers are set on the other side. */
static void add_layer(struct plugin_child *child, const struct sim_layer_input *in,
                      struct plugin_array *arrays)
{
    const struct ref_routing *routing = in->routing;
    const struct sim_traffic *traffic = in->traffic;
    const uint64_t tokens = ref_token_count(routing), ranks = routing->ranks;
    const uint64_t blocks = sim_row_shape(in).blocks, bf16_row = 2 * (uint64_t)in->hidden;

    child->request.input = *in;
    child->request.routing = *routing;
    child->request.traffic = *traffic;
    add_array(arrays, PART_TOKEN_START, routing->token_start, ranks + 1, sizeof(uint64_t));
    add_array(arrays, PART_TOPK_IDX, routing->topk_idx, tokens * routing->topk, sizeof(int64_t));
    add_array(arrays, PART_TOPK_WEIGHTS, routing->topk_weights, tokens * routing->topk,
              sizeof(float));
    add_array(arrays, PART_X, in->x, tokens, bf16_row);
    add_array(arrays, PART_BIAS0, in->bias0, tokens, bf16_row);
    add_array(arrays, PART_BIAS1, in->bias1, tokens, bf16_row);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        add_array(arrays, d == SIM_DISPATCH ? PART_DISPATCH_MESSAGES : PART_COMBINE_MESSAGES,
                  traffic->messages[d], traffic->message_count[d], sizeof(struct sim_message));
    add_array(arrays, PART_BLOCK_START, traffic->block_start, blocks + 1, sizeof(uint64_t));
    add_array(arrays, PART_HOME_START, traffic->home_start, tokens + 1, sizeof(uint64_t));
    add_array(arrays, PART_RAIL_START, traffic->rail_start, ranks * ranks + 1, sizeof(uint64_t));
    add_array(arrays, PART_CONTRIBUTION_START, traffic->contribution_start, traffic->rail_rows + 1,
              sizeof(uint64_t));
}

/* Every result array that the layer's mode and recipe have, as outputs. */
static void list_results(const struct sim_layer_input *in, struct plugin_array *arrays)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const bool normal = in->traffic->mode == SIM_MODE_NORMAL;
    const uint64_t rows = in->traffic->received_rows, tokens = ref_token_count(in->routing);
    const uint64_t topk = in->routing->topk, bf16_row = 2 * (uint64_t)in->hidden;
    const enum ref_scale_kind kind = ref_recipe_scales((enum ref_recipe)in->recipe);
    const struct plugin_array results[] = {
        {true, NULL, rows * shape.payload_bytes},
        {kind == REF_SCALE_F32, NULL, rows * shape.scale_bytes},
        {kind == REF_SCALE_UE8M0, NULL, rows * shape.scale_bytes},
        {true, NULL, rows * sizeof(int32_t)},
        {normal, NULL, rows * topk * sizeof(int64_t)},
        {normal, NULL, rows * topk * sizeof(float)},
        {true, NULL, shape.blocks * sizeof(int32_t)},
        {true, NULL, rows * bf16_row},
        {true, NULL, tokens * bf16_row},
        {normal, NULL, tokens * topk * sizeof(float)}};
    _Static_assert(PART_COMBINED_WEIGHTS - PART_PAYLOAD + 1 == sizeof results / sizeof results[0],
                   "results in the order of their parts");
    memcpy(&arrays[PART_PAYLOAD], results, sizeof results);
}

/* Received rows at the caller's addresses: present where the caller has an array. */
static void add_received(const struct sim_received *rows, bool as_input,
                         const struct plugin_array *sizes, struct plugin_array *arrays)
{
    const void *const at[] = {rows->payload,   rows->scales,   rows->scales_ue8m0,
                              rows->src_token, rows->topk_idx, rows->topk_weights,
                              rows->counts};
    for (int i = 0; i < (int)(sizeof at / sizeof at[0]); i++) {
        const int part = PART_PAYLOAD + i;
        if (at[i] == NULL) continue;
        assert(sizes[part].present);
        arrays[part] = (struct plugin_array){true, as_input ? at[i] : NULL, sizes[part].bytes};
    }
}

static struct sim_received shown_received(const struct plugin_child *child, uint64_t rows)
{
    return (struct sim_received){.rows = rows,
                                 .payload = (uint8_t *)plugin_child_at(child, PART_PAYLOAD),
                                 .scales = (float *)plugin_child_at(child, PART_SCALES),
                                 .scales_ue8m0 =
                                     (uint32_t *)plugin_child_at(child, PART_SCALES_UE8M0),
                                 .src_token = (int32_t *)plugin_child_at(child, PART_SRC_TOKEN),
                                 .topk_idx = (int64_t *)plugin_child_at(child, PART_ROW_IDX),
                                 .topk_weights = (float *)plugin_child_at(child, PART_ROW_WEIGHTS),
                                 .counts = (int32_t *)plugin_child_at(child, PART_COUNTS)};
}

int plugin_dispatch(void *state, const struct sim_layer_input *in, struct sim_received *out,
                    char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    struct plugin_array sizes[PLUGIN_PARTS] = {{0}}, arrays[PLUGIN_PARTS] = {{0}};

    list_results(in, sizes);
    add_layer(child, in, arrays);
    add_received(out, false, sizes, arrays);
    const int status = plugin_child_call(child, PLUGIN_DISPATCH, arrays, err, err_len);
    if (status != 0) return status;
    const struct sim_received rows = shown_received(child, in->traffic->received_rows);
    return plugin_order_rows(in, &rows, out, &child->order, err, err_len);
}

int plugin_expert(void *state, const struct sim_layer_input *in, const struct sim_received *rows,
                  uint16_t *expert_out, char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    struct plugin_array sizes[PLUGIN_PARTS] = {{0}}, arrays[PLUGIN_PARTS] = {{0}};

    list_results(in, sizes);
    add_layer(child, in, arrays);
    add_received(rows, true, sizes, arrays);
    arrays[PART_EXPERT_OUT] = sizes[PART_EXPERT_OUT];
    const int status = plugin_child_call(child, PLUGIN_EXPERT, arrays, err, err_len);
    if (status != 0) return status;
    memcpy(expert_out, plugin_child_at(child, PART_EXPERT_OUT), sizes[PART_EXPERT_OUT].bytes);
    return 0;
}

int plugin_combine(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                   const float *row_weights, struct sim_combined *out, char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    struct plugin_array sizes[PLUGIN_PARTS] = {{0}}, arrays[PLUGIN_PARTS] = {{0}};
    const bool weights = row_weights != NULL && out->topk_weights != NULL;

    list_results(in, sizes);
    add_layer(child, in, arrays);
    add_array(arrays, PART_EXPERT_OUT, expert_out, sizes[PART_EXPERT_OUT].bytes, 1);
    if (weights) {
        add_array(arrays, PART_ROW_WEIGHTS, row_weights, sizes[PART_ROW_WEIGHTS].bytes, 1);
        arrays[PART_COMBINED_WEIGHTS] = sizes[PART_COMBINED_WEIGHTS];
    }
    arrays[PART_COMBINED] = sizes[PART_COMBINED];
    const int status = plugin_child_call(child, PLUGIN_COMBINE, arrays, err, err_len);
    if (status != 0) return status;
    memcpy(out->x, plugin_child_at(child, PART_COMBINED), sizes[PART_COMBINED].bytes);
    if (weights)
        memcpy(out->topk_weights, plugin_child_at(child, PART_COMBINED_WEIGHTS),
               sizes[PART_COMBINED_WEIGHTS].bytes);
    return 0;
}

int plugin_begin(void *state, const struct sim_layer_input *in, char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    struct plugin_array arrays[PLUGIN_PARTS] = {{0}};

    memset(child->read, 0, sizeof child->read);
    list_results(in, child->read);
    add_layer(child, in, arrays);
    return plugin_child_call(child, PLUGIN_BEGIN, arrays, err, err_len);
}

/* An operation that needs to be told no more than which rank. */
static int call_rank(void *state, enum plugin_op op, enum sim_direction direction, uint32_t rank,
                     char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    child->request.direction = direction;
    child->request.rank = rank;
    return plugin_child_call(child, op, NULL, err, err_len);
}

int plugin_pack(void *state, enum sim_direction direction, uint32_t rank, char *err, size_t err_len)
{
    return call_rank(state, PLUGIN_PACK, direction, rank, err, err_len);
}

int plugin_deliver(void *state, enum sim_direction direction, const struct sim_message *messages,
                   size_t count, char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    struct plugin_array arrays[PLUGIN_PARTS] = {{0}};

    child->request.direction = direction;
    child->request.count = count;
    add_array(arrays, PART_BATCH, messages, count, sizeof *messages);
    return plugin_child_call(child, PLUGIN_DELIVER, arrays, err, err_len);
}

int plugin_forward(void *state, enum sim_direction direction, uint32_t rank, char *err,
                   size_t err_len)
{
    return call_rank(state, PLUGIN_FORWARD, direction, rank, err, err_len);
}

int plugin_unpack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                  size_t err_len)
{
    return call_rank(state, PLUGIN_UNPACK, direction, rank, err, err_len);
}

int plugin_run_expert(void *state, uint32_t rank, char *err, size_t err_len)
{
    return call_rank(state, PLUGIN_RUN_EXPERT, SIM_DISPATCH, rank, err, err_len);
}

int plugin_read(void *state, struct sim_received *received, uint16_t **expert_out,
                struct sim_combined *combined, char *err, size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)state;
    const int status = plugin_child_call(child, PLUGIN_READ, child->read, err, err_len);
    if (status != 0) return status;
    *received = shown_received(child, child->request.traffic.received_rows);
    *expert_out = (uint16_t *)plugin_child_at(child, PART_EXPERT_OUT);
    combined->x = (uint16_t *)plugin_child_at(child, PART_COMBINED);
    combined->topk_weights = (float *)plugin_child_at(child, PART_COMBINED_WEIGHTS);
    return 0;
}
