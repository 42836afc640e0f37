/* sim/backend_cuda_layer.c - one layer's memory on the GPUs: how large every part is, what is put
 * there before anything runs, and what is fetched back. */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <string.h>

#include "ref/normal_phase.h"
#include "ref/quantise.h"

/* Normal mode's MLP: room for the answers of every rank's experts. Should faults bring a rank more
 * than routing sends it, it goes over its rows in several passes, of a row at least. */
static void number_answers(const struct sim_layer_input *in, const uint64_t *received_start,
                           uint64_t *answer_start)
{
    const struct ref_routing *routing = in->routing;
    const uint64_t columns = ref_token_count(routing) * routing->topk;

    memset(answer_start, 0, (routing->ranks + 1) * sizeof *answer_start);
    if (in->traffic->mode == SIM_MODE_LL || in->expert != SIM_EXPERT_MLP) {
        memcpy(answer_start, received_start, (routing->ranks + 1) * sizeof *answer_start);
        return;
    }
    for (uint64_t i = 0; i < columns; i++)
        if (ref_names_expert(routing, routing->topk_idx[i]))
            answer_start[ref_expert_rank(routing, routing->topk_idx[i]) + 1]++;
    for (uint32_t r = 0; r < routing->ranks; r++) {
        uint64_t room = answer_start[r + 1];
        if (room > 0 && room < routing->topk) room = routing->topk;
        assert(room >= received_start[r + 1] - received_start[r]);
        answer_start[r + 1] = answer_start[r] + room;
    }
}

static int number_rows(struct backend_cuda *state, const struct sim_layer_input *in, char *err,
                       size_t err_len)
{
    const struct sim_traffic *traffic = in->traffic;
    const uint64_t ranks = in->routing->ranks, each = ranks + 1;
    const uint64_t blocks =
        traffic->mode == SIM_MODE_LL ? (uint64_t)in->routing->experts : in->routing->ranks;

    if (sim_arena_reserve(&state->rank_rows, ROW_KINDS * each, sizeof(uint64_t), err, err_len) != 0)
        return -1;
    uint64_t *rows = (uint64_t *)(void *)state->rank_rows.bytes;
    for (uint64_t r = 0; r <= ranks; r++) {
        const uint64_t rail = traffic->rail_start != NULL ? traffic->rail_start[r * ranks] : 0;
        rows[BY_RANK * each + r] = r;
        rows[BY_RECEIVED * each + r] = traffic->block_start[r * blocks];
        rows[BY_RAIL * each + r] = rail;
        rows[BY_CONTRIBUTION * each + r] =
            traffic->contribution_start != NULL ? traffic->contribution_start[rail] : 0;
        rows[BY_HOME * each + r] = traffic->home_start[in->routing->token_start[r]];
    }
    number_answers(in, rows + BY_RECEIVED * each, rows + BY_ANSWER * each);
    return 0;
}

static struct gpu_record record_of(const struct ref_record *record)
{
    return (struct gpu_record){record->payload_bytes, record->scale_bytes, record->scales_at,
                               record->meta_at,       record->ids_at,      record->weights_at,
                               record->bytes,         record->topk,        record->internode};
}

static void make_records(struct backend_cuda *state, const struct sim_layer_input *in)
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const bool internode = in->traffic->nodes > 1;
    const struct ref_record dispatch =
        ref_record_dispatch(shape.payload_bytes, shape.scale_bytes, in->routing->topk, internode);
    const struct ref_record combine = ref_record_combine(in->hidden, in->routing->topk, internode);
    state->dispatch_record = record_of(&dispatch);
    state->combine_record = record_of(&combine);
    state->slot[SIM_DISPATCH] = gpu_normal_record(&state->dispatch_record);
    state->slot[SIM_COMBINE] = gpu_normal_record(&state->combine_record);
}

/* Bytes of every part's row; 0 leaves the part out. */
static void size_rows(const struct backend_cuda *state, const struct sim_layer_input *in,
                      uint64_t bytes[CUDA_PARTS])
{
    const struct sim_row_shape shape = sim_row_shape(in);
    const bool ll = in->traffic->mode == SIM_MODE_LL, rails = in->traffic->rail_start != NULL;
    const bool mlp = in->expert == SIM_EXPERT_MLP;
    const uint64_t hidden = in->hidden, inter = in->mlp_inter, topk = in->routing->topk;
    const uint64_t groups = hidden / REF_GROUP_CHANNELS, words = shape.blocks / in->routing->ranks;
    const uint64_t message = state->slot[SIM_DISPATCH].row_bytes;
    const uint64_t answer = state->slot[SIM_COMBINE].row_bytes;

    memset(bytes, 0, CUDA_PARTS * sizeof *bytes);
    bytes[CUDA_STARTS] = bytes[CUDA_BLOCK_START] = bytes[CUDA_HOME_START] = sizeof(uint64_t);
    bytes[CUDA_CONTRIBUTION_START] = rails ? sizeof(uint64_t) : 0;
    bytes[CUDA_TOPK_IDX] = topk * sizeof(int64_t);
    bytes[CUDA_TOPK_WEIGHTS] = in->routing->topk_weights != NULL ? topk * sizeof(float) : 0;
    bytes[CUDA_X] = bytes[CUDA_COMBINED] = bytes[CUDA_EXPERT_OUT] = 2 * hidden;
    bytes[CUDA_BIAS0] = in->bias0 != NULL ? 2 * hidden : 0;
    bytes[CUDA_BIAS1] = in->bias1 != NULL ? 2 * hidden : 0;
    bytes[CUDA_STAGED] = bytes[CUDA_LANDED] = message;
    bytes[CUDA_RAILS] = rails ? message : 0;
    bytes[CUDA_STAGED_OUT] = bytes[CUDA_HOME] = answer;
    bytes[CUDA_RAILS_OUT] = bytes[CUDA_CONTRIBUTIONS] = rails ? answer : 0;
    bytes[CUDA_SENT_WORDS] = bytes[CUDA_LANDED_WORDS] = words * sizeof(int32_t);
    bytes[CUDA_COUNTS] = words * sizeof(int32_t);
    bytes[CUDA_PAYLOAD] = shape.payload_bytes;
    bytes[CUDA_SCALES] = shape.scale_bytes;
    bytes[CUDA_SRC_TOKEN] = sizeof(int32_t);
    bytes[CUDA_SRC_META] = rails ? 2 * sizeof(int32_t) : 0;
    if (state->place.transport == SIM_TRANSPORT_DIRECT) { /* Nothing lands but rows. */
        bytes[CUDA_STAGED] = bytes[CUDA_LANDED] = bytes[CUDA_RAILS] = 0;
        bytes[CUDA_STAGED_OUT] = bytes[CUDA_HOME] = 0;
        bytes[CUDA_RAILS_OUT] = bytes[CUDA_CONTRIBUTIONS] = 0;
        bytes[CUDA_SENT_WORDS] = bytes[CUDA_LANDED_WORDS] = 0;
    }
    if (!ll) {
        bytes[CUDA_CODES] = shape.payload_bytes;
        bytes[CUDA_CODE_SCALES] = shape.scale_bytes > 0 ? groups * sizeof(float) : 0;
        bytes[CUDA_CODE_PACKED] = shape.scale_bytes;
        bytes[CUDA_ROW_IDX] = topk * sizeof(int64_t);
        bytes[CUDA_ROW_WEIGHTS] = bytes[CUDA_COMBINED_WEIGHTS] = topk * sizeof(float);
    }
    if (!mlp) return;
    bytes[CUDA_MLP_CODES] = 3 * hidden * inter;
    bytes[CUDA_MLP_SCALES] = 3 * groups * (inter / REF_GROUP_CHANNELS) * sizeof(float);
    bytes[CUDA_MLP_GATE] = bytes[CUDA_MLP_UP] = 2 * inter;
    bytes[CUDA_MLP_ACT] = inter;
    bytes[CUDA_MLP_ACT_SCALES] = inter / REF_GROUP_CHANNELS * sizeof(float);
    if (ll) return;
    bytes[CUDA_ANSWER_START] = sizeof(uint64_t);
    bytes[CUDA_ANSWER_PAYLOAD] = shape.payload_bytes;
    bytes[CUDA_ANSWER_SCALES] = shape.scale_bytes;
    bytes[CUDA_ANSWER_OUT] = bytes[CUDA_ANSWERS] = bytes[CUDA_WEIGHED] = 2 * hidden;
}

static int plan(struct backend_cuda *state, const struct sim_layer_input *in, char *err,
                size_t err_len)
{
    const uint64_t *rows = (const uint64_t *)(const void *)state->rank_rows.bytes;
    const uint64_t each = (uint64_t)in->routing->ranks + 1;
    const uint64_t tokens = ref_token_count(in->routing);
    uint64_t bytes[CUDA_PARTS];
    struct gpu_part parts[CUDA_PARTS];

    size_rows(state, in, bytes);
    for (int p = 0; p < CUDA_PARTS; p++) {
        const uint64_t *start = rows + BY_RECEIVED * each;
        if (p >= CUDA_X && p <= CUDA_COMBINED_WEIGHTS) start = in->routing->token_start;
        if (p >= CUDA_SENT_WORDS && p <= CUDA_MLP_SCALES) start = rows + BY_RANK * each;
        if (p >= CUDA_MLP_GATE && p <= CUDA_ANSWERS) start = rows + BY_ANSWER * each;
        if (p == CUDA_RAILS || p == CUDA_RAILS_OUT) start = rows + BY_RAIL * each;
        if (p == CUDA_CONTRIBUTIONS) start = rows + BY_CONTRIBUTION * each;
        if (p == CUDA_HOME) start = rows + BY_HOME * each;
        parts[p] = (struct gpu_part){start, 0, bytes[p]};
    }
    const uint64_t tables[] = {
        [CUDA_STARTS] = each,           [CUDA_TOPK_IDX] = tokens,
        [CUDA_TOPK_WEIGHTS] = tokens,   [CUDA_BLOCK_START] = sim_row_shape(in).blocks + 1,
        [CUDA_HOME_START] = tokens + 1, [CUDA_CONTRIBUTION_START] = in->traffic->rail_rows + 1};
    for (int p = 0; p < CUDA_X; p++) parts[p] = (struct gpu_part){NULL, tables[p], bytes[p]};
    if (gpu_plan(state->gpu, in->routing->ranks, parts, CUDA_PARTS, err, err_len) != 0) return -1;
    for (uint32_t p = 0; p < CUDA_PARTS; p++)
        state->part[p] = bytes[p] > 0 ? gpu_plan_buffer(state->gpu, p) : NULL;
    return 0;
}

/* Poison what kernels are to write; a word that has not come is 0. */
static int poison(struct backend_cuda *state, char *err, size_t err_len)
{
    for (int p = CUDA_CODES; p < CUDA_PARTS; p++)
        if (state->part[p] != NULL &&
            gpu_fill(state->gpu, state->part[p], p == CUDA_LANDED_WORDS ? 0 : 0xFF, err, err_len) !=
                0)
            return -1;
    return 0;
}

int backend_cuda_layer(struct backend_cuda *state, const struct sim_layer_input *in, char *err,
                       size_t err_len)
{
    const struct sim_traffic *traffic = in->traffic;
    if (traffic->mode == SIM_MODE_NORMAL) {
        make_records(state, in);
    } else {
        state->slot[SIM_DISPATCH] = gpu_ll_message(in->hidden, in->recipe);
        state->slot[SIM_COMBINE] = gpu_ll_answer(in->hidden);
    }
    backend_cuda_direct_release(state, in);
    if (number_rows(state, in, err, err_len) != 0 || plan(state, in, err, err_len) != 0) return -1;
    state->input = in;
    state->routing = (struct gpu_routing){.ranks = in->routing->ranks,
                                          .experts = in->routing->experts,
                                          .topk = in->routing->topk,
                                          .token_start = in->routing->token_start,
                                          .starts = state->part[CUDA_STARTS],
                                          .topk_idx = state->part[CUDA_TOPK_IDX],
                                          .topk_weights = state->part[CUDA_TOPK_WEIGHTS]};
    const void *const data[] = {[CUDA_STARTS] = in->routing->token_start,
                                [CUDA_TOPK_IDX] = in->routing->topk_idx,
                                [CUDA_TOPK_WEIGHTS] = in->routing->topk_weights,
                                [CUDA_BLOCK_START] = traffic->block_start,
                                [CUDA_HOME_START] = traffic->home_start,
                                [CUDA_CONTRIBUTION_START] = traffic->contribution_start,
                                [CUDA_X] = in->x,
                                [CUDA_BIAS0] = in->bias0,
                                [CUDA_BIAS1] = in->bias1};
    for (int p = 0; p <= CUDA_BIAS1; p++)
        if (state->part[p] != NULL && data[p] != NULL &&
            gpu_write(state->gpu, state->part[p], data[p], err, err_len) != 0)
            return -1;
    return poison(state, err, err_len);
}

int backend_cuda_take(struct backend_cuda *state, enum cuda_part part, void *to, char *err,
                      size_t err_len)
{
    if (to == NULL || state->part[part] == NULL) return 0;
    return gpu_read(state->gpu, state->part[part], to, err, err_len);
}

int backend_cuda_take_received(struct backend_cuda *state, struct sim_received *out, char *err,
                               size_t err_len)
{
    void *scales = sim_received_scales(out);
    out->rows = state->input->traffic->received_rows;
    if (backend_cuda_take(state, CUDA_PAYLOAD, out->payload, err, err_len) != 0 ||
        backend_cuda_take(state, CUDA_SCALES, scales, err, err_len) != 0 ||
        backend_cuda_take(state, CUDA_SRC_TOKEN, out->src_token, err, err_len) != 0 ||
        backend_cuda_take(state, CUDA_ROW_IDX, out->topk_idx, err, err_len) != 0 ||
        backend_cuda_take(state, CUDA_ROW_WEIGHTS, out->topk_weights, err, err_len) != 0)
        return -1;
    return backend_cuda_take(state, CUDA_COUNTS, out->counts, err, err_len);
}

int backend_cuda_take_combined(struct backend_cuda *state, struct sim_combined *out, char *err,
                               size_t err_len)
{
    if (backend_cuda_take(state, CUDA_COMBINED, out->x, err, err_len) != 0) return -1;
    return backend_cuda_take(state, CUDA_COMBINED_WEIGHTS, out->topk_weights, err, err_len);
}
#endif
