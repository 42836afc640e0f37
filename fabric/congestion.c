/* fabric/congestion.c - credits, marks and paces. */
#include "fabric/congestion.h"

#include <assert.h>
#include <string.h>

#include "fabric/link.h"

enum { PPM = 1000000 };

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void fabric_congestion_reset(struct fabric_congestion *congestion)
{
    assert(congestion->port_bytes_per_s > 0 && congestion->paced_ppm > 0);
    memset(congestion->ports, 0, congestion->count * sizeof *congestion->ports);
}

static uint64_t recovered_ps(const struct fabric_congestion *congestion,
                             const struct fabric_congestion_port *port)
{
    return port->last_mark_ps + FABRIC_RECOVERY * congestion->reaction_ps;
}

static void mark(const struct fabric_congestion *congestion, struct fabric_congestion_port *port,
                 uint64_t at_ps)
{
    if (!port->marked || at_ps > recovered_ps(congestion, port)) port->first_mark_ps = at_ps;
    port->marked = true;
    port->last_mark_ps = at_ps;
}

static bool is_paced(const struct fabric_congestion *congestion,
                     const struct fabric_congestion_port *port, uint64_t at_ps)
{
    return congestion->control && port->marked &&
           at_ps >= port->first_mark_ps + congestion->reaction_ps &&
           at_ps <= recovered_ps(congestion, port);
}

uint64_t fabric_congestion_hold_ps(const struct fabric_congestion *congestion, uint32_t dst,
                                   uint64_t ready_ps, uint64_t way_ps)
{
    assert(dst < congestion->count);
    const struct fabric_congestion_port *port = &congestion->ports[dst];
    const uint64_t ahead_ps = way_ps + congestion->buffer_ps;
    if (is_paced(congestion, port, ready_ps + way_ps)) return ready_ps; /* It waits aside. */
    return port->drained_ps > ready_ps + ahead_ps ? port->drained_ps - ahead_ps : ready_ps;
}

uint64_t fabric_congestion_leave(struct fabric_congestion *congestion, uint32_t dst,
                                 uint64_t now_ps, uint64_t depart_ps, uint64_t way_ps,
                                 uint64_t bytes)
{
    assert(dst < congestion->count);
    struct fabric_congestion_port *port = &congestion->ports[dst];
    const uint64_t base_ps = (now_ps < depart_ps ? now_ps : depart_ps) + way_ps;
    const uint64_t at_ps = depart_ps + way_ps;

    if (is_paced(congestion, port, at_ps)) {
        const uint64_t rate = congestion->port_bytes_per_s / PPM * congestion->paced_ppm;
        const uint64_t granted_ps = later(port->granted_ps, base_ps);
        port->granted_ps = granted_ps + fabric_transfer_ps(bytes, rate > 0 ? rate : 1);
        port->drained_ps = later(port->drained_ps, port->granted_ps);
        return later(granted_ps, at_ps) - at_ps;
    }
    port->drained_ps = later(port->drained_ps, base_ps);
    if (port->drained_ps > at_ps + congestion->buffer_ps / 2) mark(congestion, port, at_ps);
    port->drained_ps += fabric_transfer_ps(bytes, congestion->port_bytes_per_s);
    return 0;
}
