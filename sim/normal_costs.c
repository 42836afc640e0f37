/* sim/normal_costs.c - a machine's normal-mode costs, as times of one exchange's rows. */
#include <assert.h>
#include <string.h>
#include "fabric/link.h"
#include "sim/normal_model.h"

static uint64_t stretched(uint64_t ps, uint64_t ppm)
{
    return ps + ps * ppm / 1000000;
}

/* Dispatch on one node reads a token once per destination. As long as a rank's tokens fit the
 * cache, all but the first read hit it; of larger ones, the share beyond it comes from memory. */
static uint64_t cold_ps(const struct sim_exchange *exchange, uint64_t row_bytes)
{
    const struct fabric_normal_costs *own = &exchange->machine->costs.normal;
    const struct sim_traffic *traffic = exchange->traffic;
    const uint64_t tokens = traffic->token_start[traffic->ranks] / traffic->ranks;
    const uint64_t bytes = tokens * row_bytes;
    assert(traffic->ranks > 0);
    if (exchange->direction == SIM_COMBINE || bytes <= own->cache_bytes) return 0;
    return own->cold_ps * row_bytes / 1024 * ((bytes - own->cache_bytes) / 1024) / (bytes / 1024);
}

/* A row's FP8 scales move in words of 4 bytes, index by index, where its data move 16 bytes at a
 * time: what more they cost, in bytes of data. */
static uint64_t scale_bytes(const struct sim_exchange *exchange, uint64_t row_bytes)
{
    const bool fp8 = row_bytes < 2 * (uint64_t)exchange->hidden;
    const uint64_t bytes = (uint64_t)exchange->hidden / 128 * 4;
    if (exchange->direction == SIM_COMBINE || !fp8) return 0;
    return bytes * exchange->machine->costs.normal.scale_ppm / 1000000;
}

void normal_costs_init(struct normal_costs *costs, const struct sim_exchange *exchange)
{
    const struct fabric_machine *machine = exchange->machine;
    const struct fabric_normal_costs *own = &machine->costs.normal;
    const bool combine = exchange->direction == SIM_COMBINE;
    const uint64_t bytes = exchange->traffic->row_bytes[exchange->direction];
    const uint64_t crowd_ppm = own->crowd_ppm * exchange->sms;
    const uint64_t steps = (exchange->hidden + 255) / 256; /* A warp's 16-byte loads. */
    const uint64_t work = bytes + scale_bytes(exchange, bytes);
    const uint64_t bulk_work = exchange->traffic->nodes > 1 ? bytes : work;
    const uint64_t send_ps = fabric_transfer_ps(work, own->send_block_bytes_per_s);
    const uint64_t return_ps = fabric_transfer_ps(bytes, own->return_block_bytes_per_s);
    const uint64_t bulk_ps = fabric_transfer_ps(bulk_work, own->bulk_block_bytes_per_s);
    const uint64_t sum_ps = fabric_transfer_ps(bytes, own->sum_block_bytes_per_s);
    const uint64_t merge_ps = fabric_transfer_ps(bytes, own->merge_block_bytes_per_s);

    assert((unsigned)exchange->direction < SIM_DIRECTIONS && bytes > 0);
    memset(costs, 0, sizeof *costs);
    costs->poll_ps = own->poll_ps;
    costs->publish_ps = own->publish_ps;
    costs->scan_ps = own->scan_ps;
    costs->put_ps = own->put_ps;
    costs->visit_ps = own->visit_ps;
    costs->nvlink = exchange->traffic->nvlink;
    costs->flight_ps = costs->nvlink ? machine->nvlink_flight_ps : machine->nic_flight_ps;
    costs->credit_ps = 2 * costs->flight_ps + own->poll_ps;
    costs->nic_flight_ps = machine->nic_flight_ps;
    costs->message_ps = 2 * machine->nic_message_ps; /* The rows, then the tail. */
    if (machine->nvlink_goodput_bytes_per_s > 0)
        costs->link_ps = fabric_transfer_ps(bytes, machine->nvlink_goodput_bytes_per_s / 1000000 *
                                                       own->link_ppm);
    const uint64_t nic = fabric_network_bytes_per_s(exchange->network, machine);
    if (nic > 0) costs->nic_ps = fabric_transfer_ps(bytes, nic);
    assert(costs->nvlink ? costs->link_ps > 0 : costs->nic_ps > 0);
    costs->row_bytes = bytes;

    costs->stage_chain_ps = own->send_row_ps + fabric_transfer_ps(work, own->send_warp_bytes_per_s);
    costs->stage_block_ps = stretched(send_ps, crowd_ppm);
    costs->send_chain_ps = stretched(costs->stage_chain_ps + cold_ps(exchange, bytes), crowd_ppm);
    costs->send_block_ps = stretched(send_ps, crowd_ppm);
    if (combine) {
        const uint64_t warp_ps =
            own->return_row_ps + fabric_transfer_ps(bytes, own->return_warp_bytes_per_s);
        const uint64_t rail_ps =
            own->return_row_ps + fabric_transfer_ps(bytes, own->return_rail_bytes_per_s);
        costs->send_chain_ps =
            exchange->traffic->nodes > 1 ? rail_ps : stretched(warp_ps, crowd_ppm);
        costs->send_block_ps = stretched(return_ps, crowd_ppm);
    }
    costs->bulk_chain_ps = own->bulk_row_ps;
    costs->forward_chain_ps =
        own->forward_row_ps + fabric_transfer_ps(bytes, own->forward_warp_bytes_per_s);
    costs->bulk_block_ps = stretched(bulk_ps, crowd_ppm);
    costs->sum_chain_ps = steps * own->sum_step_ps;
    costs->sum_block_ps = sum_ps;
    costs->merge_chain_ps = steps * own->merge_step_ps;
    costs->merge_block_ps = merge_ps;
}

/* The count exchange, from the last rank's launch to the kernel's start. One node: the exchange
 * with cached counts, as part of the call, so that there is nothing apart from it. */
uint64_t normal_exchange_ps(const struct sim_exchange *exchange, const struct normal_plan *plan)
{
    const struct fabric_normal_costs *own = &exchange->machine->costs.normal;
    uint64_t span = 0, rows = 0;
    assert(plan->ranks > 0 && plan->channels > 0);
    if (plan->nodes == 1) return 0;
    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        const uint64_t tokens = normal_span(plan->tokens[rank], plan->channels, 0);
        span = normal_max(span, tokens);
    }
    const uint64_t rails = (uint64_t)plan->ranks * plan->nodes * plan->channels;
    rows = plan->level0.first[rails] / plan->ranks / plan->channels; /* A rank's, per channel. */
    const uint64_t base_ps = own->exchange_ps + (plan->nodes - 1) * own->exchange_node_ps;
    if (exchange->direction == SIM_COMBINE)
        return base_ps + span * own->cached_token_ps + rows * own->cached_row_ps;
    return base_ps + span * own->exchange_token_ps;
}

uint64_t normal_kernel_ps(const struct sim_exchange *exchange, uint32_t nodes)
{
    const struct fabric_normal_costs *own = &exchange->machine->costs.normal;
    const bool combine = exchange->direction == SIM_COMBINE;
    assert(nodes > 0);
    if (nodes == 1) return combine ? own->combine_call_ps : own->dispatch_call_ps;
    return combine ? own->combine_kernel_ps : own->dispatch_kernel_ps;
}
