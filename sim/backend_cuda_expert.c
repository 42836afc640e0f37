/* sim/backend_cuda_expert.c - the experts of some ranks on the kernels.
 *
 * Normal mode's MLP needs no kernel of its own. A received row goes to each expert that its ids
 * name: kernels/deliver.cu copies it to where the expert's rows stand side by side, the MLP runs on
 * them as in low latency, and the answers come back, side by side for every row, where low
 * latency's combine adds them up: a row is its token, the rank's experts are all there are. Ids
 * and scales (a 32nd of the payload) go by way of the host, which sorts. */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <string.h>

#include "ref/quantise.h"

void backend_cuda_answers_free(struct cuda_answers *answers)
{
    sim_arena_free(&answers->ids);
    sim_arena_free(&answers->row_scales);
    sim_arena_free(&answers->scales);
    sim_arena_free(&answers->start);
    sim_arena_free(&answers->expert_start);
    sim_arena_free(&answers->cursor);
    sim_arena_free(&answers->moves);
}

/* One expert's MLP over rows [first, first + rows) of payload. Weights are made anew for every
 * expert: only one expert's are ever held. */
static int run_mlp(struct backend_cuda *state, uint32_t rank, uint32_t expert, uint64_t first,
                   uint64_t rows, const enum cuda_part from[2], enum cuda_part to, char *err,
                   size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    struct gpu_buffer **part = state->part;
    const struct gpu_mlp mlp = {in->hidden,           in->mlp_inter,
                                in->recipe,           REF_RECIPE_LL,
                                part[CUDA_MLP_CODES], part[CUDA_MLP_SCALES],
                                part[CUDA_MLP_GATE],  part[CUDA_MLP_UP],
                                part[CUDA_MLP_ACT],   part[CUDA_MLP_ACT_SCALES]};

    if (rows == 0) return 0;
    if (gpu_expert_fill(state->gpu, rank, in->weight_seed, expert, in->hidden, in->mlp_inter,
                        part[CUDA_MLP_CODES], part[CUDA_MLP_SCALES], err, err_len) != 0)
        return -1;
    return gpu_expert_mlp(state->gpu, &mlp, rank, first, rows, part[from[0]], part[from[1]],
                          part[to], err, err_len);
}

static int run_ll(struct backend_cuda *state, uint32_t rank, char *err, size_t err_len)
{
    static const enum cuda_part FROM[2] = {CUDA_PAYLOAD, CUDA_SCALES};
    const struct sim_layer_input *in = state->input;
    const uint32_t local = ref_local_experts(in->routing), ranks = in->routing->ranks;

    for (uint32_t e = rank * local; e < (rank + 1) * local; e++) {
        const uint64_t first = in->traffic->block_start[(uint64_t)e * ranks];
        const uint64_t rows = in->traffic->block_start[(e + UINT64_C(1)) * ranks] - first;
        if (run_mlp(state, rank, e, first, rows, FROM, CUDA_EXPERT_OUT, err, err_len) != 0)
            return -1;
    }
    return 0;
}

static uint64_t first_row(const struct backend_cuda *state, enum cuda_row_kind kind, uint32_t rank)
{
    const uint64_t each = (uint64_t)state->input->routing->ranks + 1;
    return ((const uint64_t *)(const void *)state->rank_rows.bytes)[kind * each + rank];
}

/* Some rows of one rank, whose answers have room at the same time. */
struct pass {
    uint32_t rank;
    uint64_t row, row_end; /* Of all received rows. */
    uint64_t first, end;   /* Room for the rank's answers. */
    uint64_t answers;
};

static bool is_local(const struct backend_cuda *state, int64_t id)
{
    return id >= 0 && id < (int64_t)ref_local_experts(state->input->routing);
}

/* What the host has to know of the received rows of all ranks, and room for what it makes of it. */
static int read_rows(struct backend_cuda *state, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint64_t rows = in->traffic->received_rows;
    const uint64_t answers = first_row(state, BY_ANSWER, in->routing->ranks);
    const uint32_t local = ref_local_experts(in->routing);
    struct cuda_answers *host = &state->answers;

    if (sim_arena_reserve(&host->ids, rows, in->routing->topk * sizeof(int64_t), err, err_len) !=
            0 ||
        sim_arena_reserve(&host->row_scales, rows, shape.scale_bytes, err, err_len) != 0 ||
        sim_arena_reserve(&host->scales, answers, shape.scale_bytes, err, err_len) != 0 ||
        sim_arena_reserve(&host->start, rows, sizeof(uint64_t), err, err_len) != 0 ||
        sim_arena_reserve(&host->expert_start, local + 1, sizeof(uint64_t), err, err_len) != 0 ||
        sim_arena_reserve(&host->cursor, local, sizeof(uint64_t), err, err_len) != 0 ||
        sim_arena_reserve(&host->moves, 2 * answers, sizeof(struct gpu_move), err, err_len) != 0)
        return -1;
    memset(host->scales.bytes, 0, answers * shape.scale_bytes);
    memset(host->start.bytes, 0, rows * sizeof(uint64_t));
    if (gpu_read(state->gpu, state->part[CUDA_ROW_IDX], host->ids.bytes, err, err_len) != 0)
        return -1;
    return gpu_read(state->gpu, state->part[CUDA_SCALES], host->row_scales.bytes, err, err_len);
}

/* The pass's last row, and the first answer of each of the rank's experts. */
static void count_answers(struct backend_cuda *state, struct pass *pass)
{
    const struct sim_layer_input *in = state->input;
    const uint32_t topk = in->routing->topk, local = ref_local_experts(in->routing);
    const uint64_t end = first_row(state, BY_RECEIVED, pass->rank + 1);
    const int64_t *ids = (const int64_t *)(const void *)state->answers.ids.bytes;
    uint64_t *expert_start = (uint64_t *)(void *)state->answers.expert_start.bytes;

    memset(expert_start, 0, (local + UINT64_C(1)) * sizeof *expert_start);
    pass->answers = 0;
    for (pass->row_end = pass->row; pass->row_end < end; pass->row_end++) {
        const int64_t *row = ids + pass->row_end * topk;
        uint32_t count = 0;
        for (uint32_t k = 0; k < topk; k++) count += is_local(state, row[k]);
        if (pass->answers + count > pass->end - pass->first) break;
        for (uint32_t k = 0; k < topk; k++)
            if (is_local(state, row[k])) expert_start[row[k] + 1]++;
        pass->answers += count;
    }
    assert(pass->row_end > pass->row); /* There is room for a row of any ids. */
    expert_start[0] = pass->first;
    for (uint32_t e = 0; e < local; e++) expert_start[e + 1] += expert_start[e];
    assert(expert_start[local] == pass->first + pass->answers);
}

/* Where every answer of the pass is made and where it goes; the scales of its row. Rows of other
 * passes are said to begin where this one's do: added up, but not looked at. */
static void place_answers(struct backend_cuda *state, const struct pass *pass)
{
    const uint32_t topk = state->input->routing->topk;
    const uint64_t scale_bytes = sim_row_shape(state->input).scale_bytes;
    struct cuda_answers *host = &state->answers;
    const int64_t *ids = (const int64_t *)(const void *)host->ids.bytes;
    uint64_t *start = (uint64_t *)(void *)host->start.bytes;
    uint64_t *cursor = (uint64_t *)(void *)host->cursor.bytes;
    struct gpu_move *to = (struct gpu_move *)(void *)host->moves.bytes;
    struct gpu_move *back = to + pass->answers;
    uint64_t made = 0;

    memcpy(cursor, host->expert_start.bytes,
           ref_local_experts(state->input->routing) * sizeof *cursor);
    for (uint64_t row = first_row(state, BY_RECEIVED, pass->rank);
         row < first_row(state, BY_RECEIVED, pass->rank + 1); row++)
        start[row] = pass->first;
    for (uint64_t row = pass->row; row < pass->row_end; row++) {
        start[row] = pass->first + made;
        for (uint32_t k = 0; k < topk; k++) {
            const int64_t id = ids[row * topk + k];
            if (!is_local(state, id)) continue;
            const uint64_t at = cursor[id]++;
            memcpy(host->scales.bytes + at * scale_bytes,
                   host->row_scales.bytes + row * scale_bytes, scale_bytes);
            to[made] = (struct gpu_move){row, at, pass->rank, pass->rank, 0, 0};
            back[made] = (struct gpu_move){at, pass->first + made, pass->rank, pass->rank, 0, 0};
            made++;
        }
    }
    assert(made == pass->answers);
}

/* Rows of `bytes` bytes, payload alone. */
static int move_rows(struct backend_cuda *state, const struct gpu_move *moves, uint64_t count,
                     uint64_t bytes, enum cuda_part from, enum cuda_part to, char *err,
                     size_t err_len)
{
    const struct gpu_slot slot = {bytes, 0, bytes};
    return gpu_deliver(state->gpu, moves, count, &slot, state->part[from], state->part[to], err,
                       err_len);
}

static int run_experts(struct backend_cuda *state, const struct pass *pass, char *err,
                       size_t err_len)
{
    static const enum cuda_part FROM[2] = {CUDA_ANSWER_PAYLOAD, CUDA_ANSWER_SCALES};
    const struct sim_layer_input *in = state->input;
    const uint32_t local = ref_local_experts(in->routing);
    const struct gpu_move *to = (const struct gpu_move *)(const void *)state->answers.moves.bytes;
    const uint64_t *start = (const uint64_t *)(const void *)state->answers.expert_start.bytes;

    if (move_rows(state, to, pass->answers, in->hidden, CUDA_PAYLOAD, CUDA_ANSWER_PAYLOAD, err,
                  err_len) != 0 ||
        gpu_write(state->gpu, state->part[CUDA_ANSWER_SCALES], state->answers.scales.bytes, err,
                  err_len) != 0)
        return -1;
    for (uint32_t e = 0; e < local; e++)
        if (run_mlp(state, pass->rank, pass->rank * local + e, start[e], start[e + 1] - start[e],
                    FROM, CUDA_ANSWER_OUT, err, err_len) != 0)
            return -1;
    return move_rows(state, to + pass->answers, pass->answers, 2 * (uint64_t)in->hidden,
                     CUDA_ANSWER_OUT, CUDA_ANSWERS, err, err_len);
}

/* Add up the answers of all rows of the rank; those of the pass are right and are kept. */
static int weigh(struct backend_cuda *state, const struct pass *pass, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    struct gpu_buffer **part = state->part;
    const struct gpu_routing rows = {.ranks = in->routing->ranks,
                                     .experts = ref_local_experts(in->routing),
                                     .topk = in->routing->topk,
                                     .topk_idx = part[CUDA_ROW_IDX],
                                     .topk_weights = part[CUDA_ROW_WEIGHTS]};
    const uint64_t count = pass->row_end - pass->row;

    if (sim_arena_reserve(&state->moves, count, sizeof(struct gpu_move), err, err_len) != 0)
        return -1;
    struct gpu_move *keep = (struct gpu_move *)(void *)state->moves.bytes;
    for (uint64_t i = 0; i < count; i++)
        keep[i] = (struct gpu_move){pass->row + i, pass->row + i, pass->rank, pass->rank, 0, 0};
    if (gpu_write(state->gpu, part[CUDA_ANSWER_START], state->answers.start.bytes, err, err_len) !=
            0 ||
        gpu_ll_combine_unpack(state->gpu, &rows, pass->rank, 1, in->hidden, part[CUDA_ANSWER_START],
                              part[CUDA_ANSWERS], part[CUDA_WEIGHED], err, err_len) != 0)
        return -1;
    return move_rows(state, keep, count, 2 * (uint64_t)in->hidden, CUDA_WEIGHED, CUDA_EXPERT_OUT,
                     err, err_len);
}

/* One pass a rank, unless faults have brought it more ids than routing sent. */
static int run_normal(struct backend_cuda *state, uint32_t rank, char *err, size_t err_len)
{
    struct pass pass = {.rank = rank,
                        .row = first_row(state, BY_RECEIVED, rank),
                        .first = first_row(state, BY_ANSWER, rank),
                        .end = first_row(state, BY_ANSWER, rank + 1)};

    for (; pass.row < first_row(state, BY_RECEIVED, rank + 1); pass.row = pass.row_end) {
        count_answers(state, &pass);
        place_answers(state, &pass);
        if (run_experts(state, &pass, err, err_len) != 0 || weigh(state, &pass, err, err_len) != 0)
            return -1;
    }
    return 0;
}

static int run_mlps(struct backend_cuda *state, uint32_t rank, uint32_t rank_count, char *err,
                    size_t err_len)
{
    const bool ll = state->input->traffic->mode == SIM_MODE_LL;

    assert(ref_recipe_payload_bytes((enum ref_recipe)state->input->recipe) == 1);
    if (!ll && read_rows(state, err, err_len) != 0) return -1;
    for (uint32_t r = rank; r < rank + rank_count; r++)
        if ((ll ? run_ll : run_normal)(state, r, err, err_len) != 0) return -1;
    return 0;
}

int backend_cuda_experts(struct backend_cuda *state, uint32_t rank, uint32_t rank_count, char *err,
                         size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    struct gpu_buffer **part = state->part;

    switch ((enum sim_expert)in->expert) {
    case SIM_EXPERT_STANDIN:
        return gpu_expert_standin(state->gpu, in->recipe, rank, rank_count, in->hidden,
                                  part[CUDA_PAYLOAD], part[CUDA_SCALES], part[CUDA_EXPERT_OUT], err,
                                  err_len);
    case SIM_EXPERT_IDENTITY:
        return gpu_expert_identity(state->gpu, in->recipe, rank, rank_count, in->hidden,
                                   part[CUDA_PAYLOAD], part[CUDA_SCALES], part[CUDA_EXPERT_OUT],
                                   err, err_len);
    case SIM_EXPERT_MLP: return run_mlps(state, rank, rank_count, err, err_len);
    }
    return 0;
}
#endif
