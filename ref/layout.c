/* ref/layout.c - counts, the tables of one node's handle, and the layouts of a grouped GEMM. */
#include "ref/layout.h"

#include <assert.h>
#include <string.h>

uint32_t ref_token_ranks(const struct ref_routing *routing, uint64_t token,
                         uint32_t ranks[REF_TOPK_MAX])
{
    assert(token < ref_token_count(routing));
    assert(routing->topk >= 1 && routing->topk <= REF_TOPK_MAX);
    const int64_t *columns = routing->topk_idx + token * routing->topk;
    uint32_t count = 0;

    for (uint32_t k = 0; k < routing->topk; k++) {
        if (!ref_names_expert(routing, columns[k])) continue;
        const uint32_t rank = ref_expert_rank(routing, columns[k]);
        uint32_t at = count;
        while (at > 0 && ranks[at - 1] >= rank) at--;
        if (at < count && ranks[at] == rank) continue;
        memmove(ranks + at + 1, ranks + at, (count - at) * sizeof *ranks);
        ranks[at] = rank;
        count++;
    }
    assert(count <= routing->topk);
    return count;
}

uint32_t ref_token_home(const struct ref_routing *routing, uint64_t token)
{
    assert(token < ref_token_count(routing));
    uint32_t low = 0, high = routing->ranks; /* token_start[low] <= token < token_start[high]. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (routing->token_start[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

void ref_channel_range(uint64_t count, uint32_t channels, uint32_t channel, uint64_t *begin,
                       uint64_t *end)
{
    assert(channels >= 1 && channel < channels);
    const uint64_t per = (count + channels - 1) / channels;
    const uint64_t first = per * channel;
    *begin = first < count ? first : count;
    *end = *begin + per < count ? *begin + per : count;
}

/* One token's part of the four outputs. */
static void add_token(const struct ref_routing *routing, uint32_t me, uint64_t token,
                      uint32_t ranks_per_node, const struct ref_layout_out *out)
{
    const uint32_t nodes = ref_nodes(routing, ranks_per_node);
    uint32_t ranks[REF_TOPK_MAX];
    const uint32_t rank_count = ref_token_ranks(routing, token, ranks);

    for (uint32_t i = 0; i < rank_count; i++) {
        const uint32_t node = ranks[i] / ranks_per_node;
        const bool first_of_node = i == 0 || ranks[i - 1] / ranks_per_node != node;
        if (out->num_tokens_per_rank != NULL)
            out->num_tokens_per_rank[(uint64_t)me * routing->ranks + ranks[i]]++;
        if (out->num_tokens_per_rdma_rank != NULL && first_of_node)
            out->num_tokens_per_rdma_rank[(uint64_t)me * nodes + node]++;
        if (out->is_token_in_rank != NULL)
            out->is_token_in_rank[token * routing->ranks + ranks[i]] = 1;
    }
    if (out->num_tokens_per_expert == NULL) return;
    for (uint32_t k = 0; k < routing->topk; k++) {
        const int64_t idx = routing->topk_idx[token * routing->topk + k];
        if (ref_names_expert(routing, idx))
            out->num_tokens_per_expert[(uint64_t)me * routing->experts + (uint64_t)idx]++;
    }
}

void ref_layout(const struct ref_routing *routing, uint32_t ranks_per_node,
                const struct ref_layout_out *out)
{
    assert(ranks_per_node >= 1);
    assert(routing->ranks <= ranks_per_node || routing->ranks % ranks_per_node == 0);
    assert(routing->ranks >= 1 && routing->experts % routing->ranks == 0);
    const uint64_t ranks = routing->ranks;
    const uint64_t nodes = ref_nodes(routing, ranks_per_node);

    if (out->num_tokens_per_rank != NULL)
        memset(out->num_tokens_per_rank, 0, ranks * ranks * sizeof(int32_t));
    if (out->num_tokens_per_rdma_rank != NULL)
        memset(out->num_tokens_per_rdma_rank, 0, ranks * nodes * sizeof(int32_t));
    if (out->num_tokens_per_expert != NULL)
        memset(out->num_tokens_per_expert, 0, ranks * routing->experts * sizeof(int32_t));
    if (out->is_token_in_rank != NULL)
        memset(out->is_token_in_rank, 0, ref_token_count(routing) * ranks);
    for (uint32_t me = 0; me < ranks; me++)
        for (uint64_t t = routing->token_start[me]; t < routing->token_start[me + 1]; t++)
            add_token(routing, me, t, ranks_per_node, out);
}

void ref_layout_expert_counts(const struct ref_routing *routing, uint32_t alignment,
                              int32_t *counts)
{
    assert(alignment >= 1);
    const uint64_t selections = ref_token_count(routing) * routing->topk;

    memset(counts, 0, routing->experts * sizeof *counts);
    for (uint64_t i = 0; i < selections; i++)
        if (ref_names_expert(routing, routing->topk_idx[i])) counts[routing->topk_idx[i]]++;
    for (uint32_t e = 0; e < routing->experts; e++) {
        const uint64_t count = (uint64_t)counts[e];
        const uint64_t aligned = (count + alignment - 1) / alignment * alignment;
        assert(aligned <= INT32_MAX);
        counts[e] = (int32_t)aligned;
    }
}

static void add_to_channel(int32_t *matrix, uint64_t row, uint32_t channels, uint32_t channel)
{
    if (matrix != NULL) matrix[row * channels + channel]++;
}

/* Per channel counts of one rank, and each token's place in its queue. */
static void count_channels(const struct ref_routing *routing, uint32_t me, uint32_t channels,
                           const struct ref_intranode_out *out)
{
    const uint64_t ranks = routing->ranks;
    const uint64_t first = routing->token_start[me];
    const uint64_t count = routing->token_start[me + 1] - first;

    for (uint32_t c = 0; c < channels; c++) {
        uint64_t begin, end;
        ref_channel_range(count, channels, c, &begin, &end);
        for (uint64_t t = first + begin; t < first + end; t++) {
            uint32_t to[REF_TOPK_MAX];
            const uint32_t to_count = ref_token_ranks(routing, t, to);
            for (uint32_t i = 0; i < to_count; i++) {
                add_to_channel(out->channel_prefix_matrix, me * ranks + to[i], channels, c);
                add_to_channel(out->recv_channel_prefix_matrix, to[i] * ranks + me, channels, c);
                if (out->rank_prefix_matrix != NULL) out->rank_prefix_matrix[me * ranks + to[i]]++;
                if (out->send_head != NULL) out->send_head[t * ranks + to[i]] = 1;
            }
        }
    }
}

/* Marks (>= 0 = sent) of tokens [begin, end) become places 0, 1, ... in each column. */
static void number_column(int32_t *marks, uint64_t columns, uint64_t column, uint64_t begin,
                          uint64_t end)
{
    int32_t place = 0;
    for (uint64_t t = begin; t < end; t++)
        if (marks[t * columns + column] >= 0) marks[t * columns + column] = place++;
}

static void number_heads(const struct ref_routing *routing, uint32_t channels, int32_t *send_head)
{
    for (uint32_t me = 0; me < routing->ranks; me++) {
        const uint64_t first = routing->token_start[me];
        const uint64_t count = routing->token_start[me + 1] - first;
        for (uint32_t c = 0; c < channels; c++) {
            uint64_t begin, end;
            ref_channel_range(count, channels, c, &begin, &end);
            for (uint32_t r = 0; r < routing->ranks; r++)
                number_column(send_head, routing->ranks, r, first + begin, first + end);
        }
    }
}

/* Counts along channels become sums up to and including each (inclusive), or before it. */
static void sum_channels(int32_t *matrix, uint64_t rows, uint32_t channels, bool inclusive)
{
    for (uint64_t row = 0; row < rows; row++) {
        int32_t sum = 0;
        for (uint32_t c = 0; c < channels; c++) {
            const int32_t count = matrix[row * channels + c];
            matrix[row * channels + c] = inclusive ? sum + count : sum;
            sum += count;
        }
    }
}

void ref_intranode_handle(const struct ref_routing *routing, uint32_t channels,
                          const struct ref_intranode_out *out)
{
    assert(channels >= 1);
    assert(routing->ranks >= 1 && routing->experts % routing->ranks == 0);
    const uint64_t ranks = routing->ranks;
    const uint64_t channel_bytes = ranks * ranks * channels * sizeof(int32_t);

    if (out->rank_prefix_matrix != NULL)
        memset(out->rank_prefix_matrix, 0, ranks * ranks * sizeof(int32_t));
    if (out->channel_prefix_matrix != NULL) memset(out->channel_prefix_matrix, 0, channel_bytes);
    if (out->recv_channel_prefix_matrix != NULL)
        memset(out->recv_channel_prefix_matrix, 0, channel_bytes);
    if (out->send_head != NULL) /* All bytes 0xFF: -1 everywhere. */
        memset(out->send_head, 0xFF, ref_token_count(routing) * ranks * sizeof(int32_t));
    for (uint32_t me = 0; me < ranks; me++) count_channels(routing, me, channels, out);

    if (out->rank_prefix_matrix != NULL)
        for (uint64_t i = ranks; i < ranks * ranks; i++)
            out->rank_prefix_matrix[i] += out->rank_prefix_matrix[i - ranks];
    if (out->channel_prefix_matrix != NULL)
        sum_channels(out->channel_prefix_matrix, ranks * ranks, channels, true);
    if (out->recv_channel_prefix_matrix != NULL)
        sum_channels(out->recv_channel_prefix_matrix, ranks * ranks, channels, false);
    if (out->send_head != NULL) number_heads(routing, channels, out->send_head);
}

void ref_send_head_rewrite(const struct ref_routing *routing, uint32_t channels, int32_t *send_head)
{
    for (uint32_t me = 0; me < routing->ranks; me++) {
        const uint64_t first = routing->token_start[me];
        const uint64_t count = routing->token_start[me + 1] - first;
        for (uint32_t c = 0; c < channels; c++) {
            uint64_t begin, end;
            ref_channel_range(count, channels, c, &begin, &end);
            ref_heads_rewrite(send_head, routing->ranks, first + begin, first + end);
        }
    }
}

void ref_heads_rewrite(int32_t *heads, uint32_t columns, uint64_t begin, uint64_t end)
{
    assert(begin <= end);
    for (uint32_t column = 0; column < columns; column++) {
        int32_t next = REF_HEAD_NONE_FOLLOWS;
        for (uint64_t row = end; row-- > begin;) {
            int32_t *head = &heads[row * columns + column];
            if (*head < 0) {
                *head = -next - 1;
            } else {
                next = *head;
            }
        }
    }
}

uint64_t ref_contiguous_layout(const int64_t *topk_idx, uint64_t rows, uint32_t topk,
                               uint32_t local_experts, uint32_t alignment, uint64_t *expert_start,
                               int32_t *m_indices, int64_t *place)
{
    assert(alignment >= 1 && local_experts >= 1);
    assert(local_experts <= INT32_MAX);
    memset(expert_start, 0, (local_experts + UINT64_C(1)) * sizeof *expert_start);
    for (uint64_t i = 0; i < rows * topk; i++) {
        assert(topk_idx[i] < (int64_t)local_experts);
        if (topk_idx[i] >= 0) expert_start[topk_idx[i] + 1]++;
    }
    for (uint32_t e = 0; e < local_experts; e++) {
        const uint64_t count = expert_start[e + 1];
        const uint64_t aligned = (count + alignment - 1) / alignment * alignment;
        if (m_indices != NULL)
            for (uint64_t i = 0; i < aligned; i++)
                m_indices[expert_start[e] + i] = i < count ? (int32_t)e : -1;
        expert_start[e + 1] = expert_start[e] + aligned;
    }
    const uint64_t total = expert_start[local_experts];
    if (place == NULL) return total;

    /* The starts serve as cursors and are put back: a second walk subtracts what this one adds,
     * so the caller needs no scratch. */
    for (uint64_t i = 0; i < rows * topk; i++)
        place[i] = topk_idx[i] < 0 ? -1 : (int64_t)expert_start[topk_idx[i]]++;
    for (uint64_t i = 0; i < rows * topk; i++)
        if (topk_idx[i] >= 0) expert_start[topk_idx[i]]--;
    return total;
}

void ref_masked_layout(const struct ref_routing *routing, const uint64_t *block_start,
                       uint64_t capacity, int32_t *masked_m)
{
    for (uint32_t e = 0; e < routing->experts; e++) {
        const uint64_t count = block_start[(e + UINT64_C(1)) * routing->ranks] -
                               block_start[(uint64_t)e * routing->ranks];
        assert(count <= capacity && count <= INT32_MAX);
        masked_m[e] = (int32_t)count;
    }
}

uint64_t ref_expected_m(uint64_t rows_per_rank, uint32_t ranks, uint32_t topk, uint32_t experts)
{
    assert(experts >= 1);
    assert(rows_per_rank <= UINT64_MAX / REF_TOPK_MAX / UINT32_MAX - 1);
    return (rows_per_rank * ranks * topk + experts) / experts;
}
