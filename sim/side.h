/* sim/side.h - what the two sides of a difference seem to have done, in words. */
#ifndef SIM_SIDE_H
#define SIM_SIDE_H

#include <stddef.h>
#include "sim/datapath.h"
#include "sim/replica.h"

/* check names an element in which a (expected) and b (actual) differ; both played the same
 * routing with rows of the same size. Writes one line into text. */
void sim_side_explain(const struct sim_replica *a, const struct sim_replica *b,
                      const struct sim_check *check, char *text, size_t text_len);

#endif
