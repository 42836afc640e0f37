/* sim/explain.c - lays a row before sim/cause.h. */
#include "sim/explain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/quantise.h"

/* A layer as one side left it, and as the reference makes it. */
struct side {
    const struct sim_layer_input *input;
    const struct sim_layer_results *expected, *actual;
};

/* The received row of check's token on rank `rank` (normal), or for `expert` (LL): its block,
 * then its place. UINT64_MAX when there is none. */
static uint64_t find_row(const struct side *side, const struct sim_check *check, uint32_t rank,
                         int64_t expert)
{
    const struct sim_traffic *traffic = side->input->traffic;
    const int32_t *src_token = side->expected->received.src_token;
    const uint64_t major = expert >= 0 ? (uint64_t)expert : rank;
    const uint64_t block = major * traffic->ranks + check->src_rank;
    assert(expert < (int64_t)traffic->experts && rank < traffic->ranks);
    assert(check->src_rank < traffic->ranks);
    for (uint64_t row = traffic->block_start[block]; row < traffic->block_start[block + 1]; row++)
        if (src_token[row] == (int32_t)check->src_token) return row;
    return UINT64_MAX;
}

static uint64_t token_of(const struct side *side, const struct sim_check *check)
{
    return side->input->routing->token_start[check->src_rank] + check->src_token;
}

static bool explain_dispatch(const struct side *side, const struct sim_check *check,
                             char cause[SIM_CAUSE_MAX])
{
    const struct sim_received *received = &side->actual->received;
    const enum ref_recipe recipe = (enum ref_recipe)side->input->recipe;
    const uint32_t hidden = side->input->hidden, groups = ref_scale_groups(hidden);
    const uint64_t row = find_row(side, check, check->rank, check->expert);
    const uint8_t *own = side->expected->received.payload;
    float *scales = NULL;
    bool found = false;

    if (row == UINT64_MAX || ref_recipe_payload_bytes(recipe) != 1) return false;
    if (memcmp(received->payload + row * hidden, own + row * hidden, hidden) == 0) return false;
    scales = (float *)calloc(groups, sizeof *scales);
    if (scales == NULL) return false;
    if (received->scales != NULL)
        memcpy(scales, received->scales + row * groups, groups * sizeof *scales);
    else
        ref_scales_unpack_ue8m0(received->scales_ue8m0 + row * ref_scale_packed_words(groups), 1,
                                groups, scales);
    found = sim_cause_quantise((uint32_t)recipe, side->input->x + token_of(side, check) * hidden,
                               hidden, received->payload + row * hidden, scales, cause);
    free(scales);
    return found;
}

/* The parts that a token's sum is made of on this side: rows of its expert output. */
static void collect_terms(const struct side *side, const struct sim_check *check,
                          struct sim_cause_terms *terms)
{
    const struct ref_routing *routing = side->input->routing;
    const uint64_t token = token_of(side, check);
    const bool ll = side->input->traffic->mode == SIM_MODE_LL;
    uint32_t ranks[REF_TOPK_MAX];
    const uint32_t rank_count = ref_token_ranks(routing, token, ranks);

    memset(terms, 0, sizeof *terms);
    terms->hidden = side->input->hidden;
    terms->ll = ll;
    terms->ranks_per_node = side->input->traffic->ranks_per_node;
    terms->several_nodes = side->input->traffic->nodes > 1;
    for (uint32_t i = 0; i < (ll ? routing->topk : rank_count); i++) {
        const int64_t expert = ll ? routing->topk_idx[token * routing->topk + i] : -1;
        if (ll && expert < 0) continue;
        const uint32_t rank = ll ? (uint32_t)expert / ref_local_experts(routing) : ranks[i];
        const uint64_t row = find_row(side, check, rank, expert);
        if (row == UINT64_MAX) continue;
        assert(terms->count < REF_TOPK_MAX);
        terms->row[terms->count] = side->actual->expert_out + row * terms->hidden;
        terms->weight[terms->count] = ll ? routing->topk_weights[token * routing->topk + i] : 1.0f;
        terms->rank[terms->count] = rank;
        terms->expert[terms->count] = expert;
        terms->column[terms->count++] = i;
    }
}

static bool explain_combine(const struct side *side, const struct sim_check *check,
                            char cause[SIM_CAUSE_MAX])
{
    const uint64_t at = token_of(side, check) * side->input->hidden;
    const size_t bytes = 2 * (size_t)side->input->hidden;
    const uint16_t *row = side->actual->combined.x + at;
    struct sim_cause_terms terms;

    assert(check->stage == SIM_STAGE_COMBINE);
    if (memcmp(row, side->expected->combined.x + at, bytes) == 0) return false;
    collect_terms(side, check, &terms);
    return sim_cause_combine(&terms, row, cause);
}

bool sim_explain_row(const struct sim_layer_input *input, const struct sim_layer_results *expected,
                     const struct sim_layer_results *actual, const struct sim_check *check,
                     char cause[SIM_CAUSE_MAX])
{
    const struct side side = {input, expected, actual};
    if (check->stage == SIM_STAGE_DISPATCH) return explain_dispatch(&side, check, cause);
    return check->stage == SIM_STAGE_COMBINE && explain_combine(&side, check, cause);
}
