/* fabric/share.c - processor sharing by one virtual clock.
 *
 * The clock counts bytes x 10^12 for one stream, so that a rate in bytes per second times a span
 * in picoseconds is a whole number of its ticks: a stream alone on the server ends at exactly
 * ceil(bytes x 10^12 / rate), the closed form. */
#include "fabric/share.h"
#include <assert.h>
#include <stddef.h>
#include <string.h>

#define PS_PER_S UINT64_C(1000000000000)

/* What a stream gets from now on. Kept, as it changes with the streams alone. */
static inline void set_rate(struct fabric_share *share)
{
    if (share->streams <= share->unshared) {
        share->rate_bytes_per_s = share->stream_bytes_per_s;
        return;
    }
    const uint64_t even = share->capacity_bytes_per_s / share->streams;
    share->rate_bytes_per_s = even > 0 ? even : 1;
}

static inline void advance(struct fabric_share *share, uint64_t now_ps)
{
    assert(now_ps >= share->now_ps);
    if (share->count > 0)
        share->served += (fabric_u128)(now_ps - share->now_ps) * share->rate_bytes_per_s;
    share->now_ps = now_ps;
}

void fabric_share_init(struct fabric_share *share, uint64_t capacity_bytes_per_s,
                       uint64_t stream_bytes_per_s, struct fabric_share_job *jobs, uint32_t max)
{
    assert(capacity_bytes_per_s > 0 && stream_bytes_per_s > 0);
    assert(jobs != NULL || max == 0);
    *share = (struct fabric_share){.capacity_bytes_per_s = capacity_bytes_per_s,
                                   .stream_bytes_per_s = stream_bytes_per_s,
                                   .unshared = capacity_bytes_per_s / stream_bytes_per_s,
                                   .max = max,
                                   .jobs = jobs};
}

void fabric_share_add(struct fabric_share *share, uint64_t now_ps, uint32_t id, uint32_t streams,
                      uint64_t bytes)
{
    assert(share->count < share->max);
    assert(streams > 0 && bytes > 0);
    advance(share, now_ps);
    if (share->count == 0) share->served = 0;
    const struct fabric_share_job job = {share->served + (fabric_u128)bytes * PS_PER_S, id,
                                         streams};
    share->streams += streams;
    set_rate(share);
    if (share->first + share->count == share->max) { /* No room behind the last: move down. */
        memmove(share->jobs, share->jobs + share->first, share->count * sizeof job);
        share->first = 0;
    }
    struct fabric_share_job *at = share->jobs + share->first + share->count++;
    for (; at > share->jobs + share->first && at[-1].end > job.end; at--) *at = at[-1];
    *at = job;
}

/* How long until so much is done for a stream. */
static inline uint64_t span_ps(const struct fabric_share *share, fabric_u128 left)
{
    const uint64_t rate = share->rate_bytes_per_s;
    if (left <= UINT64_MAX - rate) /* Nearly always, and so much dearer otherwise. */
        return ((uint64_t)left + rate - 1) / rate;
    const fabric_u128 span = (left + rate - 1) / rate;
    assert(span <= UINT64_MAX - share->now_ps);
    return (uint64_t)span;
}

uint64_t fabric_share_next_ps(const struct fabric_share *share)
{
    if (share->count == 0) return UINT64_MAX;
    const fabric_u128 end = share->jobs[share->first].end;
    return share->now_ps + (end > share->served ? span_ps(share, end - share->served) : 0);
}

static inline uint32_t take_first(struct fabric_share *share)
{
    const struct fabric_share_job *job = share->jobs + share->first;
    share->streams -= job->streams;
    set_rate(share);
    share->first++;
    share->count--;
    return job->id;
}

int fabric_share_take(struct fabric_share *share, uint64_t now_ps, uint32_t *id)
{
    advance(share, now_ps);
    if (share->count == 0 || share->jobs[share->first].end > share->served) return 0;
    *id = take_first(share);
    return 1;
}

uint64_t fabric_share_pop(struct fabric_share *share, uint64_t until_ps, uint32_t *id)
{
    if (share->count == 0 || share->now_ps > until_ps) return UINT64_MAX;
    const fabric_u128 end = share->jobs[share->first].end;
    if (end > share->served) {
        const fabric_u128 left = end - share->served;
        const fabric_u128 most = (fabric_u128)(until_ps - share->now_ps) * share->rate_bytes_per_s;
        if (left > most) return UINT64_MAX;
        advance(share, share->now_ps + span_ps(share, left));
    }
    *id = take_first(share);
    return share->now_ps;
}
