/* sim/ll_order.c - trains put in order: dealt by time to buckets of about one each, then inserted.
 *
 * They come from many ranks, each in order, hundreds to a rank: comparing them all would take
 * more than the rest of their way. */
#include <assert.h>
#include <string.h>

#include "sim/ll_state.h"

enum { FEW = 16, BUCKETS = 512 };

static void insert_all(struct ll_turn *turns, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (turns[i - 1].at_ps <= turns[i].at_ps) continue;
        const struct ll_turn one = turns[i];
        uint32_t at = i;
        for (; at > 0 && turns[at - 1].at_ps > one.at_ps; at--) turns[at] = turns[at - 1];
        turns[at] = one;
    }
}

/* Low bits of a span that do not tell a bucket. */
static uint32_t shift_of(uint64_t span_ps)
{
    uint32_t shift = 0;
    while (span_ps >> shift >= BUCKETS) shift++;
    return shift;
}

void ll_order(struct ll_turn *turns, struct ll_turn *sorted, uint32_t count)
{
    uint32_t end[BUCKETS + 1] = {0}, most = 0;
    uint64_t first_ps = LL_NEVER, last_ps = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (turns[i].at_ps < first_ps) first_ps = turns[i].at_ps;
        if (turns[i].at_ps > last_ps) last_ps = turns[i].at_ps;
    }
    if (count <= FEW || first_ps == last_ps) {
        memcpy(sorted, turns, count * sizeof *sorted);
        insert_all(sorted, count);
        return;
    }
    const uint32_t shift = shift_of(last_ps - first_ps);
    for (uint32_t i = 0; i < count; i++) end[((turns[i].at_ps - first_ps) >> shift) + 1]++;
    for (uint32_t b = 1; b <= BUCKETS; b++) {
        if (end[b] > most) most = end[b];
        end[b] += end[b - 1];
    }
    assert(end[BUCKETS] == count);
    for (uint32_t i = 0; i < count; i++) /* end[b] is where bucket b starts, and moves on. */
        sorted[end[(turns[i].at_ps - first_ps) >> shift]++] = turns[i];
    if (most <= FEW || shift == 0) {
        insert_all(sorted, count); /* Nothing moves out of its bucket. */
        return;
    }
    for (uint32_t b = 0, start = 0; b < BUCKETS; start = end[b++]) {
        memcpy(turns + start, sorted + start, (end[b] - start) * sizeof *turns);
        ll_order(turns + start, sorted + start, end[b] - start);
    }
}
