/* sim/eplb.h - weights of experts in, a placement of replicas out, for all layers of a model.
 *
 * The algorithm is ref/eplb.h's; this reads what it is asked about, refuses what it cannot
 * answer, and owns the memory. */
#ifndef SIM_EPLB_H
#define SIM_EPLB_H

#include <stddef.h>
#include <stdint.h>
#include "ref/eplb.h"

enum {
    SIM_EPLB_LAYERS_MAX = 1024,
    SIM_EPLB_EXPERTS_MAX = 4096,
    SIM_EPLB_REPLICAS_MAX = 16384,
    SIM_EPLB_CELLS_MAX = 1 << 24 /* Of any one array. */
};

struct sim_eplb_weights {
    uint32_t layers;
    uint32_t experts;
    float *values; /* Owned, [layers][experts]; finite, not below 0. */
};

/* Read layers x experts numbers from path, or from standard input where path is "-": a JSON list
 * of lists, or a .npy file of integers, F32 or F64. 0, -1 with err when the bytes are no such
 * thing, -2 with err when they cannot be had (memory). *weights is written only on success. */
int sim_eplb_weights_open(const char *path, struct sim_eplb_weights *weights, char *err,
                          size_t err_len);
void sim_eplb_weights_close(struct sim_eplb_weights *weights); /* Safe on a zeroed struct. */

struct sim_eplb {
    struct ref_eplb_shape shape;
    uint32_t layers;
    uint32_t width;               /* The most replicas that an expert of any layer has. */
    struct ref_logical *phy2log;  /* Owned, [layers][replicas]. */
    struct ref_physical *log2phy; /* Owned, [layers][experts][width], -1 filled. */
    uint32_t *logcnt;             /* Owned, [layers][experts]. */
    double *gpu_load;             /* Owned, [layers][gpus]. */
    double *gpu_load_before;      /* Owned, [layers][gpus]: one replica each, in order; NULL where
                                     gpus does not divide experts. */
};

/* Place every layer. shape.experts must be weights->experts. 0; -1 with "--OPTION: value: what is
 * allowed", by the names of sim/settings.h; -2 with err (memory). *eplb is written only on success.
 */
int sim_eplb_open(const struct sim_eplb_weights *weights, const struct ref_eplb_shape *shape,
                  struct sim_eplb *eplb, char *err, size_t err_len);
void sim_eplb_close(struct sim_eplb *eplb); /* Safe on a zeroed struct. */

/* An expert that has several replicas on one GPU: all but one of them are wasted. */
struct sim_eplb_double {
    uint32_t layer;
    uint32_t gpu;
    struct ref_logical expert;
    uint32_t replicas;
};

/* The next one behind *at (start from 0: it counts places), by layer, GPU and place. */
bool sim_eplb_next_double(const struct sim_eplb *eplb, uint64_t *at, struct sim_eplb_double *out);

#endif
