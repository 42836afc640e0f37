/* fabric/network.c - asks the parts that are not ideal. */
#include "fabric/network.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PPM = 1000000 };

bool fabric_network_asked(const struct fabric_network_shape *shape)
{
    return shape->routing != FABRIC_ROUTING_IDEAL || shape->control != FABRIC_CONTROL_IDEAL ||
           shape->background_bytes_per_s > 0;
}

static uint64_t port_bytes_per_s(const struct fabric_machine *machine)
{
    const uint64_t nic = machine->nic_goodput_bytes_per_s, pcie = machine->pcie_bytes_per_s;
    return pcie > 0 && pcie < nic ? pcie : nic;
}

int fabric_network_check(const struct fabric_network_shape *shape,
                         const struct fabric_machine *machine, char *err, size_t err_len)
{
    const bool spine = shape->routing != FABRIC_ROUTING_IDEAL;
    const bool control = shape->control != FABRIC_CONTROL_IDEAL;
    const bool background = shape->background_bytes_per_s > 0;
    const struct {
        const char *name, *wants;
        uint64_t value;
        bool needed;
    } numbers[] = {
        {"leaf_nodes", "fabric routing", machine->leaf_nodes, spine},
        {"leaf_uplinks", "fabric routing", machine->leaf_uplinks, spine},
        {"port_buffer_bytes", "congestion control", machine->port_buffer_bytes, control},
        {"paced_percent", "congestion control", machine->paced_ppm, control},
        {"background_burst_bytes", "a background flow", machine->background_burst_bytes,
         background},
        {"lane_percent", "a background flow", machine->lane_ppm, background},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!numbers[i].needed || numbers[i].value > 0) continue;
        snprintf(err, err_len, "machine %s: %s: not given, and %s needs it", machine->name,
                 numbers[i].name, numbers[i].wants);
        return -1;
    }
    if (background && shape->background_bytes_per_s >= port_bytes_per_s(machine)) {
        snprintf(err, err_len,
                 "background flow of %" PRIu64 " bytes/s: must be below what a NIC of %s carries, "
                 "%" PRIu64,
                 shape->background_bytes_per_s, machine->name, port_bytes_per_s(machine));
        return -1;
    }
    return 0;
}

uint64_t fabric_network_bytes_per_s(const struct fabric_network_shape *shape,
                                    const struct fabric_machine *machine)
{
    const uint64_t port = port_bytes_per_s(machine);
    if (!shape || !shape->own_lane || shape->background_bytes_per_s == 0) return port;
    return fabric_lane_bytes_per_s(port, shape->background_bytes_per_s, machine->lane_ppm);
}

int fabric_network_open(struct fabric_network *network, const struct fabric_network_shape *shape,
                        const struct fabric_machine *machine, uint32_t ranks, uint32_t rails,
                        char *err, size_t err_len)
{
    struct fabric_network made = {.shape = *shape,
                                  .ranks = ranks,
                                  .flight_ps = machine->nic_flight_ps,
                                  .hop_ps = machine->switch_hop_ps,
                                  .port_bytes_per_s = port_bytes_per_s(machine),
                                  .flow_burst_bytes = machine->background_burst_bytes};
    bool whole = true;

    assert(ranks > 0 && rails > 0 && ranks % rails == 0 && made.port_bytes_per_s > 0);
    if (shape->routing != FABRIC_ROUTING_IDEAL) {
        struct fabric_spine *spine = &made.spine;
        *spine = (struct fabric_spine){
            .rails = rails,
            .leaf_nodes = machine->leaf_nodes,
            .uplinks = machine->leaf_uplinks,
            .leaves = fabric_spine_leaves(ranks / rails, rails, machine->leaf_nodes),
            .adaptive_ps = machine->adaptive_ps,
            .seed = shape->seed,
            .adaptive = shape->routing == FABRIC_ROUTING_ADAPTIVE};
        const size_t ports = (size_t)spine->leaves * spine->uplinks;
        spine->up = (struct fabric_link *)calloc(2 * ports, sizeof *spine->up);
        spine->down = spine->up + ports;
        whole = spine->up != NULL;
    }
    if (shape->control != FABRIC_CONTROL_IDEAL) {
        struct fabric_congestion *congestion = &made.congestion;
        *congestion = (struct fabric_congestion){
            .count = ranks,
            .control = shape->control == FABRIC_CONTROL_ON,
            .port_bytes_per_s = made.port_bytes_per_s,
            .buffer_ps = fabric_transfer_ps(machine->port_buffer_bytes, made.port_bytes_per_s),
            .reaction_ps = machine->congestion_reaction_ps,
            .paced_ppm = machine->paced_ppm};
        congestion->ports =
            (struct fabric_congestion_port *)calloc(ranks, sizeof *congestion->ports);
        whole = whole && congestion->ports;
    }
    if (shape->background_bytes_per_s > 0) {
        made.out = (struct fabric_background *)calloc(3 * (size_t)ranks, sizeof *made.out);
        made.in = made.out + ranks;
        made.queue = made.in + ranks;
        whole = whole && made.out;
    }
    if (!whole) {
        fabric_network_close(&made);
        snprintf(err, err_len, "network of %" PRIu32 " NICs: out of memory", ranks);
        return -1;
    }
    *network = made;
    return 0;
}

void fabric_network_close(struct fabric_network *network)
{
    free(network->spine.up);
    free(network->congestion.ports);
    free(network->out);
    memset(network, 0, sizeof *network);
}

void fabric_network_reset(struct fabric_network *network, uint64_t from_ps)
{
    const struct fabric_network_shape *shape = &network->shape;
    if (network->spine.up)
        fabric_spine_reset(&network->spine, network->port_bytes_per_s, network->hop_ps);
    if (network->congestion.ports) fabric_congestion_reset(&network->congestion);
    if (!network->out || shape->own_lane) return;
    const uint64_t port = network->port_bytes_per_s; /* What-ifs may have narrowed it. */
    const uint64_t flow =
        shape->background_bytes_per_s < port ? shape->background_bytes_per_s : port;
    for (uint32_t i = 0; i < 2 * network->ranks; i++) { /* out, then in. */
        const uint64_t draw = (shape->seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
        fabric_background_init(&network->out[i], port, flow, network->flow_burst_bytes, draw,
                               from_ps);
    }
    memcpy(network->queue, network->in, network->ranks * sizeof *network->queue);
}

uint64_t fabric_network_free_ps(struct fabric_network *network, uint32_t rank, bool out,
                                uint64_t free_ps, uint64_t ready_ps)
{
    assert(rank < network->ranks);
    if (!network->out) return free_ps;
    return fabric_background_free_ps(out ? &network->out[rank] : &network->in[rank], free_ps,
                                     free_ps > ready_ps ? free_ps : ready_ps);
}

/* From a NIC to the switch port that leads to another. */
static uint64_t way_ps(const struct fabric_network *network, uint32_t src, uint32_t dst)
{
    const bool leaf = !network->spine.up || fabric_spine_same_leaf(&network->spine, src, dst);
    return network->flight_ps + (leaf ? 0 : 2 * network->hop_ps);
}

uint64_t fabric_network_hold_ps(struct fabric_network *network, uint32_t src, uint32_t dst,
                                uint64_t now_ps, uint64_t ready_ps)
{
    assert(src < network->ranks && dst < network->ranks);
    if (!network->congestion.ports) return ready_ps;
    const uint64_t way = way_ps(network, src, dst);
    if (network->out) { /* Bursts fill the same buffer. */
        uint64_t *drained_ps = &network->congestion.ports[dst].drained_ps;
        const uint64_t base_ps = now_ps < ready_ps ? now_ps : ready_ps;
        *drained_ps = fabric_background_free_ps(&network->queue[dst], *drained_ps, base_ps + way);
    }
    return fabric_congestion_hold_ps(&network->congestion, dst, ready_ps, way);
}

uint64_t fabric_network_cross(struct fabric_network *network, uint32_t src, uint32_t dst,
                              uint32_t flow, uint64_t now_ps, uint64_t first_ps, uint64_t last_ps,
                              uint64_t bytes)
{
    uint64_t delay_ps = 0;
    assert(src < network->ranks && dst < network->ranks && last_ps >= first_ps);
    if (network->congestion.ports)
        delay_ps = fabric_congestion_leave(&network->congestion, dst, now_ps, first_ps,
                                           way_ps(network, src, dst), bytes);
    if (network->spine.up)
        delay_ps +=
            fabric_spine_cross(&network->spine, src, dst, flow, now_ps, first_ps, last_ps, bytes);
    return delay_ps;
}

bool fabric_network_leaf(const struct fabric_network *network, uint32_t leaf, bool up,
                         struct fabric_use *use)
{
    const struct fabric_spine *spine = &network->spine;
    *use = (struct fabric_use){.busy_ps = 0};
    if (!spine->up || leaf >= spine->leaves) return false;
    const struct fabric_link *ports =
        (up ? spine->up : spine->down) + (size_t)leaf * spine->uplinks;
    for (uint32_t u = 0; u < spine->uplinks; u++) {
        use->busy_ps += ports[u].use.busy_ps;
        use->bytes += ports[u].use.bytes;
        use->stall_ps += ports[u].use.stall_ps;
    }
    return true;
}
