/* sim/rules_size.c - rules about capacity, queues, buffers and SMs.
 *
 * M is LL's num_max_dispatch_tokens_per_rank: the rows that one rank may send to one expert. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include "ref/sizes.h"
#include "sim/rules_parts.h"

enum { TOKENS_GUARD = 1024, INTERNODE_SMS_MIN = 4, INTERNODE_SMS_MAX = 56, BUFFER_UNIT = 16 };

static uint32_t largest(const uint32_t *values, uint32_t count)
{
    uint32_t most = 0;

    assert(count > 0);
    for (uint32_t i = 0; i < count; i++)
        if (values[i] > most) most = values[i];
    return most;
}

/* R * M must be a multiple of 4: M a multiple of 4 / gcd(4, R). */
static uint32_t capacity_step(uint32_t ranks)
{
    return ranks % 4 == 0 ? 1 : ranks % 2 == 0 ? 2 : 4;
}

static void check_capacity_multiple(const struct sim_rules_input *input, uint32_t capacity,
                                    struct sim_rule *rule)
{
    const uint32_t step = capacity_step(input->ranks);
    const uint32_t tokens_max = largest(input->tokens, input->ranks);
    const uint64_t slots = (uint64_t)input->ranks * capacity;
    const uint32_t below = capacity / step * step, above = below + step;

    sim_rule_figures(rule, capacity, step, step == 1 ? "any" : "multiple of %u", step);
    if (slots % 4 == 0) return;
    const bool cut = below >= tokens_max && below > 0 && capacity - below < above - capacity;
    const uint32_t nearest = cut ? below : above;
    sim_rule_fail(rule, nearest,
                  "%u ranks * capacity %u = %" PRIu64 " slots, not a multiple of 4; use %u",
                  input->ranks, capacity, slots, nearest);
}

static void check_capacity_equal(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const uint32_t first = input->capacity[0];

    sim_rule_figures(rule, first, first, "the same on every rank");
    for (uint32_t r = 1; r < input->ranks; r++) {
        if (input->capacity[r] == first) continue;
        const uint32_t most = largest(input->capacity, input->ranks);
        rule->value = input->capacity[r];
        sim_rule_fail(rule, most, "rank %u has capacity %u, rank 0 has %u; use %u everywhere", r,
                      input->capacity[r], first, most);
        return;
    }
}

static void check_tokens(const struct sim_rules_input *input, struct sim_rule *rule)
{
    uint32_t worst = 0;

    for (uint32_t r = 0; r < input->ranks; r++) {
        const int64_t excess = (int64_t)input->tokens[r] - input->capacity[r];
        const int64_t worst_excess = (int64_t)input->tokens[worst] - input->capacity[worst];
        if (excess > worst_excess) worst = r;
    }
    const uint32_t tokens = input->tokens[worst], capacity = input->capacity[worst];
    sim_rule_figures(rule, tokens, capacity, "at most %u", capacity);
    if (tokens > capacity)
        sim_rule_fail(rule, capacity, "rank %u has %u tokens, above its capacity of %u", worst,
                      tokens, capacity);
}

/* Two kernels in flight put M rows and one count each on a queue pair, and the library does not
 * look whether the ring is full. */
static void check_qp_depth(const struct sim_rules_input *input, uint32_t capacity,
                           struct sim_rule *rule)
{
    const uint64_t needed = ref_size_qp_depth(capacity);

    sim_rule_figures(rule, input->qp_depth, (int64_t)needed, "at least %" PRIu64, needed);
    if (input->qp_depth >= needed) return;
    const uint64_t fits = ref_size_qp_max_tokens(input->qp_depth);
    sim_rule_fail(rule, (int64_t)needed,
                  "queue depth %u is below 2 * (%u + 1) = %" PRIu64
                  "; this depth carries capacity %" PRIu64,
                  input->qp_depth, capacity, needed, fits);
}

/* The library counts its buffer in 16-byte units in an int: below 2^31 - 1 of them. */
static const uint64_t library_buffer_bytes = (uint64_t)BUFFER_UNIT * INT32_MAX;

/* A hidden size that is no whole number of groups is hidden_ll's business: here it counts as the
 * next that is. */
static uint64_t ll_bytes(const struct sim_rules_input *input, uint64_t capacity)
{
    const uint32_t groups = (input->hidden + REF_GROUP_CHANNELS - 1) / REF_GROUP_CHANNELS;

    return ref_size_ll(capacity, groups * REF_GROUP_CHANNELS, input->experts).total_bytes;
}

static void check_ll_buffer(const struct sim_rules_input *input, uint32_t capacity,
                            struct sim_rule *rule)
{
    const uint64_t hbm_bytes = input->machine_hbm_bytes;
    const bool hbm_binds = hbm_bytes > 0 && hbm_bytes < library_buffer_bytes;
    const uint64_t limit = hbm_binds ? hbm_bytes : library_buffer_bytes;
    const uint64_t bytes = ll_bytes(input, capacity);
    uint64_t low = 0, high = (uint64_t)capacity / 4 + 1; /* In steps of 4 tokens. */

    assert(ref_size_bytes_fit(library_buffer_bytes - 1));
    assert(!ref_size_bytes_fit(library_buffer_bytes));
    sim_rule_figures(rule, (int64_t)bytes, (int64_t)limit, "below %" PRIu64, limit);
    if (bytes < limit) return;
    while (high - low > 1) { /* Invariant: 4 * low fits (or is 0), 4 * high does not. */
        const uint64_t middle = low + (high - low) / 2;

        if (ll_bytes(input, 4 * middle) < limit)
            low = middle;
        else
            high = middle;
    }
    sim_rule_fail(rule, (int64_t)(4 * low),
                  "the buffer of capacity %u takes %" PRIu64 " bytes, not below %" PRIu64
                  " (%s); capacity %" PRIu64 " fits",
                  capacity, bytes, limit, hbm_binds ? "the GPU's memory" : "16 * (2^31 - 1)",
                  4 * low);
}

/* What the library's own hints ask for with its default tuning: dispatch and combine share the
 * buffer. On one node only the 16-byte units bind; with RDMA both parts stay in an int. */
static void check_normal_buffer(const struct sim_rules_input *input, struct sim_rule *rule)
{
    struct ref_size_config dispatch, combine;
    const uint64_t hidden_bytes = 2 * (uint64_t)input->hidden;
    const uint32_t ranks = input->ranks;

    if (input->sms < 2 || input->sms % 2 != 0) return; /* num_sms_even speaks. */
    if (!ref_size_default_config(false, ranks, input->sms, &dispatch)) return;
    if (!ref_size_default_config(true, ranks, input->sms, &combine)) return;
    const uint64_t nvl_a = ref_size_nvl(&dispatch, hidden_bytes, ranks);
    const uint64_t nvl_b = ref_size_nvl(&combine, hidden_bytes, ranks);
    const uint64_t rdma_a = ref_size_rdma(&dispatch, hidden_bytes, ranks);
    const uint64_t rdma_b = ref_size_rdma(&combine, hidden_bytes, ranks);
    const uint64_t nvl = nvl_a > nvl_b ? nvl_a : nvl_b, rdma = rdma_a > rdma_b ? rdma_a : rdma_b;
    const uint64_t most = nvl > rdma ? nvl : rdma;
    const uint64_t limit = rdma > 0 ? INT32_MAX : library_buffer_bytes;

    sim_rule_figures(rule, (int64_t)most, (int64_t)limit, "below %" PRIu64, limit);
    if (most >= limit)
        sim_rule_fail_flat(rule,
                           "the buffers take %" PRIu64 " (NVLink) and %" PRIu64
                           " (RDMA) bytes, not below %" PRIu64 "; use fewer than %u SMs",
                           nvl, rdma, limit, input->sms);
}

static void check_ll(const struct sim_rules_input *input, struct sim_rule *rules)
{
    const uint32_t capacity = largest(input->capacity, input->ranks);
    struct sim_rule *least = &rules[SIM_RULE_CAPACITY];
    struct sim_rule *guard = &rules[SIM_RULE_MAX_TOKENS_1024];

    sim_rule_figures(least, capacity, 1, "at least 1");
    if (capacity < 1)
        sim_rule_fail(least, capacity_step(input->ranks), "capacity 0: at least %u",
                      capacity_step(input->ranks));
    check_capacity_equal(input, &rules[SIM_RULE_CAPACITY_EQUAL]);
    check_capacity_multiple(input, capacity, &rules[SIM_RULE_CAPACITY_MULTIPLE_4]);
    check_tokens(input, &rules[SIM_RULE_TOKENS_OVER_CAPACITY]);
    sim_rule_figures(guard, capacity, TOKENS_GUARD, "at most %u", TOKENS_GUARD);
    if (capacity > TOKENS_GUARD)
        sim_rule_fail(
            guard, TOKENS_GUARD,
            "capacity %u is above the frameworks' guard of %u (FINISHED_SUM_TAG): send fewer "
            "tokens, use --mode normal, or lift it with --allow max_tokens_1024",
            capacity, TOKENS_GUARD);
    check_qp_depth(input, capacity, &rules[SIM_RULE_QP_DEPTH]);
    check_ll_buffer(input, capacity, &rules[SIM_RULE_BUFFER_BYTES]);
}

static void check_sms(const struct sim_rules_input *input, struct sim_rule *rules)
{
    struct sim_rule *even = &rules[SIM_RULE_NUM_SMS_EVEN], *most = &rules[SIM_RULE_NUM_SMS_MAX];
    const uint32_t device = input->machine_sms > 0 ? input->machine_sms : UINT32_MAX;
    const bool several = input->nodes > 1;
    const uint32_t low = several ? INTERNODE_SMS_MIN : 2;
    const uint32_t high = several && device > INTERNODE_SMS_MAX ? INTERNODE_SMS_MAX : device;

    sim_rule_figures(even, input->sms, 2, "even");
    if (input->sms % 2 != 0) {
        const uint32_t nearest = input->sms < high ? input->sms + 1 : high / 2 * 2;
        sim_rule_fail(even, nearest, "%u SMs are not an even number; use %u", input->sms, nearest);
    }
    sim_rule_figures(most, input->sms, high, "%u to %u", low, high);
    if (input->sms < low)
        sim_rule_fail(most, low, "%u SMs are below %u, the least for %s", input->sms, low,
                      several ? "several nodes" : "one channel");
    else if (input->sms > high)
        sim_rule_fail(most, high / 2 * 2, "%u SMs are above %u (%s)", input->sms, high,
                      several && high == INTERNODE_SMS_MAX ? "28 channels on several nodes"
                                                           : "the GPU has no more");
}

static void check_clean(const struct sim_rules_input *input, struct sim_rule *rule)
{
    const bool dirty = sim_rules_is_ll(input) && input->after == SIM_MODE_NORMAL && !input->clean;

    sim_rule_figures(rule, dirty, 0, "clean");
    if (dirty)
        sim_rule_fail(rule, 0,
                      "normal mode used the buffers before low latency: call "
                      "clean_low_latency_buffer between them (--after clean)");
}

void sim_rules_size(const struct sim_rules_input *input, struct sim_rule *rules)
{
    check_clean(input, &rules[SIM_RULE_MODE_CLEAN]);
    if (sim_rules_is_ll(input)) {
        check_ll(input, rules);
        return;
    }
    check_sms(input, rules);
    check_normal_buffer(input, &rules[SIM_RULE_BUFFER_BYTES]);
}
