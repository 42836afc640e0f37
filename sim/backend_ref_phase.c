/* sim/backend_ref_phase.c - the reference driven by the clock: arenas of one layer and the phase
 * operations over them. A rank's count words land with its pack; the messages when delivered. */
#include <assert.h>
#include <string.h>

#include "ref/ll.h"
#include "ref/ll_phase.h"
#include "ref/rows.h"
#include "sim/backend_ref.h"

static uint64_t *block_start(const struct backend_ref *state)
{
    return state->input->traffic->block_start;
}

static bool is_ll(const struct backend_ref *state)
{
    return state->input->traffic->mode == SIM_MODE_LL;
}

static bool is_internode(const struct backend_ref *state)
{
    return state->input->traffic->nodes > 1;
}

static struct ref_ll_rows ll_rows(const struct backend_ref *state)
{
    const struct sim_received *received = &state->results.received;
    assert(is_ll(state));
    return (struct ref_ll_rows){received->payload, received->scales, received->scales_ue8m0,
                                received->src_token, received->counts};
}

/* Size every arena for the layer and poison those that messages write. */
static int reserve_arenas(struct backend_ref *state, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const struct sim_traffic *traffic = in->traffic;
    const uint64_t message =
        is_ll(state) ? ref_ll_message_bytes(in->hidden, in->recipe) : state->dispatch_record.bytes;
    const uint64_t answer = is_ll(state) ? 2 * (uint64_t)in->hidden : state->combine_record.bytes;
    const uint64_t sizes[ARENAS][2] = {[ARENA_STAGED] = {ref_token_count(in->routing), message},
                                       [ARENA_RAILS] = {traffic->rail_rows, message},
                                       [ARENA_LANDED] = {traffic->received_rows, message},
                                       [ARENA_STAGED_OUT] = {traffic->received_rows, answer},
                                       [ARENA_CONTRIBUTIONS] = {traffic->contribution_rows, answer},
                                       [ARENA_RAILS_OUT] = {traffic->rail_rows, answer},
                                       [ARENA_HOME] = {traffic->home_rows, answer}};

    assert(message > 0 && answer > 0);
    for (int i = 0; i < ARENAS; i++) {
        if (sim_arena_reserve(&state->arenas[i], sizes[i][0], sizes[i][1], err, err_len) != 0)
            return -1;
        state->arena_row_bytes[i] = sizes[i][1];
        if (i != ARENA_STAGED && i != ARENA_STAGED_OUT)
            memset(state->arenas[i].bytes, 0xFF, sizes[i][0] * sizes[i][1]);
    }
    return 0;
}

int backend_ref_begin(void *opaque, const struct sim_layer_input *in, char *err, size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    const struct sim_row_shape shape = sim_row_shape(in);
    assert(in->traffic->ranks == in->routing->ranks);
    state->input = in;
    if (!is_ll(state)) {
        state->dispatch_record = ref_record_dispatch(shape.payload_bytes, shape.scale_bytes,
                                                     in->routing->topk, is_internode(state));
        state->combine_record =
            ref_record_combine(in->hidden, in->routing->topk, is_internode(state));
    }
    if (reserve_arenas(state, err, err_len) != 0 ||
        sim_results_reserve(&state->results, in, err, err_len) != 0 ||
        sim_arena_reserve(&state->sent_words, shape.blocks, sizeof(int32_t), err, err_len) != 0 ||
        sim_arena_reserve(&state->landed_words, shape.blocks, sizeof(int32_t), err, err_len) != 0 ||
        sim_arena_reserve(&state->src_meta, in->traffic->received_rows, 2 * sizeof(int32_t), err,
                          err_len) != 0)
        return -1;
    memset(state->landed_words.bytes, 0, shape.blocks * sizeof(int32_t));
    const struct sim_received *received = &state->results.received;
    const uint64_t columns = in->traffic->received_rows * in->routing->topk;
    memset(received->payload, 0xFF, in->traffic->received_rows * shape.payload_bytes);
    if (received->topk_idx != NULL) /* -1: rows that never come name no expert. */
        memset(received->topk_idx, 0xFF, columns * sizeof *received->topk_idx);
    if (received->topk_weights != NULL)
        memset(received->topk_weights, 0xFF, columns * sizeof *received->topk_weights);
    return 0;
}

static int pack_dispatch(struct backend_ref *state, uint32_t rank, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const struct ref_routing *routing = in->routing;
    const uint32_t columns = is_ll(state) ? routing->experts : routing->ranks;
    int32_t *sent = (int32_t *)(void *)state->sent_words.bytes;
    int32_t *landed = (int32_t *)(void *)state->landed_words.bytes;
    const uint64_t first = routing->token_start[rank];
    const uint64_t count = routing->token_start[rank + 1] - first;

    assert(rank < routing->ranks);
    if (is_ll(state)) {
        ref_ll_pack(routing, rank, in->hidden, in->recipe, in->x, state->arenas[ARENA_STAGED].bytes,
                    sent);
    } else {
        struct ref_normal_tokens tokens;
        if (backend_ref_cast(state, in, first, count, &tokens, err, err_len) != 0) return -1;
        ref_normal_pack(routing, in->traffic->ranks_per_node, rank, &state->dispatch_record,
                        &tokens, state->arenas[ARENA_STAGED].bytes, sent);
    }
    ref_deliver_counts(routing->ranks, columns, rank, sent, landed);
    return 0;
}

int backend_ref_pack(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                     size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    const struct sim_layer_input *in = state->input;
    uint8_t *staged = state->arenas[ARENA_STAGED_OUT].bytes;

    assert(in != NULL && rank < in->routing->ranks);
    if (direction == SIM_DISPATCH) return pack_dispatch(state, rank, err, err_len);
    if (is_ll(state)) {
        ref_ll_combine_pack(in->routing, rank, in->hidden, block_start(state),
                            state->results.expert_out, (uint16_t *)(void *)staged);
        return 0;
    }
    const struct ref_normal_combine_in combine = {in->hidden, state->results.expert_out,
                                                  state->results.received.topk_weights, NULL, NULL};
    ref_normal_combine_pack(in->routing, rank, &state->combine_record, &combine, block_start(state),
                            (const int32_t *)(const void *)state->src_meta.bytes,
                            state->results.received.src_token, staged);
    return 0;
}

int backend_ref_deliver(void *opaque, enum sim_direction direction,
                        const struct sim_message *messages, size_t count, char *err, size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    static const enum ref_arena PATHS[SIM_DIRECTIONS][2][3] = {
        {{ARENA_STAGED, ARENA_LANDED, ARENA_LANDED}, {ARENA_STAGED, ARENA_RAILS, ARENA_LANDED}},
        {{ARENA_STAGED_OUT, ARENA_HOME, ARENA_HOME},
         {ARENA_STAGED_OUT, ARENA_CONTRIBUTIONS, ARENA_HOME}}};
    const enum ref_arena *path = PATHS[direction][is_internode(state) && !is_ll(state)];

    if (sim_arena_reserve(&state->moves, count, sizeof(struct ref_move), err, err_len) != 0)
        return -1;
    struct ref_move *moves = (struct ref_move *)(void *)state->moves.bytes;
    for (size_t first = 0; first < count;) {
        const uint8_t hop = messages[first].hop;
        assert(hop < 2);
        size_t run = 0;
        enum ref_arena source = path[hop];
        for (; first + run < count && messages[first + run].hop == hop; run++) {
            const struct sim_message *m = &messages[first + run];
            moves[run] = (struct ref_move){m->src_row, m->dst_row, m->corrupt_byte, m->corrupt_xor};
        }
        if (hop == 1 && direction == SIM_COMBINE) source = ARENA_RAILS_OUT;
        const enum ref_arena target = path[hop + 1];
        assert(state->arena_row_bytes[source] == state->arena_row_bytes[target]);
        ref_deliver(moves, run, state->arenas[source].bytes, state->arenas[target].bytes,
                    state->arena_row_bytes[target]);
        first += run;
    }
    return 0;
}

int backend_ref_forward(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                        size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    const struct sim_traffic *traffic = state->input->traffic;
    assert(rank < traffic->ranks);
    (void)err;
    (void)err_len;
    if (direction == SIM_DISPATCH) return 0; /* Records go on as they came. */
    ref_normal_forward(state->input->routing, rank, &state->combine_record, traffic->rail_start,
                       traffic->contribution_start, state->arenas[ARENA_CONTRIBUTIONS].bytes,
                       state->arenas[ARENA_RAILS_OUT].bytes);
    return 0;
}

static void unpack_dispatch(struct backend_ref *state, uint32_t rank)
{
    const struct sim_layer_input *in = state->input;
    const struct sim_received *received = &state->results.received;
    const int32_t *words = (const int32_t *)(const void *)state->landed_words.bytes;
    const uint8_t *landed = state->arenas[ARENA_LANDED].bytes;

    if (is_ll(state)) {
        const struct ref_ll_rows rows = ll_rows(state);
        ref_ll_unpack(in->routing, rank, in->hidden, in->recipe, block_start(state), words, landed,
                      &rows);
        return;
    }
    const struct ref_normal_rows rows = {
        .payload = received->payload,
        .scales = sim_received_scales(received),
        .topk_idx = received->topk_idx,
        .topk_weights = received->topk_weights,
        .src_token = received->src_token,
        .src_meta = is_internode(state) ? (int32_t *)(void *)state->src_meta.bytes : NULL,
        .counts = received->counts};
    ref_normal_unpack(in->routing, in->traffic->ranks_per_node, rank, &state->dispatch_record,
                      block_start(state), words, landed, &rows);
}

int backend_ref_unpack(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                       size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    const struct sim_layer_input *in = state->input;
    const uint8_t *home = state->arenas[ARENA_HOME].bytes;
    const uint64_t *home_start = in->traffic->home_start;
    assert(rank < in->routing->ranks);
    (void)err;
    (void)err_len;

    if (direction == SIM_DISPATCH) {
        unpack_dispatch(state, rank);
    } else if (is_ll(state)) {
        ref_ll_combine_unpack(in->routing, rank, in->hidden, home_start,
                              (const uint16_t *)(const void *)home, state->results.combined.x);
    } else {
        ref_normal_combine_unpack(in->routing, rank, &state->combine_record, home_start, home,
                                  in->bias0, in->bias1, state->results.combined.x,
                                  state->results.combined.topk_weights);
    }
    return 0;
}

int backend_ref_run_expert(void *opaque, uint32_t rank, char *err, size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    return backend_ref_experts(state, state->input, &state->results.received, rank,
                               state->results.expert_out, err, err_len);
}

int backend_ref_read(void *opaque, struct sim_received *received, uint16_t **expert_out,
                     struct sim_combined *combined, char *err, size_t err_len)
{
    struct backend_ref *state = (struct backend_ref *)opaque;
    assert(state->input != NULL);
    (void)err;
    (void)err_len;
    *received = state->results.received;
    *expert_out = state->results.expert_out;
    *combined = state->results.combined;
    return 0;
}
