/* sim/rng.h - seeded draws: a 64-bit counter through a bijective mixer (splitmix64's finaliser).
 *
 * One stream per purpose: sim_rng_stream folds what the draw is for (a purpose, a step, a layer,
 * a rank) into the seed, so no draw depends on how many others were made before it. */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <stdint.h>

struct sim_rng {
    uint64_t state;
};

static inline uint64_t sim_rng_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static inline uint64_t sim_rng_next(struct sim_rng *rng)
{
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    return sim_rng_mix(rng->state);
}

/* Uniform in [0, below); below is at least 1 and at most 2^32. Multiply-shift: the bias is under
 * below / 2^32, far under what a routing of millions of tokens can show. */
static inline uint32_t sim_rng_below(struct sim_rng *rng, uint64_t below)
{
    return (uint32_t)(((sim_rng_next(rng) >> 32) * below) >> 32);
}

/* The stream of one purpose: seed and up to four labels, in order. */
static inline struct sim_rng sim_rng_stream(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b,
                                            uint64_t c)
{
    struct sim_rng rng = {seed};
    rng.state = sim_rng_next(&rng) ^ purpose;
    rng.state = sim_rng_next(&rng) ^ a;
    rng.state = sim_rng_next(&rng) ^ b;
    rng.state = sim_rng_next(&rng) ^ c;
    return rng;
}

#endif
