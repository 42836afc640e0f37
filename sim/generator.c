/* sim/generator.c - the generators by name, and the draws of those that are not like a model's. */
#include "sim/generator.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/generator_parts.h"
#include "sim/settings.h"

static const struct {
    const char *name;
    enum sim_generator_kind kind;
    bool has_parameter;
} KINDS[] = {
    {"uniform", SIM_GENERATOR_UNIFORM, false}, {"lognormal", SIM_GENERATOR_LOGNORMAL, true},
    {"hot", SIM_GENERATOR_HOT, true},          {"roundrobin", SIM_GENERATOR_ROUNDROBIN, false},
    {"limited", SIM_GENERATOR_LIMITED, true},  {"prefill", SIM_GENERATOR_PREFILL, false},
    {"decode", SIM_GENERATOR_DECODE, false},
};

bool sim_generator_named(const char *text)
{
    const size_t span = strcspn(text, ":");
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (strlen(KINDS[i].name) == span && memcmp(KINDS[i].name, text, span) == 0) return true;
    return false;
}

/* "1.25" -> 125; at most two decimals. */
static int parse_hundredths(const char *text, uint32_t max, uint32_t *out)
{
    char whole[16] = "";
    uint64_t units = 0, cents = 0;
    const size_t span = strcspn(text, ".");
    const char *decimals = text[span] == '.' ? text + span + 1 : "0";
    if (span == 0 || span >= sizeof whole || strlen(decimals) > 2) return -1;
    memcpy(whole, text, span);
    if (sim_parse_u64(whole, 0, max / 100, &units) != 0) return -1;
    if (sim_parse_u64(decimals, 0, 99, &cents) != 0) return -1;
    if (strlen(decimals) == 1) cents *= 10;
    if (units * 100 + cents > max) return -1;
    *out = (uint32_t)(units * 100 + cents);
    return 0;
}

static int parse_parameter(enum sim_generator_kind kind, const char *text, uint32_t nodes,
                           uint32_t *out)
{
    uint64_t number = 0;
    if (kind == SIM_GENERATOR_LOGNORMAL) return parse_hundredths(text, 400, out);
    if (sim_parse_u64(text, kind == SIM_GENERATOR_HOT ? 0 : 1,
                      kind == SIM_GENERATOR_HOT ? 100 : nodes, &number) != 0)
        return -1;
    *out = (uint32_t)number;
    return 0;
}

int sim_generator_parse(const char *text, uint32_t experts, uint32_t topk, uint32_t nodes,
                        uint64_t seed, struct sim_generator *generator, char *err, size_t err_len)
{
    struct sim_generator read = {SIM_GENERATOR_UNIFORM, 0, experts, topk, nodes, seed};
    const size_t span = strcspn(text, ":");

    if (experts < 1 || experts > SIM_EXPERTS_MAX || topk < 1 || topk > experts ||
        topk > REF_TOPK_MAX) {
        snprintf(err, err_len,
                 "--routing: top-%" PRIu32 " of %" PRIu32
                 " experts: at most %d experts and top-%d can be drawn",
                 topk, experts, SIM_EXPERTS_MAX, REF_TOPK_MAX);
        return -1;
    }
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strlen(KINDS[i].name) != span || memcmp(KINDS[i].name, text, span) != 0) continue;
        read.kind = KINDS[i].kind;
        if (KINDS[i].has_parameter != (text[span] == ':')) break;
        if (KINDS[i].has_parameter &&
            parse_parameter(read.kind, text + span + 1, nodes, &read.parameter) != 0)
            break;
        if (read.kind == SIM_GENERATOR_LIMITED &&
            (experts % nodes != 0 || topk > read.parameter * (experts / nodes)))
            break;
        *generator = read;
        return 0;
    }
    snprintf(
        err, err_len,
        "--routing: %.64s: must be uniform, lognormal:S (0 to 4), hot:N (percent), roundrobin, "
        "limited:G (at most %" PRIu32 " nodes, room for top-%" PRIu32
        "), prefill, decode, or a trace "
        "file",
        text, nodes, topk);
    return -1;
}

/* Experts of kept nodes (best above 0) that score above the floor, ascending; returns how many. */
static uint32_t above_floor(const struct sim_generator *generator, const uint32_t *scores,
                            const uint32_t *best, uint32_t floor, uint32_t *experts)
{
    const uint32_t per_node = generator->experts / generator->nodes;
    uint32_t count = 0;
    assert(generator->experts % generator->nodes == 0);
    for (uint32_t n = 0; n < generator->nodes; n++) {
        if (best[n] == 0) continue;
        for (uint32_t e = n * per_node; e < (n + 1) * per_node; e++) {
            experts[count] = e; /* Kept or written over: no branch for a coin to mislead. */
            count += scores[e] > floor;
        }
    }
    return count;
}

/* Best topk of scores, descending, among experts whose node is kept; equals by lowest index. */
static void draw_limited(const struct sim_generator *generator, struct sim_rng *rng, int64_t *row)
{
    uint32_t scores[SIM_EXPERTS_MAX], best[SIM_EXPERTS_MAX], experts[SIM_EXPERTS_MAX + 1];
    uint32_t top[REF_TOPK_MAX];
    const uint32_t per_node = generator->experts / generator->nodes, topk = generator->topk;
    for (uint32_t e = 0; e < generator->experts; e++)
        scores[e] = (uint32_t)(sim_rng_next(rng) >> 33) + 1; /* 1 to 2^31. */
    for (uint32_t n = 0; n < generator->nodes; n++) {
        best[n] = 1;
        for (uint32_t e = n * per_node; e < (n + 1) * per_node; e++)
            best[n] = scores[e] > best[n] ? scores[e] : best[n];
    }
    for (uint32_t kept = generator->nodes; kept > generator->parameter; kept--) {
        uint32_t worst = generator->nodes; /* Lose the node whose best expert is worst. */
        for (uint32_t n = 0; n < generator->nodes; n++)
            if (best[n] > 0 && (worst == generator->nodes || best[n] <= best[worst])) worst = n;
        assert(worst < generator->nodes);
        best[worst] = 0;
    }
    /* A few times topk are expected above this floor; where too few are, all count. */
    const uint64_t share = (UINT64_C(4) * topk << 31) / generator->experts;
    const uint32_t floor = share < UINT64_C(1) << 31 ? (uint32_t)((UINT64_C(1) << 31) - share) : 0;
    uint32_t count = above_floor(generator, scores, best, floor, experts), have = 0;
    if (count < topk) count = above_floor(generator, scores, best, 0, experts);
    assert(count >= topk);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t score = scores[experts[i]];
        if (have == topk && score <= top[topk - 1]) continue;
        uint32_t at = have < topk ? have++ : topk - 1;
        for (; at > 0 && top[at - 1] < score; at--) {
            top[at] = top[at - 1];
            row[at] = row[at - 1];
        }
        top[at] = score;
        row[at] = experts[i];
    }
}

/* One row of the hot generator: the layer's hot expert stands first in N percent of rows. */
static void draw_hot(const struct sim_generator *generator, struct sim_rng *rng, int64_t hot,
                     int64_t *row)
{
    const bool takes_hot = sim_rng_below(rng, 100) < generator->parameter;
    assert(hot >= 0 && hot < generator->experts);
    row[0] = hot;
    sim_generator_fill_evenly(rng, generator->experts, generator->topk, 1, row);
    if (takes_hot || generator->topk == generator->experts) return;
    do row[0] = sim_rng_below(rng, generator->experts);
    while (row[0] == hot);
    sim_generator_fill_evenly(rng, generator->experts, generator->topk, 1, row);
}

void sim_generator_draw(const struct sim_generator *generator, uint64_t step, uint32_t layer,
                        uint32_t rank, uint32_t tokens, int64_t *topk_idx)
{
    uint64_t cumulative[SIM_EXPERTS_MAX];
    const uint32_t experts = generator->experts, topk = generator->topk;
    struct sim_rng rng = sim_rng_stream(generator->seed, SIM_DRAW_ROWS, step, layer, rank);
    struct sim_rng hot_rng = sim_rng_stream(generator->seed, SIM_DRAW_HOT, layer, 0, 0);
    const int64_t hot = sim_rng_below(&hot_rng, experts);

    assert(experts >= 1 && experts <= SIM_EXPERTS_MAX && topk >= 1 && topk <= experts);
    if (generator->kind == SIM_GENERATOR_PREFILL || generator->kind == SIM_GENERATOR_DECODE) {
        sim_generator_draw_real(generator, step, layer, rank, tokens, topk_idx);
        return;
    }
    if (generator->kind == SIM_GENERATOR_LOGNORMAL)
        sim_generator_weights(generator, layer, generator->parameter, cumulative);
    for (uint32_t t = 0; t < tokens; t++) {
        int64_t *row = topk_idx + (uint64_t)t * topk;
        switch (generator->kind) {
        case SIM_GENERATOR_UNIFORM: sim_generator_fill_evenly(&rng, experts, topk, 0, row); break;
        case SIM_GENERATOR_LOGNORMAL:
            sim_generator_fill(&rng, cumulative, experts, topk, 0, row);
            break;
        case SIM_GENERATOR_HOT: draw_hot(generator, &rng, hot, row); break;
        case SIM_GENERATOR_LIMITED: draw_limited(generator, &rng, row); break;
        case SIM_GENERATOR_PREFILL:
        case SIM_GENERATOR_DECODE: break; /* Above. */
        case SIM_GENERATOR_ROUNDROBIN:
            for (uint32_t k = 0; k < topk; k++)
                row[k] = (int64_t)((((uint64_t)rank * tokens + t) * topk + k) % experts);
            break;
        }
    }
}
