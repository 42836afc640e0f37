/* sim/pool.h - cells in flight: a ring of cells, prepared by one thread, played by several,
 * taken back in order. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include <stddef.h>
#include <stdint.h>
#include "sim/cell.h"

struct sim_pool;

/* threads workers (at least 1), each with its own data path on backend; NULL backend: no workers
 * and play is skipped. NULL with err on failure. */
struct sim_pool *sim_pool_open(const struct sim_plan *plan, const struct sim_backend_ops *backend,
                               uint32_t threads, char *err, size_t err_len);

/* The cell that the next submit hands over, or NULL while the ring is full: then take first. */
struct sim_cell *sim_pool_next(struct sim_pool *pool);
void sim_pool_submit(struct sim_pool *pool);

/* Wait for the oldest submitted cell; NULL when none is in flight. The cell stays valid until
 * sim_pool_release. -1 in *status with err when its data path failed. */
struct sim_cell *sim_pool_take(struct sim_pool *pool, int *status, char *err, size_t err_len);
void sim_pool_release(struct sim_pool *pool);

void sim_pool_close(struct sim_pool *pool); /* Stops the workers; NULL is fine. */

#endif
