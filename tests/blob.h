/* tests/blob.h - bytes of a file in memory, for tests of parsers. */
#ifndef TESTS_BLOB_H
#define TESTS_BLOB_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In a buffer of its exact size, so that a sanitizer sees a read past its end. */
struct blob {
    uint8_t *bytes; /* free them. */
    size_t count;
};

static inline struct blob blob_of(const void *bytes, size_t count)
{
    const struct blob blob = {(uint8_t *)malloc(count > 0 ? count : 1), count};
    ck_assert_ptr_nonnull(blob.bytes);
    memcpy(blob.bytes, bytes, count);
    return blob;
}

/* A beginning, a header, and data_bytes bytes 1, 2, 3, ... behind it. */
static inline struct blob blob_with_header(const void *begin, size_t begin_bytes,
                                           const char *header, size_t data_bytes)
{
    const size_t length = strlen(header), at = begin_bytes + length;
    const struct blob blob = {(uint8_t *)malloc(at + data_bytes), at + data_bytes};
    ck_assert_ptr_nonnull(blob.bytes);
    memcpy(blob.bytes, begin, begin_bytes);
    memcpy(blob.bytes + begin_bytes, header, length);
    for (size_t i = 0; i < data_bytes; i++) blob.bytes[at + i] = (uint8_t)(i + 1);
    return blob;
}

#endif
