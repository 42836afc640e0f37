/* ref/layout_internode.c - the tables of a handle that spans nodes.
 *
 * Two independent counts make all of them: how many of a rank's tokens go to rank r in channel
 * c, and the same to node n. Receivers' tables are the senders' seen from the other side. */
#include <assert.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/rows.h"

/* Tokens [*begin, *end) of rank me's channel, as global token numbers. */
static void channel_tokens(const struct ref_routing *routing, uint32_t me, uint32_t channels,
                           uint32_t channel, uint64_t *begin, uint64_t *end)
{
    const uint64_t first = routing->token_start[me];
    assert(me < routing->ranks);
    ref_channel_range(routing->token_start[me + 1] - first, channels, channel, begin, end);
    *begin += first;
    *end += first;
}

/* Distinct nodes of a token, ascending. */
static uint32_t token_nodes(const struct ref_routing *routing, uint32_t ranks_per_node,
                            uint64_t token, uint32_t nodes[REF_TOPK_MAX])
{
    uint32_t ranks[REF_TOPK_MAX];
    const uint32_t rank_count = ref_token_ranks(routing, token, ranks);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank_count; i++)
        if (count == 0 || nodes[count - 1] != ranks[i] / ranks_per_node)
            nodes[count++] = ranks[i] / ranks_per_node;
    return count;
}

/* matrix [columns][channels]: tokens of rank me that go to each rank (by_node false) or node,
 * summed up to and including each channel. */
static void count_sends(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t me,
                        uint32_t channels, bool by_node, int32_t *matrix)
{
    const uint32_t columns = by_node ? ref_nodes(routing, ranks_per_node) : routing->ranks;

    assert(me < routing->ranks && columns >= 1);
    memset(matrix, 0, (uint64_t)columns * channels * sizeof *matrix);
    for (uint32_t c = 0; c < channels; c++) {
        uint64_t begin, end;
        channel_tokens(routing, me, channels, c, &begin, &end);
        for (uint64_t t = begin; t < end; t++) {
            uint32_t to[REF_TOPK_MAX];
            const uint32_t count = by_node ? token_nodes(routing, ranks_per_node, t, to)
                                           : ref_token_ranks(routing, t, to);
            assert(count == 0 || to[count - 1] < columns);
            for (uint32_t i = 0; i < count; i++) matrix[(uint64_t)to[i] * channels + c]++;
        }
    }
    for (uint64_t column = 0; column < columns; column++)
        for (uint32_t c = 1; c < channels; c++)
            matrix[column * channels + c] += matrix[column * channels + c - 1];
}

/* What rank `from` sends to column `to` before channel c (c = channels: in all). */
static int32_t sent_before(const int32_t *prefix, uint64_t columns, uint32_t channels,
                           uint64_t from, uint64_t to, uint32_t channel)
{
    assert(to < columns && channel <= channels);
    return channel == 0 ? 0 : prefix[(from * columns + to) * channels + channel - 1];
}

static void receive_ranks(const struct ref_routing *routing, uint32_t channels,
                          const struct ref_internode_out *out)
{
    const uint64_t ranks = routing->ranks;
    const int32_t *sent = out->gbl_channel_prefix_matrix;

    for (uint64_t me = 0; me < ranks; me++) {
        int32_t sum = 0;
        for (uint64_t r = 0; r < ranks; r++) {
            if (out->recv_gbl_channel_prefix_matrix != NULL)
                for (uint32_t c = 0; c < channels; c++)
                    out->recv_gbl_channel_prefix_matrix[(me * ranks + r) * channels + c] =
                        sum + sent_before(sent, ranks, channels, r, me, c);
            sum += sent_before(sent, ranks, channels, r, me, channels);
            if (out->recv_gbl_rank_prefix_sum != NULL)
                out->recv_gbl_rank_prefix_sum[me * ranks + r] = sum;
        }
    }
}

static void receive_nodes(const struct ref_routing *routing, uint32_t ranks_per_node,
                          uint32_t channels, const struct ref_internode_out *out)
{
    const uint64_t ranks = routing->ranks, nodes = ref_nodes(routing, ranks_per_node);
    const int32_t *sent = out->rdma_channel_prefix_matrix;

    for (uint64_t me = 0; me < ranks; me++) {
        int32_t sum = 0;
        for (uint64_t n = 0; n < nodes; n++) {
            const uint64_t from = n * ranks_per_node + me % ranks_per_node;
            const uint64_t to = me / ranks_per_node;
            if (out->recv_rdma_channel_prefix_matrix != NULL)
                for (uint32_t c = 0; c < channels; c++)
                    out->recv_rdma_channel_prefix_matrix[(me * nodes + n) * channels + c] =
                        sent_before(sent, nodes, channels, from, to, c + 1);
            sum += sent_before(sent, nodes, channels, from, to, channels);
            if (out->recv_rdma_rank_prefix_sum != NULL)
                out->recv_rdma_rank_prefix_sum[me * nodes + n] = sum;
        }
    }
}

static void rdma_heads(const struct ref_routing *routing, uint32_t ranks_per_node,
                       uint32_t channels, int32_t *heads)
{
    const uint64_t nodes = ref_nodes(routing, ranks_per_node);

    for (uint32_t me = 0; me < routing->ranks; me++)
        for (uint32_t c = 0; c < channels; c++) {
            uint64_t begin, end;
            channel_tokens(routing, me, channels, c, &begin, &end);
            for (uint64_t n = 0; n < nodes; n++) {
                int32_t place = 0;
                for (uint64_t t = begin; t < end; t++) {
                    uint32_t to[REF_TOPK_MAX];
                    const uint32_t count = token_nodes(routing, ranks_per_node, t, to);
                    bool sent = false;
                    for (uint32_t i = 0; i < count; i++) sent = sent || to[i] == n;
                    heads[t * nodes + n] = sent ? place++ : -1;
                }
            }
        }
}

/* Rail rows one after the other: forwarder, source (one per node), channel, token. Calls back
 * for every channel's rows, because places count inside one and rewriting stays inside one. */
struct rail_channel {
    uint32_t forwarder;
    uint64_t token_begin, token_end; /* The source's tokens of the channel. */
    uint64_t row_begin;              /* First rail row of the channel. */
};
typedef uint64_t (*rail_channel_fn)(const struct ref_routing *routing, uint32_t ranks_per_node,
                                    const struct rail_channel *channel, int32_t *heads);

static void walk_rails(const struct ref_routing *routing, uint32_t ranks_per_node,
                       uint32_t channels, int32_t *heads, rail_channel_fn visit)
{
    uint64_t row = 0;
    for (uint32_t f = 0; f < routing->ranks; f++)
        for (uint32_t n = 0; n < ref_nodes(routing, ranks_per_node); n++)
            for (uint32_t c = 0; c < channels; c++) {
                struct rail_channel channel = {.forwarder = f, .row_begin = row};
                channel_tokens(routing, n * ranks_per_node + f % ranks_per_node, channels, c,
                               &channel.token_begin, &channel.token_end);
                row = visit(routing, ranks_per_node, &channel, heads);
                assert(row - channel.row_begin <= channel.token_end - channel.token_begin);
            }
}

static uint64_t number_rail_channel(const struct ref_routing *routing, uint32_t ranks_per_node,
                                    const struct rail_channel *channel, int32_t *heads)
{
    const uint32_t node = channel->forwarder / ranks_per_node;
    uint64_t row = channel->row_begin;

    for (uint64_t t = channel->token_begin; t < channel->token_end; t++) {
        uint32_t to[REF_TOPK_MAX];
        const uint32_t count = ref_token_ranks(routing, t, to);
        bool on_node = false;
        for (uint32_t i = 0; i < count; i++) on_node = on_node || to[i] / ranks_per_node == node;
        if (!on_node) continue;
        int32_t *head = heads + row++ * ranks_per_node;
        for (uint32_t g = 0; g < ranks_per_node; g++) head[g] = -1;
        for (uint32_t i = 0; i < count; i++)
            if (to[i] / ranks_per_node == node) head[to[i] % ranks_per_node] = 0;
    }
    for (uint32_t g = 0; g < ranks_per_node; g++) {
        int32_t place = 0;
        for (uint64_t r = channel->row_begin; r < row; r++)
            if (heads[r * ranks_per_node + g] >= 0) heads[r * ranks_per_node + g] = place++;
    }
    return row;
}

static uint64_t rewrite_rail_channel(const struct ref_routing *routing, uint32_t ranks_per_node,
                                     const struct rail_channel *channel, int32_t *heads)
{
    const uint32_t node = channel->forwarder / ranks_per_node;
    uint64_t rows = 0;

    for (uint64_t t = channel->token_begin; t < channel->token_end; t++) {
        uint32_t to[REF_TOPK_MAX];
        const uint32_t count = token_nodes(routing, ranks_per_node, t, to);
        for (uint32_t i = 0; i < count; i++) rows += to[i] == node;
    }
    ref_heads_rewrite(heads, ranks_per_node, channel->row_begin, channel->row_begin + rows);
    return channel->row_begin + rows;
}

void ref_internode_handle(const struct ref_routing *routing, uint32_t ranks_per_node,
                          uint32_t channels, const struct ref_internode_out *out)
{
    assert(channels >= 1 && ranks_per_node >= 1);
    assert(routing->ranks % ranks_per_node == 0 && routing->experts % routing->ranks == 0);
    const uint64_t nodes = ref_nodes(routing, ranks_per_node);
    const bool by_rank = out->recv_gbl_channel_prefix_matrix || out->recv_gbl_rank_prefix_sum;
    const bool by_node = out->recv_rdma_channel_prefix_matrix || out->recv_rdma_rank_prefix_sum;

    assert(!by_rank || out->gbl_channel_prefix_matrix != NULL);
    assert(!by_node || out->rdma_channel_prefix_matrix != NULL);
    for (uint32_t me = 0; me < routing->ranks; me++) {
        if (out->gbl_channel_prefix_matrix != NULL)
            count_sends(routing, ranks_per_node, me, channels, false,
                        out->gbl_channel_prefix_matrix + (uint64_t)me * routing->ranks * channels);
        if (out->rdma_channel_prefix_matrix != NULL)
            count_sends(routing, ranks_per_node, me, channels, true,
                        out->rdma_channel_prefix_matrix + me * nodes * channels);
    }
    if (by_rank) receive_ranks(routing, channels, out);
    if (by_node) receive_nodes(routing, ranks_per_node, channels, out);
    if (out->send_rdma_head != NULL)
        rdma_heads(routing, ranks_per_node, channels, out->send_rdma_head);
    if (out->send_nvl_head != NULL)
        walk_rails(routing, ranks_per_node, channels, out->send_nvl_head, number_rail_channel);
}

void ref_internode_head_rewrite(const struct ref_routing *routing, uint32_t ranks_per_node,
                                uint32_t channels, int32_t *send_rdma_head, int32_t *send_nvl_head)
{
    assert(channels >= 1 && ranks_per_node >= 1 && routing->ranks % ranks_per_node == 0);
    for (uint32_t me = 0; me < routing->ranks && send_rdma_head != NULL; me++)
        for (uint32_t c = 0; c < channels; c++) {
            uint64_t begin, end;
            channel_tokens(routing, me, channels, c, &begin, &end);
            ref_heads_rewrite(send_rdma_head, ref_nodes(routing, ranks_per_node), begin, end);
        }
    if (send_nvl_head != NULL)
        walk_rails(routing, ranks_per_node, channels, send_nvl_head, rewrite_rail_channel);
}
