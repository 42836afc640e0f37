/* sim/case_table.h - the named cases that a backend is verified on, from one table file.
 *
 * A case is a shape, a kind of input and a name; its bytes follow from the name alone
 * (sim/case_inputs.h), so they are the same everywhere. The shipped table, sim/cases.csv, is
 * chosen so that every pair of values of two axes that the rules allow occurs in some case; pairs
 * that no allowed case can hold stand in it with the rule that forbids them. */
#ifndef SIM_CASE_TABLE_H
#define SIM_CASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "ref/quantise.h"
#include "sim/rules.h"

enum sim_case_axis {
    SIM_AXIS_EP,
    SIM_AXIS_MODE,
    SIM_AXIS_RECIPE,
    SIM_AXIS_TOKENS,
    SIM_AXIS_HIDDEN,
    SIM_AXIS_TOPK,
    SIM_AXIS_KIND,
    SIM_AXES
};

/* What a case's ids and rows look like beyond "drawn at random". */
enum sim_case_kind {
    SIM_KIND_UNIFORM,    /* K distinct experts a token, all alike. */
    SIM_KIND_MASKED,     /* One id in four is -1, whole tokens among them; NaN weights beside. */
    SIM_KIND_HOT,        /* One expert is chosen by three tokens in four. */
    SIM_KIND_EMPTY,      /* Ranks without tokens, and one whose experts nobody names. */
    SIM_KIND_DUPLICATES, /* A token names an expert twice; every third token is a copy. */
    SIM_KIND_SPECIAL,    /* NaN, infinities, -0, subnormal and largest values among the rows. */
    SIM_KIND_FLOOR,      /* Groups whose largest value is under the quantisation floor. */
    SIM_KINDS
};

enum {
    SIM_CASE_TEXT_MAX = 64,
    SIM_AXIS_VALUES_MAX = 12,
    SIM_CASE_UNEQUAL = 1 << 16, /* tokens: every rank its own number. */
    SIM_CASE_RANKS_MAX = 64
};

struct sim_table_case {
    char name[SIM_CASE_TEXT_MAX];
    char value[SIM_AXES][24]; /* As the table has them. */
    uint32_t ep;
    uint32_t node; /* Ranks of one node: 8 wherever a kernel was shipped for it. */
    enum sim_mode mode;
    enum ref_recipe recipe;
    uint32_t tokens; /* Of the rank that has most, or SIM_CASE_UNEQUAL. */
    uint32_t hidden;
    uint32_t topk;
    uint32_t experts;
    enum sim_case_kind kind;
    uint32_t biases; /* Normal mode: 0 to 2. */
    bool model_only; /* No shipped kernel takes the shape. */
};

/* Two values that never meet in an allowed case, and why. */
struct sim_table_pair {
    enum sim_case_axis axis[2]; /* Ascending. */
    char value[2][24];
    char rule[32]; /* A name of sim/rules.h. */
};

struct sim_case_table {
    size_t count, capacity;
    struct sim_table_case *cases; /* Owned, in the order of the file. */
    size_t pair_count, pair_capacity;
    struct sim_table_pair *pairs; /* Owned. */
};

/* The axis's name and the values that the shipped table covers, NULL-terminated. */
const char *sim_axis_name(enum sim_case_axis axis);
const char *const *sim_axis_values(enum sim_case_axis axis);

/* Read a table; path NULL or "": the one in the binary. 0, or -1 with "FILE:LINE: what". *table is
 * written only on success; free it with sim_case_table_free. */
int sim_case_table_load(const char *path, struct sim_case_table *table, char *err, size_t err_len);
void sim_case_table_free(struct sim_case_table *table); /* Safe on a zeroed struct. */

/* NULL when there is none of that name. */
const struct sim_table_case *sim_case_table_find(const struct sim_case_table *table,
                                                 const char *name);

/* Set one axis of a case from text. 0, or -1 with what is allowed in err. */
int sim_case_set(struct sim_table_case *table_case, enum sim_case_axis axis, const char *value,
                 char *err, size_t err_len);

/* Tokens of one rank. */
uint32_t sim_case_rank_tokens(const struct sim_table_case *table_case, uint32_t rank);

/* What `check --qp-depth auto` says of the case's shape on a machine whose nodes have the case's
 * number of GPUs: without ids, since -1 and duplicates are data here. */
void sim_case_rules(const struct sim_table_case *table_case, const struct fabric_machine *machine,
                    struct sim_rule rules[SIM_RULES]);

#endif
