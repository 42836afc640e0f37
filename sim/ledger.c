/* sim/ledger.c - the four crossings by formula, and the same counted from ids. */
#include "sim/ledger.h"
#include <assert.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum { BF16_BYTES = 2, LL_HEADER_BYTES = 16, SOURCE_META_BYTES = 8, RECORD_UNIT = 16 };

void sim_ledger_compute(const struct sim_ledger_input *input, struct sim_ledger *ledger)
{
    const struct sim_model *model = input->model;
    const uint64_t hidden = model->hidden, selections = input->rows * model->topk;
    const uint64_t moe = model->moe_layers;

    assert(model->layers >= model->moe_layers);
    assert(hidden > 0 && model->topk > 0);
    ledger->gather = input->rows * hidden * BF16_BYTES;
    ledger->dispatch = selections * hidden;
    ledger->combine = selections * hidden * BF16_BYTES;
    ledger->reduce_scatter = ledger->gather;
    ledger->step = moe * (ledger->dispatch + ledger->combine) +
                   model->layers * (ledger->gather + ledger->reduce_scatter);
    ledger->all_bf16 = moe * 2 * ledger->combine;
    ledger->fp8_dispatch = moe * (ledger->dispatch + ledger->combine);
    ledger->all_fp8 = moe * 2 * ledger->dispatch;
    assert(ledger->all_bf16 >= ledger->fp8_dispatch && ledger->fp8_dispatch >= ledger->all_fp8);
}

uint64_t sim_ledger_distinct(uint32_t experts, uint32_t topk, uint32_t groups)
{
    const u128 one = 1000000000000000000u;
    const uint64_t group_experts = experts / groups;
    u128 missed = one; /* Probability that a given group gets none of the K. */

    assert(groups >= 1 && experts % groups == 0 && topk <= experts);
    for (uint64_t i = 0; i < topk; i++) {
        const uint64_t outside = experts - group_experts;

        missed = outside > i ? missed * (outside - i) / (experts - i) : 0;
    }
    assert(missed <= one);
    return (uint64_t)((groups * (one - missed) * 10000 + one / 2) / one); /* To nearest. */
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Distinct values of id / share among a token's ids; places[] receives them. */
static uint32_t distinct_places(const int64_t *ids, uint32_t topk, uint32_t share,
                                uint32_t places[REF_TOPK_MAX])
{
    uint32_t count = 0;

    assert(topk <= REF_TOPK_MAX && share > 0);
    for (uint32_t k = 0; k < topk; k++) {
        uint32_t at = 0;

        if (ids[k] < 0) continue;
        const uint32_t place = (uint32_t)((uint64_t)ids[k] / share);
        while (at < count && places[at] != place) at++;
        if (at == count) places[count++] = place;
    }
    return count;
}

static void count_message(uint32_t from, uint32_t to, uint32_t ranks_per_node,
                          struct sim_ledger_counts *counts)
{
    if (from == to)
        counts->local++;
    else if (from / ranks_per_node == to / ranks_per_node)
        counts->nvlink++;
    else
        counts->nic++;
}

/* Normal mode: once per node to the rank with the sender's index there, then once per rank. */
static void count_normal(const struct ref_routing *routing, uint64_t token, uint32_t from,
                         uint32_t ranks_per_node, struct sim_ledger_counts *counts)
{
    const int64_t *ids = &routing->topk_idx[token * routing->topk];
    const uint32_t local_experts = ref_local_experts(routing);
    uint32_t to[REF_TOPK_MAX], nodes[REF_TOPK_MAX];
    const uint32_t rank_count = distinct_places(ids, routing->topk, local_experts, to);
    const uint32_t node_count =
        distinct_places(ids, routing->topk, local_experts * ranks_per_node, nodes);

    counts->messages += rank_count;
    for (uint32_t n = 0; n < node_count; n++) counts->nic += nodes[n] != from / ranks_per_node;
    for (uint32_t r = 0; r < rank_count; r++) {
        const uint32_t rail = to[r] / ranks_per_node * ranks_per_node + from % ranks_per_node;

        count_message(rail, to[r], ranks_per_node, counts);
    }
}

static void count_token(const struct ref_routing *routing, uint64_t token, uint32_t from,
                        uint32_t ranks_per_node, bool ll, struct sim_ledger_counts *counts)
{
    const int64_t *ids = &routing->topk_idx[token * routing->topk];

    for (uint32_t k = 0; k < routing->topk; k++) {
        if (ids[k] < 0) continue;
        counts->selections++;
        if (!ll) continue;
        counts->messages++;
        count_message(from, (uint32_t)((uint64_t)ids[k] / ref_local_experts(routing)),
                      ranks_per_node, counts);
    }
    if (!ll) count_normal(routing, token, from, ranks_per_node, counts);
}

static void count_loads(const struct ref_routing *routing, struct sim_ledger_loads *loads)
{
    uint64_t rows[4096] = {0};
    assert(routing->experts <= 4096);
    for (uint64_t i = 0; i < ref_token_count(routing) * routing->topk; i++)
        if (routing->topk_idx[i] >= 0) rows[routing->topk_idx[i]]++;
    for (uint32_t e = 0; e < routing->experts; e++) {
        loads->experts++;
        loads->rows += rows[e];
        if (rows[e] > loads->max) loads->max = rows[e];
        loads->by_rows[rows[e] < SIM_LEDGER_LOADS ? rows[e] : SIM_LEDGER_LOADS - 1]++;
    }
}

uint64_t sim_ledger_load(const struct sim_ledger_loads *loads, uint32_t ten_thousandths)
{
    const uint64_t rank = (loads->experts * ten_thousandths + 9999) / 10000;
    uint64_t seen = 0;
    assert(ten_thousandths <= 10000);
    for (uint64_t rows = 0; rows < SIM_LEDGER_LOADS - 1; rows++) {
        seen += loads->by_rows[rows];
        if (seen > 0 && seen >= rank) return rows;
    }
    return loads->max;
}

void sim_ledger_count(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t hidden,
                      bool ll, struct sim_ledger_counts *counts)
{
    const uint64_t scale_bytes = (uint64_t)4 * (hidden / REF_GROUP_CHANNELS);
    const uint64_t topk = routing->topk;
    uint64_t dispatch_row = LL_HEADER_BYTES + hidden + scale_bytes, combine_row = 2ull * hidden;

    assert(ranks_per_node >= 1 && routing->experts % routing->ranks == 0);
    memset(counts, 0, sizeof(*counts));
    count_loads(routing, &counts->loads);
    for (uint32_t rank = 0; rank < routing->ranks; rank++)
        for (uint64_t t = routing->token_start[rank]; t < routing->token_start[rank + 1]; t++)
            count_token(routing, t, rank, ranks_per_node, ll, counts);
    if (!ll) {
        dispatch_row = round_up(hidden + scale_bytes + SOURCE_META_BYTES + 8 * topk, RECORD_UNIT);
        combine_row = round_up(2ull * hidden + SOURCE_META_BYTES + 4 * topk, RECORD_UNIT);
    }
    const uint64_t travelling = counts->nvlink + counts->nic;
    counts->dispatch_bytes = counts->messages * hidden;
    counts->combine_bytes = counts->messages * 2 * hidden;
    counts->dispatch_wire_bytes = travelling * dispatch_row;
    counts->combine_wire_bytes = travelling * combine_row;
    assert(!ll || counts->messages == counts->local + travelling);
}
