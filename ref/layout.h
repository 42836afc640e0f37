/* ref/layout.h - who gets how many tokens: every count and prefix table of normal mode.
 *
 * Index arithmetic straight from the routing, for all ranks at once. The tables are those of
 * the library's get_dispatch_layout and of the handles that its dispatch returns (DeepEP
 * 567632d, layout.cu, intranode.cu, internode.cu), in its types (int32), so that they can be
 * compared bit by bit. "me" is the rank that holds the table. A NULL output is left out. */
#ifndef REF_LAYOUT_H
#define REF_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a skipped token's head becomes when no sent token of its channel follows it. */
enum { REF_HEAD_NONE_FOLLOWS = 1 << 25 };

/* Distinct ranks that own a selection of the token, ascending. Returns how many. */
uint32_t ref_token_ranks(const struct ref_routing *routing, uint64_t token,
                         uint32_t ranks[REF_TOPK_MAX]);

/* The rank whose token it is. token < ref_token_count. */
uint32_t ref_token_home(const struct ref_routing *routing, uint64_t token);

/* Tokens [*begin, *end) of channel `channel` among `count` tokens: contiguous slices of
 * ceil(count / channels); the last ones may be short or empty. */
void ref_channel_range(uint64_t count, uint32_t channels, uint32_t channel, uint64_t *begin,
                       uint64_t *end);

/* get_dispatch_layout of every rank. */
struct ref_layout_out {
    int32_t *num_tokens_per_rank;      /* [me][R]: tokens with a selection on rank r, once each. */
    int32_t *num_tokens_per_rdma_rank; /* [me][N]: the same per node, own node included. */
    int32_t *num_tokens_per_expert;    /* [me][E]: selections; a duplicate counts twice. */
    uint8_t *is_token_in_rank;         /* [tokens][R]: 1 or 0. */
};
void ref_layout(const struct ref_routing *routing, uint32_t ranks_per_node,
                const struct ref_layout_out *out);

/* Rows each local expert's list entry announces: selections from all ranks, rounded up to a
 * multiple of alignment (>= 1). counts [me][L]. Rows themselves are never padded. */
void ref_layout_expert_counts(const struct ref_routing *routing, uint32_t alignment,
                              int32_t *counts);

/* The handle of a dispatch inside one node, for every rank. C = channels = num_sms / 2. */
struct ref_intranode_out {
    int32_t *rank_prefix_matrix;         /* [R][R]: [i][j] = tokens for j from sources 0..i. The
                                            library fills column j = me on rank me only. */
    int32_t *channel_prefix_matrix;      /* [me][R][C]: own tokens for r in channels 0..c. */
    int32_t *recv_channel_prefix_matrix; /* [me][R][C]: source r's tokens for me before c. */
    int32_t *send_head;                  /* [tokens][R]: place in the (channel, r) queue, or -1. */
};
void ref_intranode_handle(const struct ref_routing *routing, uint32_t channels,
                          const struct ref_intranode_out *out);

/* What combine's first kernel makes of send_head, in place: channel by channel backwards, each
 * -1 becomes -(next sent head) - 1. Twice is the same as once. */
void ref_send_head_rewrite(const struct ref_routing *routing, uint32_t channels,
                           int32_t *send_head);

/* The rewrite itself, over rows [begin, end) of one channel: heads [rows][columns]. */
void ref_heads_rewrite(int32_t *heads, uint32_t columns, uint64_t begin, uint64_t end);

/* The handle of a dispatch across nodes, for every rank. The receivers' tables are made from
 * the senders': whoever asks for one by rank (gbl) or by node (rdma) asks for that one too. Rows of
 * send_nvl_head are the rail rows of all forwarders in the order of ref_rows_rails (ref/rows.h). */
struct ref_internode_out {
    int32_t *rdma_channel_prefix_matrix;      /* [me][N][C]: own tokens for node n, 0..c. */
    int32_t *gbl_channel_prefix_matrix;       /* [me][R][C]: own tokens for rank r, 0..c. */
    int32_t *recv_rdma_channel_prefix_matrix; /* [me][N][C]: rail tokens of node n's rank with
                                                 my index, channels 0..c. */
    int32_t *recv_rdma_rank_prefix_sum;       /* [me][N]: rail tokens from nodes 0..n. */
    int32_t *recv_gbl_channel_prefix_matrix;  /* [me][R][C]: first received row of (r, c). */
    int32_t *recv_gbl_rank_prefix_sum;        /* [me][R]: received rows from ranks 0..r. */
    int32_t *send_rdma_head;                  /* [tokens][N]: place in (channel, n), or -1. */
    int32_t *send_nvl_head;                   /* [rail rows][P]: place in (channel, source node)'s
                                                 queue to GPU p, or -1. */
};
void ref_internode_handle(const struct ref_routing *routing, uint32_t ranks_per_node,
                          uint32_t channels, const struct ref_internode_out *out);

/* Combine's in-place rewrite of both heads, as ref_send_head_rewrite. Either may be NULL. */
void ref_internode_head_rewrite(const struct ref_routing *routing, uint32_t ranks_per_node,
                                uint32_t channels, int32_t *send_rdma_head, int32_t *send_nvl_head);

/* Contiguous layout of a grouped GEMM: rows of one rank sorted by local expert, each expert's
 * segment padded to a multiple of alignment; inside a segment by (row, column).
 *
 * topk_idx [rows][topk] holds local ids (ref_normal_dispatch), below 0 = none. expert_start
 * [local_experts + 1] receives the segments' first rows; the return value is the last, i.e. the
 * rows in all. m_indices [that many] receives each row's local expert, -1 for padding; place
 * [rows][topk] the row that (row, column) goes to, or -1. Call with both NULL for the size. */
uint64_t ref_contiguous_layout(const int64_t *topk_idx, uint64_t rows, uint32_t topk,
                               uint32_t local_experts, uint32_t alignment, uint64_t *expert_start,
                               int32_t *m_indices, int64_t *place);

/* Masked layout: every local expert has capacity rows, of which the first masked_m are valid.
 * Fills masked_m [R][L] from LL blocks (ref_ll_blocks); asserts that none exceeds capacity.
 * Row r of block (e, s) stands at masked row (e % L) * capacity + r - block_start[e * R]. */
void ref_masked_layout(const struct ref_routing *routing, const uint64_t *block_start,
                       uint64_t capacity, int32_t *masked_m);

/* Rows per expert that a masked GEMM is told to expect:
 * floor((rows_per_rank * ranks * topk + experts) / experts), as SGLang computes it. */
uint64_t ref_expected_m(uint64_t rows_per_rank, uint32_t ranks, uint32_t topk, uint32_t experts);

#ifdef __cplusplus
}
#endif

#endif
