/* ref/normal.c - every normal-mode row found by counting, then copied or added. */
#include "ref/normal.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/sum.h"

uint64_t ref_normal_blocks(const struct ref_routing *routing, uint64_t *block_start)
{
    assert(routing->ranks >= 1 && routing->experts % routing->ranks == 0);
    const uint64_t ranks = routing->ranks;

    memset(block_start, 0, (ranks * ranks + 1) * sizeof *block_start);
    for (uint32_t s = 0; s < ranks; s++)
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint32_t to[REF_TOPK_MAX];
            const uint32_t count = ref_token_ranks(routing, t, to);
            for (uint32_t i = 0; i < count; i++) block_start[to[i] * ranks + s + 1]++;
        }
    for (uint64_t b = 0; b < ranks * ranks; b++) block_start[b + 1] += block_start[b];
    return block_start[ranks * ranks];
}

static void start_cursors(const struct ref_routing *routing, uint32_t source,
                          const uint64_t *block_start, uint64_t *cursor)
{
    for (uint32_t d = 0; d < routing->ranks; d++)
        cursor[d] = block_start[(uint64_t)d * routing->ranks + source];
}

/* Every cursor of a source has reached its block's end: no row is missing or counted twice. */
static void assert_blocks_full(const struct ref_routing *routing, uint32_t source,
                               const uint64_t *block_start, const uint64_t *cursor)
{
    for (uint32_t d = 0; d < routing->ranks; d++)
        assert(cursor[d] == block_start[(uint64_t)d * routing->ranks + source + 1]);
}

/* Ids as the receiver numbers them, weights where it owns the expert. */
static void localise_row(const struct ref_routing *routing, uint64_t token, uint32_t dst,
                         uint64_t row, const struct ref_normal_rows *rows)
{
    const int64_t local_experts = ref_local_experts(routing);
    const int64_t first_expert = local_experts * dst;

    for (uint32_t k = 0; k < routing->topk; k++) {
        const uint64_t from = token * routing->topk + k, to = row * routing->topk + k;
        const int64_t idx = routing->topk_idx[from];
        const bool owned = idx >= first_expert && idx < first_expert + local_experts;
        if (rows->topk_idx != NULL) rows->topk_idx[to] = owned ? idx - first_expert : -1;
        if (rows->topk_weights != NULL)
            rows->topk_weights[to] = owned ? routing->topk_weights[from] : 0.0f;
    }
}

/* A bit for every GPU of dst's node among the token's ranks. */
static int32_t node_mask(const uint32_t *ranks, uint32_t count, uint32_t dst,
                         uint32_t ranks_per_node)
{
    uint32_t mask = 0;
    if (ranks_per_node > REF_META_GPUS) return 0;
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] / ranks_per_node == dst / ranks_per_node)
            mask |= UINT32_C(1) << ranks[i] % ranks_per_node;
    return (int32_t)mask;
}

void ref_normal_dispatch(const struct ref_routing *routing, uint32_t ranks_per_node,
                         const struct ref_normal_tokens *tokens, const uint64_t *block_start,
                         uint64_t *scratch, const struct ref_normal_rows *rows)
{
    assert(ranks_per_node >= 1);
    const uint64_t blocks = (uint64_t)routing->ranks * routing->ranks;
    const uint64_t payload_bytes = tokens->payload_bytes, scale_bytes = tokens->scale_bytes;

    for (uint32_t s = 0; s < routing->ranks; s++) {
        const uint64_t first = routing->token_start[s];
        start_cursors(routing, s, block_start, scratch);
        for (uint64_t t = first; t < routing->token_start[s + 1]; t++) {
            uint32_t to[REF_TOPK_MAX];
            const uint32_t count = ref_token_ranks(routing, t, to);
            for (uint32_t i = 0; i < count; i++) {
                const uint64_t row = scratch[to[i]]++;
                if (rows->payload != NULL)
                    memcpy(rows->payload + row * payload_bytes, tokens->payload + t * payload_bytes,
                           payload_bytes);
                if (rows->scales != NULL && scale_bytes > 0)
                    memcpy(rows->scales + row * scale_bytes, tokens->scales + t * scale_bytes,
                           scale_bytes);
                localise_row(routing, t, to[i], row, rows);
                if (rows->src_token != NULL) rows->src_token[row] = (int32_t)(t - first);
                if (rows->src_meta == NULL) continue;
                rows->src_meta[2 * row] = (int32_t)(s / ranks_per_node);
                rows->src_meta[2 * row + 1] = node_mask(to, count, to[i], ranks_per_node);
            }
        }
        assert_blocks_full(routing, s, block_start, scratch);
    }
    if (rows->counts == NULL) return;
    for (uint64_t b = 0; b < blocks; b++)
        rows->counts[b] = (int32_t)(block_start[b + 1] - block_start[b]);
}

/* The rows that answer a token, ranks ascending, and where each node's begin. */
struct answers {
    uint32_t row_count;
    uint32_t node_count;
    uint64_t rows[REF_TOPK_MAX];
    uint32_t node_start[REF_TOPK_MAX + 1];
};

static void find_answers(const struct ref_routing *routing, uint32_t ranks_per_node, uint64_t token,
                         uint64_t *cursor, struct answers *answers)
{
    uint32_t ranks[REF_TOPK_MAX];
    answers->row_count = ref_token_ranks(routing, token, ranks);
    answers->node_count = 0;
    for (uint32_t i = 0; i < answers->row_count; i++) {
        answers->rows[i] = cursor[ranks[i]]++;
        if (i == 0 || ranks[i] / ranks_per_node != ranks[i - 1] / ranks_per_node)
            answers->node_start[answers->node_count++] = i;
    }
    answers->node_start[answers->node_count] = answers->row_count;
}

/* Each node's rows are rounded before they leave it, so the partial sums are BF16 rows again.
 * A piece of the channels at a time: the partials of all nodes stay on the stack. */
static void sum_by_node(const struct ref_normal_combine_in *in, const struct answers *answers,
                        uint64_t token, uint16_t *combined)
{
    enum { PIECE = 4 * REF_GROUP_CHANNELS };
    uint16_t partial[REF_TOPK_MAX][PIECE];
    const uint16_t *partials[REF_TOPK_MAX];
    const uint16_t *rows[REF_TOPK_MAX];

    assert(answers->node_count <= answers->row_count);
    for (uint32_t first = 0; first < in->hidden; first += PIECE) {
        const uint32_t count = in->hidden - first < PIECE ? in->hidden - first : PIECE;
        const uint64_t home = token * in->hidden + first;
        for (uint32_t n = 0; n < answers->node_count; n++) {
            const uint32_t begin = answers->node_start[n], end = answers->node_start[n + 1];
            assert(begin < end);
            for (uint32_t i = begin; i < end; i++)
                rows[i - begin] = in->expert_out + answers->rows[i] * in->hidden + first;
            ref_sum_plain(count, rows, end - begin, NULL, NULL, partial[n]);
            partials[n] = partial[n];
        }
        ref_sum_plain(count, partials, answers->node_count,
                      in->bias0 == NULL ? NULL : in->bias0 + home,
                      in->bias1 == NULL ? NULL : in->bias1 + home, combined + home);
    }
}

static void sum_flat(const struct ref_normal_combine_in *in, const struct answers *answers,
                     uint64_t token, uint16_t *combined)
{
    const uint64_t home = token * in->hidden;
    const uint16_t *rows[REF_TOPK_MAX];

    for (uint32_t i = 0; i < answers->row_count; i++)
        rows[i] = in->expert_out + answers->rows[i] * in->hidden;
    ref_sum_plain(in->hidden, rows, answers->row_count, in->bias0 == NULL ? NULL : in->bias0 + home,
                  in->bias1 == NULL ? NULL : in->bias1 + home, combined + home);
}

/* Columns of the rows' weights: per node, then over nodes. On one node the second sum is
 * +0 + s, which changes nothing that the first, starting at +0, could have left. */
static void sum_weights(uint32_t topk, const float *row_weights, const struct answers *answers,
                        float *sums)
{
    for (uint32_t k = 0; k < topk; k++) {
        float total = 0.0f;
        for (uint32_t n = 0; n < answers->node_count; n++) {
            float sum = 0.0f;
            for (uint32_t i = answers->node_start[n]; i < answers->node_start[n + 1]; i++)
                sum += row_weights[answers->rows[i] * topk + k];
            total += sum;
        }
        sums[k] = total;
    }
}

void ref_normal_combine(const struct ref_routing *routing, uint32_t ranks_per_node,
                        const struct ref_normal_combine_in *in, const uint64_t *block_start,
                        uint64_t *scratch, uint16_t *combined, float *combined_weights)
{
    assert(ranks_per_node >= 1 && in->hidden % REF_GROUP_CHANNELS == 0);
    assert(routing->ranks <= ranks_per_node || routing->ranks % ranks_per_node == 0);
    const bool several_nodes = ref_nodes(routing, ranks_per_node) > 1;

    for (uint32_t s = 0; s < routing->ranks; s++) {
        start_cursors(routing, s, block_start, scratch);
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            struct answers answers;
            find_answers(routing, ranks_per_node, t, scratch, &answers);
            if (several_nodes) {
                sum_by_node(in, &answers, t, combined);
            } else {
                sum_flat(in, &answers, t, combined);
            }
            if (in->topk_weights != NULL && combined_weights != NULL)
                sum_weights(routing->topk, in->topk_weights, &answers,
                            combined_weights + t * routing->topk);
        }
        assert_blocks_full(routing, s, block_start, scratch);
    }
}
