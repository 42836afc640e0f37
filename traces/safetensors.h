/* traces/safetensors.h - named arrays in one file.
 *
 * Layout: u64 header length N, N bytes of JSON, then the data. Every tensor's range must lie in
 * the data, exactly as long as its shape and dtype say, and together they cover the data with
 * neither hole nor overlap. */
#ifndef TRACES_SAFETENSORS_H
#define TRACES_SAFETENSORS_H

#include "traces/dtype.h"
#include "traces/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_TENSORS_HEADER_BYTES_MAX = 100000000 }; /* The format's own limit. */

struct trace_tensor {
    const char *name;
    enum trace_dtype dtype;
    uint32_t axes;                  /* 0: a single number. */
    uint64_t shape[TRACE_AXES_MAX]; /* Axes in use only; the others are 0. */
    uint64_t count;                 /* Elements. Not read by the writer. */
    uint64_t bytes;                 /* Of data. Not read by the writer. */
    const void *data;               /* Aligned to the element. */
};

struct trace_pair { /* One entry of __metadata__. */
    const char *key;
    const char *value;
};

struct trace_tensors {
    struct trace_file file;
    size_t count;
    struct trace_tensor *tensors; /* In the order of their data in the file. */
    size_t pair_count;
    struct trace_pair *pairs; /* __metadata__, in the header's order. */
    void *private_state;      /* Owned by safetensors.c. */
};

/* 0, or -1 with one line naming the file, the tensor and the value. *tensors is written only on
 * success; all pointers in it are valid until close. */
int trace_tensors_open(const char *path, struct trace_tensors *tensors, char *err, size_t err_len);
void trace_tensors_close(struct trace_tensors *tensors); /* Safe on a zeroed struct. */

/* The same over bytes in memory, borrowed, which must outlive tensors. name stands in errors. */
int trace_tensors_parse(const char *name, const void *bytes, uint64_t byte_count,
                        struct trace_tensors *tensors, char *err, size_t err_len);

/* The tensor or value of that name, or NULL. */
const struct trace_tensor *trace_tensors_find(const struct trace_tensors *tensors,
                                              const char *name);
const char *trace_tensors_metadata(const struct trace_tensors *tensors, const char *key);

/* Write a file, replaced by rename. The header lists the tensors in the given order; the data
 * stands with wide elements first (ties in the given order), so that every tensor is aligned
 * although the format allows no padding between them. Names must differ, be valid UTF-8 and not
 * be "__metadata__". Data is streamed from the callers' pointers. */
int trace_tensors_write(const char *path, const struct trace_tensor *tensors, size_t count,
                        const struct trace_pair *pairs, size_t pair_count, char *err,
                        size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
