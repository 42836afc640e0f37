/* ref/router.h - from gate logits to expert ids and weights, for the known families of models.
 *
 * A family is a rule of few parts: how a logit becomes a score, whether groups of experts are
 * masked first, what the weight is. Scores use ref/mathfn.h and sums run over ascending index,
 * so ids and weights have the same bits on every machine. The order among chosen experts is by
 * value descending; equal values go to the lower index, for experts and for groups. Lost
 * groups are masked with -infinity (a mask of 0 could win against a negative score). NaN is
 * refused. Real libraries break ties and sum in other orders: compare with them by id and
 * within a tolerance.
 *
 *   family       score            choice by      groups    weight
 *   deepseek-v3  sigmoid          score + bias   top-2 sum score / sum * scale (kimi-k2, glm-4.5+)
 *   deepseek-v2  softmax          score          maximum   score * scale
 *   qwen3        softmax          score          -         score / sum, in bf16
 *   mixtral      softmax          score          -         score / sum
 *   gpt-oss      logit in bf16    logit          -         softmax over the chosen, in bf16
 *   llama4       logit            logit          -         sigmoid(logit), scales the input
 *   minimax-m2   sigmoid          score + bias   -         score / sum
 *   olmoe        softmax          score          -         score
 *   deepseek-v4  sqrt(softplus)   score + bias   -         score / sum * scale */
#ifndef REF_ROUTER_H
#define REF_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { REF_ROUTER_EXPERTS_MAX = 1024 };

enum ref_router {
    REF_ROUTER_DEEPSEEK_V3,
    REF_ROUTER_DEEPSEEK_V2,
    REF_ROUTER_QWEN3,
    REF_ROUTER_MIXTRAL,
    REF_ROUTER_GPT_OSS,
    REF_ROUTER_LLAMA4,
    REF_ROUTER_MINIMAX_M2,
    REF_ROUTER_OLMOE,
    REF_ROUTER_DEEPSEEK_V4,
    REF_ROUTER_COUNT
};

enum ref_router_score {
    REF_SCORE_SOFTMAX, /* Over all experts. */
    REF_SCORE_SIGMOID,
    REF_SCORE_LOGIT,
    REF_SCORE_SQRT_SOFTPLUS
};

enum ref_router_groups {
    REF_GROUPS_MAX, /* A group counts as much as its best expert. */
    REF_GROUPS_TOP2 /* As the sum of its two best, larger first; two experts a group at least. */
};

enum ref_router_weight {
    REF_WEIGHT_SCORE,   /* The score itself, without bias. */
    REF_WEIGHT_SHARE,   /* score / sum of the chosen scores in column order; 0 if that sum is 0. */
    REF_WEIGHT_SOFTMAX, /* Softmax over the chosen scores. */
    REF_WEIGHT_SIGMOID  /* sigmoid(score). */
};

struct ref_router_rule {
    enum ref_router_score score;
    enum ref_router_groups group_by;
    enum ref_router_weight weight;
    bool logits_bf16;     /* Logits are rounded to bf16 first, which makes ties common. */
    bool weights_bf16;    /* Weights are rounded to bf16 last. */
    bool scaled;          /* Weights are multiplied with scale, after the division. */
    float scale;          /* routed_scaling_factor; 1 unless the model says otherwise. */
    uint32_t experts;     /* 1..REF_ROUTER_EXPERTS_MAX. */
    uint32_t topk;        /* 1..32, at most the experts that groups leave. */
    uint32_t groups;      /* 0 or 1: none. Otherwise divides experts. */
    uint32_t groups_kept; /* 1..groups; read only with groups above 1. */
};

const char *ref_router_name(enum ref_router family);           /* "deepseek-v3", ... */
bool ref_router_parse(const char *name, enum ref_router *out); /* By that name. */

/* The family's rule with the model's numbers filled in by the caller: experts and topk are
 * arguments, groups none, scale 1. */
struct ref_router_rule ref_router_rule_of(enum ref_router family, uint32_t experts, uint32_t topk);

/* Are the numbers of a rule possible together? -1 and one line naming the number if not. */
int ref_router_check(const struct ref_router_rule *rule, char *err, size_t err_len);

/* logits [tokens][experts], bias [experts] or NULL, to ids and weights [tokens][topk]. The
 * rule must pass ref_router_check(). A NaN logit or bias, or an infinity that makes a score NaN,
 * is refused: -1, err names token and expert; rows of earlier tokens are then already written. */
int ref_router_topk(const struct ref_router_rule *rule, const float *logits, const float *bias,
                    uint64_t tokens, int64_t *ids, float *weights, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
