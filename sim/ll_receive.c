/* sim/ll_receive.c - receive halves of low-latency kernels: copies (dispatch), sums (combine).
 *
 * Nobody waits for what a rank does once its counts or flags are all there, so this runs without
 * events, in one go per rank, on the rank's own server; its times enter the digest by the end of
 * each kernel. */
#include "sim/ll_state.h"

#include <assert.h>

static void end_kernel(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    const struct ll_rank *r = &ll->rank[rank];
    struct sim_timing *timing = ll->timing;
    const bool waited = r->last_land_ps > r->open_ps;
    timing->end_ps[rank] = now_ps;
    timing->recv_ps[rank] = now_ps - r->sent_ps;
    timing->wait_ps[rank] = waited ? r->last_land_ps - r->open_ps : 0;
    timing->awaited[rank] = waited ? r->last_source : rank;
}

/* The groups whose counts a rank waited for, by landing time; they are listed nearly so. */
static void sort_arrivals(struct ll_arrival *arrival, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const struct ll_arrival one = arrival[i];
        uint32_t at = i;
        for (; at > 0 && arrival[at - 1].land_ps > one.land_ps; at--) arrival[at] = arrival[at - 1];
        arrival[at] = one;
    }
}

/* A job for the rank's SMs. */
static void add_job(struct ll_rank *r, uint32_t job, uint32_t streams, uint64_t bytes,
                    uint64_t now_ps)
{
    fabric_share_add(&r->sm, now_ps, job, streams, bytes);
    r->use[LL_SMS].bytes += streams * bytes;
    if (r->sm.count > r->use[LL_SMS].queue_peak) r->use[LL_SMS].queue_peak = r->sm.count;
}

/* Let the rank's copies run until until_ps; returns when the last that ended by then was through
 * on its own SM as well, which alone_ps tells by job; 0 when none ended. */
static uint64_t run_copies(struct ll_rank *r, uint64_t until_ps, const uint64_t *alone_ps)
{
    uint64_t done_ps = 0, end_ps;
    uint32_t job;
    while ((end_ps = fabric_share_pop(&r->sm, until_ps, &job)) != LL_NEVER)
        done_ps = ll_later(done_ps, ll_later(end_ps, alone_ps[job]));
    return done_ps;
}

struct ll_copy ll_copy_of(const struct ll *ll, uint32_t rows)
{
    const uint64_t rate = ll->costs->sm_receive_bytes_per_s / ll->groups_per_block;
    const uint64_t bytes = rows * ll->row_bytes, width = rows < ll->warps ? rows : ll->warps;
    assert(rows > 0);
    return (struct ll_copy){fabric_transfer_ps(bytes, rate), bytes / width};
}

/* Two limits at once: what the memory gives all warps, and what the group's SM gets through. */
static void copy_groups(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    struct ll_arrival *arrival = ll->arrival + (size_t)rank * ll->experts;
    uint64_t *alone_ps = ll->job_ps;
    uint64_t done_ps = 0;

    sort_arrivals(arrival, ll->experts);
    for (uint32_t i = 0; i < ll->experts; i++) {
        const uint32_t rows = arrival[i].rows, width = rows < ll->warps ? rows : ll->warps;
        const uint64_t seen_ps =
            ll_later(arrival[i].land_ps, r->open_ps) + ll->costs->receive_chain_ps;
        done_ps = ll_later(done_ps, rows > 0 ? run_copies(r, seen_ps, alone_ps) : seen_ps);
        if (rows == 0) continue;
        const struct ll_copy few = rows <= LL_WARPS ? ll->copy[rows] : ll_copy_of(ll, rows);
        alone_ps[i] = seen_ps + few.alone_ps;
        add_job(r, i, width, few.stream_bytes, seen_ps);
    }
    end_kernel(ll, rank, ll_later(done_ps, run_copies(r, LL_NEVER - 1, alone_ps)));
}

uint64_t ll_combine_grid(const struct ll *ll, uint32_t rank)
{
    const uint64_t tokens = ll->traffic->token_start[rank + 1] - ll->traffic->token_start[rank];
    const uint64_t per_sm = (tokens + ll->machine->sm_count - 1) / ll->machine->sm_count;
    const uint64_t spread = tokens > 0 ? (tokens + per_sm - 1) / per_sm : 1;
    return spread > ll->grid ? spread : ll->grid;
}

/* Rows of a block's next tokens, one per group of its warps; the block moves past them. */
static uint64_t next_rows(struct ll *ll, uint32_t block, uint64_t grid, uint64_t end)
{
    struct ll_block *b = &ll->block[block];
    uint64_t rows = 0;
    for (int group = 0; group < LL_REDUCE_GROUPS && b->token < end; group++, b->token += grid)
        rows += ll->traffic->home_start[b->token + 1] - ll->traffic->home_start[b->token];
    return rows;
}

/* Blocks take turns: a span for the choices and the first row, then the bytes. As that span is
 * the same for all, blocks come to their bytes in the order in which they were free. */
static void sum_tokens(struct ll *ll, uint32_t rank)
{
    struct ll_rank *r = &ll->rank[rank];
    const uint64_t first = ll->traffic->token_start[rank];
    const uint64_t end = ll->traffic->token_start[rank + 1];
    const uint32_t grid = (uint32_t)ll_combine_grid(ll, rank), base = rank * ll->jobs_max;
    uint32_t *queue = ll->turn; /* A ring: blocks that load their choices. */
    uint32_t head = 0, count = 0, job;
    uint64_t now_ps =
        ll_later(r->open_ps, r->last_land_ps) + ll->costs->poll_ps + ll->costs->grid_barrier_ps;

    assert(grid <= ll->jobs_max);
    for (uint32_t b = 0; b < grid; b++) {
        ll->block[base + b].token = first + b;
        if (first + b >= end) continue;
        queue[count++] = b;
        ll->job_ps[b] = now_ps + ll->costs->reduce_chain_ps;
    }
    for (;;) {
        const uint64_t load_ps = count > 0 ? ll->job_ps[queue[head]] : LL_NEVER;
        const uint64_t sm_ps = fabric_share_pop(&r->sm, load_ps - 1, &job);
        uint64_t rows = 0;
        if (sm_ps != LL_NEVER) {
            now_ps = sm_ps;
        } else if (count > 0) {
            now_ps = load_ps;
            job = queue[head];
            if (++head == ll->jobs_max) head = 0;
            count--;
            rows = next_rows(ll, base + job, grid, end);
        } else {
            break;
        }
        if (rows > 0) {
            add_job(r, job, 1, rows * ll->row_bytes, now_ps);
        } else if (ll->block[base + job].token < end) {
            queue[(head + count++) % ll->jobs_max] = job;
            ll->job_ps[job] = now_ps + ll->costs->reduce_chain_ps;
        }
    }
    end_kernel(ll, rank, now_ps);
}

/* All is known that the half depends on: when the rank looks, and when everything is there. */
void ll_receive(struct ll *ll, uint32_t rank)
{
    assert(ll->rank[rank].unarrived == 0 && ll->rank[rank].open_ps != LL_NEVER);
    if (ll->direction == SIM_DISPATCH)
        copy_groups(ll, rank);
    else
        sum_tokens(ll, rank);
}

void ll_flag_landed(struct ll *ll, uint32_t src, uint32_t dst, uint32_t rows, uint64_t land_ps)
{
    struct ll_rank *to = &ll->rank[dst];
    if (land_ps > to->last_land_ps) {
        to->last_land_ps = land_ps;
        to->last_source = src;
    }
    assert(to->unarrived > 0);
    if (ll->direction == SIM_DISPATCH)
        ll->arrival[(size_t)dst * ll->experts + ll->experts - to->unarrived] =
            (struct ll_arrival){land_ps, rows};
    if (--to->unarrived == 0 && to->open_ps != LL_NEVER) ll_receive(ll, dst);
}
