/* sim/accuracy.h - how far predictions lie from measurements, and what simpler rules reach.
 *
 * Two yardsticks stand beside the model: `rule`, bytes over the datasheet rate of the busiest
 * link, and `line`, the best a + b x tokens for each curve (rows that differ in tokens alone),
 * fitted to the very rows it is judged on. */
#ifndef SIM_ACCURACY_H
#define SIM_ACCURACY_H

#include <stddef.h>
#include <stdint.h>
#include "sim/measured.h"

/* Errors are predicted / measured - 1. */
struct sim_accuracy_errors {
    double median; /* Of the absolute error. */
    double p90;    /* The same: nine rows of ten are no worse. */
    double bias;   /* Median of the signed error. */
};

struct sim_accuracy_group {
    char machine[96], mode[8], op[24], grade[16];
    uint32_t ep; /* 0 = all. */
    size_t rows;
    size_t within; /* Rows within a factor of 1.5. */
    struct sim_accuracy_errors model, rule, line;
};

struct sim_accuracy {
    size_t count;
    struct sim_accuracy_group *groups; /* Owned; in order of first appearance, then totals. */
};

/* Groups by (machine, mode, op, ep, grade), then the totals by mode that goals are set for:
 * grades A and B, notify apart. predicted_ps and floor_ps as sim_predict gives them. 0, or -1
 * with err. */
int sim_accuracy_compute(const struct sim_measured *measured, const uint64_t *predicted_ps,
                         const uint64_t *floor_ps, struct sim_accuracy *accuracy, char *err,
                         size_t err_len);
void sim_accuracy_free(struct sim_accuracy *accuracy); /* Safe on a zeroed struct. */

#endif
