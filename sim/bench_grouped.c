/* sim/bench_grouped.c - times the grouped GEMMs. */
#include "sim/bench_grouped.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ref/quantise.h"
#include "sim/arena.h"
#include "sim/rng.h"

enum { EXPERTS = 256, TOPK = 8, HIDDEN = 7168, INTER = 2048, BLOCK = 128 };

enum part { ROWS, ROW_SCALES, COUNTS, CODES, SCALES, OUT, PARTS };

struct shape {
    uint32_t ranks, tokens;
    uint32_t groups, depth, outputs;
    uint64_t capacity; /* Masked, or 0. */
    uint64_t rows;     /* That there is room for. */
    uint64_t used;     /* That belong to a group. */
};

struct work {
    struct gpu *gpu;
    struct gpu_grouped grouped;
    bool exact;
};

/* About as many rows a group as uniform routing gives it, an eighth more or less. */
static void draw_counts(struct shape *shape, struct sim_rng *rng, int32_t *counts)
{
    const uint32_t mean = shape->ranks * shape->tokens * TOPK / EXPERTS;

    shape->used = 0;
    for (uint32_t g = 0; g < shape->groups; g++) {
        counts[g] = (int32_t)(mean - mean / 8 + sim_rng_below(rng, mean / 4 + 1));
        shape->used += (uint64_t)counts[g];
    }
}

/* Codes of either sign, none of them NaN; scales around 2^-7. */
static void draw_codes(struct sim_rng *rng, uint64_t *words, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word = sim_rng_next(rng);
        for (uint32_t b = 0; b < 64; b += 8)
            if ((word >> b & 0x7Fu) == 0x7Fu) word ^= UINT64_C(0x40) << b;
        words[i] = word;
    }
}

static void draw_scales(struct sim_rng *rng, float *scales, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        scales[i] = (float)(1 + sim_rng_below(rng, 255)) / 16384.0f;
}

static uint64_t widest(const struct gpu_part *parts)
{
    uint64_t most = 0;
    for (uint32_t p = 0; p < PARTS; p++) {
        const uint64_t bytes = parts[p].rank_start[1] * parts[p].row_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

static int fill(struct gpu *gpu, struct shape *shape, const struct gpu_part *parts,
                struct sim_arena *arena, char *err, size_t err_len)
{
    struct sim_rng rng = sim_rng_stream(shape->ranks, shape->tokens, shape->depth, 0, 0);

    if (sim_arena_reserve(arena, 1, widest(parts), err, err_len) != 0) return -1;
    for (uint32_t p = 0; p < OUT; p++) {
        const uint64_t size = parts[p].rank_start[1] * parts[p].row_bytes;
        void *words = arena->bytes;
        assert(size % 4 == 0);
        if (p == COUNTS)
            draw_counts(shape, &rng, (int32_t *)words);
        else if (p == ROW_SCALES || p == SCALES)
            draw_scales(&rng, (float *)words, size / sizeof(float));
        else
            draw_codes(&rng, (uint64_t *)words, size / sizeof(uint64_t));
        if (gpu_write(gpu, gpu_plan_buffer(gpu, p), words, err, err_len) != 0 ||
            gpu_wait(gpu, err, err_len) != 0)
            return -1;
    }
    return 0;
}

static int plan(struct gpu *gpu, struct shape *shape, struct gpu_grouped *grouped, char *err,
                size_t err_len)
{
    static const uint64_t one[] = {0, 1};
    const uint64_t rows[] = {0, shape->rows};
    const uint64_t matrix = (uint64_t)shape->outputs * shape->depth;
    const struct gpu_part parts[PARTS] = {
        [ROWS] = {rows, 0, shape->depth},
        [ROW_SCALES] = {rows, 0, shape->depth / BLOCK * sizeof(float)},
        [COUNTS] = {one, 0, shape->groups * sizeof(int32_t)},
        [CODES] = {one, 0, shape->groups * matrix},
        [SCALES] = {one, 0, shape->groups * matrix / (BLOCK * BLOCK) * sizeof(float)},
        [OUT] = {rows, 0, 2 * (uint64_t)shape->outputs}};

    struct sim_arena arena;
    memset(&arena, 0, sizeof arena);
    const int status = gpu_plan(gpu, 1, parts, PARTS, err, err_len) != 0
                           ? -1
                           : fill(gpu, shape, parts, &arena, err, err_len);
    sim_arena_free(&arena);
    if (status != 0) return -1;
    *grouped = (struct gpu_grouped){.depth = shape->depth,
                                    .outputs = shape->outputs,
                                    .groups = shape->groups,
                                    .recipe = REF_RECIPE_LL,
                                    .capacity = shape->capacity,
                                    .alignment = 1,
                                    .counts = gpu_plan_buffer(gpu, COUNTS),
                                    .codes = gpu_plan_buffer(gpu, CODES),
                                    .scales = gpu_plan_buffer(gpu, SCALES)};
    return 0;
}

static int multiply(void *context, char *err, size_t err_len)
{
    const struct work *work = (const struct work *)context;
    struct gpu *gpu = work->gpu;
    struct gpu_buffer *rows = gpu_plan_buffer(gpu, ROWS),
                      *scales = gpu_plan_buffer(gpu, ROW_SCALES);
    struct gpu_buffer *out = gpu_plan_buffer(gpu, OUT);
    return work->exact
               ? gpu_grouped_exact(gpu, &work->grouped, 0, 1, rows, scales, out, err, err_len)
               : gpu_grouped_fast(gpu, &work->grouped, 0, 1, rows, scales, out, err, err_len);
}

static int measure(struct gpu *gpu, struct shape *shape, bool exact, uint32_t rounds,
                   struct sim_bench_kernels *bench, char *err, size_t err_len)
{
    const uint64_t matrix = (uint64_t)shape->outputs * shape->depth;
    const uint64_t row = shape->depth + shape->depth / BLOCK * 4 + 2 * (uint64_t)shape->outputs;
    struct work work = {.gpu = gpu, .exact = exact};

    if (plan(gpu, shape, &work.grouped, err, err_len) != 0) return -1;
    struct sim_bench_kernel kernel = {.ranks = shape->ranks,
                                      .tokens = shape->tokens,
                                      .bytes = shape->used * row + shape->groups * matrix,
                                      .operations = 2 * shape->used * matrix};
    snprintf(kernel.name, sizeof kernel.name, "%s%s", shape->depth == HIDDEN ? "gate, up" : "down",
             exact ? ", exact" : "");
    snprintf(kernel.mode, sizeof kernel.mode, "%s", shape->capacity != 0 ? "masked" : "contiguous");
    return sim_bench_kernel_time(gpu, multiply, &work, &kernel, exact ? 3 : rounds, bench, err,
                                 err_len);
}

int sim_bench_grouped(struct gpu *gpu, uint32_t ranks, uint32_t tokens, uint32_t rounds,
                      struct sim_bench_kernels *bench, char *err, size_t err_len)
{
    struct shape shape = {.ranks = ranks, .tokens = tokens, .groups = EXPERTS / ranks};
    const uint64_t mean = (uint64_t)ranks * tokens * TOPK / EXPERTS;

    assert(EXPERTS % ranks == 0 && mean >= 8);
    shape.capacity = tokens <= 128 ? (uint64_t)ranks * tokens : 0;
    shape.rows = shape.groups * (shape.capacity != 0 ? shape.capacity : mean + mean / 8 + 1);
    shape.depth = HIDDEN;
    shape.outputs = 2 * INTER;
    if (measure(gpu, &shape, false, rounds, bench, err, err_len) != 0) return -1;
    if (ranks == 32 && measure(gpu, &shape, true, rounds, bench, err, err_len) != 0) return -1;
    shape.depth = INTER;
    shape.outputs = HIDDEN;
    return measure(gpu, &shape, false, rounds, bench, err, err_len);
}
#endif
