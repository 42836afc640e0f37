/* sim/wrong_rows.c - a list of wrong rows that ends when full, and a digest over all of them. */
#include "sim/wrong_rows.h"

#include <assert.h>

#include "ref/digest.h"

void sim_wrong_rows_clear(struct sim_wrong_rows *wrong)
{
    wrong->count = 0;
    wrong->digest = 0;
}

void sim_wrong_rows_add(struct sim_wrong_rows *wrong, const struct sim_wrong_row *row)
{
    const uint64_t words[] = {row->stage, row->rank, (uint64_t)(int64_t)row->expert, row->src_rank,
                              (uint64_t)row->src_token};

    assert(row->expert >= -1 && row->src_token >= -1 && row->step == 0 && row->layer == 0);
    if (wrong->count < SIM_WRONG_ROWS_MAX) wrong->rows[wrong->count] = *row;
    wrong->count++;
    wrong->digest = ref_digest_mix(wrong->digest, ref_digest(words, sizeof words));
}

void sim_wrong_rows_append(struct sim_wrong_rows *wrong, const struct sim_wrong_rows *layer_rows,
                           uint64_t step, uint32_t layer)
{
    const uint32_t listed = sim_wrong_rows_listed(layer_rows);

    if (layer_rows->count == 0) return;
    for (uint32_t i = 0; i < listed && wrong->count + i < SIM_WRONG_ROWS_MAX; i++) {
        struct sim_wrong_row *row = &wrong->rows[wrong->count + i];
        *row = layer_rows->rows[i];
        row->step = step;
        row->layer = layer;
    }
    wrong->count += layer_rows->count;
    wrong->digest = ref_digest_mix(wrong->digest, step);
    wrong->digest = ref_digest_mix(wrong->digest, layer);
    wrong->digest = ref_digest_mix(wrong->digest, layer_rows->digest);
}
