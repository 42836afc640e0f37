/* sim/generator_parts.h - what sim/generator.c stands on: draws by weight (generator_weights.c) and
 * those that are like a real model's (generator_real.c). */
#ifndef SIM_GENERATOR_PARTS_H
#define SIM_GENERATOR_PARTS_H

#include "sim/generator.h"
#include "sim/rng.h"

enum { /* Purposes of streams. */
       SIM_DRAW_ROWS = 1,
       SIM_DRAW_WEIGHTS,
       SIM_DRAW_HOT,
       SIM_DRAW_SKEW = 64,
       SIM_DRAW_KEEP,
       SIM_DRAW_STREAM
};

/* Cumulative integer weights of a layer's experts: exp(S x deviate) in units of 2^-16, at least 1,
 * where the deviate is twelve uniforms less six (mean 0, variance 1); S in hundredths. */
void sim_generator_weights(const struct sim_generator *generator, uint32_t layer,
                           uint32_t hundredths, uint64_t *cumulative);

/* The expert at a point below the last of cumulative [count]. */
uint32_t sim_generator_pick(const uint64_t *cumulative, uint32_t count, uint64_t at);

/* Fill row [have, topk) with experts, all distinct: evenly, or by weight. */
void sim_generator_fill_evenly(struct sim_rng *rng, uint32_t experts, uint32_t topk, uint32_t have,
                               int64_t *row);
void sim_generator_fill(struct sim_rng *rng, const uint64_t *cumulative, uint32_t experts,
                        uint32_t topk, uint32_t have, int64_t *row);

/* decode and prefill. */
void sim_generator_draw_real(const struct sim_generator *generator, uint64_t step, uint32_t layer,
                             uint32_t rank, uint32_t tokens, int64_t *topk_idx);

#endif
