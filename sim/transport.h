/* sim/transport.h - which layers the direct transport of the kernels can serve.
 *
 * The driven one serves all. No CUDA here: plans are refused, and cases skipped, on any machine. */
#ifndef SIM_TRANSPORT_H
#define SIM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"

struct sim_transport_shape {
    enum sim_mode mode;
    uint32_t nodes, ranks, experts, topk, hidden, recipe;
    uint64_t tokens_max; /* Of any rank. */
};

struct sim_transport_shape sim_transport_shape(const struct sim_layer_input *in);

/* 0, or -1 with one line that begins with "direct: ": the number and what is allowed. */
int sim_transport_takes(const struct sim_transport_shape *shape, uint32_t gpus, char *err,
                        size_t err_len);

#endif
