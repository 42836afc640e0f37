/* sim/attribute.h - where an exchange's time went: parts that sum to it exactly.
 *
 * Resources overlap, so "the time of the NIC" has no meaning by itself: without it another part
 * would take over. What has a meaning is what an exchange takes when some parts are free, and
 * that can be simulated. A part's share is therefore its Shapley value over those times: what
 * making it free saves, averaged over every order in which parts could be made free. It follows
 * that the shares sum to the time (to the picosecond: the remainders of the average are dealt
 * out), that a part which never matters gets 0, that two parts which hide behind each other
 * share alike, and that a part which only adds its span gets that span. A share may be below
 * zero: where a faster part makes a queue worse.
 *
 * A fabric between the NICs that is not ideal is no part among the others, since it cannot be
 * there without NICs: its share is what it adds to an ideal one, and the others share the time
 * over an ideal one.
 *
 * A part that cannot matter (no row goes by NIC, no ring can fill, all ranks start together) is
 * left out, and one that shifts everything by its span is asked about once: with m others it
 * takes 2^m simulations. Ranks have their own shares, from the same simulations. */
#ifndef SIM_ATTRIBUTE_H
#define SIM_ATTRIBUTE_H

#include "sim/vary.h"

struct sim_attribution {
    uint32_t ranks;
    uint32_t slowest;  /* The first of the ranks that took longest. */
    uint64_t *took_ps; /* Owned, [ranks]: sim_timing_took_ps. */
    int64_t *part_ps;  /* Owned, [ranks][SIM_PARTS]; a rank's sum to its took_ps. */
};

/* Parts that can matter to the exchange: bits 1 << enum sim_part. */
uint32_t sim_attribute_parts(const struct sim_exchange *exchange);
/* Those among them that shift every rank's end by a span of their own, whatever else is free. */
uint32_t sim_attribute_shifts(const struct sim_exchange *exchange);

/* Attribute over parts (bits), of which shifts (a subset) are asked about once. Callers pass what
 * the two functions above say. *out is zeroed or from an earlier call, whose memory is used
 * again. 0, or -1 with err (memory). */
int sim_attribute(struct sim_vary_bench *bench, const struct sim_exchange *exchange, uint32_t parts,
                  uint32_t shifts, struct sim_attribution *out, char *err, size_t err_len);
void sim_attribution_free(struct sim_attribution *attribution); /* Safe on a zeroed struct. */

/* Longest ring need of the exchange: rows of one queue pair and its flag. 0: no row by NIC. */
uint64_t sim_attribute_qp_need(const struct sim_exchange *exchange);

#endif
