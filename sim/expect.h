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

#endif
