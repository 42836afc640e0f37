/* sim/backend.h - the seam between the simulation and whoever moves the bytes.
 *
 * A backend computes one layer's exchange for a whole group of ranks. It offers group
 * operations (all ranks at once) and, optionally, phase operations, which the simulation calls
 * one by one at the simulated instants: pack on the sender, deliver for the messages that
 * landed, forward where a hop ends in a reduction, unpack on the receiver. All pointers are
 * host memory, borrowed for the call; all arrays are dense, C order, little-endian.
 *
 * A plugin includes this header alone and exports sim_backend_v1; tests/plugin_example.c is a
 * whole one. Every operation returns
 *     0                         done, all outputs written;
 *     SIM_BACKEND_FAILED        with one line in err: the environment failed, the run ends;
 *     SIM_BACKEND_UNSUPPORTED   with one line in err: not a mode, recipe or shape of this
 *                               backend. verify counts it as skipped; a run ends.
 *
 * Order of rows. Received rows stand in blocks, by (expert, source rank) in low latency and by
 * (destination rank, source rank) in normal mode, each at the place that routing alone gives it.
 * Inside a block they stand by (source token, column). One freedom: dispatch, the group
 * operation, may leave the rows of a low-latency block in any order, as kernels land them;
 * src_token says whose each row is. Whoever hands on a plugin's rows puts them in order first,
 * so expert and combine always get them by (source token, column), and need no handle. */
#ifndef SIM_BACKEND_H
#define SIM_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include "ref/quantise.h" /* enum ref_recipe */
#include "ref/routing.h"
#include "sim/traffic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_BACKEND_ABI 1u

/* How a backend is run. No result depends on any of it. */
enum sim_transport {
    SIM_TRANSPORT_DRIVEN, /* Phase by phase, message by message, as the clock says. */
    SIM_TRANSPORT_DIRECT  /* Group operations: the ranks' kernels reach into each other's memory. */
};

struct sim_backend_place {
    uint32_t transport;  /* enum sim_transport */
    uint32_t gpus;       /* At least 1. */
    uint32_t interleave; /* 0: neighbouring ranks share a GPU; 1: they sit on different ones. */
    uint32_t sms;        /* direct: blocks of each rank's launches; 0: all its GPU has. */
    uint32_t in_flight;  /* States that will be at work at the same time, this one included. */
    uint64_t gpu_bytes;  /* Most memory on each GPU; 0: what is free. */
};

/* Driven, on one GPU, alone. */
static inline struct sim_backend_place sim_backend_place_default(void)
{
    const struct sim_backend_place place = {SIM_TRANSPORT_DRIVEN, 1, 0, 0, 1, 0};
    return place;
}

enum { SIM_BACKEND_FAILED = -1, SIM_BACKEND_UNSUPPORTED = -3 };

/* What the experts compute, from a received row widened to FP32 (code * scale): STANDIN
 * bf16(fp32(x * 0.37f) + 0.11f), two roundings before the last; IDENTITY bf16(x); MLP what
 * ref_expert_mlp() does, in normal mode for each local id of the row, weighed as in
 * ref_expert_weigh(). */
enum sim_expert { SIM_EXPERT_STANDIN, SIM_EXPERT_IDENTITY, SIM_EXPERT_MLP };

/* One layer of one step. Borrowed for the call; from begin until the next begin. */
struct sim_layer_input {
    const struct ref_routing *routing;
    const struct sim_traffic *traffic;
    uint32_t hidden;       /* H, a multiple of 128 (512 for packed UE8M0). */
    uint32_t recipe;       /* enum ref_recipe: what dispatch carries. */
    uint32_t expert;       /* enum sim_expert. */
    uint32_t mlp_inter;    /* MLP only. */
    uint64_t weight_seed;  /* MLP only: weights are drawn from it by global expert. */
    const uint16_t *x;     /* BF16 [tokens][hidden]. */
    const uint16_t *bias0; /* BF16 [tokens][hidden], or NULL (normal mode only). */
    const uint16_t *bias1; /* BF16 [tokens][hidden], or NULL. */
};

/* Received rows of all ranks. Filled by the backend into the caller's arrays; an array that a mode
 * or recipe does not have is NULL. */
struct sim_received {
    uint64_t rows;          /* All of them; the caller's arrays hold as many as routing says. */
    uint8_t *payload;       /* [rows][hidden] e4m3 codes, or BF16 [rows][hidden]. */
    float *scales;          /* [rows][hidden / 128]; NULL for bf16 and ue8m0. */
    uint32_t *scales_ue8m0; /* [rows][hidden / 512] packed; ue8m0 only. */
    int32_t *src_token;     /* [rows] */
    int64_t *topk_idx;      /* Normal: [rows][topk], destination-local ids, else -1. */
    float *topk_weights;    /* Normal: [rows][topk], 0 where the id is not local. */
    int32_t *counts;        /* LL: [experts][ranks] rows received by block; normal: [ranks][ranks]
                               by (destination, source). */
};

struct sim_combined {
    uint16_t *x;         /* BF16 [tokens][hidden]. */
    float *topk_weights; /* Normal: [tokens][topk] sums; LL: NULL. */
};

struct sim_backend_ops {  /* Fields are added at the end, never reordered. */
    uint32_t abi;         /* SIM_BACKEND_ABI the table was compiled against. */
    uint32_t table_bytes; /* sizeof here, as compiled; later fields do not exist. */
    const char *name;     /* Static storage: "ref", "cuda", ... */

    /* Required. self is this table. A host may open several states and use each from a thread of
     * its own. */
    int (*open)(const struct sim_backend_ops *self, void **state_out, char *err, size_t err_len);
    void (*close)(void *state); /* Cannot fail; NULL is fine. */

    /* Group operations, required. Each is a pure function of its arguments: a state may hold
     * scratch memory, but nothing that a result depends on. */
    int (*dispatch)(void *state, const struct sim_layer_input *in, struct sim_received *out,
                    char *err, size_t err_len);
    int (*expert)(void *state, const struct sim_layer_input *in, const struct sim_received *rows,
                  uint16_t *expert_out /* BF16 [rows][hidden] */, char *err, size_t err_len);
    int (*combine)(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                   const float *row_weights /* normal: [rows][topk] as dispatch left them */,
                   struct sim_combined *out, char *err, size_t err_len);

    /* Phase operations, optional (all or none): needed to be driven by the clock. Between begin and
     * the next begin the backend keeps the arenas of one layer. Arenas that messages write are
     * filled with POISON (all bytes 0xFF: NaN in every format) by begin. */
    int (*begin)(void *state, const struct sim_layer_input *in, char *err, size_t err_len);
    int (*pack)(void *state, enum sim_direction direction, uint32_t rank, char *err,
                size_t err_len);
    int (*deliver)(void *state, enum sim_direction direction, const struct sim_message *messages,
                   size_t count, char *err, size_t err_len);
    int (*forward)(void *state, enum sim_direction direction, uint32_t rank, char *err,
                   size_t err_len);
    int (*unpack)(void *state, enum sim_direction direction, uint32_t rank, char *err,
                  size_t err_len);
    int (*run_expert)(void *state, uint32_t rank, char *err, size_t err_len);
    /* Show what the phases left, in host memory of the backend's that stays valid until its next
     * call: received rows, expert output BF16 [rows][hidden], combined tokens. */
    int (*read)(void *state, struct sim_received *received, uint16_t **expert_out,
                struct sim_combined *combined, char *err, size_t err_len);

    /* Optional (NULL): open for backends that can choose. */
    int (*open_at)(const struct sim_backend_ops *self, const struct sim_backend_place *place,
                   void **state_out, char *err, size_t err_len);
};

/* A plugin exports this symbol and no other. The version is part of the name, so a host that
 * speaks v2 can still ask an old plugin for v1. */
const struct sim_backend_ops *sim_backend_v1(void);

const struct sim_backend_ops *sim_backend_ref(void);  /* The reference; always there. */
const struct sim_backend_ops *sim_backend_cuda(void); /* NULL when built without CUDA. */

#ifdef __cplusplus
}
#endif

#endif
