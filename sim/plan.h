/* sim/plan.h - settings made concrete: machine, model, group, shapes, layers, all checked.
 *
 * A plan is what a run is of; it holds no routing and no time. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "fabric/network.h"
#include "ref/quantise.h"
#include "sim/backend.h"
#include "sim/exchange.h"
#include "sim/model.h"
#include "sim/scenario.h"
#include "sim/settings.h"
#include "sim/skew.h"
#include "sim/traffic.h"

enum { SIM_LAYERS_MAX = 1024, SIM_NOTES_MAX = 16 };

struct sim_plan {
    struct sim_settings settings;
    struct fabric_machine machine;
    struct sim_model model;
    struct sim_scenario scenario;
    struct sim_skew skew;
    bool hook;         /* LL: send and receive halves are kernels of their own. */
    uint64_t pause_ps; /* Hook mode: other work between them. */
    struct fabric_network_shape network;
    enum sim_mode mode; /* LL or NORMAL: auto is decided. */
    enum ref_recipe recipe;
    enum sim_expert expert;
    uint32_t ranks, ranks_per_node, nodes;
    uint32_t experts; /* As kernels count them: places, with --eplb more than the model's. */
    uint32_t logical_experts; /* The model's, which the router names. */
    uint32_t topk;            /* Columns of the routing: the trace's, or the model's. */
    uint32_t hidden;          /* What kernels carry: the model's, padded where no kernel has it. */
    uint32_t qp_depth;
    uint32_t tokens[SIM_RANKS_MAX];
    uint32_t capacity[SIM_RANKS_MAX];
    uint64_t token_start[SIM_RANKS_MAX + 1];
    bool from_trace;
    uint32_t layer_count;
    uint32_t layers[SIM_LAYERS_MAX]; /* Indices among the model's MoE layers, ascending. */
    uint32_t note_count;
    char notes[SIM_NOTES_MAX][192]; /* What a reader must know: padding, lifted rules, ... */
};

/* Load and check everything that needs no routing. trace_layers and trace_topk are the captured
 * trace's axes, 0 for a generator. 0, or -1 with one line: what cannot be asked. *plan is large
 * (0.3 MB): allocate it; on failure its contents are undefined. */
int sim_plan_make(const struct sim_settings *settings, uint32_t trace_layers, uint32_t trace_topk,
                  struct sim_plan *plan, char *err, size_t err_len);

/* Where its backend is to be opened, so many states at once. The plan was made: cannot fail. */
struct sim_backend_place sim_plan_place(const struct sim_plan *plan, uint32_t in_flight);

/* Does the routing setting name a trace rather than a generator? */
bool sim_plan_is_trace(const struct sim_settings *settings);

/* Wire and formula bytes of one message in each direction, and how ranks are linked. */
struct sim_traffic_shape sim_plan_shape(const struct sim_plan *plan);

/* What the plan says of one exchange; its launches (start_ps) are the caller's to fill in. Borrows
 * plan and traffic. */
struct sim_exchange sim_plan_exchange(const struct sim_plan *plan,
                                      const struct sim_traffic *traffic,
                                      enum sim_direction direction);

#endif
