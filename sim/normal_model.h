/* sim/normal_model.h - what the two normal-mode models (one node, several) share.
 *
 * Internal to sim/normal*.c. A model run is: one plan, one choice of chunk sizes, one engine.
 * Servers are serial: a request is served after those that asked before it. */
#ifndef SIM_NORMAL_MODEL_H
#define SIM_NORMAL_MODEL_H

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

/* Serve rows that cost row_ps each from now_ps on; returns when the last is through. */
static inline uint64_t normal_serve(struct normal_server *server, uint64_t now_ps, uint64_t rows,
                                    uint64_t row_ps)
{
    const uint64_t start_ps = server->free_ps > now_ps ? server->free_ps : now_ps;
    server->free_ps = start_ps + rows * row_ps;
    server->busy_ps += rows * row_ps;
    server->rows += rows;
    server->stall_ps += start_ps - now_ps;
    return server->free_ps;
}

static inline uint64_t normal_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint64_t normal_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A queue of rows between two blocks: how far each side is. */
struct normal_ring {
    uint32_t rows;   /* In all. */
    uint32_t sent;   /* Copied and published by the sender. */
    uint32_t landed; /* Seen by the receiver. */
    uint32_t head;   /* Freed by the receiver. */
    uint32_t taken;  /* Of which the receiver has begun to copy. */
    bool waiting;    /* The sender waits for the head. */
};

/* One run's numbers, all derived before the first event. */
struct normal_run {
    const struct sim_exchange *exchange;
    const struct normal_plan *plan;
    struct sim_engine *engine;
    uint32_t nvl_chunk, nvl_slots, rdma_chunk, rdma_slots;
    uint64_t row_bytes;
    uint64_t begin_ps; /* All ranks' kernels run from here on (they meet in a barrier). */
    uint64_t *end_ps;  /* [ranks] */
    uint32_t *awaited; /* [ranks] */
    uint64_t *wait_ps; /* [ranks] */
};

/* ceil(bytes * 10^12 / rate), and 0 for a rate of 0 (no such limit). */
uint64_t normal_transfer_ps(uint64_t bytes, uint64_t rate_bytes_per_s);

/* A copy's time while the kernel's SMs share memory: crowd is in thousandths. */
static inline uint64_t normal_crowded(uint64_t ps, uint64_t crowd)
{
    return ps + ps * crowd / 1000;
}

int normal_node_run(const struct normal_run *run, char *err, size_t err_len);
int normal_rail_dispatch_run(const struct normal_run *run, char *err, size_t err_len);
int normal_rail_combine_run(const struct normal_run *run, char *err, size_t err_len);

#endif
