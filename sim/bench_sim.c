/* sim/bench_sim.c - layers, steps and cells, timed. */
#include "sim/bench_sim.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/exchange.h"
#include "sim/generator.h"
#include "sim/run.h"

enum { HIDDEN = 7168, TOPK = 8, EXPERTS = 256, NODE = 8, LAYER_TOKENS = 128, ROUNDS_MAX = 64 };
enum { RANKS_MAX = 1024, THREADS_MAX = 64 };
static const uint32_t cell_ranks[] = {32, 16,
                                      8}; /* The longest first, so that threads end alike. */
static const uint32_t cell_sms[] = {4, 8, 12, 16, 20, 24};
static const uint32_t cell_tokens[] = {32768, 16384, 8192, 4096, 3072, 2048, 1536, 1024,
                                       768,   512,   384,  256,  192,  128,  96,   64,
                                       48,    32,    16,   8,    4,    2,    1};
enum {
    RANK_COUNTS = sizeof cell_ranks / sizeof cell_ranks[0],
    SM_COUNTS = sizeof cell_sms / sizeof cell_sms[0],
    TOKEN_COUNTS = sizeof cell_tokens / sizeof cell_tokens[0]
};
_Static_assert((int)RANK_COUNTS *SM_COUNTS *TOKEN_COUNTS == (int)SIM_BENCH_CELLS, "all cells");

static uint64_t ns_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint64_t median(uint64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* What every exchange here starts from. */
struct bench {
    struct fabric_machine machine;
    struct sim_engine *engine;
    uint64_t token_start[RANKS_MAX + 1], start_ps[RANKS_MAX];
    int64_t *choices;
    struct ref_routing routing;
};

static struct bench *bench_open(uint32_t ranks, uint32_t tokens, char *err, size_t err_len)
{
    struct bench *bench = (struct bench *)calloc(1, sizeof *bench);
    assert(ranks <= RANKS_MAX);
    if (bench) bench->choices = (int64_t *)malloc((size_t)ranks * tokens * TOPK * sizeof(int64_t));
    if (!bench || !bench->choices) {
        snprintf(err, err_len, "bench sim: out of memory");
        goto close_bench;
    }
    bench->engine = sim_engine_open(1 << 16, err, err_len);
    if (bench->engine && fabric_machine_load("h100-hgx", &bench->machine, err, err_len) == 0)
        return bench;
close_bench:
    if (bench) {
        sim_engine_close(bench->engine);
        free(bench->choices);
    }
    free(bench);
    return NULL;
}

static void bench_close(struct bench *bench)
{
    if (!bench) return;
    sim_engine_close(bench->engine);
    free(bench->choices);
    free(bench);
}

/* Uniform on one node; on more, as the library was measured: the best node limit. */
static void draw(struct bench *bench, uint32_t ranks, uint32_t tokens, uint32_t layer, bool limited)
{
    const uint32_t nodes = (ranks + NODE - 1) / NODE;
    const struct sim_generator generator = {.kind = limited && nodes > 1 ? SIM_GENERATOR_LIMITED
                                                                         : SIM_GENERATOR_UNIFORM,
                                            .parameter = nodes < 4 ? nodes : 4,
                                            .experts = EXPERTS,
                                            .topk = TOPK,
                                            .nodes = nodes,
                                            .seed = 1};
    for (uint32_t r = 0; r < ranks; r++) {
        bench->token_start[r + 1] = bench->token_start[r] + tokens;
        sim_generator_draw(&generator, 0, layer, r, tokens,
                           bench->choices + bench->token_start[r] * TOPK);
    }
    bench->routing = (struct ref_routing){.ranks = ranks,
                                          .experts = EXPERTS,
                                          .topk = TOPK,
                                          .token_start = bench->token_start,
                                          .topk_idx = bench->choices};
}

static struct sim_exchange exchange_of(const struct bench *bench, const struct sim_traffic *traffic,
                                       enum sim_direction direction, uint32_t sms)
{
    return (struct sim_exchange){.machine = &bench->machine,
                                 .traffic = traffic,
                                 .direction = direction,
                                 .hidden = HIDDEN,
                                 .sms = sms,
                                 .qp_depth = 2 * (LAYER_TOKENS + 1),
                                 .start_ps = bench->start_ps};
}

/* --- a low-latency layer --------------------------------------------------------------------- */

static int play_layer(struct bench *bench, struct sim_timing *timing, uint64_t *spent_ns,
                      struct sim_bench_layer *counts, char *err, size_t err_len)
{
    const struct sim_traffic_shape shape = {
        .mode = SIM_MODE_LL,
        .ranks_per_node = NODE,
        .nvlink = true,
        .row_bytes = {16 + HIDDEN + HIDDEN / 128 * 4, UINT64_C(2) * HIDDEN},
        .formula_bytes = {HIDDEN + HIDDEN / 128 * 4, UINT64_C(2) * HIDDEN}};
    struct sim_traffic traffic;
    int status = 0;
    const uint64_t start_ns = ns_of(CLOCK_THREAD_CPUTIME_ID);
    if (sim_traffic_count(&bench->routing, &shape, &traffic, err, err_len) != 0) return -1;
    counts->messages = counts->events = 0;
    for (int d = 0; d < SIM_DIRECTIONS && status == 0; d++) {
        const struct sim_exchange exchange = exchange_of(bench, &traffic, (enum sim_direction)d, 0);
        status = sim_ll_time(bench->engine, &exchange, timing, err, err_len);
        counts->messages += traffic.message_count[d];
        counts->events += timing->events;
    }
    *spent_ns = ns_of(CLOCK_THREAD_CPUTIME_ID) - start_ns;
    sim_traffic_free(&traffic);
    return status;
}

int sim_bench_layer(uint32_t ranks, uint32_t rounds, struct sim_bench_layer *bench, char *err,
                    size_t err_len)
{
    uint64_t spent_ns[ROUNDS_MAX];
    struct sim_timing timing = {.ranks = 0};
    struct bench *own = bench_open(ranks, LAYER_TOKENS, err, err_len);
    int status = own ? 0 : -1;
    assert(rounds > 0 && rounds <= ROUNDS_MAX);
    if (own)
        status =
            sim_timing_open(&timing, ranks, (uint64_t)ranks * LAYER_TOKENS * TOPK, err, err_len);
    for (uint32_t i = 0; i < rounds && status == 0; i++) {
        draw(own, ranks, LAYER_TOKENS, i, false);
        status = play_layer(own, &timing, &spent_ns[i], bench, err, err_len);
    }
    if (status == 0) bench->spent_ns = median(spent_ns, rounds);
    sim_timing_close(&timing);
    bench_close(own);
    return status;
}

/* --- a decode step --------------------------------------------------------------------------- */

static int play_step(const struct sim_plan *plan, char *err, size_t err_len)
{
    struct sim_summary summary = {.steps = 0};
    struct sim_source *source = sim_source_open(&plan->settings, err, err_len);
    int status = -1;
    if (source && sim_source_start(source, plan, err, err_len) == 0 &&
        sim_summary_open(plan, &summary, err, err_len) == 0) {
        const struct sim_run run = {.plan = plan, .source = source};
        status = sim_run_play(&run, &summary, err, err_len);
    }
    sim_summary_close(&summary);
    sim_source_close(source);
    return status;
}

uint64_t sim_bench_step(uint32_t ranks, uint32_t layers, uint32_t rounds, char *err, size_t err_len)
{
    struct sim_settings settings;
    uint64_t spent_ns[ROUNDS_MAX];
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);
    int status = plan ? 0 : -1;
    assert(rounds > 0 && rounds <= ROUNDS_MAX && layers <= SIM_LAYERS_MAX);
    if (!plan) snprintf(err, err_len, "bench sim: out of memory");
    sim_settings_default(&settings);
    snprintf(settings.machine, sizeof settings.machine, "h100-hgx");
    snprintf(settings.mode, sizeof settings.mode, "ll");
    settings.ep = ranks;
    settings.threads = 1;
    if (plan) status = sim_plan_make(&settings, 0, 0, plan, err, err_len);
    if (status == 0) {
        plan->layer_count = layers; /* Of a deeper model than the preset's. */
        for (uint32_t l = 0; l < layers; l++) plan->layers[l] = l;
    }
    for (uint32_t i = 0; i < rounds && status == 0; i++) {
        const uint64_t start_ns = ns_of(CLOCK_THREAD_CPUTIME_ID);
        status = play_step(plan, err, err_len);
        spent_ns[i] = ns_of(CLOCK_THREAD_CPUTIME_ID) - start_ns;
    }
    free(plan);
    return status == 0 ? median(spent_ns, rounds) : 0;
}

/* --- cells of normal mode -------------------------------------------------------------------- */

struct job { /* Shared by the threads; next counts (ranks, tokens), the longest first. */
    atomic_uint next;
    atomic_int failed;
    atomic_uint_fast64_t events;
    char *err;
    size_t err_len;
};

/* Both directions at every SM count, of one routing. */
static int play_cells(struct bench *bench, uint32_t ranks, uint32_t tokens, uint64_t *events,
                      char *err, size_t err_len)
{
    struct sim_timing timing = {.ranks = 0};
    int status = sim_timing_open(&timing, ranks, 0, err, err_len);
    draw(bench, ranks, tokens, 0, true);
    const struct sim_traffic traffic = {
        .mode = SIM_MODE_NORMAL,
        .ranks = ranks,
        .ranks_per_node = NODE,
        .nvlink = true,
        .nodes = ranks / NODE,
        .experts = EXPERTS,
        .topk = TOPK,
        .token_start = bench->token_start,
        .topk_idx = bench->choices,
        .row_bytes = {HIDDEN + HIDDEN / 128 * 4 + 4, UINT64_C(2) * HIDDEN + 4 * TOPK + 4}};
    for (uint32_t s = 0; s < SM_COUNTS; s++)
        for (int d = 0; d < SIM_DIRECTIONS && status == 0; d++) {
            const struct sim_exchange exchange =
                exchange_of(bench, &traffic, (enum sim_direction)d, cell_sms[s]);
            status = sim_normal_time(bench->engine, &exchange, &timing, err, err_len);
            *events += timing.events;
        }
    sim_timing_close(&timing);
    return status;
}

static void *work(void *argument)
{
    struct job *job = (struct job *)argument;
    char err[256] = "";
    struct bench *bench = bench_open(cell_ranks[0], cell_tokens[0], err, sizeof err);
    uint64_t events = 0;
    int status = bench ? 0 : -1;
    while (status == 0 && !atomic_load(&job->failed)) {
        const uint32_t i = atomic_fetch_add(&job->next, 1);
        if (i >= (uint32_t)(RANK_COUNTS * TOKEN_COUNTS)) break;
        status = play_cells(bench, cell_ranks[i % RANK_COUNTS], cell_tokens[i / RANK_COUNTS],
                            &events, err, sizeof err);
    }
    if (status != 0 && atomic_exchange(&job->failed, 1) == 0)
        snprintf(job->err, job->err_len, "%s", err);
    atomic_fetch_add(&job->events, events);
    bench_close(bench);
    return NULL;
}

uint64_t sim_bench_cells(uint32_t threads, uint64_t *cpu_ns, uint64_t *events, char *err,
                         size_t err_len)
{
    pthread_t thread[THREADS_MAX];
    struct job job = {.err = err, .err_len = err_len};
    uint32_t started = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t start_ns = ns_of(CLOCK_MONOTONIC);
    const uint64_t start_cpu_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID);
    if (threads == 0) threads = cores > 0 ? (uint32_t)cores : 1;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    while (started + 1 < threads && pthread_create(&thread[started], NULL, work, &job) == 0)
        started++;
    (void)work(&job);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    *events = atomic_load(&job.events);
    *cpu_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID) - start_cpu_ns;
    return atomic_load(&job.failed) ? 0 : ns_of(CLOCK_MONOTONIC) - start_ns;
}
