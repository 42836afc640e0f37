/* sim/plugin_order.c - rows that a plugin landed in any order become the order of sim/backend.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plugin_private.h"

static int by_token(const void *a, const void *b, void *context)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    const int32_t *src_token = (const int32_t *)context;
    if (src_token[left] != src_token[right]) return src_token[left] < src_token[right] ? -1 : 1;
    return left < right ? -1 : left > right;
}

static bool ascending(const int32_t *src_token, uint64_t first, uint64_t end)
{
    for (uint64_t row = first + 1; row < end; row++)
        if (src_token[row - 1] > src_token[row]) return false;
    return true;
}

/* Copy one array; order NULL: as it stands. */
static void copy_rows(void *to, const void *from, const uint64_t *order, uint64_t rows,
                      uint64_t row_bytes)
{
    uint8_t *out = (uint8_t *)to;
    const uint8_t *in = (const uint8_t *)from;
    if (to == NULL || row_bytes == 0) return;
    assert(from != NULL);
    if (order == NULL) {
        memcpy(out, in, rows * row_bytes);
        return;
    }
    for (uint64_t row = 0; row < rows; row++)
        memcpy(out + row * row_bytes, in + order[row] * row_bytes, row_bytes);
}

int plugin_order_rows(const struct sim_layer_input *in, const struct sim_received *from,
                      struct sim_received *to, struct sim_arena *scratch, char *err, size_t err_len)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint64_t rows = in->traffic->received_rows, topk = in->routing->topk;
    const uint64_t *start = in->traffic->block_start;
    uint64_t *order = NULL;
    bool in_order = true;

    assert(start[shape.blocks] == rows);
    for (uint64_t b = 0; in->traffic->mode == SIM_MODE_LL && b < shape.blocks; b++)
        in_order = in_order && ascending(from->src_token, start[b], start[b + 1]);
    if (!in_order) {
        if (sim_arena_reserve(scratch, rows, sizeof *order, err, err_len) != 0) return -1;
        order = (uint64_t *)(void *)scratch->bytes;
        for (uint64_t row = 0; row < rows; row++) order[row] = row;
        for (uint64_t b = 0; b < shape.blocks; b++)
            qsort_r(order + start[b], start[b + 1] - start[b], sizeof *order, by_token,
                    from->src_token);
    }
    copy_rows(to->payload, from->payload, order, rows, shape.payload_bytes);
    copy_rows(to->scales, from->scales, order, rows, shape.scale_bytes);
    copy_rows(to->scales_ue8m0, from->scales_ue8m0, order, rows, shape.scale_bytes);
    copy_rows(to->src_token, from->src_token, order, rows, sizeof(int32_t));
    copy_rows(to->topk_idx, from->topk_idx, order, rows, topk * sizeof(int64_t));
    copy_rows(to->topk_weights, from->topk_weights, order, rows, topk * sizeof(float));
    copy_rows(to->counts, from->counts, NULL, shape.blocks, sizeof(int32_t));
    return 0;
}
