/* sim/backend_ref.c - the reference behind the backend table: group operations. */
#include "sim/backend_ref.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ll.h"
#include "ref/normal.h"

static int ref_open(const struct sim_backend_ops *self, void **state_out, char *err, size_t err_len)
{
    (void)self;
    *state_out = calloc(1, sizeof(struct backend_ref));
    if (*state_out != NULL) return 0;
    snprintf(err, err_len, "backend ref: out of memory");
    return -1;
}

static void ref_close(void *opaque)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    if (state == NULL) return;
    sim_arena_free(&state->blocks);
    sim_arena_free(&state->cursor);
    sim_arena_free(&state->codes);
    sim_arena_free(&state->scales);
    sim_arena_free(&state->packed);
    sim_arena_free(&state->weights);
    sim_arena_free(&state->mlp);
    for (int i = 0; i < ANSWER_ARENAS; i++) sim_arena_free(&state->answer[i]);
    for (int i = 0; i < ARENAS; i++) sim_arena_free(&state->arenas[i]);
    sim_arena_free(&state->sent_words);
    sim_arena_free(&state->landed_words);
    sim_arena_free(&state->moves);
    sim_arena_free(&state->src_meta);
    sim_results_free(&state->results);
    free(state);
}

/* Blocks and cursors of the group operations, computed here from routing alone. */
static int reserve_blocks(struct backend_ref *state, const struct sim_layer_input *in, char *err,
                          size_t err_len)
{
    const uint64_t ranks = in->routing->ranks, experts = in->routing->experts;
    const uint64_t most = ranks > experts ? ranks : experts;
    assert(in->traffic->ranks == in->routing->ranks && ranks > 0 && experts % ranks == 0);
    if (sim_arena_reserve(&state->blocks, ranks * most + 1, sizeof(uint64_t), err, err_len) != 0 ||
        sim_arena_reserve(&state->cursor, most, sizeof(uint64_t), err, err_len) != 0)
        return -1;
    return 0;
}

static int ref_dispatch(void *opaque, const struct sim_layer_input *in, struct sim_received *out,
                        char *err, size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    struct ref_normal_tokens tokens;
    if (reserve_blocks(state, in, err, err_len) != 0) return -1;
    uint64_t *blocks = (uint64_t *)(void *)state->blocks.bytes;
    uint64_t *cursor = (uint64_t *)(void *)state->cursor.bytes;

    if (in->traffic->mode == SIM_MODE_LL) {
        const struct ref_ll_rows rows = {out->payload, out->scales, out->scales_ue8m0,
                                         out->src_token, out->counts};
        out->rows = ref_ll_blocks(in->routing, blocks);
        assert(out->rows == in->traffic->received_rows);
        ref_ll_dispatch(in->routing, in->hidden, in->recipe, in->x, blocks, cursor, &rows);
        return 0;
    }
    const struct ref_normal_rows rows = {.payload = out->payload,
                                         .scales = sim_received_scales(out),
                                         .topk_idx = out->topk_idx,
                                         .topk_weights = out->topk_weights,
                                         .src_token = out->src_token,
                                         .counts = out->counts};
    if (backend_ref_cast(state, in, 0, ref_token_count(in->routing), &tokens, err, err_len) != 0)
        return -1;
    out->rows = ref_normal_blocks(in->routing, blocks);
    assert(out->rows == in->traffic->received_rows);
    ref_normal_dispatch(in->routing, in->traffic->ranks_per_node, &tokens, blocks, cursor, &rows);
    return 0;
}

static int ref_expert(void *opaque, const struct sim_layer_input *in,
                      const struct sim_received *rows, uint16_t *expert_out, char *err,
                      size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    assert(in->traffic->ranks == in->routing->ranks);
    for (uint32_t rank = 0; rank < in->routing->ranks; rank++)
        if (backend_ref_experts(state, in, rows, rank, expert_out, err, err_len) != 0) return -1;
    return 0;
}

static int ref_combine(void *opaque, const struct sim_layer_input *in, const uint16_t *expert_out,
                       const float *row_weights, struct sim_combined *out, char *err,
                       size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    if (reserve_blocks(state, in, err, err_len) != 0) return -1;
    uint64_t *blocks = (uint64_t *)(void *)state->blocks.bytes;
    uint64_t *cursor = (uint64_t *)(void *)state->cursor.bytes;

    if (in->traffic->mode == SIM_MODE_LL) {
        (void)ref_ll_blocks(in->routing, blocks);
        ref_ll_combine(in->routing, in->hidden, expert_out, blocks, cursor, out->x);
        return 0;
    }
    const struct ref_normal_combine_in combine = {in->hidden, expert_out, row_weights, in->bias0,
                                                  in->bias1};
    (void)ref_normal_blocks(in->routing, blocks);
    ref_normal_combine(in->routing, in->traffic->ranks_per_node, &combine, blocks, cursor, out->x,
                       row_weights != NULL ? out->topk_weights : NULL);
    return 0;
}

static const struct sim_backend_ops REF_OPS = {
    .abi = SIM_BACKEND_ABI,
    .table_bytes = sizeof(struct sim_backend_ops),
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .dispatch = ref_dispatch,
    .expert = ref_expert,
    .combine = ref_combine,
    .begin = backend_ref_begin,
    .pack = backend_ref_pack,
    .deliver = backend_ref_deliver,
    .forward = backend_ref_forward,
    .unpack = backend_ref_unpack,
    .run_expert = backend_ref_run_expert,
    .read = backend_ref_read,
};

const struct sim_backend_ops *sim_backend_ref(void)
{
    return &REF_OPS;
}
