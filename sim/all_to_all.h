/* sim/all_to_all.h - hosts around one switch, each sending to every other: the engine's own load.
 *
 * Every packet is simulated: it waits for its host's port, crosses a hop, waits for the switch's
 * output port to its receiver (first in, first out, cut through) and crosses the second hop.
 *
 *     host i, packet p  --port, hop-->  switch  --output j, hop-->  host j
 *     j = (i + 1 + p mod (hosts - 1)) mod hosts
 *
 * In step p the receivers are a permutation of the hosts, so nobody ever waits, and the end is
 * known: packets x (a packet on a port) + 2 hops. Other simulators can be given the same work. */
#ifndef SIM_ALL_TO_ALL_H
#define SIM_ALL_TO_ALL_H

#include <stddef.h>
#include <stdint.h>
#include "sim/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sim_all_to_all {
    uint32_t hosts;            /* 2 or more. */
    uint32_t packets;          /* That each host sends. */
    uint32_t packet_bytes;     /* Above 0. */
    uint64_t rate_bytes_per_s; /* Of every port. Above 0. */
    uint64_t hop_ps;           /* Host to switch, switch to host. */
    uint64_t host_skew_ps;     /* Host i starts i x this late; above 0, packets queue. */
};

struct sim_all_to_all_result {
    uint64_t end_ps;  /* The last bit of the last packet is there. */
    uint64_t arrived; /* Packets. */
    uint64_t wait_ps; /* Time packets waited at the switch, summed. */
    uint64_t events;
    uint64_t digest; /* Over every event time, in order. */
};

/* Reset the engine and run the exchange on it. 0, or -1 with err (memory alone). */
int sim_all_to_all_run(struct sim_engine *engine, const struct sim_all_to_all *shape,
                       struct sim_all_to_all_result *result, char *err, size_t err_len);

/* The end by arithmetic; host_skew_ps must be 0. */
uint64_t sim_all_to_all_closed_ps(const struct sim_all_to_all *shape);

#ifdef __cplusplus
}
#endif

#endif
