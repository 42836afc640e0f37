/* sim/compute.h - the pieces of a decoder layer that are not the exchange, as work.
 *
 * Every function is pure: machine, model and rows in, work (sim/work.h) or time out. The model's
 * figures must be known (sim_compute_model tells by name which is not). The parameters stand in
 * the compute section of the machine file; tests/test_work.c and `accuracy` judge them. */
#ifndef SIM_COMPUTE_H
#define SIM_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/model.h"
#include "sim/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Can machine and model time a whole step? 0, or -1 with the missing figure by name. */
int sim_compute_check(const struct fabric_machine *machine, const struct sim_model *model,
                      char *err, size_t err_len);

/* Where rows stand that experts work on. */
enum sim_layout {
    SIM_LAYOUT_MASKED,    /* Low latency: a rectangle per expert, its first rows are real. */
    SIM_LAYOUT_CONTIGUOUS /* Normal: sorted by expert first, every expert's rows padded to 128. */
};

/* The routed experts of one rank, kernel by kernel. */
struct sim_experts {
    struct sim_work permute;    /* Contiguous: rows sorted by expert. Masked: nothing. */
    struct sim_work gate_up;    /* GEMM [rows, H] x [H, 2 I] */
    struct sim_work activation; /* SiLU times gate, then cast to the next GEMM's precision. */
    struct sim_work down;       /* GEMM [rows, I] x [I, H] */
    struct sim_work unpermute;  /* Contiguous: back to the order of arrival, weighted. */
    uint32_t block_m;           /* Rows of a tile. */
};

/* rows[experts]: what each local expert really has. expected: rows per expert as the library
 * guesses them; it picks the tile (masked only). tokens: rows as they arrived, before a row is
 * made for each of its local experts (contiguous only). */
struct sim_experts sim_compute_experts(const struct fabric_machine *machine,
                                       const struct sim_model *model, enum sim_layout layout,
                                       const uint64_t *rows, uint32_t experts, uint64_t expected,
                                       uint64_t tokens);

/* A dense SwiGLU FFN of that inner width on rows rows, FP8: the shared expert, a dense layer. */
struct sim_work sim_compute_ffn(const struct fabric_machine *machine, const struct sim_model *model,
                                uint64_t inter, uint64_t rows);

/* Norm, gate GEMM and top-k. */
struct sim_work sim_compute_router(const struct fabric_machine *machine,
                                   const struct sim_model *model, uint64_t rows);

/* Cast to FP8 with scales, before a normal-mode dispatch (low latency casts in its kernel). */
struct sim_work sim_compute_quantise(const struct fabric_machine *machine,
                                     const struct sim_model *model, uint64_t rows);

/* What one rank's attention of one layer has to do. */
struct sim_attention {
    uint64_t requests;
    uint64_t rows;        /* Query rows of them all: requests x verify tokens, or prefill rows. */
    uint64_t context;     /* Tokens each request has read; prefill: before this chunk. */
    uint32_t layer;       /* Decoder layer from 0: windows and indexers come in some layers only. */
    uint32_t heads_split; /* attn_tp: ranks that share the heads. */
    bool prefill;
    bool table; /* Take the machine's measured table where it answers. */
};

/* Projections (q, kv, o), and the attention itself; the norm before them is sim_compute_norm. From
 * the machine's table where that knows the model, else a roofline. */
void sim_compute_attention(const struct fabric_machine *machine, const struct sim_model *model,
                           const struct sim_attention *attention, struct sim_work *projection,
                           struct sim_work *core);

/* Residual and norm: rows read and written once more. */
struct sim_work sim_compute_norm(const struct fabric_machine *machine,
                                 const struct sim_model *model, uint64_t rows);

/* Tokens that a query of this layer reads out of context, by sparse attention or windows. */
uint64_t sim_compute_read(const struct sim_model *model, uint32_t layer, uint64_t context);

enum sim_collective { SIM_ALL_GATHER, SIM_REDUCE_SCATTER, SIM_ALL_REDUCE };

/* A ring over ranks of which ranks_per_node share a node; bytes: of the whole gathered or summed
 * array. Each port carries (ranks - 1) / ranks of it, twice for an all-reduce. 0 for one rank. */
uint64_t sim_compute_collective(const struct fabric_machine *machine, enum sim_collective kind,
                                uint32_t ranks, uint32_t ranks_per_node, uint64_t bytes);

/* The rows of an all-rank gather, by the library's rule: with padding every rank's rows count as
 * the largest rank's and an all-gather moves them; without, exactly the rows there are, moved by
 * an all-reduce over a zeroed array, which costs twice. Padding unless prefill is in the batch or
 * 2 x sum <= max x ranks. */
enum sim_padding { SIM_PADDING_AUTO, SIM_PADDING_MAX, SIM_PADDING_SUM };
enum sim_padding sim_compute_padding(enum sim_padding wanted, const uint64_t *rows, uint32_t ranks,
                                     bool prefill);

#ifdef __cplusplus
}
#endif

#endif
