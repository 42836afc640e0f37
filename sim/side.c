/* sim/side.c - lays each side's row before sim/cause.h. */
#include "sim/side.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/quantise.h"
#include "sim/cause.h"

/* The received row that check names: its block (LL: expert and source; normal: rank and source),
 * then the row of its token. UINT64_MAX when there is none. */
static uint64_t find_row(const struct sim_replica *side, const struct sim_check *check)
{
    const struct sim_traffic *traffic = &side->cell->traffic;
    const struct sim_received *received = &sim_datapath_expected(side->path)->received;
    const uint64_t major = check->expert >= 0 ? (uint64_t)check->expert : check->rank;
    const uint64_t block = major * traffic->ranks + check->src_rank;
    for (uint64_t row = traffic->block_start[block]; row < traffic->block_start[block + 1]; row++)
        if (received->src_token[row] == (int32_t)check->src_token) return row;
    return UINT64_MAX;
}

static const uint16_t *token_x(const struct sim_replica *side, const struct sim_check *check)
{
    const uint64_t token = side->plan->token_start[check->src_rank] + check->src_token;
    return side->input.x + token * side->plan->hidden;
}

/* What this side's received row is, when it is not what its own recipe makes of the token. */
static bool explain_dispatch(const struct sim_replica *side, const struct sim_check *check,
                             char cause[SIM_CAUSE_MAX])
{
    const struct sim_received *received = &sim_datapath_actual(side->path)->received;
    const struct sim_received *own = &sim_datapath_expected(side->path)->received;
    const enum ref_recipe recipe = side->plan->recipe;
    const uint32_t hidden = side->plan->hidden, groups = ref_scale_groups(hidden);
    const uint64_t row = find_row(side, check);
    float *scales = NULL;
    bool found = false;

    if (row == UINT64_MAX || ref_recipe_payload_bytes(recipe) != 1) return false;
    if (memcmp(received->payload + row * hidden, own->payload + row * hidden, hidden) == 0)
        return false;
    scales = (float *)calloc(groups, sizeof *scales);
    if (scales == NULL) return false;
    if (received->scales != NULL)
        memcpy(scales, received->scales + row * groups, groups * sizeof *scales);
    else
        ref_scales_unpack_ue8m0(received->scales_ue8m0 + row * ref_scale_packed_words(groups), 1,
                                groups, scales);
    found = sim_cause_quantise((uint32_t)recipe, token_x(side, check), hidden,
                               received->payload + row * hidden, scales, cause);
    free(scales);
    return found;
}

/* The parts that a token's sum is made of, on this side: rows of its expert output. */
static void collect_terms(const struct sim_replica *side, const struct sim_check *check,
                          struct sim_cause_terms *terms)
{
    const struct ref_routing *routing = &side->cell->routing;
    const struct sim_layer_results *results = sim_datapath_actual(side->path);
    const uint64_t token = routing->token_start[check->src_rank] + check->src_token;
    const bool ll = side->plan->mode == SIM_MODE_LL;
    uint32_t ranks[REF_TOPK_MAX];
    const uint32_t rank_count = ref_token_ranks(routing, token, ranks);

    memset(terms, 0, sizeof *terms);
    terms->hidden = side->plan->hidden;
    terms->ll = ll;
    terms->ranks_per_node = side->plan->ranks_per_node;
    terms->several_nodes = side->plan->nodes > 1;
    for (uint32_t i = 0; i < (ll ? routing->topk : rank_count); i++) {
        const int64_t expert = ll ? routing->topk_idx[token * routing->topk + i] : -1;
        if (ll && expert < 0) continue;
        struct sim_check place = *check;
        place.expert = expert;
        place.rank = ll ? (uint32_t)expert / ref_local_experts(routing) : ranks[i];
        const uint64_t row = find_row(side, &place);
        if (row == UINT64_MAX) continue;
        terms->row[terms->count] = results->expert_out + row * terms->hidden;
        terms->weight[terms->count] = ll ? routing->topk_weights[token * routing->topk + i] : 1.0f;
        terms->rank[terms->count] = place.rank;
        terms->expert[terms->count] = expert;
        terms->column[terms->count++] = i;
    }
}

static bool explain_combine(const struct sim_replica *side, const struct sim_check *check,
                            char cause[SIM_CAUSE_MAX])
{
    const struct sim_layer_results *results = sim_datapath_actual(side->path);
    const uint64_t token = side->plan->token_start[check->src_rank] + check->src_token;
    const uint16_t *row = results->combined.x + token * side->plan->hidden;
    const uint16_t *own =
        sim_datapath_expected(side->path)->combined.x + token * side->plan->hidden;
    struct sim_cause_terms terms;

    if (memcmp(row, own, 2 * (size_t)side->plan->hidden) == 0) return false; /* As it should be. */
    collect_terms(side, check, &terms);
    return sim_cause_combine(&terms, row, cause);
}

void sim_side_explain(const struct sim_replica *a, const struct sim_replica *b,
                      const struct sim_check *check, char *text, size_t text_len)
{
    char cause[SIM_CAUSE_MAX] = "";
    const struct sim_replica *const sides[2] = {a, b};
    size_t at = 0;

    if (a->plan->recipe != b->plan->recipe)
        at = (size_t)snprintf(text, text_len, "A quantises by %s, B by %s",
                              ref_recipe_name(a->plan->recipe), ref_recipe_name(b->plan->recipe));
    for (int s = 0; s < 2; s++) {
        const bool found =
            check->stage == SIM_STAGE_DISPATCH  ? explain_dispatch(sides[s], check, cause)
            : check->stage == SIM_STAGE_COMBINE ? explain_combine(sides[s], check, cause)
                                                : false;
        if (!found || at >= text_len) continue;
        at += (size_t)snprintf(text + at, text_len - at, "%s%c: %s", at > 0 ? "; " : "", "AB"[s],
                               cause);
    }
    if (at == 0) snprintf(text, text_len, "%s", check->cause);
}
