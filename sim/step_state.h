/* sim/step_state.h - what the parts of the step share; for sim/step*.c alone. */
#ifndef SIM_STEP_STATE_H
#define SIM_STEP_STATE_H

#include "sim/compute.h"
#include "sim/exchange.h"
#include "sim/step.h"

enum { STEP_HOLDS = 8, STEP_HALVES = 2, STEP_SLOTS = 2, STEP_EXPERTS_MAX = 4096 };

/* SMs of a rank that communication holds for a while. */
struct step_hold {
    uint64_t from_ps, to_ps;
    uint32_t sms;
};

/* One half's share of one layer. */
struct step_slot {
    bool dense;
    uint32_t layer; /* As in sim_step_span. */
    uint32_t half;
    struct ref_routing routing;
    uint64_t token_start[SIM_RANKS_MAX + 1];
    int64_t *choices; /* Owned, [tokens_max][topk]. */
    struct sim_traffic traffic;
    struct sim_timing timing[SIM_DIRECTIONS];
    uint64_t sent_ps[SIM_DIRECTIONS][SIM_RANKS_MAX]; /* When each rank's send was launched. */
    bool hooked[SIM_DIRECTIONS];                     /* Sent by a kernel of its own. */
    uint64_t delay_ps[SIM_DIRECTIONS];               /* Behind what was on the wires before. */
    uint64_t counts_ps[SIM_RANKS_MAX]; /* Normal: received counts known to the host. */
    uint64_t sent_bytes[SIM_DIRECTIONS][SIM_RANKS_MAX];
    uint64_t sent_rows[SIM_DIRECTIONS][SIM_RANKS_MAX];
    uint64_t expert_rows[STEP_EXPERTS_MAX];
    uint64_t received[SIM_RANKS_MAX]; /* Normal: rows as they arrive. */
    struct sim_experts experts[SIM_RANKS_MAX];
    uint64_t start_ps[SIM_OPS][SIM_RANKS_MAX];
    uint64_t end_ps[SIM_OPS][SIM_RANKS_MAX];
};

struct step_half {
    uint64_t rows[SIM_RANKS_MAX]; /* Real ones. */
    uint64_t requests[SIM_RANKS_MAX];
    uint64_t before[SIM_RANKS_MAX]; /* Prefill: rows of a cut sequence that the left half has. */
    uint64_t padded; /* Rows per rank that the captured graph computes; 0 = the real ones. */
    uint64_t stage;  /* Next stage, counted through the step's MoE layers. */
    uint64_t rest_ps[SIM_RANKS_MAX]; /* The layer before: everything but its reduce-scatter ... */
    uint64_t done_ps[SIM_RANKS_MAX]; /* ... and that too. */
    struct step_slot *slots;         /* Owned, [STEP_SLOTS], by parity of the layer. */
};

struct sim_step {
    const struct sim_plan *plan;
    const struct sim_overlap *overlap;
    const struct sim_overlap_entry *table; /* Of a MoE layer. */
    sim_step_span_fn span;
    void *context;
    struct sim_engine *engine;
    uint32_t ranks;
    uint32_t halves; /* In use. */
    uint32_t delta, stages;
    bool prefill;
    uint64_t number;
    uint64_t start_ps, dense_end_ps, end_ps;
    uint64_t first_end_ps, last_end_ps; /* Of half A's first and last MoE layer so far. */
    uint64_t free_ps[SIM_STREAMS][SIM_RANKS_MAX];
    struct step_hold holds[SIM_RANKS_MAX][STEP_HOLDS];
    uint32_t next_hold[SIM_RANKS_MAX];
    uint64_t wires_free_ps; /* When what is on the wires has crossed. */
    struct step_half half[STEP_HALVES];
    uint64_t spent_ps[2][SIM_OPS]; /* [dense]: over ranks and layers. */
    uint64_t wire_bytes[SIM_LINK_CLASSES];
    uint64_t collective_bytes[2]; /* [dense] */
    uint64_t layers;              /* MoE layers of this step so far. */
    char note[512];
};

/* step_work.c: time of op on rank when it may start at ready_ps. */
uint64_t step_compute(struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                      uint32_t rank, uint64_t ready_ps);
void step_hold(struct sim_step *step, uint32_t rank, uint64_t from_ps, uint64_t to_ps,
               uint32_t sms);
uint64_t step_op_rows(const struct sim_step *step, const struct step_slot *slot, enum sim_op op,
                      uint32_t rank);

/* step_comm.c: fill slot->end_ps[op] from slot->start_ps[op]. */
int step_exchange(struct sim_step *step, struct step_slot *slot, enum sim_op op,
                  enum sim_stream stream, char *err, size_t err_len);
void step_collective(struct sim_step *step, struct step_slot *slot, enum sim_op op,
                     enum sim_stream stream);

/* step_slot.c: a layer's routing, cut for the half. */
int step_slot_build(struct sim_step *step, struct step_slot *slot,
                    const struct ref_routing *routing, char *err, size_t err_len);
void step_slot_free(struct step_slot *slot);

/* step_layer.c */
int step_run_stage(struct sim_step *step, struct step_slot *slot,
                   const struct sim_overlap_entry *entry, char *err, size_t err_len);

#endif
