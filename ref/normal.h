/* ref/normal.h - normal-mode dispatch and combine of all ranks at once, by index arithmetic.
 *
 * Nothing here knows of messages or of normal_phase.h; the two are compared with each other.
 * A token goes once to every rank that owns one of its experts. Received rows stand by
 * destination rank, in a rank by (source rank, token), as the library orders them. */
#ifndef REF_NORMAL_H
#define REF_NORMAL_H

#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GPUs that the mask of a source's meta data has bits for. The library knows nodes of 8; on
 * nodes of more than this many the mask is 0. */
enum { REF_META_GPUS = 32 };

/* First row of every block: block (d, s) is rows block_start[d * R + s] up to the next entry.
 * block_start [ranks * ranks + 1]. Returns the rows in all. */
uint64_t ref_normal_blocks(const struct ref_routing *routing, uint64_t *block_start);

/* What is sent, as opaque bytes: payload [tokens][payload_bytes] and, unless scale_bytes is 0,
 * scales [tokens][scale_bytes]. */
struct ref_normal_tokens {
    const uint8_t *payload;
    const uint8_t *scales;
    uint64_t payload_bytes;
    uint64_t scale_bytes;
};

/* Received rows of all ranks. NULL members are left out. */
struct ref_normal_rows {
    uint8_t *payload;    /* [rows][payload_bytes] */
    uint8_t *scales;     /* [rows][scale_bytes] */
    int64_t *topk_idx;   /* [rows][topk]: local id where the receiver owns it, else -1. */
    float *topk_weights; /* [rows][topk]: the weight where the receiver owns it, else 0. */
    int32_t *src_token;  /* [rows]: index within the source rank. */
    int32_t *src_meta;   /* [rows][2], several nodes: the source's node, and a bit for every GPU
                            of the receiver's node that gets the token. */
    int32_t *counts;     /* [ranks][ranks]: rows by (destination, source). */
};

/* scratch [ranks]. topk_weights of the routing may be NULL when rows->topk_weights is. */
void ref_normal_dispatch(const struct ref_routing *routing, uint32_t ranks_per_node,
                         const struct ref_normal_tokens *tokens, const uint64_t *block_start,
                         uint64_t *scratch, const struct ref_normal_rows *rows);

struct ref_normal_combine_in {
    uint32_t hidden;            /* A multiple of 128. */
    const uint16_t *expert_out; /* BF16 [rows][hidden] */
    const float *topk_weights;  /* [rows][topk], as dispatch left them; NULL: no weight sums. */
    const uint16_t *bias0;      /* BF16 [tokens][hidden], or NULL for +0. */
    const uint16_t *bias1;      /* BF16 [tokens][hidden], or NULL for +0. */
};

/* Unweighted sum at the home rank in fp32, from bias0 + bias1. One node: ranks ascending, one
 * rounding to bf16. Several: each node's ranks ascending from +0, rounded to bf16; then those,
 * nodes ascending, rounded again. Weights are summed the same way in fp32, never rounded.
 * combined BF16 [tokens][hidden]; combined_weights [tokens][topk] or NULL; scratch [ranks]. */
void ref_normal_combine(const struct ref_routing *routing, uint32_t ranks_per_node,
                        const struct ref_normal_combine_in *in, const uint64_t *block_start,
                        uint64_t *scratch, uint16_t *combined, float *combined_weights);

#ifdef __cplusplus
}
#endif

#endif
