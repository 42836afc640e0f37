/* sim/verify.h - does a backend reproduce a folder of captures?
 *
 * Every case is computed by the backend and compared with what the capture holds: the capture is
 * what is expected, the backend's is actual. With the reference as backend this is the test of
 * the reference itself; a difference then says what the capture's side seems to have computed. */
#ifndef SIM_VERIFY_H
#define SIM_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/compare.h"

/* A case that the backend could not finish, and its line: "./x.so: SIGSEGV in dispatch". */
struct sim_verify_failure {
    char where[SIM_CASE_NAME_MAX];
    char text[512];
};
enum { SIM_VERIFY_FAILURES_MAX = 8 };

struct sim_verify_report {
    uint64_t cases;
    uint64_t passed;
    uint64_t failed;
    uint64_t skipped; /* Nothing in them that the backend computes. */
    /* Cases that broke the backend, in order. It is opened anew after each; after the last that
     * fits, nothing more is tried. */
    uint32_t failure_count;
    struct sim_verify_failure failures[SIM_VERIFY_FAILURES_MAX];
    uint64_t tensors; /* Compared, over all cases. */
    uint64_t bytes;
    char first_case[SIM_CASE_NAME_MAX]; /* "" when none failed. */
    struct sim_mismatch first;          /* Its first difference; the row pointers are NULL. */
    uint64_t first_mismatches;          /* Rows and entries that differ in that case. */
    uint32_t one_sided;                 /* Folders: sim_comparison.one_sided, over all cases. */
};

typedef void (*sim_verify_progress_fn)(void *context, uint64_t done, uint64_t cases);

/* backend NULL: the reference, every key of the format. Otherwise its group operations, opened at
 * the place (NULL: the default), and the keys that they make; a case that the place's transport
 * does not take, or the backend calls unsupported, is skipped. progress may be NULL. 0, or -1 with
 * err; *usage then tells a broken capture (exit 2) from memory or a backend's open that failed
 * (exit 3). A backend that fails in a case is a line of the report. */
int sim_verify_golden(const char *folder, const struct sim_backend_ops *backend,
                      const struct sim_backend_place *place, sim_verify_progress_fn progress,
                      void *context, struct sim_verify_report *report, bool *usage, char *err,
                      size_t err_len);

/* Note that the backend failed in a case; false when there is no room for more. */
bool sim_verify_note(struct sim_verify_report *report, const char *where, const char *text);

/* Two folders in the capture format, case by case and bit by bit, each key of each. A case or
 * key that only one side has is a difference, but for a low-latency tag (bf16., fp8., fp8r.,
 * ue8m0.) that a side's case has not at all: that is not compared, and told in one_sided. Settings
 * of a case must agree, or -1. */
int sim_diff_folders(const char *a_folder, const char *b_folder, struct sim_verify_report *report,
                     bool *usage, char *err, size_t err_len);

#endif
