/* sim/ll.c - the time of a low-latency dispatch or combine: set-up, events, books.
 *
 *     ll -> ll_dispatch, ll_combine     the send halves
 *        -> ll_wire                     NVLink
 *        -> ll_publish                  counts and flags
 *        -> ll_nic -> ll_network        NICs: in order, or by events where something may be held up
 *        -> ll_receive                  the receive halves
 *
 * All memory of a call is taken before its first event. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ref/digest.h"
#include "sim/ll_state.h"

static void init_groups(struct ll *ll, uint32_t rank)
{
    const bool dispatch = ll->direction == SIM_DISPATCH;
    struct ll_group *group = ll->group + (size_t)rank * ll->experts;
    for (uint32_t peer = 0; peer < ll->ranks; peer++) {
        const uint8_t link_class = (uint8_t)sim_traffic_link(ll->traffic, rank, peer);
        const uint32_t owner = dispatch ? peer : rank, home = dispatch ? rank : peer;
        const uint64_t *block =
            ll->traffic->block_start + (uint64_t)owner * ll->local * ll->ranks + home;
        for (uint32_t e = 0; e < ll->local; e++, block += ll->ranks) {
            const uint32_t rows = (uint32_t)(block[1] - block[0]);
            *group++ = (struct ll_group){.gate_ps = 0,
                                         .rows = rows,
                                         .gates = dispatch ? rows + 1 : 1,
                                         .first_slot = (uint32_t)block[0],
                                         .rank = (uint16_t)rank,
                                         .peer = (uint16_t)peer,
                                         .link_class = link_class};
        }
    }
}

/* A work request is complete: a row that waited for its slot is posted. */
static void credit(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    const uint32_t message = ll_network_credit(ll, group, now_ps);
    if (message == LL_NONE) return;
    if (ll->direction == SIM_DISPATCH)
        ll_dispatch_unstalled(ll, message, now_ps);
    else
        ll_combine_unstalled(ll, group, now_ps);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct ll *ll = (struct ll *)model;
    (void)engine;
    switch ((enum ll_event)event->kind) {
    case LL_PUBLISH: ll_publish_now(ll, event->target, event->time_ps); return;
    case LL_TURN: ll_network_turn(ll, event->target, event->time_ps); return;
    case LL_NIC: ll_network_arrive(ll, event->target, event->time_ps); return;
    case LL_CREDIT: credit(ll, event->target, event->time_ps); return;
    case LL_START:
    case LL_TOKEN:
    case LL_ROWS:
    case LL_WAVES:
    case LL_WAVE:
    case LL_LINK:
    default: break;
    }
    if (ll->direction == SIM_DISPATCH)
        ll_dispatch_event(ll, event);
    else
        ll_combine_event(ll, event);
}

static const struct {
    char name[16], kind[sizeof((struct sim_resource_use *)NULL)->kind];
} uses[LL_USES] = {[LL_LINK_OUT] = {"nvlink.out", "link"}, [LL_LINK_IN] = {"nvlink.in", "link"},
                   [LL_NIC_OUT] = {"nic.out", "nic"},      [LL_NIC_IN] = {"nic.in", "nic"},
                   [LL_SMS] = {"sm", "sm_pool"},           [LL_QPS] = {"qp", "qp"}};

static void name_uses(struct sim_resource_use *use, uint32_t rank)
{
    char prefix[sizeof use->name - sizeof uses[0].name];
    const int length = snprintf(prefix, sizeof prefix, "rank%u.", rank);
    assert(length > 0 && (size_t)length < sizeof prefix);
    for (uint32_t u = 0; u < LL_USES; u++) {
        use[u] = (struct sim_resource_use){.busy_ps = 0};
        memcpy(use[u].name, prefix, (size_t)length);
        memcpy(use[u].name + length, uses[u].name, sizeof uses[u].name);
        memcpy(use[u].kind, uses[u].kind, sizeof uses[u].kind);
    }
}

/* A byte passes one after the other: the times add. What a kernel reaches on NVLink falls short
 * of what plain stores do by a span per byte, not by a share: a slower link loses less. */
static uint64_t in_series(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    return a == 0 || b == 0 ? 0 : (uint64_t)((u128)a * b / ((u128)a + b));
}

static void init_rank(struct ll *ll, uint32_t rank)
{
    const struct fabric_ll_costs *costs = ll->costs;
    const bool dispatch = ll->direction == SIM_DISPATCH;
    const uint32_t jobs = ll->jobs_max;
    struct fabric_share_job *own = ll->jobs + (size_t)rank * 2 * jobs;
    struct ll_rank *r = &ll->rank[rank];
    const uint64_t port =
        in_series(ll->machine->nvlink_goodput_bytes_per_s,
                  dispatch ? costs->dispatch_path_bytes_per_s : costs->combine_path_bytes_per_s);
    const uint64_t sender =
        dispatch ? costs->sm_store_bytes_per_s / ll->traffic->topk : costs->warp_send_bytes_per_s;
    const uint64_t copier =
        dispatch ? costs->warp_receive_bytes_per_s : costs->sm_reduce_bytes_per_s;
    fabric_share_init(&r->link, port > 0 ? port : 1, sender, own, jobs);
    fabric_share_init(&r->sm, dispatch ? costs->receive_bytes_per_s : costs->reduce_bytes_per_s,
                      copier, own + jobs, jobs);
    r->link_at_ps = r->open_ps = LL_NEVER;
    r->unpublished = r->unarrived = ll->experts;
    r->use = ll->timing->resources + (size_t)rank * LL_USES;
    name_uses(r->use, rank);
}

/* The next part of the scratch, on a cache line of its own; *at counts bytes, and with at NULL
 * as the base only counts. */
static void *part(char *base, size_t *at, size_t count, size_t bytes)
{
    void *found = base ? base + *at : NULL;
    *at += (count * bytes + 63) / 64 * 64;
    return found;
}

/* Rows that a rank sends in a direction; the other one's are those it receives. */
static size_t rows_of(const struct ll *ll, uint32_t rank, bool dispatch)
{
    const struct sim_traffic *traffic = ll->traffic;
    const uint64_t *token = traffic->token_start + rank;
    const uint64_t blocks = (uint64_t)ll->local * ll->ranks;
    if (dispatch) return traffic->home_start[token[1]] - traffic->home_start[token[0]];
    return traffic->block_start[(rank + 1) * blocks] - traffic->block_start[rank * blocks];
}

/* Lay all arrays out from base; returns the bytes they take. */
static size_t lay_out(struct ll *ll, char *base)
{
    const size_t groups = (size_t)ll->ranks * ll->experts;
    const size_t messages = (size_t)ll->message_count;
    const size_t jobs = (size_t)ll->ranks * ll->jobs_max;
    const bool dispatch = ll->direction == SIM_DISPATCH;
    size_t at = 0, most_sent = 0;
    ll->rank = (struct ll_rank *)part(base, &at, ll->ranks, sizeof *ll->rank);
    ll->block = (struct ll_block *)part(base, &at, jobs, sizeof *ll->block);
    ll->group = (struct ll_group *)part(base, &at, groups, sizeof *ll->group);
    if (dispatch) {
        ll->slot_depart_ps = (uint64_t *)part(base, &at, messages, sizeof(uint64_t));
        ll->slot_land_ps = (uint64_t *)part(base, &at, messages, sizeof(uint64_t));
        ll->message_slot = (uint32_t *)part(base, &at, messages, sizeof(uint32_t));
        ll->arrival = (struct ll_arrival *)part(base, &at, groups, sizeof *ll->arrival);
    } else {
        ll->slot_depart_ps = ll->timing->depart_ps;
        ll->slot_land_ps = ll->timing->land_ps;
        ll->turn = (uint32_t *)part(base, &at, ll->jobs_max, sizeof *ll->turn);
    }
    ll->train_end = (struct ll_train **)part(base, &at, ll->ranks, sizeof *ll->train_end);
    for (uint32_t r = 0; r < ll->ranks; r++) {
        struct ll_rank mail = {.unarrived = 0}, *rank = base ? &ll->rank[r] : &mail;
        const size_t sent = rows_of(ll, r, dispatch) / LL_DOORBELL;
        const size_t received = rows_of(ll, r, !dispatch) / LL_DOORBELL + ll->experts;
        rank->rung = rank->rung_end = (struct ll_rung *)part(base, &at, sent, sizeof *rank->rung);
        rank->flag = rank->flag_end =
            (struct ll_flag *)part(base, &at, ll->experts, sizeof *rank->flag);
        rank->train = (struct ll_train *)part(base, &at, received, sizeof *rank->train);
        if (base) ll->train_end[r] = rank->train;
        if (sent > most_sent) most_sent = sent;
        if (received > ll->trains_most) ll->trains_most = (uint32_t)received;
    }
    ll->told = (struct ll_told *)part(base, &at, most_sent + ll->experts, sizeof *ll->told);
    ll->queue.next = (uint32_t *)part(base, &at, most_sent + ll->experts, sizeof(uint32_t));
    ll->queue.first = (uint32_t *)part(base, &at, ll->ranks, sizeof(uint32_t));
    ll->queue.last = (uint32_t **)part(base, &at, ll->ranks, sizeof(uint32_t *));
    ll->queue.ranks = ll->ranks;
    ll->turns = (struct ll_turn *)part(base, &at, 2 * (size_t)ll->trains_most, sizeof *ll->turns);
    ll->jobs = (struct fabric_share_job *)part(base, &at, 2 * jobs, sizeof *ll->jobs);
    ll->job_ps = (uint64_t *)part(base, &at, ll->jobs_max, sizeof *ll->job_ps);
    return at;
}

static int open_state(struct ll *ll, char *err, size_t err_len)
{
    const uint64_t entries = ll->message_count + (uint64_t)ll->ranks * ll->experts;
    const uint32_t sms = ll->machine->sm_count;
    /* A grid has a block per expert at most, or one per SM (combine with many tokens). */
    ll->jobs_max = ll->experts > sms ? ll->experts : sms;
    char *base = NULL;
    if (entries < LL_NONE) base = (char *)sim_timing_reserve(ll->timing, lay_out(ll, NULL));
    if (!base) {
        snprintf(err, err_len, "low-latency exchange of %llu messages and counts: out of memory",
                 (unsigned long long)entries);
        return -1;
    }
    memset(base, 0, ll->ranks * sizeof *ll->rank); /* The first part. */
    (void)lay_out(ll, base);
    for (uint32_t r = 0; r < ll->ranks; r++) init_rank(ll, r);
    ll->row_link_ps = fabric_transfer_ps(ll->row_bytes, ll->rank[0].link.capacity_bytes_per_s);
    for (uint32_t rows = 1; ll->direction == SIM_DISPATCH && rows <= LL_WARPS; rows++)
        ll->copy[rows] = ll_copy_of(ll, rows);
    ll->row_store_ps = fabric_transfer_ps(ll->row_bytes, ll->rank[0].link.stream_bytes_per_s);
    const uint64_t nic = fabric_network_bytes_per_s(ll->exchange->network, ll->machine);
    if (nic > 0) ll->row_nic_ps = fabric_transfer_ps(ll->row_bytes, nic);
    return 0;
}

/* Busy times of servers that only count bytes, backlogs, and the floor: the busiest port at its
 * datasheet rate, and one flight. */
static void close_books(struct ll *ll)
{
    const struct fabric_machine *machine = ll->machine;
    struct sim_timing *timing = ll->timing;
    timing->floor_ps = 0;
    for (uint32_t r = 0; r < ll->ranks; r++) {
        struct sim_resource_use *use = ll->rank[r].use;
        for (uint32_t u = LL_LINK_OUT; u <= LL_NIC_IN; u++) {
            const bool nvlink = u <= LL_LINK_IN;
            const uint64_t line = nvlink ? machine->nvlink_bytes_per_s : machine->nic_bytes_per_s;
            const uint64_t flight_ps = nvlink ? machine->nvlink_flight_ps : machine->nic_flight_ps;
            const uint64_t row_ps = nvlink ? ll->row_link_ps : ll->row_nic_ps;
            if (u != LL_LINK_OUT && row_ps > 0) /* The longest wait, in rows that went before. */
                use[u].queue_peak = (use[u].queue_peak + row_ps - 1) / row_ps;
            if (use[u].bytes == 0) continue;
            const uint64_t least_ps = flight_ps + fabric_transfer_ps(use[u].bytes, line);
            if (least_ps > timing->floor_ps) timing->floor_ps = least_ps;
            if (nvlink)
                use[u].busy_ps =
                    fabric_transfer_ps(use[u].bytes, ll->rank[r].link.capacity_bytes_per_s);
        }
        use[LL_QPS].bytes = use[LL_NIC_OUT].bytes; /* Every row by NIC went through a queue pair. */
        use[LL_SMS].busy_ps =
            fabric_transfer_ps(use[LL_SMS].bytes, ll->rank[r].sm.capacity_bytes_per_s);
    }
    timing->events = ll->events;
    timing->digest = ll->digest;
    for (uint32_t r = 0; r < ll->ranks; r++)
        timing->digest = ref_digest_mix(timing->digest, timing->end_ps[r]);
}

/* The events of some ranks, from their launches on. */
static int play(struct ll *ll, uint32_t first, uint32_t end, char *err, size_t err_len)
{
    sim_engine_reset(ll->engine);
    for (uint32_t r = first; r < end; r++)
        sim_engine_schedule(ll->engine, ll->exchange->start_ps[r] + ll_launch_ps(ll, r), LL_START,
                            r, 0);
    if (sim_engine_run(ll->engine, handle, ll, err, err_len) != 0) return -1;
    ll->events += sim_engine_event_count(ll->engine);
    ll->digest = ref_digest_mix(ll->digest, sim_engine_digest(ll->engine));
    return 0;
}

/* With a network, everything by events. */
static int play_network(struct ll *ll, char *err, size_t err_len)
{
    int status = -1;
    for (uint32_t r = 0; r < ll->ranks; r++) init_groups(ll, r);
    ll->network = ll_network_open(ll, err, err_len);
    if (ll->network) status = play(ll, 0, ll->ranks, err, err_len);
    if (status == 0) ll_network_report(ll->network, ll->timing);
    ll_network_close(ll->network);
    return status;
}

/* Without, nodes only meet at the receiving NICs: one after the other, while it is in the cache,
 * each sends all that it has. */
static int play_nodes(struct ll *ll, char *err, size_t err_len)
{
    const uint32_t ranks = ll->traffic->ranks_per_node;
    for (uint32_t first = 0; first < ll->ranks; first += ranks) {
        const uint32_t end = first + ranks < ll->ranks ? first + ranks : ll->ranks;
        for (uint32_t r = first; r < end; r++) init_groups(ll, r);
        if (play(ll, first, end, err, err_len) != 0) return -1;
        for (uint32_t r = first; r < end; r++) ll_nic_leave(ll, r);
    }
    for (uint32_t r = 0; r < ll->ranks; r++) ll_nic_arrive(ll, r);
    return 0;
}

int sim_ll_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                struct sim_timing *timing, char *err, size_t err_len)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const uint32_t sms = exchange->machine->sm_count;
    struct ll ll = {.exchange = exchange,
                    .machine = exchange->machine,
                    .costs = &exchange->machine->costs.ll,
                    .traffic = traffic,
                    .timing = timing,
                    .engine = engine,
                    .direction = exchange->direction,
                    .row_bytes = traffic->row_bytes[exchange->direction],
                    .message_count = traffic->message_count[exchange->direction],
                    .ranks = traffic->ranks,
                    .experts = traffic->experts,
                    .local = traffic->experts / traffic->ranks};

    assert(traffic->mode == SIM_MODE_LL);
    assert(timing->ranks == ll.ranks && timing->message_max >= ll.message_count);
    assert(ll.ranks <= UINT16_MAX);
    assert(timing->resource_max >= ll.ranks * LL_USES);
    ll.groups_per_block = (ll.experts + sms - 1) / sms;
    ll.grid = (ll.experts + ll.groups_per_block - 1) / ll.groups_per_block;
    ll.warps = ll.groups_per_block < LL_WARPS ? LL_WARPS / ll.groups_per_block : 1;
    ll.token_ps =
        ll.costs->token_chain_ps + fabric_transfer_ps(2 * (uint64_t)exchange->hidden + ll.row_bytes,
                                                      ll.costs->sm_copy_bytes_per_s);
    if (open_state(&ll, err, err_len) != 0) return -1;
    timing->resource_count = ll.ranks * LL_USES;
    const int status =
        ll_network_wanted(&ll) ? play_network(&ll, err, err_len) : play_nodes(&ll, err, err_len);
    if (status != 0) return -1;
    if (ll.direction == SIM_DISPATCH) ll_dispatch_gather(&ll);
    memset(timing->notify_ps, 0, ll.ranks * sizeof *timing->notify_ps);
    close_books(&ll);
    return 0;
}
