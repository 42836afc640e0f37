/* tools/demo_trace.c - write the small routing trace that `make demo` replays.
 *
 * usage: demo-trace FOLDER      (writes topk_ids.npy and offsets.npy there)
 *
 * A program of its own, not a part of epsim. The shape is gpt-oss-20b's: 24 layers, 32 experts,
 * top-4. Routing is drawn, not real: in each layer some experts are more popular than others,
 * as in real traces, so that the demo has something to show. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim/rng.h"
#include "traces/npy.h"

enum { REQUESTS = 48, LAYERS = 24, EXPERTS = 32, TOPK = 4, TOKENS_MIN = 24, TOKENS_SPAN = 64 };

/* The square of a uniform number falls on low indices more often (index 0 has weight 1/sqrt(32)
 * = 18 %); a shift by layer makes each layer's favourites different ones. */
static uint8_t draw_expert(struct sim_rng *rng, uint32_t layer)
{
    const uint64_t u = sim_rng_next(rng) >> 40; /* 24 bits */
    const uint64_t popular = (u * u * EXPERTS) >> 48;
    assert(popular < EXPERTS);
    return (uint8_t)((popular + 7 * layer) % EXPERTS);
}

/* TOPK different experts. */
static void draw_row(struct sim_rng *rng, uint32_t layer, uint8_t *row)
{
    for (uint32_t k = 0; k < TOPK; k++) {
        bool taken = true;
        while (taken) {
            row[k] = draw_expert(rng, layer);
            taken = false;
            for (uint32_t j = 0; j < k; j++) taken = taken || row[j] == row[k];
        }
    }
}

static int write_trace(const char *folder, char *err, size_t err_len)
{
    static uint8_t ids[REQUESTS * (TOKENS_MIN + TOKENS_SPAN) * LAYERS * TOPK];
    static int64_t offsets[REQUESTS + 1];
    struct sim_rng rng = {.state = 1};
    uint64_t tokens = 0;
    for (uint32_t r = 0; r < REQUESTS; r++) {
        const uint64_t length = TOKENS_MIN + sim_rng_below(&rng, TOKENS_SPAN);
        for (uint64_t t = tokens; t < tokens + length; t++)
            for (uint32_t l = 0; l < LAYERS; l++) draw_row(&rng, l, &ids[(t * LAYERS + l) * TOPK]);
        tokens += length;
        offsets[r + 1] = (int64_t)tokens;
    }
    char path[4096];
    const uint64_t ids_shape[3] = {tokens, LAYERS, TOPK}, offsets_shape[1] = {REQUESTS + 1};
    snprintf(path, sizeof(path), "%s/topk_ids.npy", folder);
    if (trace_npy_write(path, TRACE_U8, ids_shape, 3, ids, err, err_len) < 0) return -1;
    snprintf(path, sizeof(path), "%s/offsets.npy", folder);
    return trace_npy_write(path, TRACE_I64, offsets_shape, 1, offsets, err, err_len);
}

int main(int argc, char **argv)
{
    char err[512];
    if (argc != 2) {
        fprintf(stderr, "usage: demo-trace FOLDER\n");
        return 2;
    }
    if (write_trace(argv[1], err, sizeof(err)) < 0) {
        fprintf(stderr, "demo-trace: %s\n", err);
        return 3;
    }
    return 0;
}
