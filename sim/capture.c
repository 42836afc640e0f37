/* sim/capture.c - the tensors of one case, in memory and on disk, and its settings. */
#include "sim/capture.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ref/quantise.h"

enum { CASE_TEXT_MAX = 1 << 16, EXPERTS_MAX = 4096, SMS_MAX = 512, SMS_DEFAULT = 20 };

static const struct sim_ll_tag ll_tags[SIM_LL_TAGS] = {
    {"bf16", REF_RECIPE_BF16, 2, 0},
    {"fp8", REF_RECIPE_LL, 1, 128},
    {"fp8r", REF_RECIPE_LL_ROUND, 1, 128},
    {"ue8m0", REF_RECIPE_LL_UE8M0, 1, 512},
};

const struct sim_ll_tag *sim_ll_tag(uint32_t index)
{
    assert(index < SIM_LL_TAGS);
    return &ll_tags[index];
}

const struct sim_tensor *sim_capture_find(const struct sim_capture *capture, uint32_t rank,
                                          const char *name)
{
    assert(rank < capture->ranks);
    for (size_t i = 0; i < capture->rank[rank].count; i++)
        if (strcmp(capture->rank[rank].tensors[i].name, name) == 0)
            return &capture->rank[rank].tensors[i];
    return NULL;
}

static struct sim_tensor *new_tensor(struct sim_capture_rank *rank)
{
    if (rank->count == rank->capacity) {
        const size_t capacity = rank->capacity == 0 ? 64 : 2 * rank->capacity;
        struct sim_tensor *grown =
            (struct sim_tensor *)realloc(rank->tensors, capacity * sizeof(*grown));

        if (grown == NULL) return NULL;
        rank->tensors = grown;
        rank->capacity = capacity;
    }
    memset(&rank->tensors[rank->count], 0, sizeof(*rank->tensors));
    return &rank->tensors[rank->count++];
}

void *sim_capture_add(struct sim_capture *capture, uint32_t rank, const char *name,
                      enum trace_dtype dtype, uint32_t axes, const uint64_t *shape, char *err,
                      size_t err_len)
{
    uint64_t count = 0, bytes = 0;

    assert(axes <= SIM_TENSOR_AXES_MAX && strlen(name) < SIM_TENSOR_NAME_MAX);
    assert(sim_capture_find(capture, rank, name) == NULL);
    void *data = NULL;
    if (trace_shape_size(shape, axes, dtype, &count, &bytes)) data = calloc(1, bytes + 1);
    struct sim_tensor *tensor = data != NULL ? new_tensor(&capture->rank[rank]) : NULL;
    if (tensor == NULL) {
        free(data);
        snprintf(err, err_len, "%.64s: %s of rank %" PRIu32 ": not enough memory", capture->name,
                 name, rank);
        return NULL;
    }
    memcpy(tensor->name, name, strlen(name));
    tensor->dtype = dtype;
    tensor->axes = axes;
    for (uint32_t a = 0; a < axes; a++) tensor->shape[a] = shape[a];
    tensor->bytes = bytes;
    tensor->data = (const uint8_t *)data;
    tensor->owned = data;
    return data;
}

int sim_capture_add_rows(struct sim_capture *capture, uint32_t rank, const char *name,
                         enum trace_dtype dtype, const void *flat, uint64_t first, uint64_t end,
                         uint64_t columns, char *err, size_t err_len)
{
    const uint64_t shape[2] = {end - first, columns};
    const uint64_t row_bytes = (columns > 0 ? columns : 1) * trace_dtype_bytes(dtype);

    assert(first <= end && (flat != NULL || first == end));
    void *data =
        sim_capture_add(capture, rank, name, dtype, columns > 0 ? 2 : 1, shape, err, err_len);
    if (data == NULL) return -1;
    memcpy(data, (const uint8_t *)flat + first * row_bytes, (end - first) * row_bytes);
    return 0;
}

int sim_capture_open(const char *name, const struct sim_case *settings, struct sim_capture *capture,
                     char *err, size_t err_len)
{
    assert(settings->ranks >= 1 && strlen(name) < sizeof(capture->name));
    memset(capture, 0, sizeof(*capture));
    memcpy(capture->name, name, strlen(name));
    capture->settings = *settings;
    capture->rank = (struct sim_capture_rank *)calloc(settings->ranks, sizeof(*capture->rank));
    if (capture->rank == NULL) {
        snprintf(err, err_len, "%.64s: not enough memory", name);
        return -1;
    }
    capture->ranks = settings->ranks;
    return 0;
}

void sim_capture_close(struct sim_capture *capture)
{
    for (uint32_t r = 0; r < capture->ranks; r++) {
        struct sim_capture_rank *rank = &capture->rank[r];

        for (size_t i = 0; i < rank->count; i++) free(rank->tensors[i].owned);
        free(rank->tensors);
        trace_tensors_close(&rank->file);
    }
    free(capture->rank);
    memset(capture, 0, sizeof(*capture));
}

/* A whole number of the case, min..max. fallback below 0: the key must be there. */
static int read_number(const json_t *json, const char *path, const char *key, int64_t min,
                       int64_t max, int64_t fallback, int64_t *out, char *err, size_t err_len)
{
    const json_t *value = json_object_get(json, key);

    if (value == NULL && fallback >= 0) {
        *out = fallback;
        return 0;
    }
    if (value == NULL) {
        snprintf(err, err_len, "%.600s: __metadata__.case: %s is missing", path, key);
        return -1;
    }
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

        snprintf(err, err_len,
                 "%.600s: __metadata__.case: %s: %.40s: must be a whole number from %" PRId64
                 " to %" PRId64,
                 path, key, text != NULL ? text : "?", min, max);
        free(text);
        return -1;
    }
    *out = json_integer_value(value);
    return 0;
}

/* One of two words. 0 or 1 in *out; a missing key is fallback, or an error when that is below 0. */
static int read_word(const json_t *json, const char *path, const char *key,
                     const char *const *words, int fallback, int *out, char *err, size_t err_len)
{
    const json_t *value = json_object_get(json, key);
    const char *text = json_string_value(value);

    *out = fallback;
    if (value == NULL && fallback >= 0) return 0;
    for (int i = 0; text != NULL && i < 2; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *out = i;
        return 0;
    }
    snprintf(err, err_len, "%.600s: __metadata__.case: %s %s: must be %s or %s", path, key,
             value == NULL ? "is missing" : "is something else", words[0], words[1]);
    return -1;
}

static int read_settings(const json_t *json, const char *path, struct sim_case *out, char *err,
                         size_t err_len)
{
    static const char *const modes[] = {"ll", "normal"}, *const experts[] = {"standin", "identity"};
    int mode = 0, expert = 0;
    int64_t ranks = 0, expert_count = 0, max = 0, sms = 0, align = 0;

    if (read_word(json, path, "mode", modes, -1, &mode, err, err_len) != 0 ||
        read_number(json, path, "ranks", 1, SIM_RANKS_MAX, -1, &ranks, err, err_len) != 0 ||
        read_number(json, path, "experts", 1, EXPERTS_MAX, -1, &expert_count, err, err_len) != 0 ||
        (mode == 0 && read_number(json, path, "max", 1, INT32_MAX, -1, &max, err, err_len) != 0) ||
        read_number(json, path, "sms", 2, SMS_MAX, SMS_DEFAULT, &sms, err, err_len) != 0 ||
        read_number(json, path, "align", 1, INT32_MAX / 2, 1, &align, err, err_len) != 0 ||
        read_word(json, path, "expert", experts, 0, &expert, err, err_len) != 0)
        return -1;
    if (expert_count % ranks != 0) {
        snprintf(err, err_len,
                 "%.600s: __metadata__.case: %" PRId64 " experts on %" PRId64
                 " ranks: must be a multiple",
                 path, expert_count, ranks);
        return -1;
    }
    if (sms % 2 != 0) {
        snprintf(err, err_len, "%.600s: __metadata__.case: sms: %" PRId64 ": must be even", path,
                 sms);
        return -1;
    }
    memset(out, 0, sizeof(*out));
    out->mode = mode == 0 ? SIM_MODE_LL : SIM_MODE_NORMAL;
    out->ranks = (uint32_t)ranks;
    out->experts = (uint32_t)expert_count;
    out->max = (uint64_t)max;
    out->sms = (uint32_t)sms;
    out->align = (uint32_t)align;
    out->expert = expert == 0 ? SIM_EXPERT_STANDIN : SIM_EXPERT_IDENTITY;
    out->logfmt = json_is_true(json_object_get(json, "logfmt"));
    return 0;
}

/* The case of one file as JSON; NULL with err. The caller decrefs. */
static json_t *case_json(const struct trace_tensors *file, const char *path, char *err,
                         size_t err_len)
{
    const char *text = trace_tensors_metadata(file, "case");
    json_error_t error;

    if (text == NULL) {
        snprintf(err, err_len, "%.600s: __metadata__.case is missing", path);
        return NULL;
    }
    json_t *json =
        strlen(text) <= CASE_TEXT_MAX ? json_loads(text, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (json_is_object(json)) return json;
    json_decref(json);
    snprintf(err, err_len, "%.600s: __metadata__.case: must be a JSON object of at most %d bytes",
             path, CASE_TEXT_MAX);
    return NULL;
}

/* File tensors as ours; a name or a shape too long for any key of the format is left out. */
static int list_tensors(struct sim_capture_rank *rank, char *err, size_t err_len)
{
    for (size_t i = 0; i < rank->file.count; i++) {
        const struct trace_tensor *from = &rank->file.tensors[i];

        if (strlen(from->name) >= SIM_TENSOR_NAME_MAX || from->axes > SIM_TENSOR_AXES_MAX) continue;
        struct sim_tensor *to = new_tensor(rank);
        if (to == NULL) {
            snprintf(err, err_len, "%.600s: not enough memory", rank->path);
            return -1;
        }
        memcpy(to->name, from->name, strlen(from->name));
        to->dtype = from->dtype;
        to->axes = from->axes;
        for (uint32_t a = 0; a < from->axes; a++) to->shape[a] = from->shape[a];
        to->bytes = from->bytes;
        to->data = (const uint8_t *)from->data;
    }
    return 0;
}

static int rank_path(const struct sim_case_place *place, uint32_t rank, char path[SIM_PATH_MAX],
                     char *err, size_t err_len)
{
    const int length = snprintf(path, SIM_PATH_MAX, "%s/%s.rank%" PRIu32 ".safetensors",
                                place->folder, place->name, rank);

    if (length < SIM_PATH_MAX) return 0;
    snprintf(err, err_len, "%.64s: the path is longer than %d characters", place->name,
             SIM_PATH_MAX - 1);
    return -1;
}

/* Open one rank and compare its settings with those of the ranks before (first: none yet). */
static int load_rank(struct sim_capture *capture, const struct sim_case_place *place, uint32_t r,
                     json_t **first, char *err, size_t err_len)
{
    struct sim_capture_rank *rank = &capture->rank[r];
    char why[512] = "";

    if (rank_path(place, r, rank->path, err, err_len) != 0) return -1;
    if (access(rank->path, F_OK) != 0) {
        snprintf(err, err_len, "%.600s: missing: case %.64s has ranks from 0 to %" PRIu32,
                 rank->path, place->name, r > 0 ? capture->ranks - 1 : 0);
        return -1;
    }
    if (trace_tensors_open(rank->path, &rank->file, why, sizeof(why)) != 0) {
        snprintf(err, err_len, "%s", why);
        return -1;
    }
    json_t *json = case_json(&rank->file, rank->path, err, err_len);
    if (json == NULL) return -1;
    if (*first == NULL) {
        *first = json;
    } else {
        const bool same = json_equal(*first, json) != 0;

        json_decref(json);
        if (!same) {
            snprintf(err, err_len, "%.600s: __metadata__.case differs from that of rank 0",
                     rank->path);
            return -1;
        }
    }
    return list_tensors(rank, err, err_len);
}

int sim_capture_load(const struct sim_case_place *place, struct sim_capture *capture, char *err,
                     size_t err_len)
{
    struct sim_case settings = {.ranks = 1};
    struct sim_capture loaded;
    json_t *json = NULL;
    char path[SIM_PATH_MAX];
    int status = -1;

    if (sim_capture_open(place->label, &settings, &loaded, err, err_len) != 0) return -1;
    if (load_rank(&loaded, place, 0, &json, err, err_len) != 0 ||
        read_settings(json, loaded.rank[0].path, &loaded.settings, err, err_len) != 0)
        goto close_loaded;

    struct sim_capture_rank *grown = (struct sim_capture_rank *)realloc(
        loaded.rank, loaded.settings.ranks * sizeof(*loaded.rank));
    if (grown == NULL) {
        snprintf(err, err_len, "%.64s: not enough memory", place->name);
        goto close_loaded;
    }
    loaded.rank = grown;
    memset(&loaded.rank[1], 0, (loaded.settings.ranks - 1) * sizeof(*loaded.rank));
    loaded.ranks = loaded.settings.ranks;
    for (uint32_t r = 1; r < loaded.ranks; r++)
        if (load_rank(&loaded, place, r, &json, err, err_len) != 0) goto close_loaded;
    if (rank_path(place, loaded.ranks, path, err, err_len) != 0) goto close_loaded;
    if (access(path, F_OK) == 0) {
        snprintf(err, err_len, "%.600s: one too many: case %.64s has %" PRIu32 " ranks", path,
                 place->name, loaded.ranks);
        goto close_loaded;
    }
    *capture = loaded;
    memset(&loaded, 0, sizeof(loaded));
    status = 0;

close_loaded:
    json_decref(json);
    sim_capture_close(&loaded);
    return status;
}

int sim_capture_write(const struct sim_capture *capture, uint32_t rank,
                      const struct sim_capture *metadata_from, const char *path, char *err,
                      size_t err_len)
{
    const struct sim_capture_rank *from = &capture->rank[rank];
    const struct trace_tensors *source = &metadata_from->rank[rank].file;
    struct trace_tensor *tensors = (struct trace_tensor *)calloc(from->count + 1, sizeof(*tensors));

    assert(rank < capture->ranks && rank < metadata_from->ranks);
    if (tensors == NULL) {
        snprintf(err, err_len, "%.600s: not enough memory", path);
        return -1;
    }
    for (size_t i = 0; i < from->count; i++) {
        tensors[i].name = from->tensors[i].name;
        tensors[i].dtype = from->tensors[i].dtype;
        tensors[i].axes = from->tensors[i].axes;
        for (uint32_t a = 0; a < from->tensors[i].axes; a++)
            tensors[i].shape[a] = from->tensors[i].shape[a];
        tensors[i].data = from->tensors[i].data;
    }
    const int status = trace_tensors_write(path, tensors, from->count, source->pairs,
                                           source->pair_count, err, err_len);
    free(tensors);
    return status;
}
