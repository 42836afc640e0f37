/* sim/predict_compute.h - the model's answer to measured expert and attention kernels.
 *
 * How such rows are taken (AIConfigurator's collectors) is part of the question: rows of one
 * rank, the busiest where the load follows a power law; contiguous kernels are launched by a host
 * that was idle before, over tokens_per_rank x ep tokens of which most have no expert here. */
#ifndef SIM_PREDICT_COMPUTE_H
#define SIM_PREDICT_COMPUTE_H

#include <stddef.h>
#include <stdint.h>
#include "sim/predict.h"

/* As sim_predict, for the kinds expert_compute and attention. */
int sim_predict_compute(const struct sim_measured *measured,
                        const struct sim_predict_options *options, uint64_t *predicted_ps,
                        uint64_t *floor_ps, char *err, size_t err_len);

#endif
