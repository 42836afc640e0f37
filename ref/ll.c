/* ref/ll.c - every LL row found by counting, then copied or added. */
#include "ref/ll.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ref/quantise.h"
#include "ref/sum.h"

uint64_t ref_ll_blocks(const struct ref_routing *routing, uint64_t *block_start)
{
    assert(routing->ranks >= 1 && routing->experts % routing->ranks == 0);
    const uint64_t blocks = (uint64_t)routing->experts * routing->ranks;

    memset(block_start, 0, (blocks + 1) * sizeof *block_start);
    for (uint32_t s = 0; s < routing->ranks; s++)
        for (uint64_t i = routing->token_start[s] * routing->topk;
             i < routing->token_start[s + 1] * routing->topk; i++)
            if (ref_names_expert(routing, routing->topk_idx[i]))
                block_start[(uint64_t)routing->topk_idx[i] * routing->ranks + s + 1]++;
    for (uint64_t b = 0; b < blocks; b++) block_start[b + 1] += block_start[b];
    return block_start[blocks];
}

uint64_t ref_ll_payload_bytes(uint32_t hidden, uint32_t recipe)
{
    assert(recipe < REF_RECIPE_COUNT);
    return (uint64_t)hidden * ref_recipe_payload_bytes((enum ref_recipe)recipe);
}

/* Rows of a token, in column order; advances the source rank's cursors. Returns how many. */
static uint32_t token_rows(const struct ref_routing *routing, uint64_t token, uint64_t *cursor,
                           uint64_t rows[REF_TOPK_MAX], float weights[REF_TOPK_MAX])
{
    assert(routing->topk <= REF_TOPK_MAX);
    uint32_t count = 0;
    for (uint32_t k = 0; k < routing->topk; k++) {
        const uint64_t at = token * routing->topk + k;
        if (!ref_names_expert(routing, routing->topk_idx[at])) continue;
        if (weights != NULL) weights[count] = routing->topk_weights[at];
        rows[count++] = cursor[routing->topk_idx[at]]++;
    }
    return count;
}

static void start_cursors(const struct ref_routing *routing, uint32_t source,
                          const uint64_t *block_start, uint64_t *cursor)
{
    for (uint32_t e = 0; e < routing->experts; e++)
        cursor[e] = block_start[(uint64_t)e * routing->ranks + source];
}

/* Every cursor of a source has reached its block's end: no row is missing or counted twice. */
static void assert_blocks_full(const struct ref_routing *routing, uint32_t source,
                               const uint64_t *block_start, const uint64_t *cursor)
{
    for (uint32_t e = 0; e < routing->experts; e++)
        assert(cursor[e] == block_start[(uint64_t)e * routing->ranks + source + 1]);
}

/* Cast one token into row `row`, four groups at a time: a packed word needs all four scales and
 * this way no scratch row. */
static void cast_row(uint32_t hidden, enum ref_recipe recipe, const uint16_t *x, uint64_t row,
                     const struct ref_ll_rows *rows)
{
    enum { PIECE = 4 * REF_GROUP_CHANNELS };
    const uint32_t groups = ref_scale_groups(hidden);
    uint8_t *payload = rows->payload + row * ref_ll_payload_bytes(hidden, recipe);

    if (ref_recipe_scales(recipe) == REF_SCALE_NONE) {
        memcpy(payload, x, 2 * (uint64_t)hidden);
        return;
    }
    for (uint32_t first = 0; first < hidden; first += PIECE) {
        const uint32_t count = hidden - first < PIECE ? hidden - first : PIECE;
        const uint32_t piece_groups = count / REF_GROUP_CHANNELS;
        const uint32_t group = first / REF_GROUP_CHANNELS;
        float scales[4];
        ref_quantise(recipe, x + first, 1, count, payload + first, scales);
        if (rows->scales != NULL)
            memcpy(rows->scales + row * groups + group, scales, piece_groups * sizeof(float));
        if (rows->scales_ue8m0 == NULL) continue;
        uint32_t *word = rows->scales_ue8m0 + row * ref_scale_packed_words(groups) + group / 4;
        const int packed = ref_scales_pack_ue8m0(scales, 1, piece_groups, word, NULL, 0);
        assert(packed == 0); /* A recipe without power-of-two scales was asked for exponents. */
        (void)packed;
    }
}

static void copy_row(uint32_t hidden, uint32_t recipe, uint64_t from, uint64_t to,
                     const struct ref_ll_rows *rows)
{
    const uint64_t payload_bytes = ref_ll_payload_bytes(hidden, recipe);
    const uint64_t groups = ref_scale_groups(hidden);
    const uint64_t words = ref_scale_packed_words((uint32_t)groups);

    memcpy(rows->payload + to * payload_bytes, rows->payload + from * payload_bytes, payload_bytes);
    if (ref_recipe_scales((enum ref_recipe)recipe) == REF_SCALE_NONE) return;
    if (rows->scales != NULL)
        memcpy(rows->scales + to * groups, rows->scales + from * groups, groups * sizeof(float));
    if (rows->scales_ue8m0 != NULL)
        memcpy(rows->scales_ue8m0 + to * words, rows->scales_ue8m0 + from * words,
               words * sizeof(uint32_t));
}

void ref_ll_dispatch(const struct ref_routing *routing, uint32_t hidden, uint32_t recipe,
                     const uint16_t *x, const uint64_t *block_start, uint64_t *scratch,
                     const struct ref_ll_rows *rows)
{
    assert(hidden % REF_GROUP_CHANNELS == 0 && recipe < REF_RECIPE_COUNT);
    const uint64_t blocks = (uint64_t)routing->experts * routing->ranks;
    assert(rows->payload != NULL || block_start[blocks] == 0);

    for (uint32_t s = 0; s < routing->ranks; s++) {
        const uint64_t first = routing->token_start[s];
        start_cursors(routing, s, block_start, scratch);
        for (uint64_t t = first; t < routing->token_start[s + 1]; t++) {
            uint64_t to[REF_TOPK_MAX];
            const uint32_t count = token_rows(routing, t, scratch, to, NULL);
            if (count > 0) cast_row(hidden, (enum ref_recipe)recipe, x + t * hidden, to[0], rows);
            for (uint32_t i = 1; i < count; i++) copy_row(hidden, recipe, to[0], to[i], rows);
            if (rows->src_token == NULL) continue;
            for (uint32_t i = 0; i < count; i++) rows->src_token[to[i]] = (int32_t)(t - first);
        }
        assert_blocks_full(routing, s, block_start, scratch);
    }
    if (rows->counts == NULL) return;
    for (uint64_t b = 0; b < blocks; b++)
        rows->counts[b] = (int32_t)(block_start[b + 1] - block_start[b]);
}

void ref_ll_layout_range(const struct ref_routing *routing, const uint64_t *block_start,
                         uint32_t rank, int64_t *layout_range)
{
    assert(rank < routing->ranks);
    const uint64_t ranks = routing->ranks;
    const uint64_t local = ref_local_experts(routing);

    for (uint64_t i = 0; i < local * ranks; i++) {
        const uint64_t block = rank * local * ranks + i;
        const uint64_t begin = block_start[block] - block_start[block - i % ranks];
        const uint64_t count = block_start[block + 1] - block_start[block];
        assert(begin <= INT32_MAX && count <= INT32_MAX);
        layout_range[i] = (int64_t)(begin << 32 | count);
    }
}

void ref_ll_combine(const struct ref_routing *routing, uint32_t hidden, const uint16_t *expert_out,
                    const uint64_t *block_start, uint64_t *scratch, uint16_t *combined)
{
    assert(hidden % REF_GROUP_CHANNELS == 0);
    assert(routing->topk_weights != NULL || ref_token_count(routing) == 0);

    for (uint32_t s = 0; s < routing->ranks; s++) {
        start_cursors(routing, s, block_start, scratch);
        for (uint64_t t = routing->token_start[s]; t < routing->token_start[s + 1]; t++) {
            uint64_t from[REF_TOPK_MAX];
            float weights[REF_TOPK_MAX];
            const uint16_t *row[REF_TOPK_MAX];
            const uint32_t count = token_rows(routing, t, scratch, from, weights);
            for (uint32_t i = 0; i < count; i++) row[i] = expert_out + from[i] * hidden;
            ref_sum_weighted(hidden, row, weights, count, combined + t * hidden);
        }
        assert_blocks_full(routing, s, block_start, scratch);
    }
}
