/* sim/hbm.c - counts loads and stores. */
#include "sim/hbm.h"

#include <assert.h>

static uint64_t own_tokens(const struct sim_exchange *exchange, uint32_t rank)
{
    const uint64_t *start = exchange->traffic->token_start;
    return start[rank + 1] - start[rank];
}

void sim_hbm_bytes(const struct sim_exchange *exchange, const struct sim_pair_bytes *pairs,
                   uint64_t *bytes)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const bool ll = traffic->mode == SIM_MODE_LL;
    const bool dispatch = exchange->direction == SIM_DISPATCH;
    const uint64_t row_bytes = traffic->row_bytes[exchange->direction];
    const uint64_t token_bytes = 2 * (uint64_t)exchange->hidden;

    assert(row_bytes > 0);
    for (uint32_t r = 0; r < traffic->ranks; r++) {
        bytes[r] = 0;
        if (ll && dispatch) bytes[r] += own_tokens(exchange, r) * (token_bytes + row_bytes);
        if (!dispatch) bytes[r] += own_tokens(exchange, r) * token_bytes; /* The sums. */
    }
    for (uint32_t src = 0; src < traffic->ranks; src++) {
        for (uint32_t dst = 0; dst < traffic->ranks; dst++) {
            const uint64_t rows = pairs[(uint64_t)src * traffic->ranks + dst].messages;
            const bool nic = sim_traffic_link(traffic, src, dst) == SIM_LINK_NIC;
            /* Loads of the sender: the row, or for a NIC what was staged. */
            if (!ll || !dispatch) bytes[src] += rows * row_bytes;
            if (ll && nic) bytes[src] += rows * row_bytes * (dispatch ? 1 : 2);
            /* It lands, is read out, and in dispatch is stored once more. */
            bytes[dst] += rows * row_bytes * (dispatch ? 3 : 2);
        }
    }
}
