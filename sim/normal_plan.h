/* sim/normal_plan.h - normal mode's rows, by queue: what every sender walks through.
 *
 * A rank's tokens are cut into one contiguous range per channel. Within a channel every
 * destination has its own queue, fed in token order, so a queue is a list of positions:
 *
 *   level 0   (source rank, destination, channel): which tokens of the source's range go there.
 *             The destination is a rank on one node, a node on several.
 *   level 1   several nodes only, (source rank, destination rank, channel): which rows of the
 *             level-0 queue to the destination's node its forwarder copies to that rank.
 *
 * Dispatch walks the queues forwards, combine walks the same lists back to the source. */
#ifndef SIM_NORMAL_PLAN_H
#define SIM_NORMAL_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include "sim/traffic.h"

struct normal_queues {
    uint32_t destinations;
    uint32_t channels;
    uint64_t *first; /* [ranks * destinations * channels + 1]: into position. */
    uint32_t *position;
};

struct normal_plan {
    uint32_t ranks, ranks_per_node, nodes, channels;
    uint32_t *tokens;                    /* [ranks] */
    struct normal_queues level0, level1; /* level1 is empty on one node. */
};

/* Tokens of one rank in one channel: ceil(tokens / channels), the last ones fewer or none. */
static inline uint32_t normal_span(uint32_t tokens, uint32_t channels, uint32_t channel)
{
    const uint64_t per = ((uint64_t)tokens + channels - 1) / channels;
    const uint64_t start = per * channel < tokens ? per * channel : tokens;
    const uint64_t end = start + per < tokens ? start + per : tokens;
    return (uint32_t)(end - start);
}

static inline uint64_t normal_queue_index(const struct normal_queues *queues, uint32_t source,
                                          uint32_t destination, uint32_t channel)
{
    return ((uint64_t)source * queues->destinations + destination) * queues->channels + channel;
}

/* Only the first token_max tokens of every rank are planned (0 = all of them). */
int normal_plan_open(const struct sim_traffic *traffic, uint32_t channels, uint32_t token_max,
                     struct normal_plan *plan, char *err, size_t err_len);
void normal_plan_close(struct normal_plan *plan); /* Safe on a zeroed struct. */

#endif
