/* sim/bytes.h - bytes of one direction of a layer: by formula, counted, and on each kind of link.
 */
#ifndef SIM_BYTES_H
#define SIM_BYTES_H

#include <stdint.h>
#include "sim/traffic.h"

struct sim_bytes {
    uint64_t formula;                /* Selections x bytes of a row's channels. */
    uint64_t distinct_rank;          /* The same once per (token, rank). */
    uint64_t wire[SIM_LINK_CLASSES]; /* Whole messages, headers and scales included, by hop. */
};

/* What one pair of ranks exchanged. Pairs are indexed src * ranks + dst; a pair has one link
 * class. Formula and distinct bytes stand at (home, owner) for dispatch, (owner, home) for
 * combine, whatever way they travel; messages and wire bytes at the ends of each hop. */
struct sim_pair_bytes {
    uint64_t messages;
    uint64_t formula;
    uint64_t distinct_rank;
    uint64_t wire;
};

/* pairs [ranks * ranks], filled. */
void sim_bytes_pairs(const struct sim_traffic *traffic, enum sim_direction direction,
                     struct sim_pair_bytes *pairs);

/* Add the pairs up. */
void sim_bytes_add(const struct sim_traffic *traffic, const struct sim_pair_bytes *pairs,
                   struct sim_bytes *sum);

#endif
