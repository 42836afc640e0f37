/* ref/rows.c - numbering of rows by one walk over the tokens, and landing messages on them. */
#include "ref/rows.h"

#include <assert.h>
#include <string.h>

#include "ref/layout.h"

uint64_t ref_rows_ll(const struct ref_routing *routing, const uint64_t *block_start,
                     uint64_t *scratch, uint64_t *home_start, uint64_t *home_row)
{
    uint64_t home = 0;
    for (uint32_t s = 0; s < routing->ranks; s++) {
        for (uint32_t e = 0; e < routing->experts; e++)
            scratch[e] = block_start[(uint64_t)e * routing->ranks + s];
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            home_start[t] = home;
            for (uint32_t k = 0; k < routing->topk; k++) {
                const int64_t idx = routing->topk_idx[t * routing->topk + k];
                if (ref_names_expert(routing, idx)) home_row[home++] = scratch[idx]++;
            }
        }
    }
    home_start[ref_token_count(routing)] = home;
    assert(home == block_start[(uint64_t)routing->experts * routing->ranks]);
    return home;
}

uint64_t ref_rows_normal(const struct ref_routing *routing, const uint64_t *block_start,
                         uint64_t *scratch, uint64_t *home_start, uint64_t *home_row)
{
    uint64_t home = 0;
    for (uint32_t s = 0; s < routing->ranks; s++) {
        for (uint32_t d = 0; d < routing->ranks; d++)
            scratch[d] = block_start[(uint64_t)d * routing->ranks + s];
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint32_t to[REF_TOPK_MAX];
            const uint32_t to_count = ref_token_ranks(routing, t, to);
            home_start[t] = home;
            for (uint32_t i = 0; i < to_count; i++) home_row[home++] = scratch[to[i]]++;
        }
    }
    home_start[ref_token_count(routing)] = home;
    assert(home == block_start[(uint64_t)routing->ranks * routing->ranks]);
    return home;
}

/* Distinct forwarders of a token of rank `home`, by node ascending; gpus[i] receives how many
 * destination ranks node i's forwarder serves. */
static uint32_t token_forwarders(const struct ref_routing *routing, uint32_t ranks_per_node,
                                 uint32_t home, uint64_t token, uint32_t forwarders[REF_TOPK_MAX],
                                 uint32_t gpus[REF_TOPK_MAX])
{
    uint32_t to[REF_TOPK_MAX];
    const uint32_t to_count = ref_token_ranks(routing, token, to);
    uint32_t count = 0;

    for (uint32_t i = 0; i < to_count; i++) {
        const uint32_t forwarder = to[i] / ranks_per_node * ranks_per_node + home % ranks_per_node;
        if (count == 0 || forwarders[count - 1] != forwarder) {
            forwarders[count] = forwarder;
            gpus[count++] = 0;
        }
        gpus[count - 1]++;
    }
    return count;
}

uint64_t ref_rows_rails(const struct ref_routing *routing, uint32_t ranks_per_node,
                        uint64_t *rail_start)
{
    assert(ranks_per_node >= 1 && routing->ranks % ranks_per_node == 0);
    const uint64_t pairs = (uint64_t)routing->ranks * routing->ranks;

    memset(rail_start, 0, (pairs + 1) * sizeof *rail_start);
    for (uint32_t s = 0; s < routing->ranks; s++)
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint32_t forwarders[REF_TOPK_MAX], gpus[REF_TOPK_MAX];
            const uint32_t count =
                token_forwarders(routing, ranks_per_node, s, t, forwarders, gpus);
            for (uint32_t i = 0; i < count; i++)
                rail_start[(uint64_t)forwarders[i] * routing->ranks + s + 1]++;
        }
    for (uint64_t pair = 0; pair < pairs; pair++) rail_start[pair + 1] += rail_start[pair];
    return rail_start[pairs];
}

uint64_t ref_rows_rail_home(const struct ref_routing *routing, uint32_t ranks_per_node,
                            const uint64_t *rail_start, uint64_t *scratch, uint64_t *home_start,
                            uint64_t *home_rail)
{
    uint64_t home = 0;
    for (uint32_t s = 0; s < routing->ranks; s++) {
        for (uint32_t f = 0; f < routing->ranks; f++)
            scratch[f] = rail_start[(uint64_t)f * routing->ranks + s];
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint32_t forwarders[REF_TOPK_MAX], gpus[REF_TOPK_MAX];
            const uint32_t count =
                token_forwarders(routing, ranks_per_node, s, t, forwarders, gpus);
            home_start[t] = home;
            for (uint32_t i = 0; i < count; i++) home_rail[home++] = scratch[forwarders[i]]++;
        }
    }
    home_start[ref_token_count(routing)] = home;
    assert(home == rail_start[(uint64_t)routing->ranks * routing->ranks]);
    return home;
}

/* One walk in the order of tokens. First round (rows NULL): contribution_start[rail + 1] takes
 * each rail row's number of GPUs. Second: contributions are filled from the starts. */
static void walk_contributions(const struct ref_routing *routing, uint32_t ranks_per_node,
                               const uint64_t *block_start, const uint64_t *rail_start,
                               uint64_t *scratch, uint64_t *contribution_start,
                               uint64_t *contribution_row)
{
    const uint32_t ranks = routing->ranks;
    uint64_t *rail_next = scratch, *row_next = scratch + ranks;

    for (uint32_t s = 0; s < ranks; s++) {
        for (uint32_t r = 0; r < ranks; r++) {
            rail_next[r] = rail_start[(uint64_t)r * ranks + s];
            row_next[r] = block_start[(uint64_t)r * ranks + s];
        }
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint32_t forwarders[REF_TOPK_MAX], gpus[REF_TOPK_MAX], to[REF_TOPK_MAX];
            const uint32_t count =
                token_forwarders(routing, ranks_per_node, s, t, forwarders, gpus);
            const uint32_t *rank = to;
            (void)ref_token_ranks(routing, t, to);
            for (uint32_t i = 0; i < count; i++) {
                const uint64_t rail = rail_next[forwarders[i]]++;
                if (contribution_row == NULL) {
                    contribution_start[rail + 1] = gpus[i];
                    continue;
                }
                for (uint32_t g = 0; g < gpus[i]; g++)
                    contribution_row[contribution_start[rail] + g] = row_next[*rank++]++;
            }
        }
    }
}

uint64_t ref_rows_contributions(const struct ref_routing *routing, uint32_t ranks_per_node,
                                const uint64_t *block_start, const uint64_t *rail_start,
                                uint64_t *scratch, uint64_t *contribution_start,
                                uint64_t *contribution_row)
{
    assert(ranks_per_node >= 1 && routing->ranks % ranks_per_node == 0);
    const uint64_t pairs = (uint64_t)routing->ranks * routing->ranks;
    const uint64_t rails = rail_start[pairs];

    contribution_start[0] = 0;
    walk_contributions(routing, ranks_per_node, block_start, rail_start, scratch,
                       contribution_start, NULL);
    for (uint64_t rail = 0; rail < rails; rail++)
        contribution_start[rail + 1] += contribution_start[rail];
    assert(contribution_start[rails] == block_start[pairs]);
    walk_contributions(routing, ranks_per_node, block_start, rail_start, scratch,
                       contribution_start, contribution_row);
    return contribution_start[rails];
}

void ref_rows_invert(uint64_t count, const uint64_t *map, uint64_t *inverse)
{
    for (uint64_t i = 0; i < count; i++) {
        assert(map[i] < count);
        inverse[map[i]] = i;
    }
}

void ref_rows_owner(uint64_t count, const uint64_t *start, uint64_t *owner)
{
    for (uint64_t j = 0; j < count; j++) {
        assert(start[j] <= start[j + 1]);
        for (uint64_t i = start[j]; i < start[j + 1]; i++) owner[i] = j;
    }
}

void ref_deliver(const struct ref_move *moves, uint64_t count, const uint8_t *src, uint8_t *dst,
                 uint64_t row_bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct ref_move *move = &moves[i];
        uint8_t *landed = dst + move->dst_row * row_bytes;
        memcpy(landed, src + move->src_row * row_bytes, row_bytes);
        if (move->corrupt_xor == 0) continue;
        assert(move->corrupt_byte < row_bytes);
        landed[move->corrupt_byte] ^= move->corrupt_xor;
    }
}

void ref_deliver_counts(uint32_t ranks, uint32_t columns, uint32_t src_rank, const int32_t *sent,
                        int32_t *received)
{
    assert(src_rank < ranks);
    for (uint64_t column = 0; column < columns; column++)
        received[column * ranks + src_rank] = sent[(uint64_t)src_rank * columns + column];
}
