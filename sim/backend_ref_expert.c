/* sim/backend_ref_expert.c - the experts of one rank on the reference.
 *
 * Stand-in and identity know no experts: a row in, a row out. The MLP is one expert's at a time,
 * since weights are drawn anew for each: in low latency over the rows of its blocks, in normal mode
 * over rows gathered by their ids, whose answers are then weighed into one row. */
#include <assert.h>
#include <string.h>

#include "ref/expert.h"
#include "ref/quantise.h"
#include "sim/backend_ref.h"

/* Some rows of a layer, and where their answers go. */
struct mlp_rows {
    const uint8_t *payload;
    const uint8_t *scales;
    uint64_t count;
    uint16_t *out; /* BF16 [count][hidden] */
};

static int run_mlp(struct backend_ref *state, const struct sim_layer_input *in, uint32_t expert,
                   const struct mlp_rows *rows, char *err, size_t err_len)
{
    const uint32_t hidden = in->hidden, inter = in->mlp_inter;
    const uint64_t codes = ref_expert_matrix_codes(hidden, inter);
    const uint64_t scales = ref_expert_matrix_scales(hidden, inter);

    if (rows->count == 0) return 0;
    if (sim_arena_reserve(&state->weights, 3 * (codes + scales * sizeof(float)), 1, err, err_len) !=
            0 ||
        sim_arena_reserve(&state->mlp, ref_expert_mlp_scratch_bytes(rows->count, hidden, inter), 1,
                          err, err_len) != 0)
        return -1;
    float *scale_at = (float *)(void *)state->weights.bytes;
    uint8_t *code_at = state->weights.bytes + 3 * scales * sizeof(float);
    for (uint32_t m = 0; m < 3; m++)
        ref_expert_fill(in->weight_seed, expert, m, hidden, inter, code_at + m * codes,
                        scale_at + m * scales);
    const struct ref_expert_weights weights = {hidden,
                                               inter,
                                               code_at,
                                               code_at + codes,
                                               code_at + 2 * codes,
                                               scale_at,
                                               scale_at + scales,
                                               scale_at + 2 * scales};
    ref_expert_mlp(&weights, (enum ref_recipe)in->recipe, rows->payload, rows->scales, rows->count,
                   REF_RECIPE_LL, rows->out, state->mlp.bytes);
    return 0;
}

/* Low latency: an expert's rows stand side by side. */
static int run_ll(struct backend_ref *state, const struct sim_layer_input *in,
                  const struct sim_received *received, uint32_t rank, uint16_t *expert_out,
                  char *err, size_t err_len)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint32_t local = ref_local_experts(in->routing), ranks = in->routing->ranks;

    for (uint32_t e = rank * local; e < (rank + 1) * local; e++) {
        const uint64_t first = in->traffic->block_start[(uint64_t)e * ranks];
        const struct mlp_rows rows = {received->payload + first * shape.payload_bytes,
                                      sim_received_scales(received) + first * shape.scale_bytes,
                                      in->traffic->block_start[(uint64_t)(e + 1) * ranks] - first,
                                      expert_out + first * in->hidden};
        if (run_mlp(state, in, e, &rows, err, err_len) != 0) return -1;
    }
    return 0;
}

static int reserve_answers(struct backend_ref *state, const struct sim_layer_input *in,
                           uint64_t answers, char *err, size_t err_len)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint64_t bytes[ANSWER_ARENAS] = {[ANSWER_PICKED] = 2 * sizeof(uint64_t),
                                           [ANSWER_PAYLOAD] = shape.payload_bytes,
                                           [ANSWER_SCALES] = shape.scale_bytes,
                                           [ANSWER_OUT] = 2 * (uint64_t)in->hidden,
                                           [ANSWER_ROWS] = 2 * (uint64_t)in->hidden};
    for (int i = ANSWER_PICKED; i < ANSWER_ARENAS; i++)
        if (sim_arena_reserve(&state->answer[i], answers, bytes[i], err, err_len) != 0) return -1;
    return 0;
}

/* One expert's rows out of the rank's, and its answers to their places among all. first: the
 * rank's first row. */
static int answer(struct backend_ref *state, const struct sim_layer_input *in,
                  const struct ref_expert_choices *choices, const struct sim_received *received,
                  uint64_t first, uint32_t rank, uint32_t expert, uint64_t answers, char *err,
                  size_t err_len)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint64_t out_bytes = 2 * (uint64_t)in->hidden;
    struct sim_arena *arena = state->answer;
    uint64_t *from = (uint64_t *)(void *)arena[ANSWER_PICKED].bytes, *to = from + answers;
    const struct mlp_rows rows = {arena[ANSWER_PAYLOAD].bytes, arena[ANSWER_SCALES].bytes,
                                  ref_expert_pick(choices, expert, from, to),
                                  (uint16_t *)(void *)arena[ANSWER_OUT].bytes};

    assert(rows.count <= answers);
    for (uint64_t i = 0; i < rows.count; i++) {
        memcpy(arena[ANSWER_PAYLOAD].bytes + i * shape.payload_bytes,
               received->payload + (first + from[i]) * shape.payload_bytes, shape.payload_bytes);
        memcpy(arena[ANSWER_SCALES].bytes + i * shape.scale_bytes,
               sim_received_scales(received) + (first + from[i]) * shape.scale_bytes,
               shape.scale_bytes);
    }
    if (run_mlp(state, in, rank * choices->experts + expert, &rows, err, err_len) != 0) return -1;
    for (uint64_t i = 0; i < rows.count; i++)
        memcpy(arena[ANSWER_ROWS].bytes + to[i] * out_bytes,
               arena[ANSWER_OUT].bytes + i * out_bytes, out_bytes);
    return 0;
}

/* Normal mode: as many experts a row as its ids name. */
static int run_normal(struct backend_ref *state, const struct sim_layer_input *in,
                      const struct sim_received *received, uint32_t rank, uint16_t *expert_out,
                      char *err, size_t err_len)
{
    const uint64_t *block_start = in->traffic->block_start;
    const uint64_t ranks = in->routing->ranks, topk = in->routing->topk;
    const uint64_t first = block_start[rank * ranks];
    const struct ref_expert_choices choices = {.rows = block_start[(rank + 1) * ranks] - first,
                                               .topk = in->routing->topk,
                                               .experts = ref_local_experts(in->routing),
                                               .topk_idx = received->topk_idx + first * topk,
                                               .topk_weights =
                                                   received->topk_weights + first * topk};
    struct sim_arena *arena = state->answer;

    if (sim_arena_reserve(&arena[ANSWER_START], choices.rows + 1, sizeof(uint64_t), err, err_len) !=
        0)
        return -1;
    uint64_t *answer_start = (uint64_t *)(void *)arena[ANSWER_START].bytes;
    const uint64_t answers = ref_expert_answers(&choices, answer_start);
    if (reserve_answers(state, in, answers, err, err_len) != 0) return -1;
    for (uint32_t e = 0; e < choices.experts; e++)
        if (answer(state, in, &choices, received, first, rank, e, answers, err, err_len) != 0)
            return -1;
    ref_expert_weigh(&choices, in->hidden, answer_start,
                     (const uint16_t *)(const void *)arena[ANSWER_ROWS].bytes,
                     expert_out + first * in->hidden);
    return 0;
}

int backend_ref_experts(struct backend_ref *state, const struct sim_layer_input *in,
                        const struct sim_received *received, uint32_t rank, uint16_t *expert_out,
                        char *err, size_t err_len)
{
    const enum ref_recipe recipe = (enum ref_recipe)in->recipe;
    const struct sim_row_shape shape = sim_row_shape(in);
    const struct sim_traffic *traffic = in->traffic;
    const bool ll = traffic->mode == SIM_MODE_LL;
    const uint64_t per_rank = in->routing->ranks * (ll ? ref_local_experts(in->routing) : 1);
    const uint64_t first = traffic->block_start[rank * per_rank];
    const uint64_t rows = traffic->block_start[(rank + 1) * per_rank] - first;
    const uint8_t *payload = received->payload + first * shape.payload_bytes;
    const uint8_t *scales = sim_received_scales(received);
    uint16_t *out = expert_out + first * in->hidden;

    if (scales != NULL) scales += first * shape.scale_bytes;
    switch ((enum sim_expert)in->expert) {
    case SIM_EXPERT_STANDIN:
        ref_expert_standin(recipe, payload, scales, rows, in->hidden, out);
        return 0;
    case SIM_EXPERT_IDENTITY:
        ref_expert_identity(recipe, payload, scales, rows, in->hidden, out);
        return 0;
    case SIM_EXPERT_MLP:
        assert(ref_recipe_payload_bytes(recipe) == 1 && in->mlp_inter > 0);
        assert(ll || rows == 0 || received->topk_weights != NULL);
        return (ll ? run_ll : run_normal)(state, in, received, rank, expert_out, err, err_len);
    }
    return 0;
}
