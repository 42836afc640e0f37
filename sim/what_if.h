/* sim/what_if.h - one question answered with few figures: these settings, how fast, how big?
 *
 * Plays the settings without moving bytes and condenses the run to what people compare: time by
 * layer and step, tokens per second and GPU, bytes by link class, memory of a rank, money. Where
 * the settings ask for whole steps (sim_step_wanted) attention and experts are in the times. */
#ifndef SIM_WHAT_IF_H
#define SIM_WHAT_IF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/bytes.h"
#include "sim/settings.h"
#include "sim/step.h"

struct sim_what_if {
    uint32_t ranks, nodes;
    enum sim_mode mode; /* LL or NORMAL: what auto became. */
    uint64_t tokens;    /* Of all ranks in a step. */
    uint32_t layers;    /* MoE layers in step_ps. */
    bool whole;         /* step_ps is a whole step, times is filled; else dispatch and combine. */
    uint64_t dispatch_ps, combine_ps; /* In a MoE layer: whole steps mean over ranks and layers;
                                         else the slowest rank's median over steps. */
    uint64_t layer_ps, step_ps;
    uint64_t wire_bytes[SIM_LINK_CLASSES]; /* Of one step, all layers and ranks. */
    struct sim_step_times times;
    struct sim_step_memory memory;
    uint64_t kv_needed_tokens;  /* Of the fullest rank: its requests' contexts and new rows. */
    bool weights_fit;           /* Weights, buffers and workspace lie within the GPU's memory. */
    bool fits;                  /* They do, and memory.kv_tokens holds what is needed of it. */
    uint64_t gpu_hour_microusd; /* The machine's price; 0 = it has none. */
};

enum { SIM_WHAT_IF_REFUSED = -2 };

/* 0 with *out filled; SIM_WHAT_IF_REFUSED with err: a rule or an option refuses; -1 with err: no
 * memory, or a file cannot be read. Thread-safe. */
int sim_what_if(const struct sim_settings *settings, struct sim_what_if *out, char *err,
                size_t err_len);

/* A flat object, units in the names; a new reference. */
json_t *sim_what_if_json(const struct sim_what_if *what_if);

/* Tokens that the fullest rank's KV cache must hold: its requests' contexts (--context, above 0)
 * and the step's new rows. */
uint64_t sim_what_if_kv_tokens(const struct sim_plan *plan);

#endif
