/* ref/dp.h - the data-parallel collectives around an MoE layer, as arithmetic on arrays.
 *
 * Gather moves bytes; reduce-scatter adds in one fixed order: fp32 from +0, ranks ascending,
 * one rounding to bf16. A real ring or tree adds in another order, so it is compared within a
 * tolerance, not bit for bit. */
#ifndef REF_DP_H
#define REF_DP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All-gather: every rank's `bytes` bytes one after the other, ranks ascending. out holds
 * ranks * bytes and is what every rank ends up with. */
void ref_dp_gather(const void *const *parts, uint32_t ranks, uint64_t bytes, void *out);

/* The same with a size of its own per rank; a part of 0 bytes may be NULL. */
void ref_dp_gatherv(const void *const *parts, const uint64_t *part_bytes, uint32_t ranks,
                    void *out);

/* Rank `rank`'s share of the sum over ranks: rows row_start[rank] .. row_start[rank + 1] of
 * the inputs, each [row_start[ranks]][hidden] BF16. out [rows of this rank][hidden] BF16. */
void ref_dp_reduce_scatter(const uint16_t *const *inputs, const uint64_t *row_start, uint32_t ranks,
                           uint32_t hidden, uint32_t rank, uint16_t *out);

#ifdef __cplusplus
}
#endif

#endif
