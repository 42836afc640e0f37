/* fabric/background.h - another flow at a port: KV caches on their way, weights being loaded.
 *
 * On the same virtual lane it takes turns with everybody else, burst by burst: bursts that came
 * before somebody's turn go first. That costs rate, and waiting. On a lane of its own the port's
 * arbiter shares out bandwidth by the lanes' weights: that costs rate, never more than its weight,
 * and no waiting.
 *
 *     bursts     |##|        |##|        |##|      burst_ps each, one per period_ps
 *     others        |A|   |B|   (C waits) |C|      a message that comes during a burst waits */
#ifndef FABRIC_BACKGROUND_H
#define FABRIC_BACKGROUND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_background {
    uint64_t burst_ps;  /* What a burst takes of the port, at most period_ps; 0: no flow. */
    uint64_t period_ps; /* From burst to burst. */
    uint64_t phase_ps;  /* The first one, below period_ps. */
    uint64_t counted;   /* Bursts that the port's owner has been told of. */
};

/* A flow of flow_bytes_per_s (above 0, at most port_bytes_per_s) in bursts of burst_bytes (above
 * 0); draw picks the phase. Bursts before from_ps are past, but for the last one's rest. */
void fabric_background_init(struct fabric_background *flow, uint64_t port_bytes_per_s,
                            uint64_t flow_bytes_per_s, uint64_t burst_bytes, uint64_t draw,
                            uint64_t from_ps);

/* The port is free at free_ps but for bursts: when is it for somebody whose turn would be at at_ps
 * and who stands behind all that came up to then? Calls with an earlier at_ps than before count
 * nothing twice. A zeroed flow returns free_ps. */
uint64_t fabric_background_free_ps(struct fabric_background *flow, uint64_t free_ps,
                                   uint64_t at_ps);

/* What a busy lane gets of a port beside a flow on another lane: all that the flow leaves, and
 * its own weight of lane_ppm / 10^6 at least. */
uint64_t fabric_lane_bytes_per_s(uint64_t port_bytes_per_s, uint64_t flow_bytes_per_s,
                                 uint64_t lane_ppm);

#ifdef __cplusplus
}
#endif

#endif
