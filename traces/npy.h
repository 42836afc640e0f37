/* traces/npy.h - one array in a .npy file (NumPy format 1.0, 2.0 and 3.0).
 *
 * Read: C order, little-endian, plain numbers, up to TRACE_AXES_MAX axes. Every byte of the
 * file is accounted for: what the header does not explain is refused, with its place. */
#ifndef TRACES_NPY_H
#define TRACES_NPY_H

#include "traces/dtype.h"
#include "traces/file.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_npy {
    struct trace_file file;
    enum trace_dtype dtype;
    uint32_t axes;                  /* 0: a single number. */
    uint64_t shape[TRACE_AXES_MAX]; /* Axes in use only; the others are 0. */
    uint64_t count;                 /* Elements. */
    uint64_t bytes;                 /* Of data. */
    const void *data;               /* Aligned to the element; valid until close. */
    void *copy;                     /* Where the file's own place was not aligned; else NULL. */
};

/* 0, or -1 with "PATH: byte N: what: value: what is allowed". *npy is written only on success. */
int trace_npy_open(const char *path, struct trace_npy *npy, char *err, size_t err_len);
void trace_npy_close(struct trace_npy *npy); /* Safe on a zeroed struct. */

/* The same over bytes in memory (a fuzzer's, a reply's). name stands in errors. The bytes are
 * borrowed and must outlive npy; npy->file stays zeroed. */
int trace_npy_parse(const char *name, const void *bytes, uint64_t byte_count, struct trace_npy *npy,
                    char *err, size_t err_len);

/* Element index as an integer; the dtype must be one (asserted). See trace_integer_at. */
int64_t trace_npy_integer(const struct trace_npy *npy, uint64_t index);

/* Write a version 1.0 file, replaced by rename, as NumPy itself would. The dtype must have a
 * .npy name (asserted). */
int trace_npy_write(const char *path, enum trace_dtype dtype, const uint64_t *shape, uint32_t axes,
                    const void *data, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
