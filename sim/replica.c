/* sim/replica.c - from settings to the bytes of one layer. */
#include "sim/replica.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int prepare(const struct sim_settings *settings, uint64_t step, uint32_t layer,
                   struct sim_replica *replica, char *err, size_t err_len)
{
    static uint64_t const START_PS[SIM_RANKS_MAX] = {0};
    uint64_t ready_ps[SIM_RANKS_MAX];
    const struct trace_routing *trace = NULL;

    assert(replica->plan == NULL && replica->cell == NULL); /* Zeroed. */
    replica->source = sim_source_open(settings, err, err_len);
    if (replica->source == NULL) return -1;
    trace = sim_source_trace(replica->source);
    replica->plan = (struct sim_plan *)malloc(sizeof *replica->plan);
    if (replica->plan == NULL) {
        snprintf(err, err_len, "run again: out of memory");
        return -1;
    }
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      replica->plan, err, err_len) != 0 ||
        sim_source_start(replica->source, replica->plan, err, err_len) != 0)
        return -1;
    for (uint64_t s = 0; s < step; s++) sim_source_advance(replica->source);
    replica->engine = sim_engine_open(65536, err, err_len);
    replica->cell = sim_cell_open(replica->plan, err, err_len);
    if (replica->engine == NULL || replica->cell == NULL) return -1;
    memcpy(ready_ps, START_PS, sizeof ready_ps); /* Bytes do not depend on when it started. */
    return sim_cell_prepare(replica->cell, replica->source, step, layer, replica->engine, ready_ps,
                            err, err_len) == 0
               ? 0
               : -1;
}

int sim_replica_open(const struct sim_settings *settings, uint64_t step, uint32_t layer,
                     struct sim_replica *replica, char *err, size_t err_len)
{
    memset(replica, 0, sizeof *replica);
    if (prepare(settings, step, layer, replica, err, err_len) != 0) return -1;
    if (sim_backend_choose(settings, &replica->backend, err, err_len) != 0) return -1;
    if (replica->backend.ops == NULL) {
        snprintf(err, err_len, "the run moved no bytes (--backend none): nothing to look at");
        return -1;
    }
    const struct sim_backend_place place = sim_plan_place(replica->plan, 1);
    replica->path = sim_datapath_open(replica->backend.ops, &place, err, err_len);
    if (replica->path == NULL) return -1;
    if (sim_cell_play(replica->cell, replica->path, err, err_len) != 0) return -1;
    return sim_cell_input(replica->cell, &replica->input, err, err_len);
}

void sim_replica_close(struct sim_replica *replica)
{
    char complaint[SIM_PATH_MAX]; /* What was looked at is here; the rest is another run's. */

    sim_datapath_close(replica->path);
    (void)sim_backend_release(&replica->backend, complaint, sizeof complaint);
    sim_cell_close(replica->cell);
    sim_engine_close(replica->engine);
    sim_source_close(replica->source);
    free(replica->plan);
    memset(replica, 0, sizeof *replica);
}
