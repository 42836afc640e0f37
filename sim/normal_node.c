/* sim/normal_node.c - normal mode inside one node: senders, rings, receivers.
 *
 * Each channel has a sending and a receiving block per rank. The sending block's warps are split
 * over the destinations; such a group moves its queue chunk by chunk: look for free slots, walk
 * past the tokens that go elsewhere, copy, publish the tail. Dispatch: the receiving block's
 * groups drain what has landed and return slots. Combine: its warps take tokens in order, each
 * as soon as all its contributions have landed, and return the slots of finished tokens.
 *
 * An event is a chunk, never a row. A chunk takes the longer of its own chain (rounds of the
 * group's warps) and its turn at whatever it shares: block, link out, link in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/normal_model.h"

enum { SEND, LAND, DRAINED, SUMMED };
enum { BLOCK_WARPS = 24, SUM_WARPS = 23, EVEN = 0, ODD = 1 };

struct home {        /* Combine: one per (home rank, channel). */
    uint32_t begun;  /* Tokens whose sum has been started. */
    uint32_t flying; /* Of which not finished. */
    uint32_t last;   /* Who sent the contribution that landed last. */
};

struct node {
    const struct normal_run *run;
    const struct normal_costs *costs;
    uint32_t ranks, channels, warps;
    uint64_t queues;
    struct normal_ring *rings; /* [source, destination, channel] of the direction. */
    struct home *homes;        /* [ranks, channels] */
};

static uint32_t ring_source(const struct node *node, uint64_t q)
{
    return (uint32_t)q / node->channels / node->ranks;
}
static uint32_t ring_destination(const struct node *node, uint64_t q)
{
    return (uint32_t)q / node->channels % node->ranks;
}
static uint32_t ring_channel(const struct node *node, uint64_t q)
{
    return (uint32_t)q % node->channels;
}
static uint64_t ring_index(const struct node *node, uint32_t source, uint32_t destination,
                           uint32_t channel)
{
    return ((uint64_t)source * node->ranks + destination) * node->channels + channel;
}
static bool ring_remote(const struct node *node, uint64_t q)
{
    return ring_source(node, q) != ring_destination(node, q);
}

static const uint32_t *ring_positions(const struct node *node, uint64_t q)
{
    return node->run->plan->level0.position + node->rings[q].first;
}

/* Rows of the next chunk, and whether the ring has the slots that the sender asks for: dispatch
 * asks for a whole chunk even when fewer rows are left. */
static uint32_t next_rows(const struct node *node, const struct normal_ring *ring)
{
    return normal_min(node->run->nvl_chunk, ring->rows - ring->sent);
}
static bool has_slots(const struct node *node, const struct normal_ring *ring)
{
    const uint32_t asked = node->run->combine ? next_rows(node, ring) : node->run->nvl_chunk;
    return ring->sent + asked <= ring->head + node->run->nvl_slots;
}

/* Tokens that the group walks through to find the chunk's rows. */
static uint64_t scanned(const struct node *node, uint64_t q, uint32_t rows)
{
    const uint32_t *position = ring_positions(node, q);
    const struct normal_ring *ring = &node->rings[q];
    if (node->run->combine) return 0;
    const uint32_t from = ring->sent > 0 ? position[ring->sent - 1] + 1 : 0;
    return position[ring->sent + rows - 1] + 1 - from;
}

static void on_send(struct node *node, uint64_t q, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    const struct normal_run *run = node->run;
    const struct normal_costs *costs = node->costs;
    const uint32_t source = ring_source(node, q), destination = ring_destination(node, q);
    const uint32_t rows = next_rows(node, ring);
    const bool remote = source != destination;

    assert(rows > 0);
    ring->waiting = !has_slots(node, ring);
    if (ring->waiting) return;
    struct normal_server *block =
        &run->blocks[EVEN][source * node->channels + ring_channel(node, q)];
    const uint64_t start_ps = now_ps + (remote ? costs->credit_ps : costs->poll_ps) +
                              scanned(node, q, rows) * costs->scan_ps;
    const uint64_t rounds = (rows + node->warps - 1) / node->warps;
    uint64_t done_ps = normal_shared_work(block, start_ps, rows, costs->send_block_ps,
                                          rounds * costs->send_chain_ps);
    if (remote)
        done_ps = normal_max(done_ps, normal_link(run, source, destination, start_ps, rows));
    done_ps += costs->publish_ps;
    const uint64_t land_ps = done_ps + (remote ? costs->flight_ps : 0);
    const uint64_t first = ring->first + ring->sent;
    normal_log(&run->rows0, first, first + rows, start_ps, land_ps);
    ring->sent += rows;
    sim_engine_schedule(run->engine, land_ps, LAND, (uint32_t)q, ring->sent);
    if (ring->sent < ring->rows)
        sim_engine_schedule(run->engine, done_ps, SEND, (uint32_t)q, 0);
    else
        normal_sent(run, source, done_ps);
}

/* The receiver freed slots: a sender that waits sees it one flight later. */
static void give_credit(struct node *node, uint64_t q, uint32_t head, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    assert(head >= ring->head && head <= ring->landed);
    ring->head = head;
    if (!ring->waiting || !has_slots(node, ring)) return;
    ring->waiting = false;
    const uint64_t flight_ps = ring_remote(node, q) ? node->costs->flight_ps : 0;
    sim_engine_schedule(node->run->engine, now_ps + flight_ps, SEND, (uint32_t)q, 0);
}

static void drain(struct node *node, uint64_t q, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    const struct normal_costs *costs = node->costs;
    const uint32_t rows = ring->landed - ring->taken;
    const uint32_t block = ring_destination(node, q) * node->channels + ring_channel(node, q);
    if (rows == 0 || ring->taken > ring->head) return; /* Nothing there, or still at it. */
    const uint64_t rounds = (rows + node->warps - 1) / node->warps;
    const uint64_t start_ps = now_ps + costs->poll_ps;
    const uint64_t done_ps =
        normal_shared_work(&node->run->blocks[ODD][block], start_ps, rows, costs->bulk_block_ps,
                           rounds * costs->bulk_chain_ps);
    ring->taken = ring->landed;
    sim_engine_schedule(node->run->engine, done_ps, DRAINED, (uint32_t)q, ring->taken);
}

/* Combine: the first token of (home, channel) that has a contribution still to land. */
static uint32_t whole_tokens(const struct node *node, uint32_t home, uint32_t channel)
{
    uint32_t whole = normal_span(node->run->plan->tokens[home], node->channels, channel);
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ring_index(node, source, home, channel);
        const struct normal_ring *ring = &node->rings[q];
        if (ring->landed < ring->rows)
            whole = normal_min(whole, ring_positions(node, q)[ring->landed]);
    }
    return whole;
}

/* Contributions to the tokens below end that no earlier call took. */
static uint32_t take_parts(struct node *node, uint32_t home, uint32_t channel, uint32_t end)
{
    uint32_t parts = 0;
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ring_index(node, source, home, channel);
        struct normal_ring *ring = &node->rings[q];
        const uint32_t *position = ring_positions(node, q);
        for (; ring->taken < ring->rows && position[ring->taken] < end; ring->taken++) parts++;
    }
    return parts;
}

/* Start the sums of tokens that are whole, as far as there are idle warps. */
static void sum(struct node *node, uint32_t block, uint64_t now_ps)
{
    const uint32_t rank = block / node->channels, channel = block % node->channels;
    const struct normal_costs *costs = node->costs;
    struct home *home = &node->homes[block];
    const uint32_t whole = whole_tokens(node, rank, channel);
    assert(home->begun <= whole || home->flying == 0);
    const uint32_t tokens =
        whole > home->begun ? normal_min(whole - home->begun, SUM_WARPS - home->flying) : 0;
    if (tokens == 0) return;
    home->begun += tokens;
    home->flying += tokens;
    const uint32_t parts = take_parts(node, rank, channel, home->begun);
    const uint64_t start_ps = now_ps + costs->poll_ps;
    const uint64_t done_ps = normal_work(&node->run->blocks[ODD][block], start_ps, parts + tokens,
                                         costs->sum_block_ps, costs->sum_chain_ps);
    sim_engine_schedule(node->run->engine, done_ps, SUMMED, block,
                        (uint64_t)tokens << 32 | home->begun);
}

static void on_summed(struct node *node, uint32_t block, uint64_t payload, uint64_t now_ps)
{
    const uint32_t rank = block / node->channels, channel = block % node->channels;
    const uint32_t tokens = (uint32_t)(payload >> 32), end = (uint32_t)payload;
    struct home *home = &node->homes[block];
    assert(home->flying >= tokens);
    home->flying -= tokens;
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ring_index(node, source, rank, channel);
        const uint32_t *position = ring_positions(node, q);
        uint32_t head = node->rings[q].head;
        while (head < node->rings[q].rows && position[head] < end) head++;
        if (head > node->rings[q].head) give_credit(node, q, head, now_ps);
    }
    normal_ended(node->run, rank, now_ps, home->last);
    sum(node, block, now_ps);
}

static void on_land(struct node *node, uint64_t q, uint32_t landed, uint64_t now_ps)
{
    const uint32_t block = ring_destination(node, q) * node->channels + ring_channel(node, q);
    node->rings[q].landed = landed;
    if (!node->run->combine) {
        drain(node, q, now_ps);
        return;
    }
    node->homes[block].last = ring_source(node, q);
    sum(node, block, now_ps);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct node *node = (struct node *)model;
    const uint32_t target = event->target;
    (void)engine;
    switch (event->kind) {
    case SEND: on_send(node, target, event->time_ps); break;
    case LAND: on_land(node, target, (uint32_t)event->payload, event->time_ps); break;
    case DRAINED:
        give_credit(node, target, (uint32_t)event->payload, event->time_ps);
        normal_ended(node->run, ring_destination(node, target), event->time_ps,
                     ring_source(node, target));
        drain(node, target, event->time_ps);
        break;
    case SUMMED: on_summed(node, target, event->payload, event->time_ps); break;
    default: assert(0);
    }
}

int normal_node_run(const struct normal_run *run, char *err, size_t err_len)
{
    const struct normal_plan *plan = run->plan;
    const uint64_t queues = (uint64_t)plan->ranks * plan->ranks * plan->channels;
    struct node node = {run, &run->costs, plan->ranks, plan->channels, 1, queues, NULL, NULL};
    int result = -1;

    assert(plan->nodes == 1 && queues < UINT32_MAX);
    if (node.ranks < BLOCK_WARPS) node.warps = BLOCK_WARPS / node.ranks;
    node.rings = (struct normal_ring *)calloc(queues, sizeof *node.rings);
    node.homes = (struct home *)calloc((size_t)node.ranks * node.channels, sizeof *node.homes);
    if (!node.rings || !node.homes) {
        snprintf(err, err_len, "normal mode: no memory for %u channels", node.channels);
        goto free_node;
    }
    for (uint64_t q = 0; q < queues; q++) {
        const uint64_t from = ring_source(&node, q), to = ring_destination(&node, q);
        /* Combine walks dispatch's queue from its far end. */
        const uint64_t p = run->combine ? normal_queue_index(&plan->level0, (uint32_t)to,
                                                             (uint32_t)from, ring_channel(&node, q))
                                        : q;
        node.rings[q].rows = (uint32_t)(plan->level0.first[p + 1] - plan->level0.first[p]);
        node.rings[q].first = plan->level0.first[p];
        if (node.rings[q].rows > 0)
            sim_engine_schedule(run->engine, run->begin_ps, SEND, (uint32_t)q, 0);
    }
    result = sim_engine_run(run->engine, handle, &node, err, err_len);
    for (uint64_t q = 0; q < queues && result == 0; q++)
        assert(node.rings[q].head == node.rings[q].rows); /* Every row sent is received. */
free_node:
    free(node.rings);
    free(node.homes);
    return result;
}
