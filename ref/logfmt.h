/* ref/logfmt.h - LogFMT-10, DeepEP's optional logarithmic encoding of low-latency combine rows.
 *
 * A row is cut into chunks of 1024 channels (512 when hidden is no multiple of 1024), a chunk
 * into groups of 128. The decision per chunk is exact: it is encoded only where, in every one
 * of its groups, the largest magnitude is below 1 and above the smallest; otherwise it travels
 * as BF16, bit for bit. Captures pin only that fallback.
 *
 * The encoding itself is model-only: the real kernel uses the GPU's approximate log2 and exp2,
 * this file uses ref/mathfn.h, so codes can differ by one where a value falls on a boundary.
 *
 * A group keeps (largest, smallest) magnitude as two BF16. With La = log2(largest), Li =
 * max(log2(smallest), La - 32), step = (La - Li) / 510, a value becomes a sign and a code
 * 0..511; code 0 is zero, code c is 2^((c - 1) * step + Li). 16 values make 20 bytes: 16 codes
 * of 9 bits, lowest first, then 16 sign bits. */
#ifndef REF_LOGFMT_H
#define REF_LOGFMT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* hidden must be a multiple of 512. */
uint32_t ref_logfmt_chunk_channels(uint32_t hidden);

/* Largest magnitude in the low half, smallest in the high half. NaN counts as neither; a group
 * of NaN only gives 7FFF7FFF, which never encodes. y: 128 BF16. */
uint32_t ref_logfmt_group_range(const uint16_t *y);

/* The decision for one chunk, from its groups' ranges. */
bool ref_logfmt_chunk_encodes(const uint32_t *ranges, uint32_t groups);

/* One row: ranges [hidden / 128], data at most 2 * hidden bytes, chunks one after the other.
 * Returns the bytes of data. */
uint64_t ref_logfmt_encode(const uint16_t *y, uint32_t hidden, uint32_t *ranges, uint8_t *data);

/* The row back as FP32, as combine multiplies it with the weight: fallback chunks widened from
 * BF16, encoded ones not rounded to BF16 between. */
void ref_logfmt_decode(const uint32_t *ranges, const uint8_t *data, uint32_t hidden, float *out);

#ifdef __cplusplus
}
#endif

#endif
