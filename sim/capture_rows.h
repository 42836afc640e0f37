/* sim/capture_rows.h - arrays over all ranks, as the reference and a backend make them, cut into
 * the tensors of the capture format. */
#ifndef SIM_CAPTURE_ROWS_H
#define SIM_CAPTURE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ref/ll.h"
#include "sim/capture.h"
#include "sim/inputs.h"

/* Each rank's part of flat [rows][columns] (columns 0: [rows]) becomes that rank's tensor; rows are
 * the tokens of all ranks, or (by_token false) the rows received. 0, or -1 with err (memory). */
int sim_capture_share(struct sim_capture *capture, const struct sim_inputs *inputs,
                      const char *name, enum trace_dtype dtype, const void *flat, bool by_token,
                      uint64_t columns, char *err, size_t err_len);

/* Low latency: what an expert received, which is TAG.eN.x, .src and, with scales, .scales of its
 * rank. rows holds all received rows (counts are not looked at). 0, or -1 with err (memory). */
int sim_capture_add_ll_expert(struct sim_capture *capture, const struct sim_inputs *inputs,
                              const struct sim_ll_tag *tag, const struct ref_ll_rows *rows,
                              uint64_t expert, char *err, size_t err_len);

#endif
