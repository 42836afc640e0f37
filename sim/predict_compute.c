/* sim/predict_compute.c - measured rows of experts and attention into work, work into time. */
#include "sim/predict_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mathfn.h"
#include "sim/compute.h"
#include "sim/generator.h"
#include "sim/rng.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum {
    PURPOSE_LOAD = 9,
    DRAWS = 5,
    FLOOR_ROWS = 128,
    MLA_HEADS = 128,
    LATENT = 512,
    NOPE = 128,
    ROPE = 64
};
#define PS_PER_S UINT64_C(1000000000000)

/* NULL, or the column at fault and in *allowed what may stand there. */
static const char *wrong_column(const struct sim_measured_row *row, const char **allowed)
{
    *allowed = "a multiple of ep up to 4096";
    if (row->ep < 1 || row->ep > SIM_EXPERTS_MAX) {
        *allowed = "1 to 4096";
        return "ep";
    }
    if (row->experts < row->ep || row->experts > SIM_EXPERTS_MAX || row->experts % row->ep != 0)
        return "experts";
    *allowed = "128 to 65536";
    if (row->hidden < 128 || row->hidden > 65536) return "hidden";
    *allowed = "1 to 65536";
    if (row->moe_inter < 1 || row->moe_inter > 65536) return "moe_inter";
    *allowed = "1 to 1048576";
    if (row->tokens < 1 || row->tokens > 1 << 20) return "tokens_per_rank";
    *allowed = "1 to experts";
    if (row->topk < 1 || row->topk > row->experts) return "topk";
    *allowed = "masked or contiguous";
    if (strcmp(row->layout, "masked") != 0 && strcmp(row->layout, "contiguous") != 0)
        return "layout";
    return NULL;
}

/* "power_law_1.2" -> 1.2; 0 for uniform, -1 for anything else. */
static float exponent_of(const char *routing)
{
    static const char prefix[] = "power_law_";
    char *end;
    if (strcmp(routing, "uniform") == 0) return 0.0f;
    if (strncmp(routing, prefix, sizeof prefix - 1) != 0) return -1.0f;
    const float alpha = strtof(routing + sizeof prefix - 1, &end);
    return *end == '\0' && alpha > 0.01f && alpha < 10.0f ? alpha : -1.0f;
}

/* Balanced round robin: every expert alike; too few selections for all: one row for the first. */
static void even_rows(const struct sim_measured_row *row, uint64_t *rows)
{
    const uint32_t local = row->experts / row->ep;
    const uint64_t all = (uint64_t)row->tokens * row->ep * row->topk;
    const uint64_t each = all / row->experts;
    assert(row->experts % row->ep == 0);
    for (uint32_t e = 0; e < local; e++) rows[e] = each > 0 ? each : e < all / row->ep;
}

/* Loads drawn from a bounded power law, 1 to 0.8 of all tokens (0.01 to 2 where selections are
 * fewer than experts), scaled to all selections; rows of the busiest rank. */
static void skewed_rows(const struct sim_measured_row *row, float alpha, uint32_t draw,
                        uint64_t *rows)
{
    const uint32_t local = row->experts / row->ep;
    const uint64_t tokens = (uint64_t)row->tokens * row->ep, all = tokens * row->topk;
    const float inverse = 1.0f - alpha > -0.001f && 1.0f - alpha < 0.001f ? 0.001f : 1.0f - alpha;
    const float low = all > row->experts ? 1.0f : 0.01f;
    const float high = all > row->experts ? 0.8f * (float)tokens : 2.0f;
    const float low_power = ref_exp(inverse * ref_log(low));
    const float high_power = ref_exp(inverse * ref_log(high));
    struct sim_rng rng = sim_rng_stream(1, PURPOSE_LOAD, draw, row->ep, row->tokens);
    uint64_t load[SIM_EXPERTS_MAX], sum = 0, most = 0;
    uint32_t busiest = 0;
    assert(alpha > 0.0f && row->experts <= SIM_EXPERTS_MAX);
    for (uint32_t e = 0; e < row->experts; e++) {
        const float u = (float)sim_rng_below(&rng, 1 << 24) / 16777216.0f;
        const float power = (high_power - low_power) * u + low_power;
        load[e] = (uint64_t)(ref_exp(ref_log(power) / inverse) * 1024.0f) + 1;
        sum += load[e];
    }
    for (uint32_t e = 0; e < row->experts; e++) {
        load[e] = (uint64_t)(((u128)load[e] * all + sum / 2) / sum);
        if (load[e] > tokens) load[e] = tokens; /* A token chooses an expert once. */
    }
    for (uint32_t r = 0; r < row->ep; r++) {
        uint64_t own = 0;
        for (uint32_t e = 0; e < local; e++) own += load[r * local + e];
        if (own > most) busiest = r;
        if (own > most) most = own;
    }
    assert(sum >= row->experts && busiest < row->ep);
    memcpy(rows, load + (size_t)busiest * local, local * sizeof *rows);
}

/* One measured call: contiguous kernels wait for an idle host to launch them. */
static uint64_t experts_ps(const struct fabric_machine *machine, const struct sim_measured_row *row,
                           const uint64_t *rows)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const struct sim_model model = {
        .hidden = row->hidden, .moe_inter = row->moe_inter, .expert_32_bytes = 32, .math_bytes = 1};
    const uint32_t local = row->experts / row->ep, sms = machine->sm_count;
    const bool masked = strcmp(row->layout, "masked") == 0;
    uint64_t sum = 0;
    assert(sms > 0 && local > 0);
    for (uint32_t e = 0; e < local; e++) sum += rows[e];
    /* Such rows share blocks of 128 with other experts' and load few weights: only the host's
     * launch path shows. */
    if (!masked && sum / local < FLOOR_ROWS) return costs->host_ps;
    const struct sim_experts work = sim_compute_experts(
        machine, &model, masked ? SIM_LAYOUT_MASKED : SIM_LAYOUT_CONTIGUOUS, rows, local,
        (sum + local - 1) / local, (uint64_t)row->tokens * row->ep);
    uint64_t ps = sim_work_ps(machine, &work.permute, sms);
    if (!masked && ps < costs->lead_ps) ps = costs->lead_ps;
    ps += sim_work_ps(machine, &work.gate_up, sms) + sim_work_ps(machine, &work.activation, sms) +
          sim_work_ps(machine, &work.down, sms) + sim_work_ps(machine, &work.unpermute, sms);
    return !masked && ps < costs->host_ps ? costs->host_ps : ps;
}

static int predict_experts(const struct fabric_machine *machine, const struct sim_measured_row *row,
                           uint64_t *ps, uint64_t *floor_ps, char *err, size_t err_len)
{
    uint64_t rows[SIM_EXPERTS_MAX], active = 0, sum = 0;
    const float alpha = exponent_of(row->routing);
    const uint32_t local = row->experts / (row->ep > 0 ? row->ep : 1);
    const uint32_t draws = alpha > 0.0f ? DRAWS : 1;
    const char *allowed, *column = wrong_column(row, &allowed);
    if (column) return sim_measured_refuse(row, column, allowed, err, err_len);
    if (alpha < 0.0f)
        return sim_measured_refuse(row, "routing", "uniform, or power_law_A with A from 0.01 to 10",
                                   err, err_len);
    *ps = 0;
    for (uint32_t d = 0; d < draws; d++) {
        if (alpha > 0.0f)
            skewed_rows(row, alpha, d, rows);
        else
            even_rows(row, rows);
        *ps += experts_ps(machine, row, rows) / draws;
        for (uint32_t e = 0; e < local; e++) active += rows[e] > 0;
        for (uint32_t e = 0; e < local; e++) sum += rows[e];
    }
    /* Weights of experts with rows, and every row in and out once. */
    assert(machine->hbm_bytes_per_s > 0 && active <= (uint64_t)draws * local);
    const u128 bytes =
        (u128)active * 3 * row->hidden * row->moe_inter + (u128)sum * 3 * row->hidden;
    *floor_ps = (uint64_t)(bytes * PS_PER_S / draws / machine->hbm_bytes_per_s);
    return 0;
}

/* The measured module with fewer heads: what belongs to a head shrinks. */
static void narrow(struct sim_model *model, uint32_t heads)
{
    const uint64_t per_head = 1536 * (NOPE + ROPE) + LATENT * 2 * NOPE + NOPE * 7168;
    const uint64_t shared = model->attention_params - MLA_HEADS * per_head;
    assert(heads >= 1 && heads < MLA_HEADS && shared < model->attention_params);
    model->attention_params = (uint32_t)(shared + heads * per_head);
    model->attention_weight_bytes = model->attention_params + heads * LATENT * 2 * NOPE;
    model->attention_flop = 2 * heads * (LATENT + ROPE + LATENT);
    model->name[0] = '\0'; /* No longer the module of the tables. */
}

static int predict_attention(const struct fabric_machine *machine, bool table,
                             const struct sim_measured_row *row, uint64_t *ps, uint64_t *floor_ps,
                             char *err, size_t err_len)
{
    struct sim_model model;
    struct sim_work projection, core;
    if (strncmp(row->kernel, "mla", 3) != 0)
        return sim_measured_refuse(row, "kernel", "mla_...: the only attention known", err,
                                   err_len);
    if (row->heads < 1 || row->heads > MLA_HEADS)
        return sim_measured_refuse(row, "heads", "1 to 128", err, err_len);
    if (row->batch < 1 || row->batch > 1 << 20)
        return sim_measured_refuse(row, "batch_per_rank", "1 to 1048576", err, err_len);
    if (sim_model_load("deepseek-v3", &model, err, err_len) != 0) return -1;
    if (row->heads != MLA_HEADS) narrow(&model, row->heads);
    const struct sim_attention attention = {.requests = row->batch,
                                            .rows = row->batch,
                                            .context = row->kv_tokens,
                                            .heads_split = 1,
                                            .table = table};
    sim_compute_attention(machine, &model, &attention, &projection, &core);
    *ps = sim_work_ps(machine, &projection, machine->sm_count) +
          sim_work_ps(machine, &core, machine->sm_count);
    const u128 bytes =
        (u128)model.attention_weight_bytes + (u128)row->batch * row->kv_tokens * model.kv_bytes_fp8;
    *floor_ps = (uint64_t)(bytes * PS_PER_S / machine->hbm_bytes_per_s);
    return 0;
}

int sim_predict_compute(const struct sim_measured *measured,
                        const struct sim_predict_options *options,
                        const struct fabric_machine *const *machines, uint64_t *predicted_ps,
                        uint64_t *floor_ps, char *err, size_t err_len)
{
    assert(measured->kind == SIM_MEASURED_EXPERT_COMPUTE ||
           measured->kind == SIM_MEASURED_ATTENTION);
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        const struct fabric_machine *machine = machines[i];
        uint64_t ps = 0, rule_ps = 0;
        if (options->wanted && !options->wanted[i]) continue;
        if (!fabric_machine_computes(machine, err, err_len)) return -1;
        if (measured->kind == SIM_MEASURED_EXPERT_COMPUTE
                ? predict_experts(machine, row, &ps, &rule_ps, err, err_len) != 0
                : predict_attention(machine, !options->roofline, row, &ps, &rule_ps, err,
                                    err_len) != 0)
            return -1;
        predicted_ps[i] = ps;
        if (floor_ps) floor_ps[i] = rule_ps;
    }
    return 0;
}
