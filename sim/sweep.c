/* sim/sweep.c - the grid of settings, and its cells evaluated on all cores. */
#include "sim/sweep.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/threads.h"
#include "sim/what_if.h"

/* --- the grid --------------------------------------------------------------------------------- */

void sim_sweep_init(struct sim_sweep *sweep, const struct sim_settings *base)
{
    assert(sweep != NULL && base != NULL);
    memset(sweep, 0, sizeof *sweep);
    sweep->base = *base;
    sweep->base.threads = 1; /* The cells are what runs side by side. */
}

void sim_sweep_free(struct sim_sweep *sweep)
{
    for (uint32_t a = 0; a < sweep->axis_count; a++) free(sweep->axes[a].text);
    sweep->axis_count = 0;
}

/* Cut the list at its commas; every value must be one that the option takes. */
static int parse_list(const struct sim_sweep *sweep, struct sim_sweep_axis *axis, char *err,
                      size_t err_len)
{
    struct sim_settings tried = sweep->base;
    char *rest = axis->text;

    for (char *value = strsep(&rest, ","); value != NULL; value = strsep(&rest, ",")) {
        if (axis->count == SIM_SWEEP_VALUES_MAX) {
            snprintf(err, err_len, "--%s: more than %d values", axis->option, SIM_SWEEP_VALUES_MAX);
            return -1;
        }
        if (value[0] == '\0') {
            snprintf(err, err_len, "--%s: an empty value between commas", axis->option);
            return -1;
        }
        if (sim_settings_set(&tried, axis->option, value, err, err_len) != 0) return -1;
        for (uint32_t v = 0; v < axis->count; v++) {
            if (strcmp(axis->values[v], value) != 0) continue;
            snprintf(err, err_len, "--%s: %.64s: stands twice", axis->option, value);
            return -1;
        }
        axis->values[axis->count++] = value;
    }
    assert(axis->count > 0);
    return 0;
}

int sim_sweep_add(struct sim_sweep *sweep, const char *option, const char *list, char *err,
                  size_t err_len)
{
    const struct sim_option *known = sim_option_find(option);
    struct sim_sweep_axis *axis = &sweep->axes[sweep->axis_count];
    uint64_t cells = 1;

    assert(known != NULL && list != NULL);
    if (sweep->axis_count == SIM_SWEEP_AXES_MAX) {
        snprintf(err, err_len, "--%s: more than %d axes", option, SIM_SWEEP_AXES_MAX);
        return -1;
    }
    memset(axis, 0, sizeof *axis);
    axis->option = known->name;
    axis->text = strdup(list);
    if (axis->text == NULL) {
        snprintf(err, err_len, "--%s: out of memory", option);
        return -1;
    }
    sweep->axis_count++; /* Owned from here on. */
    if (parse_list(sweep, axis, err, err_len) != 0) return -1;
    for (uint32_t a = 0; a < sweep->axis_count; a++) cells *= sweep->axes[a].count;
    if (cells <= SIM_SWEEP_CELLS_MAX) return 0;
    snprintf(err, err_len, "--%s: makes more than %d cells", option, SIM_SWEEP_CELLS_MAX);
    return -1;
}

uint32_t sim_sweep_cells(const struct sim_sweep *sweep)
{
    uint32_t cells = 1;
    for (uint32_t a = 0; a < sweep->axis_count; a++) cells *= sweep->axes[a].count;
    return cells;
}

uint32_t sim_sweep_at(const struct sim_sweep *sweep, uint32_t cell, uint32_t axis)
{
    assert(axis < sweep->axis_count && cell < sim_sweep_cells(sweep));
    for (uint32_t a = sweep->axis_count - 1; a > axis; a--) cell /= sweep->axes[a].count;
    return cell % sweep->axes[axis].count;
}

void sim_sweep_settings(const struct sim_sweep *sweep, uint32_t cell, struct sim_settings *settings)
{
    char err[256];

    *settings = sweep->base;
    for (uint32_t a = 0; a < sweep->axis_count; a++) {
        const struct sim_sweep_axis *axis = &sweep->axes[a];
        const char *value = axis->values[sim_sweep_at(sweep, cell, a)];
        const int status = sim_settings_set(settings, axis->option, value, err, sizeof err);
        assert(status == 0); /* sim_sweep_add has tried every value. */
        (void)status;
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

const char *sim_sweep_state_name(enum sim_sweep_state state)
{
    static const char *const names[] = {"done", "refused", "failed"};
    assert(state <= SIM_SWEEP_FAILED);
    return names[state];
}

/* Workers take the next cell and put its result into a ring of one place; the caller empties it. */
struct sweep_play {
    const struct sim_sweep *sweep;
    const bool *skip;
    pthread_mutex_t lock;
    pthread_cond_t full, empty;
    uint32_t next, cells;
    uint32_t working; /* Workers that have not ended. */
    bool has_result, stop;
    struct sim_sweep_result result;
};

static struct sim_sweep_result evaluate(const struct sim_sweep *sweep, uint32_t cell)
{
    struct sim_sweep_result result = {cell, SIM_SWEEP_FAILED, NULL};
    struct sim_settings settings;
    struct sim_what_if what_if;
    char err[1024] = "";

    sim_sweep_settings(sweep, cell, &settings);
    const int status = sim_what_if(&settings, &what_if, err, sizeof err);
    if (status == 0) {
        result.state = SIM_SWEEP_DONE;
        result.summary = sim_what_if_json(&what_if);
    } else {
        if (status == SIM_WHAT_IF_REFUSED) result.state = SIM_SWEEP_REFUSED;
        result.summary = json_pack("{s:s}", "why", err);
    }
    return result;
}

/* The next cell that is wanted; false when there is none. Locked. */
static bool next_cell(struct sweep_play *play, uint32_t *cell)
{
    while (play->next < play->cells && play->skip != NULL && play->skip[play->next]) play->next++;
    if (play->stop || play->next == play->cells) return false;
    *cell = play->next++;
    return true;
}

static void *work(void *argument)
{
    struct sweep_play *play = (struct sweep_play *)argument;
    uint32_t cell = 0;

    pthread_mutex_lock(&play->lock);
    while (next_cell(play, &cell)) {
        pthread_mutex_unlock(&play->lock);
        const struct sim_sweep_result result = evaluate(play->sweep, cell);
        pthread_mutex_lock(&play->lock);
        while (play->has_result) pthread_cond_wait(&play->empty, &play->lock);
        play->result = result;
        play->has_result = true;
        pthread_cond_signal(&play->full);
    }
    play->working--;
    pthread_cond_signal(&play->full);
    pthread_mutex_unlock(&play->lock);
    return NULL;
}

/* Until the last worker has ended and its result is taken. */
static void take_results(struct sweep_play *play, sim_sweep_take_fn take, void *context)
{
    pthread_mutex_lock(&play->lock);
    while (play->working > 0 || play->has_result) {
        if (!play->has_result) {
            pthread_cond_wait(&play->full, &play->lock);
            continue;
        }
        const struct sim_sweep_result result = play->result;
        play->has_result = false;
        pthread_cond_signal(&play->empty);
        const bool wanted = !play->stop;
        pthread_mutex_unlock(&play->lock);
        const bool go_on = wanted && take(context, &result);
        json_decref(result.summary);
        pthread_mutex_lock(&play->lock);
        if (!go_on) play->stop = true;
    }
    pthread_mutex_unlock(&play->lock);
}

int sim_sweep_play(const struct sim_sweep *sweep, const bool *skip, uint32_t threads,
                   sim_sweep_take_fn take, void *context, char *err, size_t err_len)
{
    enum { THREADS_MAX = 256 };
    struct sweep_play play;
    pthread_t workers[THREADS_MAX];
    uint32_t started = 0;

    assert(sweep != NULL && take != NULL);
    memset(&play, 0, sizeof play);
    play.sweep = sweep;
    play.skip = skip;
    play.cells = sim_sweep_cells(sweep);
    threads = sim_threads_count(threads, play.cells < THREADS_MAX ? play.cells : THREADS_MAX);
    pthread_mutex_init(&play.lock, NULL);
    pthread_cond_init(&play.full, NULL);
    pthread_cond_init(&play.empty, NULL);
    pthread_mutex_lock(&play.lock);
    for (; started < threads; started++)
        if (pthread_create(&workers[started], NULL, work, &play) != 0) break;
    play.working = started;
    pthread_mutex_unlock(&play.lock);
    take_results(&play, take, context);
    for (uint32_t t = 0; t < started; t++) pthread_join(workers[t], NULL);
    pthread_cond_destroy(&play.empty);
    pthread_cond_destroy(&play.full);
    pthread_mutex_destroy(&play.lock);
    if (started > 0) return 0;
    snprintf(err, err_len, "sweep: cannot start a thread");
    return -1;
}
