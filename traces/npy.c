/* traces/npy.c - reads and writes one array in a .npy file.
 *
 *   0  "\x93NUMPY"   6  major, minor   8  header length: u16 (1.0) or u32 (2.0, 3.0)
 *   then the header, a Python dict literal: {'descr': '<f4', 'fortran_order': False,
 *   'shape': (3, 4), } padded with spaces and ended by a newline; then the data. */
#include "traces/npy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/text.h"

#define ALLOWED_DTYPES "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 b1, little-endian"

enum { MAGIC_BYTES = 6, SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

/* The header under the cursor. Places in errors are offsets in the file. */
struct cursor {
    const char *name;
    const uint8_t *bytes; /* The whole file. */
    uint64_t at;          /* Next byte to read. */
    uint64_t end;         /* End of the header. */
    char *err;
    size_t err_len;
};

/* "NAME: byte AT: what: 'what stands there': allowed". */
static int refuse(const struct cursor *cursor, const char *what, const char *allowed)
{
    char quoted[TRACE_QUOTE_BYTES];
    assert(cursor->at <= cursor->end);
    const uint64_t rest = cursor->end - cursor->at;
    const size_t shown = rest < 24 ? (size_t)rest : 24;
    return trace_fail(cursor->err, cursor->err_len, "%s: byte %" PRIu64 ": %s: %s: %s",
                      cursor->name, cursor->at, what,
                      trace_quote(cursor->bytes + cursor->at, shown, quoted), allowed);
}

static void skip_spaces(struct cursor *cursor)
{
    while (cursor->at < cursor->end) {
        const uint8_t byte = cursor->bytes[cursor->at];
        if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r') break;
        cursor->at++;
    }
}

/* Take one punctuation mark, after spaces, if it is next. */
static bool take(struct cursor *cursor, char mark)
{
    skip_spaces(cursor);
    if (cursor->at == cursor->end || cursor->bytes[cursor->at] != (uint8_t)mark) return false;
    cursor->at++;
    return true;
}

/* A string in either quote, without escapes: none of the words we know needs one. */
static int take_string(struct cursor *cursor, const char *what, const char **text, size_t *bytes)
{
    skip_spaces(cursor);
    const char quote = cursor->at < cursor->end ? (char)cursor->bytes[cursor->at] : '\0';
    if (quote != '\'' && quote != '"') return refuse(cursor, what, "expected a string in quotes");
    const uint8_t *from = cursor->bytes + cursor->at + 1;
    const uint8_t *close = (const uint8_t *)memchr(from, quote, cursor->end - cursor->at - 1);
    if (close == NULL) return refuse(cursor, what, "the string has no closing quote");
    *text = (const char *)from;
    *bytes = (size_t)(close - from);
    cursor->at += *bytes + 2;
    assert(cursor->at <= cursor->end);
    return 0;
}

static int take_descr(struct cursor *cursor, struct trace_npy *npy)
{
    skip_spaces(cursor);
    if (cursor->at < cursor->end && cursor->bytes[cursor->at] == '[')
        return refuse(cursor, "descr", "records are not supported, expected " ALLOWED_DTYPES);
    const char *text;
    size_t bytes;
    struct cursor start = *cursor;
    if (take_string(cursor, "descr", &text, &bytes) != 0) return -1;
    if (trace_dtype_from_descr(text, bytes, &npy->dtype)) return 0;
    start.end = cursor->at;
    if (bytes > 0 && text[0] == '>')
        return refuse(&start, "descr", "big-endian, expected " ALLOWED_DTYPES);
    return refuse(&start, "descr", "expected " ALLOWED_DTYPES);
}

static int take_order(struct cursor *cursor)
{
    skip_spaces(cursor);
    const uint64_t rest = cursor->end - cursor->at;
    const uint8_t *here = cursor->bytes + cursor->at;
    if (rest >= 4 && memcmp(here, "True", 4) == 0)
        return refuse(cursor, "fortran_order", "only C order (False) is supported");
    if (rest < 5 || memcmp(here, "False", 5) != 0)
        return refuse(cursor, "fortran_order", "expected False");
    cursor->at += 5;
    return 0;
}

/* One axis: decimal digits, as Python 2 may have ended them with L. */
static int take_axis(struct cursor *cursor, uint64_t *axis)
{
    skip_spaces(cursor);
    const uint64_t start = cursor->at;
    uint64_t value = 0;
    bool fits = true;
    for (; cursor->at < cursor->end; cursor->at++) {
        const uint8_t byte = cursor->bytes[cursor->at];
        if (byte < '0' || byte > '9') break;
        fits = fits && !__builtin_mul_overflow(value, UINT64_C(10), &value) &&
               !__builtin_add_overflow(value, (uint64_t)(byte - '0'), &value) &&
               value <= (uint64_t)INT64_MAX;
    }
    if (cursor->at == start) return refuse(cursor, "shape", "expected a number from 0");
    if (!fits) {
        cursor->at = start;
        return refuse(cursor, "shape", "an axis is at most 2^63 - 1");
    }
    if (cursor->at < cursor->end && cursor->bytes[cursor->at] == 'L') cursor->at++;
    *axis = value;
    return 0;
}

static int take_shape(struct cursor *cursor, struct trace_npy *npy)
{
    if (!take(cursor, '(')) return refuse(cursor, "shape", "expected a tuple in parentheses");
    bool comma = true; /* A number may follow. */
    bool any_comma = false;
    while (!take(cursor, ')')) {
        if (!comma) return refuse(cursor, "shape", "expected ',' or ')'");
        if (npy->axes == TRACE_AXES_MAX) return refuse(cursor, "shape", "at most 8 axes");
        if (take_axis(cursor, &npy->shape[npy->axes]) != 0) return -1;
        npy->axes++;
        assert(npy->axes <= TRACE_AXES_MAX);
        comma = take(cursor, ',');
        any_comma = any_comma || comma;
    }
    /* (3) is a number in Python, not a tuple of one. */
    if (npy->axes == 1 && !any_comma) return refuse(cursor, "shape", "one axis is written (N,)");
    return 0;
}

static int take_entry(struct cursor *cursor, struct trace_npy *npy, unsigned *seen)
{
    static const struct {
        const char *name;
        unsigned bit;
    } keys[] = {{"descr", SEEN_DESCR}, {"fortran_order", SEEN_ORDER}, {"shape", SEEN_SHAPE}};
    struct cursor start = *cursor;
    const char *text;
    size_t bytes;
    if (take_string(cursor, "header", &text, &bytes) != 0) return -1;
    unsigned bit = 0;
    start.end = cursor->at;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i].name) == bytes && memcmp(keys[i].name, text, bytes) == 0)
            bit = keys[i].bit;
    if (bit == 0) return refuse(&start, "header", "expected descr, fortran_order or shape");
    if ((*seen & bit) != 0) return refuse(&start, "header", "the key stands twice");
    *seen |= bit;
    if (!take(cursor, ':')) return refuse(cursor, "header", "expected ':' after the key");
    if (bit == SEEN_DESCR) return take_descr(cursor, npy);
    if (bit == SEEN_ORDER) return take_order(cursor);
    return take_shape(cursor, npy);
}

static int take_header(struct cursor *cursor, struct trace_npy *npy)
{
    unsigned seen = 0;
    bool comma = true;
    if (!take(cursor, '{')) return refuse(cursor, "header", "expected '{'");
    while (!take(cursor, '}')) {
        if (!comma) return refuse(cursor, "header", "expected ',' or '}'");
        if (take_entry(cursor, npy, &seen) != 0) return -1;
        comma = take(cursor, ',');
    }
    skip_spaces(cursor);
    if (cursor->at != cursor->end) return refuse(cursor, "header", "nothing may follow '}'");
    if (seen == SEEN_ALL) return 0;
    const char *missing = (seen & SEEN_DESCR) == 0   ? "descr"
                          : (seen & SEEN_ORDER) == 0 ? "fortran_order"
                                                     : "shape";
    return trace_fail(cursor->err, cursor->err_len, "%s: byte %" PRIu64 ": header: no %s",
                      cursor->name, cursor->at, missing);
}

/* Where the header stands: everything before the dict. */
static int find_header(struct cursor *cursor, uint64_t byte_count)
{
    const uint8_t *bytes = cursor->bytes;
    if (byte_count < MAGIC_BYTES || memcmp(bytes, "\x93NUMPY", MAGIC_BYTES) != 0) {
        cursor->end = byte_count < MAGIC_BYTES ? byte_count : MAGIC_BYTES;
        return refuse(cursor, "magic", "expected \\x93NUMPY, so this is not a .npy file");
    }
    if (byte_count < 8)
        return trace_fail(cursor->err, cursor->err_len,
                          "%s: byte %" PRIu64 ": the file ends before its version", cursor->name,
                          byte_count);
    const unsigned major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return trace_fail(cursor->err, cursor->err_len,
                          "%s: byte 6: version: %u.%u: expected 1.0, 2.0 or 3.0", cursor->name,
                          major, minor);
    cursor->at = major == 1 ? 10 : 12;
    if (byte_count < cursor->at)
        return trace_fail(cursor->err, cursor->err_len,
                          "%s: byte %" PRIu64 ": the file ends before its header does",
                          cursor->name, byte_count);
    uint64_t length = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8;
    if (major > 1) length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    if (length > byte_count - cursor->at)
        return trace_fail(cursor->err, cursor->err_len,
                          "%s: byte 8: header length: %" PRIu64 ": at most the %" PRIu64
                          " bytes that follow",
                          cursor->name, length, byte_count - cursor->at);
    cursor->end = cursor->at + length;
    assert(cursor->end <= byte_count);
    return 0;
}

int trace_npy_parse(const char *name, const void *bytes, uint64_t byte_count, struct trace_npy *npy,
                    char *err, size_t err_len)
{
    assert(name != NULL && npy != NULL);
    assert(bytes != NULL || byte_count == 0);
    struct cursor cursor = {name, (const uint8_t *)bytes, 0, 0, err, err_len};
    struct trace_npy made;
    memset(&made, 0, sizeof made);

    if (find_header(&cursor, byte_count) != 0) return -1;
    if (take_header(&cursor, &made) != 0) return -1;
    if (!trace_shape_size(made.shape, made.axes, made.dtype, &made.count, &made.bytes))
        return trace_fail(err, err_len, "%s: shape: more than 2^63 - 1 bytes", name);
    const uint64_t present = byte_count - cursor.end;
    if (made.bytes != present)
        return trace_fail(err, err_len,
                          "%s: byte %" PRIu64 ": data: %" PRIu64
                          " bytes, but shape and descr ask for %" PRIu64,
                          name, cursor.end, present, made.bytes);
    made.data = (const uint8_t *)bytes + cursor.end;
    const uintptr_t address = (uintptr_t)made.data;
    if (made.bytes > 0 && address % trace_dtype_bytes(made.dtype) != 0) {
        made.copy = malloc((size_t)made.bytes);
        if (made.copy == NULL) return trace_fail(err, err_len, "%s: out of memory", name);
        memcpy(made.copy, made.data, (size_t)made.bytes);
        made.data = made.copy;
    }
    *npy = made;
    return 0;
}

int trace_npy_open(const char *path, struct trace_npy *npy, char *err, size_t err_len)
{
    assert(path != NULL && npy != NULL);
    struct trace_file file;
    if (trace_file_open(path, &file, err, err_len) != 0) return -1;
    if (trace_npy_parse(path, file.data, file.bytes, npy, err, err_len) != 0) {
        trace_file_close(&file);
        return -1;
    }
    npy->file = file;
    return 0;
}

void trace_npy_close(struct trace_npy *npy)
{
    assert(npy != NULL);
    free(npy->copy);
    trace_file_close(&npy->file);
    memset(npy, 0, sizeof *npy);
}

int64_t trace_npy_integer(const struct trace_npy *npy, uint64_t index)
{
    assert(npy != NULL && index < npy->count);
    return trace_integer_at(npy->dtype, npy->data, index);
}

int trace_npy_write(const char *path, enum trace_dtype dtype, const uint64_t *shape, uint32_t axes,
                    const void *data, char *err, size_t err_len)
{
    assert(trace_dtype_descr(dtype) != NULL);
    assert(axes <= TRACE_AXES_MAX);
    uint64_t count, bytes;
    if (!trace_shape_size(shape, axes, dtype, &count, &bytes))
        return trace_fail(err, err_len, "%s: shape: more than 2^63 - 1 bytes", path);
    assert(data != NULL || bytes == 0);

    char header[320] = "\x93NUMPY\x01"; /* 8 axes of 19 digits and the words fit in 256. */
    int used = 10;
    used +=
        snprintf(header + used, sizeof header - (size_t)used,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (", trace_dtype_descr(dtype));
    for (uint32_t i = 0; i < axes; i++)
        used += snprintf(header + used, sizeof header - (size_t)used,
                         i == 0 ? "%" PRIu64 : ", %" PRIu64, shape[i]);
    used += snprintf(header + used, sizeof header - (size_t)used, axes == 1 ? ",), }" : "), }");
    while (used % 64 != 63) header[used++] = ' '; /* Data starts at a multiple of 64. */
    header[used++] = '\n';
    assert(used <= (int)sizeof header);
    header[8] = (char)((used - 10) & 0xff);
    header[9] = (char)((used - 10) >> 8);

    struct trace_output *output = trace_output_open(path, err, err_len);
    if (output == NULL) return -1;
    if (trace_output_write(output, header, (size_t)used, err, err_len) != 0 ||
        trace_output_write(output, data, (size_t)bytes, err, err_len) != 0) {
        trace_output_abandon(output);
        return -1;
    }
    return trace_output_commit(output, err, err_len);
}
