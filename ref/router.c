/* ref/router.c - scores, group mask, top-k, weights: one token at a time on the stack. */
#include "ref/router.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/hot.h"
#include "ref/mathfn.h"
#include "ref/routing.h" /* REF_TOPK_MAX */

/* What differs between families; the model's own numbers come on top. */
static const struct {
    const char *name;
    enum ref_router_score score;
    enum ref_router_groups group_by;
    enum ref_router_weight weight;
    bool logits_bf16, weights_bf16, scaled;
} families[REF_ROUTER_COUNT] = {
    [REF_ROUTER_DEEPSEEK_V3] = {"deepseek-v3", REF_SCORE_SIGMOID, REF_GROUPS_TOP2, REF_WEIGHT_SHARE,
                                false, false, true},
    [REF_ROUTER_DEEPSEEK_V2] = {"deepseek-v2", REF_SCORE_SOFTMAX, REF_GROUPS_MAX, REF_WEIGHT_SCORE,
                                false, false, true},
    [REF_ROUTER_QWEN3] = {"qwen3", REF_SCORE_SOFTMAX, REF_GROUPS_MAX, REF_WEIGHT_SHARE, false, true,
                          false},
    [REF_ROUTER_MIXTRAL] = {"mixtral", REF_SCORE_SOFTMAX, REF_GROUPS_MAX, REF_WEIGHT_SHARE, false,
                            false, false},
    [REF_ROUTER_GPT_OSS] = {"gpt-oss", REF_SCORE_LOGIT, REF_GROUPS_MAX, REF_WEIGHT_SOFTMAX, true,
                            true, false},
    [REF_ROUTER_LLAMA4] = {"llama4", REF_SCORE_LOGIT, REF_GROUPS_MAX, REF_WEIGHT_SIGMOID, false,
                           false, false},
    [REF_ROUTER_MINIMAX_M2] = {"minimax-m2", REF_SCORE_SIGMOID, REF_GROUPS_MAX, REF_WEIGHT_SHARE,
                               false, false, true},
    [REF_ROUTER_OLMOE] = {"olmoe", REF_SCORE_SOFTMAX, REF_GROUPS_MAX, REF_WEIGHT_SCORE, false,
                          false, false},
    [REF_ROUTER_DEEPSEEK_V4] = {"deepseek-v4", REF_SCORE_SQRT_SOFTPLUS, REF_GROUPS_MAX,
                                REF_WEIGHT_SHARE, false, false, true},
};

const char *ref_router_name(enum ref_router family)
{
    assert((unsigned)family < REF_ROUTER_COUNT);
    return families[family].name;
}

bool ref_router_parse(const char *name, enum ref_router *out)
{
    assert(name != NULL && out != NULL);
    for (unsigned i = 0; i < REF_ROUTER_COUNT; i++) {
        if (strcmp(name, families[i].name) != 0) continue;
        *out = (enum ref_router)i;
        return true;
    }
    return false;
}

struct ref_router_rule ref_router_rule_of(enum ref_router family, uint32_t experts, uint32_t topk)
{
    struct ref_router_rule rule;

    assert((unsigned)family < REF_ROUTER_COUNT);
    memset(&rule, 0, sizeof rule);
    rule.score = families[family].score;
    rule.group_by = families[family].group_by;
    rule.weight = families[family].weight;
    rule.logits_bf16 = families[family].logits_bf16;
    rule.weights_bf16 = families[family].weights_bf16;
    rule.scaled = families[family].scaled;
    rule.scale = 1.0f;
    rule.experts = experts;
    rule.topk = topk;
    return rule;
}

int ref_router_check(const struct ref_router_rule *rule, char *err, size_t err_len)
{
    uint32_t choosable = rule->experts;

    if (rule->experts < 1 || rule->experts > REF_ROUTER_EXPERTS_MAX) {
        snprintf(err, err_len, "router: %u experts: 1 to %d are allowed", rule->experts,
                 REF_ROUTER_EXPERTS_MAX);
        return -1;
    }
    if (rule->groups > 1) {
        const uint32_t least = rule->group_by == REF_GROUPS_TOP2 ? 2 : 1;
        if (rule->experts % rule->groups != 0 || rule->experts / rule->groups < least) {
            snprintf(err, err_len,
                     "router: %u groups of %u experts: groups must be equal, of at least %u",
                     rule->groups, rule->experts, least);
            return -1;
        }
        if (rule->groups_kept < 1 || rule->groups_kept > rule->groups) {
            snprintf(err, err_len, "router: %u groups kept: 1 to %u are allowed", rule->groups_kept,
                     rule->groups);
            return -1;
        }
        choosable = rule->experts / rule->groups * rule->groups_kept;
    }
    const uint32_t most = choosable < REF_TOPK_MAX ? choosable : REF_TOPK_MAX;
    if (rule->topk < 1 || rule->topk > most) {
        snprintf(err, err_len, "router: top-%u: 1 to %u are allowed", rule->topk, most);
        return -1;
    }
    return 0;
}

/* Arrays of scores have room for, and functions run over, a whole number of these: a loop of
 * known length becomes vector code. Values past the count are finite and never read. */
enum { LANES = 16 };

/* x = exp(x - max) */
REF_HOT static void exp_lanes(float *restrict x, uint32_t count, float max)
{
    for (uint32_t i = 0; i < count; i += LANES, x += LANES)
        for (int l = 0; l < LANES; l++) x[l] = ref_exp(x[l] - max);
}

REF_HOT static void divide_lanes(float *restrict x, uint32_t count, float by)
{
    for (uint32_t i = 0; i < count; i += LANES, x += LANES)
        for (int l = 0; l < LANES; l++) x[l] = x[l] / by;
}

REF_HOT static void sigmoid_lanes(float *restrict x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += LANES, x += LANES)
        for (int l = 0; l < LANES; l++) x[l] = ref_sigmoid(x[l]);
}

REF_HOT static void softplus_lanes(float *restrict x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += LANES, x += LANES)
        for (int l = 0; l < LANES; l++) x[l] = ref_softplus(x[l]);
}

/* Softmax in place: maximum, sum over ascending index, one division each. */
static void softmax(float *x, uint32_t count)
{
    float max = x[0], sum = 0;
    for (uint32_t i = 1; i < count; i++) max = x[i] > max ? x[i] : max;
    exp_lanes(x, count, max);
    for (uint32_t i = 0; i < count; i++) sum += x[i];
    divide_lanes(x, count, sum);
}

static void score_all(const struct ref_router_rule *rule, float *x)
{
    switch (rule->score) {
    case REF_SCORE_SOFTMAX: softmax(x, rule->experts); break;
    case REF_SCORE_SIGMOID: sigmoid_lanes(x, rule->experts); break;
    case REF_SCORE_SQRT_SOFTPLUS:
        softplus_lanes(x, rule->experts);
        for (uint32_t e = 0; e < rule->experts; e++) x[e] = sqrtf(x[e]);
        break;
    case REF_SCORE_LOGIT:
    default: break;
    }
}

/* The indices of the k largest values, value descending, then index ascending. A value goes in
 * behind all that are at least as large, so an equal one that came first stays first. */
static void top_indices(const float *values, uint32_t count, uint32_t k, uint32_t *out)
{
    uint32_t held = 0;

    assert(k >= 1 && k <= count && k <= REF_TOPK_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (held == k && values[i] <= values[out[k - 1]]) continue;
        uint32_t at = held < k ? held++ : k - 1;
        for (; at > 0 && values[out[at - 1]] < values[i]; at--) out[at] = out[at - 1];
        out[at] = i;
    }
}

static float group_score(enum ref_router_groups by, const float *choice, uint32_t size)
{
    float best = choice[0], second = -INFINITY;
    for (uint32_t i = 1; i < size; i++) {
        if (choice[i] > best) {
            second = best;
            best = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return by == REF_GROUPS_TOP2 ? best + second : best;
}

/* Sets the choice values of every group but the best groups_kept to -infinity. */
static void mask_groups(const struct ref_router_rule *rule, float *choice)
{
    const uint32_t size = rule->experts / rule->groups;
    float scores[REF_ROUTER_EXPERTS_MAX];

    for (uint32_t g = 0; g < rule->groups; g++)
        scores[g] = group_score(rule->group_by, choice + g * size, size);
    for (uint32_t g = 0; g < rule->groups; g++) {
        uint32_t better = 0;
        for (uint32_t o = 0; o < rule->groups; o++)
            better += scores[o] > scores[g] || (scores[o] == scores[g] && o < g);
        if (better < rule->groups_kept) continue;
        for (uint32_t e = 0; e < size; e++) choice[g * size + e] = -INFINITY;
    }
}

static void weigh(const struct ref_router_rule *rule, const float *score, const uint32_t *chosen,
                  float *out)
{
    float weights[REF_TOPK_MAX] = {0}, sum = 0;

    for (uint32_t k = 0; k < rule->topk; k++) weights[k] = score[chosen[k]];
    switch (rule->weight) {
    case REF_WEIGHT_SHARE:
        for (uint32_t k = 0; k < rule->topk; k++) sum += weights[k];
        for (uint32_t k = 0; k < rule->topk; k++) weights[k] /= sum == 0 ? 1.0f : sum;
        break;
    case REF_WEIGHT_SOFTMAX: softmax(weights, rule->topk); break;
    case REF_WEIGHT_SIGMOID: sigmoid_lanes(weights, rule->topk); break;
    case REF_WEIGHT_SCORE:
    default: break;
    }
    for (uint32_t k = 0; k < rule->topk; k++) {
        if (rule->scaled) weights[k] *= rule->scale;
        if (rule->weights_bf16) weights[k] = ref_bf16_to_f32(ref_bf16_from_f32(weights[k]));
        out[k] = weights[k];
    }
}

/* Index of the first NaN, or count. */
static uint32_t first_nan(const float *x, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && !ref_math_is_nan(x[i])) i++;
    return i;
}

/* One token; returns the expert whose value is NaN, or rule->experts when all is well. */
static uint32_t route_token(const struct ref_router_rule *rule, const float *logits,
                            const float *bias, int64_t *ids, float *weights)
{
    const uint32_t experts = rule->experts;
    float score[REF_ROUTER_EXPERTS_MAX], choice[REF_ROUTER_EXPERTS_MAX];
    uint32_t chosen[REF_TOPK_MAX];

    const uint32_t bad_logit = first_nan(logits, experts);
    if (bad_logit < experts) return bad_logit;
    for (uint32_t e = 0; e < experts; e++)
        score[e] = rule->logits_bf16 ? ref_bf16_to_f32(ref_bf16_from_f32(logits[e])) : logits[e];
    for (uint32_t e = experts; e % LANES != 0; e++) score[e] = 0;
    score_all(rule, score);
    for (uint32_t e = 0; e < experts; e++) choice[e] = bias == NULL ? score[e] : score[e] + bias[e];
    const uint32_t bad_choice = first_nan(choice, experts);
    if (bad_choice < experts) return bad_choice;

    if (rule->groups > 1) mask_groups(rule, choice);
    top_indices(choice, experts, rule->topk, chosen);
    for (uint32_t k = 0; k < rule->topk; k++) ids[k] = chosen[k];
    weigh(rule, score, chosen, weights);
    return experts;
}

int ref_router_topk(const struct ref_router_rule *rule, const float *logits, const float *bias,
                    uint64_t tokens, int64_t *ids, float *weights, char *err, size_t err_len)
{
    assert(ref_router_check(rule, err, err_len) == 0);
    assert(tokens == 0 || (logits != NULL && ids != NULL && weights != NULL));
    for (uint64_t t = 0; t < tokens; t++) {
        const uint32_t bad = route_token(rule, logits + t * rule->experts, bias,
                                         ids + t * rule->topk, weights + t * rule->topk);
        if (bad == rule->experts) continue;
        snprintf(err, err_len, "router: token %llu, expert %u: logit or score is not a number",
                 (unsigned long long)t, bad);
        return -1;
    }
    return 0;
}
