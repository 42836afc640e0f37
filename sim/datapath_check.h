/* sim/datapath_check.h - the stages of a layer, and one of them compared, on one rank, between two
 * computations of it. */
#ifndef SIM_DATAPATH_CHECK_H
#define SIM_DATAPATH_CHECK_H

#include <stdint.h>
#include "sim/backend.h"
#include "sim/wrong_rows.h"

enum sim_stage {
    SIM_STAGE_LAYOUT,
    SIM_STAGE_DISPATCH,
    SIM_STAGE_EXPERT,
    SIM_STAGE_COMBINE,
    SIM_STAGES
};

const char *sim_stage_name(enum sim_stage stage); /* As in table check_result, static. */

struct sim_check {
    enum sim_stage stage;
    uint32_t rank;
    uint64_t rows;           /* Rows compared. */
    uint64_t bytes;          /* Bytes compared. */
    uint64_t digest;         /* Over the backend's output. */
    uint64_t mismatch_count; /* Rows that differ. The rest is meaningful when above 0. */
    int64_t expert;          /* -1 where the stage has none (combine; normal mode). */
    uint32_t src_rank;       /* Home rank of the row's token. */
    uint32_t src_token;      /* Its index there. */
    int64_t channel;         /* -1: not a channel (a source id, a count, a weight). */
    char expected_hex[20];
    char actual_hex[20];
    char cause[192]; /* What seems to have happened, in words (sim/explain.h). */
};

/* The outputs of one layer, wherever they are stored. */
struct sim_layer_results {
    struct sim_received received;
    uint16_t *expert_out; /* BF16 [rows][hidden] */
    struct sim_combined combined;
};

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
