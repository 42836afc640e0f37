/* sim/evidence_jobs.c - plays the jobs of the record, one layer after the other. */
#include "sim/evidence_jobs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/digest.h"
#include "sim/backends.h"
#include "sim/cell.h"

#define FAULTS_OF(mode, word, stage, direction)                                                    \
    {"fault", word "-" stage "-drop", 1, mode, direction, SIM_FAULT_DROP},                         \
        {"fault", word "-" stage "-double", 1, mode, direction, SIM_FAULT_DOUBLE},                 \
        {"fault", word "-" stage "-corrupt", 1, mode, direction, SIM_FAULT_CORRUPT},               \
    {                                                                                              \
        "fault", word "-" stage "-overtake", 1, mode, direction, SIM_FAULT_OVERTAKE                \
    }

static const struct sim_job JOBS[] = {
    {"job", "main-1-gpu", 1, SIM_MODE_LL, SIM_DISPATCH, SIM_FAULT_DROP},
    {"job", "main-2-gpus-blocks", 2, SIM_MODE_LL, SIM_DISPATCH, SIM_FAULT_DROP},
    FAULTS_OF(SIM_MODE_LL, "ll", "dispatch", SIM_DISPATCH),
    FAULTS_OF(SIM_MODE_LL, "ll", "combine", SIM_COMBINE),
    FAULTS_OF(SIM_MODE_NORMAL, "normal", "dispatch", SIM_DISPATCH),
    FAULTS_OF(SIM_MODE_NORMAL, "normal", "combine", SIM_COMBINE),
};

enum { JOB_COUNT = sizeof JOBS / sizeof JOBS[0], CORRUPT_BYTE = 101, CORRUPT_XOR = 0x41 };

/* The trace gptoss20b_topk_ids.npy, under the reference. */
static const struct sim_job_result MAIN = {UINT64_C(0xb3bccd09ad7b9dd9),
                                           UINT64_C(0xa9cd3622494a0231), 0};

const struct sim_job *sim_jobs(size_t *count)
{
    *count = JOB_COUNT;
    return JOBS;
}

const struct sim_job *sim_job_find(const char *kind, const char *name)
{
    for (size_t i = 0; i < JOB_COUNT; i++)
        if (strcmp(JOBS[i].kind, kind) == 0 && strcmp(JOBS[i].name, name) == 0) return &JOBS[i];
    return NULL;
}

static bool is_main(const struct sim_job *job)
{
    return strcmp(job->kind, "job") == 0;
}

bool sim_job_needs_trace(const struct sim_job *job, struct sim_job_result *pinned)
{
    if (!is_main(job)) return false;
    *pinned = MAIN;
    return true;
}

/* One run, opened. */
struct run {
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_engine *engine;
    struct sim_cell *cell;
    struct sim_datapath *path;
    uint64_t ready_ps[SIM_RANKS_MAX];
};

static int set_options(const struct sim_job *job, const char *backend, const char *routing,
                       const char *offsets, struct sim_settings *settings, char *err,
                       size_t err_len)
{
    const bool cuda = strcmp(backend, "cuda") == 0;
    const char *const options[][2] = {{"model", "gpt-oss-20b"},
                                      {"machine", "h200-hgx"},
                                      {"ep", "8"},
                                      {"mode", job->mode == SIM_MODE_LL ? "ll" : "normal"},
                                      {"backend", backend},
                                      {"gpus", cuda && job->gpus == 2 ? "2" : "1"},
                                      {"tokens", is_main(job) ? "64" : "32"},
                                      {"steps", is_main(job) ? "4" : "1"},
                                      {"layers", is_main(job) ? "" : "1"},
                                      {"routing", is_main(job) ? routing : "uniform"},
                                      {"offsets", is_main(job) ? offsets : ""}};

    sim_settings_default(settings);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (sim_settings_set(settings, options[i][0], options[i][1], err, err_len) != 0) return -1;
    return 0;
}

static void close_run(struct run *run)
{
    sim_datapath_close(run->path);
    sim_cell_close(run->cell);
    sim_engine_close(run->engine);
    sim_source_close(run->source);
    free(run->plan);
}

static int open_run(struct run *run, const struct sim_settings *settings, bool *usage, char *err,
                    size_t err_len)
{
    const struct sim_backend_ops *backend = NULL;

    *usage = true;
    run->source = sim_source_open(settings, err, err_len);
    if (run->source == NULL) return -1;
    const struct trace_routing *trace = sim_source_trace(run->source);
    run->plan = (struct sim_plan *)malloc(sizeof *run->plan);
    if (run->plan == NULL) {
        *usage = false;
        snprintf(err, err_len, "job: out of memory");
        return -1;
    }
    if (sim_plan_make(settings, trace != NULL ? trace->layers : 0, trace != NULL ? trace->topk : 0,
                      run->plan, err, err_len) != 0 ||
        sim_source_start(run->source, run->plan, err, err_len) != 0)
        return -1;
    *usage = false;
    if (sim_backend_find(settings->backend, &backend, err, err_len) != 0) return -1;
    assert(backend != NULL);
    const struct sim_backend_place place = sim_plan_place(run->plan, 1);
    run->path = sim_datapath_open(backend, &place, err, err_len);
    run->engine = sim_engine_open(65536, err, err_len);
    run->cell = sim_cell_open(run->plan, err, err_len);
    return run->path != NULL && run->engine != NULL && run->cell != NULL ? 0 : -1;
}

/* Prepare and move one layer, and take its digests in. */
static int play_layer(struct run *run, uint64_t step, uint32_t layer, struct sim_job_result *result,
                      char *err, size_t err_len)
{
    struct sim_cell *cell = run->cell;

    if (sim_cell_prepare(cell, run->source, step, layer, run->engine, run->ready_ps, err,
                         err_len) != 0 ||
        sim_cell_play(cell, run->path, err, err_len) != 0)
        return -1;
    result->input = ref_digest_mix(result->input, cell->routing_digest);
    for (uint32_t i = 0; i < SIM_STAGES * run->plan->ranks; i++) {
        result->output = ref_digest_mix(result->output, cell->checks[i].digest);
        result->mismatches += cell->checks[i].mismatch_count;
    }
    return 0;
}

static int play_main(struct run *run, struct sim_job_result *result, char *err, size_t err_len)
{
    for (uint64_t step = 0; step < run->plan->settings.steps; step++) {
        for (uint32_t l = 0; l < run->plan->layer_count; l++)
            if (play_layer(run, step, run->plan->layers[l], result, err, err_len) != 0) return -1;
        sim_source_advance(run->source);
    }
    return 0;
}

/* A message between two ranks that have another one between them, from the middle of the stage. */
static const struct sim_message *pick(const struct sim_traffic *traffic,
                                      enum sim_direction direction)
{
    const struct sim_message *messages = traffic->messages[direction];
    const uint64_t count = traffic->message_count[direction];

    for (uint64_t m = count / 3; m < count; m++)
        for (uint64_t n = m + 1; messages[m].src_rank != messages[m].dst_rank && n < count; n++)
            if (messages[n].src_rank == messages[m].src_rank &&
                messages[n].dst_rank == messages[m].dst_rank)
                return &messages[m];
    return NULL;
}

/* Once without, to see the messages; then with the fault. */
static int play_fault(struct run *run, const struct sim_job *job, struct sim_job_result *result,
                      char *err, size_t err_len)
{
    struct sim_job_result whole = {0, 0, 0};

    if (play_layer(run, 0, 0, &whole, err, err_len) != 0) return -1;
    const struct sim_message *message = pick(&run->cell->traffic, job->stage);
    assert(whole.mismatches == 0 || strcmp(run->plan->settings.backend, "ref") != 0);
    assert(message != NULL && message->hop == 0);
    const uint32_t peer =
        message->home_rank == message->src_rank ? message->dst_rank : message->src_rank;
    run->plan->scenario.count = 1;
    run->plan->scenario.faults[0] =
        (struct sim_fault){.kind = job->fault,
                           .stage = job->stage,
                           .target = {message->home_rank, message->token, message->expert,
                                      job->mode == SIM_MODE_NORMAL ? (int32_t)peer : -1},
                           .byte = CORRUPT_BYTE,
                           .xor_mask = CORRUPT_XOR};
    if (play_layer(run, 0, 0, result, err, err_len) != 0) return -1;
    result->output = ref_digest_mix(result->output, whole.mismatches);
    result->output = ref_digest_mix(result->output, run->cell->wrong->digest);
    result->output = ref_digest_mix(result->output, run->cell->wrong->count);
    return 0;
}

int sim_job_play(const struct sim_job *job, const char *backend, const char *routing,
                 const char *offsets, struct sim_job_result *result, bool *usage, char *err,
                 size_t err_len)
{
    struct sim_settings settings;
    struct run run;
    int status = -1;

    memset(&run, 0, sizeof run);
    memset(result, 0, sizeof *result);
    *usage = true;
    assert(!is_main(job) || (routing != NULL && offsets != NULL));
    if (set_options(job, backend, routing, offsets, &settings, err, err_len) != 0) return -1;
    if (open_run(&run, &settings, usage, err, err_len) == 0)
        status = is_main(job) ? play_main(&run, result, err, err_len)
                              : play_fault(&run, job, result, err, err_len);
    close_run(&run);
    return status;
}
