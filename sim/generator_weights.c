/* sim/generator_weights.c - how much an expert weighs in a layer, and choices by weight.
 *
 * Weights come from ref/mathfn.h in fp32 and become integers before anything is drawn, so a seed
 * gives the same rows on every libc. */
#include <assert.h>
#include <stdbool.h>

#include "ref/mathfn.h"
#include "sim/generator_parts.h"

/* Draw and draw again: K is small against E, or E is small. */
void sim_generator_fill_evenly(struct sim_rng *rng, uint32_t experts, uint32_t topk, uint32_t have,
                               int64_t *row)
{
    assert(have <= topk && topk <= experts);
    while (have < topk) {
        const int64_t expert = sim_rng_below(rng, experts);
        bool taken = false;
        for (uint32_t k = 0; k < have; k++) taken |= row[k] == expert;
        if (!taken) row[have++] = expert;
    }
}

void sim_generator_weights(const struct sim_generator *generator, uint32_t layer,
                           uint32_t hundredths, uint64_t *cumulative)
{
    struct sim_rng rng = sim_rng_stream(generator->seed, SIM_DRAW_WEIGHTS, layer, 0, 0);
    uint64_t sum = 0;
    for (uint32_t e = 0; e < generator->experts; e++) {
        int64_t deviate = 0; /* In units of 2^-16. */
        for (int i = 0; i < 12; i++) deviate += sim_rng_below(&rng, 65536);
        deviate -= INT64_C(6) * 65536;
        const float power = (float)(deviate * (int64_t)hundredths) / (65536.0f * 100.0f);
        sum += (uint64_t)(ref_exp(power) * 65536.0f) + 1;
        cumulative[e] = sum;
    }
}

uint32_t sim_generator_pick(const uint64_t *cumulative, uint32_t count, uint64_t at)
{
    uint32_t low = 0, high = count - 1;
    assert(count > 0 && at < cumulative[count - 1]);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (cumulative[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void sim_generator_fill(struct sim_rng *rng, const uint64_t *cumulative, uint32_t experts,
                        uint32_t topk, uint32_t have, int64_t *row)
{
    const uint64_t sum = cumulative[experts - 1];
    uint32_t tries = 0;
    assert(have <= topk && topk <= experts && sum > 0);
    while (have < topk && tries++ < 64 * topk) {
        const int64_t expert = sim_generator_pick(cumulative, experts, sim_rng_next(rng) % sum);
        bool taken = false;
        for (uint32_t k = 0; k < have; k++) taken |= row[k] == expert;
        if (!taken) row[have++] = expert;
    }
    sim_generator_fill_evenly(rng, experts, topk, have, row); /* Extreme skew: fill up evenly. */
}
