/* sim/budget.c - the arenas of sim/received.c, the sim/backend_ref*.c, sim/backend_cuda_layer.c and
 * sim/cell.c, added up. */
#include "sim/budget.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ref/expert.h"
#include "ref/ll_phase.h"
#include "ref/normal_phase.h"
#include "ref/quantise.h"
#include "ref/rows.h"
#include "sim/memory.h"

enum { LINE = 128, SPACE_BYTES = 1024 };

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void count_answers(const struct sim_traffic *traffic, struct sim_budget_rows *rows)
{
    const uint64_t columns = rows->tokens * traffic->topk;
    const uint32_t local = traffic->experts / traffic->ranks;
    uint64_t of_rank[SIM_RANKS_MAX] = {0};

    assert(traffic->ranks <= SIM_RANKS_MAX && local > 0);
    for (uint64_t i = 0; i < columns; i++) {
        const int64_t id = traffic->topk_idx[i];
        if (id >= 0 && id < (int64_t)traffic->experts) of_rank[(uint64_t)id / local]++;
    }
    for (uint32_t r = 0; r < traffic->ranks; r++) {
        if (of_rank[r] > rows->answers_most) rows->answers_most = of_rank[r];
        if (of_rank[r] > 0) rows->answers += greater(of_rank[r], traffic->topk);
    }
}

struct sim_budget_rows sim_budget_rows_counted(const struct sim_traffic *traffic)
{
    struct sim_budget_rows rows = {.tokens = traffic->token_start[traffic->ranks],
                                   .received = traffic->received_rows,
                                   .rails = traffic->rail_rows,
                                   .contributions = traffic->contribution_rows,
                                   .home = traffic->home_rows};
    for (int d = 0; d < SIM_DIRECTIONS; d++) rows.messages[d] = traffic->message_count[d];
    count_answers(traffic, &rows);
    return rows;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct sim_budget_rows sim_budget_rows_most(const struct sim_plan *plan)
{
    const uint64_t tokens = plan->token_start[plan->ranks];
    struct sim_budget_rows rows = {
        .tokens = tokens, .answers = tokens * plan->topk, .answers_most = tokens * plan->topk};

    assert(plan->ranks > 0 && plan->topk > 0);
    if (plan->mode == SIM_MODE_LL) {
        rows.received = rows.home = tokens * plan->topk;
        rows.messages[SIM_DISPATCH] = rows.messages[SIM_COMBINE] = rows.received;
        return rows;
    }
    rows.received = tokens * lesser(plan->topk, plan->ranks);
    rows.home = rows.received;
    rows.messages[SIM_DISPATCH] = rows.messages[SIM_COMBINE] = rows.received;
    if (plan->nodes == 1) return rows;
    rows.rails = rows.home = tokens * lesser(plan->topk, plan->nodes);
    rows.contributions = rows.received;
    for (int d = 0; d < SIM_DIRECTIONS; d++) rows.messages[d] += rows.rails;
    return rows;
}

/* Bytes of one row of each kind. */
struct widths {
    uint64_t hidden; /* BF16. */
    uint64_t payload, scales, message, answer;
    uint64_t cast;  /* Normal mode: a token's codes and scales. */
    uint64_t named; /* Normal mode: a row's ids and weights. */
    uint64_t sums;  /* Normal mode: a token's weight sums. */
};

static struct widths widths_of(const struct sim_plan *plan)
{
    const uint32_t groups = ref_scale_groups(plan->hidden);
    const enum ref_scale_kind kind = ref_recipe_scales(plan->recipe);
    struct widths w = {.hidden = 2 * (uint64_t)plan->hidden,
                       .payload = (uint64_t)plan->hidden * ref_recipe_payload_bytes(plan->recipe)};

    assert(w.payload > 0);
    if (kind != REF_SCALE_NONE)
        w.scales =
            sizeof(float) * (kind == REF_SCALE_F32 ? groups : ref_scale_packed_words(groups));
    if (plan->mode == SIM_MODE_LL) {
        w.message = ref_ll_message_bytes(plan->hidden, plan->recipe);
        w.answer = w.hidden;
        return w;
    }
    w.message = ref_record_dispatch(w.payload, w.scales, plan->topk, plan->nodes > 1).bytes;
    w.answer = ref_record_combine(plan->hidden, plan->topk, plan->nodes > 1).bytes;
    w.cast = w.payload + groups * sizeof(float) + w.scales;
    w.named = plan->topk * (sizeof(int64_t) + sizeof(float));
    w.sums = plan->topk * sizeof(float);
    return w;
}

static uint64_t blocks_of(const struct sim_plan *plan)
{
    return (uint64_t)plan->ranks * (plan->mode == SIM_MODE_LL ? plan->experts : plan->ranks);
}

static uint64_t mlp_inter(const struct sim_plan *plan)
{
    const uint64_t groups =
        ((uint64_t)plan->model.moe_inter + REF_GROUP_CHANNELS - 1) / REF_GROUP_CHANNELS;
    return groups * REF_GROUP_CHANNELS;
}

/* Weights of one expert. */
static uint64_t weight_bytes(const struct sim_plan *plan)
{
    if (plan->expert != SIM_EXPERT_MLP) return 0;
    const uint32_t inter = (uint32_t)mlp_inter(plan);
    return 3 * (ref_expert_matrix_codes(plan->hidden, inter) +
                ref_expert_matrix_scales(plan->hidden, inter) * sizeof(float));
}

/* An expert's weights and the reference's scratch beside them; in normal mode also the answers of a
 * rank: gathered, made, and side by side for their rows. A token names an expert once. */
static uint64_t mlp_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    if (plan->expert != SIM_EXPERT_MLP) return 0;
    const uint64_t sum =
        weight_bytes(plan) + ref_expert_mlp_scratch_bytes(lesser(rows->answers_most, rows->tokens),
                                                          plan->hidden, (uint32_t)mlp_inter(plan));
    if (plan->mode == SIM_MODE_LL) return sum;
    return sum + rows->answers_most * (w.payload + w.scales + 2 * w.hidden + 2 * sizeof(uint64_t));
}

/* What the MLP takes on the GPUs, weights apart. */
static uint64_t gpu_mlp_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    const uint64_t inter = mlp_inter(plan);
    const uint64_t each = 5 * inter + inter / REF_GROUP_CHANNELS * sizeof(float);
    if (plan->expert != SIM_EXPERT_MLP) return 0;
    if (plan->mode == SIM_MODE_LL) return rows->received * each;
    return rows->answers * (each + w.payload + w.scales + 2 * w.hidden) +
           rows->received * (w.hidden + sizeof(uint64_t));
}

/* Received rows, expert output and combined tokens. */
static uint64_t results_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    return rows->received * (w.payload + w.scales + sizeof(int32_t) + w.named + w.hidden) +
           rows->tokens * (w.hidden + w.sums) + blocks_of(plan) * sizeof(int32_t);
}

/* What a plugin's process shares: the layer and its results, in pages of their own. */
static uint64_t shared_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    enum { ARRAYS = 24, PAGES_BYTES = 2 * 65536 }; /* sim/plugin_wire.h */
    const uint64_t ids = plan->topk * (sizeof(int64_t) + sizeof(float)) + sizeof(uint64_t);
    return results_bytes(plan, rows) + rows->tokens * (widths_of(plan).hidden + ids) +
           (rows->messages[SIM_DISPATCH] + rows->messages[SIM_COMBINE]) *
               sizeof(struct sim_message) +
           (blocks_of(plan) + rows->rails) * sizeof(uint64_t) + ARRAYS * PAGES_BYTES;
}

/* The phases' arenas in host memory. */
static uint64_t ref_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    return (rows->tokens + rows->rails + rows->received) * w.message +
           (rows->received + rows->contributions + rows->rails + rows->home) * w.answer +
           rows->received * 2 * sizeof(int32_t) + rows->tokens * w.cast +
           lesser(rows->messages[0], rows->received) * sizeof(struct ref_move);
}

static uint64_t whole_lines(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static uint64_t gpu_bytes(const struct sim_plan *plan, const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    const uint64_t message = whole_lines(w.message) + (plan->mode == SIM_MODE_LL ? LINE : 0);
    const uint64_t answer = whole_lines(w.answer);
    const uint64_t ids = plan->topk * (sizeof(int64_t) + sizeof(float)) + 2 * sizeof(uint64_t);
    uint64_t sum = results_bytes(plan, rows) + rows->tokens * (w.hidden + w.cast);

    sum += rows->tokens * ids * plan->settings.gpus + weight_bytes(plan) * plan->ranks;
    sum += gpu_mlp_bytes(plan, rows);
    if (strcmp(plan->settings.transport, "direct") == 0) {
        uint64_t tokens_max = 0;
        for (uint32_t r = 0; r < plan->ranks; r++)
            if (plan->tokens[r] > tokens_max) tokens_max = plan->tokens[r];
        const uint64_t records = plan->mode == SIM_MODE_LL ? 2 * (uint64_t)plan->ranks : 0;
        return sum + plan->ranks * tokens_max *
                         (records * (w.hidden + SPACE_BYTES) + plan->ranks * sizeof(int32_t));
    }
    return sum + (rows->tokens + rows->rails + rows->received) * message +
           (rows->received + rows->contributions + rows->rails + rows->home) * answer;
}

struct sim_budget_need sim_budget_need(const struct sim_plan *plan,
                                       const struct sim_budget_rows *rows)
{
    const struct widths w = widths_of(plan);
    const bool ref = strcmp(plan->settings.backend, "ref") == 0;
    const bool cuda = strcmp(plan->settings.backend, "cuda") == 0;
    const uint64_t results = results_bytes(plan, rows);
    /* A message stands in the traffic and in the schedule, with two times and a protocol's notes.
     */
    const uint64_t message = 2 * sizeof(struct sim_message) + 8 * sizeof(uint64_t);
    struct sim_budget_need need = {0};

    assert(strcmp(plan->settings.backend, "none") != 0);
    need.cell_bytes = rows->tokens * (w.hidden + plan->topk * (sizeof(int64_t) + sizeof(float)) +
                                      sizeof(uint64_t)) +
                      (rows->messages[SIM_DISPATCH] + rows->messages[SIM_COMBINE]) * message +
                      blocks_of(plan) * sizeof(uint64_t);
    need.worker_bytes = 2 * results + rows->tokens * w.cast + mlp_bytes(plan, rows);
    if (ref) need.worker_bytes += ref_bytes(plan, rows) + mlp_bytes(plan, rows);
    if (!ref && !cuda) need.worker_bytes += shared_bytes(plan, rows);
    if (cuda) need.gpu_bytes = gpu_bytes(plan, rows);
    return need;
}

uint64_t sim_budget_host_bytes(const struct sim_budget_need *need, uint32_t in_flight)
{
    assert(in_flight >= 1);
    return in_flight * need->worker_bytes + (in_flight + UINT64_C(2)) * need->cell_bytes;
}

uint64_t sim_budget_host_room(const struct sim_settings *settings)
{
    if (settings->host_mib > 0) return (uint64_t)settings->host_mib << 20;
    return sim_memory_free_bytes();
}

uint32_t sim_budget_in_flight(const struct sim_budget_need *most, uint32_t wanted,
                              uint64_t host_room, uint64_t gpu_room)
{
    uint32_t in_flight = wanted;

    assert(wanted >= 1);
    while (in_flight > 1 && (sim_budget_host_bytes(most, in_flight) > host_room ||
                             in_flight * most->gpu_bytes > gpu_room))
        in_flight--;
    assert(in_flight >= 1 && in_flight <= wanted);
    return in_flight;
}

int sim_budget_fits(const struct sim_budget_need *need, uint32_t in_flight, uint64_t host_room,
                    char *err, size_t err_len)
{
    char what[96];

    snprintf(what, sizeof what, "memory for %" PRIu32 " layer%s in flight (--threads, --host-mib)",
             in_flight, in_flight > 1 ? "s" : "");
    return sim_memory_check(what, sim_budget_host_bytes(need, in_flight), host_room, err, err_len);
}
