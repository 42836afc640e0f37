/* tests/gpu_grouped.c - grouped FP8 GEMMs: one in an exact order of sums, one on tensor cores.
 *
 * Both are held against a loop written here: the exact one by bytes, the fast one by the bound that
 * kernels/grouped_fast.cu states. Random codes of either sign make results far smaller than the
 * sums of their terms' sizes, so a wrong block, scale or row is far outside. */
#include <math.h>

#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/quantise.h"
#include "tests/gpu_support.h"

Suite *gpu_grouped_suite(void);

enum { RANKS = 2, GROUPS = 5, CAPACITY = 150, BLOCK = 128, QUICK_DEPTH = 400 };

enum part { ROWS, ROW_SCALES, COUNTS, CODES, SCALES, OUT, PARTS };

struct shape {
    uint32_t depth, outputs;
    enum ref_recipe recipe;
    uint32_t alignment; /* 0: masked. */
    uint32_t rows;      /* Of a rank; the last group of rank 0 may name more than are left. */
};

/* Clusters of 1 x 2 blocks, of one alone, and of 2 x 2: outputs and rows say which. */
static const struct shape shapes[] = {{256, 512, REF_RECIPE_LL, 0, GROUPS *CAPACITY},
                                      {384, 384, REF_RECIPE_LL, 1, 400},
                                      {1152, 256, REF_RECIPE_LL_UE8M0, 0, GROUPS *CAPACITY},
                                      {2048, 256, REF_RECIPE_LL, 128, 400},
                                      {128, 128, REF_RECIPE_LL_UE8M0, 8, 400},
                                      {512, 256, REF_RECIPE_LL, 1, 2600}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Nobody, one row, a whole tile, one more, and more than a masked group has room for. */
static const int32_t counts[RANKS][GROUPS] = {{0, 1, 128, 129, 999}, {70, 0, 0, 64, 5}};

struct layer {
    struct shape shape;
    uint64_t rows, row_start[RANKS + 1];
    uint32_t blocks, scale_bytes; /* Of a row. */
    uint8_t *codes, *weights, *row_scales;
    float *scales;
    uint16_t *exact;
    double *bound, *value; /* Of every result; bound -1: the row is nobody's. */
};

/* Rows of a group on its rank: [first, end), no more than there are. */
static void group_rows(const struct layer *layer, uint32_t rank, uint32_t group, uint64_t *first,
                       uint64_t *end)
{
    const uint64_t rows = layer->row_start[rank + 1] - layer->row_start[rank];
    const uint32_t alignment = layer->shape.alignment;
    uint64_t at = 0, count = 0;
    for (uint32_t g = 0; g <= group; g++) {
        at = alignment == 0 ? g * CAPACITY : (at + count + alignment - 1) / alignment * alignment;
        count = (uint64_t)counts[rank][g];
        if (alignment == 0 && count > CAPACITY) count = CAPACITY;
        if (at + count > rows) count = at < rows ? rows - at : 0;
    }
    *first = at;
    *end = at + count;
}

static float row_scale(const struct layer *layer, uint64_t row, uint32_t block)
{
    const uint8_t *scales = layer->row_scales + row * layer->scale_bytes;
    float scale;
    if (ref_recipe_scales(layer->shape.recipe) == REF_SCALE_UE8M0)
        return ref_f32_from_bits((uint32_t)scales[block] << 23);
    memcpy(&scale, scales + 4 * block, sizeof scale);
    return scale;
}

/* One result in the reference's order, and what the fast kernel may differ from it by. */
static void expect_one(struct layer *layer, uint64_t row, const float *a, const uint8_t *b,
                       const float *b_scales, uint64_t at)
{
    float acc = 0;
    double bound = 0;
    for (uint32_t block = 0; block < layer->blocks; block++) {
        const float scale = row_scale(layer, row, block) * b_scales[block];
        double largest = 0, partial = 0, sizes = 0;
        float sum = 0;
        for (uint32_t k = block * BLOCK; k < (block + 1) * BLOCK; k++) {
            const double product = (double)a[k] * (double)ref_e4m3_to_f32(b[k]);
            sum = fmaf(a[k], ref_e4m3_to_f32(b[k]), sum);
            partial += product;
            sizes += fabs(product);
            largest = fmax(largest, fabs(product));
            if (k % 16 == 15) largest = fmax(largest, fabs(partial));
        }
        acc = fmaf(sum, scale, acc);
        bound += (double)scale * (136 * 0x1p-13 * largest + 0x1p-16 * sizes);
    }
    layer->exact[at] = ref_bf16_from_f32(acc);
    layer->value[at] = (double)acc;
    layer->bound[at] = bound + 0x1p-8 * fabs((double)acc) * (1 + 0x1p-6) + 0x1p-8 * bound;
}

static void expect_rows(struct layer *layer, uint32_t rank, uint32_t group)
{
    const uint32_t depth = layer->shape.depth, outputs = layer->shape.outputs;
    const uint64_t matrix = (uint64_t)rank * GROUPS + group;
    float *a = TEST_ARRAY(float, depth);
    uint64_t first, end;

    group_rows(layer, rank, group, &first, &end);
    for (uint64_t r = first; r < end; r++) {
        const uint64_t row = layer->row_start[rank] + r;
        for (uint32_t k = 0; k < depth; k++) a[k] = ref_e4m3_to_f32(layer->codes[row * depth + k]);
        for (uint32_t o = 0; o < outputs; o++)
            expect_one(layer, row, a, layer->weights + (matrix * outputs + o) * depth,
                       layer->scales + (matrix * (outputs / BLOCK) + o / BLOCK) * layer->blocks,
                       row * outputs + o);
    }
}

static void random_codes(uint64_t *state, uint8_t *codes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)test_random(state);
        if ((codes[i] & 0x7F) == 0x7F) codes[i] ^= 0x40;
    }
}

static struct layer make_layer(const struct shape *shape)
{
    struct layer layer = {.shape = *shape};
    const bool packed = ref_recipe_scales(shape->recipe) == REF_SCALE_UE8M0;
    uint64_t state = shape->depth + shape->outputs;

    layer.blocks = shape->depth / BLOCK;
    layer.scale_bytes = 4 * (packed ? (layer.blocks + 3) / 4 : layer.blocks);
    for (uint32_t r = 0; r <= RANKS; r++) layer.row_start[r] = (uint64_t)r * shape->rows;
    layer.rows = layer.row_start[RANKS];
    const uint64_t weights = (uint64_t)RANKS * GROUPS * shape->outputs * shape->depth;
    const uint64_t results = layer.rows * shape->outputs;
    layer.codes = TEST_ARRAY(uint8_t, layer.rows * shape->depth);
    layer.row_scales = TEST_ARRAY(uint8_t, layer.rows * layer.scale_bytes);
    layer.weights = TEST_ARRAY(uint8_t, weights);
    layer.scales = TEST_ARRAY(float, weights / (BLOCK * BLOCK));
    layer.exact = TEST_ARRAY(uint16_t, results);
    layer.bound = TEST_ARRAY(double, results);
    layer.value = TEST_ARRAY(double, results);
    random_codes(&state, layer.codes, layer.rows * shape->depth);
    random_codes(&state, layer.weights, weights);
    for (uint64_t i = 0; i < layer.rows * layer.scale_bytes; i += packed ? 1 : 4) {
        const uint32_t bits = 0x3C000000u + test_below(&state, 1u << 24);
        if (packed)
            layer.row_scales[i] = (uint8_t)(118 + test_below(&state, 12));
        else
            memcpy(layer.row_scales + i, &bits, sizeof bits);
    }
    for (uint64_t i = 0; i < weights / (BLOCK * BLOCK); i++)
        layer.scales[i] = ref_f32_from_bits(0x39000000u + test_below(&state, 1u << 24));
    memset(layer.exact, 0xFF, results * sizeof *layer.exact);
    for (uint64_t i = 0; i < results; i++) layer.bound[i] = -1;
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t g = 0; g < GROUPS; g++) expect_rows(&layer, r, g);
    return layer;
}

static struct gpu *open_layer(const struct layer *layer, int place, struct gpu_grouped *grouped)
{
    static const uint64_t each[RANKS + 1] = {0, 1, 2};
    const struct shape *shape = &layer->shape;
    const uint64_t matrix = (uint64_t)shape->outputs * shape->depth;
    const struct gpu_part parts[PARTS] = {
        [ROWS] = {layer->row_start, 0, shape->depth},
        [ROW_SCALES] = {layer->row_start, 0, layer->scale_bytes},
        [COUNTS] = {each, 0, sizeof counts[0]},
        [CODES] = {each, 0, GROUPS * matrix},
        [SCALES] = {each, 0, GROUPS * matrix / (BLOCK * BLOCK) * sizeof(float)},
        [OUT] = {layer->row_start, 0, 2 * (uint64_t)shape->outputs}};
    struct gpu *gpu = test_gpu_open(place);

    TEST_GPU(gpu_plan, gpu, RANKS, parts, PARTS);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, ROWS), layer->codes);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, ROW_SCALES), layer->row_scales);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, COUNTS), counts);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, CODES), layer->weights);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, SCALES), layer->scales);
    TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, OUT), 0xFF);
    *grouped = (struct gpu_grouped){.depth = shape->depth,
                                    .outputs = shape->outputs,
                                    .groups = GROUPS,
                                    .recipe = shape->recipe,
                                    .capacity = shape->alignment == 0 ? CAPACITY : 0,
                                    .alignment = shape->alignment,
                                    .counts = gpu_plan_buffer(gpu, COUNTS),
                                    .codes = gpu_plan_buffer(gpu, CODES),
                                    .scales = gpu_plan_buffer(gpu, SCALES)};
    return gpu;
}

START_TEST(the_exact_gemm_gives_every_bit_and_leaves_other_rows_alone)
{
    if (test_quick() && shapes[_i % SHAPES].depth > QUICK_DEPTH) return;
    struct layer layer = make_layer(&shapes[_i % SHAPES]);
    struct gpu_grouped grouped;
    struct gpu *gpu = open_layer(&layer, _i / SHAPES, &grouped);

    TEST_GPU(gpu_grouped_exact, gpu, &grouped, 0, RANKS, gpu_plan_buffer(gpu, ROWS),
             gpu_plan_buffer(gpu, ROW_SCALES), gpu_plan_buffer(gpu, OUT));
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, OUT), layer.exact,
                    layer.rows * layer.shape.outputs * 2, "exact", (uint64_t)_i);
    gpu_close(gpu);
}
END_TEST

/* The fast kernel's results into got. */
static void run_fast(struct gpu *gpu, const struct gpu_grouped *grouped, uint16_t *got)
{
    TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, OUT), 0xFF);
    TEST_GPU(gpu_grouped_fast, gpu, grouped, 0, RANKS, gpu_plan_buffer(gpu, ROWS),
             gpu_plan_buffer(gpu, ROW_SCALES), gpu_plan_buffer(gpu, OUT));
    TEST_GPU(gpu_read, gpu, gpu_plan_buffer(gpu, OUT), got);
}

START_TEST(the_fast_gemm_keeps_its_bound_and_gives_the_same_bytes_again)
{
    if (test_quick() && shapes[_i % SHAPES].depth > QUICK_DEPTH) return;
    struct layer layer = make_layer(&shapes[_i % SHAPES]);
    const uint64_t results = layer.rows * layer.shape.outputs;
    struct gpu_grouped grouped;
    struct gpu *gpu = open_layer(&layer, _i / SHAPES, &grouped);
    uint16_t *got = TEST_ARRAY(uint16_t, results), *again = TEST_ARRAY(uint16_t, results);
    double worst = 0;

    run_fast(gpu, &grouped, got);
    for (uint64_t i = 0; i < results; i++) {
        const double apart = fabs((double)ref_bf16_to_f32(got[i]) - layer.value[i]);
        if (layer.bound[i] < 0) {
            ck_assert_msg(got[i] == 0xFFFF, "row %" PRIu64 " is nobody's and was written",
                          i / layer.shape.outputs);
            continue;
        }
        ck_assert_msg(apart <= layer.bound[i],
                      "row %" PRIu64 ", output %" PRIu64 ": %g, not %g +- %g",
                      i / layer.shape.outputs, i % layer.shape.outputs,
                      (double)ref_bf16_to_f32(got[i]), layer.value[i], layer.bound[i]);
        if (layer.bound[i] > 0) worst = fmax(worst, apart / layer.bound[i]);
    }
    printf("grouped GEMM of depth %" PRIu32 ": %.1f %% of the bound used at most\n",
           layer.shape.depth, 100 * worst);
    for (int repeat = 0; repeat < 5; repeat++) {
        run_fast(gpu, &grouped, again);
        ck_assert_mem_eq(again, got, results * sizeof *got);
    }
    gpu_close(gpu);
}
END_TEST

Suite *gpu_grouped_suite(void)
{
    Suite *suite = suite_create("grouped");
    TCase *tests = tcase_create("grouped");
    tcase_add_loop_test(tests, the_exact_gemm_gives_every_bit_and_leaves_other_rows_alone, 0,
                        SHAPES * test_gpu_places());
    tcase_add_loop_test(tests, the_fast_gemm_keeps_its_bound_and_gives_the_same_bytes_again, 0,
                        SHAPES * test_gpu_places());
    suite_add_tcase(suite, tests);
    return suite;
}
