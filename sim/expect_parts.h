/* sim/expect_parts.h - the parts of sim_expect: one mode each, after the inputs were copied. */
#ifndef SIM_EXPECT_PARTS_H
#define SIM_EXPECT_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include "sim/expect.h"

/* results gets every key of its mode that the case has inputs for. 0, or -1 with err (memory);
 * results then holds some of them. */
int sim_expect_ll(const struct sim_capture *capture, const struct sim_inputs *inputs,
                  const struct sim_expect_options *options, struct sim_capture *results, char *err,
                  size_t err_len);
int sim_expect_normal(const struct sim_capture *capture, const struct sim_inputs *inputs,
                      const struct sim_expect_options *options, struct sim_capture *results,
                      char *err, size_t err_len);

/* combined BF16 [tokens][hidden] of low latency with LogFMT-10. 0, or -1 (memory). */
int sim_expect_logfmt(const struct sim_inputs *inputs, const uint16_t *expert_out,
                      uint16_t *combined);

#endif
