/* tests/gpu_direct_ll.c - low-latency dispatch and combine by peer stores and loads give the
 * reference's bytes, however ranks are spread, on any number of multiprocessors, time after time.
 *
 * Method: every hidden size of the library's list, every recipe it has, 1 to 64 ranks; one launch
 * and the two of hook mode take turns, with other SM counts. */
#include "ref/ll.h"
#include "tests/gpu_direct.h"

Suite *gpu_direct_ll_suite(void);

static const struct direct_case cases[] = {
    /* The first ones are small enough for the sanitizers. */
    {2, 8, 2, 512, 5, REF_RECIPE_LL, MASKED},
    {2, 8, 2, 640, 5, REF_RECIPE_BF16, DUPLICATES},
    {4, 8, 3, 1024, 9, REF_RECIPE_LL_UE8M0, EMPTY},
    {2, 64, 8, 7168, 8, REF_RECIPE_LL, UNIFORM},
    {2, 64, 8, 7168, 128, REF_RECIPE_LL, UNIFORM},
    {2, 64, 8, 7168, 128, REF_RECIPE_LL_ROUND, SPECIAL},
    {2, 64, 8, 7168, 128, REF_RECIPE_LL_UE8M0, MASKED},
    {2, 64, 8, 7168, 128, REF_RECIPE_BF16, DUPLICATES},
    {2, 64, 8, 7168, 1024, REF_RECIPE_LL, UNIFORM},
    {1, 16, 4, 2048, 33, REF_RECIPE_LL, UNIFORM},
    {2, 16, 4, 2048, 0, REF_RECIPE_LL, UNIFORM},
    {2, 16, 1, 2560, 7, REF_RECIPE_LL, SPECIAL},
    {4, 32, 6, 3072, 65, REF_RECIPE_LL_UE8M0, EMPTY},
    {4, 32, 9, 4096, 40, REF_RECIPE_BF16, SPECIAL},
    {8, 64, 11, 5120, 50, REF_RECIPE_LL, DUPLICATES},
    {8, 256, 8, 6144, 64, REF_RECIPE_LL_ROUND, MASKED},
    {8, 64, 2, 8192, 200, REF_RECIPE_LL, HOT},
    {16, 64, 8, 2048, 24, REF_RECIPE_LL_UE8M0, EMPTY},
    {64, 256, 8, 2048, 6, REF_RECIPE_LL, MASKED},
};
enum { CASES = sizeof cases / sizeof cases[0], SMALL = 3, REPEATED = 4 };

static void make_truth(struct direct_bench *bench)
{
    const struct direct_case *shape = &bench->shape;
    const struct ref_routing *routing = &bench->made.routing;
    const uint64_t blocks = (uint64_t)shape->experts * shape->ranks, hidden = shape->hidden;
    const uint64_t payload_bytes = ref_ll_payload_bytes(shape->hidden, shape->recipe);
    const uint32_t groups = ref_scale_groups(shape->hidden);
    uint64_t *block_start = CASE_ARRAY(bench, uint64_t, blocks + 1), state = bench->made.seed + 1;
    uint64_t *scratch = CASE_ARRAY(bench, uint64_t, shape->experts);
    uint64_t *each = CASE_ARRAY(bench, uint64_t, shape->ranks + 1);
    struct ref_ll_rows want;

    memset(&want, 0, sizeof want);
    const uint64_t rows = ref_ll_blocks(routing, block_start);
    const uint64_t *start = case_rank_rows(bench, block_start, shape->experts);
    for (uint64_t r = 0; r <= shape->ranks; r++) each[r] = r;
    want.payload = (uint8_t *)case_alloc(bench, rows, payload_bytes);
    want.src_token = CASE_ARRAY(bench, int32_t, rows);
    want.counts = CASE_ARRAY(bench, int32_t, blocks);
    if (ref_recipe_scales(shape->recipe) == REF_SCALE_F32) {
        want.scales = CASE_ARRAY(bench, float, rows *groups);
        case_output(bench, SCALES, start, groups * sizeof(float), want.scales);
    } else if (ref_recipe_scales(shape->recipe) == REF_SCALE_UE8M0) {
        const uint64_t words = ref_scale_packed_words(groups);
        want.scales_ue8m0 = CASE_ARRAY(bench, uint32_t, rows * words);
        case_output(bench, SCALES, start, words * sizeof(uint32_t), want.scales_ue8m0);
    }
    ref_ll_dispatch(routing, shape->hidden, shape->recipe, bench->made.x, block_start, scratch,
                    &want);
    uint16_t *expert_out = case_rows(bench, &state, rows * hidden);
    uint16_t *combined = CASE_ARRAY(bench, uint16_t, bench->made.tokens * hidden);
    ref_ll_combine(routing, shape->hidden, expert_out, block_start, scratch, combined);
    case_input(bench, X, routing->token_start, 2 * hidden, bench->made.x);
    case_output(bench, PAYLOAD, start, payload_bytes, want.payload);
    case_output(bench, SRC_TOKEN, start, sizeof(int32_t), want.src_token);
    case_output(bench, COUNTS, each, shape->experts * sizeof(int32_t), want.counts);
    case_input(bench, EXPERT_OUT, start, 2 * hidden, expert_out);
    case_output(bench, COMBINED, routing->token_start, 2 * hidden, combined);
}

/* In one launch a rank, or, every other round, in two. */
static void play(const struct direct_bench *bench, struct gpu *gpu, struct gpu_direct *direct,
                 const struct gpu_routing *routing, uint32_t round)
{
    const bool hooked = round % 2 == 1;
    const bool packed = ref_recipe_scales(bench->shape.recipe) == REF_SCALE_UE8M0;
    struct gpu_buffer *scales = gpu_plan_buffer(gpu, SCALES);
    const struct gpu_ll_rows rows = {.payload = gpu_plan_buffer(gpu, PAYLOAD),
                                     .scales = packed ? NULL : scales,
                                     .scales_ue8m0 = packed ? scales : NULL,
                                     .src_token = gpu_plan_buffer(gpu, SRC_TOKEN),
                                     .counts = gpu_plan_buffer(gpu, COUNTS)};
    static const enum gpu_direct_phase phases[2][2] = {{GPU_DIRECT_BOTH, GPU_DIRECT_BOTH},
                                                       {GPU_DIRECT_SEND, GPU_DIRECT_RECEIVE}};
    for (int i = 0; i < (hooked ? 2 : 1); i++)
        TEST_GPU(gpu_direct_ll_dispatch, direct, phases[hooked][i], routing, bench->shape.recipe,
                 gpu_plan_buffer(gpu, X), &rows);
    for (int i = 0; i < (hooked ? 2 : 1); i++)
        TEST_GPU(gpu_direct_ll_combine, direct, phases[hooked][i], routing,
                 gpu_plan_buffer(gpu, EXPERT_OUT), gpu_plan_buffer(gpu, COMBINED));
    TEST_GPU(gpu_direct_wait, direct);
}

static void run_case(const struct direct_case *shape, int place, uint32_t rounds)
{
    static const uint32_t sms[5] = {0, 1, 24, 131, 7};
    case_run(shape, place, true, 1000003u * shape->ranks + 7u * shape->tokens + shape->kind, sms,
             make_truth, play, rounds);
}

START_TEST(low_latency_rows_and_sums_are_the_references)
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

START_TEST(more_gpus_than_ranks_is_refused)
{
    struct direct_bench bench;
    struct gpu_direct *direct = NULL;
    char err[256] = "";

    if (test_gpu_count() < 2) return;
    struct gpu *gpu = test_gpu_open(1);
    case_make(&bench, &(struct direct_case){1, 4, 1, 512, 1, REF_RECIPE_LL, UNIFORM}, 1);
    make_truth(&bench);
    (void)case_upload(&bench, gpu);
    const struct gpu_direct_shape shape = {
        .ranks = 1, .experts = 4, .topk = 1, .hidden = 512, .tokens_max = 1, .ll = true};
    ck_assert_int_eq(gpu_direct_open(gpu, &shape, &direct, err, sizeof err), -1);
    ck_assert_str_eq(err, "cuda: 1 ranks on 2 GPUs: the direct transport needs a rank for each");
    gpu_close(gpu);
    case_free(&bench);
}
END_TEST

Suite *gpu_direct_ll_suite(void)
{
    Suite *suite = suite_create("gpu_direct_ll");
    TCase *tcase = tcase_create("direct_ll");
    tcase_add_loop_test(tcase, low_latency_rows_and_sums_are_the_references, 0,
                        CASES * test_gpu_places());
    tcase_add_loop_test(tcase, twenty_repeats_on_any_number_of_multiprocessors_are_one_answer, 0,
                        test_gpu_places());
    tcase_add_test(tcase, more_gpus_than_ranks_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
