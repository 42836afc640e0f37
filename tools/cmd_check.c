/* tools/cmd_check.c - would the library run this deployment, and if not, what would it run? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/eplb.h"
#include "sim/generator.h"
#include "sim/overlap.h"
#include "sim/plan.h"
#include "sim/rules.h"
#include "tools/commands.h"
#include "tools/table.h"
#include "traces/routing.h"

enum {
    LIBRARY_QP_DEPTH = 1024,    /* NVSHMEM_QP_DEPTH, unless the user sets it. */
    TOKENS_DRAWN_MAX = 1 << 24, /* Ids of so many tokens take at most 4 GiB. */
};

static const char *const options[] = {"model",        "machine",     "ep",       "nodes",    "mode",
                                      "recipe",       "tokens",      "capacity", "qp-depth", "sms",
                                      "after",        "routing",     "offsets",  "allow",    "seed",
                                      "overlap",      "gemm",        "comm-sms", "weights",  "eplb",
                                      "eplb-weights", "eplb-groups", "phase",    NULL};

static const struct command_spec spec = {
    .name = "check",
    .arguments = "",
    .summary = "Every precondition of a deployment: passes, or the number that fails and the\n"
               "nearest that works. --qp-depth auto is the library's 1024 here; ids are looked at\n"
               "when --routing names them, and --weights with them.",
    .example = "epsim check --model deepseek-v3 --machine h200-hgx --ep 16 --mode ll --tokens 128",
    .options = options,
};

struct check {
    struct command_line line;
    struct fabric_machine machine;
    struct sim_model model;
    struct sim_rules_input input;
    uint32_t tokens[SIM_RANKS_MAX], capacity[SIM_RANKS_MAX];
    struct sim_rule rules[SIM_RULES];
    char warning[512];
    char way[96];      /* Ranks that would pass; "" where other things are refused, or nothing. */
    char overlap[256]; /* Why the schedule asked for is refused; "" when it is not. */
};

/* What is odd and no rule forbids: lines joined into one. */
static void warn(struct check *check, const char *text)
{
    const size_t used = strlen(check->warning);
    if (text[0] != '\0')
        snprintf(check->warning + used, sizeof check->warning - used, "%s%s", used > 0 ? "; " : "",
                 text);
}

static int check_trace(struct check *check, char *err, size_t err_len)
{
    const struct sim_settings *settings = &check->line.settings;
    const bool weights = strcmp(settings->weights, "none") != 0;
    const struct trace_routing_source source = {.ids_path = settings->routing,
                                                .offsets_path = settings->offsets,
                                                .weights_path = weights ? settings->weights : NULL,
                                                .allow_duplicates = true};
    struct trace_routing trace;
    char odd[256];

    if (trace_routing_open(&source, &trace, err, err_len) != 0) return -1;
    sim_rules_check(&check->input, check->rules);
    sim_rules_check_trace(&trace, check->model.experts, check->rules);
    sim_rules_weights(&trace, odd, sizeof odd);
    warn(check, odd);
    trace_routing_close(&trace);
    return 0;
}

/* One layer of one step, drawn: enough for the rules that look at ids. */
static int check_drawn(struct check *check, char *err, size_t err_len)
{
    const struct sim_rules_input *input = &check->input;
    struct sim_generator generator;
    uint64_t *start = (uint64_t *)calloc((size_t)input->ranks + 1, sizeof(*start));
    int64_t *ids = NULL;
    int status = -1;

    if (sim_generator_parse(check->line.settings.routing, check->model.experts, input->topk,
                            input->nodes, check->line.settings.seed, &generator, err, err_len) != 0)
        goto free_start;
    for (uint32_t r = 0; start != NULL && r < input->ranks; r++)
        start[r + 1] = start[r] + input->tokens[r];
    if (start != NULL && start[input->ranks] <= TOKENS_DRAWN_MAX)
        ids = (int64_t *)malloc((start[input->ranks] * input->topk + 1) * sizeof(*ids));
    if (ids == NULL) {
        snprintf(err, err_len,
                 "--routing: %.64s: drawn for at most %d tokens in all, memory allowing",
                 check->line.settings.routing, TOKENS_DRAWN_MAX);
        goto free_start;
    }
    for (uint32_t r = 0; r < input->ranks; r++)
        sim_generator_draw(&generator, 0, 0, r, input->tokens[r], &ids[start[r] * input->topk]);
    const struct ref_routing routing = {.ranks = input->ranks,
                                        .experts = input->experts,
                                        .topk = input->topk,
                                        .token_start = start,
                                        .topk_idx = ids};
    if (input->experts % input->ranks == 0) check->input.routing = &routing;
    sim_rules_check(&check->input, check->rules);
    check->input.routing = NULL;
    status = 0;
free_start:
    free(start);
    free(ids);
    return status;
}

/* Would the replicas find places? Any weights do for that; those that were named are read. */
static int check_places(const struct check *check, char *err, size_t err_len)
{
    const struct sim_settings *settings = &check->line.settings;
    const struct sim_rules_input *input = &check->input;
    const struct ref_eplb_shape shape = {check->model.experts, input->experts,
                                         settings->eplb_groups, input->nodes, input->ranks};
    struct sim_eplb_weights weights = {1, check->model.experts,
                                       (float *)calloc(check->model.experts, sizeof(float))};
    struct sim_eplb eplb = {.layers = 0};
    int status = weights.values != NULL ? 0 : -1;

    if (status != 0) snprintf(err, err_len, "--eplb: out of memory");
    if (status == 0 && settings->eplb_weights[0] != '\0') {
        sim_eplb_weights_close(&weights);
        status = sim_eplb_weights_open(settings->eplb_weights, &weights, err, err_len);
    }
    if (status == 0 && weights.experts != check->model.experts) {
        snprintf(err, err_len,
                 "--eplb-weights: %.256s: %" PRIu32 " layers of %" PRIu32
                 " experts, but %s has %" PRIu32,
                 settings->eplb_weights, weights.layers, weights.experts, check->model.name,
                 check->model.experts);
        status = -1;
    }
    /* Where these do not divide, a rule says so. */
    if (status == 0 && input->experts % input->ranks == 0 && input->ranks % input->nodes == 0)
        status = sim_eplb_open(&weights, &shape, &eplb, err, err_len);
    sim_eplb_close(&eplb);
    sim_eplb_weights_close(&weights);
    return status != 0 ? -1 : 0;
}

/* Options that say nothing without another one. */
static int check_partners(const struct command_line *line, char *err, size_t err_len)
{
    const struct sim_settings *settings = &line->settings;
    const bool trace = command_line_given(line, "routing") && sim_plan_is_trace(settings);

    const bool places = settings->eplb > 0;
    if (command_line_partner(line, "eplb-weights", places, "--eplb N", err, err_len) != 0 ||
        command_line_partner(line, "eplb-groups", places, "--eplb N", err, err_len) != 0 ||
        command_line_partner(line, "weights", trace, "--routing TRACE", err, err_len) != 0 ||
        command_line_partner(line, "offsets", trace, "--routing TRACE", err, err_len) != 0)
        return -1;
    if (strcmp(settings->phase, "prefill") == 0 && strcmp(settings->mode, "ll") == 0) {
        snprintf(err, err_len,
                 "--phase: prefill: the low-latency mode decodes: needs --mode normal");
        return -1;
    }
    return 0;
}

static int judge(struct check *check, char *err, size_t err_len)
{
    const struct sim_settings *settings = &check->line.settings;
    int status = 0;

    if (check_partners(&check->line, err, err_len) != 0 ||
        fabric_machine_load(settings->machine, &check->machine, err, err_len) != 0 ||
        sim_model_load(settings->model, &check->model, err, err_len) != 0 ||
        sim_rules_input_from_settings(settings, &check->model, &check->machine, LIBRARY_QP_DEPTH,
                                      check->tokens, check->capacity, &check->input, err,
                                      err_len) != 0)
        return -1;
    if (settings->eplb > 0 && check_places(check, err, err_len) != 0) return -1;
    if (!command_line_given(&check->line, "routing"))
        sim_rules_check(&check->input, check->rules);
    else if (sim_plan_is_trace(settings))
        status = check_trace(check, err, err_len);
    else
        status = check_drawn(check, err, err_len);
    if (status == 0) status = sim_rules_allow(check->rules, settings->allow, err, err_len);
    if (check->input.mode == SIM_MODE_NORMAL && 2 * settings->sms >= check->machine.sm_count) {
        char text[128];
        snprintf(text, sizeof text,
                 "%" PRIu32 " communication SMs are not under half of the GPU's %" PRIu32,
                 settings->sms, check->machine.sm_count);
        warn(check, text);
    }
    return status;
}

static json_t *rule_json(const struct sim_rule *rule)
{
    json_t *json = json_object();

    json_object_set_new(json, "name", json_string(rule->name));
    json_object_set_new(json, "ok", json_boolean(rule->ok));
    json_object_set_new(json, "applies", json_boolean(rule->applies));
    json_object_set_new(json, "lifted", json_boolean(rule->lifted));
    json_object_set_new(json, "model_only", json_boolean(rule->model_only));
    json_object_set_new(json, "value", rule->applies ? json_integer(rule->value) : json_null());
    json_object_set_new(json, "limit", rule->applies ? json_integer(rule->limit) : json_null());
    json_object_set_new(json, "nearest",
                        rule->has_nearest ? json_integer(rule->nearest) : json_null());
    json_object_set_new(json, "allowed", json_string(rule->limit_text));
    json_object_set_new(json, "text", json_string(rule->text));
    return json;
}

enum { BLOCK_M = 64 }; /* The least rows of a tile that the grouped GEMMs take. */

static void check_overlap(struct check *check, char *refusal, size_t refusal_len)
{
    const enum sim_mode mode = check->input.mode == SIM_MODE_NORMAL ? SIM_MODE_NORMAL : SIM_MODE_LL;
    const size_t used = strlen(refusal);
    if (sim_overlap_check(&check->line.settings, &check->machine, mode, BLOCK_M, check->overlap,
                          sizeof check->overlap) == 0) {
        check->overlap[0] = '\0';
        return;
    }
    snprintf(refusal + used, refusal_len - used, "%s%s", used > 0 ? "; " : "", check->overlap);
}

static json_t *check_json(const struct check *check, bool ok)
{
    json_t *json = json_object(), *rules = json_array(), *lifted = json_array();

    for (uint32_t i = 0; i < SIM_RULES; i++) {
        json_array_append_new(rules, rule_json(&check->rules[i]));
        if (check->rules[i].lifted)
            json_array_append_new(lifted, json_string(check->rules[i].name));
    }
    json_object_set_new(json, "ok", json_boolean(ok));
    json_object_set_new(json, "mode",
                        json_string(check->input.mode == SIM_MODE_NORMAL ? "normal" : "ll"));
    json_object_set_new(json, "rules", rules);
    json_object_set_new(json, "lifted", lifted);
    json_object_set_new(json, "warning",
                        check->warning[0] != '\0' ? json_string(check->warning) : json_null());
    json_object_set_new(json, "overlap",
                        check->overlap[0] != '\0' ? json_string(check->overlap) : json_null());
    json_object_set_new(json, "way_out",
                        check->way[0] != '\0' ? json_string(check->way) : json_null());
    json_object_set_new(json, "settings", sim_settings_json(&check->line.settings));
    return json;
}

static void print_check(const struct check *check, const char *refusal)
{
    const struct sim_settings *settings = &check->line.settings;
    struct table *table = table_open("rule|verdict|>value|~allowed|>nearest|~why");

    printf("%s on %s: EP%" PRIu32 ", %" PRIu32 " node%s, %s\n", check->model.name,
           check->machine.name, settings->ep, check->input.nodes, check->input.nodes > 1 ? "s" : "",
           check->input.mode == SIM_MODE_NORMAL ? "normal" : "low latency");
    if (settings->eplb > 0)
        printf("%" PRIu32 " experts in %" PRIu32 " places\n", check->model.experts,
               check->input.experts);
    putchar('\n');
    for (uint32_t i = 0; i < SIM_RULES; i++) {
        const struct sim_rule *rule = &check->rules[i];

        table_cell(table, "%s", rule->name);
        table_cell(table, "%s",
                   !rule->applies ? "-"
                   : rule->ok     ? "ok"
                   : rule->lifted ? "lifted"
                                  : "refused");
        if (rule->applies) {
            table_cell(table, "%" PRId64, rule->value);
            table_cell(table, "%s", rule->limit_text);
        } else {
            table_cell(table, "%s", "");
            table_cell(table, "%s", "");
        }
        if (!rule->ok && rule->has_nearest)
            table_cell(table, "%" PRId64, rule->nearest);
        else
            table_cell(table, "%s", "");
        table_cell(table, "%s%s", rule->text,
                   rule->model_only ? " (run and replay go on, model only)" : "");
    }
    table_print(table, stdout);
    table_close(table);
    if (check->model.hidden != check->model.hidden_padded)
        printf("\nnote: run and replay pad hidden %" PRIu32 " to %" PRIu32 "\n",
               check->model.hidden, check->model.hidden_padded);
    if (check->warning[0] != '\0') printf("\nwarning: %s\n", check->warning);
    printf("\n%s%s%s%s\n", refusal[0] != '\0' ? "refused: " : "ok: the library would run this",
           refusal, check->way[0] != '\0' ? "; " : "", check->way);
}

int cmd_check(int argc, char **argv)
{
    struct check *check = (struct check *)calloc(1, sizeof(*check));
    char err[2048] = "", refusal[SIM_RULE_REFUSAL_MAX];
    int status = EXIT_ENVIRONMENT;

    if (check == NULL) return command_fail(&spec, EXIT_ENVIRONMENT, "not enough memory");
    status = command_line_parse(&spec, argc, argv, &check->line);
    if (status >= 0) goto free_check;
    if (judge(check, err, sizeof(err)) != 0) {
        status = command_fail_line(&check->line, EXIT_USAGE, err);
        goto free_check;
    }
    sim_rules_refuse(check->rules, true, refusal, sizeof(refusal));
    check_overlap(check, refusal, sizeof(refusal));
    const bool ok = refusal[0] == '\0';
    status = ok ? EXIT_OK : EXIT_NO;
    sim_rules_way_out(&check->input, check->rules, check->way, sizeof check->way);
    if (!check->line.json)
        print_check(check, refusal);
    else if (command_print_json(check_json(check, ok)) != EXIT_OK)
        status = EXIT_ENVIRONMENT;
free_check:
    free(check);
    return status;
}
