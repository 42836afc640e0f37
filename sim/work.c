/* sim/work.c - the time of one compute kernel. */
#include "sim/work.h"

#include <assert.h>

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { PPM = 1000000 };
#define PS_PER_S UINT64_C(1000000000000)
#define WORK_PS_MAX                                                                                \
    (UINT64_C(1) << 57) /* 40 hours: what machine files from strangers add up to.                  \
                         */

static uint64_t quotient_ps(u128 amount, u128 per_s)
{
    assert(per_s > 0);
    const u128 ps = (amount * PS_PER_S + per_s - 1) / per_s;
    return ps < WORK_PS_MAX ? (uint64_t)ps : WORK_PS_MAX;
}

/* All SMs together are held by the memory, few SMs by what each of them can pull. */
static uint64_t memory_ps(const struct fabric_machine *machine, const struct sim_work *work,
                          uint32_t sms)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    u128 rate = (u128)machine->hbm_bytes_per_s * costs->hbm_ppm / PPM;
    const u128 pulled = (u128)sms * costs->sm_stream_bytes_per_s;
    if (work->bytes_ppm > 0) rate = rate * work->bytes_ppm / PPM;
    if (work->bytes == 0) return 0;
    if (rate > pulled) rate = pulled;
    return quotient_ps(work->bytes, rate > 0 ? rate : 1);
}

static uint64_t tensor_ps(const struct sim_work *work, uint32_t sms)
{
    const u128 waves = (work->tiles + sms - 1) / sms;
    if (work->tiles == 0 && work->flop == 0) return 0;
    assert(work->sm_flop_per_s > 0);
    return quotient_ps(waves * work->tile_flop, work->sm_flop_per_s) +
           quotient_ps(work->flop, (u128)sms * work->sm_flop_per_s);
}

uint64_t sim_work_ps(const struct fabric_machine *machine, const struct sim_work *work,
                     uint32_t sms)
{
    assert(sms >= 1 && sms <= machine->sm_count);
    assert(work->exposed_ppm <= PPM);
    const uint64_t memory = memory_ps(machine, work, sms);
    const uint64_t tensor = tensor_ps(work, sms);
    const uint64_t longer = memory > tensor ? memory : tensor;
    const uint64_t shorter = memory > tensor ? tensor : memory;
    return work->fixed_ps + longer + (uint64_t)((u128)shorter * work->exposed_ppm / PPM);
}
