/* sim/verify_cases.h - the whole table of cases through one backend, several at a time.
 *
 * Cases are independent: each thread takes the largest that is left and fits beside those at work,
 * which together take no more memory than one case may. Verdicts stand in the order of the table,
 * so nothing depends on the threads. A backend other than the reference has one state,
 * and one case at a time uses it, while others compute what is right. */
#ifndef SIM_VERIFY_CASES_H
#define SIM_VERIFY_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/case_play.h"
#include "sim/case_table.h"
#include "sim/verify.h"

struct sim_cases_job {
    const struct sim_case_table *table;
    const struct sim_backend_ops *backend; /* NULL: the reference. */
    const struct sim_backend_place *place; /* NULL: the default. */
    bool reference;                        /* Only the reference's digests: nothing is compared. */
    const bool *wanted;                    /* [table->count]: which cases; NULL: all. */
    uint32_t threads;                      /* 0: all cores. */
    sim_verify_progress_fn progress;       /* May be NULL. Called by one thread at a time. */
    void *context;
};

/* Play the cases. verdicts: [table->count], filled where wanted; *bytes_max: host memory of the
 * largest case. 0, or -1 with err; *usage tells a case that is too large (exit 2) from memory or a
 * backend's open that failed (exit 3). A backend that fails in a case is a line of the report;
 * after SIM_VERIFY_FAILURES_MAX of them nothing more is tried. */
int sim_verify_cases(const struct sim_cases_job *job, struct sim_case_verdict *verdicts,
                     struct sim_verify_report *report, uint64_t *bytes_max, bool *usage, char *err,
                     size_t err_len);

#endif
