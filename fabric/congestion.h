/* fabric/congestion.h - a port whose senders together are faster than it: incast.
 *
 * A lossless fabric drops nothing. A switch port holds buffer_ps worth of traffic for the NIC
 * behind it; when that is full, credits run out and whoever wants to send there must hold, with
 * all that stands behind it in the same NIC, wherever that goes (head-of-line blocking).
 *
 * With congestion control the switch marks what joins a queue of more than half the buffer, the
 * receiver tells the senders, and reaction_ps after the first mark they are paced: in the order in
 * which they ask they get turns at the port, together no more than paced_ppm of it. Who waits for
 * his turn holds up nothing else in his NIC. Five reactions after the last mark they are back at
 * full rate. Until paced, senders may have to hold as without control. */
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
    uint64_t granted_ps;                  /* Turns of paced senders are given up to here. */
    uint64_t first_mark_ps, last_mark_ps; /* Of the present spell of congestion... */
    bool marked;                          /* ... if there was one. */
};

struct fabric_congestion {
    uint32_t count;                       /* Ports. */
    bool control;                         /* Congestion control is on. */
    uint64_t port_bytes_per_s;            /* Above 0. */
    uint64_t buffer_ps;                   /* Buffer of a port, in time at its rate. */
    uint64_t reaction_ps;                 /* First mark to senders paced. */
    uint64_t paced_ppm;                   /* Of a port, for paced senders together. Above 0. */
    struct fabric_congestion_port *ports; /* [count], borrowed. */
};

/* Empties every port; the members are the caller's to set. */
void fabric_congestion_reset(struct fabric_congestion *congestion);

/* The first bit of a message to dst, ready at ready_ps, takes way_ps to the port: when may
 * it leave? Nothing behind it in its NIC leaves before, unless senders are paced: then at once, and
 * fabric_congestion_leave says how much later. */
uint64_t fabric_congestion_hold_ps(const struct fabric_congestion *congestion, uint32_t dst,
                                   uint64_t ready_ps, uint64_t way_ps);

/* It has its turn in the NIC at depart_ps, and that is known at now_ps (the port is taken from then
 * on, or others would find it idle and closed): returns how much later pacing lets it leave. */
uint64_t fabric_congestion_leave(struct fabric_congestion *congestion, uint32_t dst,
                                 uint64_t now_ps, uint64_t depart_ps, uint64_t way_ps,
                                 uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
