/* sim/schedule.h - the calls that drive a backend through one direction of one layer, in the
 * order of the simulated clock.
 *
 * Made from landing times, then played by sim/datapath.c: pack on every rank, deliver for each
 * run of messages that landed, forward where the first hop of a combine ends in a reduction,
 * unpack when a rank's kernel has read its buffers. The data path never sees a time. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>
#include "sim/exchange.h"
#include "sim/scenario.h"
#include "sim/traffic.h"

enum sim_call_kind { SIM_CALL_PACK, SIM_CALL_DELIVER, SIM_CALL_FORWARD, SIM_CALL_UNPACK };

struct sim_call {
    enum sim_call_kind kind;
    uint32_t rank;  /* pack, forward, unpack */
    uint64_t first; /* deliver: messages [first, first + count). */
    uint64_t count;
};

struct sim_schedule {
    enum sim_direction direction;
    uint64_t message_count;
    struct sim_message *messages; /* Owned: in landing order, faults applied. */
    uint64_t call_count;
    struct sim_call *calls;         /* Owned. */
    uint64_t message_max, call_max; /* Room. */
};

/* Order one direction's messages by landing time (ties by message index) and apply the faults of
 * (step, layer). 0; -1 with err when memory is short; -2 with err when a fault names no message of
 * this layer. The schedule may be a used one (its room is reused) or a zeroed one. */
int sim_schedule_build(const struct sim_traffic *traffic, enum sim_direction direction,
                       const struct sim_timing *timing, const struct sim_scenario *scenario,
                       uint64_t step, uint32_t layer, struct sim_schedule *schedule, char *err,
                       size_t err_len);
void sim_schedule_free(struct sim_schedule *schedule); /* Safe on a zeroed struct. */

#endif
