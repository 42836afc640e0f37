/* sim/ll_nic.c - queue pairs and NICs under the low-latency kernels.
 *
 * A row is posted on its group's queue pair; every LL_DOORBELL-th post, and every flag, rings
 * the doorbell. What a doorbell told of is a train: its messages follow each other at the
 * sending NIC, exactly, and at the receiving one, where trains queue in order of first bytes.
 * So a flag cannot land before the rows posted ahead of it. */
#include "sim/ll_state.h"

#include <assert.h>

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

static bool is_flag(const struct ll *ll, uint32_t entry)
{
    return entry >= ll->message_count;
}

/* Work off the first train at the sending NIC and look when it reaches the far one. */
static void send_first(struct ll *ll, uint32_t rank)
{
    if (ll->network) {
        ll_network_send(ll, rank);
        return;
    }
    struct ll_rank *r = &ll->rank[rank];
    struct ll_train *train = &ll->train[r->nic.head];
    struct sim_resource_use *use = &r->use[LL_NIC_OUT];
    struct ll_slot *slot = ll->slot + train->first_slot;
    const uint64_t engine_ps = ll->machine->nic_message_ps, wire_ps = ll->row_nic_ps;
    const uint64_t rung_ps = train->at_ps;
    struct ll_nic nic = r->nic_out; /* By itself, so that it stays in registers. */
    for (uint32_t i = 0; i < train->rows; i++)
        slot[i].depart_ps = ll_nic_pass(&nic, engine_ps, wire_ps, rung_ps);
    if (train->flag) train->at_ps = ll_nic_pass(&nic, ll->costs->nic_flag_ps, 0, rung_ps);
    const uint64_t first_ps = train->rows > 0 ? slot[0].depart_ps : train->at_ps;
    r->nic_out = nic;
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    ll_waited(use, first_ps - rung_ps);
    sim_engine_schedule(ll->engine, first_ps + ll->machine->nic_flight_ps, LL_NIC, rank, 0);
}

/* Tell the NIC of everything that waits on the queue pair, and of the flag behind it. */
static void ring(struct ll *ll, uint32_t group, bool flag, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    const uint32_t rank = group / ll->experts;
    struct ll_rank *r = &ll->rank[rank];
    if (g->posted == g->rung && !flag) return;
    assert(ll->train_count < ll->train_max);
    const uint32_t index = ll->train_count++;
    ll->train[index] =
        (struct ll_train){.group = group,
                          .peer = g->peer,
                          .group_rows = g->rows,
                          .rows = g->posted - g->rung,
                          .first_slot = (uint32_t)g->first_slot + g->rung,
                          .next = LL_NONE,
                          .flag = flag,
                          .short_ring = g->short_ring,
                          .at_ps = now_ps + ll->costs->post_ps + ll->costs->doorbell_ps};
    g->rung = g->posted;
    const bool idle = r->nic.head == LL_NONE;
    if (idle)
        r->nic.head = index;
    else
        ll->train[r->nic.tail].next = index;
    r->nic.tail = index;
    if (idle) send_first(ll, rank);
}

/* Take a slot of the ring for an entry, or let it wait for one. The real kernel does not look;
 * where the ring is too short it would overwrite requests (DeepEP asserts the depth). */
static bool take_slot(struct ll *ll, uint32_t group, uint32_t entry, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    struct sim_resource_use *use = &ll->rank[group / ll->experts].use[LL_QPS];
    if (g->outstanding == ll->exchange->qp_depth) {
        append(ll, &g->stalled, entry);
        if (!is_flag(ll, entry)) ll->timing->depart_ps[entry] = now_ps; /* Until it departs. */
        ring(ll, group, false, now_ps); /* Or those in the ring would never leave it. */
        return false;
    }
    g->outstanding++;
    if (g->outstanding > use->queue_peak) use->queue_peak = g->outstanding;
    return true;
}

int ll_nic_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(!is_flag(ll, message));
    if (g->short_ring && !take_slot(ll, group, message, now_ps)) return 0;
    assert(g->posted < g->rows);
    if (ll->message_slot) ll->message_slot[message] = (uint32_t)(g->first_slot + g->posted);
    g->posted++;
    if (g->posted % LL_DOORBELL == 0) ring(ll, group, false, now_ps);
    return 1;
}

void ll_nic_flag(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    const bool short_ring = ll->group[group].short_ring;
    if (!short_ring || take_slot(ll, group, (uint32_t)ll->message_count + group, now_ps))
        ring(ll, group, true, now_ps);
}

static void land(struct ll *ll, const struct ll_train *train, uint64_t now_ps)
{
    struct ll_rank *to = &ll->rank[train->peer];
    struct sim_resource_use *use = &to->use[LL_NIC_IN];
    const uint64_t flight_ps = ll->machine->nic_flight_ps;
    const uint64_t engine_ps = ll->machine->nic_message_ps, wire_ps = ll->row_nic_ps;
    struct ll_slot *slot = ll->slot + train->first_slot;
    struct ll_nic nic = to->nic_in;
    const uint64_t waited_ps = nic.wire_free_ps > now_ps ? nic.wire_free_ps - now_ps : 0;

    for (uint32_t i = 0; i < train->rows; i++) {
        (void)ll_nic_pass(&nic, engine_ps, wire_ps, slot[i].depart_ps + flight_ps);
        slot[i].land_ps = nic.wire_free_ps;
    }
    for (uint32_t i = 0; train->short_ring && i < train->rows; i++)
        sim_engine_schedule(ll->engine, slot[i].land_ps + flight_ps, LL_CREDIT, train->group, 0);
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    ll_waited(use, waited_ps);
    const uint64_t seen_ps =
        train->flag ? ll_nic_pass(&nic, ll->costs->nic_flag_ps, 0, train->at_ps + flight_ps) : 0;
    to->nic_in = nic;
    if (train->flag && train->short_ring)
        sim_engine_schedule(ll->engine, seen_ps + flight_ps, LL_CREDIT, train->group, 0);
    if (train->flag) ll_flag_landed(ll, train->group, train->peer, train->group_rows, seen_ps);
}

void ll_nic_arrive(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    struct ll_rank *from = &ll->rank[rank];
    const struct ll_train *train = &ll->train[from->nic.head];
    if (ll->network)
        ll_network_arrive(ll, from->nic.head, now_ps);
    else
        land(ll, train, now_ps);
    from->nic.head = train->next;
    if (from->nic.head != LL_NONE) send_first(ll, rank);
}

void ll_nic_credit(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(g->outstanding > 0);
    g->outstanding--;
    if (g->stalled.head == LL_NONE) return;
    const uint32_t entry = take_first(ll, &g->stalled);
    if (is_flag(ll, entry)) {
        ll_nic_flag(ll, group, now_ps);
        return;
    }
    ll->rank[group / ll->experts].use[LL_QPS].stall_ps += now_ps - ll->timing->depart_ps[entry];
    const int posted = ll_nic_post(ll, group, entry, now_ps);
    assert(posted);
    if (g->stalled.head != LL_NONE) ring(ll, group, false, now_ps);
    if (ll->direction == SIM_DISPATCH)
        ll_dispatch_unstalled(ll, entry, now_ps);
    else
        ll_combine_unstalled(ll, group, now_ps);
}
