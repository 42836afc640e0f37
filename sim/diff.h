/* sim/diff.h - where two recorded runs first differ, down to the bits.
 *
 * Digests say in which (step, layer, rank, stage); both runs then execute that layer again from
 * their settings, and the first differing element is named with both bit patterns and what each
 * side seems to have done. */
#ifndef SIM_DIFF_H
#define SIM_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include "sim/datapath.h"
#include "traces/db_read.h"

struct sim_diff {
    struct trace_difference digests; /* differs = false: no result differs. */
    bool element_found;              /* The layer was executed again and check names the element. */
    struct sim_check check;          /* expected = A's bits, actual = B's. */
    char element_note[512];          /* Why there is no element, or what each side did; one line. */
};

/* 0 with *diff filled, or -1 with err when a database cannot be read. */
int sim_diff_runs(struct trace_reader *a, struct trace_reader *b, struct sim_diff *diff, char *err,
                  size_t err_len);

#endif
