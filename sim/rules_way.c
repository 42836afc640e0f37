/* sim/rules_way.c - the nearest numbers of ranks that pass where the one that was asked does not.
 *
 * Several rules bind the ranks, and what passes one may break another: so a way out is judged by
 * the whole rule book before it is named. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "sim/rules_parts.h"

static bool refuses(const struct sim_rule *rule)
{
    return !rule->ok && !rule->lifted && !rule->model_only;
}

/* The same deployment on other ranks, all with the tokens and capacity of the first. */
static bool ranks_pass(const struct sim_rules_input *input, uint32_t ranks)
{
    uint32_t tokens[SIM_RANKS_MAX], capacity[SIM_RANKS_MAX];
    struct sim_rule rules[SIM_RULES];
    struct sim_rules_input other = *input;

    assert(ranks >= 1 && ranks <= SIM_RANKS_MAX);
    for (uint32_t r = 0; r < ranks; r++) {
        tokens[r] = input->tokens[0];
        capacity[r] = input->capacity[0];
    }
    other.ranks = ranks;
    other.nodes = (ranks + input->machine_node_ranks - 1) / input->machine_node_ranks;
    other.tokens = tokens;
    other.capacity = capacity;
    other.routing = NULL;
    sim_rules_check(&other, rules);
    for (uint32_t i = 0; i < SIM_RULES; i++)
        if (!rules[i].ok && !rules[i].model_only) return false;
    return ranks % other.nodes == 0;
}

void sim_rules_way_out(const struct sim_rules_input *input, const struct sim_rule rules[SIM_RULES],
                       char *text, size_t text_len)
{
    uint32_t below = input->ranks - 1, above = input->ranks + 1;

    text[0] = '\0';
    if (!refuses(&rules[SIM_RULE_EXPERTS_DIVIDE]) && !refuses(&rules[SIM_RULE_LOCAL_RANKS]) &&
        !refuses(&rules[SIM_RULE_NODE_COUNT]))
        return;
    while (below > 0 && !ranks_pass(input, below)) below--;
    while (above <= SIM_RANKS_MAX && !ranks_pass(input, above)) above++;
    const bool fewer = below > 0, more = above <= SIM_RANKS_MAX;
    if (fewer && more)
        snprintf(text, text_len, "--ep %u or --ep %u passes", below, above);
    else if (fewer || more)
        snprintf(text, text_len, "--ep %u passes%s", fewer ? below : above,
                 input->machine_has_nic ? "" : ", or a --machine with NICs");
    assert(strchr(text, '\n') == NULL);
}
