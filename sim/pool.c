/* sim/pool.c - a ring with one producer, who is also the one consumer, and any number of workers.
 * Cell number n lives in slot n mod ring; submitted >= started >= ..., all three only grow. */
#include "sim/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 512, WORKERS_MAX = 256 };

struct slot {
    struct sim_cell *cell;
    bool done;
    int status;
    char err[ERROR_BYTES];
};

struct sim_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    uint64_t submitted, started, released;
    bool stop;
    uint32_t ring;
    struct slot *slots;
    uint32_t workers;
    pthread_t threads[WORKERS_MAX];
    struct sim_datapath *paths[WORKERS_MAX];
    uint32_t next_path;
};

static void *work(void *opaque)
{
    struct sim_pool *pool = (struct sim_pool *)opaque;
    pthread_mutex_lock(&pool->lock);
    struct sim_datapath *path = pool->paths[pool->next_path++];
    for (;;) {
        while (!pool->stop && pool->started == pool->submitted)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop) break;
        struct slot *slot = &pool->slots[pool->started++ % pool->ring];
        pthread_mutex_unlock(&pool->lock);
        slot->status = sim_cell_play(slot->cell, path, slot->err, sizeof slot->err);
        pthread_mutex_lock(&pool->lock);
        slot->done = true;
        pthread_cond_broadcast(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int start_workers(struct sim_pool *pool, const struct sim_plan *plan,
                         const struct sim_backend_ops *backend, uint32_t threads, char *err,
                         size_t err_len)
{
    const struct sim_backend_place place = sim_plan_place(plan, threads);

    for (uint32_t i = 0; i < threads; i++) {
        pool->paths[i] = sim_datapath_open(backend, &place, err, err_len);
        if (pool->paths[i] == NULL) return -1;
    }
    for (; pool->workers < threads; pool->workers++) {
        if (pthread_create(&pool->threads[pool->workers], NULL, work, pool) == 0) continue;
        snprintf(err, err_len, "worker thread %u of %u: cannot be started", pool->workers + 1,
                 threads);
        return -1;
    }
    return 0;
}

struct sim_pool *sim_pool_open(const struct sim_plan *plan, const struct sim_backend_ops *backend,
                               uint32_t threads, char *err, size_t err_len)
{
    struct sim_pool *pool = (struct sim_pool *)calloc(1, sizeof *pool);
    assert(threads >= 1 && threads <= WORKERS_MAX);
    if (pool == NULL) goto no_memory;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->ring = backend != NULL ? threads + 2 : 1;
    pool->slots = (struct slot *)calloc(pool->ring, sizeof *pool->slots);
    if (pool->slots == NULL) goto no_memory;
    for (uint32_t i = 0; i < pool->ring; i++) {
        pool->slots[i].cell = sim_cell_open(plan, err, err_len);
        if (pool->slots[i].cell == NULL) goto close_pool;
    }
    if (backend != NULL && start_workers(pool, plan, backend, threads, err, err_len) != 0)
        goto close_pool;
    return pool;
no_memory:
    snprintf(err, err_len, "layers in flight: out of memory");
close_pool:
    sim_pool_close(pool);
    return NULL;
}

struct sim_cell *sim_pool_next(struct sim_pool *pool)
{
    if (pool->submitted - pool->released == pool->ring) return NULL;
    return pool->slots[pool->submitted % pool->ring].cell;
}

void sim_pool_submit(struct sim_pool *pool)
{
    struct slot *slot = &pool->slots[pool->submitted % pool->ring];
    pthread_mutex_lock(&pool->lock);
    assert(pool->submitted - pool->released < pool->ring);
    slot->done = pool->workers == 0; /* Nobody to play it: times are all there is. */
    slot->status = 0;
    pool->submitted++;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

struct sim_cell *sim_pool_take(struct sim_pool *pool, int *status, char *err, size_t err_len)
{
    struct slot *slot = &pool->slots[pool->released % pool->ring];
    *status = 0;
    if (pool->released == pool->submitted) return NULL;
    pthread_mutex_lock(&pool->lock);
    while (!slot->done) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    *status = slot->status;
    if (slot->status != 0) snprintf(err, err_len, "%s", slot->err);
    return slot->cell;
}

void sim_pool_release(struct sim_pool *pool)
{
    assert(pool->released < pool->submitted);
    pool->released++;
}

void sim_pool_close(struct sim_pool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->workers; i++) pthread_join(pool->threads[i], NULL);
    for (uint32_t i = 0; i < WORKERS_MAX; i++) sim_datapath_close(pool->paths[i]);
    for (uint32_t i = 0; pool->slots != NULL && i < pool->ring; i++)
        sim_cell_close(pool->slots[i].cell);
    free(pool->slots);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
