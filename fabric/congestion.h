/* fabric/congestion.h - a port whose senders together are faster than it: incast.
 *
 * A lossless fabric drops nothing. A switch port holds buffer_ps worth of traffic for the NIC
 * behind it; when that is full, credits run out and whoever wants to send there must hold, with
 * all that stands behind it in the same NIC, wherever that goes (head-of-line blocking).
 *
 * With congestion control the switch marks what joins a queue of more than half the buffer, the
 * receiver tells the senders, and reaction_ps after the first mark each is paced to its fair
 * share of the port, less the headroom that lets the queue drain. That holds up the flow alone:
 * others in the NIC go ahead. Whoever has something queued there, or paced, has a share. Five
 * reactions after the last mark they are back at full rate. Until paced, and while the queue
 * drains, senders may still have to hold. */
#ifndef FABRIC_CONGESTION_H
#define FABRIC_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FABRIC_RECOVERY = 5 }; /* Reactions from a port's last mark to full rate. */

struct fabric_congestion_port {           /* A switch port that leads to a NIC. */
    uint64_t drained_ps;                  /* All that was sent to it so far is through. */
    uint64_t first_mark_ps, last_mark_ps; /* Of the present spell of congestion... */
    bool marked;                          /* ... if there was one. */
};

struct fabric_congestion_flow { /* What goes from one NIC to another. */
    uint64_t paced_ps;          /* Its next message may leave then. */
    uint64_t passed_ps;         /* All that it sent is through the port. */
};

struct fabric_congestion {
    uint32_t ranks;
    bool control;              /* Congestion control is on. */
    uint64_t port_bytes_per_s; /* Above 0. */
    uint64_t buffer_ps;        /* Buffer of a port, in time at its rate. */
    uint64_t reaction_ps;      /* First mark to senders paced. */
    uint64_t paced_ppm;        /* Of the port that paced senders use together. Above 0. */
    struct fabric_congestion_port *ports; /* [ranks], borrowed. */
    struct fabric_congestion_flow *flows; /* [ranks x ranks] by receiver, borrowed. */
};

/* Empties every port; the members are the caller's to set. */
void fabric_congestion_reset(struct fabric_congestion *congestion);

/* The first bit of a message from src to dst, ready at ready_ps, takes way_ps to the port: when may
 * it leave? Nothing behind it in its NIC leaves before, unless src is paced to dst: then at once,
 * and fabric_congestion_leave says how much later. */
uint64_t fabric_congestion_hold_ps(const struct fabric_congestion *congestion, uint32_t src,
                                   uint32_t dst, uint64_t ready_ps, uint64_t way_ps);

/* It has its turn in the NIC at depart_ps: returns how much later pacing lets it leave. */
uint64_t fabric_congestion_leave(struct fabric_congestion *congestion, uint32_t src, uint32_t dst,
                                 uint64_t depart_ps, uint64_t way_ps, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
