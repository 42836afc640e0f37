/* sim/normal_rail_combine.c - normal combine over several nodes: the mirror of dispatch.
 *
 * Per channel and rank: one sender warp per forwarder of the node copies its rows over NVLink,
 * taking the home nodes in turn (a ring per home node, so that none can block another); the
 * forwarder's warps of a home node add up each token's rows, chunk by chunk, and put the chunk
 * of partial sums on the NIC; the home rank's warps add up the nodes' partial sums. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/normal_model.h"

enum { SEND, NVL_LAND, SUMMED, PUT, RAIL_LAND, RAIL_CREDIT, HOME_SUMMED };
enum { FORWARD_WARPS = 24, HOME_WARPS = 16 };

struct rail { /* (home rank, node, channel): partial sums from that node's forwarder. */
    uint32_t rows;
    uint32_t begun;  /* Sums started at the forwarder. */
    uint32_t summed; /* Finished. */
    uint32_t flying; /* Started, not finished. */
    uint32_t landed; /* Partial sums at home. */
    uint32_t head;   /* Slots freed, as the forwarder knows. */
    uint32_t told;   /* Slots freed, as last told. */
    bool waiting;    /* The forwarder waits for slots. */
    bool putting;    /* A finished chunk is being handed to the NIC. */
};

struct home { /* (home rank, channel) */
    uint32_t begun, flying, done;
};

struct warp { /* (sender rank, forwarder GPU of its node, channel) */
    uint32_t next_node;
    bool busy;
};

struct combine {
    const struct normal_run *run;
    uint32_t ranks, channels, nodes, size, warps_per_node;
    struct rail *rails;
    struct home *homes;
    struct warp *warps;
    struct normal_ring *rings;        /* Level-1 queue (home rank, sender rank, channel). */
    uint32_t *taken_home;             /* Per rail: partial sums whose token is begun at home. */
    struct normal_server *even, *odd; /* Blocks: send and home sums; forward. */
    struct normal_server *link_out, *link_in, *nic_out, *nic_in;
    uint64_t send_chain_ps, send_block_ps;
    uint64_t token_ps, part_ps, part_block_ps;
    uint64_t link_ps, nic_ps, message_ps, nic_flight_ps, flight_ps;
    uint64_t put_ps, poll_ps, publish_ps, credit_ps, sync_ps;
};

static uint64_t rail_index(const struct combine *c, uint32_t home, uint32_t node, uint32_t channel)
{
    return normal_queue_index(&c->run->plan->level0, home, node, channel);
}
static uint64_t ring_index(const struct combine *c, uint32_t home, uint32_t sender,
                           uint32_t channel)
{
    return normal_queue_index(&c->run->plan->level1, home, sender, channel);
}
static uint32_t rail_home(const struct combine *c, uint64_t q)
{
    return (uint32_t)(q / c->channels / c->nodes);
}
static uint32_t rail_forwarder(const struct combine *c, uint64_t q)
{
    return (uint32_t)(q / c->channels % c->nodes) * c->size + rail_home(c, q) % c->size;
}

static void ended(const struct combine *c, uint32_t rank, uint64_t time_ps, uint32_t whom)
{
    if (time_ps <= c->run->end_ps[rank]) return;
    c->run->end_ps[rank] = time_ps;
    c->run->awaited[rank] = whom;
}

/* --- send ---------------------------------------------------------------------------------- */

/* A sender warp's next chunk: the next home node in turn with rows left and slots free. */
static void send(struct combine *c, uint64_t w, uint64_t now_ps)
{
    struct warp *warp = &c->warps[w];
    const uint32_t channel = (uint32_t)(w % c->channels);
    const uint32_t sender = (uint32_t)(w / c->channels / c->size);
    const uint32_t forwarder = sender / c->size * c->size + (uint32_t)(w / c->channels % c->size);
    const bool remote = sender != forwarder;
    const uint32_t slots = c->run->nvl_slots / c->nodes;

    if (warp->busy) return;
    for (uint32_t i = 0; i < c->nodes; i++) {
        const uint32_t node = (warp->next_node + i) % c->nodes;
        const uint64_t q = ring_index(c, node * c->size + forwarder % c->size, sender, channel);
        struct normal_ring *ring = &c->rings[q];
        const uint32_t rows = (uint32_t)normal_min(c->run->nvl_chunk, ring->rows - ring->sent);
        if (rows == 0 || ring->sent + rows > ring->head + slots) continue;
        const uint64_t start_ps = now_ps + (remote ? c->credit_ps : c->poll_ps);
        uint64_t done_ps = start_ps + rows * c->send_chain_ps;
        done_ps = normal_max(done_ps, normal_serve(&c->even[sender * c->channels + channel],
                                                   start_ps, rows, c->send_block_ps));
        if (remote) {
            done_ps =
                normal_max(done_ps, normal_serve(&c->link_out[sender], start_ps, rows, c->link_ps));
            done_ps = normal_max(done_ps,
                                 normal_serve(&c->link_in[forwarder], start_ps, rows, c->link_ps));
        }
        done_ps += c->publish_ps;
        ring->sent += rows;
        warp->busy = true;
        warp->next_node = (node + 1) % c->nodes;
        sim_engine_schedule(c->run->engine, done_ps, SEND, (uint32_t)w, 0);
        sim_engine_schedule(c->run->engine, done_ps + (remote ? c->flight_ps : 0), NVL_LAND,
                            (uint32_t)q, ring->sent);
        return;
    }
}

/* --- forward ------------------------------------------------------------------------------- */

/* The first row of the rail that still lacks a contribution. */
static uint32_t whole_rows(const struct combine *c, uint64_t q)
{
    const struct normal_queues *level1 = &c->run->plan->level1;
    const uint32_t home = rail_home(c, q), channel = (uint32_t)(q % c->channels);
    const uint32_t first = (uint32_t)(q / c->channels % c->nodes) * c->size;
    uint32_t whole = c->rails[q].rows;
    for (uint32_t gpu = 0; gpu < c->size; gpu++) {
        const uint64_t r = ring_index(c, home, first + gpu, channel);
        const struct normal_ring *ring = &c->rings[r];
        if (ring->landed == ring->rows) continue;
        const uint32_t next = level1->position[level1->first[r] + ring->landed];
        if (next < whole) whole = next;
    }
    return whole;
}

static uint32_t take_parts(struct combine *c, uint64_t q, uint32_t end)
{
    const struct normal_queues *level1 = &c->run->plan->level1;
    const uint32_t home = rail_home(c, q), channel = (uint32_t)(q % c->channels);
    const uint32_t first = (uint32_t)(q / c->channels % c->nodes) * c->size;
    uint32_t parts = 0;
    for (uint32_t gpu = 0; gpu < c->size; gpu++) {
        const uint64_t r = ring_index(c, home, first + gpu, channel);
        struct normal_ring *ring = &c->rings[r];
        const uint32_t *position = level1->position + level1->first[r];
        for (; ring->taken < ring->rows && position[ring->taken] < end; ring->taken++) parts++;
    }
    return parts;
}

/* Start as many sums of the present chunk as have landed and find a warp. */
static void sum(struct combine *c, uint64_t q, uint64_t now_ps)
{
    struct rail *rail = &c->rails[q];
    const uint32_t chunk = c->run->rdma_chunk;
    const uint32_t chunk_start = rail->summed / chunk * chunk;
    const uint32_t chunk_end = (uint32_t)normal_min(chunk_start + chunk, rail->rows);
    if (rail->putting || rail->begun >= chunk_end) return;
    if (chunk_end > rail->head + c->run->rdma_slots) {
        rail->waiting = true;
        return;
    }
    rail->waiting = false;
    const uint32_t whole = (uint32_t)normal_min(whole_rows(c, q), chunk_end);
    if (whole <= rail->begun) return;
    const uint32_t tokens =
        (uint32_t)normal_min(whole - rail->begun, c->warps_per_node - rail->flying);
    if (tokens == 0) return;
    rail->begun += tokens;
    rail->flying += tokens;
    const uint32_t parts = take_parts(c, q, rail->begun);
    const uint64_t start_ps = now_ps + c->poll_ps;
    const uint64_t chain_ps = c->token_ps + (parts * c->part_ps + tokens - 1) / tokens;
    const uint32_t block = rail_forwarder(c, q) * c->channels + (uint32_t)(q % c->channels);
    const uint64_t block_ps = normal_serve(&c->odd[block], start_ps, parts, c->part_block_ps);
    sim_engine_schedule(c->run->engine, normal_max(start_ps + chain_ps, block_ps), SUMMED,
                        (uint32_t)q, (uint64_t)tokens << 32 | rail->begun);
}

static void free_ring(struct combine *c, uint64_t q, uint32_t end, uint64_t now_ps)
{
    const struct normal_queues *level1 = &c->run->plan->level1;
    const uint32_t home = rail_home(c, q), channel = (uint32_t)(q % c->channels);
    const uint32_t forwarder = rail_forwarder(c, q);
    const uint32_t first = forwarder / c->size * c->size;
    for (uint32_t gpu = 0; gpu < c->size; gpu++) {
        const uint32_t sender = first + gpu;
        const uint64_t r = ring_index(c, home, sender, channel);
        struct normal_ring *ring = &c->rings[r];
        const uint32_t *position = level1->position + level1->first[r];
        const uint32_t before = ring->head;
        while (ring->head < ring->rows && position[ring->head] < end) ring->head++;
        if (ring->head > before)
            send(c, ((uint64_t)sender * c->size + forwarder % c->size) * c->channels + channel,
                 now_ps + (sender != forwarder ? c->flight_ps : 0));
    }
}

static void on_summed(struct combine *c, uint64_t q, uint64_t payload, uint64_t now_ps)
{
    struct rail *rail = &c->rails[q];
    const uint32_t tokens = (uint32_t)(payload >> 32), chunk = c->run->rdma_chunk;
    rail->flying -= tokens;
    rail->summed += tokens;
    free_ring(c, q, (uint32_t)payload, now_ps);
    if (rail->summed % chunk == 0 || rail->summed == rail->rows) {
        const uint32_t start = (rail->summed - 1) / chunk * chunk;
        rail->putting = true;
        sim_engine_schedule(c->run->engine, now_ps + c->put_ps, PUT, (uint32_t)q,
                            (uint64_t)(rail->summed - start) << 32 | rail->summed);
        return; /* The warps meet before the put; the next chunk starts after it. */
    }
    sum(c, q, now_ps);
}

static void on_put(struct combine *c, uint64_t q, uint64_t payload, uint64_t now_ps)
{
    const uint32_t home = rail_home(c, q), forwarder = rail_forwarder(c, q);
    uint64_t land_ps = now_ps;
    c->rails[q].putting = false;
    if (home != forwarder) {
        const uint64_t wire_ps = (payload >> 32) * c->nic_ps + c->message_ps;
        const uint64_t out_ps = normal_serve(&c->nic_out[forwarder], now_ps, 1, wire_ps);
        const uint64_t in_ps = normal_serve(&c->nic_in[home], now_ps, 1, wire_ps);
        land_ps = normal_max(out_ps, in_ps) + c->nic_flight_ps;
        ended(c, forwarder, out_ps, forwarder);
    }
    ended(c, forwarder, now_ps, home);
    sim_engine_schedule(c->run->engine, land_ps, RAIL_LAND, (uint32_t)q, payload);
    sum(c, q, now_ps);
}

/* --- home ---------------------------------------------------------------------------------- */

static void home_sum(struct combine *c, uint32_t block, uint64_t now_ps)
{
    const struct normal_queues *level0 = &c->run->plan->level0;
    const uint32_t rank = block / c->channels, channel = block % c->channels;
    struct home *home = &c->homes[block];
    uint32_t whole = normal_span(c->run->plan->tokens[rank], c->channels, channel), parts = 0;
    for (uint32_t node = 0; node < c->nodes; node++) {
        const uint64_t q = rail_index(c, rank, node, channel);
        const struct rail *rail = &c->rails[q];
        if (rail->landed < rail->rows)
            whole = (uint32_t)normal_min(whole, level0->position[level0->first[q] + rail->landed]);
    }
    if (whole <= home->begun) return;
    const uint32_t tokens = (uint32_t)normal_min(whole - home->begun, HOME_WARPS - home->flying);
    if (tokens == 0) return;
    home->begun += tokens;
    home->flying += tokens;
    for (uint32_t node = 0; node < c->nodes; node++) {
        const uint64_t q = rail_index(c, rank, node, channel);
        const uint32_t *position = level0->position + level0->first[q];
        for (; c->taken_home[q] < c->rails[q].rows && position[c->taken_home[q]] < home->begun;
             c->taken_home[q]++)
            parts++;
    }
    const uint64_t start_ps = now_ps + c->poll_ps;
    const uint64_t chain_ps = c->token_ps + (parts * c->part_ps + tokens - 1) / tokens;
    const uint64_t block_ps = normal_serve(&c->even[block], start_ps, parts, c->part_block_ps);
    sim_engine_schedule(c->run->engine, normal_max(start_ps + chain_ps, block_ps), HOME_SUMMED,
                        block, (uint64_t)tokens << 32 | home->begun);
}

static void on_home_summed(struct combine *c, uint32_t block, uint64_t payload, uint64_t now_ps)
{
    const struct normal_queues *level0 = &c->run->plan->level0;
    const uint32_t rank = block / c->channels, channel = block % c->channels;
    struct home *home = &c->homes[block];
    home->flying -= (uint32_t)(payload >> 32);
    home->done = (uint32_t)payload;
    ended(c, rank, now_ps, rank);
    for (uint32_t node = 0; node < c->nodes; node++) {
        const uint64_t q = rail_index(c, rank, node, channel);
        struct rail *rail = &c->rails[q];
        const uint32_t *position = level0->position + level0->first[q];
        uint32_t freed = rail->told;
        while (freed < rail->rows && position[freed] < home->done) freed++;
        if (freed - rail->told < c->run->rdma_chunk) continue;
        rail->told = freed;
        sim_engine_schedule(c->run->engine,
                            now_ps + (node == rank / c->size ? c->poll_ps : c->nic_flight_ps),
                            RAIL_CREDIT, (uint32_t)q, freed);
    }
    home_sum(c, block, now_ps);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct combine *c = (struct combine *)model;
    const uint64_t now_ps = event->time_ps;
    const uint32_t target = event->target;
    (void)engine;
    switch (event->kind) {
    case SEND:
        c->warps[target].busy = false;
        ended(c, (uint32_t)(target / c->channels / c->size), now_ps,
              (uint32_t)(target / c->channels / c->size));
        send(c, target, now_ps);
        break;
    case NVL_LAND: {
        c->rings[target].landed = (uint32_t)event->payload;
        const uint32_t sender = (uint32_t)(target / c->channels % c->ranks);
        const uint32_t home = (uint32_t)(target / c->channels / c->ranks);
        sum(c, rail_index(c, home, sender / c->size, target % c->channels), now_ps);
        break;
    }
    case SUMMED: on_summed(c, target, event->payload, now_ps); break;
    case PUT: on_put(c, target, event->payload, now_ps); break;
    case RAIL_LAND:
        c->rails[target].landed = (uint32_t)event->payload;
        home_sum(c, rail_home(c, target) * c->channels + target % c->channels, now_ps);
        break;
    case RAIL_CREDIT:
        c->rails[target].head = (uint32_t)event->payload;
        if (c->rails[target].waiting) sum(c, target, now_ps);
        break;
    case HOME_SUMMED: on_home_summed(c, target, event->payload, now_ps); break;
    default: assert(0);
    }
}

static void set_costs(struct combine *c)
{
    const struct sim_exchange *exchange = c->run->exchange;
    const struct fabric_machine *machine = exchange->machine;
    const struct fabric_normal_costs *costs = &machine->costs.normal;
    const uint64_t bytes = c->run->row_bytes;
    const uint64_t crowd = costs->crowd_permille * exchange->sms;
    const uint64_t steps = (exchange->hidden + 255) / 256;
    c->send_chain_ps = normal_crowded(
        costs->forward_row_ps + normal_transfer_ps(bytes, costs->forward_warp_bytes_per_s), crowd);
    c->send_block_ps =
        normal_crowded(normal_transfer_ps(bytes, costs->forward_block_bytes_per_s), crowd);
    c->token_ps = normal_crowded(costs->sum_token_ps + steps * costs->sum_step_ps, crowd);
    c->part_ps = normal_crowded(steps * costs->sum_part_ps, crowd);
    c->part_block_ps =
        normal_crowded(normal_transfer_ps(bytes, costs->sum_block_bytes_per_s), crowd);
    c->link_ps = normal_transfer_ps(bytes, machine->nvlink_goodput_bytes_per_s);
    c->nic_ps = normal_transfer_ps(bytes, machine->nic_goodput_bytes_per_s);
    c->message_ps = 2 * machine->nic_message_ps; /* The rows, then the tail. */
    c->nic_flight_ps = machine->nic_flight_ps;
    c->flight_ps = machine->nvlink_flight_ps;
    c->put_ps = costs->put_ps;
    c->poll_ps = costs->poll_ps;
    c->publish_ps = costs->publish_ps;
    c->credit_ps = 2 * machine->nvlink_flight_ps + costs->poll_ps;
}

static int combine_open(struct combine *c)
{
    const struct normal_plan *plan = c->run->plan;
    const uint64_t blocks = (uint64_t)c->ranks * c->channels;
    const uint64_t rails = blocks * c->nodes, rings = blocks * c->ranks;
    c->rails = (struct rail *)calloc(rails, sizeof *c->rails);
    c->homes = (struct home *)calloc(blocks, sizeof *c->homes);
    c->warps = (struct warp *)calloc(blocks * c->size, sizeof *c->warps);
    c->rings = (struct normal_ring *)calloc(rings, sizeof *c->rings);
    c->taken_home = (uint32_t *)calloc(rails, sizeof *c->taken_home);
    c->even = (struct normal_server *)calloc(2 * blocks + 4ul * c->ranks, sizeof *c->even);
    if (!c->rails || !c->homes || !c->warps || !c->rings || !c->taken_home || !c->even) return -1;
    c->odd = c->even + blocks;
    c->link_out = c->odd + blocks;
    c->link_in = c->link_out + c->ranks;
    c->nic_out = c->link_in + c->ranks;
    c->nic_in = c->nic_out + c->ranks;
    for (uint64_t q = 0; q < rails; q++)
        c->rails[q].rows = (uint32_t)(plan->level0.first[q + 1] - plan->level0.first[q]);
    for (uint64_t q = 0; q < rings; q++)
        c->rings[q].rows = (uint32_t)(plan->level1.first[q + 1] - plan->level1.first[q]);
    return 0;
}

static void combine_close(struct combine *c)
{
    free(c->rails);
    free(c->homes);
    free(c->warps);
    free(c->rings);
    free(c->taken_home);
    free(c->even);
}

int normal_rail_combine_run(const struct normal_run *run, char *err, size_t err_len)
{
    struct combine c;
    memset(&c, 0, sizeof c);
    c.run = run;
    c.ranks = run->plan->ranks;
    c.channels = run->plan->channels;
    c.nodes = run->plan->nodes;
    c.size = run->plan->ranks_per_node;
    c.warps_per_node = c.nodes >= FORWARD_WARPS ? 1 : FORWARD_WARPS / c.nodes;
    set_costs(&c);
    int result = combine_open(&c);
    if (result != 0)
        snprintf(err, err_len, "normal mode: no memory for %u channels", c.channels);
    else {
        for (uint32_t w = 0; w < c.ranks * c.size * c.channels; w++)
            sim_engine_schedule(run->engine, run->begin_ps, SEND, w, 0);
        result = sim_engine_run(run->engine, handle, &c, err, err_len);
    }
    combine_close(&c);
    return result;
}
