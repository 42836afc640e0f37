/* fabric/sm_pool.c - a binary heap of servers by (free_ps, index). */
#include "fabric/sm_pool.h"
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

void fabric_sm_pool_init(struct fabric_sm_pool *pool, struct fabric_sm *storage, uint32_t count,
                         uint64_t free_ps)
{
    assert(storage != NULL && count >= 1);
    *pool = (struct fabric_sm_pool){.heap = storage, .count = count};
    for (uint32_t i = 0; i < count; i++) storage[i] = (struct fabric_sm){free_ps, i};
}

static bool before(const struct fabric_sm *a, const struct fabric_sm *b)
{
    return a->free_ps != b->free_ps ? a->free_ps < b->free_ps : a->index < b->index;
}

/* Put sm where the first one was. */
static void replace_first(struct fabric_sm_pool *pool, struct fabric_sm sm)
{
    uint32_t at = 0;
    for (uint32_t child = 1; child < pool->count; child = 2 * at + 1) {
        if (child + 1 < pool->count && before(&pool->heap[child + 1], &pool->heap[child])) child++;
        if (!before(&pool->heap[child], &sm)) break;
        pool->heap[at] = pool->heap[child];
        at = child;
    }
    pool->heap[at] = sm;
}

struct fabric_run fabric_sm_pool_run(struct fabric_sm_pool *pool, uint64_t now_ps,
                                     uint64_t duration_ps)
{
    struct fabric_sm sm = pool->heap[0];
    struct fabric_run run = {.sm = sm.index, .start_ps = now_ps};
    assert(sm.index < pool->count);
    if (run.start_ps < sm.free_ps) run.start_ps = sm.free_ps;
    assert(run.start_ps <= UINT64_MAX - duration_ps);
    run.end_ps = run.start_ps + duration_ps;
    fabric_waiting_add(&pool->waiting, &pool->use, now_ps, run.start_ps);
    pool->use.busy_ps += duration_ps;
    sm.free_ps = run.end_ps;
    replace_first(pool, sm);
    return run;
}

uint64_t fabric_sm_pool_first_free_ps(const struct fabric_sm_pool *pool)
{
    return pool->heap[0].free_ps;
}

uint64_t fabric_sm_pool_all_free_ps(const struct fabric_sm_pool *pool)
{
    uint64_t last_ps = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        if (pool->heap[i].free_ps > last_ps) last_ps = pool->heap[i].free_ps;
    return last_ps;
}
