/* sim/threads.c - how many threads, and starting and joining them. */
#include "sim/threads.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

struct hand {
    sim_threads_fn work;
    void *context;
    uint32_t thread;
};

uint32_t sim_threads_count(uint32_t asked, uint32_t most)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t count = asked > 0 ? asked : cores > 0 ? (uint32_t)cores : 1;

    assert(most >= 1);
    return count < most ? count : most;
}

static void *run(void *opaque)
{
    const struct hand *hand = (const struct hand *)opaque;
    hand->work(hand->context, hand->thread);
    return NULL;
}

void sim_threads_run(uint32_t threads, sim_threads_fn work, void *context)
{
    pthread_t started[SIM_THREADS_MAX];
    struct hand hands[SIM_THREADS_MAX];
    uint32_t count = 1;

    assert(threads >= 1 && threads <= SIM_THREADS_MAX && work != NULL);
    for (; count < threads; count++) {
        hands[count] = (struct hand){work, context, count};
        if (pthread_create(&started[count], NULL, run, &hands[count]) != 0) break;
    }
    work(context, 0);
    for (uint32_t t = 1; t < count; t++) {
        const int joined = pthread_join(started[t], NULL);
        assert(joined == 0);
        (void)joined;
    }
}
