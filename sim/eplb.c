/* sim/eplb.c - placements of all layers, and what to refuse. */
#include "sim/eplb.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_eplb_close(struct sim_eplb *eplb)
{
    free(eplb->phy2log);
    free(eplb->log2phy);
    free(eplb->logcnt);
    free(eplb->gpu_load);
    free(eplb->gpu_load_before);
    memset(eplb, 0, sizeof *eplb);
}

static int refuse(const char *option, uint32_t value, const char *rule, uint32_t other, char *err,
                  size_t err_len)
{
    snprintf(err, err_len, "--%s: %" PRIu32 ": must be %s %" PRIu32, option, value, rule, other);
    return -1;
}

static int check_shape(const struct ref_eplb_shape *shape, uint32_t layers, char *err,
                       size_t err_len)
{
    assert(layers > 0);
    if (shape->experts % shape->groups != 0)
        return refuse("eplb-groups", shape->groups, "a divisor of the experts,", shape->experts,
                      err, err_len);
    if (shape->gpus % shape->nodes != 0)
        return refuse("ep", shape->gpus, "a multiple of --nodes", shape->nodes, err, err_len);
    if (shape->replicas < shape->experts)
        return refuse("eplb", shape->replicas, "at least the experts,", shape->experts, err,
                      err_len);
    if (shape->replicas % shape->gpus != 0)
        return refuse("eplb", shape->replicas, "a multiple of --ep", shape->gpus, err, err_len);
    if ((uint64_t)layers * shape->replicas > SIM_EPLB_CELLS_MAX)
        return refuse("eplb", shape->replicas, "with so many layers at most",
                      SIM_EPLB_CELLS_MAX / layers, err, err_len);
    assert(ref_eplb_shape_ok(shape));
    return 0;
}

/* Scratch of one layer and what is kept only until log2phy is made. */
struct work {
    uint32_t *words, *ordinal; /* [8 * replicas], [layers][replicas] */
    float *loads;              /* [3 * replicas] */
};

static int open_arrays(struct sim_eplb *eplb, struct work *work, char *err, size_t err_len)
{
    const struct ref_eplb_shape *shape = &eplb->shape;
    const size_t layers = eplb->layers, replicas = shape->replicas;
    const bool ordered = shape->experts % shape->gpus == 0;

    eplb->phy2log = (struct ref_logical *)malloc(layers * replicas * sizeof *eplb->phy2log);
    eplb->logcnt = (uint32_t *)malloc(layers * shape->experts * sizeof *eplb->logcnt);
    eplb->gpu_load = (double *)malloc(layers * shape->gpus * sizeof *eplb->gpu_load);
    if (ordered)
        eplb->gpu_load_before = (double *)calloc(layers * shape->gpus, sizeof *eplb->gpu_load);
    work->words = (uint32_t *)malloc(8 * replicas * sizeof *work->words);
    work->ordinal = (uint32_t *)malloc(layers * replicas * sizeof *work->ordinal);
    work->loads = (float *)malloc(3 * replicas * sizeof *work->loads);
    if (eplb->phy2log != NULL && eplb->logcnt != NULL && eplb->gpu_load != NULL &&
        (!ordered || eplb->gpu_load_before != NULL) && work->words != NULL &&
        work->ordinal != NULL && work->loads != NULL)
        return 0;
    snprintf(err, err_len, "placement of %zu layers: out of memory", layers);
    return -2;
}

/* log2phy, which is as wide as the layer with the most replicas of one expert needs. */
static int open_log2phy(struct sim_eplb *eplb, const uint32_t *ordinal, char *err, size_t err_len)
{
    const struct ref_eplb_shape *shape = &eplb->shape;
    const uint64_t experts = (uint64_t)eplb->layers * shape->experts;

    eplb->width = 1;
    for (uint64_t e = 0; e < experts; e++)
        if (eplb->logcnt[e] > eplb->width) eplb->width = eplb->logcnt[e];
    assert(eplb->width >= 1 && eplb->width <= shape->replicas);
    if (experts * eplb->width > SIM_EPLB_CELLS_MAX)
        return refuse("eplb", shape->replicas,
                      "so few that layers x experts x replicas of one expert stay under",
                      SIM_EPLB_CELLS_MAX, err, err_len);
    eplb->log2phy = (struct ref_physical *)malloc(experts * eplb->width * sizeof *eplb->log2phy);
    if (eplb->log2phy == NULL) {
        snprintf(err, err_len, "placement of %" PRIu32 " layers: out of memory", eplb->layers);
        return -2;
    }
    for (uint64_t l = 0; l < eplb->layers; l++)
        ref_eplb_log2phy(shape, eplb->phy2log + l * shape->replicas, ordinal + l * shape->replicas,
                         eplb->width, eplb->log2phy + l * shape->experts * eplb->width);
    return 0;
}

static void place_layer(struct sim_eplb *eplb, const struct sim_eplb_weights *weights,
                        uint64_t layer, struct work *work)
{
    const struct ref_eplb_shape *shape = &eplb->shape;
    const float *layer_weights = weights->values + layer * shape->experts;
    struct ref_logical *phy2log = eplb->phy2log + layer * shape->replicas;
    uint32_t *logcnt = eplb->logcnt + layer * shape->experts;

    assert(layer < eplb->layers && weights->experts == shape->experts);
    ref_eplb_layer(shape, layer_weights, phy2log, work->ordinal + layer * shape->replicas, logcnt,
                   work->words, work->loads);
    ref_eplb_gpu_load(shape, layer_weights, phy2log, logcnt, eplb->gpu_load + layer * shape->gpus);
    if (eplb->gpu_load_before == NULL) return;
    for (uint32_t e = 0; e < shape->experts; e++)
        eplb->gpu_load_before[layer * shape->gpus + e / (shape->experts / shape->gpus)] +=
            layer_weights[e];
}

int sim_eplb_open(const struct sim_eplb_weights *weights, const struct ref_eplb_shape *shape,
                  struct sim_eplb *eplb, char *err, size_t err_len)
{
    struct sim_eplb made = {.shape = *shape, .layers = weights->layers};
    struct work work = {NULL, NULL, NULL};
    int status = 0;

    assert(shape->experts == weights->experts);
    if (check_shape(shape, weights->layers, err, err_len) != 0) return -1;
    status = open_arrays(&made, &work, err, err_len);
    if (status == 0) {
        for (uint64_t l = 0; l < made.layers; l++) place_layer(&made, weights, l, &work);
        status = open_log2phy(&made, work.ordinal, err, err_len);
    }
    free(work.words);
    free(work.ordinal);
    free(work.loads);
    if (status == 0)
        *eplb = made;
    else
        sim_eplb_close(&made);
    return status;
}

bool sim_eplb_next_double(const struct sim_eplb *eplb, uint64_t *at, struct sim_eplb_double *out)
{
    const uint32_t replicas = eplb->shape.replicas, room = replicas / eplb->shape.gpus;
    const uint64_t places = (uint64_t)eplb->layers * replicas;

    assert(replicas % eplb->shape.gpus == 0 && room > 0);
    for (; *at < places; (*at)++) {
        const uint64_t first = *at / room * room; /* Of the GPU. */
        const int32_t expert = eplb->phy2log[*at].id;
        uint32_t before = 0, all = 0;
        for (uint64_t p = first; p < first + room; p++) {
            all += eplb->phy2log[p].id == expert;
            before += eplb->phy2log[p].id == expert && p < *at;
        }
        if (all < 2 || before > 0) continue;
        *out = (struct sim_eplb_double){
            (uint32_t)(*at / replicas), (uint32_t)(*at % replicas / room), {expert}, all};
        (*at)++;
        return true;
    }
    return false;
}
