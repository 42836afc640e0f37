/* sim/widen.h - which resource to widen, what that would give, and on what the answer hangs.
 *
 * Each knob is one thing twice as wide or half as long, the rest as it is; the exchange is then
 * simulated anew, so that what would take over is in the answer. A knob that nothing in the
 * exchange passes through is not simulated: it says why it does nothing. */
#ifndef SIM_WIDEN_H
#define SIM_WIDEN_H

#include "sim/vary.h"

enum sim_widening {
    SIM_WIDEN_NVLINK_RATE,
    SIM_WIDEN_NIC_RATE,
    SIM_WIDEN_NIC_LATENCY, /* Messages, doorbells, work requests, flight. */
    SIM_WIDEN_FABRIC,      /* Nothing between the NICs shared, full or used by others. */
    SIM_WIDEN_SM_SPEED,    /* Loads, stores, casts and sums of every SM. */
    SIM_WIDEN_SMS,         /* Normal: SMs of the kernel. */
    SIM_WIDEN_QP_DEPTH,
    SIM_WIDEN_SYNC,   /* Barriers, flags, polls. */
    SIM_WIDEN_LAUNCH, /* CUDA graphs, fewer blocks. */
    SIM_WIDEN_NOTIFY, /* The count exchange of normal mode. */
    SIM_WIDEN_SKEW,   /* All ranks start together. */
    SIM_WIDENINGS
};

const char *sim_widening_name(enum sim_widening knob); /* "nvlink-rate", ..., static. */
const char *sim_widening_text(enum sim_widening knob); /* For people: "NVLink rate x 2", static. */

/* Why the knob cannot matter to the exchange, static; NULL: it may. */
const char *sim_widening_idle(enum sim_widening knob, const struct sim_exchange *exchange);

/* Why a knob that was turned may make an exchange slower, static. */
const char *sim_widening_slower(void);

/* after_ps[knob]: the slowest rank's time with the knob turned; now_ps where it cannot matter.
 * now_ps: the slowest rank's time as it is. 0, or -1 with err (memory). */
int sim_widen(struct sim_vary_bench *bench, const struct sim_exchange *exchange, uint64_t now_ps,
              uint64_t after_ps[SIM_WIDENINGS], char *err, size_t err_len);

/* A number that the time hangs on. */
struct sim_assumption {
    char key[64];              /* With section and unit: "ll.publish_us"; or "--skew". */
    char value[40];            /* In that unit, or as given. */
    char kind[24];             /* fabric_kind_name, or "option of the run". */
    char origin[64];           /* The machine file that says it; "" = nobody, or an option. */
    uint64_t now_ps, worse_ps; /* Times summed over the exchanges asked about: as it is, and with
                                  the number a tenth worse. */
};

enum { SIM_ASSUMPTIONS = 3 };

/* The numbers with the largest effect, largest first, over count exchanges of one machine and mode:
 * every number of the machine in turn is made a tenth worse, and skew, the run's option as given,
 * if it is not NULL. now_ps[i]: the slowest rank's time of exchanges[i]. Returns how many were
 * found (those without effect are not), or -1 with err. */
int sim_assumptions(struct sim_vary_bench *bench, const struct sim_exchange *exchanges,
                    const uint64_t *now_ps, size_t count, const char *skew,
                    struct sim_assumption *out, char *err, size_t err_len);

#endif
