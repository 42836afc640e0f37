/* sim/what_if.h - one question answered with few figures: these settings, how fast, how big?
 *
 * Plays the settings without moving bytes and condenses the run to what people compare: time by
 * layer and step, tokens per second and GPU, bytes by link class, memory of a rank, money. */
#ifndef SIM_WHAT_IF_H
#define SIM_WHAT_IF_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/bytes.h"
#include "sim/settings.h"
#include "sim/traffic.h"

struct sim_what_if {
    uint32_t ranks, nodes;
    enum sim_mode mode;   /* LL or NORMAL: what auto became. */
    uint64_t tokens;      /* Of all ranks in a step. */
    uint32_t layers;      /* MoE layers played. */
    uint64_t dispatch_ps; /* Of the slowest rank: median over steps, mean over layers. */
    uint64_t combine_ps;
    uint64_t layer_ps;         /* Both. */
    uint64_t step_ps;          /* All layers, one step: mean over steps. */
    struct sim_bytes bytes;    /* Of one step, all layers and ranks. */
    uint64_t expert_ratio_ppm; /* Fullest expert over the mean one, mean over layers and steps. */
    uint64_t buffer_bytes;     /* Communication buffers of one rank, by the library's formulas. */
    uint64_t digest;
};

enum { SIM_WHAT_IF_REFUSED = -2 };

/* 0 with *out filled; SIM_WHAT_IF_REFUSED with err: a rule or an option refuses; -1 with err: no
 * memory, or a file cannot be read. Thread-safe. */
int sim_what_if(const struct sim_settings *settings, struct sim_what_if *out, char *err,
                size_t err_len);

/* A flat object, units in the names; a new reference. */
json_t *sim_what_if_json(const struct sim_what_if *what_if);

#endif
