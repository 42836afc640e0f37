/* sim/backend_cuda_phase.c - the kernels driven by the clock: one call a rank or a batch of landed
 * messages, as sim/backend_ref_phase.c does it with the reference. */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>

static bool is_ll(const struct backend_cuda *state)
{
    return state->input->traffic->mode == SIM_MODE_LL;
}

static bool has_rails(const struct backend_cuda *state)
{
    return state->input->traffic->rail_start != NULL;
}

int backend_cuda_begin(void *opaque, const struct sim_layer_input *in, char *err, size_t err_len)
{
    return backend_cuda_layer((struct backend_cuda *)opaque, in, err, err_len);
}

/* Cast as the recipe says, then fill records. */
static int pack_normal(struct backend_cuda *state, uint32_t rank, uint32_t rank_count, char *err,
                       size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    struct gpu_buffer **part = state->part;
    const struct gpu_buffer *scales = NULL;

    if (backend_cuda_cast(state, rank, rank_count, &scales, err, err_len) != 0) return -1;
    return gpu_normal_pack(state->gpu, &state->routing, in->traffic->ranks_per_node, rank,
                           rank_count, &state->dispatch_record, part[CUDA_CODES], scales,
                           part[CUDA_STAGED], part[CUDA_SENT_WORDS], err, err_len);
}

static int pack_dispatch(struct backend_cuda *state, uint32_t rank, uint32_t rank_count, char *err,
                         size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const uint32_t columns = is_ll(state) ? in->routing->experts : in->routing->ranks;
    struct gpu_buffer **part = state->part;
    const int status =
        is_ll(state)
            ? gpu_ll_pack(state->gpu, &state->routing, rank, rank_count, in->hidden, in->recipe,
                          part[CUDA_X], part[CUDA_STAGED], part[CUDA_SENT_WORDS], err, err_len)
            : pack_normal(state, rank, rank_count, err, err_len);

    if (status != 0) return -1;
    return gpu_deliver_counts(state->gpu, columns, rank, rank_count, part[CUDA_SENT_WORDS],
                              part[CUDA_LANDED_WORDS], err, err_len);
}

int backend_cuda_pack_ranks(struct backend_cuda *state, enum sim_direction direction, uint32_t rank,
                            uint32_t rank_count, char *err, size_t err_len)
{
    struct gpu_buffer **part = state->part;

    if (direction == SIM_DISPATCH) return pack_dispatch(state, rank, rank_count, err, err_len);
    if (is_ll(state))
        return gpu_ll_combine_pack(state->gpu, rank, rank_count, part[CUDA_EXPERT_OUT],
                                   part[CUDA_STAGED_OUT], err, err_len);
    return gpu_normal_combine_pack(state->gpu, rank, rank_count, &state->combine_record,
                                   part[CUDA_EXPERT_OUT], part[CUDA_ROW_WEIGHTS],
                                   part[CUDA_SRC_META], part[CUDA_SRC_TOKEN], part[CUDA_STAGED_OUT],
                                   err, err_len);
}

int backend_cuda_pack(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                      size_t err_len)
{
    return backend_cuda_pack_ranks((struct backend_cuda *)opaque, direction, rank, 1, err, err_len);
}

/* Messages of one hop, from one buffer to another. */
static int deliver_hop(struct backend_cuda *state, enum sim_direction direction, uint8_t hop,
                       const struct sim_message *messages, size_t count, char *err, size_t err_len)
{
    static const enum cuda_part FROM[SIM_DIRECTIONS][2] = {{CUDA_STAGED, CUDA_RAILS},
                                                           {CUDA_STAGED_OUT, CUDA_RAILS_OUT}};
    static const enum cuda_part TO[SIM_DIRECTIONS][2] = {{CUDA_RAILS, CUDA_LANDED},
                                                         {CUDA_CONTRIBUTIONS, CUDA_HOME}};
    struct gpu_move *moves = (struct gpu_move *)(void *)state->moves.bytes;

    assert(hop < 2);
    for (size_t i = 0; i < count; i++) {
        const struct sim_message *m = &messages[i];
        assert(m->hop == hop);
        moves[i] = (struct gpu_move){m->src_row,  m->dst_row,      m->src_rank,
                                     m->dst_rank, m->corrupt_byte, m->corrupt_xor};
    }
    const bool one_hop = is_ll(state) || !has_rails(state);
    return gpu_deliver(state->gpu, moves, count, &state->slot[direction],
                       state->part[FROM[direction][hop]],
                       state->part[TO[direction][one_hop ? 1 : hop]], err, err_len);
}

int backend_cuda_deliver(void *opaque, enum sim_direction direction,
                         const struct sim_message *messages, size_t count, char *err,
                         size_t err_len)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;

    if (sim_arena_reserve(&state->moves, count, sizeof(struct gpu_move), err, err_len) != 0)
        return -1;
    for (size_t first = 0; first < count;) {
        const uint8_t hop = messages[first].hop;
        size_t run = 1;
        while (first + run < count && messages[first + run].hop == hop) run++;
        if (deliver_hop(state, direction, hop, messages + first, run, err, err_len) != 0) return -1;
        first += run;
    }
    return 0;
}

int backend_cuda_forward_ranks(struct backend_cuda *state, enum sim_direction direction,
                               uint32_t rank, uint32_t rank_count, char *err, size_t err_len)
{
    if (direction == SIM_DISPATCH) return 0; /* Records go on as they came. */
    return gpu_normal_forward(state->gpu, rank, rank_count, &state->combine_record,
                              state->part[CUDA_CONTRIBUTION_START], state->part[CUDA_CONTRIBUTIONS],
                              state->part[CUDA_RAILS_OUT], err, err_len);
}

int backend_cuda_forward(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                         size_t err_len)
{
    return backend_cuda_forward_ranks((struct backend_cuda *)opaque, direction, rank, 1, err,
                                      err_len);
}

static int unpack_dispatch(struct backend_cuda *state, uint32_t rank, uint32_t rank_count,
                           char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    struct gpu_buffer **part = state->part;

    if (is_ll(state)) {
        const struct gpu_ll_rows rows = backend_cuda_ll_rows(state);
        return gpu_ll_unpack(state->gpu, &state->routing, rank, rank_count, in->hidden, in->recipe,
                             part[CUDA_BLOCK_START], part[CUDA_LANDED_WORDS], part[CUDA_LANDED],
                             &rows, err, err_len);
    }
    const struct gpu_normal_rows rows = {
        part[CUDA_PAYLOAD],   part[CUDA_SCALES],   part[CUDA_ROW_IDX], part[CUDA_ROW_WEIGHTS],
        part[CUDA_SRC_TOKEN], part[CUDA_SRC_META], part[CUDA_COUNTS]};
    return gpu_normal_unpack(state->gpu, &state->routing, in->traffic->ranks_per_node, rank,
                             rank_count, &state->dispatch_record, part[CUDA_BLOCK_START],
                             part[CUDA_LANDED_WORDS], part[CUDA_LANDED], &rows, err, err_len);
}

int backend_cuda_unpack_ranks(struct backend_cuda *state, enum sim_direction direction,
                              uint32_t rank, uint32_t rank_count, char *err, size_t err_len)
{
    struct gpu_buffer **part = state->part;

    if (direction == SIM_DISPATCH) return unpack_dispatch(state, rank, rank_count, err, err_len);
    if (is_ll(state))
        return gpu_ll_combine_unpack(state->gpu, &state->routing, rank, rank_count,
                                     state->input->hidden, part[CUDA_HOME_START], part[CUDA_HOME],
                                     part[CUDA_COMBINED], err, err_len);
    return gpu_normal_combine_unpack(state->gpu, rank, rank_count, &state->combine_record,
                                     part[CUDA_HOME_START], part[CUDA_HOME], part[CUDA_BIAS0],
                                     part[CUDA_BIAS1], part[CUDA_COMBINED],
                                     part[CUDA_COMBINED_WEIGHTS], err, err_len);
}

int backend_cuda_unpack(void *opaque, enum sim_direction direction, uint32_t rank, char *err,
                        size_t err_len)
{
    return backend_cuda_unpack_ranks((struct backend_cuda *)opaque, direction, rank, 1, err,
                                     err_len);
}

int backend_cuda_direction(struct backend_cuda *state, enum sim_direction direction, char *err,
                           size_t err_len)
{
    const struct sim_traffic *traffic = state->input->traffic;
    const struct sim_message *messages = traffic->messages[direction];
    const uint64_t count = traffic->message_count[direction];
    const uint32_t ranks = traffic->ranks;
    uint64_t first_hop = 0;

    /* Received rows are numbered before rail rows, so a combine's first hop stands first too. */
    while (first_hop < count && messages[first_hop].hop == 0) first_hop++;
    if (backend_cuda_pack_ranks(state, direction, 0, ranks, err, err_len) != 0 ||
        backend_cuda_deliver(state, direction, messages, first_hop, err, err_len) != 0)
        return -1;
    if (has_rails(state) &&
        backend_cuda_forward_ranks(state, direction, 0, ranks, err, err_len) != 0)
        return -1;
    if (backend_cuda_deliver(state, direction, messages + first_hop, count - first_hop, err,
                             err_len) != 0)
        return -1;
    return backend_cuda_unpack_ranks(state, direction, 0, ranks, err, err_len);
}

int backend_cuda_run_expert(void *opaque, uint32_t rank, char *err, size_t err_len)
{
    return backend_cuda_experts((struct backend_cuda *)opaque, rank, 1, err, err_len);
}

int backend_cuda_read(void *opaque, struct sim_received *received, uint16_t **expert_out,
                      struct sim_combined *combined, char *err, size_t err_len)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    struct sim_results *results = &state->results;

    if (sim_results_reserve(results, state->input, err, err_len) != 0 ||
        backend_cuda_take_received(state, &results->received, err, err_len) != 0 ||
        backend_cuda_take_combined(state, &results->combined, err, err_len) != 0 ||
        gpu_read(state->gpu, state->part[CUDA_EXPERT_OUT], results->expert_out, err, err_len) != 0)
        return -1;
    *received = results->received;
    *expert_out = results->expert_out;
    *combined = results->combined;
    return 0;
}
#endif
