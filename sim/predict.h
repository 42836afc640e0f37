/* sim/predict.h - the model's answer to every row of a file of measurements.
 *
 * Rows that ask the same question of the same machine (send and receive halves, a repeat) are
 * simulated once. Routing is uniform, drawn from seeds of our own: the measured seeds are not
 * known, so a prediction is the mean over ranks, and over several draws where tokens are few. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "sim/exchange.h"
#include "sim/measured.h"

struct sim_predict_options {
    uint32_t threads; /* 0 = all cores. Does not change a figure. */
    /* Instead of each row's machine by name: machines[i] for row i; NULL = load by name. */
    const struct fabric_machine *const *machines;
    bool roofline;      /* attention: leave the machines' measured tables alone. */
    const bool *wanted; /* [rows]: false = leave predicted_ps[i] alone; NULL = all. */
    /* NULL, or called with the exchange of the first draw of every question, on any thread; its
     * memory lives for the call. 0, or -1 with err, which ends the prediction. */
    int (*observe)(void *context, const struct sim_exchange *exchange, char *err, size_t err_len);
    void *observe_context;
    /* NULL, or called now and then, by one thread at a time: of count questions done are answered.
     */
    void (*progress)(void *context, size_t done, size_t count);
    void *progress_context;
    /* Normal mode's NVLink and RDMA chunk of row i, where NULL and 0 mean the best: on return
     * what it was. A fitter's small steps keep the sizes, which saves the search. */
    uint32_t (*chunks)[2];
};

/* predicted_ps[i] for row i, and floor_ps[i] (NULL: not wanted), which no
 * schedule on that machine can beat (send and receive halves: that of the whole). 0, or -1
 * with err: an unknown machine, a row that no kernel could run. */
int sim_predict(const struct sim_measured *measured, const struct sim_predict_options *options,
                uint64_t *predicted_ps, uint64_t *floor_ps, char *err, size_t err_len);

/* Where to load the machine of that name from: a name or a path. */
typedef const char *(*sim_predict_place_fn)(const void *context, const char *machine);

/* The machines of all rows, loaded once each, with the row's stack selected: out[i] for row i.
 * place NULL: from where the rows say. *pool holds the machines; free it. An unknown machine is an
 * error, an unknown stack is not. */
int sim_predict_machines(const struct sim_measured *measured, sim_predict_place_fn place,
                         const void *context, struct fabric_machine **pool,
                         const struct fabric_machine **out, char *err, size_t err_len);

#endif
