/* ref/ll_phase.h - low-latency dispatch and combine as one rank does its part of it.
 *
 * Dispatch: pack casts a rank's tokens into messages (one per token, sent once per selection)
 * and writes its count words; deliver (ref/rows.h) lands messages and words; unpack turns what
 * landed in a rank's blocks into rows. Combine: pack stages the rank's expert output, deliver
 * lands it in the tokens' home slots, unpack adds them up. All arenas are flat over all ranks:
 *
 *   staged messages  [tokens][ref_ll_message_bytes]     landed messages  [rows][the same]
 *   sent words       [ranks][experts]                   landed words     [experts][ranks]
 *   staged output    [rows][hidden] BF16                home slots       [rows][hidden] BF16
 *
 * Message: 16-byte header (int32 source token, 12 bytes 0) | payload | fp32 scales (FP8). */
#ifndef REF_LL_PHASE_H
#define REF_LL_PHASE_H

#include <stdint.h>
#include "ref/ll.h"
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REF_LL_HEADER_BYTES = 16 };

/* 16 + 2 * hidden for REF_RECIPE_BF16, else 16 + hidden + 4 * hidden / 128. */
uint64_t ref_ll_message_bytes(uint32_t hidden, uint32_t recipe);

/* Cast and stage the rank's tokens; write its row of sent words, -count - 1 for every expert. */
void ref_ll_pack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden, uint32_t recipe,
                 const uint16_t *x, uint8_t *staged, int32_t *sent_words);

/* Rows of the rank's experts out of landed messages. Where a landed word says fewer rows than
 * the block has, only those are written; a word never received writes none and leaves -1 in
 * rows->counts. Other ranks' rows are not touched. */
void ref_ll_unpack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                   uint32_t recipe, const uint64_t *block_start, const int32_t *landed_words,
                   const uint8_t *landed, const struct ref_ll_rows *rows);

/* Stage the expert output of the rank's rows. */
void ref_ll_combine_pack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                         const uint64_t *block_start, const uint16_t *expert_out, uint16_t *staged);

/* Sum the rank's tokens out of their home slots (home_start of ref_rows_ll) as ref_ll_combine
 * does. Writes the rank's part of combined. */
void ref_ll_combine_unpack(const struct ref_routing *routing, uint32_t rank, uint32_t hidden,
                           const uint64_t *home_start, const uint16_t *home, uint16_t *combined);

#ifdef __cplusplus
}
#endif

#endif
