/* sim/ll_wire.c - NVLink ports, and the SMs behind them, under the low-latency kernels.
 *
 * Warps share the outgoing port evenly (fabric/share.h); the incoming port of the peer passes
 * the same bytes in order of their last byte, cut through. */
#include "sim/ll_state.h"

/* One event looks at a port at a time when something may be done; it asks for the next. */
static void look(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    const uint64_t next_ps = fabric_share_next_ps(&r->link);
    if (next_ps >= r->link_at_ps) return;
    r->link_at_ps = next_ps;
    sim_engine_schedule(ll->engine, next_ps, LL_LINK, rank, 0);
}

void ll_link_add(struct ll *ll, uint32_t rank, uint32_t job, uint32_t streams, uint64_t bytes,
                 uint64_t now_ps)
{
    struct ll_rank *r = &ll->rank[rank];
    fabric_share_add(&r->link, now_ps, job, streams, bytes);
    r->use[LL_LINK_OUT].bytes += streams * bytes;
    if (r->link.count > r->use[LL_LINK_OUT].queue_peak)
        r->use[LL_LINK_OUT].queue_peak = r->link.count;
    look(ll, rank);
}

int ll_link_take(struct ll *ll, uint32_t rank, uint64_t now_ps, uint32_t *job)
{
    struct ll_rank *r = &ll->rank[rank];
    if (fabric_share_take(&r->link, now_ps, job)) return 1;
    if (r->link_at_ps <= now_ps) r->link_at_ps = LL_NEVER;
    look(ll, rank);
    return 0;
}

uint64_t ll_link_land(struct ll *ll, uint32_t dst, uint64_t first_ps, uint64_t last_ps,
                      uint64_t rows)
{
    struct ll_rank *r = &ll->rank[dst];
    struct sim_resource_use *use = &r->use[LL_LINK_IN];
    const uint64_t start_ps = first_ps > r->link_in_free_ps ? first_ps : r->link_in_free_ps;
    r->link_in_free_ps = start_ps + rows * ll->row_link_ps;
    use->bytes += rows * ll->row_bytes;
    if (r->link_in_free_ps <= last_ps) return last_ps + ll->machine->nvlink_flight_ps;
    ll_waited(use, r->link_in_free_ps - last_ps);
    return r->link_in_free_ps + ll->machine->nvlink_flight_ps;
}
