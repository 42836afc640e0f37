/* sim/record.h - one cell into the database: what ran, who sent what, who waited, what checked. */
#ifndef SIM_RECORD_H
#define SIM_RECORD_H

#include <stddef.h>
#include "sim/breakdown.h"
#include "sim/bytes.h"
#include "sim/cell.h"
#include "traces/db.h"

enum sim_detail { SIM_DETAIL_SUMMARY, SIM_DETAIL_SPAN, SIM_DETAIL_MESSAGE };

/* summary: check results and expert loads; span: also spans, pair bytes, resources and waits;
 * message: also every message. pairs as in sim_summary_add. 0, or -1 with err. */
int sim_record_cell(struct trace_db *db, const struct sim_cell *cell, enum sim_detail detail,
                    const struct sim_pair_bytes *pairs, char *err, size_t err_len);

/* The cell that was added to the breakdown last: every rank's parts, every knob. */
int sim_record_breakdown(struct trace_db *db, const struct sim_cell *cell,
                         const struct sim_breakdown *breakdown, char *err, size_t err_len);

/* The scenario's faults, once per run. */
int sim_record_faults(struct trace_db *db, const struct sim_scenario *scenario, char *err,
                      size_t err_len);

#endif
