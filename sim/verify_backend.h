/* sim/verify_backend.h - one case computed by a backend's group operations. */
#ifndef SIM_VERIFY_BACKEND_H
#define SIM_VERIFY_BACKEND_H

#include <stddef.h>
#include "sim/backend.h"
#include "sim/capture.h"
#include "sim/expect.h"
#include "sim/inputs.h"

/* results gets the keys of the format that the table's operations make: received rows of every
 * dispatch, expert output, combined tokens. 0, or -1 with err. Close results after success. */
int sim_verify_backend(const struct sim_backend_ops *backend, void *state,
                       const struct sim_capture *capture, const struct sim_inputs *inputs,
                       const struct sim_expect_options *own, struct sim_capture *results, char *err,
                       size_t err_len);

#endif
