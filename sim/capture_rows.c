/* sim/capture_rows.c - cuts arrays over all ranks into the tensors of the capture format. */
#include "sim/capture_rows.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

int sim_capture_share(struct sim_capture *capture, const struct sim_inputs *inputs,
                      const char *name, enum trace_dtype dtype, const void *flat, bool by_token,
                      uint64_t columns, char *err, size_t err_len)
{
    const enum sim_mode mode = capture->settings.mode;

    assert(capture->ranks == inputs->routing.ranks);
    for (uint32_t r = 0; r < capture->ranks; r++) {
        const uint64_t first =
            by_token ? inputs->token_start[r] : sim_inputs_rank_row(inputs, mode, r);
        const uint64_t end =
            by_token ? inputs->token_start[r + 1] : sim_inputs_rank_row(inputs, mode, r + 1);

        assert(end <= (by_token ? inputs->tokens : inputs->rows));
        if (sim_capture_add_rows(capture, r, name, dtype, flat, first, end, columns, err,
                                 err_len) != 0)
            return -1;
    }
    return 0;
}

int sim_capture_add_ll_expert(struct sim_capture *capture, const struct sim_inputs *inputs,
                              const struct sim_ll_tag *tag, const struct ref_ll_rows *rows,
                              uint64_t expert, char *err, size_t err_len)
{
    const uint32_t local = ref_local_experts(&inputs->routing);
    const uint64_t ranks = capture->ranks;
    const uint64_t first = inputs->block_start[expert * ranks];
    const uint64_t end = inputs->block_start[(expert + 1) * ranks];
    const bool packed = rows->scales_ue8m0 != NULL;
    const uint32_t rank = (uint32_t)(expert / local);
    char name[SIM_TENSOR_NAME_MAX];

    assert(capture->settings.mode == SIM_MODE_LL && expert < inputs->routing.experts);
    assert((tag->scale_channels > 0) == (packed || rows->scales != NULL));
    snprintf(name, sizeof(name), "%s.e%" PRIu64 ".x", tag->name, expert % local);
    if (sim_capture_add_rows(capture, rank, name,
                             tag->payload_bytes == 1 ? TRACE_F8_E4M3 : TRACE_BF16, rows->payload,
                             first, end, inputs->hidden, err, err_len) != 0)
        return -1;
    snprintf(name, sizeof(name), "%s.e%" PRIu64 ".src", tag->name, expert % local);
    if (sim_capture_add_rows(capture, rank, name, TRACE_I32, rows->src_token, first, end, 0, err,
                             err_len) != 0)
        return -1;
    if (tag->scale_channels == 0) return 0;
    snprintf(name, sizeof(name), "%s.e%" PRIu64 ".scales", tag->name, expert % local);
    return sim_capture_add_rows(capture, rank, name, packed ? TRACE_I32 : TRACE_F32,
                                packed ? (const void *)rows->scales_ue8m0
                                       : (const void *)rows->scales,
                                first, end, inputs->hidden / tag->scale_channels, err, err_len);
}
