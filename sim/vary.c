/* sim/vary.c - changes an exchange as a question says, and times it. */
#include "sim/vary.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/threads.h"

enum { RANKS_MAX = 1024, ERROR_BYTES = 256 };

struct worker {
    struct sim_vary_bench *bench;
    struct sim_engine *engine;
    struct sim_timing timing;
    struct fabric_machine machine;
    uint64_t start_ps[RANKS_MAX];
};

struct sim_vary_bench {
    uint32_t threads;
    struct worker *workers[SIM_THREADS_MAX];
    /* The call's. */
    const struct sim_exchange *exchange;
    const struct sim_variation *questions;
    size_t count;
    uint64_t *took_ps;
    atomic_size_t next;
    atomic_int failed;
    char err[ERROR_BYTES];
};

struct sim_vary_bench *sim_vary_open(uint32_t threads, char *err, size_t err_len)
{
    struct sim_vary_bench *bench = (struct sim_vary_bench *)calloc(1, sizeof *bench);
    if (bench == NULL) goto no_memory;
    bench->threads = sim_threads_count(threads, SIM_THREADS_MAX);
    for (uint32_t t = 0; t < bench->threads; t++) {
        struct worker *worker = (struct worker *)calloc(1, sizeof *worker);
        bench->workers[t] = worker;
        if (worker == NULL) goto no_memory;
        worker->bench = bench;
        worker->engine = sim_engine_open(1024, err, err_len);
        if (worker->engine == NULL) goto close_bench;
    }
    return bench;
no_memory:
    snprintf(err, err_len, "counterfactual times: out of memory");
close_bench:
    sim_vary_close(bench);
    return NULL;
}

void sim_vary_close(struct sim_vary_bench *bench)
{
    if (bench == NULL) return;
    for (uint32_t t = 0; t < bench->threads && bench->workers[t] != NULL; t++) {
        sim_engine_close(bench->workers[t]->engine);
        sim_timing_close(&bench->workers[t]->timing);
        free(bench->workers[t]);
    }
    free(bench);
}

/* Start times without their differences, or with more of them. */
static void change_starts(struct worker *worker, const struct sim_exchange *exchange,
                          const struct sim_variation *question)
{
    const uint32_t ranks = exchange->traffic->ranks;
    uint64_t first_ps = UINT64_MAX;
    for (uint32_t r = 0; r < ranks; r++)
        if (exchange->start_ps[r] < first_ps) first_ps = exchange->start_ps[r];
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t late_ps = exchange->start_ps[r] - first_ps;
        worker->start_ps[r] = first_ps + late_ps + (question->more_skew ? late_ps / 10 : 0);
        if (question->free_parts & 1u << SIM_PART_WAIT) worker->start_ps[r] = first_ps;
    }
}

/* The question's exchange, borrowing from the worker. */
static struct sim_exchange ask(struct worker *worker, const struct sim_exchange *exchange,
                               const struct sim_variation *question)
{
    struct sim_exchange asked = *exchange;
    const char *mode = exchange->traffic->mode == SIM_MODE_LL ? "ll" : "normal";
    const char *key = NULL;
    worker->machine = *exchange->machine;
    for (int part = 0; part < SIM_PARTS; part++)
        if (question->free_parts & 1u << part) sim_part_free(&worker->machine, (enum sim_part)part);
    if (question->scale > 1)
        sim_part_scale(&worker->machine, question->scale_part, question->scaled, question->scale);
    if (question->number > 0) {
        uint64_t *value = sim_part_number(&worker->machine, mode, question->number - 1, &key);
        assert(value != NULL);
        *value = sim_part_worse(key, *value);
    }
    change_starts(worker, exchange, question);
    asked.machine = &worker->machine;
    asked.start_ps = worker->start_ps;
    if (question->sms > 0) asked.sms = question->sms;
    if (question->qp_depth > 0) asked.qp_depth = question->qp_depth;
    if (question->free_parts & 1u << SIM_PART_QP) asked.qp_depth = 0;
    /* A fabric of free NICs has no ports whose rate it could have. */
    if (question->free_parts & (1u << SIM_PART_FABRIC | 1u << SIM_PART_NIC)) asked.network = NULL;
    return asked;
}

static int answer(struct worker *worker, size_t index, char *err, size_t err_len)
{
    const struct sim_vary_bench *bench = worker->bench;
    const struct sim_traffic *traffic = bench->exchange->traffic;
    const uint64_t messages =
        traffic->mode == SIM_MODE_LL ? traffic->message_count[bench->exchange->direction] : 0;
    const struct sim_exchange asked = ask(worker, bench->exchange, &bench->questions[index]);
    struct sim_timing *timing = &worker->timing;

    if (timing->ranks != traffic->ranks || timing->message_max < messages ||
        (messages == 0 && timing->message_max > 0)) {
        sim_timing_close(timing);
        if (sim_timing_open(timing, traffic->ranks, messages + messages / 8, err, err_len) != 0)
            return -1;
    }
    if (sim_exchange_time(worker->engine, &asked, timing, err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < traffic->ranks; r++)
        bench->took_ps[index * traffic->ranks + r] = sim_timing_took_ps(timing, &asked, r);
    return 0;
}

static void work(void *context, uint32_t thread)
{
    struct sim_vary_bench *bench = (struct sim_vary_bench *)context;
    char err[ERROR_BYTES] = "";
    while (!atomic_load(&bench->failed)) {
        const size_t i = atomic_fetch_add(&bench->next, 1);
        if (i >= bench->count) break;
        if (answer(bench->workers[thread], i, err, sizeof err) == 0) continue;
        if (atomic_exchange(&bench->failed, 1) == 0) memcpy(bench->err, err, sizeof err);
    }
}

int sim_vary_times(struct sim_vary_bench *bench, const struct sim_exchange *exchange,
                   const struct sim_variation *questions, size_t count, uint64_t *took_ps,
                   char *err, size_t err_len)
{
    assert(exchange->traffic->ranks <= RANKS_MAX && !exchange->best_chunk);
    bench->exchange = exchange;
    bench->questions = questions;
    bench->count = count;
    bench->took_ps = took_ps;
    atomic_store(&bench->next, 0);
    atomic_store(&bench->failed, 0);
    const uint32_t idle = count > 0 && count < bench->threads ? (uint32_t)count : bench->threads;
    sim_threads_run(idle, work, bench);
    if (!atomic_load(&bench->failed)) return 0;
    snprintf(err, err_len, "%s", bench->err);
    return -1;
}
