/* sim/rules_settings.c - from a run's options to the figures that the rules judge. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ref/quantise.h"
#include "ref/sizes.h"
#include "sim/rules.h"

enum { CAPACITY_UNIT = 128, TOKENS_MAX = 1 << 28 };

static enum sim_mode mode_named(const char *name)
{
    if (strcmp(name, "ll") == 0) return SIM_MODE_LL;
    return strcmp(name, "normal") == 0 ? SIM_MODE_NORMAL : SIM_MODE_AUTO;
}

/* Experts of the model, or places for their replicas. */
static int fill_experts(const struct sim_settings *settings, const struct sim_model *model,
                        struct sim_rules_input *input, char *err, size_t err_len)
{
    input->experts = settings->eplb > 0 ? settings->eplb : model->experts;
    if (input->experts >= model->experts) return 0;
    snprintf(err, err_len, "--eplb: %" PRIu32 ": must be at least the %" PRIu32 " experts of %s",
             settings->eplb, model->experts, model->name);
    return -1;
}

static int fill_capacity(const struct sim_settings *settings, const uint32_t *tokens,
                         uint32_t *capacity, char *err, size_t err_len)
{
    uint32_t most = 1;

    if (settings->capacity[0] != '\0')
        return sim_settings_per_rank("capacity", settings->capacity, settings->ep, TOKENS_MAX,
                                     capacity, err, err_len);
    for (uint32_t r = 0; r < settings->ep; r++)
        if (tokens[r] > most) most = tokens[r];
    most = (most + CAPACITY_UNIT - 1) / CAPACITY_UNIT * CAPACITY_UNIT;
    for (uint32_t r = 0; r < settings->ep; r++) capacity[r] = most;
    return 0;
}

static int fill_qp_depth(const struct sim_settings *settings, uint32_t qp_depth_auto,
                         struct sim_rules_input *input, char *err, size_t err_len)
{
    uint64_t depth = qp_depth_auto;
    uint32_t most = 0;

    for (uint32_t r = 0; r < input->ranks; r++)
        if (input->capacity[r] > most) most = input->capacity[r];
    if (strcmp(settings->qp_depth, "auto") == 0) {
        if (depth == 0) depth = ref_size_qp_depth(most);
    } else if (sim_parse_u64(settings->qp_depth, 1, UINT32_MAX, &depth) != 0) {
        snprintf(err, err_len,
                 "--qp-depth: %.32s: must be auto or a whole number from 1 to %" PRIu32,
                 settings->qp_depth, UINT32_MAX);
        return -1;
    }
    assert(depth <= UINT32_MAX);
    input->qp_depth = (uint32_t)depth;
    return 0;
}

int sim_rules_input_from_settings(const struct sim_settings *settings,
                                  const struct sim_model *model,
                                  const struct fabric_machine *machine, uint32_t qp_depth_auto,
                                  uint32_t *tokens_out, uint32_t *capacity_out,
                                  struct sim_rules_input *input, char *err, size_t err_len)
{
    enum ref_recipe recipe = REF_RECIPE_BF16;
    const uint32_t node_ranks = machine->gpus_per_node;

    assert(settings->ep >= 1 && node_ranks >= 1);
    memset(input, 0, sizeof(*input));
    if (!ref_recipe_parse(settings->recipe, &recipe)) {
        snprintf(err, err_len, "--recipe: %.24s: must be bf16, fp8, fp8r, ue8m0 or a recipe's name",
                 settings->recipe);
        return -1;
    }
    if (sim_settings_per_rank("tokens", settings->tokens, settings->ep, TOKENS_MAX, tokens_out, err,
                              err_len) != 0 ||
        fill_capacity(settings, tokens_out, capacity_out, err, err_len) != 0 ||
        fill_experts(settings, model, input, err, err_len) != 0)
        return -1;
    input->mode = mode_named(settings->mode);
    if (input->mode == SIM_MODE_AUTO && strcmp(settings->phase, "prefill") == 0)
        input->mode = SIM_MODE_NORMAL;
    input->hidden = model->hidden;
    input->topk = model->topk;
    input->ranks = settings->ep;
    input->nodes =
        settings->nodes > 0 ? settings->nodes : (settings->ep + node_ranks - 1) / node_ranks;
    input->machine_node_ranks = node_ranks;
    input->machine_has_nic = machine->nic_bytes_per_s > 0;
    input->machine_sms = machine->sm_count;
    input->machine_hbm_bytes = machine->hbm_bytes;
    input->payload_bytes = ref_recipe_payload_bytes(recipe);
    input->tokens = tokens_out;
    input->capacity = capacity_out;
    input->sms = settings->sms;
    input->after = strcmp(settings->after, "normal") == 0 ? SIM_MODE_NORMAL : SIM_MODE_LL;
    input->clean = strcmp(settings->after, "clean") == 0;
    return fill_qp_depth(settings, qp_depth_auto, input, err, err_len);
}
