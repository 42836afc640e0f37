/* fabric/congestion.c - credits, marks and paces. */
#include "fabric/congestion.h"

#include <assert.h>
#include <string.h>

#include "fabric/link.h"

enum { PPM = 1000000 };

void fabric_congestion_reset(struct fabric_congestion *congestion)
{
    const size_t ranks = congestion->ranks;
    assert(congestion->port_bytes_per_s > 0 && congestion->paced_ppm > 0);
    memset(congestion->flows, 0, ranks * ranks * sizeof *congestion->flows);
    memset(congestion->ports, 0, ranks * sizeof *congestion->ports);
}

static struct fabric_congestion_flow *flow_of(const struct fabric_congestion *congestion,
                                              uint32_t src, uint32_t dst)
{
    assert(src < congestion->ranks && dst < congestion->ranks);
    return &congestion->flows[(uint64_t)dst * congestion->ranks + src];
}

/* From when on the port has room for what is ready at ready_ps. */
static uint64_t room_ps(const struct fabric_congestion *congestion, uint32_t dst, uint64_t ready_ps,
                        uint64_t way_ps)
{
    const uint64_t ahead_ps = way_ps + congestion->buffer_ps;
    const uint64_t drained_ps = congestion->ports[dst].drained_ps;
    return drained_ps > ready_ps + ahead_ps ? drained_ps - ahead_ps : ready_ps;
}

uint64_t fabric_congestion_hold_ps(const struct fabric_congestion *congestion, uint32_t src,
                                   uint32_t dst, uint64_t ready_ps, uint64_t way_ps)
{
    if (flow_of(congestion, src, dst)->paced_ps > ready_ps) return ready_ps; /* It waits aside. */
    return room_ps(congestion, dst, ready_ps, way_ps);
}

/* Senders with something queued at the port, or waiting for their pace to send it there. */
static uint32_t active_senders(const struct fabric_congestion *congestion, uint32_t dst,
                               uint64_t at_ps)
{
    const struct fabric_congestion_flow *flow =
        &congestion->flows[(uint64_t)dst * congestion->ranks];
    uint32_t senders = 0;
    for (uint32_t src = 0; src < congestion->ranks; src++)
        senders += flow[src].passed_ps > at_ps || flow[src].paced_ps > at_ps;
    return senders;
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
    return port->marked && at_ps >= port->first_mark_ps + congestion->reaction_ps &&
           at_ps <= recovered_ps(congestion, port);
}

uint64_t fabric_congestion_leave(struct fabric_congestion *congestion, uint32_t src, uint32_t dst,
                                 uint64_t depart_ps, uint64_t way_ps, uint64_t bytes)
{
    struct fabric_congestion_port *port = &congestion->ports[dst];
    struct fabric_congestion_flow *flow = flow_of(congestion, src, dst);
    const uint64_t paced_ps =
        flow->paced_ps > depart_ps ? room_ps(congestion, dst, flow->paced_ps, way_ps) : depart_ps;
    const uint64_t at_ps = paced_ps + way_ps;

    if (port->drained_ps < at_ps) port->drained_ps = at_ps;
    if (port->drained_ps - at_ps > congestion->buffer_ps / 2) mark(congestion, port, at_ps);
    port->drained_ps += fabric_transfer_ps(bytes, congestion->port_bytes_per_s);
    flow->passed_ps = port->drained_ps;
    if (congestion->control && bytes > 0 && is_paced(congestion, port, at_ps)) {
        const uint32_t senders = active_senders(congestion, dst, at_ps);
        assert(senders > 0); /* This one, at least. */
        const uint64_t share = congestion->port_bytes_per_s / PPM * congestion->paced_ppm / senders;
        flow->paced_ps = paced_ps + fabric_transfer_ps(bytes, share > 0 ? share : 1);
    }
    return paced_ps - depart_ps;
}
