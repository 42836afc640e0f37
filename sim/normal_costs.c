/* sim/normal_costs.c - a machine's normal-mode costs, as times of one exchange's rows. */
#include <string.h>
#include "fabric/link.h"
#include "sim/normal_model.h"

static uint64_t stretched(uint64_t ps, uint64_t ppm)
{
    return ps + ps * ppm / 1000000;
}

/* Dispatch on one node reads a token once per destination. As long as a rank's tokens fit the
 * cache, all but the first read hit it; of larger ones, the share beyond it comes from memory. */
static uint64_t cold_ppm(const struct sim_exchange *exchange, uint64_t row_bytes)
{
    const struct fabric_normal_costs *own = &exchange->machine->costs.normal;
    const struct sim_traffic *traffic = exchange->traffic;
    const uint64_t tokens = traffic->token_start[traffic->ranks] / traffic->ranks;
    const uint64_t bytes = tokens * row_bytes;
    if (exchange->direction == SIM_COMBINE || bytes <= own->cache_bytes) return 0;
    return own->cold_ppm - own->cold_ppm * own->cache_bytes / bytes;
}

void normal_costs_init(struct normal_costs *costs, const struct sim_exchange *exchange)
{
    const struct fabric_machine *machine = exchange->machine;
    const struct fabric_normal_costs *own = &machine->costs.normal;
    const bool combine = exchange->direction == SIM_COMBINE;
    const uint64_t bytes = exchange->traffic->row_bytes[exchange->direction];
    const uint64_t crowd_ppm = own->crowd_ppm * exchange->sms;
    const uint64_t steps = (exchange->hidden + 255) / 256; /* A warp's 16-byte loads. */
    const uint64_t send_rate = combine ? own->return_warp_bytes_per_s : own->send_warp_bytes_per_s;
    const uint64_t block_rate =
        combine ? own->return_block_bytes_per_s : own->send_block_bytes_per_s;

    memset(costs, 0, sizeof *costs);
    costs->poll_ps = own->poll_ps;
    costs->publish_ps = own->publish_ps;
    costs->credit_ps = 2 * machine->nvlink_flight_ps + own->poll_ps;
    costs->scan_ps = own->scan_ps;
    costs->put_ps = own->put_ps;
    costs->visit_ps = own->visit_ps;
    costs->flight_ps = machine->nvlink_flight_ps;
    costs->nic_flight_ps = machine->nic_flight_ps;
    costs->message_ps = 2 * machine->nic_message_ps; /* The rows, then the tail. */
    if (machine->nvlink_goodput_bytes_per_s > 0)
        costs->link_ps = fabric_transfer_ps(bytes, machine->nvlink_goodput_bytes_per_s);
    if (machine->nic_goodput_bytes_per_s > 0)
        costs->nic_ps = fabric_transfer_ps(bytes, machine->nic_goodput_bytes_per_s);
    costs->send_chain_ps =
        (combine ? own->return_row_ps : own->send_row_ps) + fabric_transfer_ps(bytes, send_rate);
    costs->recv_chain_ps = own->recv_row_ps + fabric_transfer_ps(bytes, own->recv_warp_bytes_per_s);
    costs->stage_chain_ps =
        own->stage_row_ps + fabric_transfer_ps(bytes, own->stage_warp_bytes_per_s);
    costs->forward_chain_ps =
        own->forward_row_ps + fabric_transfer_ps(bytes, own->forward_warp_bytes_per_s);
    costs->sum_token_ps = own->sum_token_ps + steps * own->sum_step_ps;
    costs->sum_part_ps = steps * own->sum_part_ps;
    costs->merge_token_ps = own->merge_token_ps + steps * own->merge_step_ps;
    costs->merge_part_ps = steps * own->merge_part_ps;
    costs->send_block_ps =
        stretched(fabric_transfer_ps(bytes, block_rate), crowd_ppm + cold_ppm(exchange, bytes));
    costs->recv_block_ps =
        stretched(fabric_transfer_ps(bytes, own->recv_block_bytes_per_s), crowd_ppm);
    costs->stage_block_ps =
        stretched(fabric_transfer_ps(bytes, own->stage_block_bytes_per_s), crowd_ppm);
    costs->forward_block_ps =
        stretched(fabric_transfer_ps(bytes, own->forward_block_bytes_per_s), crowd_ppm);
    costs->sum_block_ps =
        stretched(fabric_transfer_ps(bytes, own->sum_block_bytes_per_s), crowd_ppm);
    costs->merge_block_ps =
        stretched(fabric_transfer_ps(bytes, own->merge_block_bytes_per_s), crowd_ppm);
}

/* The count exchange, from the last rank's launch to the kernel's start. One node: the exchange
 * with cached counts, as part of the call, so that there is nothing apart from it. */
uint64_t normal_exchange_ps(const struct sim_exchange *exchange, const struct normal_plan *plan)
{
    const struct fabric_normal_costs *own = &exchange->machine->costs.normal;
    uint64_t span = 0, rows = 0;
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
    if (nodes == 1) return combine ? own->combine_call_ps : own->dispatch_call_ps;
    return combine ? own->combine_kernel_ps : own->dispatch_kernel_ps;
}
