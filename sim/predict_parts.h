/* sim/predict_parts.h - the parts of sim_predict: one for each sort of measured rows. */
#ifndef SIM_PREDICT_PARTS_H
#define SIM_PREDICT_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include "sim/predict.h"

enum { SIM_PREDICT_RANKS_MAX = 1024 };

/* Can the model answer this row of dispatch or combine on that machine? 0, or -1 with a line that
 * names file, line, column, value and what is allowed. Only what contradicts itself, what the
 * machine does not have or what is too large to simulate is refused: a shape that no shipped kernel
 * has is answered. */
int sim_predict_check(const struct sim_measured_row *row, const struct fabric_machine *machine,
                      char *err, size_t err_len);

/* As sim_predict, row i on machines[i] whatever options->machines says. Kinds: calibrate. */
int sim_predict_exchange(const struct sim_measured *measured,
                         const struct sim_predict_options *options,
                         const struct fabric_machine *const *machines, uint64_t *predicted_ps,
                         uint64_t *floor_ps, char *err, size_t err_len);

/* The same for the kinds expert_compute and attention.
 *
 * How such rows are taken (AIConfigurator's collectors) is part of the question: rows of one
 * rank, the busiest where the load follows a power law; contiguous kernels are launched by a host
 * that was idle before, over tokens_per_rank x ep tokens of which most have no expert here. */
int sim_predict_compute(const struct sim_measured *measured,
                        const struct sim_predict_options *options,
                        const struct fabric_machine *const *machines, uint64_t *predicted_ps,
                        uint64_t *floor_ps, char *err, size_t err_len);

#endif
