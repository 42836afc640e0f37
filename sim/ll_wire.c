/* sim/ll_wire.c - ports, NICs and queue pairs under the low-latency kernels.
 *
 * NVLink: blocks share the outgoing port evenly (fabric/share.h); the incoming port of the
 * peer passes the same bytes in order of their last byte, cut through. NIC: messages leave in
 * the order in which doorbells told of them and enter the far NIC in order of first bytes. */
#include "sim/ll_state.h"

#include <assert.h>

static uint32_t group_of(const struct ll *ll, uint32_t entry)
{
    if (entry >= ll->message_count) return entry - (uint32_t)ll->message_count;
    const struct sim_message *message = &ll->messages[entry];
    return ll_group(ll, message->src_rank, message->dst_rank,
                    (uint32_t)message->expert % ll->local);
}

static void append(struct ll *ll, struct ll_list *list, uint32_t entry)
{
    ll->next[entry] = LL_NONE;
    if (list->head == LL_NONE)
        list->head = entry;
    else
        ll->next[list->tail] = entry;
    list->tail = entry;
}

static uint32_t take_first(const struct ll *ll, struct ll_list *list)
{
    const uint32_t entry = list->head;
    assert(entry != LL_NONE);
    list->head = ll->next[entry];
    return entry;
}

/* One event looks at a server at a time when something may be done; it asks for the next. */
static void look(struct ll *ll, const struct fabric_share *share, uint64_t *at_ps,
                 enum ll_event kind, uint32_t rank)
{
    const uint64_t next_ps = fabric_share_next_ps(share);
    if (next_ps >= *at_ps) return;
    *at_ps = next_ps;
    sim_engine_schedule(ll->engine, next_ps, kind, rank, 0);
}

static int take(struct ll *ll, struct fabric_share *share, uint64_t *at_ps, enum ll_event kind,
                uint32_t rank, uint64_t now_ps, uint32_t *job)
{
    if (fabric_share_take(share, now_ps, job)) return 1;
    if (*at_ps <= now_ps) *at_ps = LL_NEVER;
    look(ll, share, at_ps, kind, rank);
    return 0;
}

void ll_link_add(struct ll *ll, uint32_t rank, uint32_t job, uint32_t streams, uint64_t bytes,
                 uint64_t now_ps)
{
    struct ll_rank *r = &ll->rank[rank];
    fabric_share_add(&r->link, now_ps, job, streams, bytes);
    r->use[LL_LINK_OUT].bytes += streams * bytes;
    if (r->link.count > r->use[LL_LINK_OUT].queue_peak)
        r->use[LL_LINK_OUT].queue_peak = r->link.count;
    look(ll, &r->link, &r->link_at_ps, LL_LINK, rank);
}

int ll_link_take(struct ll *ll, uint32_t rank, uint64_t now_ps, uint32_t *job)
{
    struct ll_rank *r = &ll->rank[rank];
    return take(ll, &r->link, &r->link_at_ps, LL_LINK, rank, now_ps, job);
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
    use->stall_ps += r->link_in_free_ps - last_ps;
    return r->link_in_free_ps + ll->machine->nvlink_flight_ps;
}

void ll_sm_add(struct ll *ll, uint32_t rank, uint32_t job, uint32_t streams, uint64_t bytes,
               uint64_t now_ps)
{
    struct ll_rank *r = &ll->rank[rank];
    fabric_share_add(&r->sm, now_ps, job, streams, bytes);
    r->use[LL_SMS].bytes += streams * bytes;
    if (r->sm.count > r->use[LL_SMS].queue_peak) r->use[LL_SMS].queue_peak = r->sm.count;
    look(ll, &r->sm, &r->sm_at_ps, LL_SM, rank);
}

int ll_sm_take(struct ll *ll, uint32_t rank, uint64_t now_ps, uint32_t *job)
{
    struct ll_rank *r = &ll->rank[rank];
    return take(ll, &r->sm, &r->sm_at_ps, LL_SM, rank, now_ps, job);
}

/* Pass one entry through a NIC that sees it from first_ps on: the engine works on it (a flag is
 * a remote atomic, which costs more than its bytes), then the wire, while the engine is at the
 * next. Returns when the wire begins; *end_ps when it ends. */
static uint64_t pass(const struct ll *ll, struct ll_nic *nic, struct sim_resource_use *use,
                     uint32_t entry, uint64_t first_ps, uint64_t *end_ps)
{
    const bool flag = entry >= ll->message_count;
    const uint64_t engine_ps = flag ? ll->costs->nic_flag_ps : ll->machine->nic_message_ps;
    const uint64_t wire_ps = flag ? 0 : ll->row_nic_ps;
    const uint64_t start_ps = first_ps > nic->engine_free_ps ? first_ps : nic->engine_free_ps;
    nic->engine_free_ps = start_ps + engine_ps;
    const uint64_t begin_ps =
        nic->engine_free_ps > nic->wire_free_ps ? nic->engine_free_ps : nic->wire_free_ps;
    *end_ps = nic->wire_free_ps = begin_ps + wire_ps;
    use->busy_ps += wire_ps;
    use->stall_ps += begin_ps - engine_ps - first_ps;
    if (!flag) use->bytes += ll->row_bytes;
    return begin_ps;
}

/* The NIC's next message sets out. The engine fetches ahead, so that what it finds ready when
 * the wire is free costs no more. */
static void send_first(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    const uint32_t entry = r->nic.head;
    uint64_t end_ps;
    r->nic_busy = entry != LL_NONE;
    if (!r->nic_busy) return;
    const uint64_t start_ps =
        pass(ll, &r->nic_out, &r->use[LL_NIC_OUT], entry, ll->rung_ps[entry], &end_ps);
    if (entry < ll->message_count) ll->timing->depart_ps[entry] = start_ps;
    sim_engine_schedule(ll->engine, start_ps + ll->machine->nic_flight_ps, LL_NIC, rank, 0);
}

/* Tell the NIC of everything that waits on the queue pair. */
static void ring(struct ll *ll, uint32_t group, uint64_t at_ps)
{
    const uint32_t rank = group / ll->experts;
    struct ll_queue_pair *qp = &ll->qp[group];
    struct ll_rank *r = &ll->rank[rank];
    while (qp->unrung.head != LL_NONE) {
        const uint32_t entry = take_first(ll, &qp->unrung);
        ll->rung_ps[entry] = at_ps + ll->costs->doorbell_ps;
        append(ll, &r->nic, entry);
    }
    if (!r->nic_busy) send_first(ll, rank);
}

static int is_short(const struct ll *ll, uint32_t group)
{
    return ll->exchange->qp_depth > 0 && ll_rows(ll, group) + 1 > ll->exchange->qp_depth;
}

/* Put an entry into the ring, or let it wait for a slot. The real kernel does not look; where
 * the ring is too short it would overwrite requests (DeepEP asserts the depth instead). */
static int post(struct ll *ll, uint32_t group, uint32_t entry, uint64_t now_ps)
{
    struct ll_queue_pair *qp = &ll->qp[group];
    struct sim_resource_use *use = &ll->rank[group / ll->experts].use[LL_QPS];
    if (is_short(ll, group)) {
        if (qp->outstanding == ll->exchange->qp_depth) {
            append(ll, &qp->stalled, entry);
            ll->rung_ps[entry] = now_ps;
            ring(ll, group, now_ps);
            return 0;
        }
        qp->outstanding++;
        if (qp->outstanding > use->queue_peak) use->queue_peak = qp->outstanding;
    }
    append(ll, &qp->unrung, entry);
    qp->posted++;
    if (qp->posted % LL_DOORBELL == 0 || entry >= ll->message_count)
        ring(ll, group, now_ps + ll->costs->post_ps);
    return 1;
}

int ll_nic_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps)
{
    assert(message < ll->message_count);
    ll->rank[group / ll->experts].use[LL_QPS].bytes += ll->row_bytes;
    return post(ll, group, message, now_ps);
}

void ll_nic_flag(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    (void)post(ll, group, (uint32_t)ll->message_count + group, now_ps);
}

void ll_nic_arrive(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    const uint32_t entry = take_first(ll, &ll->rank[rank].nic);
    const uint32_t group = group_of(ll, entry);
    struct ll_rank *to = &ll->rank[ll_peer(ll, group)];
    uint64_t land_ps;
    (void)pass(ll, &to->nic_in, &to->use[LL_NIC_IN], entry, now_ps, &land_ps);
    if (is_short(ll, group))
        sim_engine_schedule(ll->engine, land_ps + ll->machine->nic_flight_ps, LL_CREDIT, group, 0);
    if (entry < ll->message_count) {
        ll->timing->land_ps[entry] = land_ps;
    } else {
        ll_flag_landed(ll, group, land_ps);
    }
    send_first(ll, rank);
}

void ll_nic_credit(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    struct ll_queue_pair *qp = &ll->qp[group];
    assert(qp->outstanding > 0);
    qp->outstanding--;
    if (qp->stalled.head == LL_NONE) return;
    const uint32_t entry = take_first(ll, &qp->stalled);
    ll->rank[group / ll->experts].use[LL_QPS].stall_ps += now_ps - ll->rung_ps[entry];
    const int posted = post(ll, group, entry, now_ps);
    assert(posted);
    if (entry >= ll->message_count) return;
    if (qp->stalled.head != LL_NONE) ring(ll, group, now_ps + ll->costs->post_ps);
    if (ll->direction == SIM_DISPATCH)
        ll_dispatch_unstalled(ll, entry, now_ps);
    else
        ll_combine_unstalled(ll, group, now_ps);
}
