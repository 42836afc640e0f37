/* sim/ll_network.c - trains through NICs where something may hold them up, by events.
 *
 * A queue pair with fewer slots than its group has requests: posts wait for completions. A fabric
 * that is not ideal (fabric/network.h): bursts of other traffic at both NICs, a sender that must
 * hold, ways that are longer or shared. A train that is held up in the fabric does not hold up the
 * next one of its NIC, unless it is of the same queue pair: that delivers in order. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/network.h"
#include "sim/ll_state.h"

struct list { /* A chain through next_post. */
    uint32_t head, tail;
};

struct sender {            /* A rank's NIC. */
    struct ll_queue queue; /* Trains that it was told of. */
    uint32_t first, last;  /* Trains whose doorbells are on their way; a chain through the same. */
    bool turning;          /* It has an LL_TURN to come. */
};

/* What one doorbell told of, in the order of doorbells of all ranks. */
struct train {
    uint64_t at_ps;     /* It is at the sending NIC. */
    uint64_t arrive_ps; /* Its first byte is at the far one, */
    uint64_t flag_ps;   /* and its flag. */
    uint32_t group;
    uint32_t first_slot;
    uint32_t rows;
    bool flag;
};

struct queue_pair {       /* Of a group. */
    uint64_t in_order_ps; /* Nothing more of it is at the far NIC before. */
    uint32_t rung;        /* The NIC knows of so many rows. */
    struct list stalled;  /* Wanting to be posted; the ring is full. */
    uint32_t outstanding; /* Posted and not complete; counted where the ring is short. */
    bool is_short;        /* It holds fewer requests than rows and flag are. */
};

struct ll_network {
    struct fabric_network fabric;
    struct queue_pair *qp; /* [groups] */
    struct sender *sender; /* [ranks] */
    uint32_t *next_train;  /* [trains] */
    uint32_t *first;       /* [ranks][ranks], of queues, and so is last. */
    uint32_t **last;
    uint32_t *next_post; /* [messages + groups], flags behind messages. */
    struct train *train; /* A doorbell tells of a message at least, or of a flag. */
    uint32_t train_count, train_max;
};

static bool is_short(const struct ll *ll, uint64_t rows)
{
    return ll->exchange->qp_depth > 0 && rows + 1 > ll->exchange->qp_depth;
}

/* Blocks by (expert, home rank) are groups of both directions. */
static bool any_is_short(const struct ll *ll)
{
    const uint64_t *start = ll->traffic->block_start, most = ll->exchange->qp_depth - UINT64_C(1);
    const uint32_t blocks = ll->experts * ll->ranks;
    if (ll->exchange->qp_depth == 0) return false;
    for (uint32_t block = 0; block < blocks; block++) {
        if (start[block + 1] - start[block] <= most) continue;
        const uint32_t owner = block / ll->ranks / ll->local, home = block % ll->ranks;
        if (sim_traffic_link(ll->traffic, home, owner) == SIM_LINK_NIC) return true;
    }
    return false;
}

bool ll_network_wanted(const struct ll *ll)
{
    return sim_exchange_networked(ll->exchange) || any_is_short(ll);
}

struct ll_network *ll_network_open(const struct ll *ll, char *err, size_t err_len)
{
    static const struct fabric_network_shape ideal = {.routing = FABRIC_ROUTING_IDEAL};
    const struct sim_exchange *exchange = ll->exchange;
    const size_t groups = (size_t)ll->ranks * ll->experts;
    struct ll_network *network = (struct ll_network *)calloc(1, sizeof *network);
    if (network) {
        network->qp = (struct queue_pair *)malloc(groups * sizeof *network->qp);
        network->sender = (struct sender *)calloc(ll->ranks, sizeof *network->sender);
        network->first = (uint32_t *)malloc((size_t)ll->ranks * ll->ranks * sizeof *network->first);
        network->last = (uint32_t **)malloc((size_t)ll->ranks * ll->ranks * sizeof *network->last);
        network->next_post =
            (uint32_t *)malloc((ll->message_count + groups) * sizeof *network->next_post);
        network->train_max = (uint32_t)(ll->message_count + groups);
        network->train = (struct train *)malloc(network->train_max * sizeof *network->train);
        network->next_train = (uint32_t *)malloc(network->train_max * sizeof *network->next_train);
    }
    if (!network || !network->qp || !network->sender || !network->first || !network->last ||
        !network->next_post || !network->train || !network->next_train) {
        snprintf(err, err_len, "fabric of %u ranks: out of memory", ll->ranks);
        goto close_network;
    }
    if (fabric_network_open(&network->fabric, exchange->network ? exchange->network : &ideal,
                            exchange->machine, ll->ranks, ll->traffic->ranks_per_node, err,
                            err_len) != 0)
        goto close_network;
    fabric_network_reset(&network->fabric, sim_exchange_begin_ps(exchange, ll->ranks));
    for (size_t g = 0; g < groups; g++)
        network->qp[g] = (struct queue_pair){.stalled = {LL_NONE, LL_NONE},
                                             .is_short = is_short(ll, ll->group[g].rows)};
    for (uint32_t r = 0; r < ll->ranks; r++) {
        struct ll_queue *queue = &network->sender[r].queue;
        *queue = (struct ll_queue){.first = network->first + (size_t)r * ll->ranks,
                                   .last = network->last + (size_t)r * ll->ranks,
                                   .next = network->next_train,
                                   .ranks = ll->ranks};
        ll_queue_clear(queue, r);
        network->sender[r].first = network->sender[r].last = LL_NONE;
    }
    return network;
close_network:
    ll_network_close(network);
    return NULL;
}

void ll_network_close(struct ll_network *network)
{
    if (!network) return;
    fabric_network_close(&network->fabric);
    free(network->qp);
    free(network->sender);
    free(network->first);
    free(network->last);
    free(network->next_train);
    free(network->next_post);
    free(network->train);
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
static uint64_t cross(struct ll *ll, uint32_t rank, const struct train *train, uint64_t first_ps,
                      uint64_t wire_ps, uint64_t bytes)
{
    uint64_t *in_order_ps = &ll->network->qp[train->group].in_order_ps;
    const uint64_t delay_ps =
        fabric_network_cross(&ll->network->fabric, rank, ll->group[train->group].peer, train->group,
                             sim_engine_now_ps(ll->engine), first_ps, first_ps + wire_ps, bytes);
    const uint64_t arrive_ps = first_ps + delay_ps + ll->machine->nic_flight_ps;
    if (arrive_ps > *in_order_ps) *in_order_ps = arrive_ps;
    return *in_order_ps;
}

/* What the fabric adds before a train: bursts that came before it, then, if the port it goes to
 * is full, a hold, whose bursts stand behind it. */
static void hold(struct ll *ll, uint32_t rank, const struct train *train)
{
    struct ll_nic *nic = &ll->rank[rank].nic_out;
    const uint64_t rung_ps = train->at_ps;
    let_bursts_pass(ll, rank, true, rung_ps);
    const uint64_t ready_ps = rung_ps > nic->wire_free_ps ? rung_ps : nic->wire_free_ps;
    const uint64_t hold_ps =
        fabric_network_hold_ps(&ll->network->fabric, rank, ll->group[train->group].peer,
                               sim_engine_now_ps(ll->engine), ready_ps);
    if (hold_ps > ready_ps) nic->wire_free_ps = hold_ps;
}

/* Work off a train at the sending NIC and look when it reaches the far one. */
static void send(struct ll *ll, uint32_t rank, uint32_t index)
{
    struct ll_rank *r = &ll->rank[rank];
    struct train *train = &ll->network->train[index];
    struct sim_resource_use *use = &r->use[LL_NIC_OUT];
    uint64_t *depart_ps = ll->slot_depart_ps + train->first_slot;
    uint64_t *land_ps = ll->slot_land_ps + train->first_slot;
    const uint64_t rung_ps = train->at_ps;
    uint64_t first_ps = LL_NEVER;

    assert(train->rows > 0 || train->flag);
    hold(ll, rank, train);
    for (uint32_t i = 0; i < train->rows; i++) {
        if (i > 0) let_bursts_pass(ll, rank, true, rung_ps);
        depart_ps[i] =
            ll_nic_pass(&r->nic_out, ll->machine->nic_message_ps, ll->row_nic_ps, rung_ps);
        /* Until it lands: when it is at the far NIC. */
        land_ps[i] = cross(ll, rank, train, depart_ps[i], ll->row_nic_ps, ll->row_bytes);
        if (i > 0) continue;
        first_ps = depart_ps[i];
        train->arrive_ps = land_ps[i];
    }
    if (train->flag) {
        const uint64_t turn_ps = ll_nic_pass(&r->nic_out, ll->costs->nic_flag_ps, 0, rung_ps);
        train->flag_ps = cross(ll, rank, train, turn_ps, 0, 0);
        if (train->rows == 0) train->arrive_ps = train->flag_ps;
        if (train->rows == 0) first_ps = turn_ps;
    }
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    ll_waited(use, first_ps - rung_ps);
    sim_engine_schedule(ll->engine, train->arrive_ps, LL_NIC, index, 0);
}

/* The NIC takes its next train when its wire is free and it was told of one. */
static void await_turn(struct ll *ll, uint32_t rank)
{
    const struct ll_network *network = ll->network;
    struct sender *sender = &ll->network->sender[rank];
    uint64_t turn_ps = ll->rank[rank].nic_out.wire_free_ps;
    if (sender->queue.waiting == 0 && sender->first == LL_NONE) return;
    if (sender->queue.waiting == 0)
        turn_ps = ll_later(turn_ps, network->train[sender->first].at_ps);
    sender->turning = true;
    sim_engine_schedule(ll->engine, turn_ps, LL_TURN, rank, 0);
}

void ll_network_turn(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    const struct ll_network *network = ll->network;
    struct sender *sender = &ll->network->sender[rank];
    while (sender->first != LL_NONE && network->train[sender->first].at_ps <= now_ps) {
        const uint32_t heard = sender->first;
        sender->first = network->next_train[heard];
        ll_queue_push(&sender->queue, ll->group[network->train[heard].group].peer, heard);
    }
    send(ll, rank, ll_queue_pop(&sender->queue));
    sender->turning = false;
    await_turn(ll, rank);
}

/* Tell the NIC of everything that waits on the queue pair, and of the flag behind it. */
static void ring(struct ll *ll, uint32_t group, bool flag, uint64_t now_ps)
{
    struct ll_network *network = ll->network;
    const struct ll_group *g = &ll->group[group];
    struct queue_pair *qp = &network->qp[group];
    struct sender *sender = &network->sender[g->rank];
    if (g->posted == qp->rung && !flag) return;
    assert(network->train_count < network->train_max);
    const uint32_t index = network->train_count++;
    network->train[index] =
        (struct train){.at_ps = now_ps + ll->costs->post_ps + ll->costs->doorbell_ps,
                       .group = group,
                       .first_slot = g->first_slot + qp->rung,
                       .rows = g->posted - qp->rung,
                       .flag = flag};
    qp->rung = g->posted;
    network->next_train[index] = LL_NONE;
    *(sender->first == LL_NONE ? &sender->first : &network->next_train[sender->last]) = index;
    sender->last = index;
    if (!sender->turning) await_turn(ll, g->rank);
}

/* Take a slot of the ring for an entry, or let it wait for one. The real kernel does not look;
 * where the ring is too short it would overwrite requests (DeepEP asserts the depth). */
static bool take_slot(struct ll *ll, uint32_t group, uint32_t entry, uint64_t now_ps)
{
    struct queue_pair *qp = &ll->network->qp[group];
    struct sim_resource_use *use = &ll->rank[ll->group[group].rank].use[LL_QPS];
    if (!qp->is_short) return true;
    if (qp->outstanding == ll->exchange->qp_depth) {
        uint32_t *next = ll->network->next_post;
        next[entry] = LL_NONE;
        *(qp->stalled.head == LL_NONE ? &qp->stalled.head : &next[qp->stalled.tail]) = entry;
        qp->stalled.tail = entry;
        if (entry < ll->message_count)
            ll->timing->depart_ps[entry] = now_ps; /* Until it departs. */
        ring(ll, group, false, now_ps);            /* Or those in the ring would never leave it. */
        return false;
    }
    qp->outstanding++;
    if (qp->outstanding > use->queue_peak) use->queue_peak = qp->outstanding;
    return true;
}

bool ll_network_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(message < ll->message_count && g->posted < g->rows);
    if (!take_slot(ll, group, message, now_ps)) return false;
    if (ll->message_slot) ll->message_slot[message] = g->first_slot + g->posted;
    g->posted++;
    if (g->posted % LL_DOORBELL == 0) ring(ll, group, false, now_ps);
    return true;
}

void ll_network_flag(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    if (take_slot(ll, group, (uint32_t)ll->message_count + group, now_ps))
        ring(ll, group, true, now_ps);
}

uint32_t ll_network_credit(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    struct queue_pair *qp = &ll->network->qp[group];
    assert(qp->is_short && qp->outstanding > 0);
    qp->outstanding--;
    if (qp->stalled.head == LL_NONE) return LL_NONE;
    const uint32_t entry = qp->stalled.head;
    qp->stalled.head = ll->network->next_post[entry];
    if (entry >= ll->message_count) {
        ll_network_flag(ll, group, now_ps);
        return LL_NONE;
    }
    ll->rank[ll->group[group].rank].use[LL_QPS].stall_ps += now_ps - ll->timing->depart_ps[entry];
    const bool posted = ll_network_post(ll, group, entry, now_ps);
    assert(posted);
    if (qp->stalled.head != LL_NONE) ring(ll, group, false, now_ps);
    return entry;
}

void ll_network_arrive(struct ll *ll, uint32_t index, uint64_t now_ps)
{
    const struct train *train = &ll->network->train[index];
    const bool credits = ll->network->qp[train->group].is_short;
    const struct ll_group *g = &ll->group[train->group];
    struct ll_rank *to = &ll->rank[g->peer];
    struct sim_resource_use *use = &to->use[LL_NIC_IN];
    const uint64_t flight_ps = ll->machine->nic_flight_ps; /* Of acknowledgements. */
    uint64_t *land_ps = ll->slot_land_ps + train->first_slot;
    const uint64_t free_ps = to->nic_in.wire_free_ps;

    assert(train->arrive_ps == now_ps);
    for (uint32_t i = 0; i < train->rows; i++) {
        let_bursts_pass(ll, g->peer, false, land_ps[i]);
        (void)ll_nic_pass(&to->nic_in, ll->machine->nic_message_ps, ll->row_nic_ps, land_ps[i]);
        land_ps[i] = to->nic_in.wire_free_ps;
        if (credits)
            sim_engine_schedule(ll->engine, land_ps[i] + flight_ps, LL_CREDIT, train->group, 0);
    }
    use->bytes += train->rows * ll->row_bytes;
    use->busy_ps += train->rows * ll->row_nic_ps;
    ll_waited(use, free_ps > now_ps ? free_ps - now_ps : 0);
    if (!train->flag) return;
    let_bursts_pass(ll, g->peer, false, train->flag_ps);
    const uint64_t seen_ps = ll_nic_pass(&to->nic_in, ll->costs->nic_flag_ps, 0, train->flag_ps);
    if (credits) sim_engine_schedule(ll->engine, seen_ps + flight_ps, LL_CREDIT, train->group, 0);
    ll_flag_landed(ll, g->rank, g->peer, g->rows, seen_ps);
}
