/* sim/wrong_rows.h - which rows of a layer, or of a run, are not what they should be.
 *
 * In the order in which they are found: by step, layer, stage, rank and row. The digest is over all
 * of them; the list ends when it is full. Two backends that were done the same harm have the same
 * list. */
#ifndef SIM_WRONG_ROWS_H
#define SIM_WRONG_ROWS_H

#include <stdint.h>

enum { SIM_WRONG_ROWS_MAX = 1024 };

struct sim_wrong_row {
    uint64_t step;
    uint32_t layer;
    uint32_t stage; /* enum sim_stage */
    uint32_t rank;  /* Whose output. */
    int32_t expert; /* -1 where the stage has none (combine; normal mode). */
    uint32_t src_rank;
    int64_t src_token; /* Index in its home rank; -1: a count, not a token's row. */
};

struct sim_wrong_rows {
    uint64_t count;  /* Of all. */
    uint64_t digest; /* Over all; 0 when there are none. */
    struct sim_wrong_row rows[SIM_WRONG_ROWS_MAX];
};

static inline uint32_t sim_wrong_rows_listed(const struct sim_wrong_rows *wrong)
{
    return wrong->count < SIM_WRONG_ROWS_MAX ? (uint32_t)wrong->count : SIM_WRONG_ROWS_MAX;
}

void sim_wrong_rows_clear(struct sim_wrong_rows *wrong);
/* A row of a layer that does not know its name: step and layer are 0. */
void sim_wrong_rows_add(struct sim_wrong_rows *wrong, const struct sim_wrong_row *row);
/* A layer's rows, behind what is there. */
void sim_wrong_rows_append(struct sim_wrong_rows *wrong, const struct sim_wrong_rows *layer_rows,
                           uint64_t step, uint32_t layer);

#endif
