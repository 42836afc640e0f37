/* sim/predict_exchange.c - measured rows of dispatch and combine into questions, questions into
 * simulations, on several threads. */
#include "sim/predict_parts.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/exchange.h"
#include "sim/generator.h"
#include "sim/threads.h"
#include "sim/traffic.h"

enum { SEED = 1, DRAWS_MAX = 8, DRAWN_TOKENS = 2048, RANKS_MAX = SIM_PREDICT_RANKS_MAX };
#define HOOK_PAUSE_PS UINT64_C(1000000000) /* Between send and receive halves: all has landed. */

enum part { PART_WHOLE, PART_SEND, PART_RECV, PART_NOTIFY, PARTS };

struct question {
    const struct fabric_machine *machine;
    const struct sim_measured_row *row; /* The first that asks. */
    enum sim_direction direction;
    bool normal, hook;
    uint32_t chunks[2]; /* Normal: 0 until the best is known. */
    uint64_t answer_ps[PARTS];
    uint64_t floor_ps;
};

struct job {
    const struct sim_predict_options *options;
    struct question *questions;
    size_t count;
    atomic_size_t next, done;
    atomic_int failed;
    char *err;
    size_t err_len;
};

/* Of a row that sim_predict_check has let through. */
static void parse_op(const struct sim_measured_row *row, struct question *question, enum part *part)
{
    const char *half = strchr(row->op, '_');
    question->normal = strcmp(row->mode, "normal") == 0;
    question->direction = row->op[0] == 'd' ? SIM_DISPATCH : SIM_COMBINE;
    *part = PART_WHOLE;
    if (half) *part = half[1] == 's' ? PART_SEND : half[1] == 'r' ? PART_RECV : PART_NOTIFY;
    question->hook = *part == PART_SEND || *part == PART_RECV;
    assert(!question->normal || !question->hook);
    assert(question->normal || *part != PART_NOTIFY);
}

static bool same(const struct question *a, const struct question *b)
{
    const struct sim_measured_row *x = a->row, *y = b->row;
    return a->machine == b->machine && a->direction == b->direction && a->normal == b->normal &&
           a->hook == b->hook && x->ep == y->ep && x->nodes == y->nodes &&
           x->gpus_per_node == y->gpus_per_node && x->tokens == y->tokens &&
           x->hidden == y->hidden && x->topk == y->topk && x->experts == y->experts &&
           x->sms == y->sms && x->capacity == y->capacity && strcmp(x->dtype, y->dtype) == 0;
}

/* ---- one simulation ---- */

struct bench {
    struct sim_engine *engine;
    struct ref_routing routing;
    uint64_t token_start[RANKS_MAX + 1];
    uint64_t start_ps[RANKS_MAX], recv_start_ps[RANKS_MAX];
};

/* Bytes of a message. The normal mode of one node was timed with a cached layout: its rows carry
 * no top-k data in dispatch. */
static uint64_t record_bytes(const struct sim_measured_row *row, bool normal, bool dispatch)
{
    const bool fp8 = dispatch && strcmp(row->dtype, "fp8") == 0;
    const uint64_t payload = fp8 ? row->hidden + row->hidden / 128 * 4 : 2 * (uint64_t)row->hidden;
    assert(row->hidden % 128 == 0 && row->gpus_per_node > 0);
    if (!normal) return dispatch ? 16 + payload : payload;
    if (row->ep <= row->gpus_per_node)
        return payload + 4 + (dispatch ? 0 : 4 * (uint64_t)row->topk);
    const uint64_t extra = dispatch ? 8 + 8 * (uint64_t)row->topk : 8 + 4 * (uint64_t)row->topk;
    return (payload + extra + 15) / 16 * 16;
}

static int build(const struct question *question, uint32_t draw, struct bench *bench,
                 struct sim_traffic *traffic, char *err, size_t err_len)
{
    const struct sim_measured_row *row = question->row;
    const uint32_t nodes = (row->ep + row->gpus_per_node - 1) / row->gpus_per_node;
    int64_t *choices =
        (int64_t *)calloc((size_t)row->ep * row->tokens * row->topk + 1, sizeof *choices);
    struct sim_generator generator = {.kind = SIM_GENERATOR_UNIFORM,
                                      .experts = row->experts,
                                      .topk = row->topk,
                                      .nodes = nodes,
                                      .seed = SEED};
    assert(row->ep >= 1 && row->ep <= RANKS_MAX && bench->token_start[0] == 0);
    if (!choices) {
        snprintf(err, err_len, "%s: out of memory", row->id);
        return -1;
    }
    if (question->normal && nodes > 1) {
        generator.kind = SIM_GENERATOR_LIMITED;
        generator.parameter = nodes < 4 ? nodes : 4;
    }
    for (uint32_t r = 0; r < row->ep; r++) {
        bench->token_start[r + 1] = bench->token_start[r] + row->tokens;
        sim_generator_draw(&generator, draw, 0, r, row->tokens,
                           choices + bench->token_start[r] * row->topk);
    }
    bench->routing = (struct ref_routing){.ranks = row->ep,
                                          .experts = row->experts,
                                          .topk = row->topk,
                                          .token_start = bench->token_start,
                                          .topk_idx = choices};
    struct sim_traffic_shape shape = {.mode = question->normal ? SIM_MODE_NORMAL : SIM_MODE_LL,
                                      .ranks_per_node = row->gpus_per_node,
                                      .nvlink = question->machine->nvlink_bytes_per_s > 0};
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        shape.row_bytes[d] = record_bytes(row, question->normal, d == SIM_DISPATCH);
        shape.formula_bytes[d] = shape.row_bytes[d];
    }
    if (question->normal) {
        /* All that its clock needs; ten million messages that nobody moves would take longer to
         * list than to time. */
        *traffic = sim_traffic_outline(&bench->routing, &shape);
        return 0;
    }
    if (sim_traffic_count(&bench->routing, &shape, traffic, err, err_len) == 0) return 0;
    free(choices);
    return -1;
}

/* The mean over ranks, except normal mode on one node: there calls ran back to back, each behind
 * a barrier, so rank 0 saw the slowest rank's time. */
static void add_answers(struct question *question, const struct bench *bench,
                        const struct sim_timing *timing)
{
    const bool slowest = question->normal && timing->ranks <= question->row->gpus_per_node;
    uint64_t sum_ps[PARTS] = {0}, max_ps = 0;
    assert(timing->ranks == question->row->ep && timing->ranks > 0);
    for (uint32_t r = 0; r < timing->ranks; r++) {
        assert(timing->end_ps[r] >= bench->start_ps[r]);
        assert(timing->notify_ps[r] <= timing->end_ps[r] - bench->start_ps[r]);
        sum_ps[PART_WHOLE] += timing->end_ps[r] - bench->start_ps[r];
        if (question->normal) sum_ps[PART_WHOLE] -= timing->notify_ps[r]; /* Timed apart. */
        if (timing->end_ps[r] - bench->start_ps[r] > max_ps)
            max_ps = timing->end_ps[r] - bench->start_ps[r];
        sum_ps[PART_SEND] += timing->send_ps[r];
        sum_ps[PART_RECV] += timing->recv_ps[r];
        sum_ps[PART_NOTIFY] += timing->notify_ps[r];
    }
    if (slowest) sum_ps[PART_WHOLE] = max_ps * timing->ranks;
    for (int p = 0; p < PARTS; p++) question->answer_ps[p] += sum_ps[p] / timing->ranks;
    question->floor_ps += timing->floor_ps;
}

static int run_draw(struct question *question, uint32_t draw, struct bench *bench,
                    const struct sim_predict_options *options, char *err, size_t err_len)
{
    const struct sim_measured_row *row = question->row;
    struct sim_traffic traffic = {.ranks = 0};
    struct sim_timing timing = {.ranks = 0};
    int status = -1;

    if (build(question, draw, bench, &traffic, err, err_len) != 0) return -1;
    const struct sim_exchange exchange = {.machine = question->machine,
                                          .traffic = &traffic,
                                          .direction = question->direction,
                                          .hidden = row->hidden,
                                          .sms = row->sms,
                                          .qp_depth = 0,
                                          .nvl_chunk = question->chunks[0],
                                          .rdma_chunk = question->chunks[1],
                                          .best_chunk =
                                              question->normal && question->chunks[0] == 0,
                                          .hook = question->hook,
                                          .start_ps = bench->start_ps,
                                          .recv_start_ps = bench->recv_start_ps};
    if (sim_timing_open(&timing, row->ep, traffic.message_count[question->direction], err,
                        err_len) != 0)
        goto free_traffic;
    status = question->normal ? sim_normal_time(bench->engine, &exchange, &timing, err, err_len)
                              : sim_ll_time(bench->engine, &exchange, &timing, err, err_len);
    if (status == 0) add_answers(question, bench, &timing);
    if (status == 0 && draw == 0 && options->observe) {
        struct sim_exchange seen = exchange;
        seen.best_chunk = false;
        seen.nvl_chunk = timing.nvl_chunk;
        seen.rdma_chunk = timing.rdma_chunk;
        status = options->observe(options->observe_context, &seen, err, err_len);
    }
    assert(!question->normal || (timing.nvl_chunk > 0 && timing.rdma_chunk > 0) || status != 0);
    question->chunks[0] = timing.nvl_chunk; /* Further draws keep the sizes. */
    question->chunks[1] = timing.rdma_chunk;
    sim_timing_close(&timing);
free_traffic:
    sim_traffic_free(&traffic);
    free((void *)(uintptr_t)bench->routing.topk_idx);
    return status;
}

static int answer(struct question *question, struct bench *bench,
                  const struct sim_predict_options *options, char *err, size_t err_len)
{
    const uint64_t tokens = (uint64_t)question->row->tokens * question->row->ep;
    uint64_t draws = tokens ? DRAWN_TOKENS / tokens : 1;
    if (draws < 1) draws = 1;
    if (draws > DRAWS_MAX) draws = DRAWS_MAX;
    assert(draws >= 1 && draws <= DRAWS_MAX);
    memset(question->answer_ps, 0, sizeof question->answer_ps);
    question->floor_ps = 0;
    for (uint32_t d = 0; d < draws; d++)
        if (run_draw(question, d, bench, options, err, err_len) != 0) return -1;
    for (int p = 0; p < PARTS; p++) question->answer_ps[p] /= draws;
    question->floor_ps /= draws;
    return 0;
}

/* ---- many, on threads ---- */

static void work(void *context, uint32_t thread)
{
    struct job *job = (struct job *)context;
    char err[256] = "out of memory";
    struct bench *bench = (struct bench *)calloc(1, sizeof *bench);
    int status = bench ? 0 : -1;

    if (bench) bench->engine = sim_engine_open(1024, err, sizeof err);
    if (!bench || !bench->engine) status = -1;
    for (uint32_t r = 0; bench && r < RANKS_MAX; r++) bench->recv_start_ps[r] = HOOK_PAUSE_PS;
    while (status == 0 && !atomic_load(&job->failed)) {
        const size_t i = atomic_fetch_add(&job->next, 1);
        if (i >= job->count) break;
        status = answer(&job->questions[i], bench, job->options, err, sizeof err);
        const size_t done = atomic_fetch_add(&job->done, 1) + 1;
        if (job->options->progress && thread == 0)
            job->options->progress(job->options->progress_context, done, job->count);
    }
    if (status != 0 && atomic_exchange(&job->failed, 1) == 0)
        snprintf(job->err, job->err_len, "%s", err);
    if (bench) sim_engine_close(bench->engine);
    free(bench);
}

int sim_predict_exchange(const struct sim_measured *measured,
                         const struct sim_predict_options *options,
                         const struct fabric_machine *const *machines, uint64_t *predicted_ps,
                         uint64_t *floor_ps, char *err, size_t err_len)
{
    const size_t rows = measured->count;
    struct question *questions = (struct question *)calloc(rows + 1, sizeof *questions);
    size_t *asked = (size_t *)calloc(rows + 1, sizeof *asked);
    enum part *part = (enum part *)calloc(rows + 1, sizeof *part);
    struct job job = {.options = options, .questions = questions, .err = err, .err_len = err_len};
    int status = -1;

    assert(measured->kind == SIM_MEASURED_CALIBRATE);
    if (!questions || !asked || !part) {
        snprintf(err, err_len, "%zu rows: out of memory", rows);
        goto free_all;
    }
    for (size_t i = 0; i < rows; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        struct question question = {.row = row};
        if (options->wanted && !options->wanted[i]) continue;
        assert(machines[i] != NULL);
        question.machine = machines[i];
        if (options->chunks) memcpy(question.chunks, options->chunks[i], sizeof question.chunks);
        if (sim_predict_check(row, machines[i], err, err_len) != 0) goto free_all;
        parse_op(row, &question, &part[i]);
        size_t q = 0;
        while (q < job.count && !same(&questions[q], &question)) q++;
        if (q == job.count) questions[job.count++] = question;
        asked[i] = q;
    }
    sim_threads_run(sim_threads_count(options->threads, SIM_THREADS_MAX), work, &job);
    status = atomic_load(&job.failed) ? -1 : 0;
    for (size_t i = 0; status == 0 && i < rows; i++) {
        if (options->wanted && !options->wanted[i]) continue;
        assert(asked[i] < job.count && part[i] < PARTS);
        predicted_ps[i] = questions[asked[i]].answer_ps[part[i]];
        if (floor_ps) floor_ps[i] = questions[asked[i]].floor_ps;
        if (options->chunks)
            memcpy(options->chunks[i], questions[asked[i]].chunks, sizeof options->chunks[i]);
    }
free_all:
    free(questions);
    free(asked);
    free(part);
    return status;
}
