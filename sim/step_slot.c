/* sim/step_slot.c - one half's share of a layer: its rows, messages, and experts' work. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/step_state.h"

void step_slot_free(struct step_slot *slot)
{
    free(slot->choices);
    sim_traffic_free(&slot->traffic);
    for (int d = 0; d < SIM_DIRECTIONS; d++) sim_timing_close(&slot->timing[d]);
    memset(slot, 0, sizeof *slot);
}

/* The half's tokens, rank by rank: the first ones of half A, the last ones of half B. */
static void cut_routing(const struct sim_step *step, struct step_slot *slot,
                        const struct ref_routing *routing)
{
    const struct step_half *half = &step->half[slot->half];
    const uint32_t topk = routing->topk;
    uint64_t at = 0;
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t first =
            slot->half == 0 ? routing->token_start[r] : routing->token_start[r + 1] - half->rows[r];
        assert(half->rows[r] <= routing->token_start[r + 1] - routing->token_start[r]);
        slot->token_start[r] = at;
        memcpy(slot->choices + at * topk, routing->topk_idx + first * topk,
               half->rows[r] * topk * sizeof(int64_t));
        at += half->rows[r];
    }
    slot->token_start[step->ranks] = at;
    slot->routing = (struct ref_routing){.ranks = step->ranks,
                                         .experts = routing->experts,
                                         .topk = topk,
                                         .token_start = slot->token_start,
                                         .topk_idx = slot->choices};
}

static void count_rows(struct sim_step *step, struct step_slot *slot, int direction, uint32_t src,
                       uint32_t dst, uint64_t rows)
{
    const uint64_t bytes = rows * slot->traffic.row_bytes[direction];
    slot->sent_bytes[direction][src] += bytes;
    slot->sent_rows[direction][src] += rows;
    step->wire_bytes[sim_traffic_link(&slot->traffic, src, dst)] += bytes;
}

static void count_messages(struct sim_step *step, struct step_slot *slot)
{
    const struct sim_traffic *traffic = &slot->traffic;
    const uint32_t local = traffic->experts / traffic->ranks;
    memset(slot->sent_bytes, 0, sizeof slot->sent_bytes);
    memset(slot->sent_rows, 0, sizeof slot->sent_rows);
    if (traffic->mode == SIM_MODE_LL) {
        const uint64_t *block = traffic->block_start; /* By (expert, home rank). */
        for (uint32_t expert = 0; expert < traffic->experts; expert++)
            for (uint32_t home = 0; home < traffic->ranks; home++, block++) {
                const uint64_t rows = block[1] - block[0];
                count_rows(step, slot, SIM_DISPATCH, home, expert / local, rows);
                count_rows(step, slot, SIM_COMBINE, expert / local, home, rows);
            }
        return;
    }
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        for (uint64_t m = 0; m < traffic->message_count[d]; m++)
            count_rows(step, slot, d, traffic->messages[d][m].src_rank,
                       traffic->messages[d][m].dst_rank, 1);
}

static void count_experts(struct sim_step *step, struct step_slot *slot)
{
    const struct sim_plan *plan = step->plan;
    const struct ref_routing *routing = &slot->routing;
    const bool ll = plan->mode == SIM_MODE_LL;
    const uint32_t local = plan->experts / step->ranks;
    const uint64_t tokens = slot->token_start[step->ranks];
    memset(slot->expert_rows, 0, plan->experts * sizeof slot->expert_rows[0]);
    for (uint64_t i = 0; i < tokens * routing->topk; i++)
        if (routing->topk_idx[i] >= 0) slot->expert_rows[routing->topk_idx[i]]++;
    for (uint32_t r = 0; r < step->ranks; r++) {
        /* The library's guess: mean rows per expert, rounded up. */
        const uint64_t expected = (tokens * routing->topk + plan->experts) / plan->experts;
        const uint64_t *starts = slot->traffic.block_start + (size_t)r * step->ranks;
        slot->received[r] = ll ? 0 : starts[step->ranks] - starts[0];
        slot->experts[r] = sim_compute_experts(
            &plan->machine, &plan->model, ll ? SIM_LAYOUT_MASKED : SIM_LAYOUT_CONTIGUOUS,
            slot->expert_rows + (size_t)r * local, local, expected, slot->received[r]);
    }
}

int step_slot_build(struct sim_step *step, struct step_slot *slot,
                    const struct ref_routing *routing, char *err, size_t err_len)
{
    const struct sim_traffic_shape shape = sim_plan_shape(step->plan);
    assert(routing->ranks == step->ranks && routing->experts == step->plan->experts);
    cut_routing(step, slot, routing);
    sim_traffic_free(&slot->traffic);
    memset(slot->hooked, 0, sizeof slot->hooked);
    memset(slot->counts_ps, 0, sizeof slot->counts_ps);
    if (sim_traffic_count(&slot->routing, &shape, &slot->traffic, err, err_len) != 0) return -1;
    count_messages(step, slot);
    count_experts(step, slot);
    return 0;
}
