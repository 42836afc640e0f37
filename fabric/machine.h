/* fabric/machine.h - a machine: what a node is made of and what its parts can do.
 *
 * Read from a YAML file (presets are embedded in the binary, any path overrides them). Rates
 * are bytes per second of payload, times are picoseconds. A file may start from another with
 * `inherits`, and then says only what differs; `machines` prints from whom a number comes.
 * Fields of the ll and normal sections are the protocols' own costs (sim/ll.c, sim/normal.c);
 * each is one physical quantity with its source in the file. */
#ifndef FABRIC_MACHINE_H
#define FABRIC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/costs.h"

struct fabric_machine {
    char name[64];
    char inherits[64];                 /* "" when the file stands alone. */
    char source[256];                  /* Where the datasheet figures come from. */
    uint32_t sm_count;                 /* SMs of one GPU. */
    uint32_t gpus_per_node;            /* P: GPUs of one NVLink domain. */
    uint64_t hbm_bytes_per_s;          /* Read plus write. */
    uint64_t hbm_bytes;
    uint64_t nvlink_bytes_per_s;       /* Datasheet, per direction and GPU; 0 = no NVLink. */
    uint64_t nvlink_goodput_bytes_per_s; /* What stores reach, per direction and GPU. */
    uint64_t nvlink_flight_ps;         /* Last byte out to last byte visible. */
    uint64_t nic_bytes_per_s;          /* Line rate per GPU; 0 = single node only. */
    uint64_t nic_goodput_bytes_per_s;  /* Payload after headers. */
    uint64_t nic_flight_ps;            /* One way, through leaf and spine. */
    uint64_t nic_message_ps;           /* Per message at the NIC: 1 / message rate. */
    struct fabric_costs costs;         /* Software and SM costs by protocol. */
};

/* Load NAME (a preset) or a path (anything with a '/' or ending in .yaml). 0, or -1 with err:
 * one line "FILE:LINE: field ...: value, allowed". *machine is written only on success. */
int fabric_machine_load(const char *name_or_path, struct fabric_machine *machine, char *err,
                        size_t err_len);

/* Names of the presets in alphabetical order, NULL-terminated; static storage. */
const char *const *fabric_machine_presets(void);

/* Pick the software build whose figures to use ("sglang-0.5.6", "deepep-1.2.1", ...): replaces
 * the costs that the file lists under stacks. true when the file knows the name; an unknown
 * one leaves the machine's defaults and returns false. */
bool fabric_machine_select_stack(struct fabric_machine *machine, const char *stack);

#endif
