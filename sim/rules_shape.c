/* sim/rules_shape.c - rules about what the kernels were compiled for.
 *
 * Lists are those of DeepEP dd758ca (csrc/kernels/legacy); they grew from version to version. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include "sim/rules_parts.h"

enum {
    LL_TOPK_MAX = 11,
    NORMAL_TOPK_MAX = 32,
    INTRANODE_LOCAL_EXPERTS_MAX = 128,
    INTERNODE_NODE_EXPERTS_MAX = 512,
    LL_WARP_GROUPS_MAX = 14, /* Dispatch asserts fewer than 15 warp groups a block. */
    LIBRARY_NODE_RANKS = 8,
    SCALE_COLUMNS_MAX = 64,
    TMA_BYTES = 16384, /* A record plus its 8-byte barrier must fit (internode). */
};

static const uint32_t ll_hidden[] = {2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};
static const uint32_t library_local_ranks[] = {2, 4, 8};
static const uint32_t library_nodes[] = {1, 2, 3, 4, 6, 8, 12, 16, 18, 20};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const uint32_t *sim_rules_ll_hidden(size_t *count)
{
    *count = COUNT_OF(ll_hidden);
    return ll_hidden;
}

void sim_rule_figures(struct sim_rule *rule, int64_t value, int64_t limit, const char *limit_text,
                      ...)
{
    va_list args;

    rule->applies = true;
    rule->value = value;
    rule->limit = limit;
    va_start(args, limit_text);
    vsnprintf(rule->limit_text, sizeof(rule->limit_text), limit_text, args);
    va_end(args);
}

void sim_rule_fail(struct sim_rule *rule, int64_t nearest, const char *text, ...)
{
    va_list args;

    assert(rule->applies && rule->ok); /* Figures first, and one verdict each. */
    rule->ok = false;
    rule->nearest = nearest;
    rule->has_nearest = true;
    va_start(args, text);
    vsnprintf(rule->text, sizeof(rule->text), text, args);
    va_end(args);
}

void sim_rule_fail_flat(struct sim_rule *rule, const char *text, ...)
{
    va_list args;

    assert(rule->applies && rule->ok);
    rule->ok = false;
    va_start(args, text);
    vsnprintf(rule->text, sizeof(rule->text), text, args);
    va_end(args);
}

/* The closest entry of an ascending list; of two equally close ones the larger, and with
 * up the next above wherever there is one (padding keeps data, cutting does not). */
static uint32_t nearest_in(const uint32_t *list, size_t count, uint32_t value, bool up)
{
    uint32_t best = list[0];

    assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        const uint32_t below = value > best ? value - best : best - value;
        const uint32_t here = value > list[i] ? value - list[i] : list[i] - value;

        if (up && list[i] >= value) return list[i];
        if (here <= below) best = list[i];
    }
    return best;
}

static bool contains(const uint32_t *list, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == value) return true;
    return false;
}

static void check_hidden_ll(const struct sim_rules_input *input, struct sim_rule *rule)
{
    sim_rule_figures(rule, input->hidden, ll_hidden[COUNT_OF(ll_hidden) - 1],
                     "2048|2560|3072|4096|5120|6144|7168|8192");
    if (contains(ll_hidden, COUNT_OF(ll_hidden), input->hidden)) return;

    const uint32_t nearest = nearest_in(ll_hidden, COUNT_OF(ll_hidden), input->hidden, true);
    sim_rule_fail(rule, nearest,
                  "hidden %u is not one of %s (low latency; %u.%u groups of 128); use %u",
                  input->hidden, rule->limit_text, input->hidden / 128,
                  input->hidden % 128 * 10 / 128, nearest);
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* One node, SM90: half a dispatched row and a barrier of 8 bytes fit in 8 KiB, in steps of 32
 * bytes. Several nodes: a whole record and a barrier fit in 16 KiB, and combine walks 256
 * channels at a time. FP8 carries a scale per 128 channels, at most 64 of them. */
static bool hidden_normal_works(const struct sim_rules_input *input, uint64_t hidden)
{
    const uint64_t topk = input->topk;
    const uint64_t row_bytes = hidden * input->payload_bytes;
    const uint64_t scales = input->payload_bytes == 1 ? hidden / 128 : 0;

    if (hidden == 0) return false;
    if (input->payload_bytes == 1 && (hidden % 128 != 0 || scales > SCALE_COLUMNS_MAX))
        return false;
    if (input->nodes == 1) return row_bytes % 32 == 0 && row_bytes / 2 + 8 <= TMA_BYTES / 2;
    const uint64_t dispatch_bytes = round_up(row_bytes + 4 * scales + 8 + 8 * topk, 16);
    const uint64_t combine_bytes = round_up(2 * hidden + 8 + 4 * topk, 16);
    return hidden % 256 == 0 && dispatch_bytes + 8 <= TMA_BYTES && combine_bytes + 8 <= TMA_BYTES;
}

static void check_hidden_normal(const struct sim_rules_input *input, struct sim_rule *rule)
{
    enum { SEARCH_MAX = 16384 };
    uint32_t highest = SEARCH_MAX, nearest = 0;

    while (highest > 0 && !hidden_normal_works(input, highest)) highest--;
    const uint32_t step = input->nodes > 1 ? 256 : input->payload_bytes == 1 ? 128 : 16;
    sim_rule_figures(rule, input->hidden, highest, "multiple of %u up to %u", step, highest);
    if (hidden_normal_works(input, input->hidden)) return;

    if (input->hidden >= highest) nearest = highest;
    for (uint32_t h = input->hidden; nearest == 0 && h <= highest; h++)
        if (hidden_normal_works(input, h)) nearest = h;
    sim_rule_fail(rule, nearest,
                  "hidden %u does not fit normal mode's %s rows on %u node%s: %s; use %u",
                  input->hidden, input->payload_bytes == 1 ? "fp8" : "bf16", input->nodes,
                  input->nodes > 1 ? "s" : "", rule->limit_text, nearest);
}

static void check_topk(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const uint32_t library_max = sim_rules_is_ll(input) ? LL_TOPK_MAX : NORMAL_TOPK_MAX;
    const uint32_t limit = input->experts < library_max ? input->experts : library_max;

    sim_rule_figures(rule, input->topk, limit, "1 to %u", limit);
    if (input->topk < 1)
        sim_rule_fail(rule, 1, "top-k 0: at least 1");
    else if (input->topk > limit)
        sim_rule_fail(rule, limit, "top-k %u is above %u (%s)", input->topk, limit,
                      limit == library_max ? "the kernels' limit in this mode"
                                           : "there are no more experts");
}

/* ranks_pass: every other rule takes so many ranks, so that more places would be a way out. */
static void check_experts(const struct sim_rules_input *input, bool ranks_pass,
                          struct sim_rule *rule)
{
    const uint32_t experts = input->experts, ranks = input->ranks;

    sim_rule_figures(rule, experts, ranks, "multiple of %u", ranks);
    if (experts == 0 || experts % ranks != 0) {
        const uint64_t nearest = round_up(experts == 0 ? 1 : experts, ranks);
        char places[96] = "";
        if (ranks_pass)
            snprintf(places, sizeof places,
                     "; %llu places pass (--eplb %llu: replicas of the hottest)",
                     (unsigned long long)nearest, (unsigned long long)nearest);
        sim_rule_fail(rule, (int64_t)nearest, "%u experts on %u ranks: %u %% %u = %u, not 0%s",
                      experts, ranks, experts, ranks, experts % ranks, places);
        return;
    }
    uint64_t limit = UINT64_MAX;
    const char *what = "";

    if (sim_rules_is_ll(input) && input->machine_sms > 0) {
        limit = (uint64_t)LL_WARP_GROUPS_MAX * input->machine_sms;
        what = "14 warp groups a block on every SM";
    } else if (!sim_rules_is_ll(input) && input->nodes == 1) {
        limit = (uint64_t)INTRANODE_LOCAL_EXPERTS_MAX * ranks;
        what = "128 local experts a rank on one node";
    } else if (!sim_rules_is_ll(input)) {
        limit = (uint64_t)INTERNODE_NODE_EXPERTS_MAX * input->nodes;
        what = "512 experts a node";
    }
    if (experts <= limit) return;
    sim_rule_figures(rule, experts, (int64_t)limit, "multiple of %u up to %llu", ranks,
                     (unsigned long long)limit);
    sim_rule_fail(rule, (int64_t)(limit / ranks * ranks), "%u experts are more than %llu (%s)",
                  experts, (unsigned long long)limit, what);
}

/* Low latency asserts only "below 8 or a multiple of 8". Normal mode is compiled for 2, 4 and
 * 8 ranks on one node, and for nodes of exactly 8 when there are several. */
static void check_local_ranks(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const uint32_t ranks = input->ranks, nodes = input->nodes;

    if (sim_rules_is_ll(input)) {
        const uint32_t below = ranks / 8 * 8, nearest = ranks - below < 4 ? below : below + 8;

        sim_rule_figures(rule, ranks, 8, "below 8 or a multiple of 8");
        if (ranks >= 8 && ranks % 8 != 0)
            sim_rule_fail(rule, nearest, "%u ranks: more than 8 and not a multiple of 8", ranks);
        return;
    }
    if (ranks % nodes != 0) {
        const uint64_t nearest = round_up(ranks, nodes);
        sim_rule_figures(rule, ranks, nodes, "a multiple of %u nodes", nodes);
        sim_rule_fail(rule, (int64_t)nearest, "%u ranks do not divide over %u nodes", ranks, nodes);
        return;
    }
    const uint32_t local = ranks / nodes;

    if (nodes == 1) {
        sim_rule_figures(rule, local, LIBRARY_NODE_RANKS, "2 | 4 | 8");
        if (contains(library_local_ranks, COUNT_OF(library_local_ranks), local)) return;
        const uint32_t nearest =
            nearest_in(library_local_ranks, COUNT_OF(library_local_ranks), local, false);
        sim_rule_fail(rule, nearest, "%u ranks on one node: kernels exist for 2, 4 and 8", local);
    } else {
        sim_rule_figures(rule, local, LIBRARY_NODE_RANKS, "8 on every node");
        if (local == LIBRARY_NODE_RANKS) return;
        sim_rule_fail(rule, LIBRARY_NODE_RANKS, "%u ranks on each of %u nodes: kernels know only 8",
                      local, nodes);
    }
    rule->model_only = input->machine_node_ranks != LIBRARY_NODE_RANKS;
}

static void check_node_count(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const uint32_t nodes = input->nodes;

    if (nodes > 1 && !input->machine_has_nic) {
        sim_rule_figures(rule, nodes, 1, "1: the machine has no NIC");
        sim_rule_fail(rule, 1, "%u nodes, but the machine has no NIC", nodes);
        return;
    }
    if (sim_rules_is_ll(input)) {
        sim_rule_figures(rule, nodes, SIM_RANKS_MAX, "any");
        return;
    }
    sim_rule_figures(rule, nodes, library_nodes[COUNT_OF(library_nodes) - 1],
                     "1|2|3|4|6|8|12|16|18|20");
    if (contains(library_nodes, COUNT_OF(library_nodes), nodes)) return;
    const uint32_t nearest = nearest_in(library_nodes, COUNT_OF(library_nodes), nodes, false);
    sim_rule_fail(rule, nearest, "%u nodes: kernels exist for %s", nodes, rule->limit_text);
    rule->model_only = input->machine_node_ranks != LIBRARY_NODE_RANKS;
}

void sim_rules_shape(const struct sim_rules_input *input, struct sim_rule *rules)
{
    if (sim_rules_is_ll(input))
        check_hidden_ll(input, &rules[SIM_RULE_HIDDEN_LL]);
    else
        check_hidden_normal(input, &rules[SIM_RULE_HIDDEN_NORMAL]);
    check_topk(input, &rules[SIM_RULE_TOPK]);
    check_local_ranks(input, &rules[SIM_RULE_LOCAL_RANKS]);
    check_node_count(input, &rules[SIM_RULE_NODE_COUNT]);
    check_experts(input, rules[SIM_RULE_LOCAL_RANKS].ok && rules[SIM_RULE_NODE_COUNT].ok,
                  &rules[SIM_RULE_EXPERTS_DIVIDE]);
}
