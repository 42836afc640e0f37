/* ref/digest.h - a 64-bit digest of bytes that any number of workers can compute in any order.
 *
 * The bytes are read as little-endian 64-bit words, the last one padded with zeros, in blocks
 * of 256 words (2 KiB). With 32-bit additions that wrap, and 64-bit sums and products:
 *
 *   block sum    = sum over words of (low(w) + low(key[i])) * (high(w) + high(key[i])),
 *                  i = position in the block; words past the end are not part of the sum
 *   digest       = mix(mix(total_bytes + C) + sum over blocks of mix(block sum + b * C)),
 *                  b = index of the block, C = 9E3779B97F4A7C15
 *   key[i]       = mix((i + 1) * C)
 *   mix(z)       : z ^= z >> 30; z *= BF58476D1CE4E5B9; z ^= z >> 27;
 *                  z *= 94D049BB133111EB; z ^= z >> 31
 *
 * All sums commute, so a GPU twin gives each block of words to a thread block, reduces the
 * products, mixes once and adds to one 64-bit counter with an atomic; the result is the same
 * number. Moving a word changes its key and moving a block changes its b, so swapped words and
 * swapped rows are seen, which plain sums of row hashes miss. It tells faults apart, it does
 * not resist an enemy: the keys are public. */
#ifndef REF_DIGEST_H
#define REF_DIGEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { REF_DIGEST_BLOCK_BYTES = 2048 };

#define REF_DIGEST_STEP UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t ref_digest_scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The digest of n bytes; bytes may be NULL when n is 0. Any alignment. */
uint64_t ref_digest(const void *bytes, uint64_t n);

/* One worker's share: the blocks that start at first_block, a whole number of them unless this
 * is the end of the data. Shares add up (modulo 2^64) in any order, and ref_digest_finish()
 * turns the sum into the digest. */
uint64_t ref_digest_part(const void *bytes, uint64_t n, uint64_t first_block);

static inline uint64_t ref_digest_finish(uint64_t parts_sum, uint64_t total_bytes)
{
    return ref_digest_scramble(ref_digest_scramble(total_bytes + REF_DIGEST_STEP) + parts_sum);
}

/* Chains a value onto a digest; the order of the calls matters. */
static inline uint64_t ref_digest_mix(uint64_t digest, uint64_t value)
{
    const uint64_t turned = (digest << 23) | (digest >> 41);
    return ref_digest_scramble(turned + REF_DIGEST_STEP + ref_digest_scramble(value));
}

#ifdef __cplusplus
}
#endif

#endif
