/* sim/explain.h - what seems to have been computed in a row that is not the reference's.
 *
 * The bridge from a layer's arrays (sim/datapath_check.h) to sim/cause.h, which knows formulas. */
#ifndef SIM_EXPLAIN_H
#define SIM_EXPLAIN_H

#include <stdbool.h>
#include "sim/cause.h"
#include "sim/datapath_check.h"

/* check names a row (rank, expert, src_rank, src_token) of the dispatch or combine stage. true
 * with a sentence when actual's row departs from expected's, which must be the reference's, and
 * a formula reproduces it. */
bool sim_explain_row(const struct sim_layer_input *input, const struct sim_layer_results *expected,
                     const struct sim_layer_results *actual, const struct sim_check *check,
                     char cause[SIM_CAUSE_MAX]);

#endif
