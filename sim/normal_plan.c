/* sim/normal_plan.c - two passes over the routing: count each queue's rows, then list them. */
#include "sim/normal_plan.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS_MAX = 4096 };

struct scan {
    const struct sim_traffic *traffic;
    struct normal_plan *plan;
    uint64_t *next0, *next1; /* Rows seen, by queue: counts, or the place of the next row. */
    uint32_t *seen_rank, *seen_node; /* Stamp of the last token that chose it. */
    uint32_t stamp;
    bool fill;
    uint16_t rank_of[EXPERTS_MAX],
        node_of[EXPERTS_MAX]; /* By table, as divisions would cost most. */
};

/* One selection of a token of source: the first on a rank (and on its node) is a row. */
static void visit(struct scan *scan, uint32_t source, uint32_t channel, uint32_t offset,
                  int64_t expert)
{
    struct normal_plan *plan = scan->plan;
    const uint32_t rank = scan->rank_of[expert], node = scan->node_of[expert];
    if (scan->seen_rank[rank] == scan->stamp) return;
    scan->seen_rank[rank] = scan->stamp;
    const uint32_t to = plan->nodes == 1 ? rank : node;
    const uint64_t q0 = normal_queue_index(&plan->level0, source, to, channel);
    if (plan->nodes == 1 || scan->seen_node[node] != scan->stamp) {
        scan->seen_node[node] = scan->stamp;
        if (scan->fill) plan->level0.position[scan->next0[q0]] = offset;
        scan->next0[q0]++;
    }
    if (plan->nodes == 1) return;
    const uint64_t q1 = normal_queue_index(&plan->level1, source, rank, channel);
    if (scan->fill)
        plan->level1.position[scan->next1[q1]] =
            (uint32_t)(scan->next0[q0] - 1 - plan->level0.first[q0]);
    scan->next1[q1]++;
}

static void scan_tokens(struct scan *scan)
{
    const struct sim_traffic *traffic = scan->traffic;
    struct normal_plan *plan = scan->plan;
    const uint32_t topk = traffic->topk, experts = traffic->experts;
    for (uint32_t source = 0; source < plan->ranks; source++) {
        const int64_t *row = traffic->topk_idx + traffic->token_start[source] * topk;
        uint32_t token = 0;
        for (uint32_t channel = 0; channel < plan->channels; channel++) {
            const uint32_t span = normal_span(plan->tokens[source], plan->channels, channel);
            for (uint32_t offset = 0; offset < span; offset++, token++, row += topk) {
                scan->stamp++;
                for (uint32_t k = 0; k < topk; k++)
                    if (row[k] >= 0 && row[k] < experts)
                        visit(scan, source, channel, offset, row[k]);
            }
        }
        assert(token == plan->tokens[source]);
    }
}

/* Counts in next[] become first[], and next[] the place of each queue's first row. */
static uint64_t prefix(struct normal_queues *queues, uint64_t *next, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t q = 0; q < count; q++) {
        queues->first[q] = sum;
        sum += next[q];
        next[q] = queues->first[q];
    }
    queues->first[count] = sum;
    return sum;
}

static int list_rows(struct scan *scan, uint64_t count0, uint64_t count1)
{
    struct normal_plan *plan = scan->plan;
    scan_tokens(scan);
    const uint64_t rows0 = prefix(&plan->level0, scan->next0, count0);
    const uint64_t rows1 = prefix(&plan->level1, scan->next1, count1);
    plan->level0.position = (uint32_t *)calloc(rows0 + 1, sizeof(uint32_t));
    plan->level1.position = (uint32_t *)calloc(rows1 + 1, sizeof(uint32_t));
    if (!plan->level0.position || !plan->level1.position) return -1;
    memset(scan->seen_rank, 0, plan->ranks * sizeof(uint32_t));
    memset(scan->seen_node, 0, plan->nodes * sizeof(uint32_t));
    scan->stamp = 0;
    scan->fill = true;
    scan_tokens(scan);
    return 0;
}

int normal_plan_open(const struct sim_traffic *traffic, uint32_t channels, uint32_t token_max,
                     struct normal_plan *plan, char *err, size_t err_len)
{
    assert(channels > 0 && traffic->ranks > 0 && traffic->experts % traffic->ranks == 0);
    const uint32_t ranks = traffic->ranks;
    const uint32_t nodes = traffic->nodes;
    const uint64_t count0 = (uint64_t)ranks * (nodes == 1 ? ranks : nodes) * channels;
    const uint64_t count1 = nodes == 1 ? 0 : (uint64_t)ranks * ranks * channels;
    struct scan scan = {.traffic = traffic, .plan = plan};

    assert(traffic->experts <= EXPERTS_MAX && ranks <= UINT16_MAX);
    for (uint32_t e = 0; e < traffic->experts; e++) {
        scan.rank_of[e] = (uint16_t)(e / (traffic->experts / ranks));
        scan.node_of[e] = (uint16_t)(scan.rank_of[e] / traffic->ranks_per_node);
    }
    memset(plan, 0, sizeof *plan);
    plan->ranks = ranks;
    plan->ranks_per_node = traffic->ranks_per_node;
    plan->nodes = nodes;
    plan->channels = channels;
    plan->level0.destinations = nodes == 1 ? ranks : nodes;
    plan->level1.destinations = ranks;
    plan->level0.channels = plan->level1.channels = channels;
    plan->tokens = (uint32_t *)calloc(ranks, sizeof *plan->tokens);
    plan->level0.first = (uint64_t *)calloc(count0 + 1, sizeof(uint64_t));
    plan->level1.first = (uint64_t *)calloc(count1 + 1, sizeof(uint64_t));
    scan.next0 = (uint64_t *)calloc(count0 + 1, sizeof(uint64_t));
    scan.next1 = (uint64_t *)calloc(count1 + 1, sizeof(uint64_t));
    scan.seen_rank = (uint32_t *)calloc(ranks, sizeof(uint32_t));
    scan.seen_node = (uint32_t *)calloc(nodes, sizeof(uint32_t));
    int result = -1;
    if (plan->tokens && plan->level0.first && plan->level1.first && scan.next0 && scan.next1 &&
        scan.seen_rank && scan.seen_node) {
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t all = traffic->token_start[r + 1] - traffic->token_start[r];
            assert(all <= UINT32_MAX);
            plan->tokens[r] = (uint32_t)(token_max > 0 && all > token_max ? token_max : all);
        }
        result = list_rows(&scan, count0, count1);
    }
    free(scan.next0);
    free(scan.next1);
    free(scan.seen_rank);
    free(scan.seen_node);
    if (result != 0) {
        normal_plan_close(plan);
        snprintf(err, err_len, "normal mode: no memory for the rows of %u ranks", ranks);
    }
    return result;
}

void normal_plan_close(struct normal_plan *plan)
{
    free(plan->tokens);
    free(plan->level0.first);
    free(plan->level0.position);
    free(plan->level1.first);
    free(plan->level1.position);
    memset(plan, 0, sizeof *plan);
}
