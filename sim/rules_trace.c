/* sim/rules_trace.c - the two rules about ids, judged over a whole captured trace, and
 * what is odd about its weights. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "sim/rules_parts.h"
#include "traces/routing.h"

/* First (token, layer) with an id past the last expert, or with an expert named twice. */
static bool find_row(const struct trace_routing *trace, int64_t limit, bool twice, uint64_t *token,
                     uint32_t *layer, int64_t *id)
{
    int64_t ids[TRACE_TOPK_MAX];

    assert(trace->topk <= TRACE_TOPK_MAX);
    for (*token = 0; *token < trace->tokens; (*token)++)
        for (*layer = 0; *layer < trace->layers; (*layer)++) {
            trace_routing_ids(trace, *token, *layer, ids);
            for (uint32_t k = 0; k < trace->topk; k++) {
                bool found = !twice && ids[k] > limit;

                for (uint32_t j = 0; twice && ids[k] >= 0 && j < k; j++) found |= ids[j] == ids[k];
                *id = ids[k];
                if (found) return true;
            }
        }
    return false;
}

void sim_rules_check_trace(const struct trace_routing *trace, uint32_t experts,
                           struct sim_rule rules[SIM_RULES])
{
    struct sim_rule *range = &rules[SIM_RULE_ID_RANGE], *twice = &rules[SIM_RULE_DUPLICATE_ID];
    const int64_t limit = (int64_t)experts - 1;
    uint64_t token = 0;
    uint32_t layer = 0;
    int64_t id = 0;

    assert(experts >= 1 && range->ok && twice->ok);
    sim_rule_figures(range, trace->id_max, limit, "at most %" PRId64, limit);
    if (trace->id_max > limit && find_row(trace, limit, false, &token, &layer, &id)) {
        sim_rule_fail(range, limit,
                      "token %" PRIu64 " of layer %" PRIu32 " names expert %" PRId64
                      ", the last is %" PRId64,
                      token, layer, id, limit);
        range->value = id;
    }
    sim_rule_figures(twice, (int64_t)trace->duplicate_rows, 0, "none");
    if (trace->duplicate_rows > 0 && find_row(trace, limit, true, &token, &layer, &id))
        sim_rule_fail(twice, 0,
                      "token %" PRIu64 " names expert %" PRId64 " twice (layer %" PRIu32
                      "; %" PRIu64 " such rows in all)",
                      token, id, layer, trace->duplicate_rows);
    range->has_nearest = twice->has_nearest = true;
    if (range->ok) range->nearest = range->value;
    if (twice->ok) twice->nearest = twice->value;
}

struct odd_weights { /* How many, and where the first stands. */
    uint64_t count, token;
    uint32_t layer, column;
};

static void count_odd(struct odd_weights *odd, uint64_t token, uint32_t layer, uint32_t column)
{
    if (odd->count++ == 0) *odd = (struct odd_weights){1, token, layer, column};
}

static size_t describe_odd(const struct odd_weights *odd, const char *noun, const char *what,
                           char *text, size_t text_len)
{
    const char *be = odd->count == 1 ? "is" : "are";
    if (odd->count == 0) return 0;
    const int length = snprintf(text, text_len,
                                "%" PRIu64 "%s%s %s %s, the first of token %" PRIu64
                                ", layer %" PRIu32 ", column %" PRIu32,
                                odd->count, noun, noun[0] != '\0' && odd->count > 1 ? "s" : "", be,
                                what, odd->token, odd->layer, odd->column);
    return (size_t)length < text_len ? (size_t)length : text_len - 1;
}

void sim_rules_weights(const struct trace_routing *trace, char *text, size_t text_len)
{
    int64_t ids[TRACE_TOPK_MAX];
    float weights[TRACE_TOPK_MAX];
    struct odd_weights wild = {0, 0, 0, 0}, negative = {0, 0, 0, 0};

    assert(text_len > 0 && trace->topk <= TRACE_TOPK_MAX);
    text[0] = '\0';
    for (uint64_t t = 0; trace->has_weights && t < trace->tokens; t++) {
        for (uint32_t l = 0; l < trace->layers; l++) {
            trace_routing_ids(trace, t, l, ids);
            trace_routing_weights(trace, t, l, weights);
            for (uint32_t k = 0; k < trace->topk; k++) {
                if (ids[k] < 0) continue;
                if (!isfinite(weights[k]))
                    count_odd(&wild, t, l, k);
                else if (weights[k] < 0)
                    count_odd(&negative, t, l, k);
            }
        }
    }
    size_t at = describe_odd(&wild, " weight", "NaN or infinite", text, text_len);
    if (wild.count > 0)
        at += (size_t)snprintf(text + at, text_len - at, ": so is what combine makes of %s%s",
                               wild.count > 1 ? "them" : "it", negative.count > 0 ? "; " : "");
    if (at < text_len)
        (void)describe_odd(&negative, wild.count > 0 ? "" : " weight", "negative", text + at,
                           text_len - at);
}
