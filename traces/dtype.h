/* traces/dtype.h - the element types that .npy and safetensors files hold. */
#ifndef TRACES_DTYPE_H
#define TRACES_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_AXES_MAX = 8 };

enum trace_dtype {
    TRACE_BOOL,
    TRACE_U8,
    TRACE_I8,
    TRACE_F8_E4M3,
    TRACE_F8_E5M2,
    TRACE_F8_E8M0,
    TRACE_U16,
    TRACE_I16,
    TRACE_F16,
    TRACE_BF16,
    TRACE_U32,
    TRACE_I32,
    TRACE_F32,
    TRACE_U64,
    TRACE_I64,
    TRACE_F64,
    TRACE_DTYPES
};

uint32_t trace_dtype_bytes(enum trace_dtype dtype);    /* Of one element: 1, 2, 4 or 8. */
const char *trace_dtype_name(enum trace_dtype dtype);  /* As safetensors writes it: "BF16". */
const char *trace_dtype_descr(enum trace_dtype dtype); /* As .npy writes it: "<f4"; NULL where
                                                          .npy has no such type. */
bool trace_dtype_is_integer(enum trace_dtype dtype);   /* U8..I64, not BOOL. */

/* Find by name; false when unknown. */
bool trace_dtype_from_name(const char *name, size_t name_bytes, enum trace_dtype *dtype);
bool trace_dtype_from_descr(const char *descr, size_t descr_bytes, enum trace_dtype *dtype);

/* Elements and bytes of a shape of at most TRACE_AXES_MAX axes (none = one element). false when
 * either leaves 63 bits, so that sizes fit every signed type too. */
bool trace_shape_size(const uint64_t *shape, uint32_t axes, enum trace_dtype dtype, uint64_t *count,
                      uint64_t *bytes);

/* Element index of a dense array of integers of any width. data is aligned to the element. A U64
 * above INT64_MAX comes back as INT64_MAX, which no caller allows. */
int64_t trace_integer_at(enum trace_dtype dtype, const void *data, uint64_t index);

/* Element index of a dense array of integers, F32 or F64, rounded to the nearest float. */
float trace_float_at(enum trace_dtype dtype, const void *data, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif
