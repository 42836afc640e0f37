/* ref/digest.c - block sums of products with fixed keys, mixed by position. */
#include "ref/digest.h"

#include <assert.h>
#include <string.h>

#include "ref/hot.h"

enum { BLOCK_WORDS = REF_DIGEST_BLOCK_BYTES / 8 };

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read in place: this file needs a little-endian machine"
#endif

/* ref_digest_scramble() as a constant expression, so that the keys cost nothing at run time. */
#define MIX_1(z) (((z) ^ ((z) >> 30)) * UINT64_C(0xBF58476D1CE4E5B9))
#define MIX_2(z) (((z) ^ ((z) >> 27)) * UINT64_C(0x94D049BB133111EB))
#define MIX_3(z) ((z) ^ ((z) >> 31))
#define KEY(i) MIX_3(MIX_2(MIX_1(((uint64_t)(i) + 1) * REF_DIGEST_STEP)))
#define KEYS_4(i) KEY(i), KEY(i + 1), KEY(i + 2), KEY(i + 3)
#define KEYS_16(i) KEYS_4(i), KEYS_4(i + 4), KEYS_4(i + 8), KEYS_4(i + 12)
#define KEYS_64(i) KEYS_16(i), KEYS_16(i + 16), KEYS_16(i + 32), KEYS_16(i + 48)

static const uint64_t keys[BLOCK_WORDS] = {KEYS_64(0), KEYS_64(64), KEYS_64(128), KEYS_64(192)};

REF_INLINE uint64_t word_product(uint64_t word, uint64_t key)
{
    const uint32_t low = (uint32_t)word + (uint32_t)key;
    const uint32_t high = (uint32_t)(word >> 32) + (uint32_t)(key >> 32);
    return (uint64_t)low * high;
}

REF_INLINE uint64_t load_word(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

REF_HOT static uint64_t whole_blocks(const unsigned char *bytes, uint64_t blocks,
                                     uint64_t first_block)
{
    uint64_t total = 0;
    for (uint64_t b = 0; b < blocks; b++, bytes += REF_DIGEST_BLOCK_BYTES) {
        uint64_t sum = 0;
        for (int i = 0; i < BLOCK_WORDS; i++)
            sum += word_product(load_word(bytes + 8 * i), keys[i]);
        total += ref_digest_scramble(sum + (first_block + b) * REF_DIGEST_STEP);
    }
    return total;
}

static uint64_t last_block(const unsigned char *bytes, uint64_t n, uint64_t block)
{
    uint64_t sum = 0;
    assert(n > 0 && n < REF_DIGEST_BLOCK_BYTES);
    for (uint64_t i = 0; i < n / 8; i++) sum += word_product(load_word(bytes + 8 * i), keys[i]);
    if (n % 8 != 0) {
        uint64_t word = 0;
        memcpy(&word, bytes + n / 8 * 8, n % 8);
        sum += word_product(word, keys[n / 8]);
    }
    return ref_digest_scramble(sum + block * REF_DIGEST_STEP);
}

uint64_t ref_digest_part(const void *bytes, uint64_t n, uint64_t first_block)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const uint64_t blocks = n / REF_DIGEST_BLOCK_BYTES;
    const uint64_t rest = n % REF_DIGEST_BLOCK_BYTES;

    assert(n == 0 || bytes != NULL);
    uint64_t sum = whole_blocks(at, blocks, first_block);
    if (rest > 0)
        sum += last_block(at + blocks * REF_DIGEST_BLOCK_BYTES, rest, first_block + blocks);
    return sum;
}

uint64_t ref_digest(const void *bytes, uint64_t n)
{
    return ref_digest_finish(ref_digest_part(bytes, n, 0), n);
}
