/* sim/accuracy.h - how far predictions are from measurements, by group.
 *
 * An error is |predicted / measured - 1|. Groups are rows of one machine, mode, operation and
 * number of ranks, in the order in which they first appear. */
#ifndef SIM_ACCURACY_H
#define SIM_ACCURACY_H

#include <stddef.h>
#include <stdint.h>
#include "sim/measured.h"

struct sim_accuracy_group {
    char machine[96];
    char mode[8];
    char op[24];
    uint32_t ep;
    size_t count;
    double median; /* Of the absolute error; 0.04 = 4 %. */
    double p90;    /* 90th percentile, nearest rank. */
    double bias;   /* Mean of predicted / measured - 1. */
};

/* The rows that `mode` ("" = any) and grades ("AB": any of these letters; "" = any) choose,
 * summed up as one. machine and op are "". */
struct sim_accuracy_group sim_accuracy_over(const struct sim_measured *measured,
                                            const uint64_t *predicted_ps, const char *mode,
                                            const char *grades);

/* Share of the rows of these grades whose prediction is within 1.5 times the measurement. */
double sim_accuracy_within(const struct sim_measured *measured, const uint64_t *predicted_ps,
                           const char *grades);

/* groups [measured->count at most]; returns how many. -1 with err when memory is short. */
int64_t sim_accuracy_groups(const struct sim_measured *measured, const uint64_t *predicted_ps,
                            struct sim_accuracy_group *groups, char *err, size_t err_len);

#endif
