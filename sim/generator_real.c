/* sim/generator_real.c - routing as skewed and as sticky as that of a real model.
 *
 * Skew. Counts of 58 layers of a DeepSeek-V3-shaped router (256 experts) have a largest over mean
 * of 3.2, 6.2 and 13.3 (least, median, most), and their 32 busiest experts take 25, 31 and 50 % of
 * all choices. A lognormal whose S varies over the layers has both; a Zipf law with that head has
 * too thin a tail.
 *
 * Stickiness. Adjacent tokens of a request share 0.15 to 0.5 of their experts, more in some layers
 * than in others. So each column keeps the expert of the token before with a probability of the
 * layer's, and draws by weight otherwise, which leaves the weights' shares as they are. */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/generator_parts.h"

enum {
    SKEW_LEAST = 52, /* S in hundredths. */
    SKEW_MEDIAN = 74,
    SKEW_MOST = 106,
    KEEP_LEAST = 12, /* Percent; what two draws share by chance comes on top. */
    KEEP_MOST = 48
};

static uint32_t layer_skew(const struct sim_generator *generator, uint32_t layer)
{
    struct sim_rng rng = sim_rng_stream(generator->seed, SIM_DRAW_SKEW, layer, 0, 0);
    const uint32_t at = sim_rng_below(&rng, 1000);
    return at < 500 ? SKEW_LEAST + at * (SKEW_MEDIAN - SKEW_LEAST) / 500
                    : SKEW_MEDIAN + (at - 500) * (SKEW_MOST - SKEW_MEDIAN) / 500;
}

/* A probability as a threshold of 32 bits. */
static uint64_t layer_keep(const struct sim_generator *generator, uint32_t layer)
{
    struct sim_rng rng = sim_rng_stream(generator->seed, SIM_DRAW_KEEP, layer, 0, 0);
    const uint64_t percent = KEEP_LEAST + sim_rng_below(&rng, KEEP_MOST - KEEP_LEAST + 1);
    return (percent << 32) / 100;
}

/* The next row of a request: columns that stay, then draws for the others. */
static void draw_next(struct sim_rng *rng, const uint64_t *cumulative, uint32_t experts,
                      uint32_t topk, uint64_t keep, const int64_t *before, int64_t *row)
{
    int64_t made[REF_TOPK_MAX];
    bool stays[REF_TOPK_MAX];
    uint32_t have = 0, kept = 0;

    assert(topk <= REF_TOPK_MAX);
    for (uint32_t k = 0; k < topk; k++) {
        stays[k] = before != NULL && sim_rng_next(rng) >> 32 < keep;
        if (stays[k]) made[have++] = before[k];
    }
    uint32_t drawn = have;
    sim_generator_fill(rng, cumulative, experts, topk, have, made);
    for (uint32_t k = 0; k < topk; k++) row[k] = stays[k] ? made[kept++] : made[drawn++];
    assert(kept == have && drawn == topk);
}

/* A column of a stream: when it was drawn last, counted in steps, found by going back from the
 * step (two steps on average), so that no step needs another's rows. */
static uint64_t drawn_at(uint64_t lane, uint64_t step, uint64_t keep)
{
    while (step > 0 && sim_rng_mix(lane ^ step * UINT64_C(0xd1342543de82ef95)) >> 32 < keep) step--;
    return step;
}

static bool stands_before(const int64_t *row, uint32_t column)
{
    for (uint32_t j = 0; j < column; j++)
        if (row[j] == row[column]) return true;
    return false;
}

static void draw_stream(uint64_t key, uint64_t step, uint64_t keep, const uint64_t *cumulative,
                        uint32_t experts, uint32_t topk, int64_t *row)
{
    enum { TRIES = 64 };
    for (uint32_t k = 0; k < topk; k++) {
        const uint64_t lane = sim_rng_mix(key + (k + 1) * UINT64_C(0x9e3779b97f4a7c15));
        struct sim_rng rng = {sim_rng_mix(lane + drawn_at(lane, step, keep))};
        uint32_t tries = 0;
        do {
            const uint64_t at = sim_rng_next(&rng) % cumulative[experts - 1];
            row[k] = sim_generator_pick(cumulative, experts, at);
        } while (stands_before(row, k) && ++tries < TRIES);
        while (stands_before(row, k)) row[k] = (row[k] + 1) % experts; /* Extreme skew. */
    }
}

void sim_generator_draw_real(const struct sim_generator *generator, uint64_t step, uint32_t layer,
                             uint32_t rank, uint32_t tokens, int64_t *topk_idx)
{
    uint64_t cumulative[SIM_EXPERTS_MAX];
    const uint32_t experts = generator->experts, topk = generator->topk;
    const uint64_t keep = layer_keep(generator, layer);
    struct sim_rng rng = sim_rng_stream(generator->seed, SIM_DRAW_ROWS, step, layer, rank);

    assert(experts >= topk && experts <= SIM_EXPERTS_MAX);
    sim_generator_weights(generator, layer, layer_skew(generator, layer), cumulative);
    for (uint32_t t = 0; t < tokens; t++) {
        int64_t *row = topk_idx + (uint64_t)t * topk;
        if (generator->kind == SIM_GENERATOR_PREFILL) {
            draw_next(&rng, cumulative, experts, topk, keep, t > 0 ? row - topk : NULL, row);
            continue;
        }
        struct sim_rng stream = sim_rng_stream(generator->seed, SIM_DRAW_STREAM, layer, rank, t);
        draw_stream(sim_rng_next(&stream), step, keep, cumulative, experts, topk, row);
    }
}
