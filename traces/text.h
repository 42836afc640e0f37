/* traces/text.h - one-line errors about files that nobody should trust.
 *
 * Names and values copied from a file may hold anything. Every error of this folder goes
 * through trace_fail, so it is one line whatever the file held. */
#ifndef TRACES_TEXT_H
#define TRACES_TEXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_QUOTE_BYTES = 56 }; /* What trace_quote writes at most, its NUL included. */

/* Write one line into err (cut at err_len, control characters replaced by '?') and return -1.
 * err may be NULL when err_len is 0. */
int trace_fail(char *err, size_t err_len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copy text_bytes bytes of text into out as printable ASCII in single quotes, cut with "..." where
 * it is long. Returns out, so that it can stand among the arguments of trace_fail. */
const char *trace_quote(const void *text, size_t text_bytes, char out[TRACE_QUOTE_BYTES]);

/* The 16 hex digits of value and a NUL. Returns out. */
const char *trace_hex(uint64_t value, char out[17]);

/* A 64-bit digest of bytes, chained: pass 0, or the digest of what came before. It tells
 * accidental changes apart; it is no defence against a forger. About 10 GB/s. */
uint64_t trace_digest(uint64_t before, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
