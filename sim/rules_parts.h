/* sim/rules_parts.h - what the parts of the rule book share; nobody else includes it. */
#ifndef SIM_RULES_PARTS_H
#define SIM_RULES_PARTS_H

#include "sim/rules.h"

/* Each part judges its own rules; the caller has cleared them to "does not apply, ok". */
void sim_rules_shape(const struct sim_rules_input *input, struct sim_rule *rules);
void sim_rules_size(const struct sim_rules_input *input, struct sim_rule *rules);
void sim_rules_routing(const struct sim_rules_input *input, struct sim_rule *rules);

static inline bool sim_rules_is_ll(const struct sim_rules_input *input)
{
    return input->mode != SIM_MODE_NORMAL;
}

/* Record the figures of a rule that applies; failing is the caller's, with a text. */
__attribute__((format(printf, 4, 5))) void
sim_rule_figures(struct sim_rule *rule, int64_t value, int64_t limit, const char *limit_text, ...);
__attribute__((format(printf, 3, 4))) void sim_rule_fail(struct sim_rule *rule, int64_t nearest,
                                                         const char *text, ...);
/* The same where nothing near would work. */
__attribute__((format(printf, 2, 3))) void sim_rule_fail_flat(struct sim_rule *rule,
                                                              const char *text, ...);

#endif
