/* sim/plan.c - reads and checks what a run was asked for. */
#include "sim/plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ll_phase.h"
#include "ref/normal_phase.h"
#include "sim/backends.h"
#include "sim/generator.h"
#include "sim/network.h"
#include "sim/plan_notes.h"
#include "sim/rules.h"
#include "sim/transport.h"

bool sim_plan_is_trace(const struct sim_settings *settings)
{
    return !sim_generator_named(settings->routing);
}

static int choose_mode(struct sim_plan *plan, char *err, size_t err_len)
{
    const struct sim_settings *settings = &plan->settings;
    const bool prefill =
        strcmp(settings->mode, "auto") == 0 && strcmp(settings->phase, "prefill") == 0;
    plan->mode = prefill || strcmp(settings->mode, "normal") == 0 ? SIM_MODE_NORMAL : SIM_MODE_LL;
    if (!ref_recipe_parse(settings->recipe, &plan->recipe)) {
        snprintf(err, err_len,
                 "--recipe: %.24s: must be bf16, fp8, fp8r, ue8m0 or a recipe's own name",
                 settings->recipe);
        return -1;
    }
    plan->expert = strcmp(settings->expert, "mlp") == 0        ? SIM_EXPERT_MLP
                   : strcmp(settings->expert, "identity") == 0 ? SIM_EXPERT_IDENTITY
                                                               : SIM_EXPERT_STANDIN;
    if (plan->expert == SIM_EXPERT_MLP && ref_recipe_payload_bytes(plan->recipe) != 1) {
        snprintf(err, err_len, "--expert: mlp: its GEMMs take FP8 rows: --recipe must not be bf16");
        return -1;
    }
    return 0;
}

/* "", "N" or "A-B" within the model's MoE layers (and the trace's, when there is one). */
static int choose_layers(struct sim_plan *plan, uint32_t trace_layers, char *err, size_t err_len)
{
    const char *text = plan->settings.layers;
    const uint32_t have = plan->model.moe_layers;
    const uint32_t limit = trace_layers > 0 && trace_layers < have ? trace_layers : have;
    const char *dash = strchr(text, '-');
    char first_text[24] = "";
    uint64_t first = 0, last = 0;

    if (text[0] == '\0' && trace_layers > 0 && trace_layers != have) {
        snprintf(err, err_len,
                 "%s: %" PRIu32 " layers, but model %s has %" PRIu32
                 " MoE layers: they must be equal (or choose some with --layers)",
                 plan->settings.routing, trace_layers, plan->model.name, have);
        return -1;
    }
    if (text[0] == '\0') {
        last = have - 1;
    } else if (dash == NULL) {
        if (sim_parse_u64(text, 1, limit, &last) != 0) goto bad;
        last--;
    } else {
        if ((size_t)(dash - text) >= sizeof first_text) goto bad;
        memcpy(first_text, text, (size_t)(dash - text));
        if (sim_parse_u64(first_text, 0, limit - 1, &first) != 0 ||
            sim_parse_u64(dash + 1, first, limit - 1, &last) != 0)
            goto bad;
    }
    assert(first <= last && last < limit);
    if (last - first >= SIM_LAYERS_MAX) goto bad;
    for (uint64_t l = first; l <= last; l++) plan->layers[plan->layer_count++] = (uint32_t)l;
    return 0;
bad:
    snprintf(err, err_len,
             "--layers: %.48s: must be N (the first N) or A-B with layers from 0 to %" PRIu32, text,
             limit - 1);
    return -1;
}

/* Experts of the model, or places for their replicas. */
static int choose_experts(struct sim_plan *plan, char *err, size_t err_len)
{
    const uint32_t places = plan->settings.eplb;
    plan->logical_experts = plan->experts = plan->model.experts;
    if (places == 0) return 0;
    if (places < plan->model.experts || places % plan->ranks != 0) {
        snprintf(err, err_len,
                 "--eplb: %" PRIu32 ": must be at least the %" PRIu32
                 " experts of %s and a multiple of --ep %" PRIu32,
                 places, plan->model.experts, plan->model.name, plan->ranks);
        return -1;
    }
    if (plan->expert == SIM_EXPERT_MLP) {
        snprintf(err, err_len,
                 "--eplb: replicas share weights, which --expert mlp draws by place: "
                 "must be standin or identity");
        return -1;
    }
    plan->experts = places;
    plan_note(plan,
              "%" PRIu32 " experts in %" PRIu32
              " places, replicas chosen %s: expert ids are places",
              plan->logical_experts, places, plan->settings.replica);
    return 0;
}

/* When ranks start, and whether their kernels come in halves. */
static int choose_starts(struct sim_plan *plan, char *err, size_t err_len)
{
    const char *hook = plan->settings.hook;
    if (sim_skew_parse(plan->settings.skew, plan->ranks, &plan->skew, err, err_len) != 0) return -1;
    plan->hook = strcmp(hook, "none") != 0;
    if (plan->hook && sim_skew_parse_us(hook, &plan->pause_ps) != 0) {
        snprintf(err, err_len, "--hook: %.24s: must be none or microseconds from 0 to %d", hook,
                 SIM_SKEW_US_MAX);
        return -1;
    }
    if (plan->hook && plan->mode != SIM_MODE_LL) {
        snprintf(err, err_len,
                 "--hook: send and receive are apart in low latency alone: --mode ll");
        return -1;
    }
    if (plan->hook && plan->note_count < SIM_NOTES_MAX)
        plan_note(plan,
                  "--hook: times are of the send and the receive kernel, without the %.24s us of "
                  "other work between them; rows move meanwhile, so there is no floor and no ratio",
                  hook);
    return 0;
}

static int check_rules(struct sim_plan *plan, char *err, size_t err_len)
{
    struct sim_rules_input input;
    struct sim_rule rules[SIM_RULES];
    char refusal[SIM_RULE_REFUSAL_MAX];

    if (sim_rules_input_from_settings(&plan->settings, &plan->model, &plan->machine, 0,
                                      plan->tokens, plan->capacity, &input, err, err_len) != 0)
        return -1;
    input.mode = plan->mode;
    input.hidden = plan->hidden;
    input.topk = plan->topk;
    assert(input.experts == plan->experts);
    plan->nodes = input.nodes;
    plan->qp_depth = input.qp_depth;
    sim_rules_check(&input, rules);
    if (sim_rules_allow(rules, plan->settings.allow, err, err_len) != 0) return -1;
    if (sim_rules_refuse(rules, false, refusal, sizeof refusal) > 0) {
        char way[96];
        sim_rules_way_out(&input, rules, way, sizeof way);
        snprintf(err, err_len, "refused: %s%s%s", refusal, way[0] != '\0' ? "; " : "", way);
        return -1;
    }
    for (uint32_t i = 0; i < SIM_RULES; i++) {
        if (plan->note_count == SIM_NOTES_MAX) break;
        if (rules[i].lifted)
            plan_note(plan, "rule %s is lifted: %.120s", rules[i].name, rules[i].text);
        else if (rules[i].model_only)
            plan_note(plan, "model only, no shipped kernel has this shape: %.120s", rules[i].text);
    }
    return 0;
}

/* A fault that the run never comes to would pass for a fault that does no harm. */
static int check_faults(const struct sim_plan *plan, char *err, size_t err_len)
{
    assert(plan->layer_count > 0);
    for (uint32_t f = 0; f < plan->scenario.count; f++) {
        const struct sim_fault *fault = &plan->scenario.faults[f];
        const bool delay = fault->kind == SIM_FAULT_DELAY;
        const uint32_t rank = delay ? fault->rank : fault->target.source;
        const uint32_t last = plan->layers[plan->layer_count - 1];
        char what[128] = "";

        if (fault->step >= plan->settings.steps)
            snprintf(what, sizeof what, "step %" PRIu64 ": the run has steps 0 to %" PRIu32,
                     fault->step, plan->settings.steps - 1);
        else if (fault->layer < plan->layers[0] || fault->layer > last)
            snprintf(what, sizeof what,
                     "layer %" PRIu32 ": the run has layers %" PRIu32 " to %" PRIu32, fault->layer,
                     plan->layers[0], last);
        else if (rank >= plan->ranks)
            snprintf(what, sizeof what, "%s %" PRIu32 ": the run has ranks 0 to %" PRIu32,
                     delay ? "rank" : "source", rank, plan->ranks - 1);
        else if (!delay && fault->target.token >= plan->tokens[rank])
            snprintf(what, sizeof what,
                     "token %" PRIu32 ": rank %" PRIu32 " has %" PRIu32 " tokens",
                     fault->target.token, rank, plan->tokens[rank]);
        else if (!delay && strcmp(plan->settings.backend, "none") == 0)
            snprintf(what, sizeof what, "needs a --backend that moves bytes");
        if (what[0] == '\0') continue;
        snprintf(err, err_len, "%.256s: fault %" PRIu32 " (%s): %s", plan->settings.scenario, f + 1,
                 sim_fault_name(fault->kind), what);
        return -1;
    }
    return 0;
}

/* What the transport cannot do. */
static int check_transport(const struct sim_plan *plan, char *err, size_t err_len)
{
    struct sim_backend_place place;
    struct sim_transport_shape shape = {.mode = plan->mode,
                                        .nodes = plan->nodes,
                                        .ranks = plan->ranks,
                                        .experts = plan->experts,
                                        .topk = plan->topk,
                                        .hidden = plan->hidden,
                                        .recipe = (uint32_t)plan->recipe};
    char why[192];

    if (sim_backend_place(&plan->settings, &place, err, err_len) != 0) return -1;
    if (place.transport != SIM_TRANSPORT_DIRECT) return 0;
    for (uint32_t r = 0; r < plan->ranks; r++)
        if (plan->tokens[r] > shape.tokens_max) shape.tokens_max = plan->tokens[r];
    for (uint32_t f = 0; f < plan->scenario.count; f++) {
        if (plan->scenario.faults[f].kind == SIM_FAULT_DELAY) continue;
        snprintf(err, err_len,
                 "%.256s: fault %" PRIu32 " (%s): --transport direct has no single messages: "
                 "must be driven",
                 plan->settings.scenario, f + 1, sim_fault_name(plan->scenario.faults[f].kind));
        return -1;
    }
    if (sim_transport_takes(&shape, place.gpus, why, sizeof why) == 0) return 0;
    snprintf(err, err_len, "--transport: %s", why);
    return -1;
}

int sim_plan_make(const struct sim_settings *settings, uint32_t trace_layers, uint32_t trace_topk,
                  struct sim_plan *plan, char *err, size_t err_len)
{
    memset(plan, 0, sizeof *plan);
    plan->settings = *settings;
    plan->from_trace = trace_layers > 0;
    if (fabric_machine_load(settings->machine, &plan->machine, err, err_len) != 0) return -1;
    if (sim_model_load(settings->model, &plan->model, err, err_len) != 0) return -1;
    if (sim_network_read(settings, &plan->machine, &plan->network, err, err_len) != 0) return -1;
    if (settings->scenario[0] != '\0' &&
        sim_scenario_load(settings->scenario, &plan->scenario, err, err_len) != 0)
        return -1;
    if (choose_mode(plan, err, err_len) != 0) return -1;
    plan->ranks = settings->ep;
    if (choose_experts(plan, err, err_len) != 0) return -1;
    plan->topk = trace_topk > 0 ? trace_topk : plan->model.topk;
    plan->hidden = plan->model.hidden_padded;
    if (plan->hidden != plan->model.hidden)
        plan_note(plan,
                  "hidden %" PRIu32 " is padded to %" PRIu32
                  ", the next that the kernels are built for",
                  plan->model.hidden, plan->hidden);
    if (plan->topk > plan->model.topk) {
        snprintf(err, err_len, "%s: %" PRIu32 " experts per token, but model %s has top-%" PRIu32,
                 settings->routing, plan->topk, plan->model.name, plan->model.topk);
        return -1;
    }
    if (plan->topk < plan->model.topk)
        plan_note(plan, "the trace chooses %" PRIu32 " experts per token, the model %" PRIu32,
                  plan->topk, plan->model.topk);
    if (choose_layers(plan, trace_layers, err, err_len) != 0) return -1;
    if (check_rules(plan, err, err_len) != 0) return -1;
    if (plan->ranks % plan->nodes != 0) { /* Whatever is allowed: some ranks would have no peer. */
        snprintf(err, err_len, "--nodes: %" PRIu32 " ranks do not divide over %" PRIu32 " nodes",
                 plan->ranks, plan->nodes);
        return -1;
    }
    if (plan->machine.nic_bytes_per_s == 0 && plan->ranks > 1 &&
        (plan->nodes > 1 || plan->machine.nvlink_bytes_per_s == 0)) {
        snprintf(err, err_len, "--machine: %s has no NIC: one node at most", plan->machine.name);
        return -1;
    }
    if (check_faults(plan, err, err_len) != 0) return -1;
    if (choose_starts(plan, err, err_len) != 0) return -1;
    plan_note_idle(plan, sim_plan_is_trace(&plan->settings));
    if (check_transport(plan, err, err_len) != 0) return -1;
    plan->ranks_per_node = plan->ranks / plan->nodes;
    plan_note_network(plan);
    for (uint32_t r = 0; r < plan->ranks; r++)
        plan->token_start[r + 1] = plan->token_start[r] + plan->tokens[r];
    return 0;
}

struct sim_backend_place sim_plan_place(const struct sim_plan *plan, uint32_t in_flight)
{
    struct sim_backend_place place;
    char err[256];
    const int status = sim_backend_place(&plan->settings, &place, err, sizeof err);

    assert(status == 0 && in_flight >= 1);
    (void)status;
    place.in_flight = in_flight;
    place.gpu_bytes /= in_flight;
    place.sms = plan->mode == SIM_MODE_NORMAL ? plan->settings.sms : 0;
    return place;
}

struct sim_traffic_shape sim_plan_shape(const struct sim_plan *plan)
{
    struct sim_traffic_shape shape = {.mode = plan->mode,
                                      .ranks_per_node = plan->ranks_per_node,
                                      .nvlink = plan->machine.nvlink_bytes_per_s > 0};
    const uint64_t payload = (uint64_t)plan->hidden * ref_recipe_payload_bytes(plan->recipe);
    const uint32_t groups = ref_scale_groups(plan->hidden);

    shape.formula_bytes[SIM_DISPATCH] = payload;
    shape.formula_bytes[SIM_COMBINE] = 2 * (uint64_t)plan->hidden;
    if (plan->mode == SIM_MODE_LL) {
        shape.row_bytes[SIM_DISPATCH] = ref_ll_message_bytes(plan->hidden, plan->recipe);
        shape.row_bytes[SIM_COMBINE] = 2 * (uint64_t)plan->hidden;
        return shape;
    }
    const enum ref_scale_kind kind = ref_recipe_scales(plan->recipe);
    const uint64_t scale_words = kind == REF_SCALE_NONE  ? 0
                                 : kind == REF_SCALE_F32 ? groups
                                                         : ref_scale_packed_words(groups);
    shape.row_bytes[SIM_DISPATCH] =
        ref_record_dispatch(payload, 4 * scale_words, plan->topk, plan->nodes > 1).bytes;
    shape.row_bytes[SIM_COMBINE] =
        ref_record_combine(plan->hidden, plan->topk, plan->nodes > 1).bytes;
    return shape;
}

struct sim_exchange sim_plan_exchange(const struct sim_plan *plan,
                                      const struct sim_traffic *traffic,
                                      enum sim_direction direction)
{
    assert(traffic != NULL && direction < SIM_DIRECTIONS);
    return (struct sim_exchange){.machine = &plan->machine,
                                 .traffic = traffic,
                                 .network = &plan->network,
                                 .direction = direction,
                                 .hidden = plan->hidden,
                                 .sms = plan->settings.sms,
                                 .qp_depth = plan->qp_depth,
                                 .hook = plan->hook,
                                 .pause_ps = plan->pause_ps};
}
