/* sim/rules.h - what a deployment must satisfy before the library would run it.
 *
 * Every precondition of DeepEP dd758ca (host asserts, device asserts, and what the kernels do
 * not check but break on) as one named rule with the figure in question, the limit, and the
 * nearest figure that passes. check prints them; run and replay refuse on them. A rule that
 * the mode never meets does not apply and is ok. */
#ifndef SIM_RULES_H
#define SIM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "ref/routing.h"
#include "sim/model.h"
#include "sim/settings.h"
#include "sim/traffic.h"

enum sim_rule_id {
    SIM_RULE_HIDDEN_LL,
    SIM_RULE_HIDDEN_NORMAL,
    SIM_RULE_TOPK,
    SIM_RULE_EXPERTS_DIVIDE,
    SIM_RULE_LOCAL_RANKS,
    SIM_RULE_NODE_COUNT,
    SIM_RULE_CAPACITY,
    SIM_RULE_CAPACITY_EQUAL,
    SIM_RULE_CAPACITY_MULTIPLE_4,
    SIM_RULE_TOKENS_OVER_CAPACITY,
    SIM_RULE_MAX_TOKENS_1024,
    SIM_RULE_QP_DEPTH,
    SIM_RULE_BUFFER_BYTES,
    SIM_RULE_ID_RANGE,
    SIM_RULE_DUPLICATE_ID,
    SIM_RULE_MODE_CLEAN,
    SIM_RULE_NUM_SMS_EVEN,
    SIM_RULE_NUM_SMS_MAX,
    SIM_RULES
};

enum { SIM_RULE_TEXT_MAX = 192, SIM_RULE_REFUSAL_MAX = 2048 };

struct sim_rule {
    const char *name; /* Static storage; what --allow takes. */
    bool applies;     /* False: this mode or input never meets the rule; ok is true then. */
    bool ok;
    bool lifted;     /* Not ok, but named in --allow. */
    bool model_only; /* Not ok only because no shipped kernel has nodes of this size: a run may
                        go on, and must say so. */
    bool has_nearest;
    int64_t value;                /* The figure in question; 0 where the rule does not apply. */
    int64_t limit;                /* What it is held against. */
    int64_t nearest;              /* Closest value that passes; equals value when ok. */
    char limit_text[64];          /* How to print the limit: "at most 11", "2 | 4 | 8". */
    char text[SIM_RULE_TEXT_MAX]; /* When not ok: one lower-case line with the figures. */
};

/* What is known of the deployment. Borrowed for the call. */
struct sim_rules_input {
    enum sim_mode mode; /* AUTO is judged as LL. */
    uint32_t hidden;    /* What the kernels are given: the model's own, or padded by a run. */
    uint32_t topk;
    uint32_t experts;
    uint32_t ranks;
    uint32_t nodes;
    uint32_t machine_node_ranks; /* GPUs of one NVLink domain of the machine. */
    bool machine_has_nic;
    uint32_t machine_sms;       /* SMs of one GPU; 0 = unknown. */
    uint64_t machine_hbm_bytes; /* Of one GPU; 0 = unknown. */
    uint32_t payload_bytes;     /* Per channel of a dispatched row: 1 (FP8) or 2 (BF16). */
    const uint32_t *tokens;     /* [ranks] */
    const uint32_t *capacity;   /* [ranks]: LL's num_max_dispatch_tokens_per_rank. */
    uint32_t qp_depth;
    uint32_t sms;                      /* Normal mode's communication SMs. */
    enum sim_mode after;               /* What the buffers held before ... */
    bool clean;                        /* ... unless they were cleaned since. */
    const struct ref_routing *routing; /* NULL: ids are not looked at. */
};

/* The library's own limits, for whoever wants to list them. */
const uint32_t *sim_rules_ll_hidden(size_t *count);
const char *sim_rules_name(enum sim_rule_id id);

/* Judge every rule. Cannot fail: whatever the figures, each rule gets an answer. */
void sim_rules_check(const struct sim_rules_input *input, struct sim_rule rules[SIM_RULES]);

/* Judge id_range and duplicate_id over every row of a captured trace, opened with any id and any
 * duplicate allowed. After sim_rules_check without a routing. */
struct trace_routing;
void sim_rules_check_trace(const struct trace_routing *trace, uint32_t experts,
                           struct sim_rule rules[SIM_RULES]);

/* Weights of a trace beside chosen experts that are no finite number or below 0: how many, and
 * where the first stands, in one line; "" when there are none. The library takes any. */
void sim_rules_weights(const struct trace_routing *trace, char *text, size_t text_len);

/* Mark the rules that a comma-separated list names. 0, or -1 with err for an unknown name. */
int sim_rules_allow(struct sim_rule rules[SIM_RULES], const char *list, char *err, size_t err_len);

/* How many rules refuse (not ok, not lifted; model-only counts only when strict). refusal gets
 * them all in one line, "RULE: figures; RULE: figures", or "" when none does. */
uint32_t sim_rules_refuse(const struct sim_rule rules[SIM_RULES], bool strict, char *refusal,
                          size_t refusal_len);

/* Where the number of ranks is what is refused: the nearest numbers below and above it that pass
 * every rule, with nodes filled: "--ep 8 or --ep 16 passes". "" where it is not, or none does. */
void sim_rules_way_out(const struct sim_rules_input *input, const struct sim_rule rules[SIM_RULES],
                       char *text, size_t text_len);

/* Fill input from a run's settings. tokens_out and capacity_out are [settings->ep] and become
 * input->tokens and ->capacity. qp_depth_auto: what "auto" means (0 = 2(M + 1); check passes the
 * library's 1024). 0, or -1 with err when an option cannot be read. */
int sim_rules_input_from_settings(const struct sim_settings *settings,
                                  const struct sim_model *model,
                                  const struct fabric_machine *machine, uint32_t qp_depth_auto,
                                  uint32_t *tokens_out, uint32_t *capacity_out,
                                  struct sim_rules_input *input, char *err, size_t err_len);

#endif
