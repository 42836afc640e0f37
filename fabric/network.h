/* fabric/network.h - what lies between two NICs, put together: lanes, buffers, leaf and spine.
 *
 * The NICs themselves (engine, wire, queue pairs) are their owner's; the owner asks here, in
 * event order, what else a message meets:
 *
 *     free_ps    at either NIC's port: bursts of the background flow that came before it
 *     hold_ps    before it leaves: the port it goes to is full, and this NIC must wait
 *     cross      once it has its turn: how much later than over one idle leaf switch it comes,
 *                through pacing, uplinks and spine
 *
 * Each part is ideal unless asked for: buffers without end, no path that is shared, no other
 * traffic. Then every answer is "now" and no costs of a machine file are looked at. */
#ifndef FABRIC_NETWORK_H
#define FABRIC_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/background.h"
#include "fabric/congestion.h"
#include "fabric/machine.h"
#include "fabric/spine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fabric_routing { FABRIC_ROUTING_IDEAL, FABRIC_ROUTING_STATIC, FABRIC_ROUTING_ADAPTIVE };
enum fabric_control { FABRIC_CONTROL_IDEAL, FABRIC_CONTROL_OFF, FABRIC_CONTROL_ON };

struct fabric_network_shape { /* Zeroed: everything is ideal. */
    enum fabric_routing routing;
    enum fabric_control control;     /* Congestion control; ideal: no buffer is ever full. */
    uint64_t background_bytes_per_s; /* Into and out of every NIC; at most what a port carries. */
    bool own_lane;                   /* The background flow has a virtual lane of its own. */
    uint64_t seed;                   /* Of hashes and of the bursts' phases. */
};

struct fabric_network {
    struct fabric_network_shape shape;
    uint32_t ranks;
    uint64_t flight_ps;        /* NIC to NIC over a leaf switch. */
    uint64_t hop_ps;           /* A switch and its cable. */
    uint64_t port_bytes_per_s; /* Payload; of NICs and switch ports alike. */
    uint64_t flow_burst_bytes;
    struct fabric_spine spine;
    struct fabric_congestion congestion;
    struct fabric_background *out, *in, *queue; /* [ranks]: at the NICs, at the switch's port. */
};

/* Is any part of it not ideal? */
bool fabric_network_asked(const struct fabric_network_shape *shape);

/* 0, or -1 with one line when the machine's file lacks a number that the shape needs, or the
 * background flow leaves nothing of a NIC. */
int fabric_network_check(const struct fabric_network_shape *shape,
                         const struct fabric_machine *machine, char *err, size_t err_len);

/* Payload rate that a NIC has for us: its goodput or its PCIe link's, less what a background flow
 * on its own lane takes. shape may be NULL (ideal). 0 where there is no NIC. */
uint64_t fabric_network_bytes_per_s(const struct fabric_network_shape *shape,
                                    const struct fabric_machine *machine);

/* ranks a multiple of rails, the ranks of a node. shape and machine were checked. Reset before
 * use. 0, or -1 with err (memory). */
int fabric_network_open(struct fabric_network *network, const struct fabric_network_shape *shape,
                        const struct fabric_machine *machine, uint32_t ranks, uint32_t rails,
                        char *err, size_t err_len);
void fabric_network_close(struct fabric_network *network); /* Safe on a zeroed struct. */

/* Empty it; nobody asks for times before from_ps. */
void fabric_network_reset(struct fabric_network *network, uint64_t from_ps);

/* A rank's NIC port is free at free_ps but for the background flow: when is it for a message that
 * is there at ready_ps, bursts before its turn going first? out: the sending side. */
uint64_t fabric_network_free_ps(struct fabric_network *network, uint32_t rank, bool out,
                                uint64_t free_ps, uint64_t ready_ps);

/* From when on may src's NIC send a message to dst that is ready at ready_ps? Asked at now_ps. */
uint64_t fabric_network_hold_ps(struct fabric_network *network, uint32_t src, uint32_t dst,
                                uint64_t now_ps, uint64_t ready_ps);

/* It leaves src's NIC from first_ps to last_ps, which is known at now_ps: the delay with which it
 * comes to dst's, 0 over one leaf switch that is idle. flow: the queue pair. */
uint64_t fabric_network_cross(struct fabric_network *network, uint32_t src, uint32_t dst,
                              uint32_t flow, uint64_t now_ps, uint64_t first_ps, uint64_t last_ps,
                              uint64_t bytes);

/* What a leaf switch's ports to the spines did since reset, summed: up, or else down. False when
 * there is no leaf of that number, counting node groups, then rails. */
bool fabric_network_leaf(const struct fabric_network *network, uint32_t leaf, bool up,
                         struct fabric_use *use);

#ifdef __cplusplus
}
#endif

#endif
