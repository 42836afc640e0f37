/* traces/dtype.c - sizes, names and values of the element types of .npy and safetensors files. */
#include "traces/dtype.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read in place");

static const struct dtype {
    const char *name;
    const char *descr;
    uint32_t bytes;
    bool is_integer;
} dtypes[TRACE_DTYPES] = {
    [TRACE_BOOL] = {"BOOL", "|b1", 1, false},      [TRACE_U8] = {"U8", "|u1", 1, true},
    [TRACE_I8] = {"I8", "|i1", 1, true},           [TRACE_F8_E4M3] = {"F8_E4M3", NULL, 1, false},
    [TRACE_F8_E5M2] = {"F8_E5M2", NULL, 1, false}, [TRACE_F8_E8M0] = {"F8_E8M0", NULL, 1, false},
    [TRACE_U16] = {"U16", "<u2", 2, true},         [TRACE_I16] = {"I16", "<i2", 2, true},
    [TRACE_F16] = {"F16", "<f2", 2, false},        [TRACE_BF16] = {"BF16", NULL, 2, false},
    [TRACE_U32] = {"U32", "<u4", 4, true},         [TRACE_I32] = {"I32", "<i4", 4, true},
    [TRACE_F32] = {"F32", "<f4", 4, false},        [TRACE_U64] = {"U64", "<u8", 8, true},
    [TRACE_I64] = {"I64", "<i8", 8, true},         [TRACE_F64] = {"F64", "<f8", 8, false},
};

static const struct dtype *entry(enum trace_dtype dtype)
{
    assert((unsigned)dtype < TRACE_DTYPES);
    return &dtypes[dtype];
}

uint32_t trace_dtype_bytes(enum trace_dtype dtype)
{
    return entry(dtype)->bytes;
}
const char *trace_dtype_name(enum trace_dtype dtype)
{
    return entry(dtype)->name;
}
const char *trace_dtype_descr(enum trace_dtype dtype)
{
    return entry(dtype)->descr;
}
bool trace_dtype_is_integer(enum trace_dtype dtype)
{
    return entry(dtype)->is_integer;
}

static bool equal(const char *word, const char *text, size_t text_bytes)
{
    return word != NULL && strlen(word) == text_bytes && memcmp(word, text, text_bytes) == 0;
}

bool trace_dtype_from_name(const char *name, size_t name_bytes, enum trace_dtype *dtype)
{
    assert(name != NULL && dtype != NULL);
    for (unsigned i = 0; i < TRACE_DTYPES; i++) {
        if (!equal(dtypes[i].name, name, name_bytes)) continue;
        *dtype = (enum trace_dtype)i;
        return true;
    }
    return false;
}

bool trace_dtype_from_descr(const char *descr, size_t descr_bytes, enum trace_dtype *dtype)
{
    assert(descr != NULL && dtype != NULL);
    for (unsigned i = 0; i < TRACE_DTYPES; i++) {
        const char *known = dtypes[i].descr;
        if (known == NULL || descr_bytes != 3) continue;
        /* Order means nothing for one byte: other writers say "<u1" for "|u1". */
        const bool order = descr[0] == known[0] || (known[0] == '|' && descr[0] == '<');
        if (!order || memcmp(descr + 1, known + 1, 2) != 0) continue;
        *dtype = (enum trace_dtype)i;
        return true;
    }
    return false;
}

bool trace_shape_size(const uint64_t *shape, uint32_t axes, enum trace_dtype dtype, uint64_t *count,
                      uint64_t *bytes)
{
    assert(axes <= TRACE_AXES_MAX);
    assert(shape != NULL || axes == 0);
    /* An axis of 0 makes the product 0 but must not excuse the others: a reader of a part of
     * the shape (rows of a [0, 2^63] array) would overflow later. So the product of the axes
     * that are not 0 must fit too. */
    uint64_t product = 1;
    bool empty = false;
    for (uint32_t i = 0; i < axes; i++) {
        if (shape[i] == 0) empty = true;
        if (shape[i] != 0 && __builtin_mul_overflow(product, shape[i], &product)) return false;
    }
    uint64_t whole;
    if (__builtin_mul_overflow(product, (uint64_t)trace_dtype_bytes(dtype), &whole)) return false;
    if (whole > (uint64_t)INT64_MAX) return false;
    *count = empty ? 0 : product;
    *bytes = empty ? 0 : whole;
    return true;
}

int64_t trace_integer_at(enum trace_dtype dtype, const void *data, uint64_t index)
{
    assert(data != NULL && trace_dtype_is_integer(dtype));
    switch (dtype) {
    case TRACE_U8: return ((const uint8_t *)data)[index];
    case TRACE_I8: return ((const int8_t *)data)[index];
    case TRACE_U16: return ((const uint16_t *)data)[index];
    case TRACE_I16: return ((const int16_t *)data)[index];
    case TRACE_U32: return ((const uint32_t *)data)[index];
    case TRACE_I32: return ((const int32_t *)data)[index];
    case TRACE_I64: return ((const int64_t *)data)[index];
    case TRACE_U64: {
        const uint64_t value = ((const uint64_t *)data)[index];
        return value > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    case TRACE_BOOL:
    case TRACE_F8_E4M3:
    case TRACE_F8_E5M2:
    case TRACE_F8_E8M0:
    case TRACE_F16:
    case TRACE_BF16:
    case TRACE_F32:
    case TRACE_F64:
    case TRACE_DTYPES: break;
    }
    return 0;
}

float trace_float_at(enum trace_dtype dtype, const void *data, uint64_t index)
{
    assert(data != NULL);
    if (dtype == TRACE_F32) return ((const float *)data)[index];
    if (dtype == TRACE_F64) return (float)((const double *)data)[index];
    if (dtype == TRACE_U64) return (float)((const uint64_t *)data)[index];
    return (float)trace_integer_at(dtype, data, index);
}
