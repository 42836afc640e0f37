/* sim/normal_rail_combine.c - normal combine over several nodes: the mirror of dispatch.
 *
 * Per channel and rank: one sender warp per forwarder of the node copies its rows over NVLink,
 * taking the home nodes in turn (a ring per home node, so that none can block another); the
 * forwarder's warps of a home node add up each token's rows, chunk by chunk, and put the chunk
 * of partial sums on the NIC; the home rank's warps add up the nodes' partial sums. */
#include <stdio.h>
#include <stdlib.h>
#include "sim/normal_model.h"

enum { SEND, NVL_LAND, SUMMED, PUT, RAIL_LAND, RAIL_CREDIT, HOME_SUMMED };
enum { FORWARD_WARPS = 24, HOME_WARPS = 16, EVEN = 0, ODD = 1 };

struct rail { /* (home rank, node, channel): partial sums from that node's forwarder. */
    uint32_t rows;
    uint32_t begun;   /* Sums started at the forwarder. */
    uint32_t summed;  /* Finished. */
    uint32_t flying;  /* Started, not finished. */
    uint32_t landed;  /* Partial sums at home. */
    uint32_t head;    /* Slots freed, as the forwarder knows. */
    uint32_t told;    /* Slots freed, as last told. */
    bool waiting;     /* The forwarder waits for slots. */
    bool putting;     /* A finished chunk is being handed to the NIC. */
    uint64_t land_ps; /* Of the last chunk put: a queue pair delivers in order. */
};

struct home { /* (home rank, channel) */
    uint32_t begun, flying, done;
    uint32_t last; /* Whose partial sums landed last. */
};

struct warp { /* (sender rank, forwarder GPU of its node, channel) */
    uint32_t next_node;
    bool busy;
};

struct combine {
    const struct normal_run *run;
    const struct normal_costs *costs;
    uint32_t ranks, channels, nodes, size, warps_per_node;
    struct rail *rails;
    struct home *homes;
    struct warp *warps;
    struct normal_ring *rings; /* [rail][GPU of the rail's node]: what that GPU sends it. */
    uint32_t *lacking;         /* Like rings: the first row of the rail that has yet to land. */
    uint32_t *held;            /* Like rings: the row that the ring's next slot to free is of. */
    uint8_t *parts;            /* Per row of a rail: GPUs that contribute. */
    uint32_t *taken_home;      /* Per rail: partial sums whose token is begun at home. */
};

static uint64_t rail_index(const struct combine *c, uint32_t home, uint32_t node, uint32_t channel)
{
    return normal_queue_index(&c->run->plan->level0, home, node, channel);
}
/* The plan's queue behind a ring: (home rank, sender rank, channel). */
static uint64_t ring_queue(const struct combine *c, uint64_t ring)
{
    const uint32_t q = (uint32_t)(ring / c->size), gpu = (uint32_t)(ring % c->size);
    const uint32_t node = q / c->channels % c->nodes, home = q / c->channels / c->nodes;
    return normal_queue_index(&c->run->plan->level1, home, node * c->size + gpu, q % c->channels);
}
/* The row of the rail that row n of the ring is of; UINT32_MAX behind the last. */
static uint32_t ring_row(const struct combine *c, const struct normal_ring *ring, uint32_t n)
{
    return n == ring->rows ? UINT32_MAX : c->run->plan->level1.position[ring->first + n];
}
static uint32_t rail_home(const struct combine *c, uint64_t q)
{
    return (uint32_t)q / c->channels / c->nodes;
}
static uint32_t rail_forwarder(const struct combine *c, uint64_t q)
{
    return (uint32_t)q / c->channels % c->nodes * c->size + rail_home(c, q) % c->size;
}

/* --- send ---------------------------------------------------------------------------------- */

/* A sender warp's next chunk: the next home node in turn with rows left and slots free. */
static void send(struct combine *c, uint64_t w, uint64_t now_ps)
{
    struct warp *warp = &c->warps[w];
    const uint32_t channel = (uint32_t)w % c->channels, pair = (uint32_t)w / c->channels;
    const uint32_t sender = pair / c->size;
    const uint32_t forwarder = sender - sender % c->size + pair % c->size;
    const bool remote = sender != forwarder;
    const uint32_t slots = c->run->nvl_slots / c->nodes;

    if (warp->busy) return;
    for (uint32_t i = 0; i < c->nodes; i++) {
        const uint32_t node = (warp->next_node + i) % c->nodes;
        const uint32_t home = node * c->size + forwarder % c->size;
        const uint64_t r =
            rail_index(c, home, sender / c->size, channel) * c->size + sender % c->size;
        struct normal_ring *ring = &c->rings[r];
        const uint32_t rows =
            normal_min(normal_min(c->run->nvl_chunk, slots), ring->rows - ring->sent);
        if (rows == 0 || ring->sent + rows > ring->head + slots) continue;
        const uint64_t start_ps = now_ps + (remote ? c->costs->credit_ps : c->costs->poll_ps);
        const uint32_t block = sender * c->channels + channel;
        uint64_t done_ps = normal_work(&c->run->blocks[EVEN][block], start_ps, rows,
                                       c->costs->send_block_ps, rows * c->costs->send_chain_ps);
        if (remote)
            done_ps = normal_max(done_ps, normal_link(c->run, sender, forwarder, start_ps, rows));
        done_ps += c->costs->publish_ps;
        const uint64_t land_ps = done_ps + (remote ? c->costs->flight_ps : 0);
        const uint64_t first = ring->first + ring->sent;
        normal_log(&c->run->rows1, first, first + rows, start_ps, land_ps);
        ring->sent += rows;
        warp->busy = true;
        warp->next_node = (node + 1) % c->nodes;
        sim_engine_schedule(c->run->engine, done_ps, SEND, (uint32_t)w, 0);
        sim_engine_schedule(c->run->engine, land_ps, NVL_LAND, (uint32_t)r, ring->sent);
        return;
    }
}

/* --- forward ------------------------------------------------------------------------------- */

/* The first row of the rail that still lacks a contribution. */
static uint32_t whole_rows(const struct combine *c, uint64_t q)
{
    uint32_t whole = c->rails[q].rows;
    for (uint32_t gpu = 0; gpu < c->size; gpu++)
        whole = normal_min(whole, c->lacking[q * c->size + gpu]);
    return whole;
}

static uint32_t count_parts(const struct combine *c, uint64_t q, uint32_t from, uint32_t end)
{
    const uint8_t *parts = c->parts + c->run->plan->level0.first[q];
    uint32_t count = 0;
    for (uint32_t row = from; row < end; row++) count += parts[row];
    return count;
}

/* Start as many sums of the present chunk as have landed and find a warp. */
static void sum(struct combine *c, uint64_t q, uint64_t now_ps)
{
    struct rail *rail = &c->rails[q];
    const uint32_t chunk = c->run->rdma_chunk;
    const uint32_t chunk_start = rail->summed / chunk * chunk;
    const uint32_t chunk_end = normal_min(chunk_start + chunk, rail->rows);
    if (rail->putting || rail->begun >= chunk_end) return;
    if (chunk_end > rail->head + c->run->rdma_slots) {
        rail->waiting = true;
        return;
    }
    rail->waiting = false;
    const uint32_t whole = normal_min(whole_rows(c, q), chunk_end);
    if (whole <= rail->begun) return;
    const uint32_t tokens = normal_min(whole - rail->begun, c->warps_per_node - rail->flying);
    if (tokens == 0) return;
    const uint32_t parts = count_parts(c, q, rail->begun, rail->begun + tokens);
    rail->begun += tokens;
    rail->flying += tokens;
    const uint64_t start_ps = now_ps + c->costs->poll_ps;
    const uint32_t block = rail_forwarder(c, q) * c->channels + (uint32_t)(q % c->channels);
    const uint64_t done_ps = normal_work(&c->run->blocks[ODD][block], start_ps, parts + tokens,
                                         c->costs->merge_block_ps, c->costs->merge_chain_ps);
    sim_engine_schedule(c->run->engine, done_ps, SUMMED, (uint32_t)q,
                        (uint64_t)tokens << 32 | rail->begun);
}

static void free_ring(struct combine *c, uint64_t q, uint32_t end, uint64_t now_ps)
{
    const uint32_t channel = (uint32_t)q % c->channels, forwarder = rail_forwarder(c, q);
    const uint32_t first = forwarder - forwarder % c->size;
    for (uint32_t gpu = 0; gpu < c->size; gpu++) {
        const uint64_t r = q * c->size + gpu;
        const uint32_t sender = first + gpu;
        if (c->held[r] >= end) continue;
        while (c->held[r] < end) c->held[r] = ring_row(c, &c->rings[r], ++c->rings[r].head);
        send(c, ((uint64_t)sender * c->size + forwarder % c->size) * c->channels + channel,
             now_ps + (sender != forwarder ? c->costs->flight_ps : 0));
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
        sim_engine_schedule(c->run->engine, now_ps + c->costs->put_ps, PUT, (uint32_t)q,
                            (uint64_t)(rail->summed - start) << 32 | rail->summed);
        return; /* The warps meet before the put; the next chunk starts after it. */
    }
    sum(c, q, now_ps);
}

static void on_put(struct combine *c, uint64_t q, uint64_t payload, uint64_t now_ps)
{
    const uint32_t home = rail_home(c, q), forwarder = rail_forwarder(c, q);
    const uint32_t rows = (uint32_t)(payload >> 32), landed = (uint32_t)payload;
    uint64_t sent_ps = now_ps, land_ps = now_ps;
    c->rails[q].putting = false;
    if (home != forwarder)
        land_ps = normal_nic(c->run, forwarder, home, (uint32_t)(q % c->channels), now_ps, rows,
                             &sent_ps);
    c->rails[q].land_ps = land_ps = normal_max(land_ps, c->rails[q].land_ps);
    normal_sent(c->run, forwarder, sent_ps);
    const uint64_t first = c->run->plan->level0.first[q] + landed;
    normal_log(&c->run->rows0, first - rows, first, now_ps, land_ps);
    sim_engine_schedule(c->run->engine, land_ps, RAIL_LAND, (uint32_t)q, landed);
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
            whole = normal_min(whole, level0->position[level0->first[q] + rail->landed]);
    }
    if (whole <= home->begun) return;
    const uint32_t tokens = normal_min(whole - home->begun, HOME_WARPS - home->flying);
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
    const uint64_t start_ps = now_ps + c->costs->poll_ps;
    const uint64_t done_ps = normal_work(&c->run->blocks[EVEN][block], start_ps, parts + tokens,
                                         c->costs->sum_block_ps, c->costs->sum_chain_ps);
    sim_engine_schedule(c->run->engine, done_ps, HOME_SUMMED, block,
                        (uint64_t)tokens << 32 | home->begun);
}

static void on_home_summed(struct combine *c, uint32_t block, uint64_t payload, uint64_t now_ps)
{
    const struct normal_queues *level0 = &c->run->plan->level0;
    const uint32_t rank = block / c->channels, channel = block % c->channels;
    struct home *home = &c->homes[block];
    home->flying -= (uint32_t)(payload >> 32);
    home->done = (uint32_t)payload;
    normal_ended(c->run, rank, now_ps, home->last);
    for (uint32_t node = 0; node < c->nodes; node++) {
        const uint64_t q = rail_index(c, rank, node, channel);
        struct rail *rail = &c->rails[q];
        const uint32_t *position = level0->position + level0->first[q];
        uint32_t freed = rail->told;
        while (freed < rail->rows && position[freed] < home->done) freed++;
        if (freed - rail->told < c->run->rdma_chunk) continue;
        rail->told = freed;
        sim_engine_schedule(
            c->run->engine,
            now_ps + (node == rank / c->size ? c->costs->poll_ps : c->costs->nic_flight_ps),
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
        normal_sent(c->run, target / c->channels / c->size, now_ps);
        send(c, target, now_ps);
        break;
    case NVL_LAND:
        c->rings[target].landed = (uint32_t)event->payload;
        c->lacking[target] = ring_row(c, &c->rings[target], (uint32_t)event->payload);
        sum(c, target / c->size, now_ps);
        break;
    case SUMMED: on_summed(c, target, event->payload, now_ps); break;
    case PUT: on_put(c, target, event->payload, now_ps); break;
    case RAIL_LAND:
        c->rails[target].landed = (uint32_t)event->payload;
        c->homes[rail_home(c, target) * c->channels + target % c->channels].last =
            rail_forwarder(c, target);
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

/* Where every ring begins, and who contributes to every row. */
static void open_rings(struct combine *c)
{
    const struct normal_plan *plan = c->run->plan;
    const uint64_t rails = (uint64_t)c->ranks * c->channels * c->nodes;
    for (uint64_t r = 0; r < rails * c->size; r++) {
        const uint64_t *first = &plan->level1.first[ring_queue(c, r)];
        uint8_t *parts = c->parts + plan->level0.first[r / c->size];
        c->rings[r].rows = (uint32_t)(first[1] - first[0]);
        c->rings[r].first = first[0];
        c->lacking[r] = c->held[r] = ring_row(c, &c->rings[r], 0);
        for (uint64_t row = first[0]; row < first[1]; row++) parts[plan->level1.position[row]]++;
    }
}

static int combine_open(struct combine *c)
{
    const struct normal_plan *plan = c->run->plan;
    const size_t blocks = (size_t)c->ranks * c->channels;
    const size_t rails = blocks * c->nodes, rings = rails * c->size;
    c->rails = (struct rail *)calloc(rails, sizeof *c->rails);
    c->homes = (struct home *)calloc(blocks, sizeof *c->homes);
    c->warps = (struct warp *)calloc(blocks * c->size, sizeof *c->warps);
    c->rings = (struct normal_ring *)calloc(rings, sizeof *c->rings);
    c->lacking = (uint32_t *)calloc(2 * rings, sizeof *c->lacking);
    c->parts = (uint8_t *)calloc(plan->level0.first[rails] + 1, 1);
    c->taken_home = (uint32_t *)calloc(rails, sizeof *c->taken_home);
    if (!c->rails || !c->homes || !c->warps || !c->rings || !c->lacking || !c->parts ||
        !c->taken_home)
        return -1;
    assert(rails < UINT32_MAX && rings < UINT32_MAX && c->size <= UINT8_MAX);
    c->held = c->lacking + rings;
    for (size_t q = 0; q < rails; q++)
        c->rails[q].rows = (uint32_t)(plan->level0.first[q + 1] - plan->level0.first[q]);
    open_rings(c);
    for (uint32_t w = 0; w < blocks * c->size; w++)
        sim_engine_schedule(c->run->engine, c->run->begin_ps, SEND, w, 0);
    return 0;
}

static void combine_close(struct combine *c)
{
    free(c->rails);
    free(c->homes);
    free(c->warps);
    free(c->rings);
    free(c->lacking);
    free(c->parts);
    free(c->taken_home);
}

/* Nothing is left on the way. */
static void assert_empty(const struct combine *c)
{
    const uint64_t blocks = (uint64_t)c->ranks * c->channels;
    for (uint64_t q = 0; q < blocks * c->ranks; q++) assert(c->rings[q].head == c->rings[q].rows);
    for (uint64_t q = 0; q < blocks * c->nodes; q++) {
        assert(c->rails[q].landed == c->rails[q].rows);
        assert(c->taken_home[q] == c->rails[q].rows);
    }
}

int normal_rail_combine_run(const struct normal_run *run, char *err, size_t err_len)
{
    struct combine c = {.run = run,
                        .costs = &run->costs,
                        .ranks = run->plan->ranks,
                        .channels = run->plan->channels,
                        .nodes = run->plan->nodes,
                        .size = run->plan->ranks_per_node,
                        .warps_per_node = 1};
    if (c.nodes < FORWARD_WARPS) c.warps_per_node = FORWARD_WARPS / c.nodes;
    int result = combine_open(&c);
    if (result != 0)
        snprintf(err, err_len, "normal mode: no memory for %u channels", c.channels);
    else
        result = sim_engine_run(run->engine, handle, &c, err, err_len);
    if (result == 0) assert_empty(&c);
    combine_close(&c);
    return result;
}
