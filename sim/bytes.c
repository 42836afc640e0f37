/* sim/bytes.c - three ways to count the same traffic. */
#include "sim/bytes.h"

#include <assert.h>
#include <string.h>

#include "ref/routing.h"

static struct sim_pair_bytes *pair_of(const struct sim_traffic *traffic,
                                      enum sim_direction direction, struct sim_pair_bytes *pairs,
                                      uint32_t home, uint32_t owner)
{
    const uint64_t src = direction == SIM_DISPATCH ? home : owner;
    const uint64_t dst = direction == SIM_DISPATCH ? owner : home;
    assert(home < traffic->ranks && owner < traffic->ranks);
    return &pairs[src * traffic->ranks + dst];
}

static void count_choices(const struct sim_traffic *traffic, enum sim_direction direction,
                          struct sim_pair_bytes *pairs)
{
    const uint32_t local = traffic->experts / traffic->ranks, topk = traffic->topk;
    const uint64_t bytes = traffic->formula_bytes[direction];
    uint16_t owners[4096];     /* By table: dividing is what this loop would do most. */
    uint64_t last_token[4096]; /* By owner, counted from 1: the last that it got. */

    assert(traffic->experts <= sizeof owners / sizeof owners[0]);
    for (uint32_t e = 0; e < traffic->experts; e++) owners[e] = (uint16_t)(e / local);
    memset(last_token, 0, traffic->ranks * sizeof last_token[0]);

    for (uint32_t home = 0; home < traffic->ranks; home++) {
        for (uint64_t t = traffic->token_start[home]; t < traffic->token_start[home + 1]; t++) {
            for (uint32_t k = 0; k < topk; k++) {
                const int64_t expert = traffic->topk_idx[t * topk + k];
                if (expert < 0) continue;
                const uint32_t owner = owners[expert];
                struct sim_pair_bytes *pair = pair_of(traffic, direction, pairs, home, owner);
                pair->formula += bytes;
                pair->distinct_rank += last_token[owner] == t + 1 ? 0 : bytes;
                last_token[owner] = t + 1;
            }
        }
    }
}

/* One message per row, in blocks of (expert, home). */
static void count_blocks(const struct sim_traffic *traffic, enum sim_direction direction,
                         struct sim_pair_bytes *pairs)
{
    const uint32_t local = traffic->experts / traffic->ranks;
    const uint64_t *block = traffic->block_start;
    for (uint32_t expert = 0; expert < traffic->experts; expert++)
        for (uint32_t home = 0; home < traffic->ranks; home++, block++)
            pair_of(traffic, direction, pairs, home, expert / local)->messages +=
                block[1] - block[0];
}

void sim_bytes_pairs(const struct sim_traffic *traffic, enum sim_direction direction,
                     struct sim_pair_bytes *pairs)
{
    const struct sim_message *messages = traffic->messages[direction];
    const uint64_t count = (uint64_t)traffic->ranks * traffic->ranks;
    assert((unsigned)direction < SIM_DIRECTIONS && traffic->ranks > 0);
    memset(pairs, 0, count * sizeof *pairs);
    if (traffic->mode == SIM_MODE_LL) {
        count_blocks(traffic, direction, pairs);
    } else {
        for (uint64_t m = 0; m < traffic->message_count[direction]; m++)
            pairs[(uint64_t)messages[m].src_rank * traffic->ranks + messages[m].dst_rank]
                .messages++;
    }
    for (uint64_t p = 0; p < count; p++)
        pairs[p].wire = pairs[p].messages * traffic->row_bytes[direction];
    count_choices(traffic, direction, pairs);
}

void sim_bytes_add(const struct sim_traffic *traffic, const struct sim_pair_bytes *pairs,
                   struct sim_bytes *sum)
{
    for (uint32_t src = 0; src < traffic->ranks; src++) {
        for (uint32_t dst = 0; dst < traffic->ranks; dst++) {
            const struct sim_pair_bytes *pair = &pairs[(uint64_t)src * traffic->ranks + dst];
            sum->formula += pair->formula;
            sum->distinct_rank += pair->distinct_rank;
            sum->wire[sim_traffic_link(traffic, src, dst)] += pair->wire;
        }
    }
}
