/* sim/normal_model.h - what the two normal-mode models (one node, several) share.
 *
 * Internal to sim/normal*.c. A run is one plan, one choice of chunk sizes, one engine. Servers
 * are serial: a request is served after those that asked before it. */
#ifndef SIM_NORMAL_MODEL_H
#define SIM_NORMAL_MODEL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include "sim/exchange.h"
#include "sim/normal_plan.h"

/* A block's copy throughput, a link direction or a NIC: busy until, and what it did. */
struct normal_server {
    uint64_t free_ps;
    uint64_t busy_ps;
    uint64_t rows;
    uint64_t stall_ps;
    uint64_t queue_peak;
};

/* Serve rows that cost row_ps each, and fixed_ps once, from now_ps on; returns when the last is
 * through. */
static inline uint64_t normal_serve(struct normal_server *server, uint64_t now_ps, uint64_t rows,
                                    uint64_t row_ps, uint64_t fixed_ps)
{
    const uint64_t work_ps = rows * row_ps + fixed_ps;
    const uint64_t wait_ps = server->free_ps > now_ps ? server->free_ps - now_ps : 0;
    server->free_ps = now_ps + wait_ps + work_ps;
    server->busy_ps += work_ps;
    server->rows += rows;
    if (wait_ps > 0) { /* The backlog in requests of this one's size. */
        server->stall_ps += wait_ps;
        const uint64_t ahead = work_ps > 0 ? (wait_ps + work_ps - 1) / work_ps : 1;
        if (ahead > server->queue_peak) server->queue_peak = ahead;
    }
    return server->free_ps;
}

/* Work of a block's warps: chain_ps is what they need by themselves, one row after another, row_ps
 * what a row takes of the block's throughput. Returns when the work is done.
 *
 * Sums, partial sums and single warps (normal_work) wait for their turn and then run their chain;
 * a group of warps on a long chunk (normal_shared_work) runs its chain while others' work passes
 * in between. Both end no earlier than the block has served them. */
static inline uint64_t normal_work(struct normal_server *block, uint64_t now_ps, uint64_t rows,
                                   uint64_t row_ps, uint64_t chain_ps)
{
    const uint64_t end_ps = normal_serve(block, now_ps, rows, row_ps, 0);
    const uint64_t chained_ps = end_ps - rows * row_ps + chain_ps;
    return chained_ps > end_ps ? chained_ps : end_ps;
}
static inline uint64_t normal_shared_work(struct normal_server *block, uint64_t now_ps,
                                          uint64_t rows, uint64_t row_ps, uint64_t chain_ps)
{
    const uint64_t end_ps = normal_serve(block, now_ps, rows, row_ps, 0);
    return now_ps + chain_ps > end_ps ? now_ps + chain_ps : end_ps;
}

static inline uint64_t normal_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint32_t normal_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A queue of rows between two blocks, and how far each side is: head <= taken <= landed <=
 * sent <= rows. */
struct normal_ring {
    uint32_t rows;   /* In all. */
    uint32_t sent;   /* Copied and published by the sender. */
    uint32_t landed; /* Seen by the receiver. */
    uint32_t taken;  /* The receiver has begun with them. */
    uint32_t head;   /* Freed by the receiver. */
    bool waiting;    /* The sender waits for the head. */
    uint64_t first;  /* Its rows in the plan's list, where the model keeps that here. */
};

/* One rank's last moments. */
struct normal_rank {
    uint64_t sent_ps;  /* Its senders are done. */
    uint64_t end_ps;   /* All its warps are done. */
    uint64_t other_ps; /* The same, but for the rank it waited for last. */
    uint32_t awaited;
};

/* When each row of one level of queues left and landed, in the order of the plan. */
struct normal_rows {
    uint64_t *depart_ps, *land_ps; /* NULL: nobody asked. */
};

enum { NORMAL_LINK_OUT, NORMAL_LINK_IN, NORMAL_NIC_OUT, NORMAL_NIC_IN, NORMAL_USES };

/* Everything the models compute with, derived before the first event. Per row unless the name
 * says otherwise; chain: one warp by itself; block: all warps of a block, per row. */
struct normal_costs {
    uint64_t poll_ps, publish_ps, credit_ps, scan_ps, put_ps, visit_ps;
    bool nvlink;                                /* Within a node; else NICs. */
    uint64_t link_ps, flight_ps;                /* NVLink; flight: of whatever connects a node. */
    uint64_t nic_ps, message_ps, nic_flight_ps; /* NIC; message_ps: per put, rows and tail. */
    uint64_t row_bytes;
    uint64_t send_chain_ps, send_block_ps;   /* Dispatch on one node, combine: sender. */
    uint64_t stage_chain_ps, stage_block_ps; /* Several nodes, dispatch: into the rail. */
    uint64_t bulk_chain_ps, bulk_block_ps;   /* Dispatch: receivers, and forwarders' blocks. */
    uint64_t forward_chain_ps;               /* Dispatch, several nodes: a forwarder's warp. */
    uint64_t sum_chain_ps, sum_block_ps;     /* Combine: a token at home; a contribution. */
    uint64_t merge_chain_ps, merge_block_ps; /* The same at the forwarder. */
};

struct normal_run {
    const struct normal_plan *plan;
    struct sim_engine *engine;
    bool combine;
    uint64_t begin_ps; /* All kernels run from here on: they meet in a barrier. */
    uint32_t nvl_chunk, nvl_slots, rdma_chunk, rdma_slots;
    struct normal_costs costs;
    struct fabric_network *network;          /* NULL: ideal. */
    struct normal_rank *ranks;               /* [ranks] */
    struct normal_server *uses[NORMAL_USES]; /* [ranks] each. */
    struct normal_server *blocks[2];         /* [ranks * channels]: even and odd blocks. */
    struct normal_rows rows0, rows1;         /* By level of the plan. */
};

static inline void normal_ended(const struct normal_run *run, uint32_t rank, uint64_t time_ps,
                                uint32_t whom)
{
    struct normal_rank *r = &run->ranks[rank];
    if (whom == r->awaited) {
        r->end_ps = normal_max(r->end_ps, time_ps);
    } else if (time_ps > r->end_ps) {
        r->other_ps = r->end_ps;
        r->end_ps = time_ps;
        r->awaited = whom;
    } else {
        r->other_ps = normal_max(r->other_ps, time_ps);
    }
}

static inline void normal_sent(const struct normal_run *run, uint32_t rank, uint64_t time_ps)
{
    run->ranks[rank].sent_ps = normal_max(run->ranks[rank].sent_ps, time_ps);
    normal_ended(run, rank, time_ps, rank);
}

static inline void normal_log(const struct normal_rows *log, uint64_t first, uint64_t end,
                              uint64_t depart_ps, uint64_t land_ps)
{
    if (!log->land_ps) return;
    for (uint64_t row = first; row < end; row++) {
        log->depart_ps[row] = depart_ps;
        log->land_ps[row] = land_ps;
    }
}

/* Both NICs of a fabric that is not ideal, from now_ps on: as normal_nic without the flight. */
static inline uint64_t normal_networked(const struct normal_run *run, uint32_t source,
                                        uint32_t destination, uint32_t flow, uint64_t now_ps,
                                        uint32_t rows, uint64_t *sent_ps)
{
    struct fabric_network *network = run->network;
    struct normal_server *out = &run->uses[NORMAL_NIC_OUT][source];
    struct normal_server *in = &run->uses[NORMAL_NIC_IN][destination];
    const uint64_t row_ps = run->costs.nic_ps, fixed_ps = run->costs.message_ps;
    out->free_ps = fabric_network_free_ps(network, source, true, out->free_ps, now_ps);
    const uint64_t ready_ps = normal_max(now_ps, out->free_ps);
    const uint64_t hold_ps = fabric_network_hold_ps(network, source, destination, now_ps, ready_ps);
    if (hold_ps > ready_ps) out->free_ps = hold_ps;
    *sent_ps = normal_serve(out, now_ps, rows, row_ps, fixed_ps);
    const uint64_t first_ps = *sent_ps - rows * row_ps;
    const uint64_t delay_ps = fabric_network_cross(network, source, destination, flow, now_ps,
                                                   first_ps, *sent_ps, rows * run->costs.row_bytes);
    in->free_ps = fabric_network_free_ps(network, destination, false, in->free_ps, now_ps);
    const uint64_t in_ps = normal_serve(in, now_ps, rows, row_ps, fixed_ps);
    return normal_max(*sent_ps + delay_ps, in_ps);
}

/* Both ends of the way between two ranks of a node, from start_ps on; when the last row is through.
 * Without NVLink that way is their NICs. */
static inline uint64_t normal_link(const struct normal_run *run, uint32_t source,
                                   uint32_t destination, uint64_t start_ps, uint32_t rows)
{
    const struct normal_costs *costs = &run->costs;
    const uint64_t row_ps = costs->nvlink ? costs->link_ps : costs->nic_ps;
    const uint64_t fixed_ps = costs->nvlink ? 0 : costs->message_ps;
    const int out = costs->nvlink ? NORMAL_LINK_OUT : NORMAL_NIC_OUT;
    const int in = costs->nvlink ? NORMAL_LINK_IN : NORMAL_NIC_IN;
    assert(source != destination);
    if (run->network && !costs->nvlink) {
        uint64_t sent_ps;
        return normal_networked(run, source, destination, 0, start_ps, rows, &sent_ps);
    }
    const uint64_t out_ps = normal_serve(&run->uses[out][source], start_ps, rows, row_ps, fixed_ps);
    const uint64_t in_ps =
        normal_serve(&run->uses[in][destination], start_ps, rows, row_ps, fixed_ps);
    return normal_max(out_ps, in_ps);
}

/* Both NICs, from now_ps on; when the chunk and its tail are in the far memory. *sent_ps: the
 * near NIC is done. A channel has its own queue pair. */
static inline uint64_t normal_nic(const struct normal_run *run, uint32_t source,
                                  uint32_t destination, uint32_t channel, uint64_t now_ps,
                                  uint32_t rows, uint64_t *sent_ps)
{
    assert(source != destination);
    if (run->network)
        return normal_networked(run, source, destination, channel, now_ps, rows, sent_ps) +
               run->costs.nic_flight_ps;
    *sent_ps = normal_serve(&run->uses[NORMAL_NIC_OUT][source], now_ps, rows, run->costs.nic_ps,
                            run->costs.message_ps);
    const uint64_t in_ps = normal_serve(&run->uses[NORMAL_NIC_IN][destination], now_ps, rows,
                                        run->costs.nic_ps, run->costs.message_ps);
    return normal_max(*sent_ps, in_ps) + run->costs.nic_flight_ps;
}

/* Fill *costs for the exchange's rows (sim/normal_costs.c). */
void normal_costs_init(struct normal_costs *costs, const struct sim_exchange *exchange);
/* The count exchange between the last rank's launch and the kernels' begin; 0 on one node, where
 * it is part of the call. */
uint64_t normal_exchange_ps(const struct sim_exchange *exchange, const struct normal_plan *plan);
/* What the kernel takes beyond its rows. */
uint64_t normal_kernel_ps(const struct sim_exchange *exchange, uint32_t nodes);

/* Set the run's chunk and ring sizes (sim/normal_chunks.c). 0, or -1 with err (memory). */
int normal_choose_chunks(const struct sim_exchange *exchange, struct normal_run *run, char *err,
                         size_t err_len);

/* Memory of a run whose plan is set; rows: keep each row's times (sim/normal_run.c). Close after
 * open even when it failed. */
int normal_run_open(struct normal_run *run, bool rows, char *err, size_t err_len);
void normal_run_close(struct normal_run *run);
/* Reset the engine and run the kernel on it. 0, or -1 with err (memory). */
int normal_run_kernel(const struct normal_run *run, char *err, size_t err_len);
int normal_node_run(const struct normal_run *run, char *err, size_t err_len);
int normal_rail_dispatch_run(const struct normal_run *run, char *err, size_t err_len);
int normal_rail_combine_run(const struct normal_run *run, char *err, size_t err_len);

#endif
