/* ref/rows.h - the number of every row that a message leaves from or lands on.
 *
 * The phase operations move rows between flat arenas; this file says which row is which, so
 * that whoever builds the messages and whoever packs and unpacks agree. The group operations
 * do not use it: they find rows by their own arithmetic, and the comparison checks both.
 *
 *   received row   LL: (expert, source rank, token, column); normal: (destination rank, source
 *                  rank, token). One per row that an expert's rank holds.
 *   home slot      where combine's last hop lands, token by token. LL: one per column that
 *                  names an expert, columns ascending. Normal, one node: one per destination
 *                  rank ascending. Normal, several nodes: one per destination node ascending.
 *   rail row       normal, several nodes: (forwarder, source rank, token), where the forwarder
 *                  is the rank of the destination node with the source's GPU index. The own
 *                  node has rail rows too; their hop stays on the rank.
 *   contribution   normal, several nodes: one per (rail row, destination GPU ascending); where
 *                  combine's first hop lands.
 *
 *   LL, one node:   token -> received row;               received row <-> home slot
 *   several nodes:  token -> rail row -> received row;   received row <-> contribution,
 *                                                        rail row <-> home slot
 * Each <-> is one to one, given here as an array from the right side to the left. */
#ifndef REF_ROWS_H
#define REF_ROWS_H

#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LL: home slots of token t are home_start[t] .. home_start[t + 1] - 1; slot h mirrors received
 * row home_row[h]. block_start from ref_ll_blocks; scratch [experts]; home_start [tokens + 1];
 * home_row [received rows]. Returns the slots in all. */
uint64_t ref_rows_ll(const struct ref_routing *routing, const uint64_t *block_start,
                     uint64_t *scratch, uint64_t *home_start, uint64_t *home_row);

/* Normal, one node: the same; block_start from ref_normal_blocks; scratch [ranks]. */
uint64_t ref_rows_normal(const struct ref_routing *routing, const uint64_t *block_start,
                         uint64_t *scratch, uint64_t *home_start, uint64_t *home_row);

/* Normal, several nodes: first rail row of every (forwarder, source rank), forwarder-major.
 * rail_start [ranks * ranks + 1]; pairs with different GPU indices are empty. Returns all. */
uint64_t ref_rows_rails(const struct ref_routing *routing, uint32_t ranks_per_node,
                        uint64_t *rail_start);

/* Normal, several nodes: slot h of token t mirrors rail row home_rail[h]. scratch [ranks];
 * home_start [tokens + 1]; home_rail [rail rows]. Returns the slots in all. */
uint64_t ref_rows_rail_home(const struct ref_routing *routing, uint32_t ranks_per_node,
                            const uint64_t *rail_start, uint64_t *scratch, uint64_t *home_start,
                            uint64_t *home_rail);

/* Normal, several nodes: contributions of rail row r are contribution_start[r] ..
 * contribution_start[r + 1] - 1; contribution c mirrors received row contribution_row[c].
 * block_start from ref_normal_blocks; scratch [2 * ranks]; contribution_start [rail rows + 1];
 * contribution_row [received rows]. Returns the contributions in all. */
uint64_t ref_rows_contributions(const struct ref_routing *routing, uint32_t ranks_per_node,
                                const uint64_t *block_start, const uint64_t *rail_start,
                                uint64_t *scratch, uint64_t *contribution_start,
                                uint64_t *contribution_row);

/* inverse[map[i]] = i for a one-to-one map of 0..count-1. */
void ref_rows_invert(uint64_t count, const uint64_t *map, uint64_t *inverse);

/* owner[i] = the j with start[j] <= i < start[j + 1], for all i below start[count]. Turns
 * home_start into a token per slot, contribution_start into a rail row per contribution. */
void ref_rows_owner(uint64_t count, const uint64_t *start, uint64_t *owner);

/* One message's row: copy src_row of one arena onto dst_row of another. */
struct ref_move {
    uint64_t src_row;
    uint64_t dst_row;
    uint32_t corrupt_byte; /* Below row_bytes when corrupt_xor is not 0. */
    uint8_t corrupt_xor;   /* Fault injection: XORed into that byte of the landed row. */
};

/* Land rows in the given order; where two moves name the same dst_row the later one stays.
 * The arenas must not overlap. */
void ref_deliver(const struct ref_move *moves, uint64_t count, const uint8_t *src, uint8_t *dst,
                 uint64_t row_bytes);

/* Land the count words of one source rank: received [column][ranks] takes sent [ranks][column].
 * A word is -count - 1, so 0 means "not yet": received words start at 0 (never at a poison).
 * LL: columns = experts; normal: columns = ranks. */
void ref_deliver_counts(uint32_t ranks, uint32_t columns, uint32_t src_rank, const int32_t *sent,
                        int32_t *received);

#ifdef __cplusplus
}
#endif

#endif
