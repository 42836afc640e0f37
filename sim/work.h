/* sim/work.h - what a compute kernel has to do, and how long that takes on so many SMs.
 *
 * A kernel is some fixed time, bytes through HBM, and tensor work in tiles. Memory and tensor
 * cores work side by side; part of the shorter does not hide behind the longer (exposed_ppm).
 * Tiles come in waves: a last wave of one tile takes as long as a full one. Nothing here knows
 * a model or a protocol, and nothing is drawn: the same work takes the same time. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include <stdint.h>
#include "fabric/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sim_work {
    uint64_t fixed_ps;
    uint64_t bytes;         /* Through HBM, at the rate that kernels reach. */
    uint64_t bytes_ppm;     /* Share of that rate that this kernel reaches; 0 = all of it. */
    uint64_t tiles;         /* Equal tiles, one per SM at a time. */
    uint64_t tile_flop;     /* Multiplies and adds of one. */
    uint64_t flop;          /* More that spreads evenly over the SMs. */
    uint64_t sm_flop_per_s; /* Above 0 where tiles or flop are. */
    uint64_t exposed_ppm;
};

/* On sms SMs of machine (1 to its sm_count). Falls, or stays, as sms grows; rounded up to a
 * picosecond, and cut at some days. The machine says its compute section (fabric_machine_computes).
 */
uint64_t sim_work_ps(const struct fabric_machine *machine, const struct sim_work *work,
                     uint32_t sms);

#ifdef __cplusplus
}
#endif

#endif
