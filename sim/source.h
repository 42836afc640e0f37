/* sim/source.h - where a run's routing comes from: a captured trace or a generator. */
#ifndef SIM_SOURCE_H
#define SIM_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include "sim/plan.h"
#include "traces/routing.h"

struct sim_source;
struct sim_placement;

/* Open the trace that the settings name; its axes are then passed to sim_plan_make. NULL with
 * err. For a generator: a source without a trace (sim_source_trace is NULL). */
struct sim_source *sim_source_open(const struct sim_settings *settings, char *err, size_t err_len);
const struct trace_routing *sim_source_trace(const struct sim_source *source);

/* Bind to the plan (borrowed until close) and stand before step 0. 0, or -1 with err. */
int sim_source_start(struct sim_source *source, const struct sim_plan *plan, char *err,
                     size_t err_len);

/* How a started trace is played, in one line for people; "" for a generator. */
void sim_source_describe(const struct sim_source *source, char *text, size_t text_len);

/* What is odd about a started trace, in one line; "" when nothing is. Weights beside chosen experts
 * that are no finite numbers, or below 0 (sim_rules_weights; looks at the whole trace) ... */
void sim_source_remark(const struct sim_source *source, char *text, size_t text_len);
/* ... and a model that the trace names and that is not the one played, whatever folder or letters
 * it is written with. */
void sim_source_remark_model(const struct sim_source *source, char *text, size_t text_len);

/* Choices and weights of all ranks' tokens in one MoE layer of the current step:
 * topk_idx [tokens][topk] (places, with --eplb), weights [tokens][topk] (1 / topk where the trace
 * has none). */
void sim_source_layer(const struct sim_source *source, uint32_t layer, int64_t *topk_idx,
                      float *weights);
/* Where replicas stand, with --eplb; else NULL. After start. */
const struct sim_placement *sim_source_placement(const struct sim_source *source);
void sim_source_advance(struct sim_source *source); /* To the next step. */
void sim_source_close(struct sim_source *source);   /* NULL is fine. */

#endif
