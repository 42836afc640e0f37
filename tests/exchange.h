/* tests/exchange.h - small exchanges for the suites of ref/: by hand, at random, from captures.
 *
 * Memory is never freed: a test runs in its own process. Random ones come from one seed, which
 * every failing assertion names (exchange.seed). */
#ifndef TESTS_EXCHANGE_H
#define TESTS_EXCHANGE_H

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/routing.h"
#include "tests/support.h"
#include "traces/safetensors.h"

/* Blocks hang on one list, so that a leak checker finds them in use. */
struct test_block {
    struct test_block *next;
    uint64_t padding; /* The payload behind it keeps malloc's alignment. */
};

static inline void *test_alloc(uint64_t count, uint64_t bytes)
{
    static struct test_block *blocks;
    /* One element more than asked: nothing is ever NULL or empty. */
    void *memory = calloc(1, sizeof(struct test_block) + (count + 1) * bytes);
    ck_assert_ptr_nonnull(memory);
    struct test_block *block = (struct test_block *)memory;
    block->next = blocks;
    blocks = block;
    return block + 1;
}

#define TEST_ARRAY(type, count) ((type *)test_alloc((count), sizeof(type)))

/* splitmix64: the next number of a stream named by its state. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline uint32_t test_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(test_random(state) % limit);
}

struct exchange {
    struct ref_routing routing;
    uint64_t seed;
    uint64_t tokens;
    uint32_t hidden;
    uint32_t ranks_per_node;
    uint16_t *x;
};

/* Routing over caller's ids and weights; counts[ranks] tokens per rank. */
static inline struct exchange exchange_of(uint32_t ranks, uint32_t experts, uint32_t topk,
                                          const uint64_t *counts, const int64_t *ids,
                                          const float *weights)
{
    uint64_t *start = TEST_ARRAY(uint64_t, ranks + 1);
    for (uint32_t r = 0; r < ranks; r++) start[r + 1] = start[r] + counts[r];
    return (struct exchange){.routing = {ranks, experts, topk, start, ids, weights},
                             .tokens = start[ranks],
                             .ranks_per_node = ranks};
}

/* A bf16 of magnitude 2^-8 .. 2^8, one in three +-2^24 (whose sum with a small one depends on
 * when it is added, and shows once the other sign has cancelled it), now and then a zero. */
static inline uint16_t exchange_value(uint64_t *state)
{
    const uint32_t sign = test_below(state, 2) << 15;
    if (test_below(state, 32) == 0) return (uint16_t)sign;
    if (test_below(state, 3) == 0) return (uint16_t)(sign | 0x4B80);
    return (uint16_t)(sign | (119 + test_below(state, 17)) << 7 | test_below(state, 128));
}

/* Token counts from 0 to tokens_max, one column in six -1, some duplicates, random weights
 * (NaN beside -1), random x. */
static inline struct exchange exchange_random(uint64_t seed, uint32_t ranks, uint32_t experts,
                                              uint32_t topk, uint32_t tokens_max, uint32_t hidden)
{
    uint64_t state = seed;
    uint64_t *counts = TEST_ARRAY(uint64_t, ranks);
    for (uint32_t r = 0; r < ranks; r++)
        counts[r] = test_below(&state, 4) == 0 ? 0 : test_below(&state, tokens_max + 1);
    struct exchange made = exchange_of(ranks, experts, topk, counts, NULL, NULL);
    const uint64_t selections = made.tokens * topk;
    int64_t *ids = TEST_ARRAY(int64_t, selections);
    float *weights = TEST_ARRAY(float, selections);
    for (uint64_t i = 0; i < selections; i++) {
        ids[i] = test_below(&state, experts);
        if (i % topk > 0 && test_below(&state, 12) == 0) ids[i] = ids[i - 1];
        weights[i] = (float)(1 + test_below(&state, 1000)) / 1024.0f;
        if (test_below(&state, 6) != 0) continue;
        ids[i] = -1;
        const uint32_t nan = 0x7FC00000u;
        memcpy(&weights[i], &nan, sizeof nan);
    }
    made.routing.topk_idx = ids;
    made.routing.topk_weights = weights;
    made.seed = seed;
    made.hidden = hidden;
    made.x = TEST_ARRAY(uint16_t, made.tokens * hidden);
    for (uint64_t i = 0; i < made.tokens * hidden; i++) made.x[i] = exchange_value(&state);
    return made;
}

/* One case of the captures: a file per rank. */
enum { CAPTURE_RANKS_MAX = 8 };
struct capture {
    const char *name;
    uint32_t ranks;
    const char *settings;        /* The JSON text of __metadata__.case. */
    struct trace_tensors *files; /* [ranks] */
};

/* A whole number of the settings, e.g. "sms"; missing = 0. */
static inline uint32_t capture_setting(const struct capture *capture, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(capture->settings, quoted);
    return at == NULL ? 0 : (uint32_t)strtoul(at + strlen(quoted), NULL, 10);
}

/* False when neither EPSIM_DATA nor tests/golden has the case. */
static inline bool capture_open(const char *name, struct capture *capture)
{
    *capture = (struct capture){.name = name, .ranks = 1};
    capture->files = TEST_ARRAY(struct trace_tensors, CAPTURE_RANKS_MAX);
    for (uint32_t r = 0; r < capture->ranks; r++) {
        char file[128], err[256] = "";
        snprintf(file, sizeof file, "golden/%s.rank%" PRIu32 ".safetensors", name, r);
        const char *path = test_data_path(file);
        if (path == NULL) path = test_tree_path(test_join("tests", file));
        if (!test_exists(path)) return false;
        ck_assert_msg(trace_tensors_open(path, &capture->files[r], err, sizeof err) == 0, "%s",
                      err);
        capture->settings = trace_tensors_metadata(&capture->files[0], "case");
        ck_assert_ptr_nonnull(capture->settings);
        capture->ranks = capture_setting(capture, "ranks");
        ck_assert(capture->ranks >= 1 && capture->ranks <= CAPTURE_RANKS_MAX);
    }
    return true;
}

static inline const struct trace_tensor *capture_tensor(const struct capture *capture,
                                                        uint32_t rank, const char *key)
{
    const struct trace_tensor *tensor = trace_tensors_find(&capture->files[rank], key);
    ck_assert_msg(tensor != NULL, "%s rank %" PRIu32 ": no %s", capture->name, rank, key);
    return tensor;
}

/* The tensors of all ranks, one after the other. */
static inline void *capture_join(const struct capture *capture, const char *key)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < capture->ranks; r++) bytes += capture_tensor(capture, r, key)->bytes;
    uint8_t *joined = TEST_ARRAY(uint8_t, bytes);
    bytes = 0;
    for (uint32_t r = 0; r < capture->ranks; r++) {
        const struct trace_tensor *tensor = capture_tensor(capture, r, key);
        memcpy(joined + bytes, tensor->data, tensor->bytes);
        bytes += tensor->bytes;
    }
    return joined;
}

/* Fails unless rank's tensor is exactly these bytes. */
static inline void capture_equals(const struct capture *capture, uint32_t rank, const char *key,
                                  const void *ours, uint64_t bytes)
{
    const struct trace_tensor *tensor = capture_tensor(capture, rank, key);
    ck_assert_msg(tensor->bytes == bytes,
                  "%s rank %" PRIu32 " %s: %" PRIu64 " bytes, ours %" PRIu64, capture->name, rank,
                  key, tensor->bytes, bytes);
    const uint8_t *theirs = (const uint8_t *)tensor->data;
    const uint8_t *mine = (const uint8_t *)ours;
    if (memcmp(theirs, mine, bytes) == 0) return; /* An assertion a byte would take seconds. */
    uint64_t i = 0;
    while (theirs[i] == mine[i]) i++;
    ck_abort_msg("%s rank %" PRIu32 " %s: byte %" PRIu64 " is %02x, ours %02x", capture->name, rank,
                 key, i, theirs[i], mine[i]);
}

/* The routing and x of a capture. */
static inline struct exchange capture_exchange(const struct capture *capture)
{
    uint64_t counts[CAPTURE_RANKS_MAX];
    const struct trace_tensor *ids = capture_tensor(capture, 0, "topk_idx");
    for (uint32_t r = 0; r < capture->ranks; r++)
        counts[r] = capture_tensor(capture, r, "topk_idx")->shape[0];
    struct exchange made =
        exchange_of(capture->ranks, capture_setting(capture, "experts"), (uint32_t)ids->shape[1],
                    counts, (const int64_t *)capture_join(capture, "topk_idx"),
                    (const float *)capture_join(capture, "topk_weights"));
    made.hidden = (uint32_t)capture_tensor(capture, 0, "x")->shape[1];
    made.x = (uint16_t *)capture_join(capture, "x");
    return made;
}

/* The next bf16 to a finite float, ties to even, from the definition: scale until one unit is
 * the last bit, round as integers are rounded, scale back. Slow, and not how ref/ does it. */
static inline uint16_t slow_bf16(float value)
{
    uint32_t bits;
    double magnitude = value < 0 ? -(double)value : (double)value, unit = 0x1p-133;
    memcpy(&bits, &value, sizeof bits);
    while (magnitude / unit >= 256) unit *= 2;
    const double quotient = magnitude / unit;
    uint32_t whole = (uint32_t)quotient;
    const double rest = quotient - whole;
    if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) whole++;
    const float rounded = (float)(whole * unit);
    uint32_t rounded_bits;
    memcpy(&rounded_bits, &rounded, sizeof rounded_bits);
    return (uint16_t)((rounded_bits | (bits & 0x80000000u)) >> 16);
}

static inline float slow_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#endif
