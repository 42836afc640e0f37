/* traces/safetensors_write.c - the writer of safetensors.h. */
#include "traces/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "traces/text.h"

enum { HEADER_ALIGN = 8 };

struct placed {
    uint64_t begin;
    uint64_t bytes;
};

/* Give every tensor its range: wide elements first. A range then begins at a multiple of its
 * element's size, since all bytes before it belong to elements at least as wide. */
static int place(const char *path, const struct trace_tensor *tensors, size_t count,
                 struct placed *placed, char *err, size_t err_len)
{
    uint64_t at = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < count; i++) {
            const struct trace_tensor *tensor = &tensors[i];
            uint64_t elements;
            if (trace_dtype_bytes(tensor->dtype) != width) continue;
            if (!trace_shape_size(tensor->shape, tensor->axes, tensor->dtype, &elements,
                                  &placed[i].bytes) ||
                __builtin_add_overflow(at, placed[i].bytes, &at) || at > (uint64_t)INT64_MAX)
                return trace_fail(err, err_len, "%s: tensor '%s': more than 2^63 - 1 bytes", path,
                                  tensor->name);
            assert(tensor->data != NULL || placed[i].bytes == 0);
            placed[i].begin = at - placed[i].bytes;
            assert(placed[i].begin % width == 0);
        }
    }
    return 0;
}

/* {"dtype": .., "shape": [..], "data_offsets": [..]}, or NULL. */
static json_t *entry(const struct trace_tensor *tensor, const struct placed *placed)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->axes; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    json_t *object = json_pack("{s:s, s:o, s:[I, I]}", "dtype", trace_dtype_name(tensor->dtype),
                               "shape", shape, "data_offsets", (json_int_t)placed->begin,
                               (json_int_t)(placed->begin + placed->bytes));
    if (json_array_size(shape) == tensor->axes) return object;
    json_decref(object);
    return NULL;
}

/* The header's text, to be freed by the caller, or NULL with err. */
static char *make_header(const char *path, const struct trace_tensor *tensors, size_t count,
                         const struct placed *placed, const struct trace_pair *pairs,
                         size_t pair_count, char *err, size_t err_len)
{
    json_t *header = json_object();
    char *text = NULL;
    if (pair_count > 0) {
        json_t *metadata = json_object();
        json_object_set_new(header, "__metadata__", metadata);
        for (size_t i = 0; i < pair_count; i++) {
            if (json_object_set_new(metadata, pairs[i].key, json_string(pairs[i].value)) == 0)
                continue;
            trace_fail(err, err_len, "%s: __metadata__ '%s': not valid UTF-8", path, pairs[i].key);
            goto free_header;
        }
    }
    for (size_t i = 0; i < count; i++) {
        assert(tensors[i].name != NULL && strcmp(tensors[i].name, "__metadata__") != 0);
        assert(json_object_get(header, tensors[i].name) == NULL);
        if (json_object_set_new(header, tensors[i].name, entry(&tensors[i], &placed[i])) == 0)
            continue;
        trace_fail(err, err_len, "%s: tensor '%s': the name is not valid UTF-8", path,
                   tensors[i].name);
        goto free_header;
    }
    text = json_dumps(header, JSON_COMPACT);
    if (text == NULL) trace_fail(err, err_len, "%s: out of memory", path);
free_header:
    json_decref(header);
    return text;
}

static int write_all(struct trace_output *output, const char *header,
                     const struct trace_tensor *tensors, size_t count, const struct placed *placed,
                     char *err, size_t err_len)
{
    static const char spaces[HEADER_ALIGN + 1] = "        ";
    const size_t text_bytes = strlen(header);
    const size_t pad_bytes = (HEADER_ALIGN - text_bytes % HEADER_ALIGN) % HEADER_ALIGN;
    const uint64_t header_bytes = text_bytes + pad_bytes;
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (unsigned char)(header_bytes >> (8 * i));
    if (trace_output_write(output, length, sizeof length, err, err_len) != 0 ||
        trace_output_write(output, header, text_bytes, err, err_len) != 0 ||
        trace_output_write(output, spaces, pad_bytes, err, err_len) != 0)
        return -1;
    for (uint32_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < count; i++)
            if (trace_dtype_bytes(tensors[i].dtype) == width &&
                trace_output_write(output, tensors[i].data, (size_t)placed[i].bytes, err,
                                   err_len) != 0)
                return -1;
    return 0;
}

int trace_tensors_write(const char *path, const struct trace_tensor *tensors, size_t count,
                        const struct trace_pair *pairs, size_t pair_count, char *err,
                        size_t err_len)
{
    assert(path != NULL);
    assert(tensors != NULL || count == 0);
    assert(pairs != NULL || pair_count == 0);
    struct placed *placed = (struct placed *)calloc(count + 1, sizeof *placed);
    char *header = NULL;
    struct trace_output *output = NULL;
    int status = -1;
    if (placed == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        goto free_all;
    }
    if (place(path, tensors, count, placed, err, err_len) != 0) goto free_all;
    header = make_header(path, tensors, count, placed, pairs, pair_count, err, err_len);
    if (header == NULL) goto free_all;
    if (strlen(header) + HEADER_ALIGN > TRACE_TENSORS_HEADER_BYTES_MAX) {
        trace_fail(err, err_len, "%s: header: %zu bytes, at most %d", path, strlen(header),
                   TRACE_TENSORS_HEADER_BYTES_MAX);
        goto free_all;
    }
    output = trace_output_open(path, err, err_len);
    if (output == NULL) goto free_all;
    status = write_all(output, header, tensors, count, placed, err, err_len);
    if (status == 0)
        status = trace_output_commit(output, err, err_len);
    else
        trace_output_abandon(output);
free_all:
    free(header);
    free(placed);
    return status;
}
