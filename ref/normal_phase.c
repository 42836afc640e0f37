/* ref/normal_phase.c - normal-mode records written, read, reduced and added, rank by rank.
 *
 * Fields of a record may stand at any multiple of 4, so they are read and written with memcpy;
 * the payload stands first and records are multiples of 16 bytes, so it is aligned. */
#include "ref/normal_phase.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/sum.h"

static struct ref_record make_record(uint64_t payload_bytes, uint64_t scale_bytes, uint32_t topk,
                                     bool internode, bool with_ids)
{
    assert(topk >= 1 && topk <= REF_TOPK_MAX);
    struct ref_record record = {.payload_bytes = payload_bytes,
                                .scale_bytes = scale_bytes,
                                .topk = topk,
                                .internode = internode};
    const uint64_t id_bytes = !with_ids ? 0 : internode ? sizeof(int32_t) : sizeof(int64_t);

    record.scales_at = payload_bytes;
    record.meta_at = record.scales_at + scale_bytes;
    record.ids_at = record.meta_at + (internode ? 2 : 1) * sizeof(int32_t);
    record.weights_at = record.ids_at + topk * id_bytes;
    record.bytes = (record.weights_at + topk * sizeof(float) + 15) / 16 * 16;
    return record;
}

struct ref_record ref_record_dispatch(uint64_t payload_bytes, uint64_t scale_bytes, uint32_t topk,
                                      bool internode)
{
    return make_record(payload_bytes, scale_bytes, topk, internode, true);
}

struct ref_record ref_record_combine(uint32_t hidden, uint32_t topk, bool internode)
{
    assert(hidden % REF_GROUP_CHANNELS == 0);
    return make_record(2 * (uint64_t)hidden, 0, topk, internode, false);
}

/* An id that names no expert travels as -1, so that 32 bits hold whatever the caller had. */
static void put_id(const struct ref_record *record, uint8_t *bytes, uint32_t k, int64_t id)
{
    const int32_t narrow = (int32_t)id;
    if (record->internode) {
        memcpy(bytes + record->ids_at + k * sizeof narrow, &narrow, sizeof narrow);
    } else {
        memcpy(bytes + record->ids_at + k * sizeof id, &id, sizeof id);
    }
}

static int64_t get_id(const struct ref_record *record, const uint8_t *bytes, uint32_t k)
{
    int32_t narrow;
    int64_t id;
    if (record->internode) {
        memcpy(&narrow, bytes + record->ids_at + k * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&id, bytes + record->ids_at + k * sizeof id, sizeof id);
    return id;
}

static void put_weight(const struct ref_record *record, uint8_t *bytes, uint32_t k, float weight)
{
    memcpy(bytes + record->weights_at + k * sizeof weight, &weight, sizeof weight);
}

static float get_weight(const struct ref_record *record, const uint8_t *bytes, uint32_t k)
{
    float weight;
    memcpy(&weight, bytes + record->weights_at + k * sizeof weight, sizeof weight);
    return weight;
}

static void put_meta(const struct ref_record *record, uint8_t *bytes, int32_t first, int32_t second)
{
    const int32_t meta[2] = {first, second};
    memcpy(bytes + record->meta_at, meta, record->internode ? sizeof meta : sizeof meta[0]);
}

/* Zero what stands between the last weight and the end, so that records compare as bytes. */
static void pad(const struct ref_record *record, uint8_t *bytes)
{
    const uint64_t used = record->weights_at + record->topk * sizeof(float);
    assert(used <= record->bytes);
    memset(bytes + used, 0, record->bytes - used);
}

static const uint16_t *payload_of(const uint8_t *record)
{
    assert((uintptr_t)record % sizeof(uint16_t) == 0);
    return (const uint16_t *)(const void *)record;
}

static void count_words(const struct ref_routing *routing, uint32_t rank, int32_t *words)
{
    const int64_t local_experts = ref_local_experts(routing);
    for (uint32_t d = 0; d < routing->ranks; d++) {
        words[d] = -1; /* No row: -0 - 1. */
        for (uint64_t t = routing->token_start[rank]; t < routing->token_start[rank + 1]; t++)
            for (uint32_t k = 0; k < routing->topk; k++) {
                const int64_t idx = routing->topk_idx[t * routing->topk + k];
                if (idx < 0 || idx / local_experts != d) continue;
                words[d]--;
                break; /* Once per token, however many of its experts live there. */
            }
    }
}

void ref_normal_pack(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t rank,
                     const struct ref_record *record, const struct ref_normal_tokens *tokens,
                     uint8_t *staged, int32_t *sent_words)
{
    assert(rank < routing->ranks && record->topk == routing->topk);
    assert(record->payload_bytes == tokens->payload_bytes);
    assert(record->scale_bytes == tokens->scale_bytes);
    const uint64_t first = routing->token_start[rank];

    for (uint64_t t = first; t < routing->token_start[rank + 1]; t++) {
        uint8_t *bytes = staged + t * record->bytes;
        memcpy(bytes, tokens->payload + t * record->payload_bytes, record->payload_bytes);
        if (record->scale_bytes > 0)
            memcpy(bytes + record->scales_at, tokens->scales + t * record->scale_bytes,
                   record->scale_bytes);
        put_meta(record, bytes,
                 record->internode ? (int32_t)(rank / ranks_per_node) : (int32_t)(t - first), 0);
        for (uint32_t k = 0; k < record->topk; k++) {
            const uint64_t at = t * record->topk + k;
            const int64_t idx = routing->topk_idx[at];
            put_id(record, bytes, k, ref_names_expert(routing, idx) ? idx : -1);
            put_weight(record, bytes, k,
                       routing->topk_weights == NULL ? 0.0f : routing->topk_weights[at]);
        }
        pad(record, bytes);
    }
    count_words(routing, rank, sent_words + (uint64_t)rank * routing->ranks);
}

/* Ids and weights of a landed record as its receiver keeps them; returns the mask of the
 * receiver's node that the ids make. Damaged ids name no expert, or another one. */
static int32_t take_columns(const struct ref_routing *routing, uint32_t ranks_per_node,
                            uint32_t rank, const struct ref_record *record, const uint8_t *bytes,
                            uint64_t row, const struct ref_normal_rows *rows)
{
    uint32_t mask = 0;
    for (uint32_t k = 0; k < record->topk; k++) {
        const int64_t id = get_id(record, bytes, k);
        const bool named = ref_names_expert(routing, id);
        const uint32_t owner = named ? ref_expert_rank(routing, id) : 0;
        const bool mine = named && owner == rank;
        if (named && owner / ranks_per_node == rank / ranks_per_node &&
            ranks_per_node <= REF_META_GPUS)
            mask |= UINT32_C(1) << owner % ranks_per_node;
        if (rows->topk_idx != NULL)
            rows->topk_idx[row * record->topk + k] = mine ? id % ref_local_experts(routing) : -1;
        if (rows->topk_weights != NULL)
            rows->topk_weights[row * record->topk + k] = mine ? get_weight(record, bytes, k) : 0.0f;
    }
    return (int32_t)mask;
}

/* The source tokens that a block's rows stand for, when records do not say: the n-th token of
 * the source that goes to this rank. */
static void number_block(const struct ref_routing *routing, uint32_t source, uint32_t rank,
                         uint64_t row, uint64_t end, int32_t *src_token)
{
    const uint64_t first = routing->token_start[source];
    for (uint64_t t = first; t < routing->token_start[source + 1] && row < end; t++) {
        uint32_t to[REF_TOPK_MAX];
        const uint32_t count = ref_token_ranks(routing, t, to);
        for (uint32_t i = 0; i < count; i++)
            if (to[i] == rank) src_token[row++] = (int32_t)(t - first);
    }
}

void ref_normal_unpack(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t rank,
                       const struct ref_record *record, const uint64_t *block_start,
                       const int32_t *landed_words, const uint8_t *landed,
                       const struct ref_normal_rows *rows)
{
    assert(rank < routing->ranks && record->topk == routing->topk);
    assert(ranks_per_node >= 1);

    for (uint32_t s = 0; s < routing->ranks; s++) {
        const uint64_t block = (uint64_t)rank * routing->ranks + s;
        const int32_t count = ~landed_words[block]; /* -word - 1, without overflow. */
        uint64_t row = block_start[block];
        if (rows->counts != NULL) rows->counts[block] = count;
        for (; row < block_start[block + 1]; row++) {
            const uint8_t *bytes = landed + row * record->bytes;
            if ((int64_t)(row - block_start[block]) >= count) break;
            if (rows->payload != NULL)
                memcpy(rows->payload + row * record->payload_bytes, bytes, record->payload_bytes);
            if (rows->scales != NULL && record->scale_bytes > 0)
                memcpy(rows->scales + row * record->scale_bytes, bytes + record->scales_at,
                       record->scale_bytes);
            const int32_t mask =
                take_columns(routing, ranks_per_node, rank, record, bytes, row, rows);
            if (!record->internode && rows->src_token != NULL)
                memcpy(&rows->src_token[row], bytes + record->meta_at, sizeof(int32_t));
            if (record->internode && rows->src_meta != NULL) {
                memcpy(&rows->src_meta[2 * row], bytes + record->meta_at, sizeof(int32_t));
                rows->src_meta[2 * row + 1] = mask;
            }
        }
        if (record->internode && rows->src_token != NULL)
            number_block(routing, s, rank, block_start[block], row, rows->src_token);
    }
}

void ref_normal_combine_pack(const struct ref_routing *routing, uint32_t rank,
                             const struct ref_record *record,
                             const struct ref_normal_combine_in *in, const uint64_t *block_start,
                             const int32_t *src_meta, const int32_t *src_token, uint8_t *staged)
{
    assert(rank < routing->ranks && record->topk == routing->topk);
    assert(record->payload_bytes == 2 * (uint64_t)in->hidden);
    const uint64_t first = block_start[(uint64_t)rank * routing->ranks];
    const uint64_t end = block_start[(rank + UINT64_C(1)) * routing->ranks];

    for (uint64_t row = first; row < end; row++) {
        uint8_t *bytes = staged + row * record->bytes;
        memcpy(bytes, in->expert_out + row * in->hidden, record->payload_bytes);
        if (record->internode) {
            put_meta(record, bytes, src_meta == NULL ? 0 : src_meta[2 * row],
                     src_meta == NULL ? 0 : src_meta[2 * row + 1]);
        } else {
            put_meta(record, bytes, src_token == NULL ? 0 : src_token[row], 0);
        }
        for (uint32_t k = 0; k < record->topk; k++)
            put_weight(record, bytes, k,
                       in->topk_weights == NULL ? 0.0f : in->topk_weights[row * record->topk + k]);
        pad(record, bytes);
    }
}

/* fp32 sum of one column's weights over `count` records, from +0. */
static float sum_weight(const struct ref_record *record, const uint8_t *first, uint64_t count,
                        uint32_t k)
{
    float sum = 0.0f;
    for (uint64_t i = 0; i < count; i++) sum += get_weight(record, first + i * record->bytes, k);
    return sum;
}

void ref_normal_forward(const struct ref_routing *routing, uint32_t rank,
                        const struct ref_record *record, const uint64_t *rail_start,
                        const uint64_t *contribution_start, const uint8_t *contributions,
                        uint8_t *rails)
{
    assert(rank < routing->ranks && record->internode);
    const uint64_t begin = rail_start[(uint64_t)rank * routing->ranks];
    const uint64_t end = rail_start[(rank + UINT64_C(1)) * routing->ranks];

    for (uint64_t rail = begin; rail < end; rail++) {
        const uint64_t count = contribution_start[rail + 1] - contribution_start[rail];
        const uint8_t *first = contributions + contribution_start[rail] * record->bytes;
        uint8_t *bytes = rails + rail * record->bytes;
        const uint16_t *rows[REF_TOPK_MAX];
        assert(count >= 1 && count <= REF_TOPK_MAX);
        assert((uintptr_t)bytes % sizeof(uint16_t) == 0);
        for (uint64_t i = 0; i < count; i++) rows[i] = payload_of(first + i * record->bytes);
        ref_sum_plain((uint32_t)(record->payload_bytes / 2), rows, (uint32_t)count, NULL, NULL,
                      (uint16_t *)(void *)bytes);
        memcpy(bytes + record->meta_at, first + record->meta_at, 2 * sizeof(int32_t));
        for (uint32_t k = 0; k < record->topk; k++)
            put_weight(record, bytes, k, sum_weight(record, first, count, k));
        pad(record, bytes);
    }
}

void ref_normal_combine_unpack(const struct ref_routing *routing, uint32_t rank,
                               const struct ref_record *record, const uint64_t *home_start,
                               const uint8_t *home, const uint16_t *bias0, const uint16_t *bias1,
                               uint16_t *combined, float *combined_weights)
{
    assert(rank < routing->ranks && record->topk == routing->topk);
    const uint64_t hidden = record->payload_bytes / 2;

    for (uint64_t t = routing->token_start[rank]; t < routing->token_start[rank + 1]; t++) {
        const uint64_t count = home_start[t + 1] - home_start[t];
        const uint8_t *first = home + home_start[t] * record->bytes;
        const uint16_t *rows[REF_TOPK_MAX];
        assert(count <= REF_TOPK_MAX);
        for (uint64_t i = 0; i < count; i++) rows[i] = payload_of(first + i * record->bytes);
        ref_sum_plain((uint32_t)hidden, rows, (uint32_t)count,
                      bias0 == NULL ? NULL : bias0 + t * hidden,
                      bias1 == NULL ? NULL : bias1 + t * hidden, combined + t * hidden);
        for (uint32_t k = 0; combined_weights != NULL && k < record->topk; k++)
            combined_weights[t * record->topk + k] = sum_weight(record, first, count, k);
    }
}
