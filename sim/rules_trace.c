/* sim/rules_trace.c - the two rules about ids, judged over a whole captured trace. */
#include <assert.h>
#include <inttypes.h>
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
