/* tests/gpu_quantise.c - every recipe on the GPU gives the reference's codes, scales and exponents,
 * and its digest the reference's number.
 *
 * Method: ranks with no, few and many rows, a number of groups that no launch shape divides, half
 * of the rows with infinities, NaNs, zeros and tiny values in them. */
#include "ref/digest.h"
#include "ref/quantise.h"
#include "tests/gpu_support.h"

Suite *gpu_quantise_suite(void);

enum { RANKS = 4, HIDDEN = 640, GROUPS = HIDDEN / 128, ROWS = 77 };
static const uint64_t rank_start[RANKS + 1] = {0, 1, 1, 40, ROWS};

enum part { X, CODES, SCALES, PACKED, PARTS };

static struct gpu_buffer *part(struct gpu *gpu, enum part index)
{
    return gpu_plan_buffer(gpu, index);
}

static void draw(uint64_t seed, uint16_t *x)
{
    uint64_t state = seed;
    for (uint64_t i = 0; i < (uint64_t)ROWS * HIDDEN; i++)
        x[i] = test_gpu_bf16(&state, i / HIDDEN % 2 == 1);
    memset(x, 0, 128 * sizeof *x); /* A group of zeros. */
}

static void plan(struct gpu *gpu, enum ref_recipe recipe)
{
    const struct gpu_part parts[PARTS] = {
        [X] = {rank_start, 0, 2 * HIDDEN},
        [CODES] = {rank_start, 0, (uint64_t)HIDDEN * ref_recipe_payload_bytes(recipe)},
        [SCALES] = {rank_start, 0, GROUPS * sizeof(float)},
        [PACKED] = {rank_start, 0, ref_scale_packed_words(GROUPS) * sizeof(uint32_t)}};
    TEST_GPU(gpu_plan, gpu, RANKS, parts, PARTS);
    for (uint32_t p = 0; p < PARTS; p++) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
}

START_TEST(every_recipe_gives_the_references_bytes)
{
    const int place = _i / REF_RECIPE_COUNT;
    const enum ref_recipe recipe = (enum ref_recipe)(_i % REF_RECIPE_COUNT);
    const uint64_t bytes = (uint64_t)ROWS * HIDDEN * ref_recipe_payload_bytes(recipe);
    uint16_t *x = TEST_ARRAY(uint16_t, ROWS * HIDDEN);
    uint8_t *codes = TEST_ARRAY(uint8_t, bytes);
    float *scales = TEST_ARRAY(float, ROWS *GROUPS);
    struct gpu *gpu = test_gpu_open(place);

    draw((uint64_t)recipe + 1, x);
    ref_quantise(recipe, x, ROWS, HIDDEN, codes, scales);
    plan(gpu, recipe);
    TEST_GPU(gpu_write, gpu, part(gpu, X), x);
    TEST_GPU(gpu_quantise, gpu, recipe, 0, RANKS, HIDDEN, part(gpu, X), part(gpu, CODES),
             part(gpu, SCALES));
    test_gpu_equals(gpu, part(gpu, CODES), codes, bytes, ref_recipe_name(recipe), recipe);
    if (recipe != REF_RECIPE_BF16)
        test_gpu_equals(gpu, part(gpu, SCALES), scales, ROWS * GROUPS * sizeof(float),
                        ref_recipe_name(recipe), recipe);
    gpu_close(gpu);
}
END_TEST

START_TEST(exponents_are_packed_as_the_reference_packs_them)
{
    uint16_t *x = TEST_ARRAY(uint16_t, ROWS * HIDDEN);
    uint8_t *codes = TEST_ARRAY(uint8_t, ROWS * HIDDEN);
    float *scales = TEST_ARRAY(float, ROWS *GROUPS);
    uint32_t *packed = TEST_ARRAY(uint32_t, ROWS * 2);
    struct gpu *gpu = test_gpu_open(_i);
    char err[256] = "";

    draw(9, x);
    ref_quantise(REF_RECIPE_LL_UE8M0, x, ROWS, HIDDEN, codes, scales);
    ck_assert_int_eq(ref_scales_pack_ue8m0(scales, ROWS, GROUPS, packed, err, sizeof err), 0);
    plan(gpu, REF_RECIPE_LL_UE8M0);
    TEST_GPU(gpu_write, gpu, part(gpu, SCALES), scales);
    TEST_GPU(gpu_scales_pack_ue8m0, gpu, 0, RANKS, GROUPS, part(gpu, SCALES), part(gpu, PACKED));
    test_gpu_equals(gpu, part(gpu, PACKED), packed, ROWS * 2 * sizeof(uint32_t), "packed", 9);
    gpu_close(gpu);
}
END_TEST

/* A group for every finite maximum that BF16 has, filled with random values up to it: the kernel's
 * own division must be the IEEE one for all of them. */
START_TEST(every_maximum_gives_the_references_codes)
{
    enum { MAXIMA = 0x7F80, ALL = MAXIMA * 128 };
    const uint64_t starts[2] = {0, MAXIMA};
    const struct gpu_part parts[] = {{starts, 0, 256}, {starts, 0, 128}, {starts, 0, 4}};
    uint16_t *x = TEST_ARRAY(uint16_t, ALL);
    uint8_t *codes = TEST_ARRAY(uint8_t, ALL);
    float *scales = TEST_ARRAY(float, MAXIMA);
    uint64_t state = 5;
    struct gpu *gpu = test_gpu_open(0);

    for (uint32_t i = 0; i < ALL; i++) {
        const uint32_t max = i / 128, below = max > 0x500 ? 0x500 : max; /* Ten powers of two. */
        x[i] = (uint16_t)(i % 128 == 0 ? max : max - test_below(&state, below + 1));
        if (test_below(&state, 2) == 0) x[i] |= 0x8000;
    }
    ref_quantise(REF_RECIPE_LL, x, MAXIMA, 128, codes, scales);
    TEST_GPU(gpu_plan, gpu, 1, parts, 3);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 0), x);
    TEST_GPU(gpu_quantise, gpu, REF_RECIPE_LL, 0, 1, 128, gpu_plan_buffer(gpu, 0),
             gpu_plan_buffer(gpu, 1), gpu_plan_buffer(gpu, 2));
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 1), codes, ALL, "codes", 5);
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, 2), scales, MAXIMA * sizeof(float), "scales", 5);
    gpu_close(gpu);
}
END_TEST

/* Sizes around words, vectors and blocks. */
START_TEST(a_digest_is_the_references_number)
{
    static const uint64_t sizes[] = {0, 1, 7, 8, 9, 16, 2047, 2048, 2049, 6000, 100001};
    const uint64_t bytes = sizes[_i];
    const uint64_t starts[2] = {0, bytes};
    const struct gpu_part bytes_part = {starts, 0, 1};
    uint8_t *data = TEST_ARRAY(uint8_t, bytes);
    uint64_t state = bytes + 1, digest = 0;
    struct gpu *gpu = test_gpu_open(0);

    for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)test_random(&state);
    TEST_GPU(gpu_plan, gpu, 1, &bytes_part, 1);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, 0), data);
    TEST_GPU(gpu_digest, gpu, 0, 1, gpu_plan_buffer(gpu, 0), &digest);
    ck_assert_uint_eq(digest, ref_digest(data, bytes));
    gpu_close(gpu);
}
END_TEST

START_TEST(a_plan_that_does_not_fit_is_refused_with_the_bytes_missing)
{
    const struct gpu_part huge = {NULL, UINT64_C(1) << 40, 1024};
    struct gpu *gpu = test_gpu_open(0);
    char err[256] = "";

    ck_assert_int_eq(gpu_plan(gpu, 1, &huge, 1, err, sizeof err), -1);
    TEST_SAYS(err, "needs 1125899906842624 bytes");
    TEST_SAYS(err, "bytes missing");
    gpu_close(gpu);
}
END_TEST

Suite *gpu_quantise_suite(void)
{
    Suite *suite = suite_create("quantise");
    TCase *tests = tcase_create("quantise");
    tcase_add_loop_test(tests, every_recipe_gives_the_references_bytes, 0,
                        REF_RECIPE_COUNT * test_gpu_places());
    tcase_add_loop_test(tests, exponents_are_packed_as_the_reference_packs_them, 0,
                        test_gpu_places());
    tcase_add_test(tests, every_maximum_gives_the_references_codes);
    tcase_add_loop_test(tests, a_digest_is_the_references_number, 0, 11);
    tcase_add_test(tests, a_plan_that_does_not_fit_is_refused_with_the_bytes_missing);
    suite_add_tcase(suite, tests);
    return suite;
}
