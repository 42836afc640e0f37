/* sim/rules.c - the list of rules, what --allow lifts, and the line that refuses.
 *
 * The figures themselves stand in rules_shape.c (what a kernel was compiled for), rules_size.c
 * (capacity, queues, buffers, SMs) and rules_routing.c (what only the ids can tell). */
#include "sim/rules.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "sim/rules_parts.h"

static const char *const rule_names[SIM_RULES] = {
    [SIM_RULE_HIDDEN_LL] = "hidden_ll",
    [SIM_RULE_HIDDEN_NORMAL] = "hidden_normal",
    [SIM_RULE_TOPK] = "topk",
    [SIM_RULE_EXPERTS_DIVIDE] = "experts_divide",
    [SIM_RULE_LOCAL_RANKS] = "local_ranks",
    [SIM_RULE_NODE_COUNT] = "node_count",
    [SIM_RULE_CAPACITY] = "capacity",
    [SIM_RULE_CAPACITY_EQUAL] = "capacity_equal",
    [SIM_RULE_CAPACITY_MULTIPLE_4] = "capacity_multiple_4",
    [SIM_RULE_TOKENS_OVER_CAPACITY] = "tokens_over_capacity",
    [SIM_RULE_MAX_TOKENS_1024] = "max_tokens_1024",
    [SIM_RULE_QP_DEPTH] = "qp_depth",
    [SIM_RULE_BUFFER_BYTES] = "buffer_bytes",
    [SIM_RULE_ID_RANGE] = "id_range",
    [SIM_RULE_DUPLICATE_ID] = "duplicate_id",
    [SIM_RULE_MODE_CLEAN] = "mode_clean",
    [SIM_RULE_NUM_SMS_EVEN] = "num_sms_even",
    [SIM_RULE_NUM_SMS_MAX] = "num_sms_max",
};

const char *sim_rules_name(enum sim_rule_id id)
{
    assert((unsigned)id < SIM_RULES);
    return rule_names[id];
}

void sim_rules_check(const struct sim_rules_input *input, struct sim_rule rules[SIM_RULES])
{
    assert(input->ranks >= 1 && input->nodes >= 1);
    assert(input->tokens != NULL && input->capacity != NULL);
    assert(input->machine_node_ranks >= 1);
    assert(input->payload_bytes == 1 || input->payload_bytes == 2);

    for (uint32_t i = 0; i < SIM_RULES; i++) {
        memset(&rules[i], 0, sizeof(rules[i]));
        rules[i].name = rule_names[i];
        rules[i].ok = true;
    }
    sim_rules_shape(input, rules);
    sim_rules_size(input, rules);
    sim_rules_routing(input, rules);
    for (uint32_t i = 0; i < SIM_RULES; i++) {
        assert(rules[i].ok || rules[i].applies);
        assert(rules[i].ok || rules[i].text[0] != '\0');
        if (rules[i].ok && rules[i].applies) {
            rules[i].nearest = rules[i].value;
            rules[i].has_nearest = true;
        }
    }
}

int sim_rules_allow(struct sim_rule rules[SIM_RULES], const char *list, char *err, size_t err_len)
{
    bool named[SIM_RULES] = {false};

    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        uint32_t found = SIM_RULES;

        if (length == strlen("sbo_wheel") && memcmp(at, "sbo_wheel", length) == 0) {
            at += length + (at[length] == ','); /* Judged by sim/overlap.h, with the schedule. */
            continue;
        }
        for (uint32_t i = 0; i < SIM_RULES; i++)
            if (strlen(rules[i].name) == length && memcmp(rules[i].name, at, length) == 0)
                found = i;
        if (found == SIM_RULES) {
            snprintf(err, err_len, "--allow: no rule is called '%.*s'; check lists them",
                     (int)(length > 64 ? 64 : length), at);
            return -1;
        }
        if (found == SIM_RULE_EXPERTS_DIVIDE) {
            snprintf(err, err_len, "--allow: %s cannot be lifted: every expert needs one rank",
                     rules[found].name);
            return -1;
        }
        named[found] = true;
        at += length;
        if (*at == ',') at++;
    }
    for (uint32_t i = 0; i < SIM_RULES; i++) rules[i].lifted = named[i] && !rules[i].ok;
    return 0;
}

uint32_t sim_rules_refuse(const struct sim_rule rules[SIM_RULES], bool strict, char *refusal,
                          size_t refusal_len)
{
    uint32_t count = 0;
    size_t used = 0;

    assert(refusal_len > 0);
    refusal[0] = '\0';
    for (uint32_t i = 0; i < SIM_RULES; i++) {
        const struct sim_rule *rule = &rules[i];

        if (rule->ok || rule->lifted || (rule->model_only && !strict)) continue;
        if (used < refusal_len)
            used += (size_t)snprintf(refusal + used, refusal_len - used, "%s%s: %s",
                                     count > 0 ? "; " : "", rule->name, rule->text);
        count++;
    }
    return count;
}
