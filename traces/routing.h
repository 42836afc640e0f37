/* traces/routing.h - captured routing: which experts each token chose, layer by layer.
 *
 * Two containers hold it. Loose arrays: a .npy of ids [tokens][layers][K], with optional .npy
 * files of offsets [requests + 1] and weights [tokens][layers][K]. Or one safetensors file with
 * the tensors topk_ids, and optionally topk_w and seq_offsets, and id_space and model among its
 * metadata. Which of the two a file is, its first bytes say, not its name. Layers are the MoE
 * layers in the model's order, from 0. */
#ifndef TRACES_ROUTING_H
#define TRACES_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_TOPK_MAX = 32, TRACE_LAYERS_MAX = 65536, TRACE_ROUTING_FILES_MAX = 3 };

struct trace_routing_source {
    const char *ids_path;
    const char *offsets_path; /* NULL or "": the container's own, else all is one request. */
    const char *weights_path; /* NULL or "": the container's own, else none. */
    uint64_t experts;         /* Every id must be below; 0 = any id. */
    bool allow_duplicates;    /* Otherwise an expert that stands twice in a row is refused. */
};

struct trace_routing_file {
    const char *path;
    uint64_t digest; /* Of the file's bytes. */
};

struct trace_routing {
    uint64_t tokens;         /* At least 1. */
    uint64_t requests;       /* At least 1. */
    uint32_t layers;         /* 1..TRACE_LAYERS_MAX */
    uint32_t topk;           /* 1..TRACE_TOPK_MAX */
    int64_t id_max;          /* Largest id; -1 when no token chose any. */
    uint64_t duplicate_rows; /* Rows in which an expert stands twice. */
    const int64_t *offsets;  /* [requests + 1]: request r is tokens [offsets[r], offsets[r + 1]),
                                never empty; from 0 to tokens. */
    bool has_weights;
    uint32_t file_count;
    struct trace_routing_file files[TRACE_ROUTING_FILES_MAX]; /* Ids first. */
    const char *id_space; /* "logical" unless the container says otherwise. */
    const char *model;    /* "" where the container does not say. */
    void *private_state;  /* Owned by routing.c. */
};

/* Open and check every id, offset and shape. 0, or -1 with one line naming file, token, layer,
 * column and value. *routing is written only on success; its pointers live until close. */
int trace_routing_open(const struct trace_routing_source *source, struct trace_routing *routing,
                       char *err, size_t err_len);
void trace_routing_close(struct trace_routing *routing); /* Safe on a zeroed struct. */

/* The K ids of one token in one layer; -1 = no expert. */
void trace_routing_ids(const struct trace_routing *routing, uint64_t token, uint32_t layer,
                       int64_t *ids);

/* Their K weights. has_weights must be true (asserted). Any float may stand there. */
void trace_routing_weights(const struct trace_routing *routing, uint64_t token, uint32_t layer,
                           float *weights);

/* The digest of one file's bytes, to compare with a recorded one. 0, or -1 with err. */
int trace_routing_digest_file(const char *path, uint64_t *digest, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
