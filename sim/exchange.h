/* sim/exchange.h - the time of one dispatch or combine on a machine.
 *
 * Both protocols (sim/ll.c, sim/normal.c) have this shape: they are told when each rank's
 * kernel is launched and answer when every message lands and when each rank's kernel ends.
 * They run on an engine (reset first) and never touch data. */
#ifndef SIM_EXCHANGE_H
#define SIM_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "fabric/network.h"
#include "sim/engine.h"
#include "sim/traffic.h"

struct sim_exchange {
    const struct fabric_machine *machine; /* Borrowed for the call. */
    const struct sim_traffic *traffic;    /* Borrowed for the call. */
    /* Borrowed; checked against the machine. NULL: the fabric between the NICs is ideal. */
    const struct fabric_network_shape *network;
    enum sim_direction direction;
    uint32_t hidden;          /* Channels a row carries. */
    uint32_t sms;             /* Normal mode: SMs of the kernel, even. LL takes its own grid. */
    uint32_t qp_depth;        /* LL: work requests a queue pair holds. */
    uint32_t nvl_chunk;       /* Normal: rows per NVLink chunk; 0 = the library's table. */
    uint32_t rdma_chunk;      /* Normal, several nodes: rows per RDMA chunk; 0 = the table. */
    bool hook;                /* LL: send and receive are two launches (hook mode). */
    bool best_chunk;          /* Normal: take the best of the library's tuning range. */
    const uint64_t *start_ps; /* [ranks] launch instants. */
    /* [ranks] hook mode: when the receive half is launched, at the earliest; NULL: at once. */
    const uint64_t *recv_start_ps;
    uint64_t pause_ps; /* Hook mode: other work between a rank's halves, behind its send half. */
};

/* Does the exchange go through a fabric that is not ideal? */
static inline bool sim_exchange_networked(const struct sim_exchange *exchange)
{
    return exchange->network != NULL && exchange->machine->nic_goodput_bytes_per_s > 0 &&
           fabric_network_asked(exchange->network);
}

/* The first launch. */
static inline uint64_t sim_exchange_begin_ps(const struct sim_exchange *exchange, uint32_t ranks)
{
    uint64_t first_ps = exchange->start_ps[0];
    for (uint32_t r = 1; r < ranks; r++)
        if (exchange->start_ps[r] < first_ps) first_ps = exchange->start_ps[r];
    return first_ps;
}

struct sim_resource_use {
    char name[32]; /* "rank3.nvlink.out", "rank0.nic.in", "rank0.sm", "rank2.qp" ... */
    char kind[12]; /* link | nic | qp | sm_pool | hbm | switch */
    uint64_t busy_ps;
    uint64_t bytes;
    uint64_t queue_peak; /* Most requests waiting at once. */
    uint64_t stall_ps;   /* Time somebody waited for it. */
};

/* Everything is sized by sim_timing_open for one number of ranks and messages. */
struct sim_timing {
    uint64_t message_max;
    uint32_t ranks;
    uint64_t *land_ps;   /* [messages]: when message i of the direction is wholly there. */
    uint64_t *depart_ps; /* [messages]: when its first byte left. */
    uint64_t *end_ps;    /* [ranks]: the kernel (both phases) has ended. */
    uint64_t *send_ps;   /* [ranks]: duration of the send half (hook mode: its launch). */
    uint64_t *recv_ps;   /* [ranks]: duration of the receive half, waiting included. */
    uint64_t *notify_ps; /* [ranks]: duration of the count exchange before it (normal), or 0. */
    uint32_t *awaited;   /* [ranks]: whom the rank waited for last; itself when nobody. */
    uint64_t *wait_ps;   /* [ranks]: how long it sat waiting for that rank. */
    uint32_t resource_count;
    uint32_t resource_max;
    struct sim_resource_use *resources;
    uint64_t floor_ps;              /* No schedule on this machine can be faster than this. */
    uint32_t nvl_chunk, rdma_chunk; /* Normal: the sizes used; rdma_chunk only between nodes. */
    uint64_t events;
    uint64_t digest; /* Over every event time, in order. */
    void *scratch;   /* Owned: what a protocol works in, kept from call to call. */
    size_t scratch_bytes;
};

/* What the rank's kernels took: launch to end; in hook mode both halves, without what runs between
 * them. */
uint64_t sim_timing_took_ps(const struct sim_timing *timing, const struct sim_exchange *exchange,
                            uint32_t rank);

/* Add a resource for each leaf switch's ports up and down: "leaf3.up", kind "switch". */
void sim_timing_add_leaves(struct sim_timing *timing, const struct fabric_network *network);

/* Room for exchanges of so many ranks and at most message_max messages. 0, or -1 with err. */
int sim_timing_open(struct sim_timing *timing, uint32_t ranks, uint64_t message_max, char *err,
                    size_t err_len);
void sim_timing_close(struct sim_timing *timing); /* Safe on a zeroed struct. */

/* Make room for at least messages, and an eighth more for the next exchange; what is large enough
 * stays. timing is zeroed or open for the same ranks. 0, or -1 with err: it is closed then. */
int sim_timing_fit(struct sim_timing *timing, uint32_t ranks, uint64_t messages, char *err,
                   size_t err_len);

/* Room for bytes, aligned for anything; its old contents are lost. NULL when memory is short.
 * Exchanges of one size after another take memory once. */
void *sim_timing_reserve(struct sim_timing *timing, size_t bytes);

/* 0, or -1 with err (memory only: what a machine or a library would refuse is sim/rules.h). */
int sim_ll_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                struct sim_timing *timing, char *err, size_t err_len);
int sim_normal_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                    struct sim_timing *timing, char *err, size_t err_len);
/* Either, as the traffic's mode says. */
int sim_exchange_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                      struct sim_timing *timing, char *err, size_t err_len);

#endif
