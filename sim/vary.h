/* sim/vary.h - the same exchange again, with something in it changed: true counterfactuals.
 *
 * A question is an exchange and what differs in it; the answer is simulated, not estimated. Many
 * questions are answered at once, on several threads; an answer depends on its question alone. */
#ifndef SIM_VARY_H
#define SIM_VARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/exchange.h"
#include "sim/parts.h"

struct sim_variation {
    uint32_t free_parts;      /* Bits 1 << enum sim_part: these cost nothing. */
    enum sim_part scale_part; /* With scale above 1: this part is so many times as fast. */
    uint32_t scale;           /* 0 or 1: nothing. */
    enum sim_scaled scaled;
    uint32_t sms;      /* Normal: SMs instead; 0 = as they are. */
    uint32_t qp_depth; /* LL: depth instead; 0 = as it is. */
    uint32_t number;   /* 1 + index of sim_part_number that is a tenth worse; 0 = none. */
    bool more_skew;    /* Start times a tenth further apart. */
};

struct sim_vary_bench; /* Threads' engines and memory, kept from call to call. */

/* threads: 0 = all cores. NULL with err when memory is short. */
struct sim_vary_bench *sim_vary_open(uint32_t threads, char *err, size_t err_len);
void sim_vary_close(struct sim_vary_bench *bench); /* NULL is fine. */

/* took_ps[i * ranks + r]: what rank r's kernels take when questions[i] holds. Both modes; normal
 * mode keeps the exchange's chunk sizes, so give them. 0, or -1 with err (memory). */
int sim_vary_times(struct sim_vary_bench *bench, const struct sim_exchange *exchange,
                   const struct sim_variation *questions, size_t count, uint64_t *took_ps,
                   char *err, size_t err_len);

#endif
