/* tests/gpu_expert.c - experts and collectives on the GPU leave the reference's bytes.
 *
 * The exact-order MLP is compared with memcmp like everything else: every sum has one order. */
#include "ref/bf16.h"
#include "ref/dp.h"
#include "ref/expert.h"
#include "tests/gpu_support.h"

Suite *gpu_expert_suite(void);

enum { RANKS = 3, HIDDEN = 640, INTER = 384, ROWS = 75 };
enum { GROUPS = HIDDEN / 128, INTER_GROUPS = INTER / 128, WORDS = (GROUPS + 3) / 4 };
static const uint64_t rank_start[RANKS + 1] = {0, 2, 69, ROWS};
static const uint64_t each[RANKS + 1] = {0, 1, 2, 3};

enum part { PAYLOAD, SCALES, OUT, CODES, CODE_SCALES, GATE, UP, ACT, ACT_SCALES, MASK, PARTS };

static struct gpu_buffer *part(struct gpu *gpu, enum part index)
{
    return gpu_plan_buffer(gpu, index);
}

static uint64_t scale_bytes(enum ref_recipe recipe)
{
    switch (ref_recipe_scales(recipe)) {
    case REF_SCALE_F32: return GROUPS * sizeof(float);
    case REF_SCALE_UE8M0: return WORDS * sizeof(uint32_t);
    case REF_SCALE_NONE: return 0;
    }
    return 0;
}

static struct gpu *open_plan(int place, enum ref_recipe recipe)
{
    const uint64_t matrix = (uint64_t)HIDDEN * INTER;
    const struct gpu_part parts[PARTS] = {
        [PAYLOAD] = {rank_start, 0, (uint64_t)HIDDEN * ref_recipe_payload_bytes(recipe)},
        [SCALES] = {rank_start, 0, scale_bytes(recipe)},
        [OUT] = {rank_start, 0, 2 * HIDDEN},
        [CODES] = {each, 0, 3 * matrix},
        [CODE_SCALES] = {each, 0, 3 * GROUPS * INTER_GROUPS * sizeof(float)},
        [GATE] = {rank_start, 0, 2 * INTER},
        [UP] = {rank_start, 0, 2 * INTER},
        [ACT] = {rank_start, 0, INTER},
        [ACT_SCALES] = {rank_start, 0, INTER_GROUPS * sizeof(float)},
        [MASK] = {each, 0, ROWS * sizeof(int32_t)}};
    struct gpu *gpu = test_gpu_open(place);
    TEST_GPU(gpu_plan, gpu, RANKS, parts, PARTS);
    for (uint32_t p = 0; p < PARTS; p++) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
    return gpu;
}

/* Any bytes are codes; NaN codes are among them. Scales are fp32 of order 1, or any exponents. */
static void draw(uint64_t seed, enum ref_recipe recipe, uint8_t *payload, uint8_t *scales)
{
    uint64_t state = seed;
    for (uint64_t i = 0; i < (uint64_t)ROWS * HIDDEN * ref_recipe_payload_bytes(recipe); i++)
        payload[i] = (uint8_t)test_random(&state);
    if (recipe == REF_RECIPE_BF16)
        for (uint64_t i = 0; i < (uint64_t)ROWS * HIDDEN; i++) {
            const uint16_t x = test_gpu_bf16(&state, true);
            memcpy(payload + 2 * i, &x, sizeof x);
        }
    for (uint64_t i = 0; i < ROWS * scale_bytes(recipe) / 4; i++) {
        const uint32_t bits = ref_recipe_scales(recipe) == REF_SCALE_UE8M0
                                  ? (uint32_t)test_random(&state)
                                  : 0x3F000000u + test_below(&state, 1u << 24);
        memcpy(scales + 4 * i, &bits, sizeof bits);
    }
}

static const enum ref_recipe recipes[] = {REF_RECIPE_BF16, REF_RECIPE_LL, REF_RECIPE_LL_UE8M0};

START_TEST(standin_and_identity_are_the_references)
{
    const enum ref_recipe recipe = recipes[_i % 3];
    uint8_t *payload = TEST_ARRAY(uint8_t, 2 * ROWS * HIDDEN);
    uint8_t *scales = TEST_ARRAY(uint8_t, 4 * ROWS * GROUPS);
    uint16_t *out = TEST_ARRAY(uint16_t, ROWS * HIDDEN);
    struct gpu *gpu = open_plan(_i / 3, recipe);

    draw((uint64_t)_i + 1, recipe, payload, scales);
    TEST_GPU(gpu_write, gpu, part(gpu, PAYLOAD), payload);
    TEST_GPU(gpu_write, gpu, part(gpu, SCALES), scales);
    ref_expert_standin(recipe, payload, scales, ROWS, HIDDEN, out);
    TEST_GPU(gpu_expert_standin, gpu, recipe, 0, RANKS, HIDDEN, part(gpu, PAYLOAD),
             part(gpu, SCALES), part(gpu, OUT));
    test_gpu_equals(gpu, part(gpu, OUT), out, ROWS * HIDDEN * 2, "stand-in", recipe);
    ref_expert_identity(recipe, payload, scales, ROWS, HIDDEN, out);
    TEST_GPU(gpu_expert_identity, gpu, recipe, 0, RANKS, HIDDEN, part(gpu, PAYLOAD),
             part(gpu, SCALES), part(gpu, OUT));
    test_gpu_equals(gpu, part(gpu, OUT), out, ROWS * HIDDEN * 2, "identity", recipe);
    gpu_close(gpu);
}
END_TEST

/* The reference's weights of every rank's expert, and what it makes of the rank's rows. */
static void expect_mlp(enum ref_recipe recipe, const uint8_t *payload, const uint8_t *scales,
                       uint8_t *codes, float *code_scales, uint16_t *out)
{
    const uint64_t matrix = (uint64_t)HIDDEN * INTER, blocks = GROUPS * INTER_GROUPS;
    for (uint32_t r = 0; r < RANKS; r++) {
        const uint64_t rows = rank_start[r + 1] - rank_start[r], first = rank_start[r];
        uint8_t *c = codes + 3 * r * matrix;
        float *s = code_scales + 3 * r * blocks;
        for (uint32_t m = 0; m < 3; m++)
            ref_expert_fill(77, r + 5, m, HIDDEN, INTER, c + m * matrix, s + m * blocks);
        const struct ref_expert_weights weights = {
            HIDDEN, INTER, c, c + matrix, c + 2 * matrix, s, s + blocks, s + 2 * blocks};
        ref_expert_mlp(&weights, recipe, payload + first * HIDDEN,
                       scales + first * scale_bytes(recipe), rows, REF_RECIPE_LL,
                       out + first * HIDDEN,
                       test_alloc(ref_expert_mlp_scratch_bytes(rows, HIDDEN, INTER), 1));
    }
}

START_TEST(the_mlp_gives_the_references_bits)
{
    const enum ref_recipe recipe = recipes[1 + _i % 2];
    const uint64_t matrix = (uint64_t)HIDDEN * INTER, blocks = GROUPS * INTER_GROUPS;
    uint8_t *payload = TEST_ARRAY(uint8_t, ROWS * HIDDEN);
    uint8_t *scales = TEST_ARRAY(uint8_t, 4 * ROWS * GROUPS);
    uint8_t *codes = TEST_ARRAY(uint8_t, 3 * RANKS * matrix);
    float *code_scales = TEST_ARRAY(float, 3 * RANKS * blocks);
    uint16_t *out = TEST_ARRAY(uint16_t, ROWS * HIDDEN);
    struct gpu *gpu = open_plan(_i / 2, recipe);
    const struct gpu_mlp mlp = {HIDDEN,           INTER,
                                recipe,           REF_RECIPE_LL,
                                part(gpu, CODES), part(gpu, CODE_SCALES),
                                part(gpu, GATE),  part(gpu, UP),
                                part(gpu, ACT),   part(gpu, ACT_SCALES)};

    draw((uint64_t)_i + 11, recipe, payload, scales);
    for (uint64_t i = 0; i < ROWS * HIDDEN; i++) /* One row in eight keeps its NaN codes. */
        if (i / HIDDEN % 8 != 0 && (payload[i] & 0x7F) == 0x7F) payload[i] ^= 0x40;
    if (recipe == REF_RECIPE_LL_UE8M0)
        for (uint64_t i = 0; i < ROWS * WORDS * 4; i++) scales[i] = (uint8_t)(118 + scales[i] % 8);
    expect_mlp(recipe, payload, scales, codes, code_scales, out);
    TEST_GPU(gpu_write, gpu, part(gpu, PAYLOAD), payload);
    TEST_GPU(gpu_write, gpu, part(gpu, SCALES), scales);
    for (uint32_t r = 0; r < RANKS; r++) {
        TEST_GPU(gpu_expert_fill, gpu, r, 77, r + 5, HIDDEN, INTER, part(gpu, CODES),
                 part(gpu, CODE_SCALES));
        TEST_GPU(gpu_expert_mlp, gpu, &mlp, r, rank_start[r], rank_start[r + 1] - rank_start[r],
                 part(gpu, PAYLOAD), part(gpu, SCALES), part(gpu, OUT));
    }
    test_gpu_equals(gpu, part(gpu, CODES), codes, 3 * RANKS * matrix, "weights", recipe);
    test_gpu_equals(gpu, part(gpu, CODE_SCALES), code_scales, 3 * RANKS * blocks * 4,
                    "weight scales", recipe);
    test_gpu_equals(gpu, part(gpu, OUT), out, ROWS * HIDDEN * 2, "mlp", recipe);
    gpu_close(gpu);
}
END_TEST

START_TEST(activation_and_cast_in_one_pass_leave_masked_rows_alone)
{
    enum { CAPACITY = 25 }; /* 3 runs of 25 rows on one rank. */
    static const uint64_t all[2] = {0, ROWS}, one[2] = {0, 1};
    static const int32_t masked[3] = {25, 0, 13};
    const struct gpu_part parts[] = {{all, 0, 2 * INTER},
                                     {all, 0, 2 * INTER},
                                     {one, 0, sizeof masked},
                                     {all, 0, INTER},
                                     {all, 0, INTER_GROUPS * sizeof(float)}};
    uint16_t *gate = TEST_ARRAY(uint16_t, ROWS * INTER), *up = TEST_ARRAY(uint16_t, ROWS * INTER);
    uint8_t *codes = TEST_ARRAY(uint8_t, ROWS * INTER);
    float *scales = TEST_ARRAY(float, ROWS *INTER_GROUPS);
    uint64_t state = 3;
    struct gpu *gpu = test_gpu_open(0);

    for (uint64_t i = 0; i < ROWS * INTER; i++) {
        gate[i] = test_gpu_bf16(&state, i / INTER % 2 == 0);
        up[i] = test_gpu_bf16(&state, false);
    }
    TEST_GPU(gpu_plan, gpu, 1, parts, 5);
    TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, 3), 0xFF);
    TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, 4), 0xFF);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 0), gate);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 1), up);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 2), masked);
    TEST_GPU(gpu_expert_activate, gpu, REF_RECIPE_LL, 0, 1, INTER, gpu_plan_buffer(gpu, 0),
             gpu_plan_buffer(gpu, 1), gpu_plan_buffer(gpu, 2), CAPACITY, gpu_plan_buffer(gpu, 3),
             gpu_plan_buffer(gpu, 4));
    ref_expert_activate(gate, up, ROWS * INTER);
    ref_quantise(REF_RECIPE_LL, gate, ROWS, INTER, codes, scales);
    for (uint64_t row = 0; row < ROWS; row++) {
        if ((int64_t)(row % CAPACITY) < masked[row / CAPACITY]) continue;
        memset(codes + row * INTER, 0xFF, INTER);
        memset(scales + row * INTER_GROUPS, 0xFF, INTER_GROUPS * sizeof(float));
    }
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 3), codes, ROWS * INTER, "codes", 3);
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 4), scales, ROWS * INTER_GROUPS * 4, "scales", 3);
    gpu_close(gpu);
}
END_TEST

START_TEST(gather_and_reduce_scatter_are_the_references)
{
    const uint64_t bytes = (uint64_t)ROWS * HIDDEN * 2;
    const struct gpu_part parts[] = {
        {rank_start, 0, 2 * HIDDEN}, {NULL, ROWS, 2 * HIDDEN}, {each, 0, bytes}};
    uint16_t *inputs = TEST_ARRAY(uint16_t, RANKS * ROWS * HIDDEN);
    uint16_t *out = TEST_ARRAY(uint16_t, ROWS * HIDDEN);
    const uint16_t *input[RANKS];
    uint64_t state = 8;
    struct gpu *gpu = test_gpu_open(_i);

    for (uint64_t i = 0; i < (uint64_t)RANKS * ROWS * HIDDEN; i++)
        inputs[i] = test_gpu_bf16(&state, true);
    for (uint32_t r = 0; r < RANKS; r++) input[r] = inputs + r * ROWS * HIDDEN;
    for (uint32_t r = 0; r < RANKS; r++)
        ref_dp_reduce_scatter(input, rank_start, RANKS, HIDDEN, r, out + rank_start[r] * HIDDEN);
    TEST_GPU(gpu_plan, gpu, RANKS, parts, 3);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 2), inputs);
    TEST_GPU(gpu_dp_reduce_scatter, gpu, 0, RANKS, HIDDEN, gpu_plan_buffer(gpu, 2),
             gpu_plan_buffer(gpu, 0));
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 0), out, bytes, "reduce-scatter", 8);
    TEST_GPU(gpu_dp_gather, gpu, gpu_plan_buffer(gpu, 0), gpu_plan_buffer(gpu, 1));
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 1), out, bytes, "gather", 8);
    gpu_close(gpu);
}
END_TEST

Suite *gpu_expert_suite(void)
{
    Suite *suite = suite_create("expert");
    TCase *tests = tcase_create("expert");
    tcase_add_loop_test(tests, standin_and_identity_are_the_references, 0, 3 * test_gpu_places());
    tcase_add_loop_test(tests, the_mlp_gives_the_references_bits, 0, 2 * test_gpu_places());
    tcase_add_test(tests, activation_and_cast_in_one_pass_leave_masked_rows_alone);
    tcase_add_loop_test(tests, gather_and_reduce_scatter_are_the_references, 0, test_gpu_places());
    suite_add_tcase(suite, tests);
    return suite;
}
