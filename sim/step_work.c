/* sim/step_work.c - compute kernels of a layer: what each has to do, and how long it takes on the
 * SMs that are free. */
#include <assert.h>

#include "sim/step_state.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

#define WHOLE (UINT64_C(1) << 32) /* A kernel's work, in parts that intervals use up. */
enum { WORKS = 2 };

/* A kernel, or two in a row that nothing comes between. */
struct works {
    uint32_t count;
    struct sim_work work[WORKS];
};

static uint64_t group_sum(const uint64_t *values, uint32_t rank, uint32_t group, uint32_t ranks)
{
    const uint32_t first = rank / group * group;
    uint64_t sum = 0;
    for (uint32_t r = first; r < first + group && r < ranks; r++) sum += values[r];
    return sum;
}

/* Rows that the rank's kernels before the experts see: a captured graph's padded ones. */
static uint64_t graph_rows(const struct step_half *half, uint32_t rank)
{
    return half->padded > half->rows[rank] ? half->padded : half->rows[rank];
}

static void attention_works(const struct sim_step *step, const struct step_slot *slot,
                            uint32_t rank, enum sim_op op, struct works *works)
{
    const struct sim_plan *plan = step->plan;
    const struct step_half *half = &step->half[slot->half];
    const uint32_t group = plan->settings.attn_tp;
    const uint64_t rows = group_sum(half->rows, rank, group, step->ranks);
    const uint64_t padded = group * graph_rows(half, rank);
    const uint64_t requests = group_sum(half->requests, rank, group, step->ranks);
    const uint64_t before = slot->dense ? 0 : group_sum(half->before, rank, group, step->ranks);
    const struct sim_attention attention = {
        .requests = requests,
        .rows = rows,
        .context = plan->settings.context + (requests > 0 ? before / requests : 0),
        .layer = slot->dense ? slot->layer : plan->model.dense_layers + slot->layer,
        .heads_split = group,
        .prefill = step->prefill,
        .table = plan->settings.attention[0] == 'a'};
    struct sim_work projection, core;
    sim_compute_attention(&plan->machine, &plan->model, &attention, &projection, &core);
    if (op == SIM_OP_ATTENTION) {
        *works = (struct works){1, {core}};
        return;
    }
    /* Padded rows are projected like others; they attend to nothing. */
    if (rows > 0 && padded > rows)
        projection.flop = (uint64_t)((u128)projection.flop * padded / rows);
    *works = (struct works){
        2, {sim_compute_norm(&plan->machine, &plan->model, rows > 0 ? padded : 0), projection}};
}

static struct works works_of(const struct sim_step *step, const struct step_slot *slot,
                             enum sim_op op, uint32_t rank)
{
    const struct sim_plan *plan = step->plan;
    const struct fabric_machine *machine = &plan->machine;
    const struct sim_model *model = &plan->model;
    const uint64_t rows = graph_rows(&step->half[slot->half], rank);
    const bool spread = plan->settings.gather[0] != 'n';
    struct works works = {.count = 1};
    uint64_t all = 0;
    switch (op) {
    case SIM_OP_PROJECTION:
    case SIM_OP_ATTENTION: attention_works(step, slot, rank, op, &works); break;
    case SIM_OP_ROUTER:
        works.work[0] = slot->dense ? sim_compute_norm(machine, model, rows)
                                    : sim_compute_router(machine, model, rows);
        break;
    case SIM_OP_QUANTISE:
        if (plan->mode == SIM_MODE_NORMAL && ref_recipe_payload_bytes(plan->recipe) == 1)
            works.work[0] = sim_compute_quantise(machine, model, rows);
        break;
    case SIM_OP_SHARED:
        works.work[0] = sim_compute_ffn(machine, model,
                                        (uint64_t)model->shared_experts * model->moe_inter, rows);
        break;
    case SIM_OP_FFN:
        for (uint32_t r = 0; r < step->ranks; r++) all += step->half[slot->half].rows[r];
        works.work[0] =
            spread ? sim_compute_ffn(machine, model,
                                     (model->dense_inter + step->ranks - 1) / step->ranks, all)
                   : sim_compute_ffn(machine, model, model->dense_inter, rows);
        break;
    case SIM_OP_PERMUTE: works.work[0] = slot->experts[rank].permute; break;
    case SIM_OP_GATE_UP: works.work[0] = slot->experts[rank].gate_up; break;
    case SIM_OP_ACTIVATION: works.work[0] = slot->experts[rank].activation; break;
    case SIM_OP_DOWN: works.work[0] = slot->experts[rank].down; break;
    case SIM_OP_UNPERMUTE: works.work[0] = slot->experts[rank].unpermute; break;
    case SIM_OP_TP_GATHER:
    case SIM_OP_TP_SCATTER:
    case SIM_OP_GATHER:
    case SIM_OP_DISPATCH:
    case SIM_OP_COMBINE:
    case SIM_OP_REDUCE_SCATTER:
    case SIM_OP_DISPATCH_SEND:
    case SIM_OP_COMBINE_SEND:
    case SIM_OPS:
    case SIM_OP_END:
    default: assert(false); /* No compute kernel. */
    }
    return works;
}

void step_hold(struct sim_step *step, uint32_t rank, uint64_t from_ps, uint64_t to_ps, uint32_t sms)
{
    assert(from_ps <= to_ps && rank < step->ranks);
    step->holds[rank][step->next_hold[rank]] = (struct step_hold){from_ps, to_ps, sms};
    step->next_hold[rank] = (step->next_hold[rank] + 1) % STEP_HOLDS;
}

/* SMs held at now_ps, and until when that stays so. */
static uint32_t held(const struct sim_step *step, uint32_t rank, uint64_t now_ps,
                     uint64_t *until_ps)
{
    uint32_t sms = 0;
    *until_ps = UINT64_MAX;
    for (uint32_t i = 0; i < STEP_HOLDS; i++) {
        const struct step_hold *hold = &step->holds[rank][i];
        if (hold->to_ps <= now_ps) continue;
        if (hold->from_ps <= now_ps) sms += hold->sms;
        const uint64_t change_ps = hold->from_ps <= now_ps ? hold->to_ps : hold->from_ps;
        if (change_ps < *until_ps) *until_ps = change_ps;
    }
    return sms;
}

/* SMs that op's kernel is launched for. */
static uint32_t launched_sms(const struct sim_step *step, enum sim_op op)
{
    const struct sim_plan *plan = step->plan;
    const bool gemm = op == SIM_OP_GATE_UP || op == SIM_OP_DOWN;
    uint32_t out = 0;
    if (plan->mode == SIM_MODE_NORMAL && step->overlap->partition && step->halves == 2 && gemm)
        out = plan->settings.sms;
    if (step->overlap->signals && op == SIM_OP_DOWN)
        out = sim_overlap_comm_sms(&plan->settings, &plan->machine);
    assert(out < plan->machine.sm_count);
    return plan->machine.sm_count - out;
}

/* Work is used up interval by interval, each at the pace of the SMs free in it. */
static uint64_t run(const struct sim_step *step, const struct sim_work *work, uint32_t rank,
                    uint32_t sms_max, uint64_t now_ps)
{
    const struct fabric_machine *machine = &step->plan->machine;
    uint64_t left = WHOLE;
    for (;;) {
        uint64_t until_ps;
        const uint32_t busy = held(step, rank, now_ps, &until_ps);
        const uint32_t free_sms = busy + 1 < machine->sm_count ? machine->sm_count - busy : 1;
        const uint64_t whole_ps =
            sim_work_ps(machine, work, free_sms < sms_max ? free_sms : sms_max);
        const uint64_t needs_ps = (uint64_t)((u128)whole_ps * left / WHOLE);
        if (needs_ps <= until_ps - now_ps) return now_ps + needs_ps;
        const uint64_t used = (uint64_t)((u128)(until_ps - now_ps) * WHOLE / whole_ps);
        left -= used < left ? used : left;
        now_ps = until_ps;
    }
}

uint64_t step_compute(struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                      uint32_t rank, uint64_t ready_ps)
{
    const struct works works = works_of(step, slot, op, rank);
    uint64_t now_ps = ready_ps;
    assert(works.count >= 1 && works.count <= WORKS);
    for (uint32_t w = 0; w < works.count; w++)
        now_ps = run(step, &works.work[w], rank, launched_sms(step, op), now_ps);
    return now_ps;
}

uint64_t step_op_rows(const struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                      uint32_t rank)
{
    const uint32_t local = step->plan->experts / step->ranks;
    uint64_t rows = 0;
    if (op == SIM_OP_DISPATCH || op == SIM_OP_DISPATCH_SEND)
        return slot->sent_rows[SIM_DISPATCH][rank];
    if (op == SIM_OP_COMBINE || op == SIM_OP_COMBINE_SEND)
        return slot->sent_rows[SIM_COMBINE][rank];
    if (op < SIM_OP_PERMUTE || op > SIM_OP_UNPERMUTE) return step->half[slot->half].rows[rank];
    for (uint32_t e = rank * local; e < (rank + 1) * local; e++) rows += slot->expert_rows[e];
    return rows;
}
