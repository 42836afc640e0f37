/* sim/expect.h - what the reference makes of a case's inputs, in the capture format.
 *
 * One computation serves three callers: expect writes its results, verify compares them with a
 * capture, and the tests do both. */
#ifndef SIM_EXPECT_H
#define SIM_EXPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/capture.h"
#include "sim/inputs.h"

/* The four ways in which low latency dispatches, in the order of the format. */
struct sim_ll_tag {
    const char *name; /* "bf16", "fp8", "fp8r", "ue8m0" */
    uint32_t recipe;  /* enum ref_recipe. */
    uint32_t payload_bytes;
    uint32_t scale_channels; /* Channels that one word of scales covers; 0 = no scales. */
};
enum { SIM_LL_TAGS = 4 };
const struct sim_ll_tag *sim_ll_tag(uint32_t index);

/* What of the case's own to take as it is, where the case brings it. */
struct sim_expect_options {
    bool own_fp8;        /* x_fp8 and x_scales; otherwise they are made from x (py_cuda). What is
                            dispatched is the case's own in either case. */
    bool own_expert_out; /* Expert output; otherwise the case's expert runs. */
};

/* Compute every result. results gets the inputs and then every key of the format that the case
 * has inputs for. 0, or -1 with err (memory). Close results after success only. */
int sim_expect(const struct sim_capture *capture, const struct sim_inputs *inputs,
               const struct sim_expect_options *options, struct sim_capture *results, char *err,
               size_t err_len);

typedef void (*sim_expect_progress_fn)(void *context, uint64_t done, uint64_t cases);

/* Every case of in_folder, computed and written to out_folder under the same file names (created
 * when it is not there; files of these names are replaced). Nothing is left in out_folder when
 * any case fails. progress may be NULL. *usage tells a broken question (exit 2) from a failing file
 * system (exit 3). *cases and *files count what was written. */
int sim_expect_folder(const char *in_folder, const char *out_folder,
                      sim_expect_progress_fn progress, void *context, uint64_t *cases,
                      uint64_t *files, bool *usage, char *err, size_t err_len);

/* The parts of sim_expect: one mode each, after the inputs were copied. */
int sim_expect_ll(const struct sim_capture *capture, const struct sim_inputs *inputs,
                  const struct sim_expect_options *options, struct sim_capture *results, char *err,
                  size_t err_len);
int sim_expect_normal(const struct sim_capture *capture, const struct sim_inputs *inputs,
                      const struct sim_expect_options *options, struct sim_capture *results,
                      char *err, size_t err_len);

/* combined BF16 [tokens][hidden] of low latency with LogFMT-10. 0, or -1 (memory). */
int sim_expect_logfmt(const struct sim_inputs *inputs, const uint16_t *expert_out,
                      uint16_t *combined);

/* Add a copy of rows [first, end) of a flat array of [rows][columns] elements as a tensor of two
 * axes, or of one when columns is 0. */
int sim_expect_slice(struct sim_capture *results, uint32_t rank, const char *name,
                     enum trace_dtype dtype, const void *flat, uint64_t first, uint64_t end,
                     uint64_t columns, char *err, size_t err_len);

#endif
