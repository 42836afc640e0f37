/* ref/eplb.h - which GPU holds which replica of which expert, and which replica a token takes.
 *
 * The placement is that of deepseek-ai/EPLB d52c72d5, in float32 as there, with every tie broken
 * by the lowest index: its sort is not stable above 16 items, and replicas of one expert always
 * tie, so two runs of the original may number replicas differently. Ours equals the original
 * with a stable sort. Sums go in index order, which shows only where float32 cannot hold them.
 *
 * An expert of the model is a logical id; a place for one replica is a physical id, and physical
 * p stands on GPU p / (replicas / gpus). The two are different types, so that neither can be used
 * for the other. */
#ifndef REF_EPLB_H
#define REF_EPLB_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ref_logical {
    int32_t id; /* 0..experts - 1. */
};

struct ref_physical {
    int32_t id; /* 0..replicas - 1; -1: none. */
};

struct ref_eplb_shape {
    uint32_t experts;
    uint32_t replicas; /* In all; at least experts, a multiple of gpus. */
    uint32_t groups;   /* Experts that are routed together; experts is a multiple. */
    uint32_t nodes;    /* gpus is a multiple. */
    uint32_t gpus;
};

/* Hierarchical where groups is a multiple of nodes: groups go to nodes first. Otherwise global:
 * groups and nodes count as 1. */
bool ref_eplb_is_hierarchical(const struct ref_eplb_shape *shape);

/* What the shape must obey (see its fields; no number is 0). */
bool ref_eplb_shape_ok(const struct ref_eplb_shape *shape);

/* Place one layer. weights [experts], finite, not below 0. Filled: phy2log [replicas]; which of
 * its expert's replicas each is, ordinal [replicas]; replicas of each expert, logcnt [experts].
 * words [8 * replicas], loads [3 * replicas]: scratch. */
void ref_eplb_layer(const struct ref_eplb_shape *shape, const float *weights,
                    struct ref_logical *phy2log, uint32_t *ordinal, uint32_t *logcnt,
                    uint32_t *words, float *loads);

/* Replicas of every expert in the order of their ordinals, log2phy [experts][width], filled up
 * with -1; width is at least the largest logcnt. */
void ref_eplb_log2phy(const struct ref_eplb_shape *shape, const struct ref_logical *phy2log,
                      const uint32_t *ordinal, uint32_t width, struct ref_physical *log2phy);

/* Sum of weight / logcnt over the replicas of each GPU, in the order of its places: gpu_load
 * [gpus]. */
void ref_eplb_gpu_load(const struct ref_eplb_shape *shape, const float *weights,
                       const struct ref_logical *phy2log, const uint32_t *logcnt, double *gpu_load);

/* --- which replica a token takes ------------------------------------------------------------- */

/* One layer's placement, borrowed. */
struct ref_placement {
    struct ref_eplb_shape shape;
    uint32_t width;
    const struct ref_physical *log2phy; /* [experts][width] */
    const uint32_t *logcnt;             /* [experts] */
};

/* By rank alone: a replica on the rank's own GPU, else one on its node, else dealt: the ranks
 * without a near one take in turn the replica that fewest of them have. Lowest id on every tie.
 * (SGLang's static table has this order, but deals with a random generator.) table
 * [gpus][experts]; scratch [width]. */
void ref_replica_static(const struct ref_placement *placement, struct ref_physical *table,
                        uint32_t *scratch);

/* By the token's row among those of its rank: row mod count, as SGLang does without all-to-all
 * backend, and ((row * 2654435769) mod 2^32) mod count, as vLLM does. */
struct ref_physical ref_replica_row_mod(const struct ref_placement *placement,
                                        struct ref_logical expert, uint64_t row);
struct ref_physical ref_replica_row_hash(const struct ref_placement *placement,
                                         struct ref_logical expert, uint64_t row);

#ifdef __cplusplus
}
#endif

#endif
