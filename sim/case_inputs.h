/* sim/case_inputs.h - what a named case gives a backend: routing, traffic, rows, all from its name.
 *
 * Draws depend on the case's name, the purpose and the token alone (sim/rng.h), so the bytes are
 * the same on every machine and whatever else is in the table. */
#ifndef SIM_CASE_INPUTS_H
#define SIM_CASE_INPUTS_H

#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/case_table.h"

#define SIM_CASE_BYTES_MAX (UINT64_C(1) << 30) /* Host memory that a case may take. */

enum { SIM_CASE_TOO_LARGE = -2 };

struct sim_case_inputs {
    struct ref_routing routing;   /* Points into the arrays below. */
    struct sim_traffic traffic;   /* Owned. */
    struct sim_layer_input layer; /* What a backend is told: points here, so do not move. */
    uint64_t tokens;              /* Of all ranks. */
    uint64_t bytes;              /* Host memory that verifying the case takes at most: these inputs,
                                    results of two computations, the reference's arenas. */
    uint64_t digest;             /* Over shape, ids, weights and rows. */
    uint64_t *token_start;       /* Owned, [ranks + 1]. */
    int64_t *topk_idx;           /* Owned, [tokens][topk]. */
    float *topk_weights;         /* Owned, the same. */
    uint16_t *x, *bias0, *bias1; /* Owned, BF16 [tokens][hidden]; biases as the case says. */
};

/* The host memory that the case would take, as in struct sim_case_inputs. 0; -1 or
 * SIM_CASE_TOO_LARGE as sim_case_inputs_open. */
int sim_case_bytes(const struct sim_table_case *table_case, uint64_t *bytes, char *err,
                   size_t err_len);

/* Draw a case's inputs. 0; -1 with err (memory); SIM_CASE_TOO_LARGE with err when it would take
 * more than SIM_CASE_BYTES_MAX. Free after success only. */
int sim_case_inputs_open(const struct sim_table_case *table_case, struct sim_case_inputs *inputs,
                         char *err, size_t err_len);
/* Over shape, token counts, ids, weights, rows and biases. */
uint64_t sim_case_inputs_digest(const struct sim_table_case *table_case,
                                const struct sim_case_inputs *inputs);
void sim_case_inputs_free(struct sim_case_inputs *inputs);

#endif
