/* sim/predict_parts.h - the parts of sim_predict: one for each sort of measured rows. */
#ifndef SIM_PREDICT_PARTS_H
#define SIM_PREDICT_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include "sim/predict.h"

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
