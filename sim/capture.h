/* sim/capture.h - one case of inputs and results, in memory and on disk.
 *
 * On disk a case is NAME.rank0.safetensors .. NAME.rank(R-1).safetensors in one folder, with the
 * settings as a JSON string in __metadata__.case; ref/README.md lists the keys. In memory it is
 * a list of named tensors per rank, read from files or computed. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/settings.h"
#include "traces/safetensors.h"

enum { SIM_TENSOR_NAME_MAX = 48, SIM_CASE_NAME_MAX = 256, SIM_TENSOR_AXES_MAX = 4 };

/* The four ways in which low latency dispatches, in the order of the format. */
struct sim_ll_tag {
    const char *name; /* "bf16", "fp8", "fp8r", "ue8m0" */
    uint32_t recipe;  /* enum ref_recipe. */
    uint32_t payload_bytes;
    uint32_t scale_channels; /* Channels that one word of scales covers; 0 = no scales. */
};
enum { SIM_LL_TAGS = 4 };
const struct sim_ll_tag *sim_ll_tag(uint32_t index);

struct sim_tensor {
    char name[SIM_TENSOR_NAME_MAX];
    enum trace_dtype dtype;
    uint32_t axes;
    uint64_t shape[SIM_TENSOR_AXES_MAX];
    uint64_t bytes;
    const uint8_t *data; /* Never NULL; aligned to the element. */
    void *owned;         /* What to free, or NULL when a file's mapping holds the data. */
};

/* The settings of a case. */
struct sim_case {
    enum sim_mode mode; /* LL or NORMAL. */
    uint32_t ranks;
    uint32_t experts;
    uint64_t max; /* LL: rows that a rank may send to an expert; normal: 0. */
    uint32_t sms;
    uint32_t align;
    enum sim_expert expert; /* STANDIN or IDENTITY. */
    bool logfmt;
};

struct sim_capture_rank {
    char path[SIM_PATH_MAX];   /* "" when computed. */
    struct trace_tensors file; /* Zeroed when computed. */
    size_t count, capacity;
    struct sim_tensor *tensors;
};

struct sim_capture {
    char name[SIM_CASE_NAME_MAX];
    struct sim_case settings;
    uint32_t ranks;
    struct sim_capture_rank *rank; /* [ranks], owned. */
};

/* Where cases are found. */
struct sim_case_place {
    char folder[SIM_PATH_MAX];
    char name[SIM_CASE_NAME_MAX];  /* NAME. */
    char label[SIM_CASE_NAME_MAX]; /* NAME with the subfolder before it, for people. */
};

struct sim_case_list {
    size_t count, capacity;
    struct sim_case_place *places; /* In the order of label, byte by byte. */
};

/* Every NAME in a folder and, if subfolders, in those below it; other files are ignored. 0, or
 * -1 with err when a folder cannot be read. Free with sim_case_list_free. */
int sim_case_list(const char *folder, bool subfolders, struct sim_case_list *list, char *err,
                  size_t err_len);
void sim_case_list_free(struct sim_case_list *list); /* Safe on a zeroed struct. */

/* Open every rank of a case. -1 with one line when a rank's file is missing or broken, when ranks
 * disagree about the settings, or when a setting is missing or not allowed. */
int sim_capture_load(const struct sim_case_place *place, struct sim_capture *capture, char *err,
                     size_t err_len);

/* A case without tensors yet, for results. 0, or -1 (memory). */
int sim_capture_open(const char *name, const struct sim_case *settings, struct sim_capture *capture,
                     char *err, size_t err_len);
void sim_capture_close(struct sim_capture *capture); /* Safe on a zeroed struct. */

/* NULL when that rank has no such tensor. */
const struct sim_tensor *sim_capture_find(const struct sim_capture *capture, uint32_t rank,
                                          const char *name);

/* Add a tensor with zeroed storage, and return the storage; NULL with err when memory is short.
 * The name must be new and at most SIM_TENSOR_AXES_MAX axes are given. A tensor without elements
 * gets a non-NULL pointer too. */
void *sim_capture_add(struct sim_capture *capture, uint32_t rank, const char *name,
                      enum trace_dtype dtype, uint32_t axes, const uint64_t *shape, char *err,
                      size_t err_len);

/* Add a copy of rows [first, end) of a flat array of [rows][columns] elements as a tensor of two
 * axes, or of one when columns is 0. 0, or -1 with err (memory). */
int sim_capture_add_rows(struct sim_capture *capture, uint32_t rank, const char *name,
                         enum trace_dtype dtype, const void *flat, uint64_t first, uint64_t end,
                         uint64_t columns, char *err, size_t err_len);

/* Write one rank's tensors to path with the metadata of another capture's rank. */
int sim_capture_write(const struct sim_capture *capture, uint32_t rank,
                      const struct sim_capture *metadata_from, const char *path, char *err,
                      size_t err_len);

#endif
