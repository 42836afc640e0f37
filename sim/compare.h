/* sim/compare.h - two sets of results of one case, compared key by key and bit by bit.
 *
 * Low latency lands rows in arrival order, so its rows are compared by (expert, source rank,
 * source token), copies counted; every other tensor is compared in place. The first difference
 * is the first one in the order of the data path: inputs, layout, quantise, dispatch, expert,
 * combine; in a stage by tensor, then rank, then key or row, then channel. */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/capture.h"

/* Where the first difference is. -1: that part of the place has no meaning there. */
struct sim_mismatch {
    const char *stage; /* "input", "layout", "quantise", "dispatch", "expert", "combine". */
    char tensor[SIM_TENSOR_NAME_MAX];
    uint32_t rank;     /* Whose tensor it is. */
    int64_t expert;    /* Global. */
    int64_t src_rank;  /* Home of the token. */
    int64_t src_token; /* Its index there. */
    int64_t channel;   /* Or the column of a table; a scale names its first channel. */
    char expected[32]; /* Hex digits of the element; numbers of a table in decimal. */
    char actual[32];
    char cause[192]; /* "" until somebody looked for one. */
    /* The two whole rows, for whoever looks: borrowed from the captures; NULL where a row stands
     * on one side only or there is no row. */
    const uint8_t *expected_row, *actual_row;
    const uint8_t *expected_scales, *actual_scales; /* FP8 rows. */
};

struct sim_comparison {
    uint64_t tensors;    /* Compared. */
    uint64_t bytes;      /* Of them, on the expected side. */
    uint64_t mismatches; /* Rows and table entries that differ. */
    uint32_t one_sided;  /* Both ways: bit t: one side has nothing of sim_ll_tag(t), so it was not
                            compared: a capture may hold some of the four dispatches alone. */
    struct sim_mismatch first; /* When mismatches is not 0. */
};

/* One expert's received rows on one rank, as a kernel leaves them. Borrowed. */
struct sim_block_rows {
    uint32_t ranks;
    uint64_t rows;
    const int64_t *layout;  /* [ranks]: count in the low 32 bits, first row in the high. */
    const int32_t *src;     /* [rows]: source token. */
    const uint8_t *payload; /* [rows][row_bytes] */
    const uint8_t *scales;  /* [rows][scale_bytes], or NULL. */
    uint64_t row_bytes;
    uint64_t scale_bytes;
    uint32_t element_bytes;  /* Of payload: 1 or 2. */
    uint32_t scale_channels; /* Channels behind one 4-byte word of scales. */
};

/* Compare two blocks whatever their row order (payload and scale sizes must agree). Adds what
 * it finds to *mismatches; *first is written at the first one and only when *mismatches was 0:
 * src_rank, src_token, channel, expected, actual, the rows, cause; the caller fills the rest.
 * 0, or -1 with err (memory). */
int sim_compare_block(const struct sim_block_rows *expected, const struct sim_block_rows *actual,
                      uint64_t *mismatches, struct sim_mismatch *first, char *err, size_t err_len);

struct sim_compare_options {
    bool inputs;          /* Compare what the case gave, too. */
    bool both_ways;       /* A tensor on one side only is a difference (but see one_sided);
                             otherwise only the expected side's tensors count, where the actual
                             side has them. */
    bool skip_expert_out; /* The case brought its own. */
    bool skip_logfmt;     /* Its encoded chunks depend on the device's log2 and exp2. */
};

/* Both captures have the same settings. 0, or -1 with err (memory). */
int sim_compare_captures(const struct sim_capture *expected, const struct sim_capture *actual,
                         const struct sim_compare_options *options,
                         struct sim_comparison *comparison, char *err, size_t err_len);

#endif
