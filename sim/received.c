/* sim/received.c - sizes of one layer's results. */
#include "sim/received.h"

#include <assert.h>
#include <string.h>

#include "ref/quantise.h"

struct sim_row_shape sim_row_shape(const struct sim_layer_input *input)
{
    const enum ref_recipe recipe = (enum ref_recipe)input->recipe;
    const struct ref_routing *routing = input->routing;
    struct sim_row_shape shape = {0};

    assert(input->hidden > 0 && input->hidden % REF_GROUP_CHANNELS == 0);
    shape.payload_bytes = (uint64_t)input->hidden * ref_recipe_payload_bytes(recipe);
    if (ref_recipe_scales(recipe) == REF_SCALE_F32)
        shape.scale_bytes = ref_scale_groups(input->hidden) * sizeof(float);
    if (ref_recipe_scales(recipe) == REF_SCALE_UE8M0)
        shape.scale_bytes =
            ref_scale_packed_words(ref_scale_groups(input->hidden)) * sizeof(uint32_t);
    shape.blocks = (uint64_t)routing->ranks *
                   (input->traffic->mode == SIM_MODE_LL ? routing->experts : routing->ranks);
    return shape;
}

/* Rows and bytes of a row of every array; 0 rows where the mode has none. */
static void array_sizes(const struct sim_layer_input *input, uint64_t sizes[SIM_RESULT_ARRAYS][2])
{
    const struct sim_row_shape shape = sim_row_shape(input);
    const bool normal = input->traffic->mode == SIM_MODE_NORMAL;
    const uint64_t rows = input->traffic->received_rows;
    const uint64_t tokens = ref_token_count(input->routing);
    const uint64_t topk = input->routing->topk;
    const uint64_t all[SIM_RESULT_ARRAYS][2] = {
        [SIM_RESULT_PAYLOAD] = {rows, shape.payload_bytes},
        [SIM_RESULT_SCALES] = {rows, shape.scale_bytes},
        [SIM_RESULT_SRC_TOKEN] = {rows, sizeof(int32_t)},
        [SIM_RESULT_TOPK_IDX] = {normal ? rows : 0, topk * sizeof(int64_t)},
        [SIM_RESULT_TOPK_WEIGHTS] = {normal ? rows : 0, topk * sizeof(float)},
        [SIM_RESULT_COUNTS] = {shape.blocks, sizeof(int32_t)},
        [SIM_RESULT_EXPERT_OUT] = {rows, 2 * (uint64_t)input->hidden},
        [SIM_RESULT_COMBINED] = {tokens, 2 * (uint64_t)input->hidden},
        [SIM_RESULT_COMBINED_WEIGHTS] = {normal ? tokens : 0, topk * sizeof(float)}};
    memcpy(sizes, all, sizeof all);
}

int sim_results_reserve(struct sim_results *results, const struct sim_layer_input *input, char *err,
                        size_t err_len)
{
    const bool normal = input->traffic->mode == SIM_MODE_NORMAL;
    uint64_t sizes[SIM_RESULT_ARRAYS][2];

    array_sizes(input, sizes);
    for (int i = 0; i < SIM_RESULT_ARRAYS; i++)
        if (sim_arena_reserve(&results->arenas[i], sizes[i][0], sizes[i][1], err, err_len) != 0)
            return -1;
    void *at[SIM_RESULT_ARRAYS];
    for (int i = 0; i < SIM_RESULT_ARRAYS; i++) at[i] = results->arenas[i].bytes;
    const enum ref_scale_kind kind = ref_recipe_scales((enum ref_recipe)input->recipe);
    results->received = (struct sim_received){
        .rows = input->traffic->received_rows,
        .payload = (uint8_t *)at[SIM_RESULT_PAYLOAD],
        .scales = kind == REF_SCALE_F32 ? (float *)at[SIM_RESULT_SCALES] : NULL,
        .scales_ue8m0 = kind == REF_SCALE_UE8M0 ? (uint32_t *)at[SIM_RESULT_SCALES] : NULL,
        .src_token = (int32_t *)at[SIM_RESULT_SRC_TOKEN],
        .topk_idx = normal ? (int64_t *)at[SIM_RESULT_TOPK_IDX] : NULL,
        .topk_weights = normal ? (float *)at[SIM_RESULT_TOPK_WEIGHTS] : NULL,
        .counts = (int32_t *)at[SIM_RESULT_COUNTS]};
    results->expert_out = (uint16_t *)at[SIM_RESULT_EXPERT_OUT];
    results->combined = (struct sim_combined){
        .x = (uint16_t *)at[SIM_RESULT_COMBINED],
        .topk_weights = normal ? (float *)at[SIM_RESULT_COMBINED_WEIGHTS] : NULL};
    return 0;
}

void sim_results_poison(struct sim_results *results)
{
    for (int i = 0; i < SIM_RESULT_ARRAYS; i++) {
        assert(results->arenas[i].bytes != NULL);
        memset(results->arenas[i].bytes, 0xFF, results->arenas[i].room);
    }
}

const char *sim_results_overrun(const struct sim_results *results,
                                const struct sim_layer_input *input)
{
    static const char *const NAMES[SIM_RESULT_ARRAYS] = {
        "payload",    "scales",        "source tokens", "expert ids",          "weights",
        "row counts", "expert output", "combined",      "combined weight sums"};
    uint64_t sizes[SIM_RESULT_ARRAYS][2];

    array_sizes(input, sizes);
    for (int i = 0; i < SIM_RESULT_ARRAYS; i++) {
        const struct sim_arena *arena = &results->arenas[i];
        const uint64_t used = sizes[i][0] * sizes[i][1];
        for (uint64_t b = used; b < arena->room; b++)
            if (arena->bytes[b] != 0xFF) return NAMES[i];
    }
    return NULL;
}

void sim_results_free(struct sim_results *results)
{
    for (int i = 0; i < SIM_RESULT_ARRAYS; i++) sim_arena_free(&results->arenas[i]);
}
