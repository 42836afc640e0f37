/* tests/gpu_direct_normal.c - normal mode by peer stores and loads gives the reference's bytes,
 * however ranks are spread, on any number of multiprocessors, time after time.
 *
 * Method: 1 to 64 ranks of one node, BF16 and FP8 rows, biases in every other case; one handle
 * serves a full dispatch and a cached one. */
#include "ref/normal.h"
#include "tests/gpu_direct.h"

Suite *gpu_direct_normal_suite(void);

static const struct direct_case cases[] = {
    /* The first ones are small enough for the sanitizers. */
    {2, 8, 2, 512, 5, REF_RECIPE_LL, SPECIAL},
    {4, 8, 3, 1024, 9, REF_RECIPE_BF16, MASKED},
    {2, 64, 8, 7168, 300, REF_RECIPE_LL, MASKED},
    {2, 64, 8, 7168, 1024, REF_RECIPE_BF16, UNIFORM},
    {1, 16, 4, 2048, 33, REF_RECIPE_BF16, SPECIAL},
    {2, 16, 4, 2048, 0, REF_RECIPE_BF16, MASKED},
    {4, 32, 6, 3072, 65, REF_RECIPE_LL, EMPTY},
    {4, 32, 9, 4096, 40, REF_RECIPE_BF16, DUPLICATES},
    {8, 64, 8, 7168, 100, REF_RECIPE_BF16, SPECIAL},
    {8, 64, 2, 8192, 129, REF_RECIPE_LL, HOT},
    {16, 64, 8, 2048, 24, REF_RECIPE_BF16, EMPTY},
    {64, 256, 8, 2048, 6, REF_RECIPE_LL, MASKED},
};
enum { CASES = sizeof cases / sizeof cases[0], SMALL = 2, REPEATED = 2 };

static bool has_bias(const struct direct_case *shape)
{
    return shape->kind % 2 == 1;
}

static bool has_scales(const struct direct_case *shape)
{
    return shape->recipe != REF_RECIPE_BF16;
}

static void make_rows(struct direct_bench *bench, const uint64_t *blocks, uint64_t *scratch,
                      struct ref_normal_rows *want)
{
    const struct direct_case *shape = &bench->shape;
    const struct ref_routing *routing = &bench->made.routing;
    const uint64_t tokens = bench->made.tokens, ranks = shape->ranks;
    const uint64_t rows = blocks[ranks * ranks], topk = shape->topk;
    const uint64_t payload_bytes =
        (uint64_t)shape->hidden * ref_recipe_payload_bytes(shape->recipe);
    const uint64_t scale_bytes =
        has_scales(shape) ? ref_scale_groups(shape->hidden) * sizeof(float) : 0;
    uint8_t *payload = (uint8_t *)case_alloc(bench, tokens, payload_bytes);
    float *scales = CASE_ARRAY(bench, float, tokens *ref_scale_groups(shape->hidden));
    const uint64_t *start = case_rank_rows(bench, blocks, ranks);
    uint64_t *each = CASE_ARRAY(bench, uint64_t, ranks + 1);

    for (uint64_t r = 0; r <= ranks; r++) each[r] = r;
    ref_quantise(shape->recipe, bench->made.x, tokens, shape->hidden, payload, scales);
    const struct ref_normal_tokens sent = {payload, (const uint8_t *)scales, payload_bytes,
                                           scale_bytes};
    want->payload = (uint8_t *)case_alloc(bench, rows, payload_bytes);
    want->scales = (uint8_t *)case_alloc(bench, rows, scale_bytes + 1);
    want->topk_idx = CASE_ARRAY(bench, int64_t, rows * topk);
    want->topk_weights = CASE_ARRAY(bench, float, rows *topk);
    want->src_token = CASE_ARRAY(bench, int32_t, rows);
    want->counts = CASE_ARRAY(bench, int32_t, ranks * ranks);
    ref_normal_dispatch(routing, shape->ranks, &sent, blocks, scratch, want);
    case_input(bench, X, routing->token_start, payload_bytes, payload);
    case_output(bench, PAYLOAD, start, payload_bytes, want->payload);
    if (has_scales(shape)) {
        case_input(bench, TOKEN_SCALES, routing->token_start, scale_bytes, scales);
        case_output(bench, SCALES, start, scale_bytes, want->scales);
    }
    case_output(bench, SRC_TOKEN, start, sizeof(int32_t), want->src_token);
    case_output(bench, ROW_IDS, start, topk * sizeof(int64_t), want->topk_idx);
    case_output(bench, ROW_WEIGHTS, start, topk * sizeof(float), want->topk_weights);
    case_output(bench, COUNTS, each, ranks * sizeof(int32_t), want->counts);
}

static void make_truth(struct direct_bench *bench)
{
    const struct direct_case *shape = &bench->shape;
    const struct ref_routing *routing = &bench->made.routing;
    const uint64_t tokens = bench->made.tokens, hidden = shape->hidden;
    uint64_t *blocks = CASE_ARRAY(bench, uint64_t, (uint64_t)shape->ranks * shape->ranks + 1);
    uint64_t *scratch = CASE_ARRAY(bench, uint64_t, shape->ranks), state = bench->made.seed + 1;
    struct ref_normal_rows want;

    memset(&want, 0, sizeof want);
    const uint64_t rows = ref_normal_blocks(routing, blocks);
    make_rows(bench, blocks, scratch, &want);
    uint16_t *expert_out = case_rows(bench, &state, rows * hidden);
    uint16_t *bias[2] = {NULL, NULL};
    for (int b = 0; b < 2 && has_bias(shape); b++) {
        bias[b] = case_rows(bench, &state, tokens * hidden);
        case_input(bench, (enum direct_part)(BIAS0 + b), routing->token_start, 2 * hidden, bias[b]);
    }
    uint16_t *combined = CASE_ARRAY(bench, uint16_t, tokens * hidden);
    float *weights = CASE_ARRAY(bench, float, tokens * shape->topk);
    const struct ref_normal_combine_in in = {.hidden = shape->hidden,
                                             .expert_out = expert_out,
                                             .topk_weights = want.topk_weights,
                                             .bias0 = bias[0],
                                             .bias1 = bias[1]};
    ref_normal_combine(routing, shape->ranks, &in, blocks, scratch, combined, weights);
    case_input(bench, EXPERT_OUT, bench->parts[PAYLOAD].rank_start, 2 * hidden, expert_out);
    case_output(bench, COMBINED, routing->token_start, 2 * hidden, combined);
    case_output(bench, COMBINED_WEIGHTS, routing->token_start, shape->topk * sizeof(float),
                weights);
}

static void dispatch(const struct direct_bench *bench, struct gpu *gpu, struct gpu_direct *direct,
                     const struct gpu_routing *routing, bool cached)
{
    const bool scaled = has_scales(&bench->shape);
    struct gpu_normal_rows rows = {.payload = gpu_plan_buffer(gpu, PAYLOAD),
                                   .scales = scaled ? gpu_plan_buffer(gpu, SCALES) : NULL,
                                   .topk_idx = gpu_plan_buffer(gpu, ROW_IDS),
                                   .topk_weights = gpu_plan_buffer(gpu, ROW_WEIGHTS),
                                   .src_token = gpu_plan_buffer(gpu, SRC_TOKEN)};
    if (cached) {
        rows.topk_idx = rows.topk_weights = rows.src_token = NULL;
        TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, PAYLOAD), 0xFF);
    }
    TEST_GPU(gpu_direct_normal_dispatch, direct, routing, gpu_plan_buffer(gpu, X),
             scaled ? gpu_plan_buffer(gpu, TOKEN_SCALES) : NULL, &rows);
}

static void play(const struct direct_bench *bench, struct gpu *gpu, struct gpu_direct *direct,
                 const struct gpu_routing *routing, uint32_t round)
{
    (void)round;
    const bool bias = has_bias(&bench->shape);

    TEST_GPU(gpu_direct_normal_layout, direct, routing, gpu_plan_buffer(gpu, COUNTS));
    dispatch(bench, gpu, direct, routing, false);
    TEST_GPU(gpu_direct_wait, direct);
    dispatch(bench, gpu, direct, routing, true);
    TEST_GPU(gpu_direct_normal_combine, direct, routing, gpu_plan_buffer(gpu, EXPERT_OUT),
             gpu_plan_buffer(gpu, ROW_WEIGHTS), bias ? gpu_plan_buffer(gpu, BIAS0) : NULL,
             bias ? gpu_plan_buffer(gpu, BIAS1) : NULL, gpu_plan_buffer(gpu, COMBINED),
             gpu_plan_buffer(gpu, COMBINED_WEIGHTS));
    TEST_GPU(gpu_direct_wait, direct);
}

static void run_case(const struct direct_case *shape, int place, uint32_t rounds)
{
    static const uint32_t sms[5] = {20, 0, 1, 24, 7};
    case_run(shape, place, false, 1000033u * shape->ranks + 7u * shape->tokens + shape->kind, sms,
             make_truth, play, rounds);
}

START_TEST(normal_rows_and_sums_are_the_references)
{
    const int place = _i / CASES, index = _i % CASES;
    if (test_quick() && index >= SMALL) return;
    if (case_fits(&cases[index], place)) run_case(&cases[index], place, 4);
}
END_TEST

START_TEST(twenty_repeats_on_any_number_of_multiprocessors_are_one_answer)
{
    if (!test_quick() && case_fits(&cases[REPEATED], _i)) run_case(&cases[REPEATED], _i, 20);
}
END_TEST

Suite *gpu_direct_normal_suite(void)
{
    Suite *suite = suite_create("gpu_direct_normal");
    TCase *tcase = tcase_create("direct_normal");
    tcase_add_loop_test(tcase, normal_rows_and_sums_are_the_references, 0,
                        CASES * test_gpu_places());
    tcase_add_loop_test(tcase, twenty_repeats_on_any_number_of_multiprocessors_are_one_answer, 0,
                        test_gpu_places());
    suite_add_tcase(suite, tcase);
    return suite;
}
