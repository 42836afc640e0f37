/* sim/cause_combine.c - orders and roundings of a sum, tried on one row. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "ref/bf16.h"
#include "sim/cause.h"

enum order { AS_GIVEN, REVERSED, BY_EXPERT, BY_EXPERT_DOWN, BY_COLUMN };
enum step { FUSED, SEPARATE, ROUNDED_PRODUCT, ROUNDED_SUM, UNWEIGHTED };
enum group { NO_GROUP, BY_RANK, BY_NODE };
enum bias_place { BIAS_FIRST, BIAS_LAST, BIAS_ROUNDED, BIAS_NONE, BIAS_FIRST_ONLY };

struct recipe {
    enum order order;
    enum step step;
    enum group group;
    enum bias_place bias;
    bool bf16_weights;
    bool truncate;
    uint32_t skip;  /* A term left out; UINT32_MAX = none. */
    uint32_t twice; /* A term added twice; UINT32_MAX = none. */
    const char *text;
};

#define WHOLE .skip = UINT32_MAX, .twice = UINT32_MAX

static const struct recipe ll_recipes[] = {
    {WHOLE, .step = SEPARATE, .text = "separate multiply and add: not fused"},
    {WHOLE, .order = BY_EXPERT, .text = "fused adds by ascending expert, not by column"},
    {WHOLE, .order = REVERSED, .text = "fused adds by descending column"},
    {WHOLE, .order = BY_EXPERT_DOWN, .text = "fused adds by descending expert"},
    {WHOLE, .order = BY_EXPERT, .step = SEPARATE,
     .text = "separate multiply and add by ascending expert, not by column"},
    {WHOLE, .order = REVERSED, .step = SEPARATE,
     .text = "separate multiply and add by descending column"},
    {WHOLE, .bf16_weights = true, .text = "weights rounded to bf16 first"},
    {WHOLE, .bf16_weights = true, .step = SEPARATE,
     .text = "weights rounded to bf16 first, multiply and add separate"},
    {WHOLE, .group = BY_RANK,
     .text = "each rank's part rounded to bf16 before the sum (reduced at the sender)"},
    {WHOLE, .group = BY_RANK, .step = SEPARATE,
     .text = "each rank's part rounded to bf16 before the sum, multiply and add separate"},
    {WHOLE, .group = BY_NODE, .text = "each node's part rounded to bf16 before the sum"},
    {WHOLE, .step = ROUNDED_PRODUCT,
     .text = "weighted rows rounded to bf16 before the sum (weighted at the expert)"},
    {WHOLE, .step = ROUNDED_PRODUCT, .group = BY_RANK,
     .text = "weighted rows rounded to bf16, then each rank's part, before the sum"},
    {WHOLE, .step = ROUNDED_SUM, .text = "the running sum rounded to bf16 after every column"},
    {WHOLE, .step = UNWEIGHTED, .text = "a sum without the weights"},
    {WHOLE, .truncate = true, .text = "a sum rounded toward zero"},
};

static const struct recipe normal_recipes[] = {
    {WHOLE, .step = UNWEIGHTED,
     .text = "one sum over all ranks, rounded once: no rounding per node"},
    {WHOLE, .step = UNWEIGHTED, .group = BY_NODE,
     .text = "each node's part rounded to bf16 before the sum"},
    {WHOLE, .step = UNWEIGHTED, .order = REVERSED, .text = "ranks added in descending order"},
    {WHOLE, .step = UNWEIGHTED, .order = BY_COLUMN,
     .text = "ranks added by their highest column, as the second interface does"},
    {WHOLE, .step = ROUNDED_SUM, .text = "the running sum rounded to bf16 after every rank"},
    {WHOLE, .step = UNWEIGHTED, .bias = BIAS_LAST, .text = "biases added last instead of first"},
    {WHOLE, .step = UNWEIGHTED, .bias = BIAS_ROUNDED,
     .text = "the sum rounded to bf16 before the biases were added"},
    {WHOLE, .step = UNWEIGHTED, .bias = BIAS_NONE, .text = "a sum without the biases"},
    {WHOLE, .step = UNWEIGHTED, .bias = BIAS_FIRST_ONLY, .text = "a sum without the second bias"},
    {WHOLE, .step = SEPARATE, .text = "a sum weighted with the router's weights"},
    {WHOLE, .step = FUSED, .text = "a sum weighted with the router's weights, fused"},
    {WHOLE, .step = UNWEIGHTED, .truncate = true, .text = "a sum rounded toward zero"},
};

static float to_bf16(float value, bool truncate)
{
    if (truncate) return ref_f32_from_bits(ref_f32_bits(value) & 0xFFFF0000u);
    return ref_bf16_to_f32(ref_bf16_from_f32(value));
}

/* Does a come before b? Terms are few: an insertion sort by this is stable and plain. */
static bool before(const struct sim_cause_terms *terms, enum order order, uint32_t a, uint32_t b)
{
    switch (order) {
    case AS_GIVEN: return a < b;
    case REVERSED: return a > b;
    case BY_EXPERT: return terms->expert[a] < terms->expert[b];
    case BY_EXPERT_DOWN: return terms->expert[a] > terms->expert[b];
    case BY_COLUMN: return terms->column[a] < terms->column[b];
    }
    assert(false && "an order without a rule");
    return false;
}

static uint32_t place_of(const struct sim_cause_terms *terms, enum group group, uint32_t term)
{
    if (group == BY_RANK) return terms->rank[term];
    return group == BY_NODE ? terms->rank[term] / terms->ranks_per_node : 0;
}

static void arrange(const struct sim_cause_terms *terms, const struct recipe *recipe,
                    uint32_t at[REF_TOPK_MAX])
{
    for (uint32_t i = 0; i < terms->count; i++) {
        uint32_t hole = i;

        for (; hole > 0; hole--) {
            const uint32_t left = place_of(terms, recipe->group, at[hole - 1]);
            const uint32_t here = place_of(terms, recipe->group, i);

            if (left < here || (left == here && !before(terms, recipe->order, i, at[hole - 1])))
                break;
            at[hole] = at[hole - 1];
        }
        at[hole] = i;
    }
}

static float add_term(const struct sim_cause_terms *terms, const struct recipe *recipe, float sum,
                      uint32_t term, uint32_t channel)
{
    const float row = ref_bf16_to_f32(terms->row[term][channel]);
    const float weight =
        recipe->bf16_weights ? to_bf16(terms->weight[term], false) : terms->weight[term];

    switch (recipe->step) {
    case FUSED: return fmaf(row, weight, sum);
    case SEPARATE: {
        const float product = row * weight;
        return sum + product;
    }
    case ROUNDED_PRODUCT: {
        const float product = row * weight;
        return sum + to_bf16(product, false);
    }
    case ROUNDED_SUM: return to_bf16(terms->ll ? fmaf(row, weight, sum) : sum + row, false);
    case UNWEIGHTED: return sum + row;
    }
    assert(false && "a step without a rule");
    return 0.0f;
}

static float bias_sum(const struct sim_cause_terms *terms, enum bias_place place, uint32_t channel)
{
    float sum = 0.0f;

    if (place == BIAS_NONE) return sum;
    if (terms->bias[0] != NULL) sum = ref_bf16_to_f32(terms->bias[0][channel]);
    if (terms->bias[1] != NULL && place != BIAS_FIRST_ONLY)
        sum = sum + ref_bf16_to_f32(terms->bias[1][channel]);
    return sum;
}

static uint16_t sum_channel(const struct sim_cause_terms *terms, const struct recipe *recipe,
                            const uint32_t at[REF_TOPK_MAX], uint32_t channel)
{
    const bool late = recipe->bias == BIAS_LAST || recipe->bias == BIAS_ROUNDED;
    float total = late ? 0.0f : bias_sum(terms, recipe->bias, channel), part = 0.0f;

    for (uint32_t i = 0; i < terms->count; i++) {
        const uint32_t place = place_of(terms, recipe->group, at[i]);
        const bool ends =
            i + 1 == terms->count || place_of(terms, recipe->group, at[i + 1]) != place;
        float *sum = recipe->group == NO_GROUP ? &total : &part;

        if (at[i] != recipe->skip) *sum = add_term(terms, recipe, *sum, at[i], channel);
        if (at[i] == recipe->twice) *sum = add_term(terms, recipe, *sum, at[i], channel);
        if (recipe->group == NO_GROUP || !ends) continue;
        total = total + to_bf16(part, recipe->truncate);
        part = 0.0f;
    }
    if (recipe->bias == BIAS_ROUNDED) total = to_bf16(total, false);
    if (late) total = total + bias_sum(terms, recipe->bias, channel);
    if (recipe->truncate) return (uint16_t)(ref_f32_bits(total) >> 16);
    return ref_bf16_from_f32(total);
}

static bool matches(const struct sim_cause_terms *terms, const struct recipe *recipe,
                    const uint16_t *actual)
{
    uint32_t at[REF_TOPK_MAX] = {0};

    assert(terms->count <= REF_TOPK_MAX && terms->ranks_per_node >= 1);
    arrange(terms, recipe, at);
    for (uint32_t c = 0; c < terms->hidden; c++)
        if (sum_channel(terms, recipe, at, c) != actual[c]) return false;
    return true;
}

/* The sum as it should be, with one term lost or doubled. */
static bool find_term(const struct sim_cause_terms *terms, const uint16_t *actual,
                      char cause[SIM_CAUSE_MAX])
{
    for (uint32_t i = 0; i < 2 * terms->count; i++) {
        const uint32_t term = i % terms->count;
        const bool lost = i < terms->count;
        struct recipe recipe = {WHOLE, .step = terms->ll ? FUSED : UNWEIGHTED};

        recipe.group = !terms->ll && terms->several_nodes ? BY_NODE : NO_GROUP;
        *(lost ? &recipe.skip : &recipe.twice) = term;
        if (!matches(terms, &recipe, actual)) continue;
        if (terms->ll)
            snprintf(cause, SIM_CAUSE_MAX,
                     "sum matches when column %" PRIu32 " (expert %" PRId64 ", rank %" PRIu32
                     ") is %s",
                     terms->column[term], terms->expert[term], terms->rank[term],
                     lost ? "left out" : "added twice");
        else
            snprintf(cause, SIM_CAUSE_MAX, "sum matches when rank %" PRIu32 " is %s",
                     terms->rank[term], lost ? "left out" : "added twice");
        return true;
    }
    return false;
}

bool sim_cause_combine(const struct sim_cause_terms *terms, const uint16_t *actual,
                       char cause[SIM_CAUSE_MAX])
{
    const struct recipe *recipes = terms->ll ? ll_recipes : normal_recipes;
    const size_t count = terms->ll ? sizeof(ll_recipes) / sizeof(*ll_recipes)
                                   : sizeof(normal_recipes) / sizeof(*normal_recipes);

    if (terms->count == 0) return false;
    for (size_t i = 0; i < count; i++) {
        if (!matches(terms, &recipes[i], actual)) continue;
        snprintf(cause, SIM_CAUSE_MAX, "sum matches %s", recipes[i].text);
        return true;
    }
    return find_term(terms, actual, cause);
}
