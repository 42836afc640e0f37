/* tests/gpu_router.c - ids and weights of every family of routers are the reference's, bit by bit.
 *
 * Method: random logits with many exact ties, with and without bias, groups where the family has
 * them, 6 to 1024 experts; and a NaN, which must be refused with the reference's words. */
#include "ref/router.h"
#include "tests/gpu_support.h"

Suite *gpu_router_suite(void);

enum { RANKS = 3, TOKENS = 41 };
static const uint64_t rank_start[RANKS + 1] = {0, 17, 17, TOKENS};

enum part { LOGITS, BIAS, IDS, WEIGHTS, PARTS };

struct shape {
    uint32_t experts, topk, groups, groups_kept;
};
static const struct shape shapes[] = {{6, 2, 0, 0},    {16, 1, 4, 2},   {64, 6, 8, 3},
                                      {256, 8, 8, 4},  {160, 6, 8, 3},  {1024, 32, 0, 0},
                                      {100, 32, 0, 0}, {33, 4, 11, 11}, {512, 10, 64, 40}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static struct gpu_router_rule rule_on_gpu(const struct ref_router_rule *rule)
{
    return (struct gpu_router_rule){rule->score,       rule->group_by,     rule->weight,
                                    rule->logits_bf16, rule->weights_bf16, rule->scaled,
                                    rule->scale,       rule->experts,      rule->topk,
                                    rule->groups,      rule->groups_kept};
}

static void plan(struct gpu *gpu, const struct ref_router_rule *rule, const float *logits,
                 const float *bias)
{
    const struct gpu_part parts[PARTS] = {[LOGITS] = {rank_start, 0, rule->experts * sizeof(float)},
                                          [BIAS] = {NULL, rule->experts, sizeof(float)},
                                          [IDS] = {rank_start, 0, rule->topk * sizeof(int64_t)},
                                          [WEIGHTS] = {rank_start, 0, rule->topk * sizeof(float)}};
    TEST_GPU(gpu_plan, gpu, RANKS, parts, PARTS);
    for (uint32_t p = 0; p < PARTS; p++) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, LOGITS), logits);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, BIAS), bias);
}

static int route(struct gpu *gpu, const struct ref_router_rule *rule, bool with_bias, char *err,
                 size_t err_len)
{
    const struct gpu_router_rule on_gpu = rule_on_gpu(rule);
    return gpu_router_topk(gpu, &on_gpu, 0, RANKS, gpu_plan_buffer(gpu, LOGITS),
                           with_bias ? gpu_plan_buffer(gpu, BIAS) : NULL, gpu_plan_buffer(gpu, IDS),
                           gpu_plan_buffer(gpu, WEIGHTS), err, err_len);
}

static struct ref_router_rule rule_of(int family, int shape)
{
    struct ref_router_rule rule =
        ref_router_rule_of((enum ref_router)family, shapes[shape].experts, shapes[shape].topk);
    rule.groups = shapes[shape].groups;
    rule.groups_kept = shapes[shape].groups_kept;
    if (rule.scaled) rule.scale = 2.446f;
    return rule;
}

START_TEST(ids_and_weights_are_the_references)
{
    const int family = _i / SHAPES % REF_ROUTER_COUNT, place = _i / SHAPES / REF_ROUTER_COUNT;
    const struct ref_router_rule rule = rule_of(family, _i % SHAPES);
    const bool with_bias = rule.score == REF_SCORE_SIGMOID;
    float *logits = TEST_ARRAY(float, TOKENS *rule.experts);
    float *bias = TEST_ARRAY(float, rule.experts);
    int64_t *ids = TEST_ARRAY(int64_t, TOKENS * rule.topk);
    float *weights = TEST_ARRAY(float, TOKENS *rule.topk);
    uint64_t state = (uint64_t)_i + 1;
    char err[256] = "";

    ck_assert_msg(ref_router_check(&rule, err, sizeof err) == 0, "%s", err);
    for (uint64_t i = 0; i < TOKENS * rule.experts; i++)
        logits[i] = (float)((int32_t)test_below(&state, 400) - 200) / 16.0f;
    for (uint32_t e = 0; e < rule.experts; e++)
        bias[e] = (float)((int32_t)test_below(&state, 64) - 32) / 64.0f;
    ck_assert_int_eq(ref_router_topk(&rule, logits, with_bias ? bias : NULL, TOKENS, ids, weights,
                                     err, sizeof err),
                     0);
    struct gpu *gpu = test_gpu_open(place);
    plan(gpu, &rule, logits, bias);
    ck_assert_msg(route(gpu, &rule, with_bias, err, sizeof err) == 0, "%s", err);
    const char *name = ref_router_name((enum ref_router)family);
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, IDS), ids, TOKENS * rule.topk * 8, name,
                    (uint64_t)_i);
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, WEIGHTS), weights, TOKENS * rule.topk * 4, name,
                    (uint64_t)_i);
    gpu_close(gpu);
}
END_TEST

START_TEST(a_nan_is_refused_in_the_same_words)
{
    const struct ref_router_rule rule = rule_of(REF_ROUTER_QWEN3, 2);
    float *logits = TEST_ARRAY(float, TOKENS *rule.experts);
    float *bias = TEST_ARRAY(float, rule.experts);
    int64_t *ids = TEST_ARRAY(int64_t, TOKENS * rule.topk);
    float *weights = TEST_ARRAY(float, TOKENS *rule.topk);
    const uint32_t nan = 0xFFC00001u;
    char expected[256] = "", err[256] = "";

    memcpy(&logits[(uint64_t)30 * rule.experts + 7], &nan, sizeof nan);
    memcpy(&logits[(uint64_t)20 * rule.experts + 9], &nan, sizeof nan);
    ck_assert_int_eq(
        ref_router_topk(&rule, logits, NULL, TOKENS, ids, weights, expected, sizeof expected), -1);
    struct gpu *gpu = test_gpu_open(_i);
    plan(gpu, &rule, logits, bias);
    ck_assert_int_eq(route(gpu, &rule, false, err, sizeof err), -1);
    ck_assert_str_eq(err, expected);
    gpu_close(gpu);
}
END_TEST

Suite *gpu_router_suite(void)
{
    Suite *suite = suite_create("router");
    TCase *tests = tcase_create("router");
    tcase_add_loop_test(tests, ids_and_weights_are_the_references, 0,
                        REF_ROUTER_COUNT * SHAPES * test_gpu_places());
    tcase_add_loop_test(tests, a_nan_is_refused_in_the_same_words, 0, test_gpu_places());
    suite_add_tcase(suite, tests);
    return suite;
}
