/* sim/verify.h - does a backend reproduce a folder of captures?
 *
 * Every case is computed by the backend and compared with what the capture holds: the capture is
 * what is expected, the backend's is actual. With the reference as backend this is the test of
 * the reference itself; a difference then says what the capture's side seems to have computed. */
#ifndef SIM_VERIFY_H
#define SIM_VERIFY_H

#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/compare.h"

struct sim_verify_report {
    uint64_t cases;
    uint64_t passed;
    uint64_t failed;
    uint64_t skipped; /* Nothing in them that the backend computes. */
    uint64_t tensors; /* Compared, over all cases. */
    uint64_t bytes;
    char first_case[SIM_CASE_NAME_MAX]; /* "" when none failed. */
    struct sim_mismatch first;          /* Its first difference; the row pointers are NULL. */
    uint64_t first_mismatches;          /* Rows and entries that differ in that case. */
};

typedef void (*sim_verify_progress_fn)(void *context, uint64_t done, uint64_t cases);

/* backend NULL: the reference, every key of the format. Otherwise its group operations, opened at
 * the place (NULL: the default), and the keys that they make; a case that the place's transport
 * does not take is skipped. progress may be NULL. 0, or -1 with err; *usage then tells a broken
 * capture (exit 2) from a backend or memory that failed (exit 3). */
int sim_verify_golden(const char *folder, const struct sim_backend_ops *backend,
                      const struct sim_backend_place *place, sim_verify_progress_fn progress,
                      void *context, struct sim_verify_report *report, bool *usage, char *err,
                      size_t err_len);

/* Two folders in the capture format, case by case and bit by bit, each key of each. A case or
 * key that only one side has is a difference. Settings of a case must agree, or -1. */
int sim_diff_folders(const char *a_folder, const char *b_folder, struct sim_verify_report *report,
                     bool *usage, char *err, size_t err_len);

#endif
