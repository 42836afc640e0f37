/* ref/normal_phase.h - normal-mode dispatch and combine as one rank does its part of it.
 *
 * A message is a record. Across nodes both hops of dispatch carry the library's own record
 * and both hops of combine the shorter one; inside a node the fields of the rings. Arenas are
 * flat over all ranks and hold records of ref_record.bytes each (ref/rows.h numbers them):
 *
 *   dispatch  staged [tokens] -> (rails [rail rows] ->) landed [received rows]
 *   combine   staged [received rows] -> (contributions -> forward -> rails ->) home slots
 *
 * The order of calls: pack, ref_deliver (both hops), unpack; combine_pack, ref_deliver of the
 * first hop, forward (several nodes), ref_deliver of the second, combine_unpack. */
#ifndef REF_NORMAL_PHASE_H
#define REF_NORMAL_PHASE_H

#include <stdbool.h>
#include <stdint.h>
#include "ref/normal.h"
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the fields of one record stand; bytes is a multiple of 16.
 *   dispatch, several nodes: payload | scales | meta (8) | K int32 global ids | K fp32 weights
 *   combine, several nodes:  payload | meta (8) | K fp32 weights
 *   dispatch, one node:      payload | scales | source token (4) | K int64 ids | K weights
 *   combine, one node:       payload | source token (4) | K fp32 weights
 * meta: int32 node of the source, int32 mask of the destination node's GPUs. A staged dispatch
 * record serves every node, so its mask is 0 and the receiver makes it from the ids. */
struct ref_record {
    uint64_t payload_bytes;
    uint64_t scale_bytes;
    uint64_t scales_at;
    uint64_t meta_at; /* Several nodes: meta; one node: the source token. */
    uint64_t ids_at;  /* Dispatch only; ids are 4 bytes across nodes, 8 inside one. */
    uint64_t weights_at;
    uint64_t bytes;
    uint32_t topk;
    bool internode;
};

struct ref_record ref_record_dispatch(uint64_t payload_bytes, uint64_t scale_bytes, uint32_t topk,
                                      bool internode);
struct ref_record ref_record_combine(uint32_t hidden, uint32_t topk, bool internode);

/* Stage the rank's tokens [record.bytes each]; write its row of sent words [ranks][ranks]:
 * -count - 1 for every destination rank. routing->topk_weights NULL stages weights of 0. */
void ref_normal_pack(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t rank,
                     const struct ref_record *record, const struct ref_normal_tokens *tokens,
                     uint8_t *staged, int32_t *sent_words);

/* Rows of the rank out of landed records; landed_words [destination][source]. As in
 * ref_ll_unpack, fewer rows than the block has are written where the word says so. Across
 * nodes a record does not name its token; rows->src_token then follows from the order. */
void ref_normal_unpack(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t rank,
                       const struct ref_record *record, const uint64_t *block_start,
                       const int32_t *landed_words, const uint8_t *landed,
                       const struct ref_normal_rows *rows);

/* Stage the rank's rows. in->bias0 and bias1 are not used here. src_meta and src_token are what
 * unpack wrote (only the one that the record carries is read; NULL stages 0). */
void ref_normal_combine_pack(const struct ref_routing *routing, uint32_t rank,
                             const struct ref_record *record,
                             const struct ref_normal_combine_in *in, const uint64_t *block_start,
                             const int32_t *src_meta, const int32_t *src_token, uint8_t *staged);

/* Several nodes: reduce the contributions of every rail row of forwarder `rank`, in slot order
 * (GPUs ascending), fp32 from +0, rounded to bf16; weights summed in fp32. rail_start and
 * contribution_start as in ref/rows.h. */
void ref_normal_forward(const struct ref_routing *routing, uint32_t rank,
                        const struct ref_record *record, const uint64_t *rail_start,
                        const uint64_t *contribution_start, const uint8_t *contributions,
                        uint8_t *rails);

/* Sum the rank's tokens out of their home slots (home_start of ref_rows_normal, or of
 * ref_rows_rail_home across nodes), from the biases. Writes the rank's part of combined and
 * combined_weights (NULL: left out). */
void ref_normal_combine_unpack(const struct ref_routing *routing, uint32_t rank,
                               const struct ref_record *record, const uint64_t *home_start,
                               const uint8_t *home, const uint16_t *bias0, const uint16_t *bias1,
                               uint16_t *combined, float *combined_weights);

#ifdef __cplusplus
}
#endif

#endif
