/* sim/datapath_check.h - compares one stage of one rank between two computations of a layer. */
#ifndef SIM_DATAPATH_CHECK_H
#define SIM_DATAPATH_CHECK_H

#include "sim/datapath.h"

/* The part of an array that one rank's stage compares: rows of the same width. */
struct sim_check_part {
    const char *name;        /* "payload", "scale", "source token", ... */
    const uint8_t *expected; /* [rows][row_bytes] */
    const uint8_t *actual;
    uint64_t row_bytes;
    uint32_t element_bytes; /* Of one printed value. */
    uint32_t channels;      /* Channels per element; 0 = elements are not channels. */
};

enum { SIM_CHECK_PARTS_MAX = 5 };

/* The parts of a stage, rows [first, first + rows) of the layer's arrays. Returns how many. */
uint32_t sim_check_parts(const struct sim_layer_input *input,
                         const struct sim_layer_results *expected,
                         const struct sim_layer_results *actual, enum sim_stage stage,
                         uint32_t rank, uint64_t *first, uint64_t *rows,
                         struct sim_check_part *parts);

/* Fill *check: sizes, digest of the actual bytes, differing rows, and the first of them. All of
 * them are added to wrong (or NULL). */
void sim_datapath_check(const struct sim_layer_input *input,
                        const struct sim_layer_results *expected,
                        const struct sim_layer_results *actual, enum sim_stage stage, uint32_t rank,
                        struct sim_check *check, struct sim_wrong_rows *wrong);

#endif
