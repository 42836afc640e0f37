/* sim/step_layer.c - places the kernels of a layer's stage on their streams, in table order. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "sim/step_state.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_exchange(enum sim_op op)
{
    return op == SIM_OP_DISPATCH || op == SIM_OP_COMBINE || op == SIM_OP_DISPATCH_SEND ||
           op == SIM_OP_COMBINE_SEND;
}

static bool is_collective(enum sim_op op)
{
    return op == SIM_OP_TP_GATHER || op == SIM_OP_TP_SCATTER || op == SIM_OP_GATHER ||
           op == SIM_OP_REDUCE_SCATTER;
}

/* Does this layer have the kernel at all? */
static bool belongs(const struct step_slot *slot, enum sim_op op)
{
    if (!slot->dense) return op != SIM_OP_FFN;
    return op <= SIM_OP_ROUTER || op == SIM_OP_FFN || op == SIM_OP_REDUCE_SCATTER;
}

/* When everything that op reads is there. With signals combine reads what down has finished, so
 * its kernel starts beside down. */
static uint64_t inputs_ps(const struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                          uint32_t rank)
{
    const struct step_half *half = &step->half[slot->half];
    uint32_t needs = sim_overlap_needs(op);
    uint64_t ready_ps = 0;
    if (op == SIM_OP_TP_GATHER)
        return step->overlap->next_layer ? half->rest_ps[rank] : half->done_ps[rank];
    if (op == SIM_OP_ATTENTION) ready_ps = half->done_ps[rank];
    if (op == SIM_OP_COMBINE && step->overlap->signals && !slot->dense)
        return slot->start_ps[SIM_OP_DOWN][rank];
    for (int n = 0; n < SIM_OPS; n++)
        if (needs & 1u << n) ready_ps = later(ready_ps, slot->end_ps[n][rank]);
    return ready_ps;
}

/* Without a graph the host learns the counts and only then launches the experts' kernels. */
static uint64_t host_ps(const struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                        uint32_t rank)
{
    if (op != SIM_OP_PERMUTE || step->plan->mode == SIM_MODE_LL) return 0;
    return slot->counts_ps[rank] + step->plan->machine.costs.compute.lead_ps;
}

static int tell(struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                enum sim_stream stream, char *err, size_t err_len)
{
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t start_ps = slot->start_ps[op][r], end_ps = slot->end_ps[op][r];
        assert(end_ps >= start_ps);
        step->spent_ps[slot->dense][op] += end_ps - start_ps;
        if (end_ps == start_ps || step->span == NULL) continue;
        const bool sends = op == SIM_OP_DISPATCH_SEND || op == SIM_OP_COMBINE_SEND ||
                           (is_exchange(op) && !slot->hooked[op == SIM_OP_COMBINE]);
        const enum sim_direction direction =
            op == SIM_OP_DISPATCH || op == SIM_OP_DISPATCH_SEND ? SIM_DISPATCH : SIM_COMBINE;
        const struct sim_step_span span = {.step = step->number,
                                           .dense = slot->dense,
                                           .layer = slot->layer,
                                           .half = slot->half,
                                           .rank = r,
                                           .op = op,
                                           .stream = stream,
                                           .start_ps = start_ps,
                                           .end_ps = end_ps,
                                           .bytes = sends ? slot->sent_bytes[direction][r] : 0,
                                           .rows = step_op_rows(step, slot, op, r)};
        if (step->span(step->context, &span, err, err_len) != 0) return -1;
    }
    return 0;
}

/* Streams go on when the kernel has ended; the layer's last one hands over to the next layer. */
static void move_on(struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                    enum sim_stream stream)
{
    struct step_half *half = &step->half[slot->half];
    for (uint32_t r = 0; r < step->ranks; r++) {
        step->free_ps[stream][r] = later(step->free_ps[stream][r], slot->end_ps[op][r]);
        step->end_ps = later(step->end_ps, slot->end_ps[op][r]);
        if (op != SIM_OP_REDUCE_SCATTER) continue;
        half->rest_ps[r] = inputs_ps(step, slot, op, r);
        half->done_ps[r] = slot->end_ps[op][r];
        if (slot->dense || slot->half != 0) continue;
        step->last_end_ps = later(step->last_end_ps, slot->end_ps[op][r]);
        if (half->stage <= step->stages)
            step->first_end_ps = later(step->first_end_ps, slot->end_ps[op][r]);
    }
}

/* Numbers of a machine or model that no hardware has would overflow later. */
static int check_time(const struct sim_step *step, const struct step_slot *slot, char *err,
                      size_t err_len)
{
    const uint64_t limit_ps = UINT64_C(3600) * 1000000000000;
    assert(step->end_ps >= step->start_ps);
    if (step->end_ps - step->start_ps < limit_ps) return 0;
    snprintf(err, err_len, "%s layer %" PRIu32 ": the step takes more than an hour on machine %s",
             slot->dense ? "dense" : "MoE", slot->layer, step->plan->machine.name);
    return -1;
}

/* What makes a rank late is work before dispatch: each half has its rows' share of it. */
static void add_skew(const struct sim_step *step, struct step_slot *slot, enum sim_op op)
{
    const struct sim_plan *plan = step->plan;
    uint64_t late_ps[SIM_RANKS_MAX] = {0};
    sim_skew_add(&plan->skew, plan->settings.seed, step->number, slot->layer, step->ranks, late_ps);
    for (uint32_t r = 0; r < step->ranks; r++)
        if (plan->tokens[r] > 0)
            slot->start_ps[op][r] += late_ps[r] * step->half[slot->half].rows[r] / plan->tokens[r];
}

static int place(struct sim_step *step, struct step_slot *slot, enum sim_op op,
                 enum sim_stream stream, char *err, size_t err_len)
{
    assert(op < SIM_OPS && stream < SIM_STREAMS);
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t inputs = later(inputs_ps(step, slot, op, r), host_ps(step, slot, op, r));
        slot->start_ps[op][r] = later(inputs, step->free_ps[stream][r]);
        slot->end_ps[op][r] = slot->start_ps[op][r];
    }
    if (is_exchange(op)) {
        if ((op == SIM_OP_DISPATCH && !slot->hooked[SIM_DISPATCH]) || op == SIM_OP_DISPATCH_SEND)
            add_skew(step, slot, op);
        if (step_exchange(step, slot, op, stream, err, err_len) != 0) return -1;
    } else if (is_collective(op)) {
        step_collective(step, slot, op, stream);
    } else {
        for (uint32_t r = 0; r < step->ranks; r++)
            slot->end_ps[op][r] = step_compute(step, slot, op, r, slot->start_ps[op][r]);
    }
    if (tell(step, slot, op, stream, err, err_len) != 0) return -1;
    move_on(step, slot, op, stream);
    return check_time(step, slot, err, err_len);
}

int step_run_stage(struct sim_step *step, struct step_slot *slot,
                   const struct sim_overlap_entry *entry, char *err, size_t err_len)
{
    assert(slot->half < STEP_HALVES && step->ranks <= SIM_RANKS_MAX);
    for (; entry->op != SIM_OP_YIELD && entry->op != SIM_OP_END; entry++) {
        /* A kernel that the layer lacks takes no time and holds nobody up. */
        if (belongs(slot, entry->op)) {
            if (place(step, slot, entry->op, entry->stream, err, err_len) != 0) return -1;
            continue;
        }
        for (uint32_t r = 0; r < step->ranks; r++)
            slot->end_ps[entry->op][r] = inputs_ps(step, slot, entry->op, r);
    }
    return 0;
}
