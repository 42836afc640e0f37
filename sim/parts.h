/* sim/parts.h - the parts that an exchange's time is made of, and what each is paid for.
 *
 * Every number of a machine that the two protocols compute with belongs to one part. A part is
 * "free" when its spans are 0 and its rates out of sight; it is "scaled" when its spans shrink
 * and its rates grow by one factor. Wait, queue pairs and the fabric's ways are no numbers of the
 * machine: they belong to the exchange (start times, ring depth, network) and to sim/vary.h. */
#ifndef SIM_PARTS_H
#define SIM_PARTS_H

#include <stdint.h>
#include "fabric/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sim_part {
    SIM_PART_LAUNCH, /* Kernel launch to first instruction; normal mode: the kernel's own ends. */
    SIM_PART_NOTIFY, /* Normal mode, several nodes: the count exchange. */
    SIM_PART_SYNC,   /* Barriers, flags, polls, tails. */
    SIM_PART_SM,     /* Casts, copies and sums: loads and stores of SMs and what begins them. */
    SIM_PART_NVLINK, /* NVLink ports and flight. */
    SIM_PART_NIC,    /* NICs: line, PCIe, messages, doorbells, work requests, flight. */
    SIM_PART_FABRIC, /* What a fabric that is not ideal adds: paths, buffers, other traffic. */
    SIM_PART_QP,     /* Queue pairs that are full. */
    SIM_PART_WAIT,   /* Ranks that were launched later. */
    SIM_PART_OTHER,  /* What is left when all of the above is free: rounding. */
    SIM_PARTS
};

const char *sim_part_name(enum sim_part part); /* "launch", "notify", ..., static. */
const char *sim_part_text(enum sim_part part); /* A few words for people, static. */

/* The part that the index-th field of fabric_cost_fields() is paid for. */
enum sim_part sim_part_of_cost(size_t index);

/* Make the part free: whatever else is in the machine stays. */
void sim_part_free(struct fabric_machine *machine, enum sim_part part);

/* Divide the part's spans, multiply its rates, or both, by factor, at least 1. Shares (ppm) stay.
 */
enum sim_scaled { SIM_SCALE_BOTH, SIM_SCALE_RATES, SIM_SCALE_SPANS };
void sim_part_scale(struct fabric_machine *machine, enum sim_part part, enum sim_scaled what,
                    uint64_t factor);

/* One number of a machine, to be made a tenth worse: a longer span, a lower rate. */
enum { SIM_NUMBERS_MAX = FABRIC_COSTS_MAX + 8 };

/* Number index of those that mode "ll" or "normal" computes with; NULL behind the last. *key is
 * its name in struct fabric_costs or struct fabric_machine, static. */
uint64_t *sim_part_number(struct fabric_machine *machine, const char *mode, size_t index,
                          const char **key);
/* The value, a tenth worse. */
uint64_t sim_part_worse(const char *key, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
