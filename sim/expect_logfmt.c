/* sim/expect_logfmt.c - low-latency combine with LogFMT-10 on the way home.
 *
 * Where no chunk of a row is encoded this is the plain combine, bit for bit. Encoded chunks are
 * model-only: the device's log2 and exp2 differ from ours in the last bits. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/logfmt.h"
#include "sim/expect_parts.h"

struct scratch {
    uint32_t *ranges; /* [hidden / 128] */
    uint8_t *data;    /* [2 * hidden] */
    float *row;       /* [hidden] */
    float *sum;       /* [hidden] */
    uint64_t *sent;   /* [experts]: rows that the token's rank has sent each expert so far. */
};

static void free_scratch(struct scratch *scratch)
{
    free(scratch->ranges);
    free(scratch->data);
    free(scratch->row);
    free(scratch->sum);
    free(scratch->sent);
}

static int open_scratch(const struct sim_inputs *inputs, struct scratch *scratch)
{
    const uint64_t hidden = inputs->hidden;

    scratch->ranges = (uint32_t *)calloc(hidden / 128, sizeof(uint32_t));
    scratch->data = (uint8_t *)calloc(2, hidden);
    scratch->row = (float *)calloc(hidden, sizeof(float));
    scratch->sum = (float *)calloc(hidden, sizeof(float));
    scratch->sent = (uint64_t *)calloc(inputs->routing.experts, sizeof(uint64_t));
    return scratch->ranges != NULL && scratch->data != NULL && scratch->row != NULL &&
                   scratch->sum != NULL && scratch->sent != NULL
               ? 0
               : -1;
}

/* One token: from +0, columns ascending, acc = fmaf(decoded row, weight, acc), one rounding. */
static void combine_token(const struct sim_inputs *inputs, const uint16_t *expert_out,
                          uint32_t rank, uint64_t token, struct scratch *scratch, uint16_t *out)
{
    const struct ref_routing *routing = &inputs->routing;
    const uint32_t hidden = inputs->hidden;

    for (uint32_t h = 0; h < hidden; h++) scratch->sum[h] = 0.0f;
    for (uint32_t k = 0; k < routing->topk; k++) {
        const int64_t expert = routing->topk_idx[token * routing->topk + k];

        if (expert < 0) continue;
        const float weight = routing->topk_weights[token * routing->topk + k];
        const uint64_t block = (uint64_t)expert * routing->ranks + rank;
        const uint64_t row = inputs->block_start[block] + scratch->sent[expert]++;
        assert(row < inputs->block_start[block + 1]);
        (void)ref_logfmt_encode(&expert_out[row * hidden], hidden, scratch->ranges, scratch->data);
        ref_logfmt_decode(scratch->ranges, scratch->data, hidden, scratch->row);
        for (uint32_t h = 0; h < hidden; h++)
            scratch->sum[h] = fmaf(scratch->row[h], weight, scratch->sum[h]);
    }
    for (uint32_t h = 0; h < hidden; h++) out[h] = ref_bf16_from_f32(scratch->sum[h]);
}

int sim_expect_logfmt(const struct sim_inputs *inputs, const uint16_t *expert_out,
                      uint16_t *combined)
{
    struct scratch scratch = {NULL, NULL, NULL, NULL, NULL};
    int status = open_scratch(inputs, &scratch);

    assert(inputs->hidden % 512 == 0);
    for (uint32_t r = 0; status == 0 && r < inputs->routing.ranks; r++) {
        memset(scratch.sent, 0, inputs->routing.experts * sizeof(uint64_t));
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1]; t++)
            combine_token(inputs, expert_out, r, t, &scratch, &combined[t * inputs->hidden]);
    }
    free_scratch(&scratch);
    return status;
}
