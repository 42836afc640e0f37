/* sim/evidence.h - a record of what the kernels computed on a GPU, checked later without one.
 *
 * One line per named case (sim/case_table.h), per main job and per fault (sim/evidence_jobs.h), as
 * CSV under the header kind,name,input,kernels,output,gpu,driver,cuda,kernel_ns: digests of the
 * inputs, of the kernel sources in that build, and of all outputs of both paths. Whoever has the
 * same inputs and the reference can tell whether the kernels were right; whoever changes a kernel
 * makes the line stale. */
#ifndef SIM_EVIDENCE_H
#define SIM_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/case_table.h"
#include "sim/evidence_jobs.h"
#include "sim/verify.h"

struct sim_evidence_line {
    char kind[8]; /* "case", "job" or "fault". */
    char name[SIM_CASE_TEXT_MAX];
    uint64_t input;
    char kernels[17]; /* Of the build that computed it, as sim_evidence_kernels. */
    uint64_t output;  /* Cases: sim_case_verdict.output_digest; else sim_job_result.output. */
    char gpu[80];
    char driver[32];
    char cuda[32];
    uint64_t kernel_ns; /* Group operations of a case; 0: not measured. */
};

struct sim_evidence {
    size_t count, capacity;
    struct sim_evidence_line *lines; /* Owned. */
};

/* 16 hex digits over kernels/ and ref/mathfn.h as this program was built, with or without CUDA. */
const char *sim_evidence_kernels(void);

/* Read a record. 0, or -1 with "FILE:LINE: what". *evidence only on success; free it. */
int sim_evidence_load(const char *path, struct sim_evidence *evidence, char *err, size_t err_len);
void sim_evidence_free(struct sim_evidence *evidence); /* Safe on a zeroed struct. */

/* Add a copy of a line. 0, or -1 with err (memory). */
int sim_evidence_add(struct sim_evidence *evidence, const struct sim_evidence_line *line, char *err,
                     size_t err_len);

/* Write it whole: the file is the old one or this one. 0, or -1 with err. */
int sim_evidence_write(const struct sim_evidence *evidence, const char *path, char *err,
                       size_t err_len);

struct sim_evidence_question {
    const struct sim_case_table *table; /* Borrowed, as all here. */
    const char *routing, *offsets;      /* The main job's trace; NULL: its pinned digests serve. */
    uint32_t threads;                   /* 0: all cores. */
    sim_verify_progress_fn progress;    /* May be NULL. */
    void *context;
};

struct sim_evidence_report {
    uint64_t lines, matched, mismatched, stale; /* lines = the sum of the other three. */
    uint64_t missing; /* Cases of the table, jobs and faults that have no line. */
    uint64_t pinned;  /* Of the matched: main jobs held against pinned digests only. */
    char first[256];  /* The first mismatched line, in words; "" when there is none. */
};

/* Compute the reference's digests of all lines that are not stale, and compare. 0, or -1 with err;
 * *usage tells a question that cannot be asked from memory that failed. */
int sim_evidence_check(const struct sim_evidence *evidence,
                       const struct sim_evidence_question *question,
                       struct sim_evidence_report *report, bool *usage, char *err, size_t err_len);

/* Compute all of it on this machine's GPUs: the cases on one, the main job there and, where there
 * are two, in blocks on two; without question->routing no main job. 0, or -1 with err, as
 * sim_evidence_check; a case that fails is in the record with the digest that it gave. */
int sim_evidence_make(const struct sim_evidence_question *question, struct sim_evidence *evidence,
                      struct sim_verify_report *cases, bool *usage, char *err, size_t err_len);

#endif
