/* ref/ll_phase.c - LL messages written, read and added up, one rank at a time. */
#include "ref/ll_phase.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/quantise.h"
#include "ref/sum.h"

static uint64_t scale_bytes(uint32_t hidden, uint32_t recipe)
{
    if (ref_recipe_scales((enum ref_recipe)recipe) == REF_SCALE_NONE) return 0;
    return ref_scale_groups(hidden) * sizeof(float);
}

uint64_t ref_ll_message_bytes(uint32_t hidden, uint32_t recipe)
{
    assert(hidden % REF_GROUP_CHANNELS == 0);
    return REF_LL_HEADER_BYTES + ref_ll_payload_bytes(hidden, recipe) + scale_bytes(hidden, recipe);
}

static void count_words(const struct ref_routing *routing, uint32_t rank, int32_t *words)
{
    for (uint32_t e = 0; e < routing->experts; e++) words[e] = -1; /* No row: -0 - 1. */
    for (uint64_t t = routing->token_start[rank]; t < routing->token_start[rank + 1]; t++)
        for (uint32_t k = 0; k < routing->topk; k++) {
            const int64_t idx = routing->topk_idx[t * routing->topk + k];
            if (ref_names_expert(routing, idx)) words[idx]--;
        }
}

void ref_ll_pack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden, uint32_t recipe,
                 const uint16_t *x, uint8_t *staged, int32_t *sent_words)
{
    assert(rank < routing->ranks && recipe < REF_RECIPE_COUNT);
    assert((uintptr_t)staged % sizeof(float) == 0);
    const uint64_t message_bytes = ref_ll_message_bytes(hidden, recipe);
    const uint64_t payload_bytes = ref_ll_payload_bytes(hidden, recipe);
    const uint64_t first = routing->token_start[rank];

    for (uint64_t t = first; t < routing->token_start[rank + 1]; t++) {
        uint8_t *message = staged + t * message_bytes;
        uint8_t *payload = message + REF_LL_HEADER_BYTES;
        void *scales = payload + payload_bytes;
        const int32_t header[REF_LL_HEADER_BYTES / 4] = {(int32_t)(t - first), 0, 0, 0};
        memcpy(message, header, sizeof header);
        ref_quantise((enum ref_recipe)recipe, x + t * hidden, 1, hidden, payload, (float *)scales);
    }
    count_words(routing, rank, sent_words + (uint64_t)rank * routing->experts);
}

/* The receiver takes each scale's exponent whatever its other bits are, as the kernel does: a
 * message damaged on its way must show in the rows, not stop the receiver. */
static void take_exponents(const uint8_t *scales, uint32_t groups, uint32_t *packed)
{
    for (uint32_t word = 0; word < ref_scale_packed_words(groups); word++) packed[word] = 0;
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t bits;
        memcpy(&bits, scales + g * sizeof bits, sizeof bits);
        packed[g / 4] |= (bits >> 23 & 0xFFu) << (8 * (g % 4));
    }
}

static void take_message(uint32_t hidden, uint32_t recipe, const uint8_t *message, uint64_t row,
                         const struct ref_ll_rows *rows)
{
    const uint64_t payload_bytes = ref_ll_payload_bytes(hidden, recipe);
    const uint32_t groups = ref_scale_groups(hidden);
    const uint8_t *payload = message + REF_LL_HEADER_BYTES;
    const uint8_t *scales = payload + payload_bytes;

    if (rows->src_token != NULL) memcpy(&rows->src_token[row], message, sizeof(int32_t));
    if (rows->payload != NULL) memcpy(rows->payload + row * payload_bytes, payload, payload_bytes);
    if (scale_bytes(hidden, recipe) == 0) return;
    if (rows->scales != NULL) memcpy(rows->scales + row * groups, scales, groups * sizeof(float));
    if (rows->scales_ue8m0 != NULL)
        take_exponents(scales, groups, rows->scales_ue8m0 + row * ref_scale_packed_words(groups));
}

void ref_ll_unpack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                   uint32_t recipe, const uint64_t *block_start, const int32_t *landed_words,
                   const uint8_t *landed, const struct ref_ll_rows *rows)
{
    assert(rank < routing->ranks && recipe < REF_RECIPE_COUNT);
    const uint64_t message_bytes = ref_ll_message_bytes(hidden, recipe);
    const uint64_t blocks_per_rank = (uint64_t)ref_local_experts(routing) * routing->ranks;

    for (uint64_t b = rank * blocks_per_rank; b < (rank + 1) * blocks_per_rank; b++) {
        const int32_t count = ~landed_words[b]; /* -word - 1, without overflow. */
        if (rows->counts != NULL) rows->counts[b] = count;
        for (uint64_t row = block_start[b]; row < block_start[b + 1]; row++) {
            if ((int64_t)(row - block_start[b]) >= count) break;
            take_message(hidden, recipe, landed + row * message_bytes, row, rows);
        }
    }
}

void ref_ll_combine_pack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                         const uint64_t *block_start, const uint16_t *expert_out, uint16_t *staged)
{
    assert(rank < routing->ranks);
    const uint64_t blocks_per_rank = (uint64_t)ref_local_experts(routing) * routing->ranks;
    const uint64_t first = block_start[rank * blocks_per_rank];
    const uint64_t end = block_start[(rank + 1) * blocks_per_rank];

    assert(first <= end);
    if (first == end) return;
    memcpy(staged + first * hidden, expert_out + first * hidden,
           (end - first) * hidden * sizeof *staged);
}

void ref_ll_combine_unpack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                           const uint64_t *home_start, const uint16_t *home, uint16_t *combined)
{
    assert(rank < routing->ranks);
    for (uint64_t t = routing->token_start[rank]; t < routing->token_start[rank + 1]; t++) {
        const uint16_t *rows[REF_TOPK_MAX];
        float weights[REF_TOPK_MAX];
        uint32_t count = 0;
        for (uint32_t k = 0; k < routing->topk; k++) {
            const uint64_t at = t * routing->topk + k;
            if (!ref_names_expert(routing, routing->topk_idx[at])) continue;
            rows[count] = home + (home_start[t] + count) * hidden;
            weights[count++] = routing->topk_weights[at];
        }
        assert(home_start[t] + count == home_start[t + 1]);
        ref_sum_weighted(hidden, rows, weights, count, combined + t * hidden);
    }
}
