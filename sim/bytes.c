/* sim/bytes.c - three ways to count the same traffic. */
#include "sim/bytes.h"

#include <assert.h>
#include <string.h>

#include "ref/routing.h"

static void count_choices(const struct sim_traffic *traffic, enum sim_direction direction,
                          struct sim_pair_bytes *pairs)
{
    const uint32_t local = traffic->experts / traffic->ranks, topk = traffic->topk;
    const uint64_t bytes = traffic->formula_bytes[direction];
    uint16_t owners[4096]; /* By table: dividing is what this loop would do most. */

    assert(traffic->experts <= sizeof owners / sizeof owners[0]);
    for (uint32_t e = 0; e < traffic->experts; e++) owners[e] = (uint16_t)(e / local);

    for (uint32_t home = 0; home < traffic->ranks; home++) {
        for (uint64_t t = traffic->token_start[home]; t < traffic->token_start[home + 1]; t++) {
            uint32_t seen[REF_TOPK_MAX];
            uint32_t seen_count = 0;
            for (uint32_t k = 0; k < topk; k++) {
                const int64_t expert = traffic->topk_idx[t * topk + k];
                if (expert < 0) continue;
                const uint32_t owner = owners[expert];
                struct sim_pair_bytes *pair = direction == SIM_DISPATCH
                                                  ? &pairs[(uint64_t)home * traffic->ranks + owner]
                                                  : &pairs[(uint64_t)owner * traffic->ranks + home];
                uint32_t i = 0;
                while (i < seen_count && seen[i] != owner) i++;
                pair->formula += bytes;
                if (i < seen_count) continue;
                seen[seen_count++] = owner;
                pair->distinct_rank += bytes;
            }
        }
    }
}

void sim_bytes_pairs(const struct sim_traffic *traffic, enum sim_direction direction,
                     struct sim_pair_bytes *pairs)
{
    const struct sim_message *messages = traffic->messages[direction];
    memset(pairs, 0, (size_t)traffic->ranks * traffic->ranks * sizeof *pairs);
    for (uint64_t m = 0; m < traffic->message_count[direction]; m++) {
        struct sim_pair_bytes *pair =
            &pairs[(uint64_t)messages[m].src_rank * traffic->ranks + messages[m].dst_rank];
        pair->messages++;
        pair->wire += traffic->row_bytes[direction];
    }
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
