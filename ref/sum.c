/* ref/sum.c - sums of BF16 rows, 128 channels at a time so that the accumulators stay in L1. */
#include "ref/sum.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "ref/bf16.h"
#include "ref/hot.h"
#include "ref/routing.h"

enum { CHANNELS = REF_GROUP_CHANNELS };

REF_HOT static void sum_weighted(uint32_t hidden, const uint16_t *const *rows, const float *weights,
                                 uint32_t row_count, uint16_t *out)
{
    for (uint32_t first = 0; first < hidden; first += CHANNELS) {
        float sum[CHANNELS] = {0};
        for (uint32_t i = 0; i < row_count; i++) {
            const uint16_t *row = rows[i] + first;
            const float weight = weights[i];
            for (uint32_t c = 0; c < CHANNELS; c++)
                sum[c] = fmaf(ref_bf16_to_f32(row[c]), weight, sum[c]);
        }
        for (uint32_t c = 0; c < CHANNELS; c++) out[first + c] = ref_bf16_from_f32(sum[c]);
    }
}

void ref_sum_weighted(uint32_t hidden, const uint16_t *const *rows, const float *weights,
                      uint32_t row_count, uint16_t *out)
{
    assert(hidden % CHANNELS == 0 && row_count <= REF_TOPK_MAX);
    sum_weighted(hidden, rows, weights, row_count, out);
}

REF_HOT static void sum_plain(uint32_t hidden, const uint16_t *const *rows, uint32_t row_count,
                              const uint16_t *bias0, const uint16_t *bias1, uint16_t *out)
{
    for (uint32_t first = 0; first < hidden; first += CHANNELS) {
        float sum[CHANNELS] = {0};
        if (bias0 != NULL)
            for (uint32_t c = 0; c < CHANNELS; c++) sum[c] = ref_bf16_to_f32(bias0[first + c]);
        /* The missing one is added as +0, which turns a bias of -0 into +0 as the kernel does. */
        for (uint32_t c = 0; c < CHANNELS; c++)
            sum[c] += bias1 != NULL ? ref_bf16_to_f32(bias1[first + c]) : 0.0f;
        for (uint32_t i = 0; i < row_count; i++) {
            const uint16_t *row = rows[i] + first;
            for (uint32_t c = 0; c < CHANNELS; c++) sum[c] += ref_bf16_to_f32(row[c]);
        }
        for (uint32_t c = 0; c < CHANNELS; c++) out[first + c] = ref_bf16_from_f32(sum[c]);
    }
}

void ref_sum_plain(uint32_t hidden, const uint16_t *const *rows, uint32_t row_count,
                   const uint16_t *bias0, const uint16_t *bias1, uint16_t *out)
{
    assert(hidden % CHANNELS == 0 && row_count <= REF_TOPK_MAX);
    sum_plain(hidden, rows, row_count, bias0, bias1, out);
}
