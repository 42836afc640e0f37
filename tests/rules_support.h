/* tests/rules_support.h - a deployment that passes, and ways to say which rule another fails. */
#ifndef TESTS_RULES_SUPPORT_H
#define TESTS_RULES_SUPPORT_H

#include <check.h>
#include <inttypes.h>
#include "sim/rules.h"

static uint32_t tokens[64], capacity[64];

/* DeepSeek-V3 decode on two nodes of eight: passes in both modes. */
static inline struct sim_rules_input deployment(enum sim_mode mode, uint32_t ranks)
{
    const struct sim_rules_input input = {
        .mode = mode,
        .hidden = 7168,
        .topk = 8,
        .experts = 256,
        .ranks = ranks,
        .nodes = (ranks + 7) / 8,
        .machine_node_ranks = 8,
        .machine_has_nic = true,
        .machine_sms = 132,
        .machine_hbm_bytes = 141000000000,
        .payload_bytes = 1,
        .tokens = tokens,
        .capacity = capacity,
        .qp_depth = 1024,
        .sms = 20,
        .after = SIM_MODE_LL,
        .clean = true,
    };

    for (uint32_t r = 0; r < 64; r++) tokens[r] = capacity[r] = 128;
    return input;
}

static struct sim_rule rules[SIM_RULES];

static inline const struct sim_rule *check(const struct sim_rules_input *input, enum sim_rule_id id)
{
    sim_rules_check(input, rules);
    return &rules[id];
}

/* Only that rule fails, with that nearest. */
static inline void fails_alone(const struct sim_rules_input *input, enum sim_rule_id id,
                               int64_t value, int64_t nearest)
{
    const struct sim_rule *rule = check(input, id);

    ck_assert_msg(!rule->ok, "%s passes", rule->name);
    ck_assert_int_eq(rule->value, value);
    ck_assert(rule->has_nearest);
    ck_assert_int_eq(rule->nearest, nearest);
    for (uint32_t i = 0; i < SIM_RULES; i++)
        ck_assert_msg(i == id || rules[i].ok, "%s fails too: %s", rules[i].name, rules[i].text);
}

static inline void passes(const struct sim_rules_input *input)
{
    char refusal[SIM_RULE_REFUSAL_MAX];

    sim_rules_check(input, rules);
    ck_assert_msg(sim_rules_refuse(rules, true, refusal, sizeof(refusal)) == 0, "%s", refusal);
    ck_assert_str_eq(refusal, "");
}

#endif
