/* sim/threads.h - threads that work on one job together until there is nothing left to take. */
#ifndef SIM_THREADS_H
#define SIM_THREADS_H

#include <stdint.h>

enum { SIM_THREADS_MAX = 64 };

/* asked, or where that is 0 as many as there are cores; from 1 to most. */
uint32_t sim_threads_count(uint32_t asked, uint32_t most);

/* One of the threads, 0 to threads - 1; 0 is the caller's own. */
typedef void (*sim_threads_fn)(void *context, uint32_t thread);

/* Run work on 1 to SIM_THREADS_MAX threads, and return when the last of them has. A thread that
 * cannot be started is done without: no work may count on another thread's. */
void sim_threads_run(uint32_t threads, sim_threads_fn work, void *context);

#endif
