/* tools/explain.h - a breakdown as tables for people. */
#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include "sim/breakdown.h"

/* Parts, knobs, what to widen first, and what the times hang on; at most 100 columns. */
void explain_print(const struct sim_breakdown *breakdown);

#endif
