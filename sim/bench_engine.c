/* sim/bench_engine.c - the hold model and the all-to-all, timed. */
#include "sim/bench_engine.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "sim/engine.h"

enum { INCREMENTS = 65536, INCREMENT_BITS = 20, BATCH = 16384 };

/* Of this thread: the loop neither waits nor calls the system, so on an idle core this is the
 * wall's time, and on a shared one it leaves out what other programs took. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* splitmix64: any fixed sequence with even bits does. */
static uint32_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> (64 - INCREMENT_BITS));
}

static void hold(struct sim_engine *engine, const uint32_t *increments, uint64_t from)
{
    struct sim_event event;
    for (uint64_t i = from; i < from + BATCH; i++) {
        const int popped = sim_engine_pop(engine, &event);
        assert(popped);
        sim_engine_schedule(engine, event.time_ps + increments[i % INCREMENTS], event.kind,
                            event.target, event.payload);
    }
}

double sim_bench_engine_hold(uint64_t pending, uint32_t rounds, uint64_t round_ns, char *err,
                             size_t err_len)
{
    assert(pending > 0 && rounds > 0);
    double best = -1;
    uint32_t *increments = (uint32_t *)malloc(INCREMENTS * sizeof *increments);
    struct sim_engine *engine = sim_engine_open(pending, err, err_len);
    uint64_t state = pending;
    if (!engine || !increments) {
        snprintf(err, err_len, "bench engine: no memory for %llu events",
                 (unsigned long long)pending);
        goto close_engine;
    }
    for (uint32_t i = 0; i < INCREMENTS; i++) increments[i] = draw(&state);
    for (uint64_t i = 0; i < pending; i++)
        sim_engine_schedule(engine, draw(&state), 0, (uint32_t)i, i);

    /* Warm up until every first event was replaced: then times lie as they will stay. */
    uint64_t done = 0;
    while (done < 2 * pending) {
        hold(engine, increments, done);
        done += BATCH;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        const uint64_t start_ns = cpu_ns();
        const uint64_t first = done;
        uint64_t spent_ns = 0;
        while (spent_ns < round_ns || spent_ns == 0) {
            hold(engine, increments, done);
            done += BATCH;
            spent_ns = cpu_ns() - start_ns;
        }
        const double rate = (double)(done - first) * 1e9 / (double)spent_ns;
        if (rate > best) best = rate;
    }
close_engine:
    sim_engine_close(engine);
    free(increments);
    return best;
}

int sim_bench_all_to_all(const struct sim_all_to_all *shape, uint32_t rounds,
                         struct sim_bench_all_to_all *bench, char *err, size_t err_len)
{
    struct sim_engine *engine = sim_engine_open(4 * (size_t)shape->hosts, err, err_len);
    int status = engine ? 0 : -1;
    assert(rounds > 0);
    for (uint32_t round = 0; status == 0 && round < rounds; round++) {
        const uint64_t start_ns = cpu_ns();
        status = sim_all_to_all_run(engine, shape, &bench->result, err, err_len);
        const double spent_s = (double)(cpu_ns() - start_ns) / 1e9;
        if (round == 0 || spent_s < bench->best_s) bench->best_s = spent_s;
    }
    sim_engine_close(engine);
    return status;
}
