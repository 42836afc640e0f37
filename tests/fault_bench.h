/* tests/fault_bench.h - one layer of a small model, played whole or with one fault on a message
 * picked from its traffic, on any backend. */
#ifndef TESTS_FAULT_BENCH_H
#define TESTS_FAULT_BENCH_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cell.h"
#include "tests/support.h"

struct fault_bench {
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_cell *cell;
    struct sim_engine *engine;
    struct sim_datapath *path;
};

/* ep ranks of a 16-expert top-2 model, 12 tokens each. place NULL: the default. */
static inline struct fault_bench fault_bench_open(const struct sim_backend_ops *backend,
                                                  const struct sim_backend_place *place,
                                                  const char *mode, const char *machine,
                                                  const char *ep)
{
    struct fault_bench bench;
    char err[512] = "";
    struct sim_settings settings;
    sim_settings_default(&settings);
    const char *const options[][2] = {
        {"model", "toy-16x2"}, {"mode", mode}, {"ep", ep}, {"machine", machine}, {"tokens", "12"}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        ck_assert_int_eq(sim_settings_set(&settings, options[i][0], options[i][1], err, sizeof err),
                         0);
    bench.plan = (struct sim_plan *)malloc(sizeof *bench.plan);
    ck_assert_msg(sim_plan_make(&settings, 0, 0, bench.plan, err, sizeof err) == 0, "%s", err);
    bench.source = sim_source_open(&settings, err, sizeof err);
    ck_assert_int_eq(sim_source_start(bench.source, bench.plan, err, sizeof err), 0);
    bench.cell = sim_cell_open(bench.plan, err, sizeof err);
    bench.engine = sim_engine_open(1024, err, sizeof err);
    bench.path = sim_datapath_open(backend, place, err, sizeof err);
    ck_assert_msg(bench.path != NULL, "%s", err);
    ck_assert(bench.cell != NULL && bench.engine != NULL);
    return bench;
}

static inline void fault_bench_close(struct fault_bench *bench)
{
    sim_datapath_close(bench->path);
    sim_engine_close(bench->engine);
    sim_cell_close(bench->cell);
    sim_source_close(bench->source);
    free(bench->plan);
}

/* The list by name has as many rows of every stage as the checks count. */
static inline void fault_bench_listed(const struct sim_wrong_rows *wrong,
                                      const uint64_t mismatches[SIM_STAGES])
{
    uint64_t listed[SIM_STAGES] = {0}, all = 0;
    for (uint32_t i = 0; i < sim_wrong_rows_listed(wrong); i++) listed[wrong->rows[i].stage]++;
    for (int s = 0; s < SIM_STAGES; s++) {
        ck_assert_uint_eq(listed[s], mismatches[s]);
        all += mismatches[s];
    }
    ck_assert_uint_eq(wrong->count, all);
    ck_assert_int_eq(wrong->digest == 0, all == 0);
}

/* Play the layer with the plan's scenario; the number of rows that differ, per stage. */
static inline void fault_bench_play(struct fault_bench *bench, uint64_t mismatches[SIM_STAGES])
{
    char err[512] = "";
    uint64_t ready_ps[SIM_RANKS_MAX] = {0};
    const uint32_t ranks = bench->plan->ranks;
    ck_assert_msg(sim_cell_prepare(bench->cell, bench->source, 0, 0, bench->engine, ready_ps, err,
                                   sizeof err) == 0,
                  "%s", err);
    ck_assert_msg(sim_cell_play(bench->cell, bench->path, err, sizeof err) == 0, "%s", err);
    memset(mismatches, 0, SIM_STAGES * sizeof mismatches[0]);
    for (uint32_t i = 0; i < SIM_STAGES * ranks; i++)
        mismatches[bench->cell->checks[i].stage] += bench->cell->checks[i].mismatch_count;
    fault_bench_listed(bench->cell->wrong, mismatches);
}

/* The first message of the direction and hop between two different ranks that has, between the
 * same two, a next one of another token; *other is that one. */
static inline struct sim_message fault_bench_pick(const struct fault_bench *bench,
                                                  enum sim_direction direction, uint32_t hop,
                                                  struct sim_message *other)
{
    const struct sim_traffic *traffic = &bench->cell->traffic;
    const struct sim_message *messages = traffic->messages[direction];
    for (uint64_t m = 0; m < traffic->message_count[direction]; m++) {
        const struct sim_message *next = NULL;
        if (messages[m].hop != hop || messages[m].src_rank == messages[m].dst_rank) continue;
        for (uint64_t n = 0; n < traffic->message_count[direction]; n++) {
            const struct sim_message *it = &messages[n];
            if (it->hop == hop && it->src_rank == messages[m].src_rank &&
                it->dst_rank == messages[m].dst_rank && it->dst_row > messages[m].dst_row &&
                (next == NULL || it->dst_row < next->dst_row))
                next = it;
        }
        if (next == NULL ||
            (next->token == messages[m].token && next->home_rank == messages[m].home_rank))
            continue;
        *other = *next;
        return messages[m];
    }
    ck_abort_msg("no two messages between the same two ranks");
}

static inline struct sim_fault_target fault_bench_target(const struct sim_message *message)
{
    const bool outward = message->home_rank == message->src_rank;
    return (struct sim_fault_target){message->home_rank, message->token, message->expert,
                                     message->expert >= 0 ? -1
                                     : outward            ? (int32_t)message->dst_rank
                                                          : (int32_t)message->src_rank};
}

/* Every hop of every mode. */
static const struct {
    const char *mode, *machine, *ep;
    enum sim_direction direction;
    uint32_t hop;
} FAULT_PLACES[] = {
    {"ll", "h200-hgx", "2", SIM_DISPATCH, 0},     {"ll", "h200-hgx", "2", SIM_COMBINE, 0},
    {"normal", "h200-hgx", "2", SIM_DISPATCH, 0}, {"normal", "h200-hgx", "2", SIM_COMBINE, 0},
    {"normal", "toy-2x4", "8", SIM_DISPATCH, 0},  {"normal", "toy-2x4", "8", SIM_DISPATCH, 1},
    {"normal", "toy-2x4", "8", SIM_COMBINE, 0},   {"normal", "toy-2x4", "8", SIM_COMBINE, 1},
};

enum { FAULT_PLACE_COUNT = sizeof FAULT_PLACES / sizeof FAULT_PLACES[0] };

#endif
