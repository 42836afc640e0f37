/* fabric/machine.h - a machine: what a node is made of and what its parts can do.
 *
 * Read from a YAML file (presets are embedded in the binary, any path overrides them). Rates
 * are bytes per second of payload, times are picoseconds; a file may write either in any unit
 * (nvlink_gbytes_per_s: 450, nic_flight_us: 1.8). A file may start from another with
 * `inherits`, and then says only what differs; fabric_machine_row says from whom each number
 * comes. A file that says a line rate and no goodput keeps its parent's share of the line. The ll
 * and normal sections hold the protocols' own costs, compute those of everything else
 * (fabric/costs.h); `stacks: NAME: {ll: ..., normal: ...}` the few that differ between builds of
 * the library (a number that a machine says beats its parents' builds); attention a table of
 * measured times (fabric/attention.h). */
#ifndef FABRIC_MACHINE_H
#define FABRIC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/attention.h"
#include "fabric/costs.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FABRIC_STACKS_MAX = 8,     /* Builds that one machine may know. */
    FABRIC_ORIGINS_MAX = 4,    /* Files in a chain of inherits. */
    FABRIC_MACHINE_FIELDS = 40 /* Numbers below, at most. */
};

/* One build of the library: the costs that differ from the machine's own. */
struct fabric_stack {
    char name[32];
    bool set[FABRIC_COSTS_MAX]; /* By index in fabric_cost_fields(): costs holds this one. */
    struct fabric_costs costs;
};

struct fabric_machine {
    char name[64];            /* The file's, without folder and extension. */
    char inherits[64];        /* "" when the file stands alone. */
    char source[256];         /* Where the datasheet figures come from. */
    char costs_source[256];   /* Where the ll and normal costs come from. */
    uint32_t sm_count;        /* SMs of one GPU. */
    uint32_t gpus_per_node;   /* P: GPUs of one NVLink domain. */
    uint64_t hbm_bytes_per_s; /* Read plus write. */
    uint64_t hbm_bytes;
    uint64_t nvlink_bytes_per_s;         /* Datasheet, per direction and GPU; 0 = no NVLink. */
    uint64_t nvlink_goodput_bytes_per_s; /* What stores reach, per direction and GPU. */
    uint64_t nvlink_flight_ps;           /* Last byte out to last byte visible. */
    uint64_t pcie_bytes_per_s;           /* Per direction and GPU; 0 = not modelled. */
    uint64_t nic_bytes_per_s;            /* Line rate per GPU; 0 = single node only. */
    uint64_t nic_goodput_bytes_per_s;    /* Payload after headers. */
    uint64_t nic_flight_ps;              /* One way: both NICs and a leaf switch. */
    uint64_t nic_message_ps;             /* Per message at the NIC: 1 / message rate. */
    uint64_t gpu_hour_microusd;          /* Price of a GPU for an hour; 0 = not said. */
    uint32_t sm_version;                 /* Compute capability x 10: 90 Hopper; 0 = not said. */
    /* Looked at when a run asks for them (fabric/network.h). */
    uint32_t leaf_nodes;             /* Nodes that share a leaf switch per rail. */
    uint32_t leaf_uplinks;           /* Ports of a leaf that lead to spines. */
    uint64_t switch_hop_ps;          /* A switch and its cable: a way over a spine has two more. */
    uint64_t adaptive_ps;            /* Adaptive routing: more for a message over a spine. */
    uint64_t port_buffer_bytes;      /* What a switch port holds before its senders must. */
    uint64_t congestion_reaction_ps; /* A queue too long to its senders paced. */
    uint64_t paced_ppm;              /* Of a port that its paced senders use together. */
    uint64_t lane_ppm;               /* Weight of our virtual lane beside a busy other one. */
    uint64_t background_burst_bytes; /* The background flow's unit. */
    struct fabric_costs costs;       /* Software and SM costs by protocol, and compute. */
    struct fabric_attention attention; /* Measured attention; rows 0 = none. */

    char stack[32]; /* The build whose costs are in force; "" = the machine's defaults. */
    uint32_t stack_count;
    struct fabric_stack stacks[FABRIC_STACKS_MAX];

    uint32_t origin_count; /* Files read: origins[0] is this one, the last one's inherits is "". */
    char origins[FABRIC_ORIGINS_MAX][64];
    uint8_t field_origin[FABRIC_MACHINE_FIELDS]; /* Index into origins; UINT8_MAX = not said. */
    uint8_t cost_origin[FABRIC_COSTS_MAX];       /* The same, by index in fabric_cost_fields(). */
    uint8_t field_kind[FABRIC_MACHINE_FIELDS];   /* enum fabric_kind, by its file's comment. */
    uint8_t cost_kind[FABRIC_COSTS_MAX];
    /* A goodput: index of the last file whose line rate it was scaled to; UINT8_MAX = of none. */
    uint8_t field_scaled[FABRIC_MACHINE_FIELDS];
};

/* Load NAME (a preset) or a path (anything with a '/' or ending in .yaml). 0, or -1 with err:
 * one line "FILE:LINE: field: value: allowed". *machine is written only on success. */
int fabric_machine_load(const char *name_or_path, struct fabric_machine *machine, char *err,
                        size_t err_len);

/* The same from text in memory: what fabric_machine_load does with a file called name. */
int fabric_machine_parse(const char *name, const char *text, size_t bytes,
                         struct fabric_machine *machine, char *err, size_t err_len);

/* Name of the index-th preset in alphabetical order, NULL behind the last; static storage. */
const char *fabric_machine_preset(size_t index);

/* The text of the preset's file, not ended by a NUL, static; NULL when there is none so named. */
const char *fabric_machine_preset_text(const char *name, size_t *bytes);

/* Pick the software build whose figures to use ("sglang-0.5.6", "deepep-1.2.1", ...): replaces
 * the costs that the file lists under stacks. true when the file knows the name; an unknown
 * one leaves the machine's defaults and returns false. Once per loaded machine. */
bool fabric_machine_select_stack(struct fabric_machine *machine, const char *stack);

/* Does the machine say every number of the compute section? false with one line in err. */
bool fabric_machine_computes(const struct fabric_machine *machine, char *err, size_t err_len);

/* One number of a machine, as `machines` prints it and a file would say it. */
struct fabric_machine_row {
    const char *section; /* "" | "ll" | "normal" | "compute" */
    char key[48];        /* With its unit: "nvlink_gbytes_per_s". */
    char value[40];
    const char *origin; /* The file that says it, borrowed from the machine; "" = nobody: 0. */
    const char *kind;   /* "datasheet", "fitted", ... (fabric/kinds.h); "" = not said. Static. */
    const char *scaled; /* The file whose line rate changed it since, borrowed; "" = none. */
};

/* Row number index of the machine; false when there are no more. */
bool fabric_machine_row(const struct fabric_machine *machine, size_t index,
                        struct fabric_machine_row *row);

#ifdef __cplusplus
}
#endif

#endif
