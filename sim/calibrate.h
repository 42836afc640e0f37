/* sim/calibrate.h - fit the costs of a machine file to measurements.
 *
 * The file says what may move: every number of its ll and normal sections, and of those under
 * stacks, that stands on a line of its own without a comment, or with one that starts with
 * "fitted". A number with another comment (measured, assumed, ...) keeps its value. A fit starts
 * from the number, or, where the comment reads "fitted from NUMBER", from that one: then the
 * result does not depend on what an earlier fit had written. Rows of
 * machines that inherit such a number count as well, so what a family shares is fitted to the
 * rows of all of it. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "sim/calibrate_file.h"
#include "sim/measured.h"

/* Repeats of one measurement differ by a few percent: rows off by more are spikes and weigh less,
 * as if they were off by this and the rest counted linearly. */
#define SIM_CALIBRATE_KNEE 0.05
#define SIM_CALIBRATE_UNDETERMINED 0.5 /* Relative error from which a number is not determined. */

struct sim_calibrate_options {
    const struct sim_calibrate_file *files;
    size_t file_count;
    const char *mode;   /* "ll", "normal", or "" for both. */
    const bool *wanted; /* [rows] to fit to; NULL = all. */
    uint32_t threads;   /* 0 = all cores. */
    unsigned rounds;    /* At most, for each fit. */
    /* Keep numbers that the rows do not determine at what stands, and fit the others anew; else
     * they go where the others and a weak pull to their start leave them. */
    bool hold;
    void (*report)(void *context, unsigned round, double loss); /* Or NULL. */
    void *context;
};

struct sim_calibration {
    struct sim_knob *knobs; /* Owned. Those that touch a row. */
    size_t knob_count;
    size_t idle;                        /* Numbers that might move, but touch no row. */
    size_t rows;                        /* That counted. */
    double median_before, median_after; /* Of the absolute error over them. */
    double p90_before, p90_after;
    struct fabric_machine *pool;            /* Owned: the fitted machines. */
    const struct fabric_machine **machines; /* [all rows], into pool. */
    uint64_t *predicted_ps;                 /* Owned: [all rows] by the fit; 0: did not count. */
};

/* 0, or -1 with err. *calibration is written only on success. */
int sim_calibrate(const struct sim_measured *measured, const struct sim_calibrate_options *options,
                  struct sim_calibration *calibration, char *err, size_t err_len);
void sim_calibration_free(struct sim_calibration *calibration); /* Safe on a zeroed struct. */

/* How far off, as the fit counts it: 2 (p - m) / (p + m), the logarithm of p / m up to its cube. */
double sim_calibrate_residual(uint64_t predicted_ps, uint64_t measured_ps);

/* A number for a row's id, the same wherever and beside whatever it stands. */
uint64_t sim_calibrate_hash(const char *id);

#endif
