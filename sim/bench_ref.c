/* sim/bench_ref.c - times the reference's operations. */
#include "sim/bench_ref.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ref/expert.h"
#include "ref/ll.h"
#include "ref/quantise.h"
#include "sim/arena.h"
#include "sim/generator.h"
#include "sim/rng.h"

enum { RANKS = 8, EXPERTS = 256, TOPK = 8, TOKENS = 128, HIDDEN = 7168, ROUNDS_MAX = 64 };
enum { ALL_TOKENS = RANKS * TOKENS, ROWS = ALL_TOKENS * TOPK, GROUPS = HIDDEN / 128 };

enum part { QUANTISE, DISPATCH, EXPERT, COMBINE, PARTS };

/* Arrays of the shape above, in one struct of arenas. */
struct shape {
    struct sim_arena idx, weights, x, codes, code_scales, payload, scales, src, counts, out,
        combined;
    uint64_t token_start[RANKS + 1], block_start[EXPERTS * RANKS + 1], scratch[EXPERTS];
    struct ref_routing routing;
    struct ref_ll_rows rows;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* Others may use the core meanwhile. */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int reserve(struct shape *shape, char *err, size_t err_len)
{
    struct {
        struct sim_arena *arena;
        uint64_t count, bytes;
    } const list[] = {
        {&shape->idx, ALL_TOKENS * TOPK, 8},
        {&shape->weights, ALL_TOKENS * TOPK, 4},
        {&shape->x, ALL_TOKENS, 2 * HIDDEN},
        {&shape->codes, ALL_TOKENS, HIDDEN},
        {&shape->code_scales, ALL_TOKENS, 4 * GROUPS},
        {&shape->payload, ROWS, HIDDEN},
        {&shape->scales, ROWS, 4 * GROUPS},
        {&shape->src, ROWS, 4},
        {&shape->counts, EXPERTS * RANKS, 4},
        {&shape->out, ROWS, 2 * HIDDEN},
        {&shape->combined, ALL_TOKENS, 2 * HIDDEN},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (sim_arena_reserve(list[i].arena, list[i].count, list[i].bytes, err, err_len) != 0)
            return -1;
    return 0;
}

static void release(struct shape *shape)
{
    struct sim_arena *const list[] = {&shape->idx,    &shape->weights,     &shape->x,
                                      &shape->codes,  &shape->code_scales, &shape->payload,
                                      &shape->scales, &shape->src,         &shape->counts,
                                      &shape->out,    &shape->combined};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) sim_arena_free(list[i]);
}

static void fill(struct shape *shape)
{
    const struct sim_generator generator = {SIM_GENERATOR_UNIFORM, 0, EXPERTS, TOPK, 1, 1};
    int64_t *idx = (int64_t *)(void *)shape->idx.bytes;
    float *weights = (float *)(void *)shape->weights.bytes;
    uint16_t *x = (uint16_t *)(void *)shape->x.bytes;
    struct sim_rng rng = sim_rng_stream(1, 0, 0, 0, 0);

    for (uint32_t r = 0; r < RANKS; r++) {
        shape->token_start[r + 1] = shape->token_start[r] + TOKENS;
        sim_generator_draw(&generator, 0, 0, r, TOKENS, idx + (size_t)r * TOKENS * TOPK);
    }
    for (uint32_t i = 0; i < ALL_TOKENS * TOPK; i++) weights[i] = 0.125f;
    for (uint64_t i = 0; i < (uint64_t)ALL_TOKENS * HIDDEN; i++) /* +-[0.5, 4) */
        x[i] = (uint16_t)(0x3f00u + (sim_rng_next(&rng) & 0x81ff));
    shape->routing = (struct ref_routing){RANKS, EXPERTS, TOPK, shape->token_start, idx, weights};
    shape->rows = (struct ref_ll_rows){shape->payload.bytes, (float *)(void *)shape->scales.bytes,
                                       NULL, (int32_t *)(void *)shape->src.bytes,
                                       (int32_t *)(void *)shape->counts.bytes};
    (void)ref_ll_blocks(&shape->routing, shape->block_start);
}

static void run_round(struct shape *shape, double *seconds)
{
    const uint16_t *x = (const uint16_t *)(const void *)shape->x.bytes;
    uint16_t *out = (uint16_t *)(void *)shape->out.bytes;
    double at[PARTS + 1];

    at[0] = now_s();
    ref_quantise(REF_RECIPE_LL, x, ALL_TOKENS, HIDDEN, shape->codes.bytes,
                 (float *)(void *)shape->code_scales.bytes);
    at[1] = now_s();
    ref_ll_dispatch(&shape->routing, HIDDEN, REF_RECIPE_LL, x, shape->block_start, shape->scratch,
                    &shape->rows);
    at[2] = now_s();
    ref_expert_standin(REF_RECIPE_LL, shape->payload.bytes, shape->scales.bytes, ROWS, HIDDEN, out);
    at[3] = now_s();
    ref_ll_combine(&shape->routing, HIDDEN, out, shape->block_start, shape->scratch,
                   (uint16_t *)(void *)shape->combined.bytes);
    at[4] = now_s();
    for (int p = 0; p < PARTS; p++) seconds[p] = at[p + 1] - at[p];
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

int sim_bench_ref_run(uint32_t rounds, struct sim_bench_ref *bench, char *err, size_t err_len)
{
    struct shape *shape = (struct shape *)calloc(1, sizeof *shape);
    double times[PARTS][ROUNDS_MAX], sequence[ROUNDS_MAX], copies[ROUNDS_MAX];
    int status = -1;

    assert(rounds >= 1 && rounds <= ROUNDS_MAX);
    if (shape == NULL || reserve(shape, err, err_len) != 0) {
        if (shape == NULL) snprintf(err, err_len, "bench ref: out of memory");
        goto free_shape;
    }
    fill(shape);
    for (uint32_t r = 0; r < rounds; r++) {
        double seconds[PARTS];
        run_round(shape, seconds);
        for (int p = 0; p < PARTS; p++) times[p][r] = seconds[p];
        /* ref_ll_dispatch casts each token again: its own share is the rest. */
        copies[r] = seconds[DISPATCH] - seconds[QUANTISE];
        sequence[r] = seconds[DISPATCH] + seconds[EXPERT] + seconds[COMBINE];
    }
    bench->quantise_bytes_per_s = 2.0 * ALL_TOKENS * HIDDEN / median(times[QUANTISE], rounds);
    bench->dispatch_bytes_per_s = (double)ROWS * (HIDDEN + 4 * GROUPS) / median(copies, rounds);
    bench->combine_bytes_per_s = 2.0 * ROWS * HIDDEN / median(times[COMBINE], rounds);
    bench->sequence_bytes_per_s =
        (double)ROWS * (3 * HIDDEN + 4 * GROUPS) / median(sequence, rounds);
    status = 0;
free_shape:
    if (shape != NULL) release(shape);
    free(shape);
    return status;
}
