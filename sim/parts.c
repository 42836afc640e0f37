/* sim/parts.c - which number of a machine belongs to which part. */
#include "sim/parts.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* No rate of a machine file comes near: a row of 64 KiB takes less than a picosecond. */
#define FREE_BYTES_PER_S UINT64_C(1000000000000000000)

static const struct {
    const char *name, *text;
} PARTS[SIM_PARTS] = {
    [SIM_PART_LAUNCH] = {"launch", "kernel launch and exit"},
    [SIM_PART_NOTIFY] = {"notify", "count exchange between nodes"},
    [SIM_PART_SYNC] = {"sync", "barriers, flags, polls"},
    [SIM_PART_SM] = {"sm", "casts, copies and sums by SMs"},
    [SIM_PART_NVLINK] = {"nvlink", "NVLink ports and flight"},
    [SIM_PART_NIC] = {"nic", "NICs: line, messages, doorbells, flight"},
    [SIM_PART_FABRIC] = {"fabric", "shared paths, full buffers, other traffic"},
    [SIM_PART_QP] = {"qp", "full queue pairs"},
    [SIM_PART_WAIT] = {"wait", "for ranks launched later"},
    [SIM_PART_OTHER] = {"other", "rounding"},
};

/* A cost that is not listed is work of SMs (a test says that none is forgotten). */
static const struct {
    const char *section, *name;
    enum sim_part part;
} COSTS[] = {
    {"ll", "dispatch_launch_ps", SIM_PART_LAUNCH},
    {"ll", "combine_launch_ps", SIM_PART_LAUNCH},
    {"ll", "block_launch_ps", SIM_PART_LAUNCH},
    {"ll", "grid_barrier_ps", SIM_PART_SYNC},
    {"ll", "expert_pass_ps", SIM_PART_SYNC},
    {"ll", "publish_ps", SIM_PART_SYNC},
    {"ll", "poll_ps", SIM_PART_SYNC},
    {"ll", "post_ps", SIM_PART_NIC},
    {"ll", "doorbell_ps", SIM_PART_NIC},
    {"ll", "nic_flag_ps", SIM_PART_NIC},
    {"ll", "dispatch_path_bytes_per_s", SIM_PART_NVLINK},
    {"ll", "combine_path_bytes_per_s", SIM_PART_NVLINK},
    {"normal", "dispatch_call_ps", SIM_PART_LAUNCH},
    {"normal", "combine_call_ps", SIM_PART_LAUNCH},
    {"normal", "dispatch_kernel_ps", SIM_PART_LAUNCH},
    {"normal", "combine_kernel_ps", SIM_PART_LAUNCH},
    {"normal", "exchange_ps", SIM_PART_NOTIFY},
    {"normal", "exchange_node_ps", SIM_PART_NOTIFY},
    {"normal", "exchange_token_ps", SIM_PART_NOTIFY},
    {"normal", "cached_token_ps", SIM_PART_NOTIFY},
    {"normal", "cached_row_ps", SIM_PART_NOTIFY},
    {"normal", "poll_ps", SIM_PART_SYNC},
    {"normal", "publish_ps", SIM_PART_SYNC},
    {"normal", "put_ps", SIM_PART_NIC},
    {"normal", "link_ppm", SIM_PART_NVLINK},
};

/* Numbers of the machine itself. */
static const struct {
    const char *name;
    size_t offset;
    enum sim_part part;
} FIELDS[] = {
    {"nvlink_goodput_bytes_per_s", offsetof(struct fabric_machine, nvlink_goodput_bytes_per_s),
     SIM_PART_NVLINK},
    {"nvlink_flight_ps", offsetof(struct fabric_machine, nvlink_flight_ps), SIM_PART_NVLINK},
    {"nic_goodput_bytes_per_s", offsetof(struct fabric_machine, nic_goodput_bytes_per_s),
     SIM_PART_NIC},
    {"nic_flight_ps", offsetof(struct fabric_machine, nic_flight_ps), SIM_PART_NIC},
    {"nic_message_ps", offsetof(struct fabric_machine, nic_message_ps), SIM_PART_NIC},
    {"pcie_bytes_per_s", offsetof(struct fabric_machine, pcie_bytes_per_s), SIM_PART_NIC},
    {"switch_hop_ps", offsetof(struct fabric_machine, switch_hop_ps), SIM_PART_FABRIC},
    {"adaptive_ps", offsetof(struct fabric_machine, adaptive_ps), SIM_PART_FABRIC},
};

enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

enum kind { KIND_SPAN, KIND_RATE, KIND_SHARE, KIND_FRACTION, KIND_SIZE };

static bool ends(const char *name, const char *tail)
{
    const size_t length = strlen(name), own = strlen(tail);
    return length >= own && strcmp(name + length - own, tail) == 0;
}

/* A share slows down as it grows, a fraction as it falls. */
static enum kind kind_of(const char *name)
{
    if (ends(name, "_bytes_per_s")) return KIND_RATE;
    if (ends(name, "_ps")) return KIND_SPAN;
    if (strcmp(name, "link_ppm") == 0) return KIND_FRACTION;
    if (ends(name, "_ppm")) return KIND_SHARE;
    return KIND_SIZE;
}

const char *sim_part_name(enum sim_part part)
{
    assert((unsigned)part < SIM_PARTS);
    return PARTS[part].name;
}

const char *sim_part_text(enum sim_part part)
{
    assert((unsigned)part < SIM_PARTS);
    return PARTS[part].text;
}

enum sim_part sim_part_of_cost(size_t index)
{
    size_t count = 0;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    assert(index < count);
    for (size_t i = 0; i < sizeof COSTS / sizeof COSTS[0]; i++)
        if (strcmp(COSTS[i].section, fields[index].section) == 0 &&
            strcmp(COSTS[i].name, fields[index].name) == 0)
            return COSTS[i].part;
    return SIM_PART_SM;
}

static uint64_t *field_at(struct fabric_machine *machine, size_t index)
{
    assert(index < FIELD_COUNT);
    return (uint64_t *)(void *)((char *)machine + FIELDS[index].offset);
}

/* Call change on every number of the part. */
static void change_all(struct fabric_machine *machine, enum sim_part part, uint64_t factor,
                       uint64_t (*change)(const char *name, uint64_t value, uint64_t factor))
{
    size_t count = 0;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++) {
        uint64_t *value = fabric_cost_at(&machine->costs, &fields[i]);
        if (sim_part_of_cost(i) == part) *value = change(fields[i].name, *value, factor);
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        uint64_t *value = field_at(machine, i);
        if (FIELDS[i].part == part) *value = change(FIELDS[i].name, *value, factor);
    }
}

/* A rate of 0 is a part that the machine lacks. */
static uint64_t freed(const char *name, uint64_t value, uint64_t factor)
{
    (void)factor;
    switch (kind_of(name)) {
    case KIND_RATE: return value > 0 ? FREE_BYTES_PER_S : 0;
    case KIND_FRACTION: return 1000000;
    case KIND_SPAN:
    case KIND_SHARE: return 0;
    case KIND_SIZE:
    default: return value;
    }
}

static uint64_t wider(const char *name, uint64_t value, uint64_t factor)
{
    assert(factor >= 1);
    if (kind_of(name) != KIND_RATE || value > FREE_BYTES_PER_S / factor) return value;
    return value * factor;
}

static uint64_t shorter(const char *name, uint64_t value, uint64_t factor)
{
    assert(factor >= 1);
    return kind_of(name) == KIND_SPAN ? value / factor : value;
}

void sim_part_free(struct fabric_machine *machine, enum sim_part part)
{
    change_all(machine, part, 1, freed);
}

void sim_part_scale(struct fabric_machine *machine, enum sim_part part, enum sim_scaled what,
                    uint64_t factor)
{
    if (what != SIM_SCALE_SPANS) change_all(machine, part, factor, wider);
    if (what != SIM_SCALE_RATES) change_all(machine, part, factor, shorter);
}

uint64_t *sim_part_number(struct fabric_machine *machine, const char *mode, size_t index,
                          const char **key)
{
    size_t count = 0;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    if (index < FIELD_COUNT) {
        *key = FIELDS[index].name;
        return field_at(machine, index);
    }
    index -= FIELD_COUNT;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].section, mode) != 0 || index-- > 0) continue;
        *key = fields[i].name;
        return fabric_cost_at(&machine->costs, &fields[i]);
    }
    return NULL;
}

uint64_t sim_part_worse(const char *key, uint64_t value)
{
    switch (kind_of(key)) {
    case KIND_SPAN:
    case KIND_SHARE: return value + value / 10;
    case KIND_RATE:
    case KIND_FRACTION:
    case KIND_SIZE:
    default: return value - value / 10;
    }
}
