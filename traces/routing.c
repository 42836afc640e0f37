/* traces/routing.c - opens routing in either container, checks it, and gives ids and weights. */
#include "traces/routing.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traces/file.h"
#include "traces/npy.h"
#include "traces/safetensors.h"
#include "traces/text.h"

/* An array of either container, seen as one thing. */
struct array {
    const char *path; /* NULL: there is no such array. */
    const char *name; /* For errors: "ids", "offsets", "weights". */
    enum trace_dtype dtype;
    uint32_t axes;
    const uint64_t *shape;
    uint64_t count;
    const void *data;
};

struct state {
    struct trace_npy ids_npy, offsets_npy, weights_npy; /* Zeroed where not in use. */
    struct trace_tensors container;
    struct array ids, offsets, weights;
    int64_t *starts; /* [requests + 1] */
};

static struct array array_of_npy(const struct trace_npy *npy, const char *name)
{
    return (struct array){npy->file.path, name,       npy->dtype, npy->axes,
                          npy->shape,     npy->count, npy->data};
}

/* An array of the container; path NULL where it has none of that name. */
static struct array array_of_tensor(const struct trace_tensors *container, const char *name)
{
    const struct trace_tensor *tensor = trace_tensors_find(container, name);
    if (tensor == NULL) return (struct array){NULL, name, TRACE_U8, 0, NULL, 0, NULL};
    return (struct array){container->file.path, name,          tensor->dtype, tensor->axes,
                          tensor->shape,        tensor->count, tensor->data};
}

static bool is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

static void close_state(struct state *state)
{
    trace_npy_close(&state->ids_npy);
    trace_npy_close(&state->offsets_npy);
    trace_npy_close(&state->weights_npy);
    trace_tensors_close(&state->container);
    free(state->starts);
    free(state);
}

/* Add an opened file to the list, with its digest. */
static void add_file(struct trace_routing *routing, const struct trace_file *file)
{
    assert(routing->file_count < TRACE_ROUTING_FILES_MAX);
    assert(file->path != NULL);
    const uint64_t digest = trace_digest(0, file->data, (size_t)file->bytes);
    routing->files[routing->file_count++] = (struct trace_routing_file){file->path, digest};
}

/* Is this a .npy file, by its first bytes? Anything else is taken for a container. */
static int look_at_kind(const char *path, bool *is_npy, char *err, size_t err_len)
{
    struct trace_file file;
    if (trace_file_open(path, &file, err, err_len) != 0) return -1;
    *is_npy = file.bytes >= 6 && memcmp(file.data, "\x93NUMPY", 6) == 0;
    /* The message of the wrong reader would not help: say what may stand here at all. */
    const bool is_container = file.bytes >= 9 && file.data[8] == '{';
    trace_file_close(&file);
    if (*is_npy || is_container) return 0;
    return trace_fail(err, err_len,
                      "%s: neither a .npy file (magic \\x93NUMPY) nor a safetensors file ('{' at "
                      "byte 8)",
                      path);
}

static int open_container(const char *path, struct state *state, struct trace_routing *routing,
                          char *err, size_t err_len)
{
    if (trace_tensors_open(path, &state->container, err, err_len) != 0) return -1;
    add_file(routing, &state->container.file);
    state->ids = array_of_tensor(&state->container, "topk_ids");
    state->offsets = array_of_tensor(&state->container, "seq_offsets");
    state->weights = array_of_tensor(&state->container, "topk_w");
    if (state->ids.path == NULL) return trace_fail(err, err_len, "%s: no tensor topk_ids", path);
    if (trace_tensors_find(&state->container, "valid") != NULL)
        return trace_fail(err, err_len, "%s: tensor valid: masks are not supported, drop the rows",
                          path);
    const char *id_space = trace_tensors_metadata(&state->container, "id_space");
    const char *model = trace_tensors_metadata(&state->container, "model");
    char quoted[TRACE_QUOTE_BYTES];
    if (id_space != NULL && strcmp(id_space, "logical") != 0 && strcmp(id_space, "physical") != 0)
        return trace_fail(err, err_len,
                          "%s: __metadata__: id_space: %s: expected logical or physical", path,
                          trace_quote(id_space, strlen(id_space), quoted));
    if (id_space != NULL) routing->id_space = id_space;
    if (model != NULL) routing->model = model;
    return 0;
}

static int open_files(const struct trace_routing_source *source, struct state *state,
                      struct trace_routing *routing, char *err, size_t err_len)
{
    bool is_npy = false;
    if (look_at_kind(source->ids_path, &is_npy, err, err_len) != 0) return -1;
    if (is_npy) {
        if (trace_npy_open(source->ids_path, &state->ids_npy, err, err_len) != 0) return -1;
        add_file(routing, &state->ids_npy.file);
        state->ids = array_of_npy(&state->ids_npy, "ids");
    } else if (open_container(source->ids_path, state, routing, err, err_len) != 0) {
        return -1;
    }
    if (is_given(source->offsets_path)) {
        if (trace_npy_open(source->offsets_path, &state->offsets_npy, err, err_len) != 0) return -1;
        add_file(routing, &state->offsets_npy.file);
        state->offsets = array_of_npy(&state->offsets_npy, "offsets");
    }
    if (is_given(source->weights_path)) {
        if (trace_npy_open(source->weights_path, &state->weights_npy, err, err_len) != 0) return -1;
        add_file(routing, &state->weights_npy.file);
        state->weights = array_of_npy(&state->weights_npy, "weights");
    }
    return 0;
}

static int check_ids_shape(const struct array *ids, struct trace_routing *routing, char *err,
                           size_t err_len)
{
    if (!trace_dtype_is_integer(ids->dtype))
        return trace_fail(err, err_len, "%s: %s: dtype %s: expected an integer type", ids->path,
                          ids->name, trace_dtype_name(ids->dtype));
    if (ids->axes != 3)
        return trace_fail(err, err_len, "%s: %s: %u axes: expected 3, [tokens][layers][K]",
                          ids->path, ids->name, ids->axes);
    if (ids->shape[0] < 1)
        return trace_fail(err, err_len, "%s: %s: 0 tokens: expected at least 1", ids->path,
                          ids->name);
    if (ids->shape[1] < 1 || ids->shape[1] > TRACE_LAYERS_MAX)
        return trace_fail(err, err_len, "%s: %s: %" PRIu64 " layers: expected 1 to %d", ids->path,
                          ids->name, ids->shape[1], TRACE_LAYERS_MAX);
    if (ids->shape[2] < 1 || ids->shape[2] > TRACE_TOPK_MAX)
        return trace_fail(err, err_len, "%s: %s: K is %" PRIu64 ": expected 1 to %d", ids->path,
                          ids->name, ids->shape[2], TRACE_TOPK_MAX);
    assert(ids->count == ids->shape[0] * ids->shape[1] * ids->shape[2]);
    routing->tokens = ids->shape[0];
    routing->layers = (uint32_t)ids->shape[1];
    routing->topk = (uint32_t)ids->shape[2];
    return 0;
}

static int check_weights(const struct array *ids, const struct array *weights, char *err,
                         size_t err_len)
{
    assert(ids->path != NULL && ids->axes == 3);
    if (weights->path == NULL) return 0;
    if (weights->dtype != TRACE_F32 && weights->dtype != TRACE_F64)
        return trace_fail(err, err_len, "%s: %s: dtype %s: expected F32 or F64", weights->path,
                          weights->name, trace_dtype_name(weights->dtype));
    bool same = weights->axes == ids->axes;
    for (uint32_t i = 0; same && i < ids->axes; i++) same = weights->shape[i] == ids->shape[i];
    if (same) return 0;
    return trace_fail(err, err_len,
                      "%s: %s: %u axes of %" PRIu64 " elements: expected the shape of the ids, "
                      "[%" PRIu64 "][%" PRIu64 "][%" PRIu64 "]",
                      weights->path, weights->name, weights->axes, weights->count, ids->shape[0],
                      ids->shape[1], ids->shape[2]);
}

static int read_offsets(struct state *state, struct trace_routing *routing, char *err,
                        size_t err_len)
{
    const struct array *offsets = &state->offsets;
    const bool given = offsets->path != NULL;
    if (given && !trace_dtype_is_integer(offsets->dtype))
        return trace_fail(err, err_len, "%s: %s: dtype %s: expected an integer type", offsets->path,
                          offsets->name, trace_dtype_name(offsets->dtype));
    if (given && (offsets->axes != 1 || offsets->count < 2))
        return trace_fail(err, err_len,
                          "%s: %s: %u axes, %" PRIu64 " elements: expected [requests + 1]",
                          offsets->path, offsets->name, offsets->axes, offsets->count);
    const uint64_t count = given ? offsets->count : 2;
    state->starts = (int64_t *)calloc((size_t)count, sizeof *state->starts);
    if (state->starts == NULL)
        return trace_fail(err, err_len, "%s: out of memory", state->ids.path);
    if (!given) state->starts[1] = (int64_t)routing->tokens;
    for (uint64_t i = 0; given && i < count; i++) {
        const int64_t value = trace_integer_at(offsets->dtype, offsets->data, i);
        const int64_t before = i == 0 ? -1 : state->starts[i - 1];
        if (i == 0 && value != 0)
            return trace_fail(err, err_len, "%s: %s[0]: %" PRId64 ": expected 0", offsets->path,
                              offsets->name, value);
        if (value <= before)
            return trace_fail(err, err_len,
                              "%s: %s[%" PRIu64 "]: %" PRId64 ": expected above the %" PRId64
                              " before it (a request has at least one token)",
                              offsets->path, offsets->name, i, value, before);
        state->starts[i] = value;
    }
    if ((uint64_t)state->starts[count - 1] != routing->tokens)
        return trace_fail(
            err, err_len,
            "%s: %s[%" PRIu64 "]: %" PRId64 ": expected the number of tokens, %" PRIu64,
            offsets->path, offsets->name, count - 1, state->starts[count - 1], routing->tokens);
    assert(state->starts[0] == 0);
    routing->requests = count - 1;
    routing->offsets = state->starts;
    return 0;
}

/* count ids from element start. The switch stands outside the loops: a pass over a trace of
 * hundreds of millions of ids is made at every open. */
static void load_ids(const struct array *ids, uint64_t start, uint32_t count, int64_t *out)
{
#define LOAD(type)                                                                                 \
    do {                                                                                           \
        const type *from = (const type *)ids->data + start;                                        \
        for (uint32_t i = 0; i < count; i++) out[i] = (int64_t)from[i];                            \
    } while (0)
    assert(start + count <= ids->count);
    if (ids->dtype == TRACE_U8)
        LOAD(uint8_t);
    else if (ids->dtype == TRACE_I8)
        LOAD(int8_t);
    else if (ids->dtype == TRACE_U16)
        LOAD(uint16_t);
    else if (ids->dtype == TRACE_I16)
        LOAD(int16_t);
    else if (ids->dtype == TRACE_I32)
        LOAD(int32_t);
    else if (ids->dtype == TRACE_I64)
        LOAD(int64_t);
    else
        for (uint32_t i = 0; i < count; i++)
            out[i] = trace_integer_at(ids->dtype, ids->data, start + i);
#undef LOAD
}

/* The column of the second of two equal ids, or K. -1 may stand as often as it likes. */
static uint32_t find_duplicate(const int64_t *ids, uint32_t topk)
{
    assert(topk <= TRACE_TOPK_MAX);
    for (uint32_t i = 1; i < topk; i++)
        for (uint32_t j = 0; j < i; j++)
            if (ids[i] == ids[j] && ids[i] >= 0) return i;
    return topk;
}

/* Every row: ids in range, no expert twice. */
static int check_ids(const struct array *ids, const struct trace_routing_source *source,
                     struct trace_routing *routing, char *err, size_t err_len)
{
    const uint64_t rows = routing->tokens * routing->layers;
    assert(rows * routing->topk == ids->count); /* 63 bits: the product has been checked. */
    const int64_t limit = source->experts == 0 || source->experts > (uint64_t)INT64_MAX
                              ? INT64_MAX
                              : (int64_t)source->experts;
    int64_t row[TRACE_TOPK_MAX];
    routing->id_max = -1;
    for (uint64_t i = 0; i < rows; i++) {
        const uint64_t token = i / routing->layers, layer = i % routing->layers;
        load_ids(ids, i * routing->topk, routing->topk, row);
        for (uint32_t column = 0; column < routing->topk; column++) {
            const int64_t id = row[column];
            if (id < -1 || id >= limit)
                return trace_fail(err, err_len,
                                  "%s: token %" PRIu64 ", layer %" PRIu64
                                  ", column %u: expert %" PRId64 ": expected -1 to %" PRId64,
                                  ids->path, token, layer, column, id, limit - 1);
            if (id > routing->id_max) routing->id_max = id;
        }
        const uint32_t twice = find_duplicate(row, routing->topk);
        if (twice == routing->topk) continue;
        routing->duplicate_rows++;
        if (!source->allow_duplicates)
            return trace_fail(err, err_len,
                              "%s: token %" PRIu64 ", layer %" PRIu64 ", column %u: expert %" PRId64
                              " stands twice in the row: expected "
                              "different experts",
                              ids->path, token, layer, twice, row[twice]);
    }
    return 0;
}

int trace_routing_open(const struct trace_routing_source *source, struct trace_routing *routing,
                       char *err, size_t err_len)
{
    assert(source != NULL && source->ids_path != NULL && routing != NULL);
    struct trace_routing made;
    memset(&made, 0, sizeof made);
    made.id_space = "logical";
    made.model = "";
    struct state *state = (struct state *)calloc(1, sizeof *state);
    if (state == NULL) return trace_fail(err, err_len, "%s: out of memory", source->ids_path);
    made.private_state = state;

    if (open_files(source, state, &made, err, err_len) != 0) goto close_files;
    if (check_ids_shape(&state->ids, &made, err, err_len) != 0) goto close_files;
    if (check_weights(&state->ids, &state->weights, err, err_len) != 0) goto close_files;
    if (read_offsets(state, &made, err, err_len) != 0) goto close_files;
    if (check_ids(&state->ids, source, &made, err, err_len) != 0) goto close_files;
    made.has_weights = state->weights.path != NULL;
    *routing = made;
    return 0;

close_files:
    close_state(state);
    return -1;
}

void trace_routing_close(struct trace_routing *routing)
{
    assert(routing != NULL);
    if (routing->private_state != NULL) close_state((struct state *)routing->private_state);
    memset(routing, 0, sizeof *routing);
}

static uint64_t row_start(const struct trace_routing *routing, uint64_t token, uint32_t layer)
{
    assert(token < routing->tokens);
    assert(layer < routing->layers);
    assert(routing->private_state != NULL);
    return (token * routing->layers + layer) * routing->topk;
}

void trace_routing_ids(const struct trace_routing *routing, uint64_t token, uint32_t layer,
                       int64_t *ids)
{
    const struct state *state = (const struct state *)routing->private_state;
    load_ids(&state->ids, row_start(routing, token, layer), routing->topk, ids);
}

void trace_routing_weights(const struct trace_routing *routing, uint64_t token, uint32_t layer,
                           float *weights)
{
    assert(routing->has_weights);
    const struct state *state = (const struct state *)routing->private_state;
    const uint64_t start = row_start(routing, token, layer);
    assert(start + routing->topk <= state->weights.count);
    if (state->weights.dtype == TRACE_F32) {
        memcpy(weights, (const float *)state->weights.data + start,
               routing->topk * sizeof *weights);
        return;
    }
    const double *from = (const double *)state->weights.data + start;
    for (uint32_t i = 0; i < routing->topk; i++) weights[i] = (float)from[i];
}

int trace_routing_digest_file(const char *path, uint64_t *digest, char *err, size_t err_len)
{
    assert(digest != NULL);
    struct trace_file file;
    if (trace_file_open(path, &file, err, err_len) != 0) return -1;
    *digest = trace_digest(0, file.data, (size_t)file.bytes);
    trace_file_close(&file);
    return 0;
}
