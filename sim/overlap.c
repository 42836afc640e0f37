/* sim/overlap.c - the tables of the overlaps. Read them from top to bottom. */
#include "sim/overlap.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MAIN(op)                                                                                   \
    {                                                                                              \
        SIM_OP_##op, SIM_STREAM_MAIN                                                               \
    }
#define COMM(op)                                                                                   \
    {                                                                                              \
        SIM_OP_##op, SIM_STREAM_COMM                                                               \
    }
#define ATTENTION_PART                                                                             \
    MAIN(TP_GATHER), MAIN(PROJECTION), MAIN(ATTENTION), MAIN(TP_SCATTER), MAIN(GATHER), MAIN(ROUTER)
#define EXPERT_PART MAIN(PERMUTE), MAIN(GATE_UP), MAIN(ACTIVATION), MAIN(DOWN), MAIN(UNPERMUTE)

/* Everything after everything else. Also what a dense layer does. */
static const struct sim_overlap_entry NONE[] = {
    ATTENTION_PART, MAIN(FFN),     MAIN(SHARED),         MAIN(QUANTISE), MAIN(DISPATCH),
    EXPERT_PART,    MAIN(COMBINE), MAIN(REDUCE_SCATTER), MAIN(END)};

/* Reduce-scatter beside the projections of the next layer. */
static const struct sim_overlap_entry LAYERS[] = {
    ATTENTION_PART, MAIN(FFN),     MAIN(SHARED),         MAIN(QUANTISE), MAIN(DISPATCH),
    EXPERT_PART,    MAIN(COMBINE), COMM(REDUCE_SCATTER), MAIN(END)};

/* The shared expert while dispatched rows fly: low latency between send and receive on one
 * stream, normal beside the dispatch kernel. */
static const struct sim_overlap_entry SHARED_DISPATCH_LL[] = {
    ATTENTION_PART, MAIN(DISPATCH_SEND), MAIN(SHARED),         MAIN(DISPATCH),
    EXPERT_PART,    MAIN(COMBINE),       MAIN(REDUCE_SCATTER), MAIN(END)};
static const struct sim_overlap_entry SHARED_DISPATCH_NORMAL[] = {
    ATTENTION_PART, MAIN(QUANTISE), COMM(DISPATCH),       MAIN(SHARED),
    EXPERT_PART,    MAIN(COMBINE),  MAIN(REDUCE_SCATTER), MAIN(END)};

/* The shared expert beside combine, on two streams. */
static const struct sim_overlap_entry SHARED_COMBINE[] = {
    ATTENTION_PART, MAIN(QUANTISE), MAIN(DISPATCH),       EXPERT_PART,
    COMM(COMBINE),  MAIN(SHARED),   MAIN(REDUCE_SCATTER), MAIN(END)};

/* Single batch: combine sends what the down GEMM has finished, block by block. */
static const struct sim_overlap_entry SBO[] = {ATTENTION_PART, MAIN(SHARED),  MAIN(DISPATCH),
                                               EXPERT_PART,    COMM(COMBINE), MAIN(REDUCE_SCATTER),
                                               MAIN(END)};

/* Two batches, decode: five stages, half B two behind; sends and receives are short kernels on
 * the one stream, rows fly while the other half computes. */
static const struct sim_overlap_entry TBO_LL[] = {
    MAIN(TP_GATHER), MAIN(PROJECTION),     MAIN(YIELD), MAIN(ATTENTION),     MAIN(TP_SCATTER),
    MAIN(GATHER),    MAIN(ROUTER),         MAIN(YIELD), MAIN(DISPATCH_SEND), MAIN(SHARED),
    MAIN(YIELD),     MAIN(DISPATCH),       EXPERT_PART, MAIN(COMBINE_SEND),  MAIN(YIELD),
    MAIN(COMBINE),   MAIN(REDUCE_SCATTER), MAIN(END)};

/* Two batches, prefill: three stages, the halves side by side; dispatch and combine run on their
 * own stream with their own SMs. */
static const struct sim_overlap_entry TBO_NORMAL[] = {
    ATTENTION_PART, MAIN(QUANTISE), COMM(DISPATCH), MAIN(YIELD),          EXPERT_PART,
    COMM(COMBINE),  MAIN(YIELD),    MAIN(SHARED),   MAIN(REDUCE_SCATTER), MAIN(END)};

/* Two micro-batches by hooks alone: attention, experts, rest; half B one stage behind. */
static const struct sim_overlap_entry HOOKS[] = {
    ATTENTION_PART, MAIN(DISPATCH_SEND),  MAIN(YIELD), MAIN(DISPATCH),
    EXPERT_PART,    MAIN(COMBINE_SEND),   MAIN(YIELD), MAIN(SHARED),
    MAIN(COMBINE),  MAIN(REDUCE_SCATTER), MAIN(END)};

static const struct sim_overlap OVERLAPS[] = {
    {.name = "none",
     .summary = "one kernel after the other on one stream",
     .table = {NONE, NONE},
     .halves = 1},
    {.name = "layers",
     .summary = "reduce-scatter of a layer beside the projections of the next",
     .table = {LAYERS, LAYERS},
     .halves = 1,
     .next_layer = true},
    {.name = "shared-dispatch",
     .summary = "the shared expert while dispatched rows fly (the library's choice on Hopper)",
     .table = {SHARED_DISPATCH_LL, SHARED_DISPATCH_NORMAL},
     .halves = 1},
    {.name = "shared-combine",
     .summary = "the shared expert beside combine on two streams (the library's on Blackwell)",
     .table = {SHARED_COMBINE, SHARED_COMBINE},
     .halves = 1,
     .comm_sms = true},
    {.name = "sbo",
     .summary = "single batch: combine sends blocks as the down GEMM finishes them",
     .table = {SBO, NULL},
     .halves = 1,
     .signals = true,
     .comm_sms = true},
    {.name = "tbo",
     .summary = "two batches: one half computes while the other's rows fly",
     .table = {TBO_LL, TBO_NORMAL},
     .halves = 2,
     .delta = {2, 0},
     .partition = true},
    {.name = "hooks",
     .summary = "two micro-batches: send and receive as separate kernels, no SM in between",
     .table = {HOOKS, NULL},
     .halves = 2,
     .delta = {1, 0}},
};
enum { OVERLAPS_COUNT = sizeof OVERLAPS / sizeof OVERLAPS[0] };

const struct sim_overlap *sim_overlap_at(size_t index)
{
    return index < OVERLAPS_COUNT ? &OVERLAPS[index] : NULL;
}

const struct sim_overlap *sim_overlap_find(const char *name)
{
    for (size_t i = 0; i < OVERLAPS_COUNT; i++)
        if (strcmp(OVERLAPS[i].name, name) == 0) return &OVERLAPS[i];
    return NULL;
}

static const struct {
    const char *name;
    uint32_t needs;
} OPS[SIM_OPS] = {
    [SIM_OP_TP_GATHER] = {"tp_gather", 0},
    [SIM_OP_PROJECTION] = {"projection", 1u << SIM_OP_TP_GATHER},
    [SIM_OP_ATTENTION] = {"attention", 1u << SIM_OP_PROJECTION},
    [SIM_OP_TP_SCATTER] = {"tp_scatter", 1u << SIM_OP_ATTENTION},
    [SIM_OP_GATHER] = {"gather", 1u << SIM_OP_TP_SCATTER},
    [SIM_OP_ROUTER] = {"router", 1u << SIM_OP_GATHER},
    [SIM_OP_QUANTISE] = {"quantise", 1u << SIM_OP_ROUTER},
    [SIM_OP_DISPATCH] = {"dispatch",
                         1u << SIM_OP_DISPATCH_SEND | 1u << SIM_OP_QUANTISE | 1u << SIM_OP_ROUTER},
    [SIM_OP_SHARED] = {"shared", 1u << SIM_OP_ROUTER},
    [SIM_OP_PERMUTE] = {"permute", 1u << SIM_OP_DISPATCH},
    [SIM_OP_GATE_UP] = {"gate_up", 1u << SIM_OP_PERMUTE},
    [SIM_OP_ACTIVATION] = {"activation", 1u << SIM_OP_GATE_UP},
    [SIM_OP_DOWN] = {"down", 1u << SIM_OP_ACTIVATION},
    [SIM_OP_UNPERMUTE] = {"unpermute", 1u << SIM_OP_DOWN},
    [SIM_OP_COMBINE] = {"combine", 1u << SIM_OP_COMBINE_SEND | 1u << SIM_OP_UNPERMUTE},
    [SIM_OP_REDUCE_SCATTER] = {"reduce_scatter",
                               1u << SIM_OP_COMBINE | 1u << SIM_OP_SHARED | 1u << SIM_OP_FFN},
    [SIM_OP_FFN] = {"ffn", 1u << SIM_OP_GATHER},
    [SIM_OP_DISPATCH_SEND] = {"dispatch_send", 1u << SIM_OP_QUANTISE | 1u << SIM_OP_ROUTER},
    [SIM_OP_COMBINE_SEND] = {"combine_send", 1u << SIM_OP_UNPERMUTE},
};

const char *sim_op_name(enum sim_op op)
{
    assert((unsigned)op < SIM_OPS);
    return OPS[op].name;
}

uint32_t sim_overlap_needs(enum sim_op op)
{
    assert((unsigned)op < SIM_OPS);
    return OPS[op].needs;
}

const char *sim_stream_name(enum sim_stream stream)
{
    assert((unsigned)stream < SIM_STREAMS);
    return stream == SIM_STREAM_MAIN ? "compute" : "comm";
}
