/* sim/imbalance.c - counts rows by expert and rank, step after step. */
#include "sim/imbalance.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PPM = 1000000 };

/* What is counted of one layer. */
struct counter {
    uint64_t *experts; /* [experts], all steps. */
    int64_t *before;   /* [tokens][topk] of the last step. */
    uint64_t rank_step_ppm;
    uint64_t shared_rows, row_pairs, shared_steps, step_pairs; /* In columns. */
};

struct counting {
    const struct sim_plan *plan;
    struct counter *layers; /* [layer_count] */
    int64_t *ids;
    float *weights;
    uint64_t *ranks; /* [ranks], of one step. */
    uint64_t *sorted;
};

static void free_counting(struct counting *counting)
{
    for (uint32_t l = 0; counting->layers != NULL && l < counting->plan->layer_count; l++) {
        free(counting->layers[l].experts);
        free(counting->layers[l].before);
    }
    free(counting->layers);
    free(counting->ids);
    free(counting->weights);
    free(counting->ranks);
    free(counting->sorted);
}

static int open_counting(struct counting *counting, char *err, size_t err_len)
{
    const struct sim_plan *plan = counting->plan;
    const size_t choices = (size_t)plan->token_start[plan->ranks] * plan->topk + 1;

    counting->layers = (struct counter *)calloc(plan->layer_count, sizeof *counting->layers);
    counting->ids = (int64_t *)malloc(choices * sizeof(int64_t));
    counting->weights = (float *)malloc(choices * sizeof(float));
    counting->ranks = (uint64_t *)malloc(plan->ranks * sizeof(uint64_t));
    counting->sorted = (uint64_t *)malloc(plan->experts * sizeof(uint64_t));
    bool complete = counting->layers != NULL && counting->ids != NULL &&
                    counting->weights != NULL && counting->ranks != NULL &&
                    counting->sorted != NULL;
    for (uint32_t l = 0; complete && l < plan->layer_count; l++) {
        counting->layers[l].experts = (uint64_t *)calloc(plan->experts, sizeof(uint64_t));
        counting->layers[l].before = (int64_t *)malloc(choices * sizeof(int64_t));
        complete = counting->layers[l].experts != NULL && counting->layers[l].before != NULL;
    }
    if (complete) return 0;
    snprintf(err, err_len, "imbalance: out of memory");
    return -1;
}

/* Experts that stand in both rows. */
static uint64_t shared(const int64_t *a, const int64_t *b, uint32_t topk)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < topk; i++)
        for (uint32_t j = 0; a[i] >= 0 && j < topk; j++) count += a[i] == b[j];
    return count;
}

static uint64_t ratio_ppm(const uint64_t *counts, uint32_t groups)
{
    uint64_t most = 0, sum = 0;
    assert(groups > 0);
    for (uint32_t g = 0; g < groups; g++) {
        sum += counts[g];
        if (counts[g] > most) most = counts[g];
    }
    return sum == 0 ? PPM : most * groups * PPM / sum;
}

static void count_step(struct counting *counting, uint32_t l, bool first_step)
{
    const struct sim_plan *plan = counting->plan;
    const uint32_t topk = plan->topk, local = plan->experts / plan->ranks;
    struct counter *counter = &counting->layers[l];

    assert(l < plan->layer_count && local > 0);
    memset(counting->ranks, 0, plan->ranks * sizeof *counting->ranks);
    for (uint32_t r = 0; r < plan->ranks; r++) {
        for (uint64_t t = plan->token_start[r]; t < plan->token_start[r + 1]; t++) {
            const int64_t *row = counting->ids + t * topk;
            for (uint32_t k = 0; k < topk; k++) {
                if (row[k] < 0) continue;
                assert((uint64_t)row[k] < plan->experts);
                counter->experts[row[k]]++;
                counting->ranks[(uint64_t)row[k] / local]++;
            }
            if (t > plan->token_start[r]) {
                counter->shared_rows += shared(row, row - topk, topk);
                counter->row_pairs += topk;
            }
            if (first_step) continue;
            counter->shared_steps += shared(row, counter->before + t * topk, topk);
            counter->step_pairs += topk;
        }
    }
    counter->rank_step_ppm += ratio_ppm(counting->ranks, plan->ranks);
    memcpy(counter->before, counting->ids,
           plan->token_start[plan->ranks] * topk * sizeof *counting->ids);
}

static int descending(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left > right ? -1 : left < right;
}

static void sum_up(struct counting *counting, uint32_t l, struct sim_imbalance *out)
{
    const struct sim_plan *plan = counting->plan;
    const struct counter *counter = &counting->layers[l];
    const uint32_t local = plan->experts / plan->ranks, eighth = (plan->experts + 7) / 8;
    uint64_t all = 0, top = 0;

    *out = (struct sim_imbalance){.layer = plan->layers[l]};
    memset(counting->ranks, 0, plan->ranks * sizeof *counting->ranks);
    for (uint32_t e = 0; e < plan->experts; e++) {
        all += counter->experts[e];
        counting->ranks[e / local] += counter->experts[e];
    }
    memcpy(counting->sorted, counter->experts, plan->experts * sizeof *counting->sorted);
    qsort(counting->sorted, plan->experts, sizeof *counting->sorted, descending);
    for (uint32_t e = 0; e < eighth; e++) top += counting->sorted[e];
    out->expert_ppm = ratio_ppm(counter->experts, plan->experts);
    out->eighth_ppm = all > 0 ? top * PPM / all : 0;
    out->rank_ppm = ratio_ppm(counting->ranks, plan->ranks);
    out->rank_step_ppm = counter->rank_step_ppm / plan->settings.steps;
    if (counter->row_pairs > 0) out->row_ppm = counter->shared_rows * PPM / counter->row_pairs;
    if (counter->step_pairs > 0) out->step_ppm = counter->shared_steps * PPM / counter->step_pairs;
}

int sim_imbalance_count(const struct sim_plan *plan, struct sim_source *source,
                        struct sim_imbalance *layers, char *err, size_t err_len)
{
    struct counting counting = {.plan = plan};
    const int status = open_counting(&counting, err, err_len);

    assert(plan->layer_count > 0 && plan->settings.steps > 0);
    for (uint32_t s = 0; status == 0 && s < plan->settings.steps; s++) {
        for (uint32_t l = 0; l < plan->layer_count; l++) {
            sim_source_layer(source, plan->layers[l], counting.ids, counting.weights);
            count_step(&counting, l, s == 0);
        }
        sim_source_advance(source);
    }
    for (uint32_t l = 0; status == 0 && l < plan->layer_count; l++)
        sum_up(&counting, l, &layers[l]);
    free_counting(&counting);
    return status;
}
