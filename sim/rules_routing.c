/* sim/rules_routing.c - rules that only the ids can tell.
 *
 * The kernels check none of these: an id past the last expert writes out of bounds in low
 * latency, and a duplicate can push a rank past its capacity into the next rank's block. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include "sim/rules_parts.h"

enum { NODES_TOUCHED_MAX = 8 };

struct place {
    uint32_t rank;
    uint64_t token; /* Within the rank. */
};

static struct place place_of(const struct ref_routing *routing, uint64_t token)
{
    struct place place = {0, token};

    while (token >= routing->token_start[place.rank + 1]) place.rank++;
    place.token = token - routing->token_start[place.rank];
    return place;
}

static void check_id_range(const struct ref_routing *routing, struct sim_rule *rule)
{
    const uint64_t ids = ref_token_count(routing) * routing->topk;
    const int64_t limit = (int64_t)routing->experts - 1;
    int64_t highest = -1;

    sim_rule_figures(rule, highest, limit, "at most %" PRId64, limit);
    for (uint64_t i = 0; i < ids; i++) {
        const int64_t id = routing->topk_idx[i];

        if (id > highest) highest = id;
        if (id <= limit) continue;
        const struct place place = place_of(routing, i / routing->topk);
        rule->value = id;
        sim_rule_fail(rule, limit,
                      "token %" PRIu64 " of rank %u names expert %" PRId64 ", the last is %" PRId64,
                      place.token, place.rank, id, limit);
        return;
    }
    rule->value = highest;
}

static bool repeats_before(const int64_t *row, uint32_t column)
{
    for (uint32_t k = 0; k < column; k++)
        if (row[k] == row[column]) return true;
    return false;
}

static void check_duplicates(const struct ref_routing *routing, struct sim_rule *rule)
{
    const uint64_t tokens = ref_token_count(routing);
    const uint32_t topk = routing->topk;
    uint64_t count = 0, first = 0;
    uint32_t first_column = 0;

    for (uint64_t t = 0; t < tokens; t++) {
        for (uint32_t k = 1; k < topk; k++) {
            const int64_t *row = &routing->topk_idx[t * topk];

            if (row[k] < 0 || !repeats_before(row, k)) continue;
            if (count == 0) first = t, first_column = k;
            count++;
        }
    }
    sim_rule_figures(rule, (int64_t)count, 0, "none");
    if (count == 0) return;
    const struct place place = place_of(routing, first);
    sim_rule_fail(rule, 0,
                  "token %" PRIu64 " names expert %" PRId64 " twice (rank %u; %" PRIu64
                  " repeated id%s in all)",
                  place.token, routing->topk_idx[first * topk + first_column], place.rank, count,
                  count == 1 ? "" : "s");
}

/* Most rows that one rank sends to one expert: what a capacity must hold. */
static uint64_t most_sends(const struct ref_routing *routing, uint32_t *rank_out,
                           uint32_t *expert_out)
{
    uint64_t most = 0;
    uint64_t *sends = (uint64_t *)calloc(routing->experts, sizeof(*sends));

    if (sends == NULL) return 0; /* Judged by the token counts alone, then. */
    for (uint32_t r = 0; r < routing->ranks; r++) {
        const uint64_t begin = routing->token_start[r] * routing->topk;
        const uint64_t end = routing->token_start[r + 1] * routing->topk;

        for (uint32_t e = 0; e < routing->experts; e++) sends[e] = 0;
        for (uint64_t i = begin; i < end; i++) {
            const int64_t id = routing->topk_idx[i];

            if (id < 0 || id >= (int64_t)routing->experts) continue;
            if (++sends[id] > most) most = sends[id], *rank_out = r, *expert_out = (uint32_t)id;
        }
    }
    free(sends);
    return most;
}

static void check_capacity(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const uint32_t step = input->ranks % 4 == 0 ? 1 : input->ranks % 2 == 0 ? 2 : 4;
    uint32_t rank = 0, expert = 0;
    const uint64_t sends = most_sends(input->routing, &rank, &expert);

    if (!rule->ok || sends <= 1) return;
    const uint32_t capacity = input->capacity[rank];
    sim_rule_figures(rule, capacity, (int64_t)sends, "at least %" PRIu64, sends);
    if (capacity >= sends) return;
    sim_rule_fail(rule, (int64_t)((sends + step - 1) / step * step),
                  "rank %u sends %" PRIu64 " rows to expert %u, above its capacity of %u", rank,
                  sends, expert, capacity);
}

/* The several-node kernel asserts that a token reaches at most min(nodes, 8) nodes. */
static void check_nodes_touched(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const struct ref_routing *routing = input->routing;
    const uint64_t tokens = ref_token_count(routing);
    const uint32_t experts_per_node = routing->experts / input->nodes;

    if (!rule->ok || input->nodes <= NODES_TOUCHED_MAX || experts_per_node == 0) return;
    for (uint64_t t = 0; t < tokens; t++) {
        int64_t seen[REF_TOPK_MAX];
        uint32_t touched = 0;

        for (uint32_t k = 0; k < routing->topk && k < REF_TOPK_MAX; k++) {
            const int64_t id = routing->topk_idx[t * routing->topk + k];
            uint32_t at = 0;

            if (id < 0) continue;
            while (at < touched && seen[at] != id / experts_per_node) at++;
            if (at == touched) seen[touched++] = id / experts_per_node;
        }
        if (touched <= NODES_TOUCHED_MAX) continue;
        const struct place place = place_of(routing, t);
        sim_rule_figures(rule, touched, NODES_TOUCHED_MAX, "at most 8 nodes a token");
        sim_rule_fail(rule, NODES_TOUCHED_MAX,
                      "token %" PRIu64 " of rank %u reaches %u nodes: at most 8", place.token,
                      place.rank, touched);
        return;
    }
}

void sim_rules_routing(const struct sim_rules_input *input, struct sim_rule *rules)
{
    const struct ref_routing *routing = input->routing;

    if (routing == NULL) return;
    assert(routing->ranks == input->ranks && routing->topk == input->topk);
    assert(routing->experts == input->experts);
    check_id_range(routing, &rules[SIM_RULE_ID_RANGE]);
    check_duplicates(routing, &rules[SIM_RULE_DUPLICATE_ID]);
    if (sim_rules_is_ll(input))
        check_capacity(input, &rules[SIM_RULE_CAPACITY]);
    else
        check_nodes_touched(input, &rules[SIM_RULE_TOPK]);
}
