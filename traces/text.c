/* traces/text.c - one-line errors, quoted names, hex digits and a digest of bytes. */
#include "traces/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int trace_fail(char *err, size_t err_len, const char *format, ...)
{
    assert(format != NULL);
    assert(err != NULL || err_len == 0);
    if (err_len == 0) return -1;

    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(err, err_len, format, arguments);
    va_end(arguments);
    if (length < 0) err[0] = '\0';
    for (char *at = err; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == 0x7f) *at = '?';
    }
    return -1;
}

const char *trace_quote(const void *text, size_t text_bytes, char out[TRACE_QUOTE_BYTES])
{
    assert(out != NULL);
    assert(text != NULL || text_bytes == 0);
    const unsigned char *from = (const unsigned char *)text;
    const size_t room = TRACE_QUOTE_BYTES - 6; /* Two quotes, three dots, NUL. */
    const size_t copied = text_bytes < room ? text_bytes : room;
    size_t at = 0;

    out[at++] = '\'';
    for (size_t i = 0; i < copied; i++)
        out[at++] = from[i] >= 0x20 && from[i] < 0x7f ? (char)from[i] : '?';
    if (copied < text_bytes) {
        memcpy(out + at, "...", 3);
        at += 3;
    }
    out[at++] = '\'';
    out[at++] = '\0';
    assert(at <= TRACE_QUOTE_BYTES);
    return out;
}

const char *trace_hex(uint64_t value, char out[17])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < 16; i++) out[i] = digits[value >> (60 - 4 * i) & 15];
    out[16] = '\0';
    return out;
}

/* Fold the 128-bit product of two words into 64 bits: every input bit reaches every output
 * bit, at the price of one multiplication. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    const u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t word_at(const unsigned char *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word); /* Little-endian hosts only, as everywhere in traces/. */
    return word;
}

/* Odd constants with no pattern: the fractions of the square roots of 2, 3, 5 and 7. */
#define MIX_A UINT64_C(0x6a09e667f3bcc909)
#define MIX_B UINT64_C(0xbb67ae8584caa73b)
#define MIX_C UINT64_C(0x3c6ef372fe94f82b)
#define MIX_D UINT64_C(0xa54ff53a5f1d36f1)

uint64_t trace_digest(uint64_t before, const void *data, size_t bytes)
{
    assert(data != NULL || bytes == 0);
    const unsigned char *from = (const unsigned char *)data;
    uint64_t left = before ^ MIX_A, right = before ^ MIX_B;
    size_t rest = bytes;

    /* Two lanes, each chained through its own multiplication, so that they overlap. The state
     * is added after the fold: a word that zeroes one product cannot wipe what came before. */
    for (; rest >= 32; rest -= 32, from += 32) {
        left = fold(word_at(from) ^ MIX_C, word_at(from + 8) ^ left) + MIX_A +
               (left << 1 | left >> 63);
        right = fold(word_at(from + 16) ^ MIX_D, word_at(from + 24) ^ right) + MIX_B +
                (right << 1 | right >> 63);
    }
    unsigned char tail[32] = {0};
    if (rest > 0) memcpy(tail, from, rest);
    left = fold(word_at(tail) ^ MIX_C, word_at(tail + 8) ^ left) + (left << 1 | left >> 63);
    right =
        fold(word_at(tail + 16) ^ MIX_D, word_at(tail + 24) ^ right) + (right << 1 | right >> 63);
    /* The length tells "a" from "a\0". */
    return fold(left ^ MIX_B, (right << 32 | right >> 32) ^ (uint64_t)bytes ^ MIX_D) ^
           fold(right ^ MIX_A, left + (uint64_t)bytes);
}
