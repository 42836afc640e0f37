/* sim/scenario.h - faults to inject: what happens to one message, or to one rank.
 *
 * Read from YAML, a list under `faults`:
 *
 *   faults:
 *     - { kind: drop, step: 0, layer: 3, stage: dispatch, source: 1, token: 5, expert: 17 }
 *
 * A message is named by its stage, the home rank and index of its token, and the expert (LL) or
 * the peer (normal mode: the other rank; hop 1 by `hop: 1`). What the kinds do:
 *
 *   drop     the message never lands: its row keeps what was there
 *   double   it lands twice, the second time in the place of the next message between the same
 *            two ranks (the last one's copy takes the first's), which is lost
 *   swap     it and the message named by other_source, other_token, other_expert or other_peer
 *            land in each other's place
 *   corrupt  byte `byte` of the row is XORed with `xor`
 *   late     it lands after its receiver has read the buffer
 *   overtake the count that announces it overtakes it: its receiver counts it as there and reads
 *            its row, and of all that the pair of ranks sends it lands last
 *   delay    rank `rank` starts the layer's stage late by `us`
 */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stddef.h>
#include <stdint.h>
#include "sim/traffic.h"

enum sim_fault_kind {
    SIM_FAULT_DROP,
    SIM_FAULT_DOUBLE,
    SIM_FAULT_SWAP,
    SIM_FAULT_CORRUPT,
    SIM_FAULT_LATE,
    SIM_FAULT_DELAY,
    SIM_FAULT_OVERTAKE
};

struct sim_fault_target {
    uint32_t source; /* Home rank of the token. */
    uint32_t token;  /* Its index there. */
    int32_t expert;  /* LL: global expert. -1: not given. */
    int32_t peer;    /* Normal: the rank at the other end. -1: not given. */
};

struct sim_fault {
    enum sim_fault_kind kind;
    uint64_t step;
    uint32_t layer; /* Among the model's MoE layers. */
    enum sim_direction stage;
    uint32_t hop;
    struct sim_fault_target target;
    struct sim_fault_target other; /* swap only. */
    uint32_t byte;                 /* corrupt only: offset in the row. */
    uint32_t xor_mask;             /* corrupt only: 1..255. */
    uint32_t rank;                 /* delay only. */
    uint64_t delay_ps;             /* delay only. */
};

enum { SIM_FAULTS_MAX = 256 };

struct sim_scenario {
    uint32_t count;
    struct sim_fault faults[SIM_FAULTS_MAX];
};

const char *sim_fault_name(enum sim_fault_kind kind); /* As files say it, static. */

/* Read a scenario file. 0, or -1 with "FILE:LINE: what". */
int sim_scenario_load(const char *path, struct sim_scenario *scenario, char *err, size_t err_len);

#endif
