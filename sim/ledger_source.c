/* sim/ledger_source.c - the routing that the ledger counts: drawn, or read from a trace. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/generator.h"
#include "sim/ledger.h"
#include "traces/routing.h"

struct rows {
    struct ref_routing routing;
    uint64_t *token_start;
    int64_t *ids;
};

static int open_rows(const struct sim_ledger_input *input, uint32_t topk, struct rows *rows,
                     char *err, size_t err_len)
{
    rows->token_start = (uint64_t *)calloc((size_t)input->ranks + 1, sizeof(uint64_t));
    rows->ids = (int64_t *)malloc((input->rows * topk + 1) * sizeof(int64_t));
    if (rows->token_start == NULL || rows->ids == NULL) {
        snprintf(err, err_len, "--rows: %" PRIu64 ": not enough memory", input->rows);
        return -1;
    }
    for (uint64_t r = 0; r < input->ranks; r++)
        rows->token_start[r + 1] =
            rows->token_start[r] + input->rows / input->ranks + (r < input->rows % input->ranks);
    assert(rows->token_start[input->ranks] == input->rows);
    rows->routing.ranks = input->ranks;
    rows->routing.experts = input->model->experts;
    rows->routing.topk = topk;
    rows->routing.token_start = rows->token_start;
    rows->routing.topk_idx = rows->ids;
    return 0;
}

static void add(struct sim_ledger_counts *sum, const struct sim_ledger_counts *one)
{
    sum->selections += one->selections;
    sum->messages += one->messages;
    sum->local += one->local;
    sum->nvlink += one->nvlink;
    sum->nic += one->nic;
    sum->dispatch_bytes += one->dispatch_bytes;
    sum->combine_bytes += one->combine_bytes;
    sum->dispatch_wire_bytes += one->dispatch_wire_bytes;
    sum->combine_wire_bytes += one->combine_wire_bytes;
    sum->loads.experts += one->loads.experts;
    sum->loads.rows += one->loads.rows;
    if (one->loads.max > sum->loads.max) sum->loads.max = one->loads.max;
    for (uint32_t i = 0; i < SIM_LEDGER_LOADS; i++) sum->loads.by_rows[i] += one->loads.by_rows[i];
}

static void count_layer(const struct sim_ledger_input *input, const struct rows *rows,
                        struct sim_ledger_counts *ll, struct sim_ledger_counts *normal)
{
    struct sim_ledger_counts one;

    sim_ledger_count(&rows->routing, input->ranks_per_node, input->model->hidden, true, &one);
    add(ll, &one);
    sim_ledger_count(&rows->routing, input->ranks_per_node, input->model->hidden, false, &one);
    add(normal, &one);
}

static int count_drawn(const struct sim_ledger_input *input, const struct sim_ledger_source *source,
                       struct sim_ledger_counts *ll, struct sim_ledger_counts *normal, char *err,
                       size_t err_len)
{
    const uint32_t nodes = (input->ranks + input->ranks_per_node - 1) / input->ranks_per_node;
    const uint32_t topk = input->model->topk;
    struct sim_generator generator;
    struct rows rows = {{0}, NULL, NULL};
    int status = -1;

    if (sim_generator_parse(source->routing, input->model->experts, topk, nodes, source->seed,
                            &generator, err, err_len) != 0 ||
        open_rows(input, topk, &rows, err, err_len) != 0)
        goto free_rows;
    for (uint32_t layer = 0; layer < input->model->moe_layers; layer++) {
        for (uint32_t r = 0; r < input->ranks; r++) {
            const uint64_t first = rows.token_start[r];

            sim_generator_draw(&generator, 0, layer, r, (uint32_t)(rows.token_start[r + 1] - first),
                               &rows.ids[first * topk]);
        }
        count_layer(input, &rows, ll, normal);
    }
    status = 0;
free_rows:
    free(rows.token_start);
    free(rows.ids);
    return status;
}

static int count_trace(const struct sim_ledger_input *input, const struct sim_ledger_source *source,
                       struct sim_ledger_counts *ll, struct sim_ledger_counts *normal,
                       uint64_t *layers, char *err, size_t err_len)
{
    const struct trace_routing_source from = {.ids_path = source->routing,
                                              .offsets_path = source->offsets,
                                              .experts = input->model->experts,
                                              .allow_duplicates = true};
    struct trace_routing trace;
    struct rows rows = {{0}, NULL, NULL};
    int status = -1;

    if (trace_routing_open(&from, &trace, err, err_len) != 0) return -1;
    if (trace.tokens < input->rows) {
        snprintf(err, err_len, "--rows: %" PRIu64 ": %.200s has %" PRIu64 " tokens", input->rows,
                 source->routing, trace.tokens);
        goto close_trace;
    }
    if (open_rows(input, trace.topk, &rows, err, err_len) != 0) goto free_rows;
    for (uint32_t layer = 0; layer < trace.layers; layer++) {
        for (uint32_t r = 0; r < input->ranks; r++) /* Token i goes to rank i mod R. */
            for (uint64_t t = rows.token_start[r]; t < rows.token_start[r + 1]; t++)
                trace_routing_ids(&trace, (t - rows.token_start[r]) * input->ranks + r, layer,
                                  &rows.ids[t * trace.topk]);
        count_layer(input, &rows, ll, normal);
    }
    *layers = trace.layers;
    status = 0;
free_rows:
    free(rows.token_start);
    free(rows.ids);
close_trace:
    trace_routing_close(&trace);
    return status;
}

int sim_ledger_count_source(const struct sim_ledger_input *input,
                            const struct sim_ledger_source *source, struct sim_ledger_counts *ll,
                            struct sim_ledger_counts *normal, uint64_t *layers, char *err,
                            size_t err_len)
{
    memset(ll, 0, sizeof(*ll));
    memset(normal, 0, sizeof(*normal));
    assert(input->rows >= 1 && input->ranks >= 1);
    *layers = input->model->moe_layers;
    return source->trace ? count_trace(input, source, ll, normal, layers, err, err_len)
                         : count_drawn(input, source, ll, normal, err, err_len);
}
