/* sim/run.c - the loop over steps and layers. */
#include "sim/run.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/backends.h"
#include "sim/bytes.h"
#include "sim/budget.h"
#include "sim/pool.h"
#include "sim/record.h"
#include "sim/threads.h"

struct loop {
    const struct sim_run *run;
    struct sim_summary *summary;
    struct sim_pool *pool;
    struct sim_engine *engine;
    struct sim_pair_bytes *pairs;     /* [SIM_DIRECTIONS][ranks * ranks] of the cell being taken. */
    uint64_t ready_ps[SIM_RANKS_MAX]; /* When each rank ended the last prepared layer. */
    uint64_t prepared, taken;         /* Cells. */
    uint64_t step_start_ps;           /* Of the step being taken. */
    uint64_t host_room;               /* Bytes free before the run. */
    uint32_t in_flight;               /* Layers whose bytes are moved at the same time. */
};

static uint64_t latest(const uint64_t *times_ps, uint32_t count)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++)
        if (times_ps[i] > most) most = times_ps[i];
    return most;
}

static enum sim_detail detail_of(const struct sim_plan *plan)
{
    if (strcmp(plan->settings.detail, "summary") == 0) return SIM_DETAIL_SUMMARY;
    return strcmp(plan->settings.detail, "message") == 0 ? SIM_DETAIL_MESSAGE : SIM_DETAIL_SPAN;
}

/* The step's own row, once its last layer is in. */
static int end_step(struct loop *loop, const struct sim_cell *cell, char *err, size_t err_len)
{
    const struct sim_plan *plan = loop->run->plan;
    const struct sim_step_record *whole = loop->run->step;
    const uint64_t end_ps = whole ? sim_step_now_ps(whole->step)
                                  : latest(cell->timing[SIM_COMBINE].end_ps, plan->ranks);
    const struct trace_step row = {cell->step, loop->step_start_ps, end_ps,
                                   plan->token_start[plan->ranks]};
    assert(end_ps >= loop->step_start_ps);
    loop->step_start_ps = end_ps;
    if (loop->run->db == NULL) return 0;
    if (trace_db_step(loop->run->db, &row, err, err_len) != 0) return -1;
    return trace_db_step_done(loop->run->db, cell->step, err, err_len);
}

/* Where its time went, if somebody asked. */
static int explain_cell(const struct loop *loop, const struct sim_cell *cell, uint32_t layer_index,
                        char *err, size_t err_len)
{
    const struct sim_run *run = loop->run;
    if (run->breakdown == NULL) return 0;
    if (sim_breakdown_add(run->breakdown, cell, layer_index, err, err_len) != 0) return -1;
    if (run->db == NULL) return 0;
    return sim_record_breakdown(run->db, cell, run->breakdown, err, err_len);
}

/* Wait for the oldest cell in flight; count it, log it, give its memory back. */
static int take_cell(struct loop *loop, char *err, size_t err_len)
{
    const struct sim_run *run = loop->run;
    const struct sim_plan *plan = run->plan;
    const size_t pair_count = (size_t)plan->ranks * plan->ranks;
    const uint32_t layer_index = (uint32_t)(loop->taken % plan->layer_count);
    int status = 0;
    char why[512] = "";
    struct sim_cell *cell = sim_pool_take(loop->pool, &status, why, sizeof why);

    assert(cell != NULL);
    assert(cell->layer == plan->layers[layer_index] && loop->taken < loop->prepared);
    if (status != 0) {
        snprintf(err, err_len, "step %" PRIu64 ", layer %" PRIu32 ": %s", cell->step, cell->layer,
                 why);
        return -1;
    }
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        sim_bytes_pairs(&cell->traffic, (enum sim_direction)d,
                        loop->pairs + (size_t)d * pair_count);
    sim_summary_add(loop->summary, cell, layer_index, loop->pairs);
    if (run->db != NULL &&
        sim_record_cell(run->db, cell, detail_of(plan), loop->pairs, err, err_len) != 0)
        return -1;
    if (explain_cell(loop, cell, layer_index, err, err_len) != 0) return -1;
    if (run->step != NULL && sim_step_record_cell(run->step, cell, layer_index, err, err_len) != 0)
        return -1;
    if (layer_index + 1 == plan->layer_count && end_step(loop, cell, err, err_len) != 0) return -1;
    loop->taken++;
    if (run->progress != NULL)
        run->progress(run->progress_context, loop->taken,
                      (uint64_t)plan->layer_count * plan->settings.steps);
    sim_pool_release(loop->pool);
    return 0;
}

/* Is there room for layers like this one, as it was counted? */
static int check_memory(const struct loop *loop, const struct sim_cell *cell, char *err,
                        size_t err_len)
{
    if (loop->run->backend == NULL) return 0;
    const struct sim_budget_rows rows = sim_budget_rows_counted(&cell->traffic);
    const struct sim_budget_need need = sim_budget_need(loop->run->plan, &rows);
    return sim_budget_fits(&need, loop->in_flight, loop->host_room, err, err_len);
}

static int play_all(struct loop *loop, char *err, size_t err_len)
{
    const struct sim_plan *plan = loop->run->plan;
    for (uint64_t step = 0; step < plan->settings.steps; step++) {
        for (uint32_t l = 0; l < plan->layer_count; l++) {
            struct sim_cell *cell = sim_pool_next(loop->pool);
            if (cell == NULL) {
                if (take_cell(loop, err, err_len) != 0) return -1;
                cell = sim_pool_next(loop->pool);
                assert(cell != NULL);
            }
            const int status = sim_cell_prepare(cell, loop->run->source, step, plan->layers[l],
                                                loop->engine, loop->ready_ps, err, err_len);
            if (status != 0) return status;
            if (check_memory(loop, cell, err, err_len) != 0) return -1;
            sim_pool_submit(loop->pool);
            loop->prepared++;
        }
        sim_source_advance(loop->run->source);
    }
    while (loop->taken < loop->prepared)
        if (take_cell(loop, err, err_len) != 0) return -1;
    return 0;
}

/* As many as were asked for; else a core each, fewer where memory is short. */
static int choose_in_flight(struct loop *loop, char *err, size_t err_len)
{
    const struct sim_plan *plan = loop->run->plan;
    uint64_t gpu_room = UINT64_MAX;

    loop->host_room = sim_budget_host_room(&plan->settings);
    loop->in_flight = loop->run->threads > 0 ? loop->run->threads : plan->settings.threads;
    if (loop->in_flight > 0) return 0;
    loop->in_flight = sim_threads_count(0, SIM_THREADS_MAX);
    assert(loop->in_flight >= 1);
    if (loop->run->backend == NULL) return 0;
    if (loop->run->backend == sim_backend_cuda() &&
        sim_backend_cuda_room(&plan->settings, &gpu_room, err, err_len) != 0)
        return -1;
    const struct sim_budget_rows rows = sim_budget_rows_most(plan);
    const struct sim_budget_need most = sim_budget_need(plan, &rows);
    loop->in_flight = sim_budget_in_flight(&most, loop->in_flight, loop->host_room, gpu_room);
    return 0;
}

int sim_run_play(const struct sim_run *run, struct sim_summary *summary, char *err, size_t err_len)
{
    const struct sim_plan *plan = run->plan;
    struct loop *loop = (struct loop *)calloc(1, sizeof *loop);
    int status = -1;

    assert(plan->layer_count > 0 && plan->ranks <= SIM_RANKS_MAX);
    if (loop == NULL) {
        snprintf(err, err_len, "run: out of memory");
        return -1;
    }
    loop->run = run;
    loop->summary = summary;
    loop->pairs = (struct sim_pair_bytes *)calloc(
        (size_t)SIM_DIRECTIONS * plan->ranks * plan->ranks, sizeof *loop->pairs);
    if (loop->pairs == NULL) {
        snprintf(err, err_len, "run: out of memory");
        goto free_loop;
    }
    loop->engine = sim_engine_open(65536, err, err_len);
    if (loop->engine == NULL) goto free_loop;
    if (choose_in_flight(loop, err, err_len) != 0) goto close_engine;
    loop->pool = sim_pool_open(plan, run->backend, loop->in_flight, err, err_len);
    if (loop->pool == NULL) goto close_engine;
    status = play_all(loop, err, err_len);
    sim_pool_close(loop->pool);
close_engine:
    sim_engine_close(loop->engine);
free_loop:
    free(loop->pairs);
    free(loop);
    return status;
}
