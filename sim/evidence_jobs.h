/* sim/evidence_jobs.h - what is recorded of the driven path beside the cases: the main job, and one
 * message harmed in every way.
 *
 * The main job is the captured trace of gpt-oss-20b over 8 ranks, low latency, 64 streams a rank,
 * 4 steps, all layers. Faults strike one layer of the same model under generated routing. Neither
 * result depends on a time, so the machine files may change without making a record wrong. */
#ifndef SIM_EVIDENCE_JOBS_H
#define SIM_EVIDENCE_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/scenario.h"

struct sim_job {
    const char *kind; /* "job" or "fault". */
    const char *name; /* Static storage, as kind. */
    uint32_t gpus;    /* That it is recorded on; ranks stand in blocks. */
    enum sim_mode mode;
    enum sim_direction stage;  /* Faults only, as the next. */
    enum sim_fault_kind fault; /* What happens to one message of the stage. */
};

struct sim_job_result {
    uint64_t input;      /* Over every layer's ids. */
    uint64_t output;     /* Main job: over the digests of every stage of every rank of every layer.
                            Faults: over these and the list of wrong rows. */
    uint64_t mismatches; /* Rows that differ from the reference's group operations. */
};

/* All of them, in the order of the record. */
const struct sim_job *sim_jobs(size_t *count);
const struct sim_job *sim_job_find(const char *kind, const char *name); /* NULL when unknown. */

/* Does it need a trace? Then *pinned is what the reference makes of the captured one (a test
 * computes it where that is at hand); else false. */
bool sim_job_needs_trace(const struct sim_job *job, struct sim_job_result *pinned);

/* Play it on "ref" or "cuda". routing, offsets: the main job's trace, otherwise not looked at. 0,
 * or -1 with err; *usage tells a trace that cannot be played from an environment that failed. */
int sim_job_play(const struct sim_job *job, const char *backend, const char *routing,
                 const char *offsets, struct sim_job_result *result, bool *usage, char *err,
                 size_t err_len);

#endif
