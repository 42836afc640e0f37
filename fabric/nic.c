/* fabric/nic.c - the engine, then the wire. */
#include "fabric/nic.h"
#include <assert.h>

void fabric_nic_init(struct fabric_nic *nic, uint64_t goodput_bytes_per_s, uint64_t flight_ps,
                     uint64_t message_ps, uint64_t doorbell_ps)
{
    *nic = (struct fabric_nic){.message_ps = message_ps, .doorbell_ps = doorbell_ps};
    fabric_link_init(&nic->wire, goodput_bytes_per_s, flight_ps);
}

/* When the engine, asked at now_ps, is done with one message. */
static uint64_t engine(struct fabric_nic *nic, uint64_t now_ps)
{
    const uint64_t start_ps = now_ps > nic->engine_until_ps ? now_ps : nic->engine_until_ps;
    assert(start_ps <= UINT64_MAX - nic->message_ps);
    nic->wire.use.stall_ps += start_ps - now_ps;
    nic->engine_until_ps = start_ps + nic->message_ps;
    nic->engine_busy_ps += nic->message_ps;
    nic->messages++;
    return nic->engine_until_ps;
}

struct fabric_slot fabric_nic_send(struct fabric_nic *nic, uint64_t rung_ps, uint64_t size_bytes)
{
    assert(rung_ps <= UINT64_MAX - nic->doorbell_ps);
    const uint64_t ready_ps = engine(nic, rung_ps + nic->doorbell_ps);
    return fabric_link_send(&nic->wire, ready_ps, size_bytes);
}

struct fabric_slot fabric_nic_receive(struct fabric_nic *nic, uint64_t first_ps, uint64_t last_ps,
                                      uint64_t size_bytes)
{
    assert(last_ps >= first_ps);
    const uint64_t ready_ps = engine(nic, first_ps);
    const uint64_t end_ps = last_ps > ready_ps ? last_ps : ready_ps;
    return fabric_link_relay(&nic->wire, ready_ps, end_ps, size_bytes);
}
