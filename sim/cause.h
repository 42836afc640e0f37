/* sim/cause.h - which recipe or sum order the other side seems to have used.
 *
 * A row that differs from the reference is tried against everything that libraries are known to
 * do instead: other scale and code formulas, every recipe of ref/quantise.h, other orders and
 * roundings of a sum, a part lost or added twice, another token's row. What reproduces the whole
 * row is named in one short sentence. A guess that fits, not a proof. */
#ifndef SIM_CAUSE_H
#define SIM_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"
#include "sim/capture.h"
#include "sim/compare.h"
#include "sim/inputs.h"

enum { SIM_CAUSE_MAX = 192 };

/* One FP8 row: x BF16 [hidden], its codes, and the scales stored with it as floats [hidden / 128].
 * recipe is the one that should have made them (enum ref_recipe). true when a sentence was found,
 * like "codes match x * (1 / scale): multiplied by the reciprocal of the stored scale". */
bool sim_cause_quantise(uint32_t recipe, const uint16_t *x, uint32_t hidden, const uint8_t *codes,
                        const float *scales, char cause[SIM_CAUSE_MAX]);

/* What a combined row is the sum of. */
struct sim_cause_terms {
    uint32_t hidden;
    bool ll; /* Weighted columns; otherwise unweighted ranks, ascending. */
    uint32_t ranks_per_node;
    bool several_nodes; /* Normal mode: every node rounds its part, then the home rank. */
    uint32_t count;
    const uint16_t *row[REF_TOPK_MAX]; /* BF16 [hidden] */
    float weight[REF_TOPK_MAX];
    uint32_t rank[REF_TOPK_MAX];
    int64_t expert[REF_TOPK_MAX];  /* LL: the column's; normal: any of the rank's. */
    uint32_t column[REF_TOPK_MAX]; /* LL: its own; normal: the highest of the rank's. */
    const uint16_t *bias[2];       /* BF16 [hidden], or NULL. */
};

/* actual BF16 [hidden], which is not what the reference makes of the terms. true when a sentence
 * was found. */
bool sim_cause_combine(const struct sim_cause_terms *terms, const uint16_t *actual,
                       char cause[SIM_CAUSE_MAX]);

/* What can be said of any two rows: never written, zero, one bit, bytes swapped. */
bool sim_cause_bytes(const uint8_t *expected, const uint8_t *actual, uint64_t bytes,
                     uint32_t element_bytes, char cause[SIM_CAUSE_MAX]);

/* Fill first->cause unless there is one. results: what the reference makes of the inputs. The
 * side that the reference does not agree with is the one explained: first->expected_row and
 * actual_row must still be valid, and expected and actual are the captures compared. */
void sim_cause_explain(const struct sim_inputs *inputs, const struct sim_capture *results,
                       const struct sim_capture *expected, const struct sim_capture *actual,
                       struct sim_mismatch *first);

#endif
