/* sim/backend_cuda.h - what the parts of the CUDA backend share, from the top: sim/backend_cuda.c
 * (table and group operations), _phase.c (phase operations), _layer.c (memory of a layer),
 * _direct.c (group operations on the direct transport), _expert.c, _rows.c (for all of them); and
 * what the recording of evidence asks it beyond the table. */
#ifndef SIM_BACKEND_CUDA_H
#define SIM_BACKEND_CUDA_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/direct.h"
#include "sim/arena.h"
#include "sim/backend.h"
#include "sim/received.h"

/* Buffers of one layer on the GPUs, by what a row of them is. */
enum cuda_part {
    /* On every GPU: the routing and the tables that name rows. */
    CUDA_STARTS,
    CUDA_TOPK_IDX,
    CUDA_TOPK_WEIGHTS,
    CUDA_BLOCK_START,
    CUDA_HOME_START,
    CUDA_CONTRIBUTION_START,
    /* A row a token, with its rank. */
    CUDA_X,
    CUDA_BIAS0,
    CUDA_BIAS1,
    CUDA_CODES, /* Normal mode casts before it packs. */
    CUDA_CODE_SCALES,
    CUDA_CODE_PACKED,
    CUDA_STAGED,
    CUDA_COMBINED,
    CUDA_COMBINED_WEIGHTS,
    /* A row a rank. */
    CUDA_SENT_WORDS,
    CUDA_LANDED_WORDS,
    CUDA_COUNTS,
    CUDA_MLP_CODES,
    CUDA_MLP_SCALES,
    /* A row a received row. */
    CUDA_LANDED,
    CUDA_PAYLOAD,
    CUDA_SCALES,
    CUDA_SRC_TOKEN,
    CUDA_ROW_IDX,
    CUDA_ROW_WEIGHTS,
    CUDA_SRC_META,
    CUDA_EXPERT_OUT,
    CUDA_STAGED_OUT,
    CUDA_ANSWER_START, /* Normal mode's MLP: first answer of the row... */
    CUDA_WEIGHED,      /* ...and the sum of all. */
    /* A row an answer (ref/expert.h); in low latency every received row is one. */
    CUDA_MLP_GATE,
    CUDA_MLP_UP,
    CUDA_MLP_ACT,
    CUDA_MLP_ACT_SCALES,
    CUDA_ANSWER_PAYLOAD, /* Normal mode: received rows by expert... */
    CUDA_ANSWER_SCALES,
    CUDA_ANSWER_OUT, /* ...what the experts make of them... */
    CUDA_ANSWERS,    /* ...and the same by row and column. */
    /* Rail rows, contributions and home slots of sim/traffic.h. */
    CUDA_RAILS,
    CUDA_RAILS_OUT,
    CUDA_CONTRIBUTIONS,
    CUDA_HOME,
    CUDA_PARTS
};

/* Host memory of sim/backend_cuda_expert.c. */
struct cuda_answers {
    struct sim_arena ids, row_scales;      /* As received. */
    struct sim_arena scales;               /* [answers] */
    struct sim_arena start;                /* [received rows] */
    struct sim_arena expert_start, cursor; /* Of a rank's experts. */
    struct sim_arena moves;                /* [2][answers]: to the experts, and back. */
};

/* First rows of every rank in backend_cuda.rank_rows: [kind][ranks + 1]. Answers: as many as
 * routing names and one row has at most. */
enum cuda_row_kind {
    BY_RANK,
    BY_RECEIVED,
    BY_ANSWER,
    BY_RAIL,
    BY_CONTRIBUTION,
    BY_HOME,
    ROW_KINDS
};

struct backend_cuda {
    struct gpu *gpu;
    const struct sim_layer_input *input;               /* Borrowed; NULL before the first layer. */
    struct gpu_buffer *part[CUDA_PARTS];               /* Owned by gpu. */
    struct gpu_routing routing;                        /* Of the layer, on the GPUs. */
    struct gpu_record dispatch_record, combine_record; /* Normal mode. */
    struct gpu_slot slot[SIM_DIRECTIONS];              /* Of the messages. */
    struct sim_arena rank_rows;                        /* First row of every rank, of each kind. */
    struct sim_arena moves;                            /* gpu_deliver's, of one call. */
    struct cuda_answers answers;                       /* Of normal mode's MLP. */
    struct sim_results results;                        /* What read shows. */
    struct sim_backend_place place;
    struct gpu_direct *direct; /* Of the direct transport; NULL before its first operation. */
    struct gpu_direct_shape direct_shape;
    uint64_t kernel_ns; /* GPU time of the group operations so far. */
};

/* --- sim/backend_cuda_layer.c --- */

/* Plan, upload and poison everything of one layer. */
int backend_cuda_layer(struct backend_cuda *state, const struct sim_layer_input *in, char *err,
                       size_t err_len);
/* Bring one part, received rows, or combined tokens, to the caller's arrays; those that are NULL,
 * or that the layer has not, are left out. Waits. */
int backend_cuda_take(struct backend_cuda *state, enum cuda_part part, void *to, char *err,
                      size_t err_len);
int backend_cuda_take_received(struct backend_cuda *state, struct sim_received *out, char *err,
                               size_t err_len);
int backend_cuda_take_combined(struct backend_cuda *state, struct sim_combined *out, char *err,
                               size_t err_len);

/* --- sim/backend_cuda_direct.c: nothing where the place says driven --- */

/* Give back what does not fit the layer, before the layer's memory is planned; open what it needs,
 * after. */
void backend_cuda_direct_release(struct backend_cuda *state, const struct sim_layer_input *in);
int backend_cuda_direct_open(struct backend_cuda *state, char *err, size_t err_len);
/* What combine needs to know of the routing, which dispatch finds out. */
int backend_cuda_direct_handle(struct backend_cuda *state, char *err, size_t err_len);
int backend_cuda_direct_dispatch(struct backend_cuda *state, char *err, size_t err_len);
int backend_cuda_direct_combine(struct backend_cuda *state, char *err, size_t err_len);

/* --- sim/backend_cuda_rows.c --- */

/* Normal mode's cast of the ranks' tokens into CUDA_CODES; *scales: the buffer of what goes with
 * them, or NULL. */
int backend_cuda_cast(struct backend_cuda *state, uint32_t rank, uint32_t rank_count,
                      const struct gpu_buffer **scales, char *err, size_t err_len);
/* Where a low-latency dispatch leaves its rows; one of both kinds of scales is NULL, or both. */
struct gpu_ll_rows backend_cuda_ll_rows(const struct backend_cuda *state);

/* --- sim/backend_cuda_expert.c --- */

int backend_cuda_experts(struct backend_cuda *state, uint32_t rank, uint32_t rank_count, char *err,
                         size_t err_len);
void backend_cuda_answers_free(struct cuda_answers *answers);

/* --- sim/backend_cuda_phase.c --- */

/* One direction of all ranks, in the order in which the senders issue their messages. */
int backend_cuda_direction(struct backend_cuda *state, enum sim_direction direction, char *err,
                           size_t err_len);
/* Phases of several ranks at once. */
int backend_cuda_pack_ranks(struct backend_cuda *state, enum sim_direction direction, uint32_t rank,
                            uint32_t rank_count, char *err, size_t err_len);
int backend_cuda_forward_ranks(struct backend_cuda *state, enum sim_direction direction,
                               uint32_t rank, uint32_t rank_count, char *err, size_t err_len);
int backend_cuda_unpack_ranks(struct backend_cuda *state, enum sim_direction direction,
                              uint32_t rank, uint32_t rank_count, char *err, size_t err_len);

/* The table's phase operations. */
int backend_cuda_begin(void *state, const struct sim_layer_input *in, char *err, size_t err_len);
int backend_cuda_pack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                      size_t err_len);
int backend_cuda_deliver(void *state, enum sim_direction direction,
                         const struct sim_message *messages, size_t count, char *err,
                         size_t err_len);
int backend_cuda_forward(void *state, enum sim_direction direction, uint32_t rank, char *err,
                         size_t err_len);
int backend_cuda_unpack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                        size_t err_len);
int backend_cuda_run_expert(void *state, uint32_t rank, char *err, size_t err_len);
int backend_cuda_read(void *state, struct sim_received *received, uint16_t **expert_out,
                      struct sim_combined *combined, char *err, size_t err_len);

/* --- sim/backend_cuda.c --- */

/* GPU time that group operations of an open state took since the last call, and the GPU. */
uint64_t sim_backend_cuda_kernel_ns(void *state);
int sim_backend_cuda_describe(const void *state, struct gpu_info *info, char *err, size_t err_len);

#endif
