/* sim/ll_network.c - trains through NICs and a fabric that is not ideal (fabric/network.h).
 *
 * As sim/ll_nic.c, but for what the fabric adds: bursts of other traffic at both NICs, a sender
 * that must hold, ways that are longer or shared. A train that is held up in the fabric does not
 * hold up the next one of its NIC, unless it is of the same queue pair: that delivers in order. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/network.h"
#include "sim/ll_state.h"

struct ll_network {
    struct fabric_network fabric;
    uint64_t *in_order_ps; /* [groups]: nothing more of a queue pair is at the far NIC before. */
    uint64_t *arrive_ps;   /* [trains]: its first byte is at the far NIC. */
};

struct ll_network *ll_network_open(const struct ll *ll, char *err, size_t err_len)
{
    const struct sim_exchange *exchange = ll->exchange;
    struct ll_network *network = (struct ll_network *)calloc(1, sizeof *network);
    if (network) {
        network->in_order_ps =
            (uint64_t *)calloc((size_t)ll->ranks * ll->experts, sizeof(uint64_t));
        network->arrive_ps = (uint64_t *)calloc(ll->train_max, sizeof(uint64_t));
    }
    if (!network || !network->in_order_ps || !network->arrive_ps) {
        snprintf(err, err_len, "fabric of %u ranks: out of memory", ll->ranks);
        goto close_network;
    }
    if (fabric_network_open(&network->fabric, exchange->network, exchange->machine, ll->ranks,
                            ll->traffic->ranks_per_node, err, err_len) != 0)
        goto close_network;
    fabric_network_reset(&network->fabric, sim_exchange_begin_ps(exchange, ll->ranks));
    return network;
close_network:
    ll_network_close(network);
    return NULL;
}

void ll_network_close(struct ll_network *network)
{
    if (!network) return;
    fabric_network_close(&network->fabric);
    free(network->in_order_ps);
    free(network->arrive_ps);
    free(network);
}

void ll_network_report(const struct ll_network *network, struct sim_timing *timing)
{
    sim_timing_add_leaves(timing, &network->fabric);
}

/* Bursts that come before the turn of what is at the NIC at ready_ps go first. */
static void let_bursts_pass(struct ll *ll, uint32_t rank, bool out, uint64_t ready_ps)
{
    struct ll_nic *nic = out ? &ll->rank[rank].nic_out : &ll->rank[rank].nic_in;
    nic->wire_free_ps =
        fabric_network_free_ps(&ll->network->fabric, rank, out, nic->wire_free_ps, ready_ps);
}

/* When what leaves the NIC from first_ps on is at the far one. */
static uint64_t cross(struct ll *ll, uint32_t rank, const struct ll_train *train, uint64_t first_ps,
                      uint64_t wire_ps, uint64_t bytes)
{
    uint64_t *in_order_ps = &ll->network->in_order_ps[train->group];
    const uint64_t delay_ps =
        fabric_network_cross(&ll->network->fabric, rank, train->peer, train->group,
                             sim_engine_now_ps(ll->engine), first_ps, first_ps + wire_ps, bytes);
    const uint64_t arrive_ps = first_ps + delay_ps + ll->machine->nic_flight_ps;
    if (arrive_ps > *in_order_ps) *in_order_ps = arrive_ps;
    return *in_order_ps;
}

/* What the fabric adds before a train: bursts that came before it, then, if the port it goes to
 * is full, a hold, whose bursts stand behind it. */
static void hold(struct ll *ll, uint32_t rank, const struct ll_train *train)
{
    struct ll_nic *nic = &ll->rank[rank].nic_out;
    const uint64_t rung_ps = train->at_ps;
    let_bursts_pass(ll, rank, true, rung_ps);
    const uint64_t ready_ps = rung_ps > nic->wire_free_ps ? rung_ps : nic->wire_free_ps;
    const uint64_t hold_ps = fabric_network_hold_ps(&ll->network->fabric, rank, train->peer,
                                                    sim_engine_now_ps(ll->engine), ready_ps);
    if (hold_ps > ready_ps) nic->wire_free_ps = hold_ps;
}

void ll_network_send(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    const uint32_t index = r->nic.head;
    struct ll_train *train = &ll->train[index];
    struct sim_resource_use *use = &r->use[LL_NIC_OUT];
    struct ll_slot *slot = ll->slot + train->first_slot;
    const uint64_t rung_ps = train->at_ps;
    uint64_t *arrive_ps = &ll->network->arrive_ps[index];
    uint64_t first_ps = LL_NEVER;

    assert(train->rows > 0 || train->flag);
    hold(ll, rank, train);
    *arrive_ps = LL_NEVER;
    for (uint32_t i = 0; i < train->rows; i++) {
        if (i > 0) let_bursts_pass(ll, rank, true, rung_ps);
        slot[i].depart_ps =
            ll_nic_pass(&r->nic_out, ll->machine->nic_message_ps, ll->row_nic_ps, rung_ps);
        /* Until it lands: when it is at the far NIC. */
        slot[i].land_ps = cross(ll, rank, train, slot[i].depart_ps, ll->row_nic_ps, ll->row_bytes);
        if (i == 0) first_ps = slot[i].depart_ps;
        if (i == 0) *arrive_ps = slot[i].land_ps;
    }
    if (train->flag) {
        const uint64_t turn_ps = ll_nic_pass(&r->nic_out, ll->costs->nic_flag_ps, 0, rung_ps);
        train->at_ps = cross(ll, rank, train, turn_ps, 0, 0);
        if (first_ps == LL_NEVER) first_ps = turn_ps;
        if (*arrive_ps == LL_NEVER) *arrive_ps = train->at_ps;
    }
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    use->stall_ps += first_ps - rung_ps;
    sim_engine_schedule(ll->engine, first_ps + ll->machine->nic_flight_ps, LL_NIC, rank, 0);
}

void ll_network_arrive(struct ll *ll, uint32_t index, uint64_t now_ps)
{
    const struct ll_train *train = &ll->train[index];
    struct ll_rank *to = &ll->rank[train->peer];
    struct sim_resource_use *use = &to->use[LL_NIC_IN];
    const uint64_t flight_ps = ll->machine->nic_flight_ps; /* Of acknowledgements. */
    struct ll_slot *slot = ll->slot + train->first_slot;
    const uint64_t free_ps = to->nic_in.wire_free_ps;

    if (ll->network->arrive_ps[index] > now_ps) {
        sim_engine_schedule(ll->engine, ll->network->arrive_ps[index], LL_LATE, index, 0);
        return;
    }
    for (uint32_t i = 0; i < train->rows; i++) {
        let_bursts_pass(ll, train->peer, false, slot[i].land_ps);
        (void)ll_nic_pass(&to->nic_in, ll->machine->nic_message_ps, ll->row_nic_ps,
                          slot[i].land_ps);
        slot[i].land_ps = to->nic_in.wire_free_ps;
        if (train->short_ring)
            sim_engine_schedule(ll->engine, slot[i].land_ps + flight_ps, LL_CREDIT, train->group,
                                0);
    }
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    ll_waited(use, free_ps > now_ps ? free_ps - now_ps : 0);
    if (!train->flag) return;
    let_bursts_pass(ll, train->peer, false, train->at_ps);
    const uint64_t seen_ps = ll_nic_pass(&to->nic_in, ll->costs->nic_flag_ps, 0, train->at_ps);
    if (train->short_ring)
        sim_engine_schedule(ll->engine, seen_ps + flight_ps, LL_CREDIT, train->group, 0);
    ll_flag_landed(ll, train->group, train->peer, train->group_rows, seen_ps);
}
