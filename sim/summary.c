/* sim/summary.c - adds cells up and prints them as JSON. */
#include "sim/summary.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/digest.h"
#include "sim/sorted.h"

enum { PPM = 1000000 };

int sim_summary_open(const struct sim_plan *plan, struct sim_summary *summary, char *err,
                     size_t err_len)
{
    memset(summary, 0, sizeof *summary);
    summary->steps_max = plan->settings.steps;
    summary->layer_count = plan->layer_count;
    summary->layers =
        (struct sim_layer_summary *)calloc(plan->layer_count, sizeof *summary->layers);
    for (uint32_t l = 0; summary->layers != NULL && l < plan->layer_count; l++) {
        summary->layers[l].layer = plan->layers[l];
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            summary->layers[l].slowest_ps[d] =
                (uint64_t *)calloc(summary->steps_max, sizeof(uint64_t));
            summary->layers[l].floor_ps[d] =
                (uint64_t *)calloc(summary->steps_max, sizeof(uint64_t));
            if (summary->layers[l].slowest_ps[d] == NULL || summary->layers[l].floor_ps[d] == NULL)
                goto free_all;
        }
    }
    if (summary->layers != NULL) return 0;
free_all:
    sim_summary_close(summary);
    snprintf(err, err_len, "%" PRIu64 " steps of %" PRIu32 " layers: out of memory",
             (uint64_t)plan->settings.steps, plan->layer_count);
    return -1;
}

void sim_summary_close(struct sim_summary *summary)
{
    for (uint32_t l = 0; summary->layers != NULL && l < summary->layer_count; l++)
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            free(summary->layers[l].slowest_ps[d]);
            free(summary->layers[l].floor_ps[d]);
        }
    free(summary->layers);
    memset(summary, 0, sizeof *summary);
}

/* Largest over mean, x 10^6. Fits in 64 bits up to 10^9 selections on 10^4 experts. */
static uint64_t ratio_ppm(const uint64_t *counts, uint32_t groups)
{
    uint64_t most = 0, sum = 0;
    for (uint32_t g = 0; g < groups; g++) {
        sum += counts[g];
        if (counts[g] > most) most = counts[g];
    }
    return sum == 0 ? PPM : most * groups * PPM / sum;
}

/* Selections by expert and, from them, by rank. */
static void add_imbalance(struct sim_layer_summary *layer, const struct sim_cell *cell)
{
    const struct ref_routing *routing = &cell->routing;
    uint64_t by_rank[SIM_RANKS_MAX] = {0};
    uint64_t by_expert[4096] = {0};
    assert(routing->experts <= 4096);
    for (uint64_t i = 0; i < ref_token_count(routing) * routing->topk; i++) {
        if (routing->topk_idx[i] < 0) continue;
        by_expert[routing->topk_idx[i]]++;
    }
    for (uint32_t e = 0; e < routing->experts; e++)
        by_rank[e / ref_local_experts(routing)] += by_expert[e];
    layer->expert_ratio_ppm += ratio_ppm(by_expert, routing->experts);
    layer->rank_ratio_ppm += ratio_ppm(by_rank, routing->ranks);
}

void sim_summary_add(struct sim_summary *summary, const struct sim_cell *cell, uint32_t layer_index,
                     const struct sim_pair_bytes *pairs)
{
    struct sim_layer_summary *layer = &summary->layers[layer_index];
    const uint32_t ranks = cell->plan->ranks;

    assert(layer_index < summary->layer_count && cell->step < summary->steps_max);
    summary->steps = cell->step + 1;
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_timing *timing = &cell->timing[d];
        const struct sim_exchange exchange = sim_cell_exchange(cell, (enum sim_direction)d);
        uint64_t slowest = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t took = sim_timing_took_ps(timing, &exchange, r);
            if (took > slowest) slowest = took;
            if (timing->end_ps[r] > summary->end_ps) summary->end_ps = timing->end_ps[r];
        }
        layer->slowest_ps[d][cell->step] = slowest;
        /* In hook mode rows move while neither kernel runs: no floor. */
        layer->floor_ps[d][cell->step] = exchange.hook ? 0 : timing->floor_ps;
        summary->events += timing->events;
        sim_bytes_add(&cell->traffic, pairs + (size_t)d * ranks * ranks, &layer->bytes);
    }
    add_imbalance(layer, cell);
    for (uint32_t i = 0; cell->played && i < SIM_STAGES * ranks; i++) {
        const struct sim_check *check = &cell->checks[i];
        summary->compared_bytes += check->bytes;
        if (check->mismatch_count > 0 && summary->mismatches == 0) {
            summary->first = *check;
            summary->first_step = cell->step;
            summary->first_layer = cell->layer;
        }
        summary->mismatches += check->mismatch_count;
    }
    if (cell->played) sim_wrong_rows_append(&summary->wrong, cell->wrong, cell->step, cell->layer);
    assert(summary->wrong.count == summary->mismatches);
    summary->digest = ref_digest_mix(summary->digest, sim_cell_digest(cell));
}

static struct sim_distribution distribution(const uint64_t *values_ps, uint64_t n)
{
    uint64_t sum = 0;
    struct sim_distribution times = {0};
    uint64_t *sorted = (uint64_t *)malloc((n + 1) * sizeof *sorted);

    if (sorted == NULL || n == 0) {
        free(sorted);
        return times;
    }
    memcpy(sorted, values_ps, n * sizeof *sorted);
    sim_sort(sorted, n);
    for (uint64_t i = 0; i < n; i++) sum += sorted[i];
    times.mean_ps = sum / n;
    times.p50_ps = sorted[(n + 1) / 2 - 1];
    times.p99_ps = sorted[(99 * n + 99) / 100 - 1];
    times.max_ps = sorted[n - 1];
    free(sorted);
    return times;
}

struct sim_distribution sim_summary_times(const struct sim_summary *summary, uint32_t layer_index,
                                          enum sim_direction direction)
{
    return distribution(summary->layers[layer_index].slowest_ps[direction], summary->steps);
}

struct sim_distribution sim_summary_floors(const struct sim_summary *summary, uint32_t layer_index,
                                           enum sim_direction direction)
{
    return distribution(summary->layers[layer_index].floor_ps[direction], summary->steps);
}

void sim_summary_bytes(const struct sim_summary *summary, struct sim_bytes *sum)
{
    memset(sum, 0, sizeof *sum);
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        const struct sim_bytes *bytes = &summary->layers[l].bytes;
        sum->formula += bytes->formula;
        sum->distinct_rank += bytes->distinct_rank;
        for (int c = 0; c < SIM_LINK_CLASSES; c++) sum->wire[c] += bytes->wire[c];
    }
}
