/* sim/ll_publish.c - launches, counts and flags that go out, and the end of a send half. */
#include "sim/ll_state.h"

#include <assert.h>

/* A launch to its first instruction. Blocks start one after the other; all of them meet before
 * anything leaves the rank, so the last one counts. */
uint64_t ll_launch_ps(const struct ll *ll, uint32_t rank)
{
    const struct fabric_ll_costs *costs = ll->costs;
    if (ll->direction == SIM_DISPATCH)
        return costs->dispatch_launch_ps + ll->grid * costs->block_launch_ps;
    return costs->combine_launch_ps + ll_combine_grid(ll, rank) * costs->block_launch_ps;
}

/* All groups have published: the send half is over, and the receive half begins. One launch
 * of dispatch has a barrier between them, so that no count is touched before it was reset. */
static void end_send(struct ll *ll, uint32_t rank)
{
    const struct sim_exchange *exchange = ll->exchange;
    const uint64_t sent_ps = ll->rank[rank].sent_ps;
    uint64_t open_ps = sent_ps;
    ll->timing->send_ps[rank] = sent_ps - exchange->start_ps[rank];
    if (exchange->hook) {
        uint64_t asked_ps = exchange->recv_start_ps ? exchange->recv_start_ps[rank] : 0;
        if (asked_ps < sent_ps + exchange->pause_ps) asked_ps = sent_ps + exchange->pause_ps;
        if (asked_ps > sent_ps) ll->rank[rank].sent_ps = open_ps = asked_ps;
        open_ps += ll_launch_ps(ll, rank);
    } else if (ll->direction == SIM_DISPATCH) {
        open_ps += ll->costs->grid_barrier_ps;
    }
    ll->rank[rank].open_ps = open_ps;
    if (ll->rank[rank].unarrived == 0) ll_receive(ll, rank);
}

/* at_ps may lie ahead, but for a group by NIC with a network: there events tell the order. */
void ll_publish_now(struct ll *ll, uint32_t group, uint64_t at_ps)
{
    const struct ll_group *g = &ll->group[group];
    struct ll_rank *rank = &ll->rank[g->rank];
    const uint64_t link_ps = at_ps + ll->machine->nvlink_flight_ps;
    switch ((enum sim_link_class)g->link_class) {
    case SIM_LINK_LOCAL: ll_flag_landed(ll, g->rank, g->peer, g->rows, at_ps); break;
    case SIM_LINK_NVLINK: ll_flag_landed(ll, g->rank, g->peer, g->rows, link_ps); break;
    case SIM_LINK_NIC: ll_nic_flag(ll, group, at_ps); break;
    case SIM_LINK_CLASSES:
    default: assert(!"a link class");
    }
    assert(rank->unpublished > 0);
    if (at_ps > rank->sent_ps) rank->sent_ps = at_ps;
    if (--rank->unpublished == 0) end_send(ll, g->rank);
}

void ll_publish(struct ll *ll, uint32_t group, uint64_t at_ps)
{
    if (ll->network && ll->group[group].link_class == SIM_LINK_NIC)
        sim_engine_schedule(ll->engine, at_ps, LL_PUBLISH, group, 0);
    else
        ll_publish_now(ll, group, at_ps);
}
