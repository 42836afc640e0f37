/* tests/gpu_direct.h - cases of the direct transport: inputs, buffers, comparison.
 *
 * Large arrays come from case_alloc() and go with case_free(): all GPU tests share a process. */
#ifndef TESTS_GPU_DIRECT_H
#define TESTS_GPU_DIRECT_H

#include "kernels/direct.h"
#include "ref/quantise.h"
#include "tests/gpu_support.h"

enum direct_kind { UNIFORM, MASKED, HOT, EMPTY, DUPLICATES, SPECIAL };

struct direct_case {
    uint32_t ranks, experts, topk, hidden, tokens;
    enum ref_recipe recipe;
    enum direct_kind kind;
};

enum direct_part {
    STARTS,
    IDS,
    WEIGHTS,
    X,
    TOKEN_SCALES,
    PAYLOAD,
    SCALES,
    SRC_TOKEN,
    ROW_IDS,
    ROW_WEIGHTS,
    COUNTS,
    EXPERT_OUT,
    BIAS0,
    BIAS1,
    COMBINED,
    COMBINED_WEIGHTS,
    PARTS
};

enum { ARRAYS_MAX = 40 };

struct direct_bench {
    struct direct_case shape;
    struct exchange made;
    void *arrays[ARRAYS_MAX];
    uint32_t array_count;
    const void *wanted[PARTS]; /* NULL: an input, or not part of the case. */
    uint64_t wanted_bytes[PARTS];
    struct gpu_part parts[PARTS];
    const void *given[PARTS]; /* What a buffer holds before. NULL: nothing to upload. */
};

static inline void *case_alloc(struct direct_bench *bench, uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_lt(bench->array_count, ARRAYS_MAX);
    bench->arrays[bench->array_count++] = memory;
    return memory;
}

#define CASE_ARRAY(bench, type, count) ((type *)case_alloc((bench), (count), sizeof(type)))

static inline void case_free(struct direct_bench *bench)
{
    for (uint32_t i = 0; i < bench->array_count; i++) free(bench->arrays[i]);
}

static inline uint16_t *case_rows(struct direct_bench *bench, uint64_t *state, uint64_t count)
{
    uint16_t *rows = CASE_ARRAY(bench, uint16_t, count);
    for (uint64_t i = 0; i < count; i++)
        rows[i] = test_gpu_bf16(state, bench->shape.kind == SPECIAL);
    return rows;
}

/* Distinct experts for each token, then what the kind makes of them. */
static inline void case_choose(const struct direct_case *shape, uint64_t *state, int64_t *ids,
                               float *weights, uint64_t count)
{
    const uint32_t nan = 0x7FC00000u;
    for (uint64_t i = 0; i < count; i++) {
        bool taken = true;
        while (taken) {
            taken = false;
            ids[i] = test_below(state, shape->experts);
            for (uint64_t j = i - i % shape->topk; j < i; j++) taken |= ids[j] == ids[i];
        }
        weights[i] = (float)test_below(state, 1 << 24) * 0x1p-24f;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (shape->kind == HOT && test_below(state, 4) != 0) ids[i] = (int64_t)shape->experts - 1;
        if (shape->kind == DUPLICATES && i % shape->topk > 0 && test_below(state, 2) == 0)
            ids[i] = ids[i - 1];
        if (shape->kind != MASKED || test_below(state, 3) != 0) continue;
        ids[i] = -1;
        memcpy(&weights[i], &nan, sizeof nan);
    }
}

static inline void case_make(struct direct_bench *bench, const struct direct_case *shape,
                             uint64_t seed)
{
    uint64_t counts[GPU_DIRECT_RANKS_MAX], state = seed;

    memset(bench, 0, sizeof *bench);
    bench->shape = *shape;
    for (uint32_t r = 0; r < shape->ranks; r++) {
        counts[r] = shape->tokens;
        if (shape->kind == EMPTY)
            counts[r] = r % 2 == 0 ? 0 : test_below(&state, shape->tokens + 1);
    }
    bench->made = exchange_of(shape->ranks, shape->experts, shape->topk, counts, NULL, NULL);
    const uint64_t selections = bench->made.tokens * shape->topk;
    int64_t *ids = CASE_ARRAY(bench, int64_t, selections);
    float *weights = CASE_ARRAY(bench, float, selections);
    case_choose(shape, &state, ids, weights, selections);
    bench->made.seed = seed;
    bench->made.hidden = shape->hidden;
    bench->made.routing.topk_idx = ids;
    bench->made.routing.topk_weights = weights;
    bench->made.x = case_rows(bench, &state, bench->made.tokens * shape->hidden);
}

/* The first row of every rank, from tables with `step` entries a rank. */
static inline uint64_t *case_rank_rows(struct direct_bench *bench, const uint64_t *blocks,
                                       uint64_t step)
{
    uint64_t *start = CASE_ARRAY(bench, uint64_t, bench->shape.ranks + 1);
    for (uint64_t r = 0; r <= bench->shape.ranks; r++) start[r] = blocks[r * step];
    return start;
}

/* A buffer with rows by rank and what it holds before. */
static inline void case_input(struct direct_bench *bench, enum direct_part part,
                              const uint64_t *rank_start, uint64_t row_bytes, const void *given)
{
    bench->parts[part] = (struct gpu_part){rank_start, 0, row_bytes};
    bench->given[part] = given;
}

/* The same, and what it must hold in the end. */
static inline void case_output(struct direct_bench *bench, enum direct_part part,
                               const uint64_t *rank_start, uint64_t row_bytes, const void *wanted)
{
    bench->parts[part] = (struct gpu_part){rank_start, 0, row_bytes};
    bench->wanted[part] = wanted;
    bench->wanted_bytes[part] = rank_start[bench->shape.ranks] * row_bytes;
}

/* Plan everything, upload the routing and the inputs. */
static inline struct gpu_routing case_upload(struct direct_bench *bench, struct gpu *gpu)
{
    const struct ref_routing *routing = &bench->made.routing;
    const uint64_t tokens = bench->made.tokens, topk = routing->topk;

    bench->parts[STARTS] = (struct gpu_part){NULL, routing->ranks + 1, sizeof(uint64_t)};
    bench->parts[IDS] = (struct gpu_part){NULL, tokens, topk * sizeof(int64_t)};
    bench->parts[WEIGHTS] = (struct gpu_part){NULL, tokens, topk * sizeof(float)};
    TEST_GPU(gpu_plan, gpu, routing->ranks, bench->parts, PARTS);
    bench->given[STARTS] = routing->token_start;
    bench->given[IDS] = routing->topk_idx;
    bench->given[WEIGHTS] = routing->topk_weights;
    for (uint32_t p = 0; p < PARTS; p++)
        if (bench->given[p] != NULL)
            TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, p), bench->given[p]);
    return (struct gpu_routing){.ranks = routing->ranks,
                                .experts = routing->experts,
                                .topk = routing->topk,
                                .token_start = routing->token_start,
                                .starts = gpu_plan_buffer(gpu, STARTS),
                                .topk_idx = gpu_plan_buffer(gpu, IDS),
                                .topk_weights = gpu_plan_buffer(gpu, WEIGHTS)};
}

static inline struct gpu_direct *case_open(const struct direct_bench *bench, struct gpu *gpu,
                                           bool ll)
{
    const struct direct_case *shape = &bench->shape;
    const struct gpu_direct_shape direct_shape = {.ranks = shape->ranks,
                                                  .experts = shape->experts,
                                                  .topk = shape->topk,
                                                  .hidden = shape->hidden,
                                                  .tokens_max = shape->tokens,
                                                  .ll = ll};
    struct gpu_direct *direct = NULL;
    TEST_GPU(gpu_direct_open, gpu, &direct_shape, &direct);
    return direct;
}

/* Fill outputs with FF, so that what is not written shows. */
static inline void case_poison(const struct direct_bench *bench, struct gpu *gpu)
{
    for (uint32_t p = 0; p < PARTS; p++)
        if (bench->wanted[p] != NULL) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
    TEST_GPU(gpu_wait, gpu);
}

static inline void case_compare(const struct direct_bench *bench, struct gpu *gpu)
{
    static const char *const names[PARTS] = {
        "starts",       "ids",         "weights",  "x",
        "token scales", "payload",     "scales",   "src_token",
        "row ids",      "row weights", "counts",   "expert_out",
        "bias0",        "bias1",       "combined", "combined weights"};
    for (uint32_t p = 0; p < PARTS; p++)
        if (bench->wanted[p] != NULL)
            test_gpu_equals(gpu, gpu_plan_buffer(gpu, p), bench->wanted[p], bench->wanted_bytes[p],
                            names[p], bench->made.seed);
}

/* Ranks that have no GPU of their own, or exactly one each; more GPUs than ranks is refused. */
static inline bool case_fits(const struct direct_case *shape, int place)
{
    return place == 0 || test_gpu_count() <= shape->ranks;
}

/* Make the truth of a case, or run one round of its operations. */
typedef void (*case_truth_fn)(struct direct_bench *bench);
typedef void (*case_play_fn)(const struct direct_bench *bench, struct gpu *gpu,
                             struct gpu_direct *direct, const struct gpu_routing *routing,
                             uint32_t round);

/* Play a case so many times, each on one of five numbers of multiprocessors, and compare every
 * output each time. */
static inline void case_run(const struct direct_case *shape, int place, bool ll, uint64_t seed,
                            const uint32_t sms[5], case_truth_fn make_truth, case_play_fn play,
                            uint32_t rounds)
{
    struct direct_bench bench;
    struct gpu *gpu = test_gpu_open(place);

    case_make(&bench, shape, seed);
    make_truth(&bench);
    const struct gpu_routing routing = case_upload(&bench, gpu);
    struct gpu_direct *direct = case_open(&bench, gpu, ll);
    for (uint32_t i = 0; i < rounds; i++) {
        gpu_direct_set_sms(direct, sms[i % 5]);
        case_poison(&bench, gpu);
        play(&bench, gpu, direct, &routing, i);
        case_compare(&bench, gpu);
    }
    gpu_direct_close(direct);
    gpu_close(gpu);
    case_free(&bench);
}

#endif
