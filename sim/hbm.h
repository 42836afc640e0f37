/* sim/hbm.h - what an exchange moves through each GPU's memory, counted.
 *
 * The kernels' loads and stores by formula, every row once per load and once per store, as if no
 * cache held any of it. The models have no memory server: rates of SMs, fitted to measured
 * kernels, hold memory in them. The count says how far from the memory's own rate a kernel is. */
#ifndef SIM_HBM_H
#define SIM_HBM_H

#include <stdint.h>
#include "sim/bytes.h"
#include "sim/exchange.h"

/* bytes[rank] of [ranks]: read and written. pairs is the direction's [ranks * ranks] of
 * sim_bytes_pairs.
 *
 *   dispatch, LL   home: tokens read, staged once, and read again by the NIC; owner: rows land,
 *                  are read and stored packed
 *   combine, LL    owner: rows read, for the NIC also staged and read again; home: rows land and
 *                  are read, sums stored
 *   normal         every message is read at one end and stored at the other; the last receiver
 *                  reads it out of its ring, and stores rows (dispatch) or sums (combine) */
void sim_hbm_bytes(const struct sim_exchange *exchange, const struct sim_pair_bytes *pairs,
                   uint64_t *bytes);

#endif
