/* sim/calibrate.c - which rows a number touches. */
#include "sim/calibrate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/calibrate_parts.h"
#include "sim/predict.h"
#include "sim/rng.h"

#define TOKENS_MANY                                                                                \
    30000 /* Over all ranks: such rows cost most of the time, and are much alike.                  \
           */
#define TOKENS_MAX 300000
#define MANY_SHARE 4 /* One of so many of them counts. */

/* Where the file itself stands, if it is one of those that are fitted. */
static const char *path_of(const void *context, const char *machine)
{
    const struct sim_calibrate_work *fit = (const struct sim_calibrate_work *)context;
    const char *slash = strrchr(machine, '/');
    const char *base = slash ? slash + 1 : machine;
    for (size_t f = 0; f < fit->options->file_count; f++) {
        const struct sim_calibrate_file *file = &fit->options->files[f];
        const size_t len = strlen(file->name);
        if (file->path && strncmp(base, file->name, len) == 0 &&
            (base[len] == '\0' || strcmp(base + len, ".yaml") == 0))
            return file->path;
    }
    return machine;
}

/* Does the machine take this number from the file? A stack's number counts where that stack is
 * in force; a default, where no stack replaced it and no child said it anew. */
bool sim_calibrate_takes(const struct sim_calibrate_work *fit, const struct fabric_machine *machine,
                         const struct sim_knob *knob)
{
    const char *name = fit->options->files[knob->file].name;
    size_t count;
    const size_t index = (size_t)(knob->field - fabric_cost_fields(&count));
    bool inherits = false;
    assert(index < count);
    for (uint32_t o = 0; o < machine->origin_count; o++)
        inherits = inherits || strcmp(machine->origins[o], name) == 0;
    if (!inherits) return false;
    if (knob->stack[0] != '\0') return strcmp(machine->stack, knob->stack) == 0;
    for (uint32_t s = 0; s < machine->stack_count; s++)
        if (strcmp(machine->stacks[s].name, machine->stack) == 0 && machine->stacks[s].set[index])
            return false;
    const uint8_t origin = machine->cost_origin[index];
    return origin < machine->origin_count && strcmp(machine->origins[origin], name) == 0;
}

/* Of compute, a number of one kernel cannot move the others' rows. */
static bool other_kernel(const struct fabric_cost_field *field, const char *op)
{
    static const struct {
        const char *prefix, *ops;
    } owners[] = {{"attention_", "attention"},
                  {"sm_attention_", "attention"},
                  {"sm_projection_", "attention"},
                  {"masked_", "masked"},
                  {"expert_", "masked"},
                  {"contiguous_", "contiguous"},
                  {"permute_", "contiguous"},
                  {"lead_", "contiguous"},
                  {"host_", "contiguous"},
                  {"sm_flop_", "masked contiguous"},
                  {"sm_stream_", ""},
                  {"kernel_", ""},
                  {"collective_", ""}};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        if (strncmp(field->name, owners[i].prefix, strlen(owners[i].prefix)) == 0)
            return strstr(owners[i].ops, op) == NULL;
    return false;
}

/* A number of one direction cannot move the other's rows: not asking saves half the work. */
static bool other_direction(const struct fabric_cost_field *field, const char *op)
{
    static const struct {
        const char *prefix, *direction;
    } owners[] = {
        {"dispatch_", "dispatch"}, {"combine_", "combine"},         {"scan_", "dispatch"},
        {"visit_", "dispatch"},    {"send_", "dispatch"},           {"scale_", "dispatch"},
        {"bulk_", "dispatch"},     {"forward_", "dispatch"},        {"cold_", "dispatch"},
        {"return_", "combine"},    {"exchange_token_", "dispatch"}, {"sum_", "combine"},
        {"merge_", "combine"},     {"cached_", "combine"}};
    if (strcmp(field->section, "compute") == 0) return other_kernel(field, op);
    if (strcmp(field->section, "normal") != 0) return false;
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        if (strncmp(field->name, owners[i].prefix, strlen(owners[i].prefix)) == 0)
            return strncmp(op, owners[i].direction, strlen(owners[i].direction)) != 0;
    return false;
}

uint64_t sim_calibrate_hash(const char *id)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a, mixed. */
    for (const char *c = id; *c != '\0'; c++)
        digest = (digest ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return sim_rng_mix(digest);
}

/* The longest rows cost more than all others together, and what they tell shows in some of them:
 * chosen by id, so that it is always the same ones. Not by the bits that halve rows elsewhere. */
static bool left_out(const struct sim_measured_row *row)
{
    const uint64_t tokens = (uint64_t)row->tokens * row->ep;
    if (strcmp(row->mode, "compute") == 0) return false; /* Arithmetic, no simulation. */
    if (tokens > TOKENS_MAX) return true;
    return tokens > TOKENS_MANY && (sim_calibrate_hash(row->id) >> 32) % MANY_SHARE != 0;
}

/* Fill touched and rows; drop knobs that touch nothing or stand at 0. */
static void find_rows(struct sim_calibrate_work *fit)
{
    const size_t all = fit->measured->count;
    size_t kept = 0;
    for (size_t k = 0; k < fit->knob_count; k++) {
        assert(kept <= k);
        struct sim_knob *knob = &fit->knobs[k];
        bool *touched = fit->touched + kept * all;
        knob->rows = 0;
        for (size_t i = 0; i < all; i++) {
            const struct sim_measured_row *row = &fit->measured->rows[i];
            touched[i] = knob->start > 0 && (!fit->options->wanted || fit->options->wanted[i]) &&
                         strcmp(row->mode, knob->field->section) == 0 &&
                         !other_direction(knob->field, row->op) && !left_out(row) &&
                         sim_calibrate_takes(fit, fit->machines[i], knob);
            knob->rows += touched[i];
        }
        if (knob->rows == 0) continue;
        const struct sim_knob moved = *knob; /* Those that touch nothing go behind the others. */
        memmove(&fit->knobs[kept + 1], &fit->knobs[kept], (k - kept) * sizeof *fit->knobs);
        fit->knobs[kept++] = moved;
    }
    fit->knob_count = kept;
    fit->rows = 0;
    for (size_t i = 0; i < all; i++) {
        bool any = false;
        for (size_t k = 0; k < kept; k++) any = any || fit->touched[k * all + i];
        fit->wanted[i] = any;
        fit->rows += any;
    }
}

static int find_knobs(struct sim_calibrate_work *fit, char *err, size_t err_len)
{
    for (uint32_t f = 0; f < fit->options->file_count; f++) {
        const int64_t found = sim_knobs_find(&fit->options->files[f], f, fit->options->mode,
                                             fit->knobs + fit->knob_count,
                                             SIM_KNOBS_MAX - fit->knob_count, err, err_len);
        assert(fit->knob_count <= SIM_KNOBS_MAX);
        if (found < 0) return -1;
        fit->knob_count += (size_t)found;
    }
    return 0;
}

int sim_calibrate(const struct sim_measured *measured, const struct sim_calibrate_options *options,
                  struct sim_calibration *calibration, char *err, size_t err_len)
{
    const size_t rows = measured->count;
    struct sim_calibrate_work fit = {
        .measured = measured,
        .options = options,
        .machines = (const struct fabric_machine **)calloc(rows + 1, sizeof *fit.machines),
        .knobs = (struct sim_knob *)calloc(SIM_KNOBS_MAX, sizeof *fit.knobs),
        .touched = (bool *)calloc((SIM_KNOBS_MAX + 1) * (rows + 1), sizeof *fit.touched),
        .wanted = (bool *)calloc(2 * rows + 1, sizeof *fit.wanted),
        .predicted_ps = (uint64_t *)calloc(rows + 1, sizeof *fit.predicted_ps),
        .chunks = (uint32_t(*)[2])calloc(rows + 1, sizeof *fit.chunks)};
    struct sim_calibration made = {.rows = 0};
    int status = -1;

    assert(options->file_count > 0);
    if (!fit.machines || !fit.knobs || !fit.touched || !fit.wanted || !fit.predicted_ps ||
        !fit.chunks) {
        snprintf(err, err_len, "%zu rows: out of memory", rows);
        goto free_fit;
    }
    if (find_knobs(&fit, err, err_len) != 0 ||
        sim_predict_machines(measured, path_of, &fit, &fit.pool, fit.machines, err, err_len) != 0)
        goto free_fit;
    const size_t found = fit.knob_count;
    find_rows(&fit);
    if (fit.knob_count == 0) {
        sim_calibrate_explain(&fit, found, err, err_len);
        goto free_fit;
    }
    made.idle = found - fit.knob_count;
    if (sim_calibrate_fit(&fit, &made, err, err_len) != 0) goto free_fit;
    made.knobs = fit.knobs;
    made.pool = fit.pool;
    made.machines = fit.machines;
    made.predicted_ps = fit.predicted_ps;
    *calibration = made;
    fit.knobs = NULL;
    fit.pool = NULL;
    fit.machines = NULL;
    fit.predicted_ps = NULL;
    status = 0;
free_fit:
    free(fit.knobs);
    free(fit.pool);
    free(fit.machines);
    free(fit.touched);
    free(fit.wanted);
    free(fit.predicted_ps);
    free(fit.chunks);
    return status;
}

void sim_calibration_free(struct sim_calibration *calibration)
{
    free(calibration->knobs);
    free(calibration->pool);
    free(calibration->machines);
    free(calibration->predicted_ps);
    memset(calibration, 0, sizeof *calibration);
}
