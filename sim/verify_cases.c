/* sim/verify_cases.c - threads over the cases of a table. */
#include "sim/verify_cases.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/threads.h"

/* Cases at work together leave room for what is not theirs. */
#define TOGETHER_BYTES_MAX (SIM_CASE_BYTES_MAX - (UINT64_C(128) << 20))

struct place {
    uint64_t bytes; /* Host memory of the case. */
    size_t index;
    bool taken;
};

struct crew {
    const struct sim_cases_job *job;
    struct sim_case_verdict *verdicts;
    struct sim_case_player player;
    pthread_mutex_t lock; /* All below. */
    pthread_cond_t freed;
    struct place *order; /* Owned: wanted cases, largest first. */
    size_t count, taken, done;
    uint32_t broken; /* Cases in which the backend failed. */
    uint64_t bytes;  /* Of the cases at work. */
    int status;      /* Of the first that failed. */
    char *err;
    size_t err_len;
};

static int largest_first(const void *a, const void *b)
{
    const struct place *left = (const struct place *)a, *right = (const struct place *)b;

    if (left->bytes != right->bytes) return left->bytes > right->bytes ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static int order_open(struct crew *crew)
{
    const struct sim_case_table *table = crew->job->table;

    crew->order = (struct place *)calloc(table->count + 1, sizeof *crew->order);
    if (crew->order == NULL) {
        snprintf(crew->err, crew->err_len, "cases: out of memory");
        return -1;
    }
    for (size_t i = 0; i < table->count; i++) {
        struct place *place = &crew->order[crew->count];

        if (crew->job->wanted != NULL && !crew->job->wanted[i]) continue;
        const int status =
            sim_case_bytes(&table->cases[i], &place->bytes, crew->err, crew->err_len);
        if (status != 0) return status;
        place->index = i;
        crew->count++;
    }
    qsort(crew->order, crew->count, sizeof *crew->order, largest_first);
    return 0;
}

/* The largest case left that fits beside those at work; waits for room. NULL: nothing is left to be
 * tried. The lock is held. */
static struct place *take(struct crew *crew)
{
    while (crew->status == 0 && crew->taken < crew->count &&
           crew->broken < SIM_VERIFY_FAILURES_MAX) {
        for (size_t i = 0; i < crew->count; i++) {
            struct place *place = &crew->order[i];

            if (place->taken) continue;
            if (crew->bytes > 0 && crew->bytes + place->bytes > TOGETHER_BYTES_MAX) continue;
            place->taken = true;
            crew->taken++;
            crew->bytes += place->bytes;
            return place;
        }
        assert(crew->bytes > 0); /* Alone each fits. */
        pthread_cond_wait(&crew->freed, &crew->lock);
    }
    return NULL;
}

/* Take cases until none is left or somebody failed. */
static void work(void *context, uint32_t thread)
{
    struct crew *crew = (struct crew *)context;

    pthread_mutex_lock(&crew->lock);
    for (struct place *place = take(crew); place != NULL; place = take(crew)) {
        const struct sim_table_case *table_case = &crew->job->table->cases[place->index];
        char err[1024] = "";

        pthread_mutex_unlock(&crew->lock);
        const int status = sim_case_play(&crew->player, table_case, &crew->verdicts[place->index],
                                         err, sizeof err);
        pthread_mutex_lock(&crew->lock);
        if (status != 0 && crew->status == 0) {
            crew->status = status;
            snprintf(crew->err, crew->err_len, "%s: %s", table_case->name, err);
        }
        crew->broken += crew->verdicts[place->index].outcome == SIM_CASE_BROKEN;
        assert(crew->bytes >= place->bytes && crew->done < crew->taken);
        crew->bytes -= place->bytes;
        crew->done++;
        pthread_cond_broadcast(&crew->freed);
        if (crew->job->progress != NULL)
            crew->job->progress(crew->job->context, crew->done, crew->count);
    }
    pthread_mutex_unlock(&crew->lock);
    (void)thread;
}

static void work_together(struct crew *crew)
{
    const size_t most = crew->count < SIM_THREADS_MAX ? crew->count : SIM_THREADS_MAX;
    const uint32_t threads = sim_threads_count(crew->job->threads, most > 0 ? (uint32_t)most : 1);
    sim_threads_run(threads, work, crew);
}

static void sum_up(const struct crew *crew, struct sim_verify_report *report, uint64_t *bytes_max)
{
    for (size_t i = 0; i < crew->count; i++) { /* Back into the order of the table. */
        if (crew->order[i].bytes > *bytes_max) *bytes_max = crew->order[i].bytes;
        if (!crew->order[i].taken) crew->verdicts[crew->order[i].index].outcome = SIM_CASE_UNTRIED;
    }
    for (size_t i = 0; i < crew->job->table->count; i++) {
        const struct sim_case_verdict *verdict = &crew->verdicts[i];
        const char *name = crew->job->table->cases[i].name;

        if (crew->job->wanted != NULL && !crew->job->wanted[i]) continue;
        if (verdict->outcome == SIM_CASE_UNTRIED) continue;
        report->cases++;
        report->passed += verdict->outcome == SIM_CASE_PASSED;
        report->failed += verdict->outcome == SIM_CASE_FAILED;
        report->skipped += verdict->outcome == SIM_CASE_SKIPPED;
        report->bytes += verdict->compared_bytes;
        if (verdict->outcome == SIM_CASE_BROKEN && report->failure_count < SIM_VERIFY_FAILURES_MAX)
            (void)sim_verify_note(report, name, verdict->broken);
        if (verdict->outcome != SIM_CASE_FAILED || report->failed > 1) continue;
        snprintf(report->first_case, sizeof report->first_case, "%s", name);
        report->first = verdict->first;
        report->first_mismatches = verdict->mismatches;
    }
}

int sim_verify_cases(const struct sim_cases_job *job, struct sim_case_verdict *verdicts,
                     struct sim_verify_report *report, uint64_t *bytes_max, bool *usage, char *err,
                     size_t err_len)
{
    struct crew crew = {.job = job, .verdicts = verdicts, .err = err, .err_len = err_len};

    memset(report, 0, sizeof *report);
    *bytes_max = 0;
    *usage = false;
    crew.status =
        sim_case_player_open(&crew.player, job->backend, job->place, job->reference, err, err_len);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.freed, NULL);
    if (crew.status == 0) crew.status = order_open(&crew);
    if (crew.status == 0) work_together(&crew);
    if (crew.status == 0) sum_up(&crew, report, bytes_max);
    *usage = crew.status == SIM_CASE_TOO_LARGE;
    free(crew.order);
    pthread_cond_destroy(&crew.freed);
    pthread_mutex_destroy(&crew.lock);
    sim_case_player_close(&crew.player);
    return crew.status == 0 ? 0 : -1;
}
