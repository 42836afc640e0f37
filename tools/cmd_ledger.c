/* tools/cmd_ledger.c - bytes of the four crossings: by formula, counted, on the wire. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "fabric/machine.h"
#include "sim/ledger.h"
#include "sim/plan.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const options[] = {"model", "machine", "ep", "routing", "offsets", "seed", NULL};

static const struct command_flag flags[] = {
    {"rows", "N", "token rows of one step, the whole group's [192]"},
    {"requests", "N", "requests that they belong to [32]"},
    {"context", "N", "tokens that a request has read [8192]"},
    {"chunk", "N", "rows of a prefill chunk [32768]"},
    {NULL, NULL, NULL},
};

static const struct command_spec spec = {
    .name = "ledger",
    .arguments = "",
    .summary = "What one forward step moves between GPUs: by formula, counted from a routing, and\n"
               "on the wire.",
    .example = "epsim ledger --model glm-5.3-article --ep 8 --rows 192",
    .options = options,
    .flags = flags,
};

struct ledger {
    struct command_line line;
    struct sim_model model;
    struct fabric_machine machine;
    struct sim_ledger_input input;
    struct sim_ledger formula;
    struct sim_ledger_counts ll, normal; /* Sums over the layers. */
    uint64_t layers;
    struct sim_ledger_line lines[SIM_LEDGER_LINES_MAX];
    size_t line_count;
};

static int read_flag(const struct command_line *line, const char *flag, uint64_t fallback,
                     uint64_t max, uint64_t *out, char *err, size_t err_len)
{
    const char *text = command_line_flag(line, flag);

    *out = fallback;
    if (text == NULL || sim_parse_u64(text, 1, max, out) == 0) return 0;
    snprintf(err, err_len, "--%s: %.32s: must be a whole number from 1 to %" PRIu64, flag, text,
             max);
    return -1;
}

static int compute(struct ledger *ledger, char *err, size_t err_len)
{
    const struct sim_settings *settings = &ledger->line.settings;
    struct sim_ledger_input *input = &ledger->input;

    if (command_line_partner(&ledger->line, "offsets", sim_plan_is_trace(settings),
                             "--routing TRACE", err, err_len) != 0 ||
        sim_model_load(settings->model, &ledger->model, err, err_len) != 0 ||
        fabric_machine_load(settings->machine, &ledger->machine, err, err_len) != 0 ||
        read_flag(&ledger->line, "rows", SIM_LEDGER_ROWS, 1 << 20, &input->rows, err, err_len) ||
        read_flag(&ledger->line, "requests", SIM_LEDGER_REQUESTS, 10000, &input->requests, err,
                  err_len) ||
        read_flag(&ledger->line, "context", SIM_LEDGER_CONTEXT, 100000000, &input->context, err,
                  err_len) ||
        read_flag(&ledger->line, "chunk", SIM_LEDGER_CHUNK, 1 << 28, &input->chunk, err, err_len))
        return -1;
    if (ledger->model.experts % settings->ep != 0) {
        snprintf(err, err_len, "--ep: %" PRIu32 ": must divide the model's %" PRIu32 " experts",
                 settings->ep, ledger->model.experts);
        return -1;
    }
    input->model = &ledger->model;
    input->ranks = settings->ep;
    input->ranks_per_node = ledger->machine.gpus_per_node;
    const struct sim_ledger_source source = {.routing = settings->routing,
                                             .offsets = settings->offsets,
                                             .trace = sim_plan_is_trace(settings),
                                             .seed = settings->seed};
    sim_ledger_compute(input, &ledger->formula);
    ledger->line_count = sim_ledger_lines(input, ledger->lines);
    return sim_ledger_count_source(input, &source, &ledger->ll, &ledger->normal, &ledger->layers,
                                   err, err_len);
}

static const char *const unit_names[] = {"bytes", "ps", "flop", "count", "ten-thousandths"};

static const char *value_text(const struct sim_ledger_line *line, char text[32])
{
    const double value = (double)line->value;

    switch (line->unit) {
    case SIM_LEDGER_BYTES:
        if (value >= 1e9)
            snprintf(text, 32, "%.4g GB", value / 1e9);
        else if (value >= 1e6)
            snprintf(text, 32, "%.4g MB", value / 1e6);
        else
            snprintf(text, 32, "%.0f B", value);
        return text;
    case SIM_LEDGER_PS:
        if (value >= 1e9)
            snprintf(text, 32, "%.4g ms", value / 1e9);
        else
            snprintf(text, 32, "%.4g us", value / 1e6);
        return text;
    case SIM_LEDGER_FLOP: snprintf(text, 32, "%.4g GFLOP", value / 1e9); return text;
    case SIM_LEDGER_COUNT: snprintf(text, 32, "%.0f", value); return text;
    case SIM_LEDGER_PARTS:
        if (value > 1e4)
            snprintf(text, 32, "%.4f", value / 1e4);
        else
            snprintf(text, 32, "%.1f %%", value / 1e2);
        return text;
    }
    return "";
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *counts_json(const struct sim_ledger_counts *counts)
{
    json_t *json = json_object();

    json_object_set_new(json, "selections", integer(counts->selections));
    json_object_set_new(json, "messages", integer(counts->messages));
    json_object_set_new(json, "local", integer(counts->local));
    json_object_set_new(json, "nvlink", integer(counts->nvlink));
    json_object_set_new(json, "nic", integer(counts->nic));
    json_object_set_new(json, "dispatch", integer(counts->dispatch_bytes));
    json_object_set_new(json, "combine", integer(counts->combine_bytes));
    json_object_set_new(json, "dispatch_wire", integer(counts->dispatch_wire_bytes));
    json_object_set_new(json, "combine_wire", integer(counts->combine_wire_bytes));
    return json;
}

/* Rows of an expert in a layer: least, middle, nine tenths, most; the mean. */
static const uint32_t load_parts[] = {0, 5000, 9000};

static json_t *loads_json(const struct sim_ledger_loads *loads)
{
    static const char *const names[] = {"min", "p50", "p90"};
    json_t *json = json_object();

    for (size_t i = 0; i < sizeof load_parts / sizeof load_parts[0]; i++)
        json_object_set_new(json, names[i], integer(sim_ledger_load(loads, load_parts[i])));
    json_object_set_new(json, "max", integer(loads->max));
    json_object_set_new(json, "mean", json_real((double)loads->rows / (double)loads->experts));
    return json;
}

static json_t *ledger_json(const struct ledger *ledger)
{
    const struct sim_ledger *formula = &ledger->formula;
    json_t *json = json_object(), *crossings = json_object(), *precision = json_object();
    json_t *counted = json_object(), *figures = json_array();

    json_object_set_new(crossings, "gather", integer(formula->gather));
    json_object_set_new(crossings, "dispatch", integer(formula->dispatch));
    json_object_set_new(crossings, "combine", integer(formula->combine));
    json_object_set_new(crossings, "reduce_scatter", integer(formula->reduce_scatter));
    json_object_set_new(precision, "all_bf16", integer(formula->all_bf16));
    json_object_set_new(precision, "fp8_dispatch", integer(formula->fp8_dispatch));
    json_object_set_new(precision, "all_fp8", integer(formula->all_fp8));
    json_object_set_new(counted, "routing", json_string(ledger->line.settings.routing));
    json_object_set_new(counted, "layers", integer(ledger->layers));
    json_object_set_new(counted, "ll", counts_json(&ledger->ll));
    json_object_set_new(counted, "normal", counts_json(&ledger->normal));
    json_object_set_new(counted, "masked_m", loads_json(&ledger->ll.loads));
    for (size_t i = 0; i < ledger->line_count; i++) {
        const struct sim_ledger_line *line = &ledger->lines[i];
        json_t *figure = json_object();

        json_object_set_new(figure, "section", json_string(line->section));
        json_object_set_new(figure, "name", json_string(line->name));
        json_object_set_new(figure, "formula", json_string(line->formula));
        json_object_set_new(figure, "value", integer(line->value));
        json_object_set_new(figure, "unit", json_string(unit_names[line->unit]));
        json_object_set_new(figure, "article", json_string(line->article));
        json_object_set_new(figure, "remark", json_string(line->remark));
        json_array_append_new(figures, figure);
    }
    json_object_set_new(json, "model", json_string(ledger->model.name));
    json_object_set_new(json, "ep", integer(ledger->input.ranks));
    json_object_set_new(json, "rows", integer(ledger->input.rows));
    json_object_set_new(json, "crossings", crossings);
    json_object_set_new(json, "step", integer(formula->step));
    json_object_set_new(json, "by_precision", precision);
    json_object_set_new(json, "counted", counted);
    json_object_set_new(json, "figures", figures);
    return json;
}

/* One crossing's four answers. */
static void print_crossing(struct table *table, const char *name, uint64_t formula,
                           uint64_t ll_counted, uint64_t ll_wire, uint64_t normal_counted,
                           uint64_t normal_wire)
{
    const uint64_t values[5] = {formula, ll_counted, ll_wire, normal_counted, normal_wire};
    char text[16];

    table_cell(table, "%s", name);
    for (size_t i = 0; i < 5; i++) table_cell(table, "%s", table_bytes(values[i], text));
}

static void print_counted(const struct ledger *ledger)
{
    const struct sim_ledger *formula = &ledger->formula;
    const struct sim_ledger_counts *ll = &ledger->ll, *normal = &ledger->normal;
    const uint64_t ring = ledger->input.ranks - 1, layers = ledger->layers;
    const double tokens = (double)(ledger->input.rows * layers);
    struct table *table = table_open(
        "crossing of one layer|>formula|>LL counted|>LL wire|>normal counted|>normal wire");

    print_crossing(table, "gather", formula->gather, formula->gather, ring * formula->gather,
                   formula->gather, ring * formula->gather);
    print_crossing(table, "dispatch (FP8)", formula->dispatch, ll->dispatch_bytes / layers,
                   ll->dispatch_wire_bytes / layers, normal->dispatch_bytes / layers,
                   normal->dispatch_wire_bytes / layers);
    print_crossing(table, "combine (BF16)", formula->combine, ll->combine_bytes / layers,
                   ll->combine_wire_bytes / layers, normal->combine_bytes / layers,
                   normal->combine_wire_bytes / layers);
    print_crossing(table, "reduce-scatter", formula->reduce_scatter, formula->reduce_scatter,
                   ring * formula->reduce_scatter, formula->reduce_scatter,
                   ring * formula->reduce_scatter);
    table_print(table, stdout);
    table_close(table);
    printf("counted: mean of %" PRIu64
           " layers of %s, all ranks together. wire: what leaves a rank,\n"
           "with headers and scales; rings for gather and reduce-scatter. Copies of a token: LL "
           "%.4f,\nnormal %.4f\n",
           layers, ledger->line.settings.routing, (double)ll->messages / tokens,
           (double)normal->messages / tokens);
    printf("masked_m, rows of an expert in a layer: min %" PRIu64 ", median %" PRIu64
           ", p90 %" PRIu64 ", max %" PRIu64 ", mean %.2f\n",
           sim_ledger_load(&ll->loads, load_parts[0]), sim_ledger_load(&ll->loads, load_parts[1]),
           sim_ledger_load(&ll->loads, load_parts[2]), ll->loads.max,
           (double)ll->loads.rows / (double)ll->loads.experts);
}

static void print_figures(const struct ledger *ledger)
{
    const char *section = "";
    struct table *table = NULL;
    bool article = false; /* It has figures for its own workload alone. */

    for (size_t i = 0; i < ledger->line_count; i++)
        if (ledger->lines[i].article[0] != '\0') article = true;
    for (size_t i = 0; i < ledger->line_count; i++) {
        const struct sim_ledger_line *line = &ledger->lines[i];
        char text[32];

        if (strcmp(section, line->section) != 0) {
            if (table != NULL) table_print(table, stdout);
            table_close(table);
            section = line->section;
            printf("\n%s\n", section);
            table = table_open(article ? "figure|~formula|>value|>article|~checking adds"
                                       : "figure|~formula|>value|~checking adds");
        }
        table_cell(table, "%s", line->name);
        table_cell(table, "%s", line->formula);
        table_cell(table, "%s", value_text(line, text));
        if (article) table_cell(table, "%s", line->article);
        table_cell(table, "%s", line->remark);
    }
    if (table != NULL) table_print(table, stdout);
    table_close(table);
}

int cmd_ledger(int argc, char **argv)
{
    static const size_t err_bytes = 1024;
    struct ledger ledger;
    char err[1024] = "";

    memset(&ledger, 0, sizeof(ledger));
    const int status = command_line_parse(&spec, argc, argv, &ledger.line);
    if (status >= 0) return status;
    if (compute(&ledger, err, err_bytes) != 0) return command_fail(&spec, EXIT_USAGE, err);
    if (ledger.line.json) return command_print_json(ledger_json(&ledger));
    printf("%s, EP%" PRIu32 ", %" PRIu64 " rows a step\n\n", ledger.model.name, ledger.input.ranks,
           ledger.input.rows);
    print_counted(&ledger);
    print_figures(&ledger);
    return EXIT_OK;
}
