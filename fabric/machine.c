/* fabric/machine.c - machine files into struct fabric_machine.
 *
 * The files of a chain of inherits are parsed child first, then applied parent first, so that
 * the later word wins; checks that need the whole machine come last. */
#include "fabric/machine.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "fabric/fields.h"
#include "fabric/kinds.h"
#include "fabric/units.h"
#include "fabric/yaml.h"
#include "gen/embedded.h"

#define RATE_MAX UINT64_C(100000000000000) /* 100 TB/s: nothing in a GPU is faster. */
#define RATE_LEAST UINT64_C(1000000)
#define PS_MAX UINT64_C(1000000000000) /* One second: no latency here is longer. */
#define HBM_MAX (UINT64_C(1) << 44)    /* 16 TiB. */

#define FIELD(name, min, max, required)                                                            \
    FABRIC_FIELD(struct fabric_machine, name, min, max, required)

static const struct fabric_field fields[] = {
    FIELD(sm_count, 1, 4096, true),
    FIELD(gpus_per_node, 1, 1024, true),
    FIELD(hbm_bytes_per_s, 1, RATE_MAX, true),
    FIELD(hbm_bytes, 1, HBM_MAX, true),
    FIELD(nvlink_bytes_per_s, 0, RATE_MAX, true),
    FIELD(nvlink_goodput_bytes_per_s, 0, RATE_MAX, true),
    FIELD(nvlink_flight_ps, 0, PS_MAX, true),
    FIELD(pcie_bytes_per_s, 0, RATE_MAX, false),
    FIELD(nic_bytes_per_s, 0, RATE_MAX, true),
    FIELD(nic_goodput_bytes_per_s, 0, RATE_MAX, true),
    FIELD(nic_flight_ps, 0, PS_MAX, true),
    FIELD(nic_message_ps, 0, PS_MAX, true),
    FIELD(sm_version, 10, 999, false),
    FIELD(leaf_nodes, 1, 65536, false),
    FIELD(leaf_uplinks, 1, 1024, false),
    FIELD(switch_hop_ps, 0, PS_MAX, false),
    FIELD(adaptive_ps, 0, PS_MAX, false),
    FIELD(port_buffer_bytes, 1, HBM_MAX, false),
    FIELD(congestion_reaction_ps, 0, PS_MAX, false),
    FIELD(paced_ppm, 1, 1000000, false),
    FIELD(lane_ppm, 1, 1000000, false),
    FIELD(background_burst_bytes, 1, HBM_MAX, false),
    FIELD(gpu_hour_microusd, 0, UINT64_C(1000000000000), false), /* At most a million dollars. */
};
enum { FIELDS = sizeof fields / sizeof fields[0] };
_Static_assert(sizeof fields / sizeof fields[0] <= (size_t)FABRIC_MACHINE_FIELDS,
               "field_origin is too short");

/* Links whose goodput is a share of their line rate. */
static const struct {
    const char *line, *goodput;
} LINKS[] = {{"nvlink_bytes_per_s", "nvlink_goodput_bytes_per_s"},
             {"nic_bytes_per_s", "nic_goodput_bytes_per_s"}};
enum { LINK_COUNT = sizeof LINKS / sizeof LINKS[0] };

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

static size_t find_field(const char *name)
{
    size_t i = 0;
    while (strcmp(fields[i].name, name) != 0) i++;
    assert(i < FIELDS);
    return i;
}

struct chain { /* A file and those it inherits from, child first. */
    struct fabric_yaml files[FABRIC_ORIGINS_MAX];
    size_t count;
};

static const struct embedded_file *preset_find(const char *name)
{
    for (const struct embedded_file *file = embedded_machines; file->name; file++)
        if (strcmp(file->name, name) == 0) return file;
    return NULL;
}

static int refuse_unknown_preset(const char *name, char *err, size_t err_len)
{
    size_t used = (size_t)snprintf(err, err_len, "machine %.64s: unknown; there are", name);
    for (const struct embedded_file *file = embedded_machines; file->name; file++)
        if (used < err_len) used += (size_t)snprintf(err + used, err_len - used, " %s", file->name);
    return -1;
}

static int read_file(const char *name_or_path, struct fabric_yaml *yaml, char *err, size_t err_len)
{
    char name[80];
    if (fabric_yaml_is_path(name_or_path))
        return fabric_yaml_read(name_or_path, yaml, err, err_len);
    const struct embedded_file *preset = preset_find(name_or_path);
    if (!preset) return refuse_unknown_preset(name_or_path, err, err_len);
    snprintf(name, sizeof name, "%s.yaml", preset->name);
    return fabric_yaml_parse(name, preset->text, preset->bytes, yaml, err, err_len);
}

/* The file that the last one of the chain inherits from: a preset, or a path that is relative
 * to the folder of the file naming it. */
static int read_parent(struct chain *chain, const struct fabric_yaml_node *inherits, char *err,
                       size_t err_len)
{
    assert(chain->count >= 1 && chain->count <= FABRIC_ORIGINS_MAX);
    const struct fabric_yaml *child = &chain->files[chain->count - 1];
    char parent[64];
    char path[sizeof child->name + sizeof parent];
    if (fabric_yaml_text(child, inherits, parent, sizeof parent, err, err_len) != 0) return -1;
    if (chain->count == FABRIC_ORIGINS_MAX)
        return fabric_yaml_refuse(child, inherits, "at most 4 files may inherit in a row", err,
                                  err_len);
    const char *slash = strrchr(child->name, '/');
    const int folder = fabric_yaml_is_path(parent) && parent[0] != '/' && slash
                           ? (int)(slash - child->name) + 1
                           : 0;
    snprintf(path, sizeof path, "%.*s%s", folder, child->name, parent);
    if (!fabric_yaml_is_path(path) && !preset_find(path))
        return fabric_yaml_refuse(child, inherits, "no such machine", err, err_len);
    if (read_file(path, &chain->files[chain->count], err, err_len) != 0) return -1;
    chain->count++;
    return 0;
}

static int read_costs(const struct fabric_yaml *yaml, const struct fabric_yaml_node *section,
                      struct fabric_costs *costs, bool *set, char *err, size_t err_len)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);
    bool said[FABRIC_COSTS_MAX] = {false};
    struct fabric_unit unit;

    assert(count <= FABRIC_COSTS_MAX);
    if (section->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, section, "must hold fields", err, err_len);
    for (const struct fabric_yaml_node *node = section->child; node; node = node->next) {
        size_t i = 0;
        while (i < count && (strcmp(all[i].section, section->key) != 0 ||
                             !fabric_unit_match(all[i].name, node->key, &unit)))
            i++;
        if (i == count) return fabric_yaml_refuse(yaml, node, "unknown field", err, err_len);
        if (said[i])
            return fabric_yaml_refuse(yaml, node, "said twice, in two units", err, err_len);
        said[i] = set[i] = true;
        if (fabric_yaml_number(yaml, node, all[i].name, all[i].min, all[i].max,
                               fabric_cost_at(costs, &all[i]), err, err_len) != 0)
            return -1;
    }
    return 0;
}

static bool is_cost_section(const char *key)
{
    return strcmp(key, "ll") == 0 || strcmp(key, "normal") == 0 || strcmp(key, "compute") == 0;
}

static int read_stack(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      struct fabric_machine *machine, char *err, size_t err_len)
{
    struct fabric_stack *stack = machine->stacks;
    const struct fabric_stack *end = machine->stacks + machine->stack_count;
    assert(machine->stack_count <= FABRIC_STACKS_MAX);
    while (stack < end && strcmp(stack->name, node->key) != 0) stack++;
    if (node->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, node, "must hold ll, normal or compute", err, err_len);
    if (strlen(node->key) >= sizeof stack->name || node->key[0] == '\0')
        return fabric_yaml_refuse(yaml, node, "a stack's name has 1 to 31 bytes", err, err_len);
    if (stack == end && machine->stack_count == FABRIC_STACKS_MAX)
        return fabric_yaml_refuse(yaml, node, "more than 8 stacks", err, err_len);
    if (stack == end) {
        snprintf(stack->name, sizeof stack->name, "%s", node->key);
        machine->stack_count++;
    }
    for (const struct fabric_yaml_node *part = node->child; part; part = part->next) {
        if (!is_cost_section(part->key))
            return fabric_yaml_refuse(yaml, part, "unknown field", err, err_len);
        if (read_costs(yaml, part, &stack->costs, stack->set, err, err_len) != 0) return -1;
    }
    return 0;
}

static int read_section(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                        struct fabric_machine *machine, uint8_t origin, char *err, size_t err_len)
{
    bool set[FABRIC_COSTS_MAX] = {false};
    if (read_costs(yaml, node, &machine->costs, set, err, err_len) != 0) return -1;
    for (size_t i = 0; i < FABRIC_COSTS_MAX; i++) {
        if (!set[i]) continue;
        machine->cost_origin[i] = origin;
        /* What its parents' builds say of it they say of another machine. */
        for (uint32_t s = 0; s < machine->stack_count; s++) machine->stacks[s].set[i] = false;
    }
    return 0;
}

/* The builds of one file, over those of its parents. */
static int apply_stacks(const struct fabric_yaml *yaml, struct fabric_machine *machine, char *err,
                        size_t err_len)
{
    const struct fabric_yaml_node *stacks = fabric_yaml_find(yaml->root, "stacks");
    if (!stacks) return 0;
    if (stacks->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, stacks, "must hold stacks by name", err, err_len);
    for (const struct fabric_yaml_node *stack = stacks->child; stack; stack = stack->next)
        if (read_stack(yaml, stack, machine, err, err_len) != 0) return -1;
    return 0;
}

/* One file over what its parents said; its builds last, wherever they stand. */
static int apply_fields(const struct fabric_yaml *yaml, struct fabric_machine *machine,
                        uint8_t origin, char *err, size_t err_len)
{
    for (const struct fabric_yaml_node *node = yaml->root->child; node; node = node->next) {
        int result;
        if (strcmp(node->key, "stacks") == 0) continue;
        if (strcmp(node->key, "inherits") == 0)
            result = fabric_yaml_text(yaml, node, machine->inherits, sizeof machine->inherits, err,
                                      err_len);
        else if (strcmp(node->key, "source") == 0)
            result =
                fabric_yaml_text(yaml, node, machine->source, sizeof machine->source, err, err_len);
        else if (strcmp(node->key, "costs_source") == 0)
            result = fabric_yaml_text(yaml, node, machine->costs_source,
                                      sizeof machine->costs_source, err, err_len);
        else if (strcmp(node->key, "attention") == 0)
            result = fabric_attention_read(yaml, node, &machine->attention, err, err_len);
        else if (is_cost_section(node->key))
            result = read_section(yaml, node, machine, origin, err, err_len);
        else
            result = fabric_field_read(yaml, node, fields, FIELDS, machine, machine->field_origin,
                                       origin, err, err_len);
        if (result != 0) return -1;
    }
    return apply_stacks(yaml, machine, err, err_len);
}

/* A file that says a line rate and no goodput says it of a link that is like its parent's. */
static int apply(const struct fabric_yaml *yaml, struct fabric_machine *machine, uint8_t origin,
                 char *err, size_t err_len)
{
    uint64_t line_before[LINK_COUNT];

    for (size_t i = 0; i < LINK_COUNT; i++)
        line_before[i] = fabric_field_get(&fields[find_field(LINKS[i].line)], machine);
    if (apply_fields(yaml, machine, origin, err, err_len) != 0) return -1;
    for (size_t i = 0; i < LINK_COUNT; i++) {
        const size_t line = find_field(LINKS[i].line), goodput = find_field(LINKS[i].goodput);
        if (machine->field_origin[goodput] == origin) /* Its own word, not a share. */
            machine->field_scaled[goodput] = FABRIC_FIELD_UNSAID;
        else if (machine->field_origin[line] == origin && line_before[i] > 0) {
            const u128 product = (u128)fabric_field_get(&fields[goodput], machine) *
                                 fabric_field_get(&fields[line], machine);
            assert(product / line_before[i] <= RATE_MAX);
            fabric_field_set(&fields[goodput], machine, (uint64_t)(product / line_before[i]));
            machine->field_scaled[goodput] = origin;
        }
    }
    return 0;
}

/* 0 where the link's goodput lies above 0 and within its line rate, or where both are 0. */
static int check_link(const struct chain *chain, const struct fabric_machine *machine, size_t link,
                      char *err, size_t err_len)
{
    const size_t line = find_field(LINKS[link].line), goodput = find_field(LINKS[link].goodput);
    const uint64_t line_rate = fabric_field_get(&fields[line], machine);
    const uint64_t rate = fabric_field_get(&fields[goodput], machine);
    const uint8_t line_file = machine->field_origin[line], file = machine->field_origin[goodput];
    const struct fabric_yaml_node *line_word =
        fabric_kind_word(&chain->files[line_file], "", LINKS[link].line);
    const struct fabric_yaml_node *word =
        fabric_kind_word(&chain->files[file], "", LINKS[link].goodput);
    struct fabric_unit unit = {1, 1};
    char most[40], allowed[320];

    assert(line_word && word);
    if (rate <= line_rate && (rate > 0 || line_rate == 0)) return 0;
    if (rate == 0 && line_file < file) { /* The child has a link, its parents have none. */
        snprintf(allowed, sizeof allowed,
                 "needs %.48s beside it: %.64s has no such link whose share it could be", word->key,
                 machine->origins[file]);
        return fabric_yaml_refuse(&chain->files[line_file], line_word, allowed, err, err_len);
    }
    (void)fabric_unit_match(LINKS[link].goodput, word->key, &unit);
    fabric_decimal_format(line_rate, unit, most, sizeof most);
    snprintf(allowed, sizeof allowed,
             "must lie above 0 and not above the line rate, %.48s: %.24s of %.64s, here %s: say "
             "another, or leave it out to keep the parent's share",
             line_word->key, line_word->text, machine->origins[line_file], most);
    return fabric_yaml_refuse(&chain->files[file], word, allowed, err, err_len);
}

/* A link so slow that the unit must be wrong: its times might not fit 64 bits. */
static int check_slow(const struct chain *chain, const struct fabric_machine *machine, char *err,
                      size_t err_len)
{
    const char *const rates[] = {LINKS[0].line, LINKS[0].goodput, LINKS[1].line, LINKS[1].goodput,
                                 "pcie_bytes_per_s"};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const size_t field = find_field(rates[i]);
        const uint64_t rate = fabric_field_get(&fields[field], machine);
        const uint8_t file = machine->field_origin[field];
        if (rate == 0 || rate >= RATE_LEAST || file == FABRIC_FIELD_UNSAID) continue;
        return fabric_yaml_refuse(
            &chain->files[file], fabric_kind_word(&chain->files[file], "", rates[i]),
            "at least 1 MB/s, or 0 for no such link; is the unit right?", err, err_len);
    }
    return 0;
}

/* A cost that nobody says would read as free, or divide by 0. */
static int check_costs(const char *file, const struct fabric_machine *machine, char *err,
                       size_t err_len)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++) {
        char key[48], value[40];
        /* Without compute a machine still times the exchange; fabric_machine_computes tells. */
        if (machine->cost_origin[i] != FABRIC_FIELD_UNSAID ||
            strcmp(all[i].section, "compute") == 0)
            continue;
        fabric_unit_display(all[i].name, 0, key, sizeof key, value, sizeof value);
        snprintf(err, err_len, "%s: %s: %s: missing", file, all[i].section, key);
        return -1;
    }
    return 0;
}

/* What no single field shows. */
static int check(const struct chain *chain, const struct fabric_machine *machine, char *err,
                 size_t err_len)
{
    const char *file = chain->files[0].name;
    if (fabric_field_check(file, fields, FIELDS, machine->field_origin, err, err_len) != 0)
        return -1;
    if (check_costs(file, machine, err, err_len) != 0) return -1;
    for (size_t i = 0; i < LINK_COUNT; i++)
        if (check_link(chain, machine, i, err, err_len) != 0) return -1;
    if (check_slow(chain, machine, err, err_len) != 0) return -1;
    if (machine->gpus_per_node > 1 && machine->nvlink_bytes_per_s == 0 &&
        machine->nic_bytes_per_s == 0) {
        snprintf(err, err_len, "%s: gpus_per_node: %u: neither NVLink nor NIC joins the GPUs", file,
                 machine->gpus_per_node);
        return -1;
    }
    return 0;
}

static void note_kinds(const struct chain *chain, struct fabric_machine *machine)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);

    for (size_t i = 0; i < FIELDS; i++)
        if (machine->field_origin[i] != FABRIC_FIELD_UNSAID)
            machine->field_kind[i] = (uint8_t)fabric_kind_of(
                &chain->files[machine->field_origin[i]], "", fields[i].name);
    for (size_t i = 0; i < count; i++)
        if (machine->cost_origin[i] != FABRIC_FIELD_UNSAID)
            machine->cost_kind[i] = (uint8_t)fabric_kind_of(&chain->files[machine->cost_origin[i]],
                                                            all[i].section, all[i].name);
}

/* chain holds the child; read its parents and build the machine. Frees the chain. */
static int build(struct chain *chain, struct fabric_machine *machine, char *err, size_t err_len)
{
    struct fabric_machine made = {.name = ""};
    const struct fabric_yaml_node *inherits;
    int result = -1;

    memset(made.field_origin, FABRIC_FIELD_UNSAID, sizeof made.field_origin);
    memset(made.field_scaled, FABRIC_FIELD_UNSAID, sizeof made.field_scaled);
    memset(made.cost_origin, FABRIC_FIELD_UNSAID, sizeof made.cost_origin);
    do {
        const struct fabric_yaml *file = &chain->files[chain->count - 1];
        if (file->root->kind != FABRIC_YAML_MAPPING) {
            fabric_yaml_refuse(file, file->root, "a machine file holds fields", err, err_len);
            goto free_chain;
        }
        fabric_yaml_stem(file->name, made.origins[made.origin_count++], sizeof made.origins[0]);
        inherits = fabric_yaml_find(file->root, "inherits");
        if (inherits && read_parent(chain, inherits, err, err_len) != 0) goto free_chain;
    } while (inherits);
    assert(made.origin_count == chain->count);
    for (size_t i = chain->count; i-- > 0;) {
        made.inherits[0] = '\0';
        if (apply(&chain->files[i], &made, (uint8_t)i, err, err_len) != 0) goto free_chain;
    }
    note_kinds(chain, &made);
    snprintf(made.name, sizeof made.name, "%s", made.origins[0]);
    result = check(chain, &made, err, err_len);
    if (result == 0) *machine = made;
free_chain:
    for (size_t i = 0; i < chain->count; i++) fabric_yaml_free(&chain->files[i]);
    return result;
}

int fabric_machine_load(const char *name_or_path, struct fabric_machine *machine, char *err,
                        size_t err_len)
{
    struct chain chain = {.count = 1};
    if (read_file(name_or_path, &chain.files[0], err, err_len) != 0) return -1;
    return build(&chain, machine, err, err_len);
}

int fabric_machine_parse(const char *name, const char *text, size_t bytes,
                         struct fabric_machine *machine, char *err, size_t err_len)
{
    struct chain chain = {.count = 1};
    if (fabric_yaml_parse(name, text, bytes, &chain.files[0], err, err_len) != 0) return -1;
    return build(&chain, machine, err, err_len);
}

const char *fabric_machine_preset(size_t index)
{
    /* The build lists files by file name, where h800-hgx-nonvl.yaml precedes h800-hgx.yaml. */
    for (const struct embedded_file *file = embedded_machines; file->name; file++) {
        size_t earlier = 0;
        for (const struct embedded_file *other = embedded_machines; other->name; other++)
            if (strcmp(other->name, file->name) < 0) earlier++;
        if (earlier == index) return file->name;
    }
    return NULL;
}

const char *fabric_machine_preset_text(const char *name, size_t *bytes)
{
    const struct embedded_file *file = preset_find(name);
    *bytes = file ? file->bytes : 0;
    return file ? file->text : NULL;
}

bool fabric_machine_select_stack(struct fabric_machine *machine, const char *stack)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);
    assert(machine->stack[0] == '\0');
    for (uint32_t s = 0; s < machine->stack_count; s++) {
        struct fabric_stack *known = &machine->stacks[s];
        if (strcmp(known->name, stack) != 0) continue;
        for (size_t i = 0; i < count; i++)
            if (known->set[i])
                *fabric_cost_at(&machine->costs, &all[i]) = *fabric_cost_at(&known->costs, &all[i]);
        snprintf(machine->stack, sizeof machine->stack, "%s", known->name);
        return true;
    }
    return false;
}

bool fabric_machine_computes(const struct fabric_machine *machine, char *err, size_t err_len)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++) {
        char key[48], value[40];
        if (machine->cost_origin[i] != FABRIC_FIELD_UNSAID ||
            strcmp(all[i].section, "compute") != 0)
            continue;
        fabric_unit_display(all[i].name, 0, key, sizeof key, value, sizeof value);
        snprintf(err, err_len,
                 "machine %s: compute: %s: missing, and without it a step has no time",
                 machine->name, key);
        return false;
    }
    return true;
}

bool fabric_machine_row(const struct fabric_machine *machine, size_t index,
                        struct fabric_machine_row *row)
{
    size_t count;
    const struct fabric_cost_field *all = fabric_cost_fields(&count);
    if (index >= FIELDS + count) return false;

    const char *name;
    uint64_t value;
    uint8_t origin, kind, scaled = FABRIC_FIELD_UNSAID;
    if (index < FIELDS) {
        scaled = machine->field_scaled[index];
        row->section = "";
        name = fields[index].name;
        value = fabric_field_get(&fields[index], machine);
        origin = machine->field_origin[index];
        kind = machine->field_kind[index];
    } else {
        const struct fabric_cost_field *cost = &all[index - FIELDS];
        row->section = cost->section;
        name = cost->name;
        memcpy(&value, (const char *)&machine->costs + cost->offset, sizeof value);
        origin = machine->cost_origin[index - FIELDS];
        kind = machine->cost_kind[index - FIELDS];
    }
    fabric_unit_display(name, value, row->key, sizeof row->key, row->value, sizeof row->value);
    assert(origin == FABRIC_FIELD_UNSAID || origin < machine->origin_count);
    row->origin = origin == FABRIC_FIELD_UNSAID ? "" : machine->origins[origin];
    row->kind = fabric_kind_name((enum fabric_kind)kind);
    row->scaled = scaled == FABRIC_FIELD_UNSAID ? "" : machine->origins[scaled];
    return true;
}
