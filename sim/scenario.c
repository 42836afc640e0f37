/* sim/scenario.c - reads a scenario file. */
#include "sim/scenario.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/units.h"
#include "fabric/yaml.h"
#include "sim/settings.h"

static const char *const NAMES[] = {"drop", "double", "swap",    "corrupt",
                                    "late", "delay",  "overtake"};

const char *sim_fault_name(enum sim_fault_kind kind)
{
    assert((size_t)kind < sizeof NAMES / sizeof NAMES[0]);
    return NAMES[kind];
}

/* A whole number under key, at most max. A key that is missing keeps *out. */
static int read_number(const struct fabric_yaml *yaml, const struct fabric_yaml_node *fault,
                       const char *key, uint64_t max, uint64_t *out, char *err, size_t err_len)
{
    const struct fabric_yaml_node *node = fabric_yaml_find(fault, key);
    char allowed[96];
    if (node == NULL) return 0;
    if (node->kind == FABRIC_YAML_SCALAR && sim_parse_u64(node->text, 0, max, out) == 0) return 0;
    snprintf(allowed, sizeof allowed, "must be a whole number from 0 to %" PRIu64, max);
    return fabric_yaml_refuse(yaml, node, allowed, err, err_len);
}

static int read_target(const struct fabric_yaml *yaml, const struct fabric_yaml_node *fault,
                       const char *prefix, struct sim_fault_target *target, char *err,
                       size_t err_len)
{
    static const char *const FIELDS[] = {"source", "token", "expert", "peer"};
    uint64_t values[] = {0, 0, INT32_MAX, INT32_MAX}; /* The last two: "not given". */
    for (int i = 0; i < 4; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s%s", prefix, FIELDS[i]);
        if (read_number(yaml, fault, key, INT32_MAX - 1, &values[i], err, err_len) != 0) return -1;
    }
    assert(values[0] < INT32_MAX && values[1] < INT32_MAX);
    *target = (struct sim_fault_target){(uint32_t)values[0], (uint32_t)values[1],
                                        values[2] == INT32_MAX ? -1 : (int32_t)values[2],
                                        values[3] == INT32_MAX ? -1 : (int32_t)values[3]};
    return 0;
}

static int read_kind(const struct fabric_yaml *yaml, const struct fabric_yaml_node *item,
                     struct sim_fault *fault, char *err, size_t err_len)
{
    const struct fabric_yaml_node *kind = fabric_yaml_find(item, "kind");
    const struct fabric_yaml_node *stage = fabric_yaml_find(item, "stage");
    size_t k = 0;

    if (kind == NULL) return fabric_yaml_refuse(yaml, item, "needs a kind", err, err_len);
    while (k < sizeof NAMES / sizeof NAMES[0] &&
           (kind->kind != FABRIC_YAML_SCALAR || strcmp(kind->text, NAMES[k]) != 0))
        k++;
    if (k == sizeof NAMES / sizeof NAMES[0])
        return fabric_yaml_refuse(yaml, kind,
                                  "must be drop, double, swap, corrupt, late, overtake or delay",
                                  err, err_len);
    assert(k < sizeof NAMES / sizeof NAMES[0]);
    fault->kind = (enum sim_fault_kind)k;
    if (stage == NULL) return 0;
    if (stage->kind == FABRIC_YAML_SCALAR && strcmp(stage->text, "combine") == 0)
        fault->stage = SIM_COMBINE;
    else if (stage->kind != FABRIC_YAML_SCALAR || strcmp(stage->text, "dispatch") != 0)
        return fabric_yaml_refuse(yaml, stage, "must be dispatch or combine", err, err_len);
    return 0;
}

/* "us: 12.5": exact picoseconds. */
static int read_delay(const struct fabric_yaml *yaml, const struct fabric_yaml_node *item,
                      uint64_t *delay_ps, char *err, size_t err_len)
{
    const struct fabric_unit microsecond = {1000000, 1};
    const struct fabric_yaml_node *node = fabric_yaml_find(item, "us");
    if (node == NULL) return 0;
    if (node->kind == FABRIC_YAML_SCALAR &&
        fabric_decimal_parse(node->text, microsecond, delay_ps) == FABRIC_DECIMAL_OK &&
        *delay_ps <= UINT64_C(1000000000000000))
        return 0;
    return fabric_yaml_refuse(yaml, node, "must be microseconds, at most 10^9", err, err_len);
}

/* "65" or "0x41". */
static int read_xor(const struct fabric_yaml *yaml, const struct fabric_yaml_node *item,
                    uint32_t *mask, char *err, size_t err_len)
{
    const struct fabric_yaml_node *node = fabric_yaml_find(item, "xor");
    uint64_t value = 0;

    *mask = 1;
    if (node == NULL) return 0;
    const char *text = node->kind == FABRIC_YAML_SCALAR ? node->text : "";
    const bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const size_t digits = hex ? strspn(text + 2, "0123456789abcdefABCDEF") : 0;
    if (hex && digits >= 1 && digits <= 8 && text[2 + digits] == '\0')
        value = strtoull(text, NULL, 16);
    else if (hex || sim_parse_u64(text, 1, 255, &value) != 0)
        value = 0;
    if (value < 1 || value > 255)
        return fabric_yaml_refuse(yaml, node, "must be 1 to 255, or 0x1 to 0xff: a bit changes",
                                  err, err_len);
    assert(value <= UINT8_MAX);
    *mask = (uint32_t)value;
    return 0;
}

/* Fields that the kind has no use for would pass for ones that do something. */
static int check_keys(const struct fabric_yaml *yaml, const struct fabric_yaml_node *item,
                      enum sim_fault_kind kind, char *err, size_t err_len)
{
    enum { ALL = 1, MESSAGE = 2, SWAP = 4, CORRUPT = 8, DELAY = 16 };
    static const struct {
        const char *key;
        int used_by;
    } KEYS[] = {{"kind", ALL},          {"step", ALL},         {"layer", ALL},
                {"stage", ALL},         {"hop", MESSAGE},      {"source", MESSAGE},
                {"token", MESSAGE},     {"expert", MESSAGE},   {"peer", MESSAGE},
                {"other_source", SWAP}, {"other_token", SWAP}, {"other_expert", SWAP},
                {"other_peer", SWAP},   {"byte", CORRUPT},     {"xor", CORRUPT},
                {"rank", DELAY},        {"us", DELAY}};
    const int has = ALL | (kind == SIM_FAULT_DELAY ? DELAY : MESSAGE) |
                    (kind == SIM_FAULT_SWAP ? SWAP : 0) | (kind == SIM_FAULT_CORRUPT ? CORRUPT : 0);

    assert(item->kind == FABRIC_YAML_MAPPING);
    for (const struct fabric_yaml_node *node = item->child; node != NULL; node = node->next) {
        int used_by = 0;
        char why[64];
        for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
            if (strcmp(node->key, KEYS[i].key) == 0) used_by = KEYS[i].used_by;
        if (used_by == 0)
            return fabric_yaml_refuse(yaml, node, "is no field of a fault", err, err_len);
        snprintf(why, sizeof why, "is no field of a fault of kind %s", sim_fault_name(kind));
        if ((used_by & has) == 0) return fabric_yaml_refuse(yaml, node, why, err, err_len);
    }
    return 0;
}

static int read_fault(const struct fabric_yaml *yaml, const struct fabric_yaml_node *item,
                      struct sim_fault *fault, char *err, size_t err_len)
{
    uint64_t step = 0, layer = 0, hop = 0, byte = 0, rank = 0;

    memset(fault, 0, sizeof *fault);
    if (item->kind != FABRIC_YAML_MAPPING)
        return fabric_yaml_refuse(yaml, item, "must be a mapping", err, err_len);
    if (read_kind(yaml, item, fault, err, err_len) != 0 ||
        check_keys(yaml, item, fault->kind, err, err_len) != 0 ||
        read_number(yaml, item, "step", UINT32_MAX, &step, err, err_len) != 0 ||
        read_number(yaml, item, "layer", 1023, &layer, err, err_len) != 0 ||
        read_number(yaml, item, "hop", 1, &hop, err, err_len) != 0 ||
        read_number(yaml, item, "byte", 65535, &byte, err, err_len) != 0 ||
        read_xor(yaml, item, &fault->xor_mask, err, err_len) != 0 ||
        read_number(yaml, item, "rank", SIM_RANKS_MAX - 1, &rank, err, err_len) != 0 ||
        read_target(yaml, item, "", &fault->target, err, err_len) != 0 ||
        read_target(yaml, item, "other_", &fault->other, err, err_len) != 0 ||
        read_delay(yaml, item, &fault->delay_ps, err, err_len) != 0)
        return -1;
    assert(hop <= 1 && rank < SIM_RANKS_MAX);
    fault->step = step;
    fault->layer = (uint32_t)layer;
    fault->hop = (uint32_t)hop;
    fault->byte = (uint32_t)byte;
    fault->rank = (uint32_t)rank;
    return 0;
}

int sim_scenario_load(const char *path, struct sim_scenario *scenario, char *err, size_t err_len)
{
    struct fabric_yaml yaml = {0};
    const struct fabric_yaml_node *list = NULL;
    struct sim_scenario read = {0};
    int status = -1;

    if (fabric_yaml_read(path, &yaml, err, err_len) != 0) return -1;
    if (yaml.root != NULL && yaml.root->kind == FABRIC_YAML_MAPPING)
        list = fabric_yaml_find(yaml.root, "faults");
    if (list == NULL || list->kind != FABRIC_YAML_LIST) {
        snprintf(err, err_len, "%s: needs a list under `faults`", path);
        goto free_yaml;
    }
    for (const struct fabric_yaml_node *item = list->child; item != NULL; item = item->next) {
        if (read.count == SIM_FAULTS_MAX) {
            snprintf(err, err_len, "%s:%" PRIu32 ": more than %d faults", path, item->line,
                     SIM_FAULTS_MAX);
            goto free_yaml;
        }
        if (read_fault(&yaml, item, &read.faults[read.count++], err, err_len) != 0) goto free_yaml;
    }
    *scenario = read;
    status = 0;
free_yaml:
    fabric_yaml_free(&yaml);
    return status;
}
