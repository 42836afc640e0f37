/* sim/ll_nic.c - queue pairs and NICs under the low-latency kernels.
 *
 * A row is posted on its group's queue pair; every LL_DOORBELL-th post, and every flag, rings
 * the doorbell. What a doorbell told of is a train: its messages follow each other at the
 * sending NIC, exactly, and at the receiving one, where trains queue in order of first bytes.
 * So a flag cannot land before the rows posted ahead of it.
 *
 * Nothing that a rank sends depends on what others send, unless a queue pair is short or the
 * fabric has a say (sim/ll_network.c, by events). So doorbells are only noted here, and all
 * trains pass afterwards: rank by rank through the sending NICs (in turn, sim/ll_queue.h), then
 * through the receiving ones. */
#include <assert.h>

#include "ref/digest.h"
#include "sim/ll_state.h"

static uint64_t at_nic_ps(const struct ll *ll, uint64_t now_ps)
{
    return now_ps + ll->costs->post_ps + ll->costs->doorbell_ps;
}

/* The doorbell for the group's last LL_DOORBELL rows. Events come in order, so these do. */
static void ring(struct ll *ll, uint32_t group, uint32_t posted, uint64_t now_ps)
{
    const struct ll_group *g = &ll->group[group];
    struct ll_rank *r = &ll->rank[g->rank];
    const uint32_t first_slot = g->first_slot + posted - LL_DOORBELL;
    *r->rung_end++ = (struct ll_rung){at_nic_ps(ll, now_ps), group, first_slot};
}

bool ll_nic_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(message < ll->message_count && g->posted < g->rows);
    if (ll->network) return ll_network_post(ll, group, message, now_ps);
    ll->message_slot[message] = g->first_slot + g->posted++;
    if (g->posted % LL_DOORBELL == 0) ring(ll, group, g->posted, now_ps);
    return true;
}

uint32_t ll_nic_post_rows(struct ll *ll, uint32_t group, uint32_t from, uint32_t to,
                          uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    uint32_t waiting = 0;
    assert(from <= to && to <= g->rows);
    for (uint32_t row = from; ll->network && row < to; row++)
        waiting += !ll_network_post(ll, group, g->first_slot + row, now_ps);
    if (ll->network) return waiting;
    for (uint32_t full = from / LL_DOORBELL + 1; full <= to / LL_DOORBELL; full++)
        ring(ll, group, full * LL_DOORBELL, now_ps);
    g->posted = to;
    return 0;
}

/* Noted in order; nearly always the last. */
void ll_nic_flag(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    const struct ll_group *g = &ll->group[group];
    struct ll_rank *r = &ll->rank[g->rank];
    if (ll->network) {
        ll_network_flag(ll, group, now_ps);
        return;
    }
    assert(g->posted == g->rows);
    const struct ll_flag flag = {at_nic_ps(ll, now_ps), group};
    struct ll_flag *at = r->flag_end++;
    for (; at > r->flag && at[-1].at_ps > flag.at_ps; at--) *at = at[-1];
    *at = flag;
}

/* What a NIC does, by itself, so that it stays in registers. */
struct waits {
    uint64_t rows, waited_ps, longest_ps;
};

static void add_wait(struct waits *waits, uint32_t rows, uint64_t waited_ps)
{
    waits->rows += rows;
    waits->waited_ps += waited_ps;
    waits->longest_ps = ll_later(waits->longest_ps, waited_ps);
}

static void close_waits(const struct ll *ll, const struct waits *waits,
                        struct sim_resource_use *use)
{
    use->bytes = waits->rows * ll->row_bytes;
    use->busy_ps = waits->rows * ll->row_nic_ps;
    use->stall_ps = waits->waited_ps;
    use->queue_peak = waits->longest_ps;
}

/* The turn on the wire of a flag behind rows that the NIC was told of at once: the first row's is
 * first_ps, and the engine was through with it at engine_ps. */
static uint64_t flag_turn_ps(const struct ll *ll, uint64_t engine_ps, uint64_t first_ps,
                             uint64_t rows)
{
    if (rows == 0) return first_ps;
    const uint64_t last_engine_ps = engine_ps + (rows - 1) * ll->machine->nic_message_ps;
    const uint64_t last_ps = ll_later(last_engine_ps, first_ps + (rows - 1) * ll->row_nic_ps);
    return ll_later(last_engine_ps + ll->costs->nic_flag_ps, last_ps + ll->row_nic_ps);
}

/* Everything a rank's NIC was told of, in order: how much. */
static uint32_t tell(struct ll *ll, const struct ll_rank *r)
{
    const struct ll_rung *rung = r->rung;
    const struct ll_flag *flag = r->flag;
    uint32_t count = 0;
    while (rung < r->rung_end || flag < r->flag_end) {
        const bool last = rung == r->rung_end || (flag < r->flag_end && flag->at_ps < rung->at_ps);
        ll->told[count++] =
            last ? (struct ll_told){flag->at_ps, flag->group, 0, true}
                 : (struct ll_told){rung->at_ps, rung->group, rung->first_slot, false};
        flag += last;
        rung += !last;
    }
    return count;
}

/* One of them passes. Nobody could predict whether there are rows, or a flag: so, no branches. */
static void pass(struct ll *ll, uint32_t rank, struct ll_nic *nic, const struct ll_told *told,
                 struct waits *waits)
{
    const uint64_t message_ps = ll->machine->nic_message_ps, wire_ps = ll->row_nic_ps;
    const struct ll_group *g = &ll->group[told->group];
    const uint32_t rows = told->flag ? g->rows % LL_DOORBELL : LL_DOORBELL;
    struct ll_nic with = *nic; /* The rows, if any. */
    const uint64_t row_ps = ll_nic_pass(&with, message_ps, wire_ps, told->at_ps);
    const uint64_t engine_ps = with.engine_free_ps, more = (uint64_t)rows - 1;
    with.engine_free_ps += more * message_ps;
    with.wire_free_ps = ll_later(with.engine_free_ps, row_ps + more * wire_ps) + wire_ps;
    nic->engine_free_ps = rows > 0 ? with.engine_free_ps : nic->engine_free_ps;
    nic->wire_free_ps = rows > 0 ? with.wire_free_ps : nic->wire_free_ps;
    with = *nic; /* The flag, if any. */
    (void)ll_nic_pass(&with, ll->costs->nic_flag_ps, 0, told->at_ps);
    nic->engine_free_ps = told->flag ? with.engine_free_ps : nic->engine_free_ps;
    nic->wire_free_ps = told->flag ? with.wire_free_ps : nic->wire_free_ps;
    const uint64_t first_ps = rows > 0 ? row_ps : nic->wire_free_ps;
    *ll->train_end[g->peer]++ = (struct ll_train){
        .at_ps = first_ps + ll->machine->nic_flight_ps,
        .engine_ps = engine_ps,
        .group_rows = g->rows,
        .first_slot = told->flag ? g->first_slot + g->rows - rows : told->first_slot,
        .src = (uint16_t)rank,
        .rows = (uint8_t)rows,
        .flag = told->flag};
    add_wait(waits, rows, first_ps - told->at_ps);
}

/* All that a rank's NIC sends: when the wire is free, the next of what it was told of by then. */
void ll_nic_leave(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    struct ll_nic nic = r->nic_out;
    struct waits waits = {.rows = 0};
    const uint32_t count = tell(ll, r);
    uint32_t heard = 0;
    ll_queue_clear(&ll->queue, rank);
    while (heard < count || ll->queue.waiting > 0) {
        uint64_t now_ps = nic.wire_free_ps;
        if (ll->queue.waiting == 0) now_ps = ll_later(now_ps, ll->told[heard].at_ps);
        for (; heard < count && ll->told[heard].at_ps <= now_ps; heard++)
            ll_queue_push(&ll->queue, ll->group[ll->told[heard].group].peer, heard);
        pass(ll, rank, &nic, &ll->told[ll_queue_pop(&ll->queue)], &waits);
    }
    close_waits(ll, &waits, &r->use[LL_NIC_OUT]);
}

/* All that a rank's NIC receives, in order of first bytes. */
void ll_nic_arrive(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    const uint64_t message_ps = ll->machine->nic_message_ps, wire_ps = ll->row_nic_ps;
    const uint64_t flight_ps = ll->machine->nic_flight_ps;
    const uint32_t trains = (uint32_t)(ll->train_end[rank] - r->train);
    struct ll_turn *turns = ll->turns, *const sorted = turns + ll->trains_most;
    struct ll_nic nic = r->nic_in;
    struct waits waits = {.rows = 0};
    assert(trains <= ll->trains_most);
    for (uint32_t i = 0; i < trains; i++) turns[i] = (struct ll_turn){r->train[i].at_ps, i};
    ll_order(turns, sorted, trains);
    for (uint32_t i = 0; i < trains; i++) {
        const struct ll_train *train = &r->train[sorted[i].train];
        const uint64_t first_ps = train->at_ps - flight_ps;
        uint64_t by_engine_ps = train->engine_ps, by_wire_ps = first_ps;
        uint64_t *depart_ps = ll->slot_depart_ps + train->first_slot;
        uint64_t *land_ps = ll->slot_land_ps + train->first_slot;
        add_wait(&waits, train->rows, ll_later(nic.wire_free_ps, train->at_ps) - train->at_ps);
        for (uint32_t row = 0; row < train->rows; row++) {
            depart_ps[row] = ll_later(by_engine_ps, by_wire_ps);
            (void)ll_nic_pass(&nic, message_ps, wire_ps, depart_ps[row] + flight_ps);
            land_ps[row] = nic.wire_free_ps;
            by_engine_ps += message_ps;
            by_wire_ps += wire_ps;
        }
        if (!train->flag) continue;
        const uint64_t flag_ps =
            flag_turn_ps(ll, train->engine_ps, first_ps, train->rows) + flight_ps;
        const uint64_t seen_ps = ll_nic_pass(&nic, ll->costs->nic_flag_ps, 0, flag_ps);
        ll_flag_landed(ll, train->src, rank, train->group_rows, seen_ps);
    }
    close_waits(ll, &waits, &r->use[LL_NIC_IN]);
    ll->digest = ref_digest_mix(ll->digest, nic.engine_free_ps + nic.wire_free_ps);
}
