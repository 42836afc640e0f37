/* sim/eplb_weights.c - reads layers x experts numbers, JSON or .npy, from a file or a pipe. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/eplb.h"
#include "traces/npy.h"
#include "traces/text.h"

enum { INPUT_BYTES_MAX = 1 << 28 };

static const char NPY_MAGIC[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

void sim_eplb_weights_close(struct sim_eplb_weights *weights)
{
    free(weights->values);
    memset(weights, 0, sizeof *weights);
}

static int open_values(const char *name, uint64_t layers, uint64_t experts,
                       struct sim_eplb_weights *weights, char *err, size_t err_len)
{
    assert(weights->values == NULL);
    if (layers == 0 || layers > SIM_EPLB_LAYERS_MAX || experts == 0 ||
        experts > SIM_EPLB_EXPERTS_MAX)
        return trace_fail(err, err_len,
                          "%s: %" PRIu64 " layers of %" PRIu64
                          " experts: must be 1 to %d layers of 1 to %d experts",
                          name, layers, experts, SIM_EPLB_LAYERS_MAX, SIM_EPLB_EXPERTS_MAX);
    weights->layers = (uint32_t)layers;
    weights->experts = (uint32_t)experts;
    weights->values = (float *)malloc(layers * experts * sizeof *weights->values);
    if (weights->values != NULL) return 0;
    trace_fail(err, err_len, "%s: out of memory", name);
    return -2;
}

static int refuse_value(const char *name, uint64_t layer, uint64_t expert, char *err,
                        size_t err_len)
{
    return trace_fail(err, err_len,
                      "%s: layer %" PRIu64 ", expert %" PRIu64
                      ": must be a number from 0 to what a float holds",
                      name, layer, expert);
}

static bool is_weight(float value)
{
    return isfinite(value) && value >= 0;
}

static int parse_npy(const char *name, const void *bytes, size_t byte_count,
                     struct sim_eplb_weights *weights, char *err, size_t err_len)
{
    struct trace_npy npy;
    int status = -1;

    if (trace_npy_parse(name, bytes, byte_count, &npy, err, err_len) != 0) return -1;
    const bool number =
        trace_dtype_is_integer(npy.dtype) || npy.dtype == TRACE_F32 || npy.dtype == TRACE_F64;
    if (npy.axes != 2 || !number) {
        trace_fail(err, err_len,
                   "%s: %" PRIu32 " axes of %s: must be 2, layers x experts, of integers, F32 "
                   "or F64",
                   name, npy.axes, trace_dtype_name(npy.dtype));
        goto close_npy;
    }
    status = open_values(name, npy.shape[0], npy.shape[1], weights, err, err_len);
    assert(status != 0 || npy.count == (uint64_t)weights->layers * weights->experts);
    for (uint64_t i = 0; status == 0 && i < npy.count; i++) {
        weights->values[i] = trace_float_at(npy.dtype, npy.data, i);
        if (!is_weight(weights->values[i]))
            status = refuse_value(name, i / weights->experts, i % weights->experts, err, err_len);
    }
close_npy:
    trace_npy_close(&npy);
    return status;
}

static int parse_json(const char *name, const char *bytes, size_t byte_count,
                      struct sim_eplb_weights *weights, char *err, size_t err_len)
{
    json_error_t error;
    json_t *json = json_loadb(bytes, byte_count, JSON_REJECT_DUPLICATES, &error);
    const json_t *first = json_array_get(json, 0);
    int status = -1;

    if (json == NULL)
        return trace_fail(err, err_len, "%s:%d: %.120s: must be a JSON list or a .npy file", name,
                          error.line, error.text);
    if (!json_is_array(first)) {
        trace_fail(err, err_len,
                   "%s: must be a list of layers, each a list of its experts' weights", name);
        goto free_json;
    }
    status =
        open_values(name, json_array_size(json), json_array_size(first), weights, err, err_len);
    for (size_t l = 0; status == 0 && l < weights->layers; l++) {
        const json_t *layer = json_array_get(json, l);
        if (!json_is_array(layer) || json_array_size(layer) != weights->experts)
            status = trace_fail(
                err, err_len, "%s: layer %zu: must be a list of %" PRIu32 " weights, as layer 0 is",
                name, l, weights->experts);
        for (size_t e = 0; status == 0 && e < weights->experts; e++) {
            const json_t *value = json_array_get(layer, e);
            float *weight = &weights->values[l * weights->experts + e];
            /* An integer goes to float in one step: through a double it could round twice. */
            *weight = json_is_integer(value) ? (float)json_integer_value(value)
                                             : (float)json_real_value(value);
            if (!json_is_number(value) || !is_weight(*weight))
                status = refuse_value(name, l, e, err, err_len);
        }
    }
free_json:
    json_decref(json);
    return status;
}

/* All of standard input; the caller frees. */
static char *read_all(size_t *bytes, char *err, size_t err_len)
{
    size_t room = 1 << 16, used = 0;
    char *data = (char *)malloc(room);

    while (data != NULL) {
        used += fread(data + used, 1, room - used, stdin);
        assert(used <= room);
        if (used < room) break;
        room *= 2;
        char *grown = room <= INPUT_BYTES_MAX ? (char *)realloc(data, room) : NULL;
        if (grown == NULL) {
            free(data);
            data = NULL;
            errno = EFBIG;
        } else {
            data = grown;
        }
    }
    if (data != NULL && !ferror(stdin)) {
        *bytes = used;
        return data;
    }
    trace_fail(err, err_len, "standard input: cannot be read: %s", strerror(errno));
    free(data);
    return NULL;
}

int sim_eplb_weights_open(const char *path, struct sim_eplb_weights *weights, char *err,
                          size_t err_len)
{
    struct sim_eplb_weights made = {0, 0, NULL};
    struct trace_file file = {NULL, NULL, 0};
    const bool piped = strcmp(path, "-") == 0;
    const char *name = piped ? "standard input" : path;
    char *owned = NULL;
    int status = -1;
    size_t bytes = 0;

    if (piped) {
        owned = read_all(&bytes, err, err_len);
        if (owned == NULL) return -2;
    } else {
        if (trace_file_open(path, &file, err, err_len) != 0) return -1;
        bytes = file.bytes;
    }
    const char *data = piped ? owned : (const char *)file.data;
    if (bytes >= sizeof NPY_MAGIC && memcmp(data, NPY_MAGIC, sizeof NPY_MAGIC) == 0)
        status = parse_npy(name, data, bytes, &made, err, err_len);
    else
        status = parse_json(name, data, bytes, &made, err, err_len);
    trace_file_close(&file);
    free(owned);
    if (status == 0)
        *weights = made;
    else
        sim_eplb_weights_close(&made);
    return status;
}
