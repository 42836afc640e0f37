/* sim/case_table.c - reads a table of cases: one line a case, one line a forbidden pair. */
#include "sim/case_table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/embedded.h"
#include "ref/sizes.h"
#include "sim/settings.h"

enum { LINE_BYTES = 256, FIELDS = 12, CAPACITY_UNIT = 128, NORMAL_SMS = 20, HIDDEN_MAX = 16384 };

/* In the order of enum sim_case_axis; the table's columns are these, between name and the rest. */
static const struct {
    const char *name;
    const char *values[SIM_AXIS_VALUES_MAX];
} AXES[SIM_AXES] = {
    {"ep", {"1", "2", "4", "8", "16", "32", "64"}},
    {"mode", {"ll", "normal"}},
    {"recipe", {"bf16", "fp8", "fp8r", "ue8m0"}},
    {"tokens", {"0", "1", "7", "128", "1024", "unequal"}},
    {"hidden", {"2048", "2560", "3072", "4096", "5120", "6144", "7168", "8192"}},
    {"topk", {"1", "2", "4", "6", "8", "9", "11"}},
    {"kind", {"uniform", "masked", "hot", "empty", "duplicates", "special", "floor"}},
};

const char *sim_axis_name(enum sim_case_axis axis)
{
    assert((unsigned)axis < SIM_AXES);
    return AXES[axis].name;
}

const char *const *sim_axis_values(enum sim_case_axis axis)
{
    assert((unsigned)axis < SIM_AXES);
    return AXES[axis].values;
}

static int parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    uint64_t value = 0;

    if (sim_parse_u64(text, min, max, &value) != 0) return -1;
    *out = (uint32_t)value;
    return 0;
}

/* The value's place among the axis's, or -1. */
static int value_index(enum sim_case_axis axis, const char *text)
{
    assert((unsigned)axis < SIM_AXES);
    for (int i = 0; AXES[axis].values[i] != NULL; i++)
        if (strcmp(AXES[axis].values[i], text) == 0) return i;
    return -1;
}

int sim_case_set(struct sim_table_case *table_case, enum sim_case_axis axis, const char *value,
                 char *err, size_t err_len)
{
    const int index = value_index(axis, value);
    const char *allowed = NULL;

    switch (axis) {
    case SIM_AXIS_EP:
        if (parse_u32(value, 1, SIM_CASE_RANKS_MAX, &table_case->ep) != 0) allowed = "1 to 64";
        break;
    case SIM_AXIS_MODE:
        table_case->mode = index == 1 ? SIM_MODE_NORMAL : SIM_MODE_LL;
        if (index < 0) allowed = "ll or normal";
        break;
    case SIM_AXIS_RECIPE:
        if (!ref_recipe_parse(value, &table_case->recipe))
            allowed = "bf16, fp8, fp8r, ue8m0 or a recipe's own name";
        break;
    case SIM_AXIS_TOKENS:
        table_case->tokens = SIM_CASE_UNEQUAL;
        if (strcmp(value, "unequal") != 0 && parse_u32(value, 0, 8192, &table_case->tokens) != 0)
            allowed = "unequal, or 0 to 8192";
        break;
    case SIM_AXIS_HIDDEN:
        if (parse_u32(value, 128, HIDDEN_MAX, &table_case->hidden) != 0) allowed = "128 to 16384";
        break;
    case SIM_AXIS_TOPK:
        if (parse_u32(value, 1, REF_TOPK_MAX, &table_case->topk) != 0) allowed = "1 to 32";
        break;
    case SIM_AXIS_KIND:
        table_case->kind = (enum sim_case_kind)(index < 0 ? 0 : index);
        if (index < 0) allowed = "uniform, masked, hot, empty, duplicates, special or floor";
        break;
    case SIM_AXES: assert(!"an axis"); break;
    }
    if (allowed != NULL || strlen(value) >= sizeof table_case->value[axis]) {
        snprintf(err, err_len, "%s: %.32s: must be %s", AXES[axis].name, value,
                 allowed != NULL ? allowed : "shorter");
        return -1;
    }
    memcpy(table_case->value[axis], value, strlen(value) + 1);
    return 0;
}

/* The unequal counts repeat every eight ranks with three more each time; the largest stays under
 * 256, so that a buffer of that capacity serves. */
uint32_t sim_case_rank_tokens(const struct sim_table_case *table_case, uint32_t rank)
{
    static const uint32_t counts[8] = {37, 0, 130, 7, 64, 1, 200, 19};

    assert(rank < table_case->ep);
    if (table_case->kind == SIM_KIND_EMPTY && rank % 4 != 0) return 0;
    if (table_case->tokens != SIM_CASE_UNEQUAL) return table_case->tokens;
    return counts[rank % 8] + rank / 8 * 3;
}

void sim_case_rules(const struct sim_table_case *table_case, const struct fabric_machine *machine,
                    struct sim_rule rules[SIM_RULES])
{
    uint32_t tokens[SIM_CASE_RANKS_MAX], capacity[SIM_CASE_RANKS_MAX], most = 1;

    assert(table_case->ep >= 1 && table_case->ep <= SIM_CASE_RANKS_MAX && table_case->node >= 1);
    for (uint32_t r = 0; r < table_case->ep; r++) {
        tokens[r] = sim_case_rank_tokens(table_case, r);
        if (tokens[r] > most) most = tokens[r];
    }
    most = (most + CAPACITY_UNIT - 1) / CAPACITY_UNIT * CAPACITY_UNIT;
    for (uint32_t r = 0; r < table_case->ep; r++) capacity[r] = most;
    const struct sim_rules_input input = {
        .mode = table_case->mode,
        .hidden = table_case->hidden,
        .topk = table_case->topk,
        .experts = table_case->experts,
        .ranks = table_case->ep,
        .nodes = (table_case->ep + table_case->node - 1) / table_case->node,
        .machine_node_ranks = table_case->node,
        .machine_has_nic = machine->nic_bytes_per_s > 0,
        .machine_sms = machine->sm_count,
        .machine_hbm_bytes = machine->hbm_bytes,
        .payload_bytes = ref_recipe_payload_bytes(table_case->recipe),
        .tokens = tokens,
        .capacity = capacity,
        .qp_depth = (uint32_t)ref_size_qp_depth(most),
        .sms = NORMAL_SMS,
        .after = SIM_MODE_LL,
        .clean = true,
    };
    sim_rules_check(&input, rules);
}

/* Cut line at its commas. Returns how many fields; more than FIELDS counts as FIELDS + 1. */
static uint32_t split(char *line, char *fields[FIELDS])
{
    uint32_t count = 0;

    for (char *at = line; at != NULL && count <= FIELDS; count++) {
        char *comma = strchr(at, ',');

        if (count < FIELDS) fields[count] = at;
        if (comma != NULL) *comma++ = '\0';
        at = comma;
    }
    return count;
}

/* What must hold between the fields for the operations to be defined at all. */
static const char *contradiction(const struct sim_table_case *made)
{
    const bool packed = ref_recipe_scales(made->recipe) == REF_SCALE_UE8M0;

    assert(made->ep > 0 && made->node > 0);
    if (made->experts % made->ep != 0) return "experts must be a multiple of ep";
    if (made->topk > made->experts) return "topk must be at most experts";
    if (made->ep > made->node && made->ep % made->node != 0)
        return "ep must be at most node or a multiple of it";
    if (made->hidden % (packed ? 512 : 128) != 0)
        return packed ? "hidden must be a multiple of 512 for packed scales"
                      : "hidden must be a multiple of 128";
    if (made->biases > 0 && made->mode != SIM_MODE_NORMAL) return "bias: normal mode only";
    return NULL;
}

/* name,ep,mode,recipe,tokens,hidden,topk,kind,node,experts,bias,label */
static int parse_case(char *fields[FIELDS], struct sim_table_case *made, char *err, size_t err_len)
{
    const char *why = NULL;

    memset(made, 0, sizeof *made);
    if (fields[0][0] == '\0' || strlen(fields[0]) >= sizeof made->name) {
        snprintf(err, err_len, "name: %.80s: must be 1 to %d characters", fields[0],
                 SIM_CASE_TEXT_MAX - 1);
        return -1;
    }
    memcpy(made->name, fields[0], strlen(fields[0]) + 1);
    for (uint32_t a = 0; a < SIM_AXES; a++)
        if (sim_case_set(made, (enum sim_case_axis)a, fields[1 + a], err, err_len) != 0) return -1;
    if (parse_u32(fields[8], 1, SIM_CASE_RANKS_MAX, &made->node) != 0)
        why = "node must be 1 to 64";
    else if (parse_u32(fields[9], 1, 4096, &made->experts) != 0)
        why = "experts must be 1 to 4096";
    else if (parse_u32(fields[10], 0, 2, &made->biases) != 0)
        why = "bias must be 0, 1 or 2";
    else if (fields[11][0] != '\0' && strcmp(fields[11], "model-only") != 0)
        why = "label must be empty or model-only";
    else
        why = contradiction(made);
    made->model_only = fields[11][0] != '\0';
    if (why != NULL) snprintf(err, err_len, "%s: %s", made->name, why);
    return why == NULL ? 0 : -1;
}

/* forbidden,AXIS=VALUE,AXIS=VALUE,RULE */
static int parse_pair(char *fields[FIELDS], struct sim_table_pair *made, char *err, size_t err_len)
{
    memset(made, 0, sizeof *made);
    for (int i = 0; i < 2; i++) {
        char *equals = strchr(fields[1 + i], '=');
        uint32_t axis = SIM_AXES;

        if (equals != NULL) *equals = '\0';
        for (uint32_t a = 0; a < SIM_AXES && equals != NULL; a++)
            if (strcmp(AXES[a].name, fields[1 + i]) == 0) axis = a;
        if (axis == SIM_AXES || value_index((enum sim_case_axis)axis, equals + 1) < 0 ||
            (i == 1 && axis <= (uint32_t)made->axis[0])) {
            snprintf(err, err_len, "forbidden: %.32s: must be AXIS=VALUE, axes in order",
                     fields[1 + i]);
            return -1;
        }
        made->axis[i] = (enum sim_case_axis)axis;
        snprintf(made->value[i], sizeof made->value[i], "%s", equals + 1);
    }
    assert(made->axis[0] < SIM_AXES && made->axis[1] < SIM_AXES);
    for (uint32_t r = 0; r < SIM_RULES; r++)
        if (strcmp(sim_rules_name((enum sim_rule_id)r), fields[3]) == 0) {
            snprintf(made->rule, sizeof made->rule, "%s", fields[3]);
            return 0;
        }
    snprintf(err, err_len, "forbidden: %.32s: no rule is called that", fields[3]);
    return -1;
}

/* Room for one more item; the new array, or NULL with err. */
static void *grow(void *items, size_t count, size_t *capacity, size_t item_bytes, char *err,
                  size_t err_len)
{
    assert(count <= *capacity);
    if (count < *capacity) return items;
    const size_t wanted = *capacity == 0 ? 128 : 2 * *capacity;
    void *grown = realloc(items, wanted * item_bytes);

    if (grown == NULL)
        snprintf(err, err_len, "out of memory");
    else
        *capacity = wanted;
    return grown;
}

static int parse_line(char *line, struct sim_case_table *table, char *err, size_t err_len)
{
    char *fields[FIELDS] = {NULL};
    const uint32_t count = split(line, fields);

    if (count == 4 && strcmp(fields[0], "forbidden") == 0) {
        struct sim_table_pair *pairs = (struct sim_table_pair *)grow(
            table->pairs, table->pair_count, &table->pair_capacity, sizeof *pairs, err, err_len);
        if (pairs == NULL) return -1;
        table->pairs = pairs;
        if (parse_pair(fields, &pairs[table->pair_count], err, err_len) != 0) return -1;
        table->pair_count++;
        return 0;
    }
    if (count != FIELDS) {
        snprintf(err, err_len, "%" PRIu32 "%s fields: must be %d, or 4 of a forbidden pair", count,
                 count > FIELDS ? " or more" : "", FIELDS);
        return -1;
    }
    if (strcmp(fields[0], "name") == 0 && strcmp(fields[1], "ep") == 0) return 0; /* The header. */
    struct sim_table_case *cases = (struct sim_table_case *)grow(
        table->cases, table->count, &table->capacity, sizeof *cases, err, err_len);
    if (cases == NULL) return -1;
    table->cases = cases;
    struct sim_table_case *made = &cases[table->count];
    if (parse_case(fields, made, err, err_len) != 0) return -1;
    if (sim_case_table_find(table, made->name) != NULL) {
        snprintf(err, err_len, "name: %s: stands there twice", made->name);
        return -1;
    }
    table->count++;
    return 0;
}

/* The whole text of a file with a NUL behind it; NULL with err. */
static char *load_text(const char *path, size_t *bytes, char *err, size_t err_len)
{
    enum { TABLE_BYTES_MAX = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = (char *)malloc(TABLE_BYTES_MAX + 1);

    *bytes = 0;
    if (file != NULL && text != NULL) *bytes = fread(text, 1, TABLE_BYTES_MAX, file);
    if (file == NULL || text == NULL || ferror(file)) {
        snprintf(err, err_len, "%.400s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    } else if (*bytes == TABLE_BYTES_MAX || memchr(text, '\0', *bytes) != NULL) {
        snprintf(err, err_len, "%.400s: no table of cases: text of less than %d bytes", path,
                 TABLE_BYTES_MAX);
        free(text);
        text = NULL;
    }
    if (file != NULL) fclose(file);
    if (text != NULL) text[*bytes] = '\0';
    return text;
}

static int parse_text(const char *label, const char *text, struct sim_case_table *table, char *err,
                      size_t err_len)
{
    uint32_t number = 1;

    for (const char *at = text; *at != '\0'; number++) {
        const size_t length = strcspn(at, "\n");
        char line[LINE_BYTES], why[200] = "";

        if (length >= sizeof line) {
            snprintf(err, err_len, "%.300s:%" PRIu32 ": %zu characters: must be under %d", label,
                     number, length, LINE_BYTES);
            return -1;
        }
        memcpy(line, at, length);
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r') line[length - 1] = '\0';
        if (line[0] != '\0' && line[0] != '#' && parse_line(line, table, why, sizeof why) != 0) {
            snprintf(err, err_len, "%.300s:%" PRIu32 ": %s", label, number, why);
            return -1;
        }
        at += length + (at[length] == '\n');
    }
    if (table->count > 0) return 0;
    snprintf(err, err_len, "%.300s: no case in it", label);
    return -1;
}

int sim_case_table_load(const char *path, struct sim_case_table *table, char *err, size_t err_len)
{
    const bool own = path == NULL || path[0] == '\0';
    struct sim_case_table made = {0};
    size_t bytes = 0;
    char *text = own ? NULL : load_text(path, &bytes, err, err_len);

    if (!own && text == NULL) return -1;
    const int status = parse_text(own ? "cases.csv" : path, own ? embedded_cases[0].text : text,
                                  &made, err, err_len);
    free(text);
    if (status != 0)
        sim_case_table_free(&made);
    else
        *table = made;
    return status;
}

void sim_case_table_free(struct sim_case_table *table)
{
    free(table->cases);
    free(table->pairs);
    memset(table, 0, sizeof *table);
}

const struct sim_table_case *sim_case_table_find(const struct sim_case_table *table,
                                                 const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->cases[i].name, name) == 0) return &table->cases[i];
    return NULL;
}
