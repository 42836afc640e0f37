/* sim/exchange.c - an exchange by its protocol, and what a rank's kernels took. */
#include "sim/exchange.h"

#include <assert.h>

uint64_t sim_timing_took_ps(const struct sim_timing *timing, const struct sim_exchange *exchange,
                            uint32_t rank)
{
    assert(rank < timing->ranks && timing->end_ps[rank] >= exchange->start_ps[rank]);
    if (exchange->hook) return timing->send_ps[rank] + timing->recv_ps[rank];
    return timing->end_ps[rank] - exchange->start_ps[rank];
}

int sim_exchange_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                      struct sim_timing *timing, char *err, size_t err_len)
{
    sim_engine_reset(engine);
    if (exchange->traffic->mode == SIM_MODE_LL)
        return sim_ll_time(engine, exchange, timing, err, err_len);
    return sim_normal_time(engine, exchange, timing, err, err_len);
}
