/* ref/routing.h - one MoE layer's routing: what every operation in ref/ starts from.
 *
 * Tokens of all ranks stand in one array, rank by rank; token_start says where each rank's
 * begin. An expert id below 0 means "no expert" and the weight beside it is never read. Ids
 * are 64-bit, as DeepEP's topk_idx_t is by default (DeepEP dd758ca, deep_ep/buffers). */
#ifndef REF_ROUTING_H
#define REF_ROUTING_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { REF_TOPK_MAX = 32, REF_GROUP_CHANNELS = 128 };

struct ref_routing {
    uint32_t ranks;              /* R, at least 1. */
    uint32_t experts;            /* E, a multiple of ranks; expert e lives on rank e / (E / R). */
    uint32_t topk;               /* K, 1..REF_TOPK_MAX. */
    const uint64_t *token_start; /* [ranks + 1], ascending from 0; tokens in all = the last. */
    const int64_t *topk_idx;     /* [tokens][topk]; below 0 = none, otherwise below experts. */
    const float *topk_weights;   /* [tokens][topk]; NULL where no operation reads weights. */
};

static inline uint32_t ref_local_experts(const struct ref_routing *routing)
{
    return routing->experts / routing->ranks;
}

/* Does a column name an expert? Every id outside 0..experts-1 counts as "no expert", as the
 * range tests of DeepEP's layout kernel have it; callers that must refuse ids >= experts do so
 * before they come here. */
static inline bool ref_names_expert(const struct ref_routing *routing, int64_t idx)
{
    return idx >= 0 && idx < (int64_t)routing->experts;
}

/* The rank that owns the expert; idx must name one. */
static inline uint32_t ref_expert_rank(const struct ref_routing *routing, int64_t idx)
{
    return (uint32_t)((uint64_t)idx / ref_local_experts(routing));
}

/* Nodes of ranks_per_node ranks each. Fewer ranks than that are one node; otherwise ranks must
 * be a multiple of it. */
static inline uint32_t ref_nodes(const struct ref_routing *routing, uint32_t ranks_per_node)
{
    return routing->ranks <= ranks_per_node ? 1 : routing->ranks / ranks_per_node;
}

static inline uint64_t ref_token_count(const struct ref_routing *routing)
{
    return routing->token_start[routing->ranks];
}

#ifdef __cplusplus
}
#endif

#endif
