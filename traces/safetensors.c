/* traces/safetensors.c - reads named arrays in one file; safetensors_write.c writes them.
 *
 * The header is parsed by Jansson, which refuses duplicate keys, NUL characters, bad UTF-8,
 * integers beyond 63 bits and deep nesting; everything that it lets through is checked here. */
#include "traces/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "traces/text.h"

#define ALLOWED_DTYPES "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 U16 I16 F16 BF16 U32 I32 F32 U64 I64 F64"

enum { LENGTH_BYTES = 8, DEPTH_MAX = 3, ARRAY_ELEMENTS_MAX = 64 };

/* A tensor's range of the data, with the tensor's place in the header. */
struct range {
    uint64_t begin;
    uint64_t end;
    size_t header_index;
};

struct state {
    json_t *header;  /* Owns every name and value. */
    size_t *by_name; /* [count] indices into tensors, sorted by name. */
    void **copies;   /* [count] data moved to an aligned place, or NULL. */
    size_t copy_count;
};

struct parse {
    const char *name;
    const uint8_t *data; /* Behind the header. */
    uint64_t data_bytes;
    char *err;
    size_t err_len;
};

static int refuse(const struct parse *parse, const char *tensor, const char *what)
{
    char quoted[TRACE_QUOTE_BYTES];
    return trace_fail(parse->err, parse->err_len, "%s: tensor %s: %s", parse->name,
                      trace_quote(tensor, strlen(tensor), quoted), what);
}

static int read_dtype(const struct parse *parse, const char *tensor, const json_t *entry,
                      enum trace_dtype *dtype)
{
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) return refuse(parse, tensor, "dtype: expected a string");
    const char *text = json_string_value(value);
    if (trace_dtype_from_name(text, strlen(text), dtype)) return 0;
    char name_quoted[TRACE_QUOTE_BYTES], quoted[TRACE_QUOTE_BYTES];
    return trace_fail(parse->err, parse->err_len,
                      "%s: tensor %s: dtype: %s: expected " ALLOWED_DTYPES, parse->name,
                      trace_quote(tensor, strlen(tensor), name_quoted),
                      trace_quote(text, strlen(text), quoted));
}

static int read_shape(const struct parse *parse, const char *name, const json_t *entry,
                      struct trace_tensor *tensor)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return refuse(parse, name, "shape: expected an array");
    const size_t axes = json_array_size(shape);
    if (axes > TRACE_AXES_MAX) return refuse(parse, name, "shape: at most 8 axes");
    for (size_t i = 0; i < axes; i++) {
        const json_t *axis = json_array_get(shape, i);
        if (!json_is_integer(axis) || json_integer_value(axis) < 0)
            return refuse(parse, name, "shape: expected integers from 0");
        tensor->shape[i] = (uint64_t)json_integer_value(axis);
    }
    tensor->axes = (uint32_t)axes;
    if (!trace_shape_size(tensor->shape, tensor->axes, tensor->dtype, &tensor->count,
                          &tensor->bytes))
        return refuse(parse, name, "shape: more than 2^63 - 1 bytes");
    return 0;
}

static int read_range(const struct parse *parse, const char *name, const json_t *entry,
                      const struct trace_tensor *tensor, struct range *range)
{
    const json_t *pair = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(pair, 0), *end = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return refuse(parse, name, "data_offsets: expected [begin, end]");
    const int64_t from = json_integer_value(begin), to = json_integer_value(end);
    char quoted[TRACE_QUOTE_BYTES];
    trace_quote(name, strlen(name), quoted);
    if (from < 0 || to < from || (uint64_t)to > parse->data_bytes)
        return trace_fail(parse->err, parse->err_len,
                          "%s: tensor %s: data_offsets: [%" PRId64 ", %" PRId64
                          "]: expected an ascending pair within the %" PRIu64 " bytes of data",
                          parse->name, quoted, from, to, parse->data_bytes);
    if ((uint64_t)(to - from) != tensor->bytes)
        return trace_fail(parse->err, parse->err_len,
                          "%s: tensor %s: data_offsets: %" PRId64
                          " bytes, but shape and dtype ask for %" PRIu64,
                          parse->name, quoted, to - from, tensor->bytes);
    range->begin = (uint64_t)from;
    range->end = (uint64_t)to;
    return 0;
}

static int read_tensor(const struct parse *parse, const char *name, const json_t *entry,
                       struct trace_tensor *tensor, struct range *range)
{
    if (!json_is_object(entry)) return refuse(parse, name, "expected an object");
    if (read_dtype(parse, name, entry, &tensor->dtype) != 0) return -1;
    if (read_shape(parse, name, entry, tensor) != 0) return -1;
    if (read_range(parse, name, entry, tensor, range) != 0) return -1;
    if (json_object_size(entry) != 3)
        return refuse(parse, name, "expected the keys dtype, shape and data_offsets alone");
    assert(range->end - range->begin == tensor->bytes);
    tensor->name = name;
    tensor->data = parse->data + range->begin;
    return 0;
}

static int read_metadata(const struct parse *parse, json_t *metadata, struct trace_tensors *tensors)
{
    if (metadata == NULL) return 0;
    if (!json_is_object(metadata))
        return trace_fail(parse->err, parse->err_len, "%s: __metadata__: expected an object",
                          parse->name);
    tensors->pairs =
        (struct trace_pair *)calloc(json_object_size(metadata) + 1, sizeof *tensors->pairs);
    if (tensors->pairs == NULL)
        return trace_fail(parse->err, parse->err_len, "%s: out of memory", parse->name);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        char quoted[TRACE_QUOTE_BYTES];
        if (!json_is_string(value))
            return trace_fail(parse->err, parse->err_len,
                              "%s: __metadata__: %s: expected a string as value", parse->name,
                              trace_quote(key, strlen(key), quoted));
        assert(tensors->pair_count < json_object_size(metadata));
        tensors->pairs[tensors->pair_count++] = (struct trace_pair){key, json_string_value(value)};
    }
    return 0;
}

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = (const struct range *)left, *b = (const struct range *)right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->header_index < b->header_index ? -1 : 1;
}

/* The ranges, in order, must be the data: each begins where the one before ended. */
static int check_cover(const struct parse *parse, const struct trace_tensor *header_order,
                       const struct range *ranges, size_t count)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = header_order[ranges[i].header_index].name;
        char quoted[TRACE_QUOTE_BYTES];
        if (ranges[i].begin != covered)
            return trace_fail(
                parse->err, parse->err_len,
                "%s: tensor %s: data_offsets: begins at %" PRIu64 ", expected %" PRIu64 " (%s)",
                parse->name, trace_quote(name, strlen(name), quoted), ranges[i].begin, covered,
                ranges[i].begin < covered ? "tensors overlap" : "a hole before it");
        assert(ranges[i].end >= covered && ranges[i].end <= parse->data_bytes);
        covered = ranges[i].end;
    }
    if (covered != parse->data_bytes)
        return trace_fail(parse->err, parse->err_len,
                          "%s: data: %" PRIu64 " bytes, but the tensors take %" PRIu64, parse->name,
                          parse->data_bytes, covered);
    return 0;
}

static int read_tensors(const struct parse *parse, json_t *header, struct trace_tensors *tensors)
{
    const size_t entries = json_object_size(header);
    struct range *ranges = (struct range *)calloc(entries + 1, sizeof *ranges);
    struct trace_tensor *in_header = (struct trace_tensor *)calloc(entries + 1, sizeof *in_header);
    tensors->tensors = (struct trace_tensor *)calloc(entries + 1, sizeof *tensors->tensors);
    int status = -1;
    if (ranges == NULL || in_header == NULL || tensors->tensors == NULL) {
        trace_fail(parse->err, parse->err_len, "%s: out of memory", parse->name);
        goto free_both;
    }
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach(header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        ranges[count].header_index = count;
        if (read_tensor(parse, key, value, &in_header[count], &ranges[count]) != 0) goto free_both;
        count++;
    }
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    if (check_cover(parse, in_header, ranges, count) != 0) goto free_both;
    for (size_t i = 0; i < count; i++) tensors->tensors[i] = in_header[ranges[i].header_index];
    assert(count <= entries);
    tensors->count = count;
    status = read_metadata(parse, json_object_get(header, "__metadata__"), tensors);
free_both:
    free(in_header);
    free(ranges);
    return status;
}

static int compare_names(const void *left, const void *right, void *context)
{
    const struct trace_tensor *tensors = (const struct trace_tensor *)context;
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return strcmp(tensors[a].name, tensors[b].name);
}

/* The order by name, and aligned copies of what the writer did not align. */
static int finish(const struct parse *parse, struct trace_tensors *tensors, struct state *state)
{
    state->by_name = (size_t *)calloc(tensors->count + 1, sizeof *state->by_name);
    state->copies = (void **)calloc(tensors->count + 1, sizeof *state->copies);
    if (state->by_name == NULL || state->copies == NULL) goto no_memory;
    for (size_t i = 0; i < tensors->count; i++) {
        struct trace_tensor *tensor = &tensors->tensors[i];
        state->by_name[i] = i;
        const uintptr_t address = (uintptr_t)tensor->data;
        if (tensor->bytes == 0 || address % trace_dtype_bytes(tensor->dtype) == 0) continue;
        void *copy = malloc((size_t)tensor->bytes);
        if (copy == NULL) goto no_memory;
        memcpy(copy, tensor->data, (size_t)tensor->bytes);
        state->copies[state->copy_count++] = copy;
        tensor->data = copy;
        assert((uintptr_t)copy % trace_dtype_bytes(tensor->dtype) == 0);
    }
    qsort_r(state->by_name, tensors->count, sizeof *state->by_name, compare_names,
            tensors->tensors);
    return 0;
no_memory:
    return trace_fail(parse->err, parse->err_len, "%s: out of memory", parse->name);
}

/* A header is {"name": {"shape": [..]}}: three levels, short arrays. Anything else is refused
 * before the parser sees it, since the parser spends some 100 bytes on a "[]" and a header of
 * 100 MB would take all memory. Places in strings do not count. */
static int check_nesting(const struct parse *parse, const char *text, uint64_t length)
{
    unsigned depth = 0, elements = 0;
    bool in_string = false;
    for (uint64_t at = 0; at < length; at++) {
        const char c = text[at];
        const char *fault = NULL;
        if (in_string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"')
            in_string = true;
        else if (c == '{' || c == '[')
            depth++, elements = 0;
        else if ((c == '}' || c == ']') && depth > 0)
            depth--;
        else if (c == ',' && depth == DEPTH_MAX)
            elements++;
        if (depth > DEPTH_MAX)
            fault = "nested deeper than a tensor's shape";
        else if (c == '[' && depth < DEPTH_MAX)
            fault = "an array outside of a tensor";
        else if (elements == ARRAY_ELEMENTS_MAX)
            fault = "a longer array than any shape";
        if (fault != NULL)
            return trace_fail(parse->err, parse->err_len, "%s: byte %" PRIu64 ": header: %s",
                              parse->name, LENGTH_BYTES + at, fault);
    }
    return 0;
}

/* The header's JSON, or NULL with err. Leaves the data's place in parse. */
static json_t *read_header(struct parse *parse, const uint8_t *bytes, uint64_t byte_count)
{
    if (byte_count < LENGTH_BYTES) {
        trace_fail(parse->err, parse->err_len,
                   "%s: byte %" PRIu64 ": the file ends before its 8-byte header length",
                   parse->name, byte_count);
        return NULL;
    }
    uint64_t length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)bytes[i] << (8 * i);
    const uint64_t rest = byte_count - LENGTH_BYTES;
    if (length > TRACE_TENSORS_HEADER_BYTES_MAX || length > rest) {
        const bool format_limit = length > TRACE_TENSORS_HEADER_BYTES_MAX;
        trace_fail(parse->err, parse->err_len,
                   "%s: byte 0: header length: %" PRIu64 ": at most %" PRIu64 " (%s)", parse->name,
                   length, format_limit ? (uint64_t)TRACE_TENSORS_HEADER_BYTES_MAX : rest,
                   format_limit ? "the format's limit" : "what follows in the file");
        return NULL;
    }
    const char *text = (const char *)bytes + LENGTH_BYTES;
    if (length == 0 || text[0] != '{') {
        char quoted[TRACE_QUOTE_BYTES];
        trace_fail(parse->err, parse->err_len, "%s: byte 8: header: %s: expected '{'", parse->name,
                   trace_quote(text, length < 24 ? (size_t)length : 24, quoted));
        return NULL;
    }
    if (check_nesting(parse, text, length) != 0) return NULL;
    json_error_t error;
    json_t *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL) {
        trace_fail(parse->err, parse->err_len, "%s: byte %lld: header: %s", parse->name,
                   8LL + (error.position > 0 ? error.position : 0), error.text);
        return NULL;
    }
    parse->data = bytes + LENGTH_BYTES + length;
    parse->data_bytes = rest - length;
    assert(parse->data + parse->data_bytes == bytes + byte_count);
    return header;
}

int trace_tensors_parse(const char *name, const void *bytes, uint64_t byte_count,
                        struct trace_tensors *tensors, char *err, size_t err_len)
{
    assert(name != NULL && tensors != NULL);
    assert(bytes != NULL || byte_count == 0);
    struct parse parse = {name, NULL, 0, err, err_len};
    struct trace_tensors made;
    memset(&made, 0, sizeof made);

    json_t *header = read_header(&parse, (const uint8_t *)bytes, byte_count);
    if (header == NULL) return -1;
    struct state *state = (struct state *)calloc(1, sizeof *state);
    if (state == NULL) {
        json_decref(header);
        return trace_fail(err, err_len, "%s: out of memory", name);
    }
    state->header = header;
    made.private_state = state;
    if (read_tensors(&parse, header, &made) != 0 || finish(&parse, &made, state) != 0) {
        trace_tensors_close(&made);
        return -1;
    }
    *tensors = made;
    return 0;
}

int trace_tensors_open(const char *path, struct trace_tensors *tensors, char *err, size_t err_len)
{
    assert(path != NULL && tensors != NULL);
    struct trace_file file;
    if (trace_file_open(path, &file, err, err_len) != 0) return -1;
    if (trace_tensors_parse(path, file.data, file.bytes, tensors, err, err_len) != 0) {
        trace_file_close(&file);
        return -1;
    }
    tensors->file = file;
    return 0;
}

void trace_tensors_close(struct trace_tensors *tensors)
{
    assert(tensors != NULL);
    struct state *state = (struct state *)tensors->private_state;
    if (state != NULL) {
        for (size_t i = 0; i < state->copy_count; i++) free(state->copies[i]);
        free(state->copies);
        free(state->by_name);
        json_decref(state->header);
        free(state);
    }
    free(tensors->tensors);
    free(tensors->pairs);
    trace_file_close(&tensors->file);
    memset(tensors, 0, sizeof *tensors);
}

const struct trace_tensor *trace_tensors_find(const struct trace_tensors *tensors, const char *name)
{
    assert(tensors != NULL && name != NULL);
    const struct state *state = (const struct state *)tensors->private_state;
    assert(state != NULL || tensors->count == 0);
    size_t low = 0, high = tensors->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct trace_tensor *tensor = &tensors->tensors[state->by_name[middle]];
        const int order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *trace_tensors_metadata(const struct trace_tensors *tensors, const char *key)
{
    assert(tensors != NULL && key != NULL);
    for (size_t i = 0; i < tensors->pair_count; i++)
        if (strcmp(tensors->pairs[i].key, key) == 0) return tensors->pairs[i].value;
    return NULL;
}
