/* sim/overlap.h - overlaps as tables: which kernel of a layer stands on which stream, in what
 * order, and for whom it waits.
 *
 * A kernel starts when the one before it on its stream has ended and when what it reads is there.
 * What it reads is the same in every overlap (sim_overlap_needs); an overlap is only an order and
 * a choice of streams, for one batch or for two halves of it. Two halves take turns: stage k of
 * half A, then stage k - delta of half B, through all layers. */
#ifndef SIM_OVERLAP_H
#define SIM_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "sim/settings.h"
#include "sim/traffic.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sim_op {
    SIM_OP_TP_GATHER,  /* attn_tp > 1: rows of the attention group to all its ranks. */
    SIM_OP_PROJECTION, /* Norm, q, kv and output projections. */
    SIM_OP_ATTENTION,
    SIM_OP_TP_SCATTER, /* attn_tp > 1: partial sums added, rows back to their ranks. */
    SIM_OP_GATHER,     /* Data-parallel rows to all ranks. */
    SIM_OP_ROUTER,     /* Norm, gate, top-k. */
    SIM_OP_QUANTISE,   /* Normal mode: before dispatch. */
    SIM_OP_DISPATCH,   /* Whole, or its receive half. */
    SIM_OP_SHARED,     /* Shared expert. */
    SIM_OP_PERMUTE,    /* Normal mode: rows sorted by expert. */
    SIM_OP_GATE_UP,
    SIM_OP_ACTIVATION, /* And quantisation of its output. */
    SIM_OP_DOWN,
    SIM_OP_UNPERMUTE, /* Normal mode: back to the order of arrival. */
    SIM_OP_COMBINE,   /* Whole, or its receive half. */
    SIM_OP_REDUCE_SCATTER,
    SIM_OP_FFN, /* A dense layer's. */
    SIM_OP_DISPATCH_SEND,
    SIM_OP_COMBINE_SEND,
    SIM_OPS,
    SIM_OP_YIELD = SIM_OPS, /* In a table: the other half's turn. */
    SIM_OP_END              /* In a table: no more. */
};

enum sim_stream { SIM_STREAM_MAIN, SIM_STREAM_COMM, SIM_STREAMS };

struct sim_overlap_entry {
    enum sim_op op;
    enum sim_stream stream;
};

struct sim_overlap {
    const char *name;    /* What --overlap takes. */
    const char *summary; /* One line. */
    /* By mode: the order of a layer, ended by SIM_OP_END; NULL: not in this mode. */
    const struct sim_overlap_entry *table[2];
    uint32_t halves;   /* 1, or 2 micro-batches. */
    uint32_t delta[2]; /* Two halves, by mode: stages that half B is behind. */
    bool next_layer;   /* The next layer's projections need only combine, not reduce-scatter. */
    bool partition;    /* Normal mode: expert GEMMs leave out the SMs of communication always. */
    bool signals;      /* Combine sends an expert's rows as the down GEMM finishes them. */
    bool comm_sms;     /* Low latency: combine takes --comm-sms SMs, the rest computes. */
};

const struct sim_overlap *sim_overlap_find(const char *name); /* NULL when unknown. */
const struct sim_overlap *sim_overlap_at(size_t index);       /* NULL behind the last. */

const char *sim_op_name(enum sim_op op);             /* "gate_up", static. */
const char *sim_stream_name(enum sim_stream stream); /* "compute" | "comm", static. */

/* Ops of the same half and layer that op reads from, as bits 1 << op. */
uint32_t sim_overlap_needs(enum sim_op op);

/* The table in words, one line per kernel. Writes at most text_len bytes, NUL included; returns
 * the length it would have. The overlap has a table in that mode. */
size_t sim_overlap_explain(const struct sim_overlap *overlap, enum sim_mode mode, char *text,
                           size_t text_len);

/* SMs that combine takes beside compute: --comm-sms, or 3 up to Hopper and 32 from Blackwell. */
uint32_t sim_overlap_comm_sms(const struct sim_settings *settings,
                              const struct fabric_machine *machine);

/* What the shipped libraries refuse: an overlap in the wrong mode; sbo where the grouped GEMM
 * raises no signals (Hopper: the current wheel, unless --allow sbo_wheel; Blackwell: DeepGEMM,
 * so --gemm cutedsl), where block_m is below 64, or where communication leaves no SM. 0, or -1
 * with one line that starts with the rule's name. */
int sim_overlap_check(const struct sim_settings *settings, const struct fabric_machine *machine,
                      enum sim_mode mode, uint32_t block_m, char *err, size_t err_len);

/* ---- two halves ---- */

/* How a batch of sequences is cut in two: by whole sequences so that the sums are nearest, unless
 * the left part is then under 0.48 or over 0.52 of all tokens: then the sequence in the middle is
 * cut in two chunks at half of the tokens. */
struct sim_overlap_split {
    uint32_t sequences; /* Whole ones in the left half. */
    bool chunked;       /* The next sequence is cut. */
    uint64_t left;      /* Tokens of the left half. */
};
struct sim_overlap_split sim_overlap_split(const uint64_t *tokens, uint32_t sequences);

/* Rows that a captured graph computes for that many: 1, 2, 4, 8, then multiples of 8. */
uint64_t sim_overlap_padded(uint64_t rows);

#ifdef __cplusplus
}
#endif

#endif
