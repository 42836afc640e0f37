/* tools/report_mismatch.h - the first difference, for people and for programs. */
#ifndef TOOLS_REPORT_MISMATCH_H
#define TOOLS_REPORT_MISMATCH_H

#include <jansson.h>
#include <stdio.h>
#include "sim/verify.h"

/* A new object of case, stage, tensor, rank, expert, src_rank, src_token, channel, expected,
 * actual, cause; null where the place has no such part. JSON null when nothing failed. */
json_t *mismatch_json(const struct sim_verify_report *report);

/* One line: case, stage, tensor, place, both values, cause. */
void mismatch_print(const struct sim_verify_report *report, FILE *out);

#endif
