/* sim/timing.h - what an exchange says: the times of its messages and ranks, and its resources.
 *
 * Storage that exchanges of one size use one after the other. */
#ifndef SIM_TIMING_H
#define SIM_TIMING_H

#include <stddef.h>
#include <stdint.h>
#include "fabric/network.h"

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

#endif
