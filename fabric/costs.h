/* fabric/costs.h - what software and SMs cost the two protocols on one machine.
 *
 * One struct per protocol, every field a uint64_t with its unit in its name, and one table
 * that names them all: the loader reads the ll and normal sections of a machine file by it,
 * `machines` prints by it, the fitter moves fields by it. A field exists in the table or
 * nowhere: add the member here and its line in costs.c. A file may write it in any unit of
 * its family (fabric/units.h): launch_ps is usually written launch_us. */
#ifndef FABRIC_COSTS_H
#define FABRIC_COSTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Low-latency mode (sim/ll.c). */
struct fabric_ll_costs {
    uint64_t launch_ps; /* Kernel start to first instruction, once per launch. */
};

/* Normal mode (sim/normal.c). */
struct fabric_normal_costs {
    uint64_t launch_ps; /* Kernel start, first barrier and last block's exit: one kernel. */
};

struct fabric_costs {
    struct fabric_ll_costs ll;
    struct fabric_normal_costs normal;
};

struct fabric_cost_field {
    const char *section; /* "ll" | "normal" */
    const char *name;    /* As in the struct: the last word is the unit. */
    size_t offset;       /* Of the uint64_t in struct fabric_costs. */
    uint64_t min, max;   /* Inclusive, in the field's own unit; what a machine file may say. */
};

enum { FABRIC_COSTS_MAX = 128 }; /* Fields in all. */

/* Every cost of every section, sections together. Static storage. */
const struct fabric_cost_field *fabric_cost_fields(size_t *count);

/* NULL when no such field. name is the struct's, not another unit's. */
const struct fabric_cost_field *fabric_cost_find(const char *section, const char *name);

static inline uint64_t *fabric_cost_at(struct fabric_costs *costs,
                                       const struct fabric_cost_field *field)
{
    return (uint64_t *)(void *)((char *)costs + field->offset);
}

#ifdef __cplusplus
}
#endif

#endif
