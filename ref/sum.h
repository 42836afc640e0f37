/* ref/sum.h - the two sums that combine is made of, over whole rows of BF16 channels.
 *
 * Arithmetic only: which rows are added, and in which order, is the callers' matter, and the
 * group and the phase operations find that out in different ways. Channels are independent, so
 * the vector width does not show in the bits. hidden is a multiple of 128. */
#ifndef REF_SUM_H
#define REF_SUM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out = bf16(fma(rows[n-1], weights[n-1], ... fma(rows[0], weights[0], +0))): fp32, fused, one
 * rounding at the end. No rows: +0. */
void ref_sum_weighted(uint32_t hidden, const uint16_t *const *rows, const float *weights,
                      uint32_t row_count, uint16_t *out);

/* out = bf16((bias0 + bias1) + rows[0] + ... + rows[n-1]): fp32, in that order, one rounding at
 * the end. A NULL bias is +0. */
void ref_sum_plain(uint32_t hidden, const uint16_t *const *rows, uint32_t row_count,
                   const uint16_t *bias0, const uint16_t *bias1, uint16_t *out);

#ifdef __cplusplus
}
#endif

#endif
