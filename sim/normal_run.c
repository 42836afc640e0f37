/* sim/normal_run.c - one run of a normal-mode kernel: its memory, and which model plays it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/normal_model.h"

int normal_run_open(struct normal_run *run, bool rows, char *err, size_t err_len)
{
    const struct normal_plan *plan = run->plan;
    const size_t ranks = plan->ranks, blocks = ranks * plan->channels;
    assert(ranks > 0 && plan->channels > 0 && run->ranks == NULL);
    run->ranks = (struct normal_rank *)calloc(ranks, sizeof *run->ranks);
    run->uses[0] =
        (struct normal_server *)calloc(NORMAL_USES * ranks + 2 * blocks, sizeof *run->uses[0]);
    bool whole = run->ranks && run->uses[0];
    if (whole) {
        for (size_t u = 1; u < NORMAL_USES; u++) run->uses[u] = run->uses[0] + u * ranks;
        run->blocks[0] = run->uses[0] + NORMAL_USES * ranks;
        run->blocks[1] = run->blocks[0] + blocks;
    }
    struct normal_rows *logs[2] = {&run->rows0, &run->rows1};
    const uint64_t counts[2] = {
        plan->level0.first[(size_t)plan->ranks * plan->level0.destinations * plan->channels],
        plan->nodes > 1 ? plan->level1.first[blocks * ranks] : 0};
    for (int level = 0; rows && level < 2; level++) {
        logs[level]->depart_ps = (uint64_t *)calloc(counts[level] + 1, sizeof(uint64_t));
        logs[level]->land_ps = (uint64_t *)calloc(counts[level] + 1, sizeof(uint64_t));
        whole = whole && logs[level]->depart_ps && logs[level]->land_ps;
    }
    if (whole) return 0;
    snprintf(err, err_len, "normal mode: no memory for %u ranks", plan->ranks);
    return -1;
}

void normal_run_close(struct normal_run *run)
{
    free(run->ranks);
    free(run->uses[0]);
    free(run->rows0.depart_ps);
    free(run->rows0.land_ps);
    free(run->rows1.depart_ps);
    free(run->rows1.land_ps);
    run->ranks = NULL;
    run->uses[0] = NULL;
    run->rows0 = run->rows1 = (struct normal_rows){NULL, NULL};
}

int normal_run_kernel(const struct normal_run *run, char *err, size_t err_len)
{
    assert(run->ranks != NULL && run->nvl_chunk > 0 && run->nvl_slots >= run->nvl_chunk);
    sim_engine_reset(run->engine);
    if (run->network) fabric_network_reset(run->network, run->begin_ps);
    for (uint32_t r = 0; r < run->plan->ranks; r++) {
        run->ranks[r].end_ps = run->begin_ps;
        run->ranks[r].sent_ps = run->begin_ps;
        run->ranks[r].awaited = r;
    }
    if (run->plan->nodes == 1) return normal_node_run(run, err, err_len);
    return run->combine ? normal_rail_combine_run(run, err, err_len)
                        : normal_rail_dispatch_run(run, err, err_len);
}
