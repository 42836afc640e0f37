/* sim/backend_ref.h - what the parts of the reference backend share: sim/backend_ref.c (table and
 * group operations), sim/backend_ref_phase.c (phase operations) and, below both,
 * sim/backend_ref_cast.c and sim/backend_ref_expert.c. Nobody else includes it. */
#ifndef SIM_BACKEND_REF_H
#define SIM_BACKEND_REF_H

#include "ref/normal_phase.h"
#include "sim/arena.h"
#include "sim/backend.h"
#include "sim/received.h"

/* Arenas of the phase path, by what a row of them is (ref/rows.h). */
enum ref_arena {
    ARENA_STAGED,        /* dispatch: [tokens] messages or records */
    ARENA_RAILS,         /* dispatch, several nodes: [rail rows] */
    ARENA_LANDED,        /* dispatch: [received rows] */
    ARENA_STAGED_OUT,    /* combine: [received rows] */
    ARENA_CONTRIBUTIONS, /* combine, several nodes: [received rows] */
    ARENA_RAILS_OUT,     /* combine, several nodes: [rail rows] */
    ARENA_HOME,          /* combine: [home slots] */
    ARENAS
};

/* Scratch of normal mode's MLP, of one rank (ref/expert.h has the terms). */
enum ref_answer_arena {
    ANSWER_START,   /* [rows + 1] */
    ANSWER_PICKED,  /* [2][answers]: one expert's rows, and their answers. */
    ANSWER_PAYLOAD, /* [answers]: one expert's rows, side by side... */
    ANSWER_SCALES,
    ANSWER_OUT,  /* ...and what it makes of them. */
    ANSWER_ROWS, /* [answers]: all experts' */
    ANSWER_ARENAS
};

struct backend_ref {
    /* Group operations: scratch. */
    struct sim_arena blocks, cursor, codes, scales, packed, weights, mlp;
    struct sim_arena answer[ANSWER_ARENAS];
    /* Phase operations: one layer between begin and the next begin. */
    const struct sim_layer_input *input; /* Borrowed; NULL before the first begin. */
    struct sim_arena arenas[ARENAS];
    uint64_t arena_row_bytes[ARENAS];
    struct sim_arena sent_words, landed_words, moves, src_meta;
    struct ref_record dispatch_record, combine_record; /* Normal mode. */
    struct sim_results results;
};

/* Run one rank's experts over its rows of received. */
int backend_ref_experts(struct backend_ref *state, const struct sim_layer_input *in,
                        const struct sim_received *received, uint32_t rank, uint16_t *expert_out,
                        char *err, size_t err_len);

/* Cast tokens [first, first + count) as normal mode sends them, into arrays over all tokens, which
 * *tokens then points to (borrowed from state until the next cast of another layer). */
int backend_ref_cast(struct backend_ref *state, const struct sim_layer_input *in, uint64_t first,
                     uint64_t count, struct ref_normal_tokens *tokens, char *err, size_t err_len);

int backend_ref_begin(void *state, const struct sim_layer_input *in, char *err, size_t err_len);
int backend_ref_pack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                     size_t err_len);
int backend_ref_deliver(void *state, enum sim_direction direction,
                        const struct sim_message *messages, size_t count, char *err,
                        size_t err_len);
int backend_ref_forward(void *state, enum sim_direction direction, uint32_t rank, char *err,
                        size_t err_len);
int backend_ref_unpack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                       size_t err_len);
int backend_ref_run_expert(void *state, uint32_t rank, char *err, size_t err_len);
int backend_ref_read(void *state, struct sim_received *received, uint16_t **expert_out,
                     struct sim_combined *combined, char *err, size_t err_len);

#endif
