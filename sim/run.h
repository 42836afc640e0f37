/* sim/run.h - a whole run: every step, every layer, timed, moved, checked, logged.
 *
 * One thread simulates, in order; the others move the bytes of cells already simulated; results
 * are taken in order again. So digest and rows do not depend on the number of threads. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/breakdown.h"
#include "sim/plan.h"
#include "sim/source.h"
#include "sim/step_record.h"
#include "sim/summary.h"
#include "traces/db.h"

struct sim_run {
    const struct sim_plan *plan;
    struct sim_source *source;             /* Started on the plan, before step 0. */
    const struct sim_backend_ops *backend; /* NULL: times only. */
    uint32_t threads;                      /* That move bytes; 0: as the plan's settings say. */
    struct trace_db *db;                   /* A run has begun in it; NULL: no database. */
    struct sim_breakdown *breakdown;       /* Opened on the plan; NULL: nobody asked. */
    struct sim_step_record *step;          /* Opened on the plan; NULL: exchanges alone. */
    void (*progress)(void *context, uint64_t cells_done, uint64_t cells); /* NULL: silent. */
    void *progress_context;
};

enum { SIM_RUN_REFUSED = -2 };

/* Play everything. summary is opened by the caller. 0; -1 with err when the environment failed;
 * SIM_RUN_REFUSED with err when the scenario names a message that does not exist. */
int sim_run_play(const struct sim_run *run, struct sim_summary *summary, char *err, size_t err_len);

#endif
