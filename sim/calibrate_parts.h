/* sim/calibrate_parts.h - what the parts of sim_calibrate share; nobody else includes it. */
#ifndef SIM_CALIBRATE_PARTS_H
#define SIM_CALIBRATE_PARTS_H

#include "sim/calibrate.h"

struct sim_calibrate_work {
    const struct sim_measured *measured;
    const struct sim_calibrate_options *options;
    struct fabric_machine *pool;
    const struct fabric_machine **machines; /* [rows] */
    struct sim_knob *knobs;
    size_t knob_count;
    size_t active[SIM_KNOBS_MAX]; /* Indices of the knobs that a fit moves, ascending ... */
    size_t active_count;          /* ... the others are held. */
    bool *touched;                /* [knobs][rows] */
    bool *wanted;                 /* [rows] that count, then as many for one call. */
    uint64_t *predicted_ps;       /* [rows] */
    uint32_t (*chunks)[2];        /* [rows] normal mode's sizes, found anew in every round. */
    size_t rows;                  /* That count. */
};

/* Does the machine take this number from its file? */
bool sim_calibrate_takes(const struct sim_calibrate_work *fit, const struct fabric_machine *machine,
                         const struct sim_knob *knob);

/* Move the knobs, whose rows are found: fills their after, relative_error and rows, and made's
 * rows and errors. 0, or -1 with err. */
int sim_calibrate_fit(struct sim_calibrate_work *fit, struct sim_calibration *made, char *err,
                      size_t err_len);

/* Why not one of the first count knobs touches a row, in err. Returns -1. */
int sim_calibrate_explain(const struct sim_calibrate_work *fit, size_t count, char *err,
                          size_t err_len);

#endif
