/* tests/test_router.c - ids and weights of each family, ties, masks and refusals.
 *
 * Pinned rows come from an independent implementation in double (numpy): ids must be equal, the
 * weights within a few fp32 roundings. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/digest.h"
#include "ref/router.h"
#include "tests/support.h"

enum { EXPERTS_MAX = 256, TOPK_MAX = 8 };

/* Multiples of 2^-10 in [-8, 8), so exact in any arithmetic. */
static void fill_logits(uint64_t seed, uint32_t experts, float *logits)
{
    for (uint64_t e = 0; e < experts; e++) {
        const uint64_t z = ref_digest_scramble((seed * 1000003 + e + 1) * REF_DIGEST_STEP);
        logits[e] = (float)(z >> 50) / 1024.0f - 8.0f;
    }
}

static void fill_bias(uint32_t experts, float *bias)
{
    for (uint64_t e = 0; e < experts; e++) {
        const uint64_t z = ref_digest_scramble((777000 + e) * REF_DIGEST_STEP);
        bias[e] = (float)(z >> 56) / 1024.0f - 0.125f;
    }
}

static const struct pinned {
    const char *family;
    uint64_t seed;
    uint32_t experts, topk, groups, groups_kept;
    bool biased;
    float scale;
    int64_t ids[TOPK_MAX];
    double weights[TOPK_MAX];
} pinned[] = {
    {"deepseek-v3",
     1,
     256,
     8,
     8,
     4,
     true,
     2.5f,
     {108, 192, 6, 44, 8, 99, 59, 62},
     {0.314582418, 0.313130951, 0.315066334, 0.312693773, 0.311868014, 0.311616195, 0.315019691,
      0.306022625}},
    {"deepseek-v2",
     2,
     160,
     6,
     8,
     3,
     false,
     16,
     {11, 88, 139, 121, 10, 14},
     {1.19179617, 1.13168055, 0.999680356, 0.823118065, 0.717235569, 0.614683474}},
    {"qwen3",
     3,
     128,
     8,
     0,
     0,
     false,
     1,
     {45, 36, 77, 95, 61, 5, 101, 107},
     {0.180664062, 0.151367188, 0.129882812, 0.12890625, 0.108398438, 0.107421875, 0.0971679688,
      0.0966796875}},
    {"mixtral", 4, 8, 2, 0, 0, false, 1, {6, 0}, {0.973266138, 0.0267338621}},
    {"gpt-oss",
     5,
     32,
     4,
     0,
     0,
     false,
     1,
     {25, 8, 29, 14},
     {0.296875, 0.271484375, 0.26171875, 0.169921875}},
    {"llama4", 6, 16, 1, 0, 0, false, 1, {9}, {0.999352534}},
    {"minimax-m2",
     7,
     256,
     8,
     0,
     0,
     true,
     1,
     {197, 63, 8, 196, 85, 181, 216, 153},
     {0.125259186, 0.124872215, 0.123898161, 0.124473369, 0.125222791, 0.125458074, 0.125293804,
      0.125522401}},
    {"olmoe",
     8,
     64,
     8,
     0,
     0,
     false,
     1,
     {56, 9, 42, 17, 40, 5, 25, 20},
     {0.235132875, 0.210771747, 0.148876862, 0.10302333, 0.0646595076, 0.054342523, 0.0489985844,
      0.0424047404}},
    {"deepseek-v4",
     9,
     256,
     6,
     0,
     0,
     true,
     1.5f,
     {137, 95, 69, 206, 45, 130},
     {0.256878943, 0.248730303, 0.250569248, 0.247649967, 0.246251709, 0.249919829}},
};

static struct ref_router_rule rule_of(const struct pinned *row)
{
    enum ref_router family;
    ck_assert(ref_router_parse(row->family, &family));
    ck_assert_str_eq(ref_router_name(family), row->family);
    struct ref_router_rule rule = ref_router_rule_of(family, row->experts, row->topk);
    rule.groups = row->groups;
    rule.groups_kept = row->groups_kept;
    rule.scale = row->scale;
    return rule;
}

START_TEST(each_family_matches_an_independent_implementation)
{
    const struct pinned *row = &pinned[_i];
    const struct ref_router_rule rule = rule_of(row);
    float logits[EXPERTS_MAX], bias[EXPERTS_MAX], weights[TOPK_MAX];
    int64_t ids[TOPK_MAX];
    char err[200] = "";

    fill_logits(row->seed, row->experts, logits);
    fill_bias(row->experts, bias);
    ck_assert_msg(ref_router_topk(&rule, logits, row->biased ? bias : NULL, 1, ids, weights, err,
                                  sizeof err) == 0,
                  "%s", err);
    for (uint32_t k = 0; k < row->topk; k++) {
        ck_assert_int_eq(ids[k], row->ids[k]);
        ck_assert_double_eq_tol((double)weights[k], row->weights[k], 1e-6 * row->weights[k]);
        if (rule.weights_bf16) ck_assert_uint_eq(ref_f32_bits(weights[k]) & 0xFFFF, 0);
    }
}
END_TEST

/* Routes one token of `experts` logits; fails the test where that is refused. */
static void route(const struct ref_router_rule *rule, const float *logits, const float *bias,
                  int64_t *ids, float *weights)
{
    char err[200] = "";
    ck_assert_msg(ref_router_topk(rule, logits, bias, 1, ids, weights, err, sizeof err) == 0, "%s",
                  err);
}

START_TEST(equal_values_go_to_the_lower_index)
{
    float logits[EXPERTS_MAX] = {0}, weights[TOPK_MAX];
    int64_t ids[TOPK_MAX];
    struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_OLMOE, 256, 8);
    route(&rule, logits, NULL, ids, weights);
    for (int k = 0; k < 8; k++) {
        ck_assert_int_eq(ids[k], k);
        ck_assert_float_eq(weights[k], 0.00390625f);
    }
    logits[200] = 1.0f;
    logits[77] = -0.0f; /* Equal to 0, not below it. */
    route(&rule, logits, NULL, ids, weights);
    ck_assert_int_eq(ids[0], 200);
    for (int k = 1; k < 8; k++) ck_assert_int_eq(ids[k], k - 1);

    rule = ref_router_rule_of(REF_ROUTER_DEEPSEEK_V3, 256, 8); /* All groups equal, too. */
    rule.groups = 8;
    rule.groups_kept = 4;
    logits[200] = 0;
    route(&rule, logits, NULL, ids, weights);
    for (int k = 0; k < 8; k++) ck_assert_int_eq(ids[k], k);
}
END_TEST

START_TEST(rounding_logits_to_bf16_makes_ties)
{
    /* 1 + 2^-9 rounds to 1 in bf16: expert 0 wins although 3 is larger in fp32. */
    const float logits[4] = {1.0f, 0.5f, 0.25f, 1.001953125f};
    float weights[2];
    int64_t ids[2];
    struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_GPT_OSS, 4, 2);
    route(&rule, logits, NULL, ids, weights);
    ck_assert_int_eq(ids[0], 0);
    ck_assert_int_eq(ids[1], 3);
    ck_assert_float_eq(weights[0], 0.5f);
    ck_assert_float_eq(weights[1], 0.5f);
    rule.logits_bf16 = false;
    route(&rule, logits, NULL, ids, weights);
    ck_assert_int_eq(ids[0], 3);
}
END_TEST

START_TEST(groups_count_by_their_two_best_or_their_best)
{
    /* Group 0: 3, 0 - group 1: 2, 2 - group 2: 1, 1 (sigmoids order the same way). */
    const float logits[6] = {3, -9, 2, 2, 1, 1};
    float weights[2];
    int64_t ids[2];
    struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_DEEPSEEK_V3, 6, 2);
    rule.groups = 3;
    rule.groups_kept = 1;
    route(&rule, logits, NULL, ids, weights); /* .95 + .00 against .88 + .88 */
    ck_assert_int_eq(ids[0], 2);
    ck_assert_int_eq(ids[1], 3);
    rule.group_by = REF_GROUPS_MAX;
    route(&rule, logits, NULL, ids, weights);
    ck_assert_int_eq(ids[0], 0);
    ck_assert_int_eq(ids[1], 1);
}
END_TEST

START_TEST(a_lost_group_never_wins_against_negative_scores)
{
    /* The bias makes every kept score negative: a mask of 0 would choose experts 2 and 3. */
    const float logits[4] = {0, 0, -1, -1};
    const float bias[4] = {-2, -2, -2, -2};
    float weights[2];
    int64_t ids[2];
    struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_DEEPSEEK_V3, 4, 2);
    rule.groups = 2;
    rule.groups_kept = 1;
    route(&rule, logits, bias, ids, weights);
    ck_assert_int_eq(ids[0], 0);
    ck_assert_int_eq(ids[1], 1);
    ck_assert_float_eq(weights[0], 0.5f); /* Weights come from the scores without bias. */
}
END_TEST

START_TEST(bias_moves_the_choice_but_not_the_weight)
{
    const float logits[3] = {1.0f, 0.0f, -1.0f};
    const float bias[3] = {0.0f, 0.0f, 10.0f};
    float weights[2];
    int64_t ids[2];
    const struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_MINIMAX_M2, 3, 2);
    route(&rule, logits, bias, ids, weights);
    ck_assert_int_eq(ids[0], 2);
    ck_assert_int_eq(ids[1], 0);
    ck_assert_float_eq_tol(weights[0], 0.26894143f, 1e-6f); /* sigmoid(-1) + sigmoid(1) = 1 */
    ck_assert_float_eq_tol(weights[1], 0.73105860f, 1e-6f);
}
END_TEST

START_TEST(scores_that_sum_to_zero_give_weights_of_zero)
{
    const float logits[2] = {-200.0f, -300.0f};
    float weights[2];
    int64_t ids[2];
    const struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_MINIMAX_M2, 2, 2);
    route(&rule, logits, NULL, ids, weights);
    ck_assert_uint_eq(ref_f32_bits(weights[0]), 0);
    ck_assert_uint_eq(ref_f32_bits(weights[1]), 0);
}
END_TEST

START_TEST(nan_is_refused_by_token_and_expert)
{
    float logits[8] = {0, 1, 2, 3, 4, 5, NAN, 7}, weights[4], bias[4] = {0, NAN, 0, 0};
    int64_t ids[4];
    char err[200] = "";
    const struct ref_router_rule rule = ref_router_rule_of(REF_ROUTER_DEEPSEEK_V3, 4, 2);
    ck_assert_int_eq(ref_router_topk(&rule, logits, NULL, 2, ids, weights, err, sizeof err), -1);
    TEST_SAYS(err, "token 1, expert 2");
    ck_assert_int_eq(ref_router_topk(&rule, logits, bias, 1, ids, weights, err, sizeof err), -1);
    TEST_SAYS(err, "token 0, expert 1");
    const struct ref_router_rule softmax = ref_router_rule_of(REF_ROUTER_OLMOE, 4, 2);
    logits[0] = INFINITY; /* Infinity minus infinity. */
    ck_assert_int_eq(ref_router_topk(&softmax, logits, NULL, 1, ids, weights, err, sizeof err), -1);
    logits[0] = -INFINITY; /* Probability 0: data, not an error. */
    ck_assert_int_eq(ref_router_topk(&softmax, logits, NULL, 1, ids, weights, err, sizeof err), 0);
}
END_TEST

START_TEST(impossible_rules_are_refused_by_number)
{
    static const struct {
        uint32_t experts, topk, groups, groups_kept;
        const char *part;
    } rows[] = {
        {0, 1, 0, 0, "0 experts"},       {1025, 1, 0, 0, "1025 experts"},
        {8, 0, 0, 0, "top-0"},           {8, 9, 0, 0, "top-9: 1 to 8"},
        {256, 33, 0, 0, "1 to 32"},      {256, 8, 3, 1, "3 groups of 256"},
        {256, 8, 256, 8, "at least 2"},  {256, 8, 8, 0, "0 groups kept"},
        {256, 8, 8, 9, "9 groups kept"}, {16, 5, 8, 2, "top-5: 1 to 4"},
    };
    char err[200];
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ref_router_rule rule =
            ref_router_rule_of(REF_ROUTER_DEEPSEEK_V3, rows[i].experts, rows[i].topk);
        rule.groups = rows[i].groups;
        rule.groups_kept = rows[i].groups_kept;
        err[0] = '\0';
        ck_assert_int_eq(ref_router_check(&rule, err, sizeof err), -1);
        TEST_SAYS(err, rows[i].part);
    }
    enum ref_router family;
    ck_assert(!ref_router_parse("deepseek-v5", &family));
}
END_TEST

Suite *router_suite(void)
{
    Suite *suite = suite_create("router");
    TCase *tests = tcase_create("router");
    tcase_add_loop_test(tests, each_family_matches_an_independent_implementation, 0,
                        (int)(sizeof pinned / sizeof pinned[0]));
    tcase_add_test(tests, equal_values_go_to_the_lower_index);
    tcase_add_test(tests, rounding_logits_to_bf16_makes_ties);
    tcase_add_test(tests, groups_count_by_their_two_best_or_their_best);
    tcase_add_test(tests, a_lost_group_never_wins_against_negative_scores);
    tcase_add_test(tests, bias_moves_the_choice_but_not_the_weight);
    tcase_add_test(tests, scores_that_sum_to_zero_give_weights_of_zero);
    tcase_add_test(tests, nan_is_refused_by_token_and_expert);
    tcase_add_test(tests, impossible_rules_are_refused_by_number);
    suite_add_tcase(suite, tests);
    return suite;
}
