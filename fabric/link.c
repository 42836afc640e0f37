/* fabric/link.c - the serial server. */
#include "fabric/link.h"
#include <assert.h>

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

#define PS_PER_S UINT64_C(1000000000000)

/* Why no stored ps-per-byte? At 900 GB/s it is 1.11, which as an integer is 1: the link would
 * run 11% fast. So the rate stays in bytes per second, and the product is taken in 128 bits
 * where bytes * 10^12 leaves 64 bits, from 18 MB on. Rounding up, never to nearest, keeps one
 * promise: splitting a message cannot make it arrive sooner. */
uint64_t fabric_transfer_ps(uint64_t size_bytes, uint64_t rate_bytes_per_s)
{
    assert(rate_bytes_per_s > 0);
    if (size_bytes <= UINT64_MAX / PS_PER_S) {
        const uint64_t byte_ps = size_bytes * PS_PER_S;
        return byte_ps / rate_bytes_per_s + (byte_ps % rate_bytes_per_s != 0);
    }
    const u128 byte_ps = (u128)size_bytes * PS_PER_S;
    const u128 whole_ps = (byte_ps + rate_bytes_per_s - 1) / rate_bytes_per_s;
    assert(whole_ps <= UINT64_MAX);
    return (uint64_t)whole_ps;
}

void fabric_link_init(struct fabric_link *link, uint64_t rate_bytes_per_s, uint64_t flight_ps)
{
    assert(rate_bytes_per_s > 0);
    *link = (struct fabric_link){.rate_bytes_per_s = rate_bytes_per_s, .flight_ps = flight_ps};
}

struct fabric_slot fabric_link_send(struct fabric_link *link, uint64_t now_ps, uint64_t size_bytes)
{
    return fabric_link_relay(link, now_ps, now_ps, size_bytes);
}

struct fabric_slot fabric_link_relay(struct fabric_link *link, uint64_t first_ps, uint64_t last_ps,
                                     uint64_t size_bytes)
{
    assert(last_ps >= first_ps);
    const uint64_t transfer_ps = fabric_transfer_ps(size_bytes, link->rate_bytes_per_s);
    struct fabric_slot slot;
    slot.depart_ps = first_ps > link->busy_until_ps ? first_ps : link->busy_until_ps;
    slot.sent_ps = slot.depart_ps + transfer_ps;
    if (slot.sent_ps < last_ps) slot.sent_ps = last_ps;
    assert(slot.sent_ps >= slot.depart_ps && slot.sent_ps <= UINT64_MAX - link->flight_ps);
    slot.first_ps = slot.depart_ps + link->flight_ps;
    slot.arrive_ps = slot.sent_ps + link->flight_ps;

    fabric_waiting_add(&link->waiting, &link->use, first_ps, slot.depart_ps);
    link->use.busy_ps += slot.sent_ps - slot.depart_ps;
    link->use.bytes += size_bytes;
    link->busy_until_ps = slot.sent_ps;
    return slot;
}
