/* ref/expert_rows.c - normal mode's rows handed to the experts of their rank, and back.
 *
 * One pass over all columns for every expert: slow beside a sort, and nothing to get wrong. */
#include "ref/expert.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "ref/routing.h"
#include "ref/sum.h"

static bool is_answered(const struct ref_expert_choices *choices, uint64_t column)
{
    const int64_t idx = choices->topk_idx[column];
    return idx >= 0 && idx < (int64_t)choices->experts;
}

uint64_t ref_expert_answers(const struct ref_expert_choices *choices, uint64_t *answer_start)
{
    uint64_t next = 0;

    assert(choices->topk >= 1 && choices->topk <= REF_TOPK_MAX);
    for (uint64_t row = 0; row < choices->rows; row++) {
        answer_start[row] = next;
        for (uint32_t k = 0; k < choices->topk; k++)
            if (is_answered(choices, row * choices->topk + k)) next++;
    }
    answer_start[choices->rows] = next;
    return next;
}

uint64_t ref_expert_pick(const struct ref_expert_choices *choices, uint32_t expert, uint64_t *rows,
                         uint64_t *answers)
{
    uint64_t next = 0, count = 0;

    assert(expert < choices->experts);
    for (uint64_t column = 0; column < choices->rows * choices->topk; column++) {
        if (!is_answered(choices, column)) continue;
        if (choices->topk_idx[column] == (int64_t)expert) {
            rows[count] = column / choices->topk;
            answers[count++] = next;
        }
        next++;
    }
    assert(count <= next);
    return count;
}

void ref_expert_weigh(const struct ref_expert_choices *choices, uint32_t hidden,
                      const uint64_t *answer_start, const uint16_t *answers, uint16_t *out)
{
    assert(hidden % REF_GROUP_CHANNELS == 0 && choices->topk <= REF_TOPK_MAX);
    for (uint64_t row = 0; row < choices->rows; row++) {
        const uint16_t *added[REF_TOPK_MAX];
        float weights[REF_TOPK_MAX];
        uint32_t count = 0;
        for (uint32_t k = 0; k < choices->topk; k++) {
            const uint64_t column = row * choices->topk + k;
            if (!is_answered(choices, column)) continue;
            added[count] = answers + (answer_start[row] + count) * hidden;
            weights[count++] = choices->topk_weights[column];
        }
        assert(answer_start[row] + count == answer_start[row + 1]);
        ref_sum_weighted(hidden, added, weights, count, out + row * hidden);
    }
}
