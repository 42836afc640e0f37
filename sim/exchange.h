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
#include "sim/timing.h"
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

/* What the rank's kernels took: launch to end; in hook mode both halves, without what runs between
 * them. */
uint64_t sim_timing_took_ps(const struct sim_timing *timing, const struct sim_exchange *exchange,
                            uint32_t rank);

/* 0, or -1 with err (memory only: what a machine or a library would refuse is sim/rules.h). */
int sim_ll_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                struct sim_timing *timing, char *err, size_t err_len);
int sim_normal_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                    struct sim_timing *timing, char *err, size_t err_len);
/* Either, as the traffic's mode says. */
int sim_exchange_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                      struct sim_timing *timing, char *err, size_t err_len);

#endif
