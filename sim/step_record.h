/* sim/step_record.h - the whole step of a run whose cells come one by one: times, and spans for
 * the database. */
#ifndef SIM_STEP_RECORD_H
#define SIM_STEP_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include "sim/cell.h"
#include "sim/step.h"
#include "traces/db.h"

struct sim_step_record {
    const struct sim_plan *plan; /* Borrowed. */
    struct sim_step *step;       /* Owned. */
    struct trace_db *db;         /* Borrowed, may come later; NULL: no spans. */
    struct sim_step_times times; /* Sum, from sim_step_record_mean on the mean. */
    struct sim_step_memory memory;
    uint64_t steps;
    uint64_t start_ps; /* Of the step being played. */
    uint64_t digest;   /* Over every step's times. */
};

/* What sim_step_open refuses. The record is large: part of a calloc. */
int sim_step_record_open(const struct sim_plan *plan, struct sim_step_record *record, char *err,
                         size_t err_len);
void sim_step_record_close(struct sim_step_record *record); /* Safe on a zeroed struct. */

/* The next cell, in order; layer_index counts the plan's layers. With a database, spans of every
 * kernel: layer NULL in dense layers, ops ending in ".a" and ".b" where there are two halves. */
int sim_step_record_cell(struct sim_step_record *record, const struct sim_cell *cell,
                         uint32_t layer_index, char *err, size_t err_len);

/* Once all cells are in. */
void sim_step_record_mean(struct sim_step_record *record);

#endif
