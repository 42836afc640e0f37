/* fabric/use.c - the queue in front of a server. */
#include "fabric/use.h"
#include <assert.h>
#include <stddef.h>

void fabric_waiting_init(struct fabric_waiting *waiting, uint64_t *start_ps, uint32_t capacity)
{
    assert(capacity == 0 || start_ps != NULL);
    *waiting = (struct fabric_waiting){.start_ps = start_ps, .capacity = capacity};
}

static uint32_t ring(const struct fabric_waiting *waiting, uint32_t index)
{
    return index < waiting->capacity ? index : index - waiting->capacity;
}

void fabric_waiting_add(struct fabric_waiting *waiting, struct fabric_use *use, uint64_t now_ps,
                        uint64_t start_ps)
{
    assert(start_ps >= now_ps);
    use->stall_ps += start_ps - now_ps;
    if (waiting->capacity == 0) return;
    while (waiting->count > 0 && waiting->start_ps[waiting->oldest] <= now_ps) {
        waiting->oldest = ring(waiting, waiting->oldest + 1);
        waiting->count--;
    }
    if (start_ps == now_ps) return;
    if (waiting->count == waiting->capacity) {
        waiting->oldest = ring(waiting, waiting->oldest + 1);
        waiting->count--;
    }
    waiting->start_ps[ring(waiting, waiting->oldest + waiting->count)] = start_ps;
    waiting->count++;
    if (waiting->count > use->queue_peak) use->queue_peak = waiting->count;
}
