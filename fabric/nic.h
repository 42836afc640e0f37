/* fabric/nic.h - one direction of one NIC: a work-request engine in front of a wire.
 *
 * Each message costs the engine message_ps (its rate limit), then the wire its bytes at the
 * goodput; the two overlap, so small messages are bound by the engine and large ones by the
 * wire. The sending NIC fetches work requests when a doorbell rings (fabric/qp.h decides which
 * messages a doorbell covers), and doorbell_ps is the way from that store to the engine. */
#ifndef FABRIC_NIC_H
#define FABRIC_NIC_H

#include <stdint.h>
#include "fabric/link.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_nic {
    struct fabric_link wire; /* Goodput and flight; its use counts the NIC's. */
    uint64_t message_ps;     /* Engine time of one message. */
    uint64_t doorbell_ps;    /* Doorbell store to engine start. */
    uint64_t engine_until_ps;
    uint64_t engine_busy_ps;
    uint64_t messages;
};

/* goodput_bytes_per_s above 0. */
void fabric_nic_init(struct fabric_nic *nic, uint64_t goodput_bytes_per_s, uint64_t flight_ps,
                     uint64_t message_ps, uint64_t doorbell_ps);

/* Send one message whose doorbell rang at rung_ps. In event order; size_bytes may be 0. */
struct fabric_slot fabric_nic_send(struct fabric_nic *nic, uint64_t rung_ps, uint64_t size_bytes);

/* Take one message in whose bits come from first_ps (now) to last_ps: no doorbell. In event
 * order of first_ps. slot.arrive_ps is when it lies in memory. */
struct fabric_slot fabric_nic_receive(struct fabric_nic *nic, uint64_t first_ps, uint64_t last_ps,
                                      uint64_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
