/* sim/normal_node.c - normal mode inside one node: senders, rings, receivers.
 *
 * Each channel has a sending and a receiving block per rank. The sending block's warps are split
 * over the destinations; such a group moves its queue chunk by chunk: look for free slots, skip
 * the tokens that go elsewhere, copy, publish the tail. Dispatch: the receiving block's groups
 * drain what has landed and return slots. Combine: its warps take tokens in order, each as soon
 * as all its contributions have landed, and return the slots of finished tokens.
 *
 * An event is a chunk, never a row. A chunk takes the longer of its own chain (rounds of the
 * group's warps) and its share of whatever it uses with others: block, link out, link in. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/normal_model.h"

enum { SEND, LAND, DRAINED, REDUCED };
enum { BLOCK_WARPS = 24, REDUCE_WARPS = 23 };

struct receiver {    /* Combine: one per (home rank, channel). */
    uint32_t begun;  /* Tokens whose sum has been started. */
    uint32_t flying; /* Of which not finished. */
};

struct node {
    const struct normal_run *run;
    bool combine;
    uint32_t ranks, channels, warps;
    uint64_t queues;
    struct normal_ring *rings;             /* [source, destination, channel] of the direction. */
    struct receiver *receivers;            /* [ranks, channels] */
    struct normal_server *send_sm;         /* [ranks, channels] */
    struct normal_server *recv_sm;         /* [ranks, channels] */
    struct normal_server *out, *in;        /* [ranks] */
    uint64_t send_chain_ps, send_block_ps; /* Per row. */
    uint64_t recv_chain_ps, recv_block_ps;
    uint64_t link_ps;
    uint64_t token_ps, part_ps, part_block_ps; /* Combine: per token, per contribution. */
    uint64_t credit_ps, publish_ps, scan_ps, flight_ps, local_ps;
};

static uint32_t ring_source(const struct node *node, uint64_t q)
{
    return (uint32_t)(q / node->channels / node->ranks);
}
static uint32_t ring_destination(const struct node *node, uint64_t q)
{
    return (uint32_t)(q / node->channels % node->ranks);
}
static uint32_t ring_channel(const struct node *node, uint64_t q)
{
    return (uint32_t)(q % node->channels);
}

/* The plan's queue of a ring: combine walks the dispatch's queue from its far end. */
static uint64_t plan_queue(const struct node *node, uint64_t q)
{
    const uint32_t source = ring_source(node, q), destination = ring_destination(node, q);
    return node->combine ? normal_queue_index(&node->run->plan->level0, destination, source,
                                              ring_channel(node, q))
                         : q;
}

static const uint32_t *ring_positions(const struct node *node, uint64_t q)
{
    const struct normal_queues *level = &node->run->plan->level0;
    return level->position + level->first[plan_queue(node, q)];
}

static void ended(const struct node *node, uint32_t rank, uint64_t time_ps, uint32_t whom)
{
    uint64_t *end_ps = &node->run->end_ps[rank];
    if (time_ps <= *end_ps) return;
    *end_ps = time_ps;
    node->run->awaited[rank] = whom;
}

/* Tokens that the group walks past until it has the chunk's last row. */
static uint64_t scanned(const struct node *node, uint64_t q, uint32_t rows)
{
    if (node->combine || node->scan_ps == 0) return 0;
    const uint32_t *position = ring_positions(node, q);
    const struct normal_ring *ring = &node->rings[q];
    const uint32_t from = ring->sent > 0 ? position[ring->sent - 1] + 1 : 0;
    return position[ring->sent + rows - 1] + 1 - from;
}

static void on_send(struct node *node, uint64_t q, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    const struct normal_run *run = node->run;
    const uint32_t source = ring_source(node, q), destination = ring_destination(node, q);
    const uint32_t channel = ring_channel(node, q);
    const bool remote = source != destination;
    const uint32_t rows = (uint32_t)normal_min(run->nvl_chunk, ring->rows - ring->sent);
    const uint32_t needed = node->combine ? rows : run->nvl_chunk;

    assert(rows > 0);
    if (ring->sent + needed > ring->head + run->nvl_slots) {
        ring->waiting = true;
        return;
    }
    ring->waiting = false;
    const uint64_t start_ps = now_ps + (remote ? node->credit_ps : node->local_ps) +
                              scanned(node, q, rows) * node->scan_ps;
    const uint64_t rounds = (rows + node->warps - 1) / node->warps;
    uint64_t done_ps = start_ps + rounds * node->send_chain_ps;
    done_ps = normal_max(done_ps, normal_serve(&node->send_sm[source * node->channels + channel],
                                               start_ps, rows, node->send_block_ps));
    if (remote) {
        done_ps =
            normal_max(done_ps, normal_serve(&node->out[source], start_ps, rows, node->link_ps));
        done_ps = normal_max(done_ps,
                             normal_serve(&node->in[destination], start_ps, rows, node->link_ps));
    }
    done_ps += node->publish_ps;
    ring->sent += rows;
    sim_engine_schedule(run->engine, done_ps + (remote ? node->flight_ps : 0), LAND, (uint32_t)q,
                        ring->sent);
    if (ring->sent < ring->rows)
        sim_engine_schedule(run->engine, done_ps, SEND, (uint32_t)q, 0);
    else
        ended(node, source, done_ps, source);
}

/* The receiver freed slots: a sender that waits sees it one flight later. */
static void give_credit(struct node *node, uint64_t q, uint32_t head, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    const struct normal_run *run = node->run;
    const uint32_t rows = (uint32_t)normal_min(run->nvl_chunk, ring->rows - ring->sent);
    const uint32_t needed = node->combine ? rows : run->nvl_chunk;
    assert(head >= ring->head && head <= ring->landed);
    ring->head = head;
    if (!ring->waiting || ring->sent + needed > ring->head + run->nvl_slots) return;
    ring->waiting = false;
    const bool remote = ring_source(node, q) != ring_destination(node, q);
    sim_engine_schedule(run->engine, now_ps + (remote ? node->flight_ps : 0), SEND, (uint32_t)q, 0);
}

static void drain(struct node *node, uint64_t q, uint64_t now_ps)
{
    struct normal_ring *ring = &node->rings[q];
    const uint32_t rows = ring->landed - ring->taken;
    const uint32_t destination = ring_destination(node, q);
    if (rows == 0 || ring->taken > ring->head) return; /* Nothing there, or still at it. */
    const uint64_t rounds = (rows + node->warps - 1) / node->warps;
    struct normal_server *block =
        &node->recv_sm[destination * node->channels + ring_channel(node, q)];
    const uint64_t start_ps = now_ps + node->local_ps;
    const uint64_t done_ps = normal_max(start_ps + rounds * node->recv_chain_ps,
                                        normal_serve(block, start_ps, rows, node->recv_block_ps));
    ring->taken = ring->landed;
    sim_engine_schedule(node->run->engine, done_ps, DRAINED, (uint32_t)q, ring->taken);
}

/* Combine: the first token of (home, channel) that has a contribution still to land. */
static uint32_t whole_tokens(const struct node *node, uint32_t home, uint32_t channel)
{
    uint32_t whole = normal_span(node->run->plan->tokens[home], node->channels, channel);
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ((uint64_t)source * node->ranks + home) * node->channels + channel;
        const struct normal_ring *ring = &node->rings[q];
        if (ring->landed == ring->rows) continue;
        const uint32_t next = ring_positions(node, q)[ring->landed];
        if (next < whole) whole = next;
    }
    return whole;
}

/* Contributions to tokens below end, from where each ring's counter stands. */
static uint32_t take_parts(struct node *node, uint32_t home, uint32_t channel, uint32_t end)
{
    uint32_t parts = 0;
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ((uint64_t)source * node->ranks + home) * node->channels + channel;
        struct normal_ring *ring = &node->rings[q];
        const uint32_t *position = ring_positions(node, q);
        for (; ring->taken < ring->rows && position[ring->taken] < end; ring->taken++) parts++;
    }
    return parts;
}

static void reduce(struct node *node, uint32_t home, uint32_t channel, uint64_t now_ps)
{
    const uint32_t block = home * node->channels + channel;
    struct receiver *receiver = &node->receivers[block];
    const uint32_t whole = whole_tokens(node, home, channel);
    if (whole <= receiver->begun) return;
    const uint32_t tokens =
        (uint32_t)normal_min(whole - receiver->begun, REDUCE_WARPS - receiver->flying);
    if (tokens == 0) return;
    receiver->begun += tokens;
    receiver->flying += tokens;
    const uint32_t parts = take_parts(node, home, channel, receiver->begun);
    const uint64_t start_ps = now_ps + node->local_ps;
    const uint64_t chain_ps = node->token_ps + (parts * node->part_ps + tokens - 1) / tokens;
    const uint64_t block_ps =
        normal_serve(&node->recv_sm[block], start_ps, parts, node->part_block_ps);
    sim_engine_schedule(node->run->engine, normal_max(start_ps + chain_ps, block_ps), REDUCED,
                        block, (uint64_t)tokens << 32 | receiver->begun);
}

static void on_reduced(struct node *node, uint32_t block, uint64_t payload, uint64_t now_ps)
{
    const uint32_t home = block / node->channels, channel = block % node->channels;
    const uint32_t end = (uint32_t)payload;
    struct receiver *receiver = &node->receivers[block];
    receiver->flying -= (uint32_t)(payload >> 32);
    for (uint32_t source = 0; source < node->ranks; source++) {
        const uint64_t q = ((uint64_t)source * node->ranks + home) * node->channels + channel;
        const struct normal_ring *ring = &node->rings[q];
        const uint32_t *position = ring_positions(node, q);
        uint32_t head = ring->head;
        while (head < ring->rows && position[head] < end) head++;
        if (head > ring->head) give_credit(node, q, head, now_ps);
    }
    ended(node, home, now_ps, home);
    reduce(node, home, channel, now_ps);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct node *node = (struct node *)model;
    const uint64_t q = event->target;
    (void)engine;
    switch (event->kind) {
    case SEND: on_send(node, q, event->time_ps); break;
    case LAND:
        node->rings[q].landed = (uint32_t)event->payload;
        if (node->combine)
            reduce(node, ring_destination(node, q), ring_channel(node, q), event->time_ps);
        else
            drain(node, q, event->time_ps);
        break;
    case DRAINED:
        give_credit(node, q, (uint32_t)event->payload, event->time_ps);
        ended(node, ring_destination(node, q), event->time_ps, ring_source(node, q));
        drain(node, q, event->time_ps);
        break;
    case REDUCED: on_reduced(node, event->target, event->payload, event->time_ps); break;
    default: assert(0);
    }
}

static void set_costs(struct node *node)
{
    const struct sim_exchange *exchange = node->run->exchange;
    const struct fabric_machine *machine = exchange->machine;
    const struct fabric_normal_costs *costs = &machine->costs.normal;
    const uint64_t bytes = node->run->row_bytes;
    const uint64_t sms = exchange->sms;
    const bool combine = node->combine;
    const uint64_t crowd = costs->crowd_permille * sms;
    const uint64_t warp_rate =
        combine ? costs->return_warp_bytes_per_s : costs->send_warp_bytes_per_s;
    node->send_chain_ps =
        normal_crowded((combine ? costs->return_row_ps : costs->send_row_ps) +
                           normal_transfer_ps(bytes, warp_rate),
                       crowd);
    node->send_block_ps =
        normal_crowded(normal_transfer_ps(bytes, combine ? costs->return_block_bytes_per_s
                                                         : costs->send_block_bytes_per_s),
                       crowd);
    node->recv_chain_ps = normal_crowded(
        costs->recv_row_ps + normal_transfer_ps(bytes, costs->recv_warp_bytes_per_s), crowd);
    node->recv_block_ps =
        normal_crowded(normal_transfer_ps(bytes, costs->recv_block_bytes_per_s), crowd);
    const uint64_t steps = (exchange->hidden + 255) / 256;
    node->token_ps = normal_crowded(costs->sum_token_ps + steps * costs->sum_step_ps, crowd);
    node->part_ps = normal_crowded(steps * costs->sum_part_ps, crowd);
    node->part_block_ps =
        normal_crowded(normal_transfer_ps(bytes, costs->sum_block_bytes_per_s), crowd);
    node->link_ps = normal_transfer_ps(bytes, machine->nvlink_goodput_bytes_per_s);
    node->flight_ps = machine->nvlink_flight_ps;
    node->local_ps = costs->poll_ps;
    node->credit_ps = 2 * machine->nvlink_flight_ps + costs->poll_ps;
    node->publish_ps = costs->publish_ps;
    node->scan_ps = costs->scan_ps;
}

static int node_open(struct node *node)
{
    const uint64_t blocks = (uint64_t)node->ranks * node->channels;
    node->rings = (struct normal_ring *)calloc(node->queues, sizeof *node->rings);
    node->receivers = (struct receiver *)calloc(blocks, sizeof *node->receivers);
    node->send_sm = (struct normal_server *)calloc(blocks, sizeof *node->send_sm);
    node->recv_sm = (struct normal_server *)calloc(blocks, sizeof *node->recv_sm);
    node->out = (struct normal_server *)calloc(node->ranks, sizeof *node->out);
    node->in = (struct normal_server *)calloc(node->ranks, sizeof *node->in);
    return node->rings && node->receivers && node->send_sm && node->recv_sm && node->out && node->in
               ? 0
               : -1;
}

static void node_close(struct node *node)
{
    free(node->rings);
    free(node->receivers);
    free(node->send_sm);
    free(node->recv_sm);
    free(node->out);
    free(node->in);
}

int normal_node_run(const struct normal_run *run, char *err, size_t err_len)
{
    struct node node;
    memset(&node, 0, sizeof node);
    node.run = run;
    node.combine = run->exchange->direction == SIM_COMBINE;
    node.ranks = run->plan->ranks;
    node.channels = run->plan->channels;
    node.warps = node.ranks >= BLOCK_WARPS ? 1 : BLOCK_WARPS / node.ranks;
    node.queues = (uint64_t)node.ranks * node.ranks * node.channels;
    set_costs(&node);
    int result = node_open(&node);
    if (result != 0)
        snprintf(err, err_len, "normal mode: no memory for %u channels", node.channels);
    else {
        const struct normal_queues *level = &run->plan->level0;
        for (uint64_t q = 0; q < node.queues; q++) {
            const uint64_t p = plan_queue(&node, q);
            node.rings[q].rows = (uint32_t)(level->first[p + 1] - level->first[p]);
            if (node.rings[q].rows > 0)
                sim_engine_schedule(run->engine, run->begin_ps, SEND, (uint32_t)q, 0);
        }
        result = sim_engine_run(run->engine, handle, &node, err, err_len);
    }
    node_close(&node);
    return result;
}
