/* sim/generator.h - routing drawn from a seed: who chooses which experts.
 *
 *   uniform       K distinct experts, all alike
 *   lognormal:S   as uniform, but expert e of a layer weighs exp(S x normal deviate); S in
 *                 hundredths up to 4.00 (S = 1 gives a maximum near 10 times the mean at E 256)
 *   hot:N         one expert of the layer is among the choices of N percent of all tokens
 *   roundrobin    perfectly balanced: choice i of the group's tokens takes expert i mod E
 *   prefill       as skewed as a real model of 256 experts, layer by layer; adjacent rows of a rank
 *                 share 0.15 to 0.5 of their experts, as the tokens of a prompt do
 *   decode        the same skew; a row shares as much with its own row of the step before, as the
 *                 tokens of a decode stream do
 *   limited:G     the G nodes with the best single expert, then the best K experts in them, by
 *                 uniform scores (how group-limited routers load a cluster)
 *
 * A row's ids are distinct and a draw depends only on (seed, step, layer, rank, token). */
#ifndef SIM_GENERATOR_H
#define SIM_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_EXPERTS_MAX = 4096 };

enum sim_generator_kind {
    SIM_GENERATOR_UNIFORM,
    SIM_GENERATOR_LOGNORMAL,
    SIM_GENERATOR_HOT,
    SIM_GENERATOR_ROUNDROBIN,
    SIM_GENERATOR_LIMITED,
    SIM_GENERATOR_PREFILL,
    SIM_GENERATOR_DECODE
};

struct sim_generator {
    enum sim_generator_kind kind;
    uint32_t parameter; /* lognormal: S x 100; hot: percent; limited: nodes kept. */
    uint32_t experts;   /* E, 1..SIM_EXPERTS_MAX. */
    uint32_t topk;      /* K, 1..min(E, REF_TOPK_MAX). */
    uint32_t nodes;     /* limited only: divides experts. */
    uint64_t seed;
};

/* Does text begin with a generator's name (whatever its parameter)? */
bool sim_generator_named(const char *text);

/* Read "NAME" or "NAME:PARAMETER". 0, or -1 with one line; *generator only on success. */
int sim_generator_parse(const char *text, uint32_t experts, uint32_t topk, uint32_t nodes,
                        uint64_t seed, struct sim_generator *generator, char *err, size_t err_len);

/* Choices of one rank's tokens in one layer of one step: topk_idx [tokens][topk]. */
void sim_generator_draw(const struct sim_generator *generator, uint64_t step, uint32_t layer,
                        uint32_t rank, uint32_t tokens, int64_t *topk_idx);

#endif
