/* tools/accuracy_show.h - predictions beside measurements, as tables and as JSON. */
#ifndef TOOLS_ACCURACY_SHOW_H
#define TOOLS_ACCURACY_SHOW_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include "sim/accuracy.h"
#include "sim/measured.h"

/* {"kind", "rows": settings and times of every row in the file's order, "groups", "machines"}.
 * predicted_ps is [measured->count]; origins is borrowed. The free line of a group of one or two
 * rows is null: it goes through them. */
json_t *accuracy_json(const struct sim_measured *measured, const uint64_t *predicted_ps,
                      const struct sim_accuracy *accuracy, const json_t *origins);

/* Every row, in the file's order. */
void accuracy_print_rows(const struct sim_measured *measured, const uint64_t *predicted_ps,
                         FILE *out);
/* The few rows whose absolute error is largest, the worst first. */
void accuracy_print_worst(const struct sim_measured *measured, const uint64_t *predicted_ps,
                          FILE *out);
void accuracy_print_groups(const struct sim_accuracy *accuracy, FILE *out);
/* A line when rows have a grade other than A, B and C, which counts as A and B do; or nothing. */
void accuracy_print_grades(const struct sim_measured *measured, FILE *out);

#endif
