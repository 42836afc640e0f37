/* fabric/background.c - bursts by arithmetic: nothing happens between two questions. */
#include "fabric/background.h"

#include <assert.h>

#include "fabric/link.h"

enum { PPM = 1000000 };

/* Bursts up to at_ps, that instant included. */
static uint64_t bursts_until(const struct fabric_background *flow, uint64_t at_ps)
{
    return at_ps < flow->phase_ps ? 0 : (at_ps - flow->phase_ps) / flow->period_ps + 1;
}

void fabric_background_init(struct fabric_background *flow, uint64_t port_bytes_per_s,
                            uint64_t flow_bytes_per_s, uint64_t burst_bytes, uint64_t draw,
                            uint64_t from_ps)
{
    assert(flow_bytes_per_s > 0 && flow_bytes_per_s <= port_bytes_per_s && burst_bytes > 0);
    *flow =
        (struct fabric_background){.burst_ps = fabric_transfer_ps(burst_bytes, port_bytes_per_s),
                                   .period_ps = fabric_transfer_ps(burst_bytes, flow_bytes_per_s)};
    assert(flow->burst_ps > 0 && flow->burst_ps <= flow->period_ps);
    flow->phase_ps = draw % flow->period_ps;
    flow->counted = bursts_until(flow, from_ps);
}

/* Of n new bursts the last comes at last_ps. Either the port was never idle, or it became so
 * before one of them; since a burst is through before the next one comes, that one may as well be
 * the last. */
uint64_t fabric_background_free_ps(struct fabric_background *flow, uint64_t free_ps, uint64_t at_ps)
{
    if (flow->burst_ps == 0) return free_ps;
    const uint64_t until = bursts_until(flow, at_ps);
    if (until > flow->counted) {
        free_ps += (until - flow->counted) * flow->burst_ps;
        flow->counted = until;
    }
    if (until == 0) return free_ps;
    const uint64_t last_ps = flow->phase_ps + (until - 1) * flow->period_ps;
    return free_ps > last_ps + flow->burst_ps ? free_ps : last_ps + flow->burst_ps;
}

uint64_t fabric_lane_bytes_per_s(uint64_t port_bytes_per_s, uint64_t flow_bytes_per_s,
                                 uint64_t lane_ppm)
{
    assert(lane_ppm > 0 && lane_ppm <= PPM);
    const uint64_t sure = port_bytes_per_s / PPM * lane_ppm;
    const uint64_t left =
        flow_bytes_per_s < port_bytes_per_s ? port_bytes_per_s - flow_bytes_per_s : 0;
    return left > sure ? left : sure;
}
