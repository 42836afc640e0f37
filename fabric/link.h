/* fabric/link.h - one directed link, modelled as a serial server.
 *
 * A link sends one message at a time at a fixed rate and lands it a fixed flight time
 * later. It owns no clock and no queue: the caller says what time it is and is told when
 * the message lands. Every file in fabric/ is pure like this, so tests need no engine.
 *
 * A path of several links is cut-through: the far end of one is the near end of the next,
 * which starts on the first bit and ends no earlier than the last.
 *
 *     out port         flight          in port           flight
 *     |depart ... sent|------->|first ... last, relay|------->| arrive */
#ifndef FABRIC_LINK_H
#define FABRIC_LINK_H

#include <stdint.h>
#include "fabric/use.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_link {
    uint64_t rate_bytes_per_s; /* Payload rate, after encoding. Never 0. */
    uint64_t flight_ps;        /* Last bit out to last bit in. */
    uint64_t busy_until_ps;    /* The transmitter is free from here on. */
    struct fabric_use use;
    struct fabric_waiting waiting;
};

struct fabric_slot {
    uint64_t depart_ps; /* First bit on the wire. */
    uint64_t sent_ps;   /* Last bit on the wire: the transmitter is free. */
    uint64_t first_ps;  /* First bit at the far end: depart_ps + flight. */
    uint64_t arrive_ps; /* Last bit at the far end: sent_ps + flight. */
};

/* Serialisation time, rounded up to a whole picosecond. rate_bytes_per_s is above 0. */
uint64_t fabric_transfer_ps(uint64_t size_bytes, uint64_t rate_bytes_per_s);

/* rate_bytes_per_s above 0. waiting is empty: fabric_waiting_init(&link->waiting, ...) adds it. */
void fabric_link_init(struct fabric_link *link, uint64_t rate_bytes_per_s, uint64_t flight_ps);

/* Send size_bytes behind whatever the link is already sending. Messages leave in call
 * order, so callers must call in event order. size_bytes may be 0 (a pure signal). */
struct fabric_slot fabric_link_send(struct fabric_link *link, uint64_t now_ps, uint64_t size_bytes);

/* The same for a message that is still coming in: its first bit is here at first_ps (now), its
 * last at last_ps. Nothing leaves before it came. */
struct fabric_slot fabric_link_relay(struct fabric_link *link, uint64_t first_ps, uint64_t last_ps,
                                     uint64_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
