/* sim/normal_rail_dispatch.c - normal dispatch over several nodes: rail, forward, receive.
 *
 * Per channel and rank: seven warps stage tokens in order into one ring per node; a coordinator
 * puts a chunk on the NIC when enough are staged (the own node's ring is local); at the rank with
 * the source's index on that node, one forwarder warp per destination GPU walks the ring, copies
 * the rows that its GPU wants over NVLink, and one receiver warp per forwarder drains them.
 *
 * Every ring has slots and returns them: the rail when all forwarder warps are past a chunk, the
 * NVLink ring when its receiver has copied. An event is a batch of rows, never a row. */
#include <stdio.h>
#include <stdlib.h>
#include "sim/normal_model.h"

enum { STAGED, PUT, RAIL_LAND, FORWARD, NVL_LAND, DRAINED, RAIL_CREDIT };
enum { STAGE_WARPS = 7, EVEN = 0, ODD = 1 };

struct rail { /* (source rank, node, channel) */
    uint32_t rows;
    uint32_t staged;  /* Copied into the ring. */
    uint32_t issued;  /* Handed to the NIC. */
    uint32_t landed;  /* Seen by the forwarders. */
    uint32_t freed;   /* Passed by every forwarder warp, as last told to the source. */
    uint32_t head;    /* The same, as the source knows it. */
    uint64_t land_ps; /* Of the last chunk put: a queue pair delivers in order. */
};

struct stager { /* (rank, channel) */
    uint32_t tokens, begun, done;
    uint64_t put_ps; /* The coordinator is free from here on. */
    bool waiting;
};

struct warp { /* (forwarder rank, channel, destination GPU of its node) */
    uint32_t next_node;
    bool busy, waiting;
};

struct tap {              /* (rail, destination GPU): what its forwarder warp takes from it. */
    uint64_t first;       /* Of its rows in the plan's list of level 1. */
    uint32_t rows, taken; /* In all, and forwarded. */
};

struct dispatch {
    const struct normal_run *run;
    const struct normal_costs *costs;
    uint32_t ranks, channels, nodes, size; /* size: GPUs of a node. */
    struct rail *rails;
    struct stager *stagers;
    struct warp *warps;
    struct normal_ring *rings; /* Like warps. */
    struct tap *taps;          /* [rail][destination GPU] */
    uint32_t *visited;         /* Like taps: rows walked past. */
};

static uint64_t rail_index(const struct dispatch *d, uint32_t source, uint32_t node,
                           uint32_t channel)
{
    return normal_queue_index(&d->run->plan->level0, source, node, channel);
}
static uint64_t warp_index(const struct dispatch *d, uint32_t forwarder, uint32_t gpu,
                           uint32_t channel)
{
    return ((uint64_t)forwarder * d->channels + channel) * d->size + gpu;
}
static uint32_t warp_forwarder(const struct dispatch *d, uint32_t w)
{
    return w / d->size / d->channels;
}
static uint32_t warp_destination(const struct dispatch *d, uint32_t w)
{
    const uint32_t forwarder = warp_forwarder(d, w);
    return forwarder - forwarder % d->size + w % d->size;
}
static uint32_t rail_source(const struct dispatch *d, uint64_t q)
{
    return (uint32_t)q / d->channels / d->nodes;
}
static uint32_t rail_node(const struct dispatch *d, uint64_t q)
{
    return (uint32_t)q / d->channels % d->nodes;
}
static uint32_t rail_forwarder(const struct dispatch *d, uint64_t q)
{
    return rail_node(d, q) * d->size + rail_source(d, q) % d->size;
}

static const uint32_t *rail_positions(const struct dispatch *d, uint64_t q)
{
    return d->run->plan->level0.position + d->run->plan->level0.first[q];
}

/* --- stage and put ------------------------------------------------------------------------- */

/* The next round of tokens, as far as every ring they go to has room. */
static void stage(struct dispatch *d, uint32_t block, uint64_t now_ps)
{
    struct stager *stager = &d->stagers[block];
    const uint32_t source = block / d->channels, channel = block % d->channels;
    uint32_t end = stager->begun + normal_min(STAGE_WARPS, stager->tokens - stager->begun);
    uint32_t copies = 0;

    if (end == stager->begun || stager->begun > stager->done) return;
    for (uint32_t node = 0; node < d->nodes; node++) {
        const uint64_t q = rail_index(d, source, node, channel);
        const struct rail *rail = &d->rails[q];
        const uint32_t full = rail->head + d->run->rdma_slots;
        if (full < rail->rows) end = normal_min(end, rail_positions(d, q)[full]);
    }
    stager->waiting = end <= stager->begun;
    if (stager->waiting) return;
    for (uint32_t node = 0; node < d->nodes; node++) {
        const uint64_t q = rail_index(d, source, node, channel);
        const uint32_t *position = rail_positions(d, q);
        for (uint32_t row = d->rails[q].staged; row < d->rails[q].rows && position[row] < end;
             row++)
            copies++;
    }
    const uint32_t rows = copies + end - stager->begun; /* Each token is read once. */
    stager->begun = end;
    const uint64_t done_ps = normal_work(&d->run->blocks[ODD][block], now_ps, rows,
                                         d->costs->stage_block_ps, d->costs->stage_chain_ps);
    sim_engine_schedule(d->run->engine, done_ps, STAGED, block, end);
}

/* The coordinator hands over whatever makes a chunk, or the tail end. */
static void put(struct dispatch *d, uint32_t block, uint64_t now_ps)
{
    struct stager *stager = &d->stagers[block];
    const uint32_t source = block / d->channels, channel = block % d->channels;
    const uint32_t own = source / d->size;
    for (uint32_t i = 0; i < d->nodes; i++) {
        const uint32_t node = (own + channel + i) % d->nodes;
        const uint64_t q = rail_index(d, source, node, channel);
        struct rail *rail = &d->rails[q];
        while (rail->staged - rail->issued >= d->run->rdma_chunk ||
               (rail->issued < rail->staged && rail->staged == rail->rows)) {
            const uint32_t rows = normal_min(d->run->rdma_chunk, rail->staged - rail->issued);
            const uint64_t start_ps = normal_max(now_ps, stager->put_ps) + d->costs->put_ps;
            stager->put_ps = start_ps;
            rail->issued += rows;
            sim_engine_schedule(d->run->engine, start_ps, PUT, (uint32_t)q,
                                (uint64_t)rows << 32 | rail->issued);
        }
    }
}

static void on_put(struct dispatch *d, uint64_t q, uint64_t payload, uint64_t now_ps)
{
    const uint32_t source = rail_source(d, q);
    const uint32_t rows = (uint32_t)(payload >> 32), landed = (uint32_t)payload;
    uint64_t sent_ps = now_ps, land_ps = now_ps;
    if (rail_forwarder(d, q) != source)
        land_ps = normal_nic(d->run, source, rail_forwarder(d, q), (uint32_t)(q % d->channels),
                             now_ps, rows, &sent_ps);
    d->rails[q].land_ps = land_ps = normal_max(land_ps, d->rails[q].land_ps);
    normal_sent(d->run, source, sent_ps);
    const uint64_t first = d->run->plan->level0.first[q] + landed;
    normal_log(&d->run->rows0, first - rows, first, now_ps, land_ps);
    sim_engine_schedule(d->run->engine, land_ps, RAIL_LAND, (uint32_t)q, landed);
}

static void on_staged(struct dispatch *d, uint32_t block, uint32_t end, uint64_t now_ps)
{
    struct stager *stager = &d->stagers[block];
    const uint32_t source = block / d->channels, channel = block % d->channels;
    stager->done = end;
    for (uint32_t node = 0; node < d->nodes; node++) {
        const uint64_t q = rail_index(d, source, node, channel);
        const uint32_t *position = rail_positions(d, q);
        struct rail *rail = &d->rails[q];
        while (rail->staged < rail->rows && position[rail->staged] < end) rail->staged++;
    }
    normal_sent(d->run, source, now_ps);
    put(d, block, now_ps);
    stage(d, block, now_ps);
}

/* --- forward ------------------------------------------------------------------------------- */

/* Tell the source how far all forwarder warps are, a chunk at a time. */
static void free_rail(struct dispatch *d, uint64_t q, uint64_t now_ps)
{
    struct rail *rail = &d->rails[q];
    uint32_t least = rail->landed;
    for (uint32_t gpu = 0; gpu < d->size; gpu++)
        least = normal_min(least, d->visited[q * d->size + gpu]);
    if (least - rail->freed < d->run->rdma_chunk) return;
    rail->freed = least;
    const bool own = rail_source(d, q) / d->size == rail_node(d, q);
    sim_engine_schedule(d->run->engine,
                        now_ps + (own ? d->costs->poll_ps : d->costs->nic_flight_ps), RAIL_CREDIT,
                        (uint32_t)q, least);
}

/* One warp's next batch: rows of one source node, up to a chunk of those its GPU wants. */
static void forward(struct dispatch *d, uint64_t w, uint64_t now_ps)
{
    struct warp *warp = &d->warps[w];
    struct normal_ring *ring = &d->rings[w];
    const uint32_t gpu = (uint32_t)w % d->size, channel = (uint32_t)w / d->size % d->channels;
    const uint32_t forwarder = warp_forwarder(d, (uint32_t)w), node = forwarder / d->size;
    const uint32_t destination = node * d->size + gpu;
    const bool remote = destination != forwarder;

    if (warp->busy) return;
    for (uint32_t i = 0; i < d->nodes; i++) {
        const uint32_t from = (warp->next_node + i) % d->nodes;
        const uint32_t source = from * d->size + forwarder % d->size;
        const uint64_t q = rail_index(d, source, node, channel);
        uint32_t *visited = &d->visited[q * d->size + gpu];
        const uint32_t landed = d->rails[q].landed;
        if (*visited == landed) continue;
        if (ring->sent + d->run->nvl_chunk > ring->head + d->run->nvl_slots) {
            ring->waiting = true;
            return;
        }
        struct tap *tap = &d->taps[q * d->size + gpu];
        const uint32_t *position = d->run->plan->level1.position + tap->first;
        uint32_t hit = tap->taken;
        while (hit < tap->rows && position[hit] < landed && hit - tap->taken < d->run->nvl_chunk)
            hit++;
        const uint32_t rows = hit - tap->taken;
        const uint32_t end = rows == d->run->nvl_chunk ? position[hit - 1] + 1 : landed;
        const uint64_t start_ps = now_ps + (remote ? d->costs->credit_ps : d->costs->poll_ps) +
                                  (end - *visited) * d->costs->visit_ps;
        const uint32_t block = forwarder * d->channels + channel;
        uint64_t done_ps = normal_work(&d->run->blocks[EVEN][block], start_ps, rows,
                                       d->costs->bulk_block_ps, rows * d->costs->forward_chain_ps);
        if (remote && rows > 0)
            done_ps =
                normal_max(done_ps, normal_link(d->run, forwarder, destination, start_ps, rows));
        done_ps += rows > 0 ? d->costs->publish_ps : 0;
        const uint64_t land_ps = done_ps + (remote ? d->costs->flight_ps : 0);
        normal_log(&d->run->rows1, tap->first + tap->taken, tap->first + hit, start_ps, land_ps);
        tap->taken = hit;
        *visited = end;
        ring->sent += rows;
        warp->busy = true;
        warp->next_node = (from + 1) % d->nodes;
        sim_engine_schedule(d->run->engine, done_ps, FORWARD, (uint32_t)w, q);
        if (rows > 0)
            sim_engine_schedule(d->run->engine, land_ps, NVL_LAND, (uint32_t)w, ring->sent);
        return;
    }
}

static void on_forward(struct dispatch *d, uint64_t w, uint64_t q, uint64_t now_ps)
{
    d->warps[w].busy = false;
    free_rail(d, q, now_ps);
    normal_ended(d->run, warp_forwarder(d, (uint32_t)w), now_ps, rail_source(d, q));
    forward(d, w, now_ps);
}

/* --- receive ------------------------------------------------------------------------------- */

static void drain(struct dispatch *d, uint64_t w, uint64_t now_ps)
{
    struct normal_ring *ring = &d->rings[w];
    const uint32_t rows = ring->landed - ring->taken;
    if (rows == 0 || ring->taken > ring->head) return;
    const uint64_t start_ps = now_ps + d->costs->poll_ps;
    const uint32_t channel = (uint32_t)w / d->size % d->channels;
    const uint32_t block = warp_destination(d, (uint32_t)w) * d->channels + channel;
    const uint64_t done_ps = normal_work(&d->run->blocks[ODD][block], start_ps, rows,
                                         d->costs->bulk_block_ps, rows * d->costs->bulk_chain_ps);
    ring->taken = ring->landed;
    sim_engine_schedule(d->run->engine, done_ps, DRAINED, (uint32_t)w, ring->taken);
}

static void on_drained(struct dispatch *d, uint64_t w, uint32_t head, uint64_t now_ps)
{
    struct normal_ring *ring = &d->rings[w];
    const uint32_t forwarder = warp_forwarder(d, (uint32_t)w);
    const uint32_t destination = warp_destination(d, (uint32_t)w);
    ring->head = head;
    normal_ended(d->run, destination, now_ps, forwarder);
    if (ring->waiting && ring->sent + d->run->nvl_chunk <= ring->head + d->run->nvl_slots) {
        ring->waiting = false;
        forward(d, w, now_ps + (forwarder != destination ? d->costs->flight_ps : 0));
    }
    drain(d, w, now_ps);
}

static void on_rail_land(struct dispatch *d, uint64_t q, uint32_t landed, uint64_t now_ps)
{
    const uint32_t channel = (uint32_t)(q % d->channels);
    d->rails[q].landed = landed;
    /* Eight lists far apart: ask for all before the first is read. */
    for (uint32_t gpu = 0; gpu < d->size; gpu++) {
        const struct tap *tap = &d->taps[q * d->size + gpu];
        __builtin_prefetch(d->run->plan->level1.position + tap->first + tap->taken);
    }
    for (uint32_t gpu = 0; gpu < d->size; gpu++)
        forward(d, warp_index(d, rail_forwarder(d, q), gpu, channel),
                now_ps + d->nodes * d->costs->poll_ps);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct dispatch *d = (struct dispatch *)model;
    const uint64_t now_ps = event->time_ps;
    (void)engine;
    switch (event->kind) {
    case STAGED: on_staged(d, event->target, (uint32_t)event->payload, now_ps); break;
    case PUT: on_put(d, event->target, event->payload, now_ps); break;
    case RAIL_LAND: on_rail_land(d, event->target, (uint32_t)event->payload, now_ps); break;
    case FORWARD: on_forward(d, event->target, event->payload, now_ps); break;
    case NVL_LAND:
        d->rings[event->target].landed = (uint32_t)event->payload;
        drain(d, event->target, now_ps);
        break;
    case DRAINED: on_drained(d, event->target, (uint32_t)event->payload, now_ps); break;
    case RAIL_CREDIT: {
        d->rails[event->target].head = (uint32_t)event->payload;
        const uint32_t block =
            rail_source(d, event->target) * d->channels + event->target % d->channels;
        if (d->stagers[block].waiting) stage(d, block, now_ps);
        break;
    }
    default: assert(0);
    }
}

static int dispatch_open(struct dispatch *d)
{
    const struct normal_plan *plan = d->run->plan;
    const size_t blocks = (size_t)d->ranks * d->channels;
    const size_t rails = blocks * d->nodes, warps = blocks * d->size;
    d->rails = (struct rail *)calloc(rails, sizeof *d->rails);
    d->stagers = (struct stager *)calloc(blocks, sizeof *d->stagers);
    d->warps = (struct warp *)calloc(warps, sizeof *d->warps);
    d->rings = (struct normal_ring *)calloc(warps, sizeof *d->rings);
    d->visited = (uint32_t *)calloc(rails * d->size, sizeof *d->visited);
    d->taps = (struct tap *)calloc(rails * d->size, sizeof *d->taps);
    if (!d->rails || !d->stagers || !d->warps || !d->rings || !d->visited || !d->taps) return -1;
    assert(rails < UINT32_MAX && warps < UINT32_MAX);
    for (size_t q = 0; q < rails; q++)
        d->rails[q].rows = (uint32_t)(plan->level0.first[q + 1] - plan->level0.first[q]);
    for (size_t t = 0; t < rails * d->size; t++) {
        const uint32_t q = (uint32_t)(t / d->size), node = rail_node(d, q);
        const uint64_t q1 =
            normal_queue_index(&plan->level1, rail_source(d, q),
                               node * d->size + (uint32_t)(t % d->size), q % d->channels);
        d->taps[t].first = plan->level1.first[q1];
        d->taps[t].rows = (uint32_t)(plan->level1.first[q1 + 1] - plan->level1.first[q1]);
    }
    for (uint32_t b = 0; b < blocks; b++) {
        d->stagers[b].tokens =
            normal_span(plan->tokens[b / d->channels], d->channels, b % d->channels);
        d->stagers[b].put_ps = d->run->begin_ps;
        if (d->stagers[b].tokens > 0)
            sim_engine_schedule(d->run->engine, d->run->begin_ps, STAGED, b, 0);
    }
    return 0;
}

static void dispatch_close(struct dispatch *d)
{
    free(d->rails);
    free(d->stagers);
    free(d->warps);
    free(d->rings);
    free(d->visited);
    free(d->taps);
}

/* Nothing is left on the way: what was listed was staged, forwarded and drained. */
static void assert_empty(const struct dispatch *d)
{
    const uint64_t blocks = (uint64_t)d->ranks * d->channels;
    for (uint64_t q = 0; q < blocks * d->nodes; q++) assert(d->rails[q].landed == d->rails[q].rows);
    for (uint64_t t = 0; t < blocks * d->nodes * d->size; t++)
        assert(d->taps[t].taken == d->taps[t].rows);
    for (uint64_t w = 0; w < blocks * d->size; w++) assert(d->rings[w].head == d->rings[w].sent);
}

int normal_rail_dispatch_run(const struct normal_run *run, char *err, size_t err_len)
{
    struct dispatch d = {.run = run,
                         .costs = &run->costs,
                         .ranks = run->plan->ranks,
                         .channels = run->plan->channels,
                         .nodes = run->plan->nodes,
                         .size = run->plan->ranks_per_node};
    int result = dispatch_open(&d);
    if (result != 0)
        snprintf(err, err_len, "normal mode: no memory for %u channels", d.channels);
    else
        result = sim_engine_run(run->engine, handle, &d, err, err_len);
    if (result == 0) assert_empty(&d);
    dispatch_close(&d);
    return result;
}
