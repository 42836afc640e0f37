/* sim/step.c - opening a step, cutting it in halves, and walking its layers. */
#include "sim/step.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/step_state.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { ENGINE_EVENTS = 65536, SEQUENCES_MAX = 4096 };
#define PS_PER_S UINT64_C(1000000000000)

bool sim_step_wanted(const struct sim_settings *settings)
{
    return settings->context > 0 || strcmp(settings->overlap, "none") != 0 ||
           strcmp(settings->phase, "auto") != 0;
}

/* ---- halves ---- */

static uint64_t requests_of(const struct sim_step *step, uint64_t rows)
{
    const struct sim_settings *settings = &step->plan->settings;
    const uint64_t each = !step->prefill         ? settings->verify
                          : settings->prompt > 0 ? settings->prompt
                          : rows > 0             ? rows
                                                 : 1;
    return (rows + each - 1) / each;
}

/* Rows of the left half. Decode: requests cut in the middle of the graph's padded batch, so a
 * short rank's right half is shorter, or empty. Prefill: by the sequences' lengths. */
static uint64_t left_rows(const struct sim_step *step, uint64_t rows, uint64_t padded_requests,
                          uint64_t *before)
{
    const struct sim_settings *settings = &step->plan->settings;
    uint64_t lengths[SEQUENCES_MAX];
    *before = 0;
    if (!step->prefill) {
        const uint64_t left = padded_requests / 2 * settings->verify;
        return left < rows ? left : rows;
    }
    uint64_t requests = requests_of(step, rows), rest = rows;
    if (requests > SEQUENCES_MAX || rows == 0) return rows / 2;
    for (uint64_t q = 0; q < requests; q++) {
        const uint64_t each = settings->prompt > 0 ? settings->prompt : rows;
        lengths[q] = rest < each ? rest : each;
        rest -= lengths[q];
    }
    const struct sim_overlap_split split = sim_overlap_split(lengths, (uint32_t)requests);
    *before = split.left;
    for (uint32_t q = 0; q < split.sequences; q++) *before -= lengths[q];
    return split.left;
}

/* Two halves only if every rank can (the smallest answer counts): an idle rank goes along, a rank
 * with one request cannot be cut. */
static bool all_can_split(const struct sim_step *step, uint64_t padded_requests, uint32_t *who)
{
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t rows = step->plan->tokens[r];
        if (rows == 0) continue;
        *who = r;
        uint64_t before = 0;
        const uint64_t left = left_rows(step, rows, padded_requests, &before);
        if (left == 0 || (step->prefill ? left == rows : requests_of(step, rows) < 2)) return false;
    }
    return true;
}

static void cut_halves(struct sim_step *step)
{
    const struct sim_plan *plan = step->plan;
    const bool graph = plan->mode == SIM_MODE_LL && !step->prefill;
    uint64_t most = 0;
    uint32_t who = 0;
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t requests = requests_of(step, plan->tokens[r]);
        if (requests > most) most = requests;
    }
    const uint64_t padded = graph ? sim_overlap_padded(most) : most;
    step->halves = step->overlap->halves;
    if (step->halves == 2 && !all_can_split(step, padded, &who)) {
        step->halves = 1;
        snprintf(step->note, sizeof step->note,
                 "%s runs as none: all ranks must agree, and rank %" PRIu32
                 " cannot cut its %" PRIu32 " rows in two",
                 step->overlap->name, who, plan->tokens[who]);
        step->overlap = sim_overlap_find("none");
    } else if (step->halves == 2) {
        snprintf(step->note, sizeof step->note,
                 "two micro-batches, each with its own dispatcher and handle; low-latency buffers "
                 "hold two results at most");
    }
    for (uint32_t r = 0; r < step->ranks; r++) {
        const uint64_t rows = plan->tokens[r];
        const uint64_t left =
            step->halves == 2 ? left_rows(step, rows, padded, &step->half[1].before[r]) : rows;
        assert(left <= rows);
        step->half[0].rows[r] = left;
        step->half[1].rows[r] = rows - left;
        for (int h = 0; h < STEP_HALVES; h++)
            step->half[h].requests[r] = requests_of(step, step->half[h].rows[r]);
    }
    for (int h = 0; h < STEP_HALVES && graph; h++)
        step->half[h].padded = plan->settings.verify * (step->halves == 1 ? padded
                                                        : h == 0          ? padded / 2
                                                                          : padded - padded / 2);
}

/* ---- open ---- */

static int check(const struct sim_step *step, char *err, size_t err_len)
{
    const struct sim_plan *plan = step->plan;
    const uint32_t tp = plan->settings.attn_tp;
    if (sim_compute_check(&plan->machine, &plan->model, err, err_len) != 0) return -1;
    if (step->ranks % tp != 0) {
        snprintf(err, err_len, "--attn-tp: %" PRIu32 ": must divide --ep %" PRIu32, tp,
                 step->ranks);
        return -1;
    }
    if (step->prefill && plan->mode == SIM_MODE_LL) {
        snprintf(err, err_len,
                 "--phase: prefill: the low-latency mode decodes: needs --mode "
                 "normal");
        return -1;
    }
    /* The library takes blocks of 64 or 128 rows. */
    return sim_overlap_check(&plan->settings, &plan->machine, plan->mode, 64, err, err_len);
}

static void add_note(struct sim_step *step, const char *text)
{
    const size_t used = strlen(step->note);
    snprintf(step->note + used, sizeof step->note - used, "%s%s", used > 0 ? "; " : "", text);
}

/* Models may be the user's own, so any name is a good one; but a table that does not answer because
 * its name is mistyped would pass for one that does. */
static void note_attention(struct sim_step *step)
{
    const struct sim_plan *plan = step->plan;
    const struct fabric_attention *table = &plan->machine.attention;
    char text[320];
    if (step->prefill || table->rows == 0 || strcmp(plan->settings.attention, "auto") != 0 ||
        strcmp(table->model, plan->model.name) == 0)
        return;
    snprintf(text, sizeof text, "attention is modelled: the table of %s is of %s%s, not of %s",
             plan->machine.name, table->model,
             sim_model_is_preset(table->model) ? "" : " (no preset has that name)",
             plan->model.name);
    add_note(step, text);
}

/* What a reader would wonder at. The library warns of few SMs too, and is told not to where two
 * batches share the GPU. */
static void note_settings(struct sim_step *step)
{
    const struct sim_plan *plan = step->plan;
    char text[128];
    note_attention(step);
    if (step->overlap->next_layer && plan->settings.gather[0] == 'n')
        add_note(step, "without --gather there is no reduce-scatter to hide");
    if (strncmp(plan->settings.overlap, "shared-", 7) == 0 && plan->model.shared_experts == 0)
        add_note(step, "the model has no shared expert to hide");
    if (plan->mode != SIM_MODE_NORMAL || step->halves == 2 ||
        2 * plan->settings.sms >= plan->machine.sm_count)
        return;
    snprintf(text, sizeof text, "communication takes %" PRIu32 " of %" PRIu32 " SMs, under half",
             plan->settings.sms, plan->machine.sm_count);
    add_note(step, text);
}

static int open_slots(struct sim_step *step, char *err, size_t err_len)
{
    const uint64_t choices = step->plan->token_start[step->ranks] * step->plan->topk;
    for (int h = 0; h < STEP_HALVES; h++) {
        step->half[h].slots = (struct step_slot *)calloc(STEP_SLOTS, sizeof(struct step_slot));
        for (int s = 0; step->half[h].slots != NULL && s < STEP_SLOTS; s++)
            step->half[h].slots[s].choices = (int64_t *)calloc(choices + 1, sizeof(int64_t));
        if (step->half[h].slots == NULL || step->half[h].slots[0].choices == NULL ||
            step->half[h].slots[1].choices == NULL) {
            snprintf(err, err_len, "step: out of memory");
            return -1;
        }
    }
    step->engine = sim_engine_open(ENGINE_EVENTS, err, err_len);
    return step->engine == NULL ? -1 : 0;
}

struct sim_step *sim_step_open(const struct sim_plan *plan, sim_step_span_fn span, void *context,
                               char *err, size_t err_len)
{
    struct sim_step *step = (struct sim_step *)calloc(1, sizeof *step);
    if (step == NULL) {
        snprintf(err, err_len, "step: out of memory");
        return NULL;
    }
    step->plan = plan;
    step->ranks = plan->ranks;
    step->span = span;
    step->context = context;
    step->overlap = sim_overlap_find(plan->settings.overlap);
    step->prefill = strcmp(plan->settings.phase, "prefill") == 0 ||
                    (strcmp(plan->settings.phase, "auto") == 0 && plan->mode == SIM_MODE_NORMAL);
    assert(step->overlap != NULL);
    if (check(step, err, err_len) != 0 || open_slots(step, err, err_len) != 0) {
        sim_step_close(step);
        return NULL;
    }
    cut_halves(step);
    note_settings(step);
    step->table = step->overlap->table[plan->mode == SIM_MODE_NORMAL];
    step->delta = step->overlap->delta[plan->mode == SIM_MODE_NORMAL];
    step->stages = 1;
    for (const struct sim_overlap_entry *e = step->table; e->op != SIM_OP_END; e++)
        step->stages += e->op == SIM_OP_YIELD;
    assert(step->table != NULL && step->delta < step->stages);
    return step;
}

void sim_step_close(struct sim_step *step)
{
    if (step == NULL) return;
    for (int h = 0; h < STEP_HALVES; h++) {
        for (int s = 0; step->half[h].slots != NULL && s < STEP_SLOTS; s++)
            step_slot_free(&step->half[h].slots[s]);
        free(step->half[h].slots);
    }
    sim_engine_close(step->engine);
    free(step);
}

const char *sim_step_note(const struct sim_step *step)
{
    return step->note;
}

bool sim_step_halved(const struct sim_step *step)
{
    return step->halves == 2;
}

uint64_t sim_step_now_ps(const struct sim_step *step)
{
    return step->end_ps;
}

/* ---- walk ---- */

static const struct sim_overlap_entry *stage_of(const struct sim_step *step, uint64_t stage)
{
    const struct sim_overlap_entry *entry = step->table;
    assert(stage < step->stages);
    for (uint64_t s = 0; s < stage; entry++) s += entry->op == SIM_OP_YIELD;
    return entry;
}

/* The whole batch goes through the dense layers, whatever the halves. */
static int run_dense(struct sim_step *step, char *err, size_t err_len)
{
    const struct sim_overlap *plain =
        sim_overlap_find(step->overlap->next_layer ? step->overlap->name : "none");
    struct step_half halves[1];
    struct step_slot *slot = &step->half[0].slots[0];
    int status = 0;
    assert(plain != NULL && step->halves >= 1 && step->halves <= STEP_HALVES);
    memcpy(halves, step->half, sizeof halves);
    for (uint32_t r = 0; r < step->ranks; r++) {
        step->half[0].rows[r] += step->half[1].rows[r];
        step->half[0].requests[r] = requests_of(step, step->half[0].rows[r]);
    }
    step->half[0].padded += step->halves == 2 ? step->half[1].padded : 0;
    slot->dense = true;
    slot->half = 0;
    for (uint32_t l = 0; l < step->plan->model.dense_layers && status == 0; l++) {
        slot->layer = l;
        status = step_run_stage(step, slot, plain->table[0], err, err_len);
    }
    memcpy(step->half[0].rows, halves[0].rows, sizeof halves[0].rows);
    memcpy(step->half[0].requests, halves[0].requests, sizeof halves[0].requests);
    step->half[0].padded = halves[0].padded;
    memcpy(step->half[1].rest_ps, step->half[0].rest_ps, sizeof step->half[0].rest_ps);
    memcpy(step->half[1].done_ps, step->half[0].done_ps, sizeof step->half[0].done_ps);
    return status;
}

int sim_step_begin(struct sim_step *step, uint64_t number, char *err, size_t err_len)
{
    step->number = number;
    step->start_ps = step->end_ps;
    step->wires_free_ps = step->end_ps;
    memset(step->spent_ps, 0, sizeof step->spent_ps);
    memset(step->wire_bytes, 0, sizeof step->wire_bytes);
    memset(step->collective_bytes, 0, sizeof step->collective_bytes);
    step->layers = 0;
    step->first_end_ps = step->last_end_ps = 0;
    memset(step->holds, 0, sizeof step->holds);
    for (uint32_t r = 0; r < step->ranks; r++) {
        for (int s = 0; s < SIM_STREAMS; s++) step->free_ps[s][r] = step->start_ps;
        for (int h = 0; h < STEP_HALVES; h++)
            step->half[h].rest_ps[r] = step->half[h].done_ps[r] = step->start_ps;
    }
    for (int h = 0; h < STEP_HALVES; h++) step->half[h].stage = 0;
    if (run_dense(step, err, err_len) != 0) return -1;
    step->dense_end_ps = step->end_ps;
    return 0;
}

/* Half h plays its next stage, of whichever layer that is. */
static int play_stage(struct sim_step *step, uint32_t h, char *err, size_t err_len)
{
    struct step_half *half = &step->half[h];
    const uint64_t layer = half->stage / step->stages;
    assert(layer < step->layers && layer + STEP_SLOTS >= step->layers);
    struct step_slot *slot = &half->slots[layer % STEP_SLOTS];
    const uint64_t stage = half->stage++ % step->stages;
    return step_run_stage(step, slot, stage_of(step, stage), err, err_len);
}

int sim_step_layer(struct sim_step *step, const struct ref_routing *routing, uint32_t layer,
                   char *err, size_t err_len)
{
    for (uint32_t h = 0; h < step->halves; h++) {
        struct step_slot *slot = &step->half[h].slots[step->layers % STEP_SLOTS];
        slot->dense = false;
        slot->layer = layer;
        slot->half = h;
        if (step_slot_build(step, slot, routing, err, err_len) != 0) return -1;
    }
    step->layers++;
    for (uint32_t s = 0; s < step->stages; s++) {
        if (play_stage(step, 0, err, err_len) != 0) return -1;
        while (step->halves == 2 && step->half[1].stage + step->delta < step->half[0].stage)
            if (play_stage(step, 1, err, err_len) != 0) return -1;
    }
    return 0;
}

/* All MoE layers from those simulated: each further one takes what half A's layers behind the first
 * took on average. (From end to end of one half, since half B fills and drains the streams.) */
static uint64_t moe_time_ps(const struct sim_step *step)
{
    const uint64_t all = step->plan->model.moe_layers;
    const uint64_t took_ps = step->end_ps - step->dense_end_ps;
    assert(step->last_end_ps >= step->first_end_ps && all >= step->layers);
    if (step->layers == 1) return (uint64_t)((u128)took_ps * all);
    return took_ps + (uint64_t)((u128)(step->last_end_ps - step->first_end_ps) *
                                (all - step->layers) / (step->layers - 1));
}

int sim_step_end(struct sim_step *step, struct sim_step_times *times, char *err, size_t err_len)
{
    const struct sim_model *model = &step->plan->model;
    assert(step->layers > 0);
    while (step->halves == 2 && step->half[1].stage < step->layers * step->stages)
        if (play_stage(step, 1, err, err_len) != 0) return -1;
    const uint64_t dense_ps = step->dense_end_ps - step->start_ps;
    struct sim_step_times made = {.dense_ps =
                                      model->dense_layers > 0 ? dense_ps / model->dense_layers : 0,
                                  .moe_layers = model->moe_layers,
                                  .dense_layers = model->dense_layers,
                                  .simulated = (uint32_t)step->layers,
                                  .halved = step->halves == 2};
    made.step_ps = dense_ps + moe_time_ps(step);
    made.layer_ps = (made.step_ps - dense_ps) / model->moe_layers;
    for (int o = 0; o < SIM_OPS; o++) {
        made.op_ps[o] = step->spent_ps[0][o] / step->layers / step->ranks;
        if (model->dense_layers > 0)
            made.dense_op_ps[o] = step->spent_ps[1][o] / model->dense_layers / step->ranks;
    }
    for (uint32_t r = 0; r < step->ranks; r++) {
        made.rows += step->plan->tokens[r];
        made.requests += step->half[0].requests[r] + step->half[1].requests[r];
    }
    for (int c = 0; c < SIM_LINK_CLASSES; c++)
        made.wire_bytes[c] = step->wire_bytes[c] / step->layers * model->moe_layers;
    made.collective_bytes =
        step->collective_bytes[1] + step->collective_bytes[0] / step->layers * model->moe_layers;
    if (made.step_ps > 0)
        made.rows_per_s_gpu = (uint64_t)((u128)made.rows * PS_PER_S / made.step_ps / step->ranks);
    *times = made;
    return 0;
}
