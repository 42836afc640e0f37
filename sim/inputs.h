/* sim/inputs.h - what a case gives: routing and rows of all ranks in one piece, checked.
 *
 * The reference takes ids for granted; here they are compared as 64-bit values with what the
 * case allows, before anything is computed or narrowed. NaN, infinities, -1 and duplicates are
 * data and pass. */
#ifndef SIM_INPUTS_H
#define SIM_INPUTS_H

#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"
#include "sim/capture.h"

struct sim_inputs {
    struct ref_routing routing; /* Points into the arrays below. */
    uint32_t hidden;
    uint32_t ranks_per_node; /* Normal mode: R up to 8 ranks, else 8. */
    uint64_t tokens;         /* Of all ranks. */
    uint64_t rows;           /* Received rows of all ranks. */
    uint64_t *token_start;   /* [ranks + 1] */
    uint64_t *block_start;   /* LL: [experts * ranks + 1]; normal: [ranks * ranks + 1]. */
    uint64_t *scratch;       /* [max(experts, ranks)], for the reference's calls. */
    int64_t *topk_idx;       /* [tokens][topk] */
    float *topk_weights;     /* [tokens][topk] */
    uint16_t *x;             /* BF16 [tokens][hidden], as all below unless said otherwise. */
    uint16_t *bias0, *bias1; /* NULL where the case has none. */
    uint8_t *x_fp8;          /* Codes; NULL where the case has none, and x_scales with it. */
    float *x_scales;         /* [tokens][hidden / 128] */
    uint16_t *expert_out;    /* [rows][hidden]; NULL where the case has none. */
};

/* 0, or -1 with one line naming file, tensor, value and what is allowed. *inputs is written only
 * on success; free with sim_inputs_free. */
int sim_inputs_read(const struct sim_capture *capture, struct sim_inputs *inputs, char *err,
                    size_t err_len);
void sim_inputs_free(struct sim_inputs *inputs); /* Safe on a zeroed struct. */

/* First received row of a rank, in either mode; rank may be R, for the end. */
uint64_t sim_inputs_rank_row(const struct sim_inputs *inputs, enum sim_mode mode, uint32_t rank);

#endif
