/* sim/step.h - a whole decode or prefill step: every layer, every kernel, on every rank.
 *
 * The step stands on the exchange (sim/exchange.h), the pieces of compute (sim/compute.h) and an
 * order of both (sim/overlap.h). It answers when; no bytes move. Streams and SMs are resources:
 * kernels of one stream follow each other, and a compute kernel slows while communication on the
 * other stream holds SMs. Kernels that run already are not slowed by later ones: blocks are not
 * preempted. Embedding, logits and sampling are not modelled.
 *
 * One call answers a what-if: sim_step_estimate. A run that has its own routing feeds it layer
 * by layer: open, then for each step begin, layer (every MoE layer, ascending), end. */
#ifndef SIM_STEP_H
#define SIM_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"
#include "sim/overlap.h"
#include "sim/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one step took. Times are modelled. */
struct sim_step_times {
    uint64_t step_ps;        /* All layers of the model, first start to last rank's end. */
    uint64_t layer_ps;       /* A MoE layer, mean. */
    uint64_t dense_ps;       /* A dense layer; 0 where there is none. */
    uint64_t op_ps[SIM_OPS]; /* In a MoE layer: mean over ranks and layers, halves added up. */
    uint64_t dense_op_ps[SIM_OPS];
    uint64_t rows;           /* Of all ranks. */
    uint64_t requests;       /* The same. */
    uint64_t rows_per_s_gpu; /* rows / step / ranks. With verify > 1 accepted tokens are fewer. */
    uint64_t wire_bytes[SIM_LINK_CLASSES]; /* Dispatch and combine of the step, all ranks. */
    uint64_t collective_bytes; /* Gathers and scatters of the step, all ranks, by formula. */
    uint32_t moe_layers, dense_layers;
    uint32_t simulated; /* MoE layers; the others are taken as the later ones' mean. */
    bool halved;        /* Two micro-batches ran. */
};

/* What one rank must hold. */
struct sim_step_memory {
    uint64_t hbm_bytes;
    uint64_t expert_bytes;    /* Weights of the routed experts, all MoE layers. */
    uint64_t other_bytes;     /* Attention, shared and dense FFN, router, embedding, logits. */
    uint64_t buffer_bytes;    /* The library's: low latency, or NVLink and RDMA. */
    uint64_t workspace_bytes; /* Largest activations of a layer between its kernels. */
    uint64_t held_bytes;      /* All of these; above hbm_bytes: the deployment does not fit. */
    uint64_t kv_bytes;        /* What is left for the KV cache; 0 when nothing is. */
    uint64_t kv_token_bytes;  /* Of one token, all layers, indexer too. */
    uint64_t kv_tokens;       /* kv_bytes / kv_token_bytes. */
};

/* One kernel on one rank, told as it is placed. */
struct sim_step_span {
    uint64_t step;
    bool dense;
    uint32_t layer; /* Among the MoE layers, or among the dense ones. */
    uint32_t half;  /* 0 | 1 */
    uint32_t rank;
    enum sim_op op;
    enum sim_stream stream;
    uint64_t start_ps, end_ps;
    uint64_t bytes, rows; /* Exchange: sent by this rank. Else 0 bytes, and rows worked on. */
};
typedef int (*sim_step_span_fn)(void *context, const struct sim_step_span *span, char *err,
                                size_t err_len);

/* Does the run want whole steps? (--context, --phase, or an --overlap.) */
bool sim_step_wanted(const struct sim_settings *settings);

struct sim_step; /* Opaque; one thread at a time. */

/* Everything that can refuse: figures that machine or model lack, what the overlap does not
 * take. Borrows plan. NULL with one line in err. span may be NULL. */
struct sim_step *sim_step_open(const struct sim_plan *plan, sim_step_span_fn span, void *context,
                               char *err, size_t err_len);
void sim_step_close(struct sim_step *step); /* NULL is fine. */

/* Why two halves run as one, or what else a reader must know; "" when nothing. */
const char *sim_step_note(const struct sim_step *step);

/* Start a step: its dense layers run. 0, or -1 with err (memory, or what span said). */
int sim_step_begin(struct sim_step *step, uint64_t number, char *err, size_t err_len);
/* A MoE layer with the plan's ranks, experts, tokens. Borrows nothing beyond the call. */
int sim_step_layer(struct sim_step *step, const struct ref_routing *routing, uint32_t layer,
                   char *err, size_t err_len);
/* The rest, and the answer. The next step starts when the last rank has ended. */
int sim_step_end(struct sim_step *step, struct sim_step_times *times, char *err, size_t err_len);

bool sim_step_halved(const struct sim_step *step);     /* Do two micro-batches run? */
uint64_t sim_step_now_ps(const struct sim_step *step); /* When the last rank ends, so far. */

/* Sums of several steps, then their mean; what is no time or byte is the last step's. */
void sim_step_times_add(struct sim_step_times *sum, const struct sim_step_times *times);
void sim_step_times_divide(struct sim_step_times *sum, uint64_t steps);

/* What a rank of the plan must hold, by formula; *memory is filled. Figures that the model or the
 * machine lacks count as 0. */
void sim_step_memory(const struct sim_plan *plan, struct sim_step_memory *memory);

/* Play settings.steps steps of a plan whose source stands before step 0: *times becomes their
 * mean. 0, or -1 with one line: what sim_step_open refuses, or memory. */
struct sim_source;
int sim_step_play(const struct sim_plan *plan, struct sim_source *source,
                  struct sim_step_times *times, char *err, size_t err_len);

/* The what-if in one call: machine, model and everything else from the settings, routing drawn
 * or from a trace, settings.steps steps (times: their mean), settings.layers of the MoE layers.
 * times or memory may be NULL. 0, or -1 with one line: what cannot be asked. */
int sim_step_estimate(const struct sim_settings *settings, struct sim_step_times *times,
                      struct sim_step_memory *memory, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
