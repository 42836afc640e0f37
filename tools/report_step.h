/* tools/report_step.h - the whole step of a run, for people and for programs. */
#ifndef TOOLS_REPORT_STEP_H
#define TOOLS_REPORT_STEP_H

#include <jansson.h>
#include "sim/step_record.h"

/* The overlap's order in words, then what each kernel took. */
void report_step_print(const struct sim_step_record *record, bool schedule);
/* A new reference: the value of "step" in the run's document. */
json_t *report_step_json(const struct sim_step_record *record, bool schedule);

#endif
