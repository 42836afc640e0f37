/* ref/ll.h - low-latency dispatch and combine of all ranks at once, by index arithmetic.
 *
 * Nothing here knows of messages or of ll_phase.h; the two are compared with each other.
 * Received rows stand expert by expert, in an expert by source rank, then token, then column,
 * without padding: the library's set of rows in one fixed order (it lands them as they arrive).
 * A token with the same expert in two columns is two rows. */
#ifndef REF_LL_H
#define REF_LL_H

#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* First row of every block: block (e, s) is rows block_start[e * R + s] up to the next entry.
 * block_start [experts * ranks + 1]. Returns the rows in all. */
uint64_t ref_ll_blocks(const struct ref_routing *routing, uint64_t *block_start);

/* Received rows of all ranks. NULL members are left out. */
struct ref_ll_rows {
    uint8_t *payload;       /* [rows][hidden] e4m3 codes, or BF16 [rows][hidden]. */
    float *scales;          /* [rows][hidden / 128]; FP8 recipes. */
    uint32_t *scales_ue8m0; /* [rows][hidden / 512], four exponents a word; power-of-two scales. */
    int32_t *src_token;     /* [rows]: index within the source rank. */
    int32_t *counts;        /* [experts][ranks]: rows of each block. */
};

/* Bytes of one row's payload: 2 * hidden for REF_RECIPE_BF16, else hidden. */
uint64_t ref_ll_payload_bytes(uint32_t hidden, uint32_t recipe);

/* Quantise x (BF16 [tokens][hidden]) by recipe (enum ref_recipe) and place a copy at every
 * selection. hidden is a multiple of 128, of 512 with scales_ue8m0. scratch [experts]. */
void ref_ll_dispatch(const struct ref_routing *routing, uint32_t hidden, uint32_t recipe,
                     const uint16_t *x, const uint64_t *block_start, uint64_t *scratch,
                     const struct ref_ll_rows *rows);

/* The library's layout_range of one rank: [L][R], count in the low 32 bits, first row (counted
 * from the expert's own first row) in the high 32. */
void ref_ll_layout_range(const struct ref_routing *routing, const uint64_t *block_start,
                         uint32_t rank, int64_t *layout_range);

/* Weighted sum at the home rank: from +0, columns ascending, acc = fmaf(row, weight, acc), one
 * rounding to bf16. A column without expert is skipped, its weight not read; a token without
 * any is +0. expert_out BF16 [rows][hidden]; combined BF16 [tokens][hidden]; scratch [experts].
 * routing->topk_weights must not be NULL. */
void ref_ll_combine(const struct ref_routing *routing, uint32_t hidden, const uint16_t *expert_out,
                    const uint64_t *block_start, uint64_t *scratch, uint16_t *combined);

#ifdef __cplusplus
}
#endif

#endif
