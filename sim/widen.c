/* sim/widen.c - turns knobs and numbers, one at a time. */
#include "sim/widen.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/units.h"
#include "sim/attribute.h"

enum { QUESTIONS_MAX = SIM_NUMBERS_MAX + 1 };

static const struct {
    const char *name, *text;
    enum sim_part part; /* Scaled by two. */
    enum sim_scaled scaled;
} KNOBS[SIM_WIDENINGS] = {
    [SIM_WIDEN_NVLINK_RATE] = {"nvlink-rate", "NVLink rate x 2", SIM_PART_NVLINK, SIM_SCALE_RATES},
    [SIM_WIDEN_NIC_RATE] = {"nic-rate", "NIC rate x 2", SIM_PART_NIC, SIM_SCALE_RATES},
    [SIM_WIDEN_NIC_LATENCY] = {"nic-latency", "NIC delays / 2", SIM_PART_NIC, SIM_SCALE_SPANS},
    [SIM_WIDEN_FABRIC] = {"fabric", "an ideal fabric", SIM_PARTS, SIM_SCALE_BOTH},
    [SIM_WIDEN_SM_SPEED] = {"sm-speed", "speed of an SM x 2", SIM_PART_SM, SIM_SCALE_BOTH},
    [SIM_WIDEN_SMS] = {"sms", "--sms x 2", SIM_PARTS, SIM_SCALE_BOTH},
    [SIM_WIDEN_QP_DEPTH] = {"qp-depth", "--qp-depth x 2", SIM_PARTS, SIM_SCALE_BOTH},
    [SIM_WIDEN_SYNC] = {"sync", "barriers and flags / 2", SIM_PART_SYNC, SIM_SCALE_BOTH},
    [SIM_WIDEN_LAUNCH] = {"launch", "launch / 2", SIM_PART_LAUNCH, SIM_SCALE_BOTH},
    [SIM_WIDEN_NOTIFY] = {"notify", "count exchange / 2", SIM_PART_NOTIFY, SIM_SCALE_BOTH},
    [SIM_WIDEN_SKEW] = {"starts", "ranks start together", SIM_PARTS, SIM_SCALE_BOTH},
};

const char *sim_widening_name(enum sim_widening knob)
{
    assert((unsigned)knob < SIM_WIDENINGS);
    return KNOBS[knob].name;
}

const char *sim_widening_text(enum sim_widening knob)
{
    assert((unsigned)knob < SIM_WIDENINGS);
    return KNOBS[knob].text;
}

static uint32_t doubled_sms(const struct sim_exchange *exchange)
{
    const uint32_t most = exchange->machine->sm_count / 2 * 2;
    return 2 * exchange->sms < most ? 2 * exchange->sms : most;
}

const char *sim_widening_idle(enum sim_widening knob, const struct sim_exchange *exchange)
{
    const uint32_t parts = sim_attribute_parts(exchange);
    const bool ll = exchange->traffic->mode == SIM_MODE_LL;
    switch (knob) {
    case SIM_WIDEN_NVLINK_RATE:
        return parts & 1u << SIM_PART_NVLINK ? NULL : "no row goes by NVLink";
    case SIM_WIDEN_NIC_RATE:
    case SIM_WIDEN_NIC_LATENCY: return parts & 1u << SIM_PART_NIC ? NULL : "no row goes by NIC";
    case SIM_WIDEN_FABRIC:
        if (!(parts & 1u << SIM_PART_NIC)) return "no row goes by NIC";
        return sim_exchange_networked(exchange) ? NULL : "it is ideal";
    case SIM_WIDEN_SMS:
        if (ll) return "low latency takes a grid of its own";
        return doubled_sms(exchange) > exchange->sms ? NULL : "the kernel has all SMs";
    case SIM_WIDEN_QP_DEPTH:
        if (!ll) return "normal mode's chunks never fill a ring";
        return parts & 1u << SIM_PART_QP ? NULL : "no ring is ever full";
    case SIM_WIDEN_NOTIFY:
        if (ll) return "low latency exchanges no counts beforehand";
        return parts & 1u << SIM_PART_NOTIFY ? NULL : "one node: part of the launch";
    case SIM_WIDEN_SKEW: return parts & 1u << SIM_PART_WAIT ? NULL : "they do already";
    case SIM_WIDEN_SM_SPEED:
    case SIM_WIDEN_SYNC:
    case SIM_WIDEN_LAUNCH:
    case SIM_WIDENINGS:
    default: return NULL;
    }
}

const char *sim_widening_slower(void)
{
    return "slower: rows arrive in another order and queue longer";
}

static struct sim_variation turned(enum sim_widening knob, const struct sim_exchange *exchange)
{
    struct sim_variation question = {.free_parts = 0};
    if (knob == SIM_WIDEN_SMS) question.sms = doubled_sms(exchange);
    if (knob == SIM_WIDEN_QP_DEPTH) question.qp_depth = 2 * exchange->qp_depth;
    if (knob == SIM_WIDEN_FABRIC) question.free_parts = 1u << SIM_PART_FABRIC;
    if (knob == SIM_WIDEN_SKEW) question.free_parts = 1u << SIM_PART_WAIT;
    if (KNOBS[knob].part == SIM_PARTS) return question;
    question.scale_part = KNOBS[knob].part;
    question.scaled = KNOBS[knob].scaled;
    question.scale = 2;
    return question;
}

static uint64_t slowest_ps(const uint64_t *took_ps, uint32_t ranks)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        if (took_ps[r] > most) most = took_ps[r];
    return most;
}

/* The slowest rank's time under each question. */
static int read_times(struct sim_vary_bench *bench, const struct sim_exchange *exchange,
                      const struct sim_variation *questions, size_t count, uint64_t *slowest,
                      char *err, size_t err_len)
{
    const uint32_t ranks = exchange->traffic->ranks;
    uint64_t *took_ps = (uint64_t *)calloc(count * ranks + 1, sizeof *took_ps);
    if (took_ps == NULL) {
        snprintf(err, err_len, "counterfactual times of %u ranks: out of memory", ranks);
        return -1;
    }
    const int status = sim_vary_times(bench, exchange, questions, count, took_ps, err, err_len);
    for (size_t i = 0; status == 0 && i < count; i++)
        slowest[i] = slowest_ps(took_ps + i * ranks, ranks);
    free(took_ps);
    return status;
}

int sim_widen(struct sim_vary_bench *bench, const struct sim_exchange *exchange, uint64_t now_ps,
              uint64_t after_ps[SIM_WIDENINGS], char *err, size_t err_len)
{
    struct sim_variation questions[SIM_WIDENINGS];
    uint64_t slowest[SIM_WIDENINGS];
    enum sim_widening asked[SIM_WIDENINGS];
    size_t count = 0;

    for (int k = 0; k < SIM_WIDENINGS; k++) {
        after_ps[k] = now_ps;
        if (sim_widening_idle((enum sim_widening)k, exchange) != NULL) continue;
        questions[count] = turned((enum sim_widening)k, exchange);
        asked[count++] = (enum sim_widening)k;
    }
    if (read_times(bench, exchange, questions, count, slowest, err, err_len) != 0) return -1;
    for (size_t i = 0; i < count; i++) after_ps[asked[i]] = slowest[i];
    return 0;
}

/* Say what number index is, from where, as a machine file would. */
static void describe(const struct sim_exchange *exchange, const char *mode, size_t index,
                     struct sim_assumption *out)
{
    struct fabric_machine machine = *exchange->machine;
    struct fabric_machine_row row;
    const char *field = NULL;
    char key[48];
    const uint64_t *value = sim_part_number(&machine, mode, index, &field);
    assert(value != NULL);
    fabric_unit_display(field, *value, key, sizeof key, out->value, sizeof out->value);
    snprintf(out->key, sizeof out->key, "%s", key);
    for (size_t i = 0; fabric_machine_row(exchange->machine, i, &row); i++) {
        if (strcmp(row.key, key) != 0) continue;
        if (row.section[0] != '\0' && strcmp(row.section, mode) != 0) continue;
        if (row.section[0] != '\0') snprintf(out->key, sizeof out->key, "%s.%s", mode, key);
        snprintf(out->origin, sizeof out->origin, "%s", row.origin);
        snprintf(out->kind, sizeof out->kind, "%s", row.kind);
        return;
    }
}

static void describe_skew(const char *skew, struct sim_assumption *out)
{
    snprintf(out->key, sizeof out->key, "--skew");
    snprintf(out->value, sizeof out->value, "%.32s", skew);
    snprintf(out->kind, sizeof out->kind, "option of the run");
}

/* Keep the SIM_ASSUMPTIONS largest, the earlier of equals first. */
static int insert(struct sim_assumption *out, int have, const struct sim_assumption *found)
{
    int at = have;
    while (at > 0 && out[at - 1].worse_ps < found->worse_ps) at--;
    if (at == SIM_ASSUMPTIONS) return have;
    if (have < SIM_ASSUMPTIONS) have++;
    for (int i = have - 1; i > at; i--) out[i] = out[i - 1];
    out[at] = *found;
    return have;
}

int sim_assumptions(struct sim_vary_bench *bench, const struct sim_exchange *exchanges,
                    const uint64_t *now_ps, size_t count, const char *skew,
                    struct sim_assumption *out, char *err, size_t err_len)
{
    struct sim_variation questions[QUESTIONS_MAX];
    uint64_t slowest[QUESTIONS_MAX], worse_ps[QUESTIONS_MAX] = {0}, sum_ps = 0;
    struct fabric_machine machine = *exchanges[0].machine;
    const char *mode = exchanges[0].traffic->mode == SIM_MODE_LL ? "ll" : "normal", *key = NULL;
    size_t numbers = 0;
    int have = 0;

    memset(questions, 0, sizeof questions);
    for (; sim_part_number(&machine, mode, numbers, &key) != NULL; numbers++)
        questions[numbers].number = (uint32_t)numbers + 1;
    assert(numbers < QUESTIONS_MAX);
    const size_t asked = numbers + (skew != NULL);
    questions[numbers].more_skew = true;
    for (size_t e = 0; e < count; e++) {
        if (read_times(bench, &exchanges[e], questions, asked, slowest, err, err_len) != 0)
            return -1;
        sum_ps += now_ps[e];
        for (size_t i = 0; i < asked; i++) worse_ps[i] += slowest[i];
    }
    for (size_t i = 0; i < asked; i++) {
        struct sim_assumption found = {.now_ps = sum_ps, .worse_ps = worse_ps[i]};
        if (worse_ps[i] <= sum_ps) continue;
        if (i < numbers)
            describe(&exchanges[0], mode, i, &found);
        else
            describe_skew(skew, &found);
        have = insert(out, have, &found);
    }
    return have;
}
