/* sim/received.h - storage for the received rows, expert output and combined tokens of one layer:
 * the arrays behind struct sim_received and struct sim_combined. */
#ifndef SIM_RECEIVED_H
#define SIM_RECEIVED_H

#include <stddef.h>
#include <stdint.h>
#include "sim/arena.h"
#include "sim/backend.h"

enum sim_result_array {
    SIM_RESULT_PAYLOAD,
    SIM_RESULT_SCALES,
    SIM_RESULT_SRC_TOKEN,
    SIM_RESULT_TOPK_IDX,
    SIM_RESULT_TOPK_WEIGHTS,
    SIM_RESULT_COUNTS,
    SIM_RESULT_EXPERT_OUT,
    SIM_RESULT_COMBINED,
    SIM_RESULT_COMBINED_WEIGHTS,
    SIM_RESULT_ARRAYS
};

/* The rows' scales as bytes, of whichever kind they are; NULL where the recipe has none. */
static inline uint8_t *sim_received_scales(const struct sim_received *rows)
{
    return rows->scales != NULL ? (uint8_t *)rows->scales : (uint8_t *)rows->scales_ue8m0;
}

struct sim_results {
    struct sim_arena arenas[SIM_RESULT_ARRAYS];
    struct sim_received received;
    uint16_t *expert_out; /* BF16 [rows][hidden] */
    struct sim_combined combined;
};

/* Bytes per row of payload, of scales (0 for bf16), and how many blocks counts has. */
struct sim_row_shape {
    uint64_t payload_bytes;
    uint64_t scale_bytes;
    uint64_t blocks;
};
struct sim_row_shape sim_row_shape(const struct sim_layer_input *input);

/* Point every array that the layer's mode and recipe have at storage of the right size; the
 * others are NULL. Contents are undefined. */
int sim_results_reserve(struct sim_results *results, const struct sim_layer_input *input, char *err,
                        size_t err_len);
/* Fill every array with 0xFF, behind its last row too. After sim_results_reserve. */
void sim_results_poison(struct sim_results *results);
/* The name of an array that was written behind its last row since it was poisoned for this input,
 * or NULL. */
const char *sim_results_overrun(const struct sim_results *results,
                                const struct sim_layer_input *input);
void sim_results_free(struct sim_results *results);

#endif
