/* sim/step_comm.c - communication of a layer: exchanges through their protocols, collectives by
 * rate and flights, and combine that follows the down GEMM block by block. */
#include <assert.h>
#include <string.h>

#include "sim/step_state.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { COLLECTIVE_SMS = 16, BF16 = 2, BLACKWELL = 100 };
#define PS_PER_S UINT64_C(1000000000000)

static enum sim_direction direction_of(enum sim_op op)
{
    return op == SIM_OP_DISPATCH || op == SIM_OP_DISPATCH_SEND ? SIM_DISPATCH : SIM_COMBINE;
}

static int time_exchange(struct sim_step *step, struct step_slot *slot,
                         enum sim_direction direction, bool hook, const uint64_t *recv_start_ps,
                         char *err, size_t err_len)
{
    struct sim_timing *timing = &slot->timing[direction];
    struct sim_exchange exchange = sim_plan_exchange(step->plan, &slot->traffic, direction);

    assert(slot->traffic.ranks == step->ranks);
    exchange.hook = hook; /* The overlap's, not the run's: its pause is the work in between. */
    exchange.pause_ps = 0;
    exchange.start_ps = slot->sent_ps[direction];
    exchange.recv_start_ps = recv_start_ps;
    if (sim_timing_fit(timing, step->ranks, slot->traffic.message_count[direction], err, err_len) !=
        0)
        return -1;
    return sim_exchange_time(step->engine, &exchange, timing, err, err_len);
}

/* Two exchanges share the wires first come, first served: the later one's rows queue behind what
 * the earlier has left of its bytes over the rates (timing.floor_ps). */
static void queue_on_wires(struct sim_step *step, struct step_slot *slot,
                           enum sim_direction direction)
{
    uint64_t first_ps = UINT64_MAX;
    for (uint32_t r = 0; r < step->ranks; r++)
        if (slot->sent_ps[direction][r] < first_ps) first_ps = slot->sent_ps[direction][r];
    const uint64_t from_ps = step->wires_free_ps > first_ps ? step->wires_free_ps : first_ps;
    assert(first_ps != UINT64_MAX && from_ps >= first_ps);
    slot->delay_ps[direction] = from_ps - first_ps;
    step->wires_free_ps = from_ps + slot->timing[direction].floor_ps;
}

/* How much later than a combine whose rows all lie ready the rank's last row leaves: rows of an
 * expert may go when the down GEMM has finished their blocks. Before Blackwell every SM raises the
 * counter once per wave (threshold = compute SMs), so readiness comes wave by wave. */
static uint64_t signal_lag_ps(const struct sim_step *step, const struct step_slot *slot,
                              uint32_t rank, uint64_t send_ps)
{
    const struct sim_experts *experts = &slot->experts[rank];
    const uint32_t local = step->plan->experts / step->ranks, base = rank * local;
    const uint64_t begin_ps = slot->start_ps[SIM_OP_DOWN][rank];
    const uint64_t took_ps = slot->end_ps[SIM_OP_DOWN][rank] - begin_ps;
    const uint64_t compute_sms = step->plan->machine.sm_count -
                                 sim_overlap_comm_sms(&step->plan->settings, &step->plan->machine);
    const uint64_t all = experts->down.tiles, waves = (all + compute_sms - 1) / compute_sms;
    uint64_t rows = 0, done = 0, sent = 0, last_ps = 0;
    assert(rank < step->ranks && slot->end_ps[SIM_OP_DOWN][rank] >= begin_ps);
    for (uint32_t e = 0; e < local; e++) rows += slot->expert_rows[base + e];
    if (rows == 0 || all == 0) return 0;
    const uint64_t row_tiles = (step->plan->model.hidden + 127) / 128;
    for (uint32_t e = 0; e < local; e++) {
        const uint64_t own = slot->expert_rows[base + e];
        if (own == 0) continue;
        done += (own + experts->block_m - 1) / experts->block_m * row_tiles;
        uint64_t part = done, of = all;
        if (step->plan->machine.sm_version < BLACKWELL) {
            part = (done + compute_sms - 1) / compute_sms;
            of = waves;
        }
        const uint64_t ready_ps = begin_ps + (uint64_t)((u128)took_ps * part / of);
        /* From then on at least the rows that are left must still be sent. */
        const uint64_t end_ps = ready_ps + (uint64_t)((u128)send_ps * (rows - sent) / rows);
        if (end_ps > last_ps) last_ps = end_ps;
        sent += own;
    }
    assert(sent == rows && done <= all);
    const uint64_t free_ps = slot->sent_ps[SIM_COMBINE][rank] + send_ps;
    return last_ps > free_ps ? last_ps - free_ps : 0;
}

/* A combine on few SMs sends no faster than they store. The slowest rank's lag holds all up. */
static uint64_t combine_lag_ps(const struct sim_step *step, const struct step_slot *slot,
                               uint32_t sms)
{
    const struct sim_timing *timing = &slot->timing[SIM_COMBINE];
    const uint64_t rate = sms * step->plan->machine.costs.ll.sm_send_bytes_per_s;
    uint64_t most_ps = 0;
    assert(sms > 0 && rate > 0);
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t bytes = slot->sent_bytes[SIM_COMBINE][r];
        const uint64_t narrow_ps = (uint64_t)((u128)bytes * PS_PER_S / rate);
        const uint64_t send_ps = timing->floor_ps > narrow_ps ? timing->floor_ps : narrow_ps;
        /* Rows that the wires take longer for than few SMs do are not held up by the SMs. */
        const uint64_t free_ps =
            timing->floor_ps > timing->send_ps[r] ? timing->floor_ps : timing->send_ps[r];
        uint64_t lag_ps = narrow_ps > free_ps ? narrow_ps - free_ps : 0;
        if (step->overlap->signals) lag_ps += signal_lag_ps(step, slot, r, send_ps);
        if (lag_ps > most_ps) most_ps = lag_ps;
    }
    return most_ps;
}

/* The receive half of hook mode, launched at slot->start_ps[op]. */
static int receive(struct sim_step *step, struct step_slot *slot, enum sim_op op, char *err,
                   size_t err_len)
{
    const enum sim_direction direction = direction_of(op);
    const uint64_t delay_ps = slot->delay_ps[direction];
    uint64_t launched_ps[SIM_RANKS_MAX];
    /* Seen from rows that left undelayed, receivers open earlier by as much. */
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t at_ps = slot->start_ps[op][r], sent_ps = slot->sent_ps[direction][r];
        launched_ps[r] = at_ps > sent_ps + delay_ps ? at_ps - delay_ps : sent_ps;
    }
    if (time_exchange(step, slot, direction, true, launched_ps, err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t end_ps = slot->timing[direction].end_ps[r] + delay_ps;
        slot->end_ps[op][r] = end_ps > slot->start_ps[op][r] ? end_ps : slot->start_ps[op][r];
    }
    return 0;
}

int step_exchange(struct sim_step *step, struct step_slot *slot, enum sim_op op,
                  enum sim_stream stream, char *err, size_t err_len)
{
    const enum sim_direction direction = direction_of(op);
    const bool send = op == SIM_OP_DISPATCH_SEND || op == SIM_OP_COMBINE_SEND;
    const bool ll = step->plan->mode == SIM_MODE_LL;
    struct sim_timing *timing = &slot->timing[direction];
    uint64_t lag_ps = 0;

    if (slot->hooked[direction] && !send) return receive(step, slot, op, err, err_len);
    memcpy(slot->sent_ps[direction], slot->start_ps[op], step->ranks * sizeof(uint64_t));
    if (time_exchange(step, slot, direction, send, NULL, err, err_len) != 0) return -1;
    queue_on_wires(step, slot, direction);
    slot->hooked[direction] = send;
    const uint32_t sms = ll ? sim_overlap_comm_sms(&step->plan->settings, &step->plan->machine)
                            : step->plan->settings.sms;
    if (ll && stream == SIM_STREAM_COMM && op == SIM_OP_COMBINE)
        lag_ps = combine_lag_ps(step, slot, sms);
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t start_ps = slot->start_ps[op][r];
        slot->end_ps[op][r] = send ? start_ps + timing->send_ps[r]
                                   : timing->end_ps[r] + slot->delay_ps[direction] + lag_ps;
        assert(slot->end_ps[op][r] >= start_ps);
        if (direction == SIM_DISPATCH)
            slot->counts_ps[r] = start_ps + slot->delay_ps[direction] + timing->notify_ps[r];
        if (stream == SIM_STREAM_COMM) step_hold(step, r, start_ps, slot->end_ps[op][r], sms);
    }
    return 0;
}

/* Bytes of the array that op gathers or adds up, and how. */
static uint64_t collective_of(const struct sim_step *step, const struct step_slot *slot,
                              enum sim_op op, uint32_t rank, enum sim_collective *kind,
                              uint32_t *ranks)
{
    const struct sim_settings *settings = &step->plan->settings;
    const struct step_half *half = &step->half[slot->half];
    const uint64_t row = (uint64_t)step->plan->model.hidden * BF16;
    uint64_t sum = 0, most = 0;
    assert(rank < step->ranks);
    if (op == SIM_OP_TP_GATHER || op == SIM_OP_TP_SCATTER) {
        const uint32_t first = rank / settings->attn_tp * settings->attn_tp;
        *ranks = settings->attn_tp;
        *kind = op == SIM_OP_TP_GATHER ? SIM_ALL_GATHER : SIM_REDUCE_SCATTER;
        for (uint32_t r = first; r < first + *ranks && r < step->ranks; r++) sum += half->rows[r];
        return *ranks > 1 ? sum * row : 0;
    }
    *ranks = step->ranks;
    if (settings->gather[0] == 'n' || (settings->gather[0] == 'd' && !slot->dense)) return 0;
    const enum sim_padding wanted = settings->padding[0] == 'm'   ? SIM_PADDING_MAX
                                    : settings->padding[0] == 's' ? SIM_PADDING_SUM
                                                                  : SIM_PADDING_AUTO;
    for (uint32_t r = 0; r < step->ranks; r++) {
        sum += half->rows[r];
        if (half->rows[r] > most) most = half->rows[r];
    }
    if (sim_compute_padding(wanted, half->rows, step->ranks, step->prefill) == SIM_PADDING_MAX) {
        *kind = op == SIM_OP_GATHER ? SIM_ALL_GATHER : SIM_REDUCE_SCATTER;
        return most * step->ranks * row;
    }
    *kind = SIM_ALL_REDUCE;
    return sum * row;
}

/* Nobody ends before the last has begun. */
void step_collective(struct sim_step *step, struct step_slot *slot, enum sim_op op,
                     enum sim_stream stream)
{
    enum sim_collective kind = SIM_ALL_GATHER;
    uint32_t group = 1;
    memcpy(slot->end_ps[op], slot->start_ps[op], step->ranks * sizeof(uint64_t));
    for (uint32_t first = 0; first < step->ranks; first += group) {
        const uint64_t bytes = collective_of(step, slot, op, first, &kind, &group);
        uint64_t begin_ps = 0;
        assert(group >= 1);
        if (bytes == 0) continue;
        step->collective_bytes[slot->dense] += bytes * (kind == SIM_ALL_REDUCE ? 2 : 1);
        for (uint32_t r = first; r < first + group && r < step->ranks; r++)
            if (slot->start_ps[op][r] > begin_ps) begin_ps = slot->start_ps[op][r];
        const uint64_t end_ps =
            begin_ps + sim_compute_collective(&step->plan->machine, kind, group,
                                              step->plan->ranks_per_node, bytes);
        assert(end_ps >= begin_ps);
        for (uint32_t r = first; r < first + group && r < step->ranks; r++) {
            slot->end_ps[op][r] = end_ps;
            if (stream == SIM_STREAM_COMM)
                step_hold(step, r, slot->start_ps[op][r], end_ps, COLLECTIVE_SMS);
        }
    }
}
