/* sim/compute_attention.c - one layer's attention module: a measured table, or a roofline. */
#include <assert.h>
#include <string.h>

#include "sim/compute.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { SPLIT_TOKENS = 256 };
#define PPB UINT64_C(1000000000)

/* Layers of a kind are spread evenly over all layers: l is one of count out of layers. */
static bool is_one_of(uint32_t layer, uint32_t count, uint32_t layers)
{
    return (uint64_t)(layer + 1) * count / layers > (uint64_t)layer * count / layers;
}

uint64_t sim_compute_read(const struct sim_model *model, uint32_t layer, uint64_t context)
{
    assert(layer < model->layers);
    if (model->window_layers > 0 && is_one_of(layer, model->window_layers, model->layers) &&
        context > model->window_context_max)
        return model->window_context_max;
    if (model->attention_context_max > 0 && context > model->attention_context_max)
        return model->attention_context_max;
    return context;
}

/* Weights are read once; rows pass through them. */
static struct sim_work projections(const struct fabric_machine *machine,
                                   const struct sim_model *model,
                                   const struct sim_attention *attention)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const uint32_t split = attention->heads_split;
    return (struct sim_work){.fixed_ps = costs->attention_launch_ps,
                             .bytes = (model->attention_weight_bytes + split - 1) / split,
                             .flop = 2 * attention->rows * model->attention_params / split,
                             /* Weights of two bytes are multiplied in BF16. */
                             .sm_flop_per_s = model->attention_weight_bytes >=
                                                      2 * (uint64_t)model->attention_params
                                                  ? costs->sm_projection_flop_per_s / 2
                                                  : costs->sm_projection_flop_per_s};
}

/* Latents or keys and values are read once per request, whatever its query rows; a sparse
 * model's indexer reads its own bytes of the whole context in some layers. */
static struct sim_work attend(const struct fabric_machine *machine, const struct sim_model *model,
                              const struct sim_attention *attention)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const uint64_t kv = model->kv_bytes_fp8 > 0 ? model->kv_bytes_fp8 : model->kv_bytes;
    const uint64_t own =
        attention->prefill && attention->requests > 0 ? attention->rows / attention->requests : 0;
    /* Inside a prefill chunk a row reads those before it: half of the chunk on average. */
    const uint64_t seen = attention->context + own / 2;
    const uint64_t read = sim_compute_read(model, attention->layer, seen);
    const uint64_t flop = attention->prefill ? model->prefill_flop : model->attention_flop;
    const bool indexed = model->indexer_layers > 0 &&
                         is_one_of(attention->layer, model->indexer_layers, model->layers);
    const uint64_t split_tokens = read < SPLIT_TOKENS ? read : SPLIT_TOKENS;
    struct sim_work work = {.fixed_ps = costs->attention_split_ps * split_tokens / SPLIT_TOKENS,
                            .bytes = attention->requests * read * kv,
                            .flop = attention->rows * read * flop / attention->heads_split,
                            .sm_flop_per_s = costs->sm_attention_flop_per_s};
    if (indexed) {
        work.bytes += attention->requests * seen * model->indexer_bytes;
        /* In FP8, four times the attention's own rate at most; taken as twice. */
        work.flop += attention->rows * seen * model->indexer_flop / 2;
    }
    return work;
}

static uint64_t both_ps(const struct fabric_machine *machine, const struct sim_work *projection,
                        const struct sim_work *core)
{
    return sim_work_ps(machine, projection, machine->sm_count) +
           sim_work_ps(machine, core, machine->sm_count);
}

/* Stretch or shrink both works by what the model is off by at the measured points around. */
static void correct(const struct fabric_machine *machine, const struct sim_model *model,
                    const struct sim_attention *attention, struct sim_work *projection,
                    struct sim_work *core)
{
    const struct fabric_attention *table = &machine->attention;
    const uint64_t context = attention->context > 0 ? attention->context : 1;
    struct fabric_attention_box box;
    struct sim_work *const both[2] = {projection, core};
    uint64_t ppb[2][2]; /* Measured over modelled, 10^9ths. */
    if (!fabric_attention_around(table, attention->requests, context, &box)) return;
    for (int r = 0; r < 2; r++) {
        for (int c = 0; c < 2; c++) {
            struct sim_attention at = *attention;
            at.rows = at.requests = table->requests[box.row[r]];
            at.context = table->tokens[box.column[c]];
            const struct sim_work p = projections(machine, model, &at);
            const struct sim_work k = attend(machine, model, &at);
            ppb[r][c] = (uint64_t)((u128)table->ps[box.row[r]][box.column[c]] * PPB /
                                   both_ps(machine, &p, &k));
        }
    }
    const u128 share = fabric_attention_between(table, &box, attention->requests, context, ppb);
    for (int i = 0; i < 2; i++) {
        both[i]->fixed_ps = (uint64_t)(both[i]->fixed_ps * share / PPB);
        both[i]->bytes = (uint64_t)(both[i]->bytes * share / PPB);
        both[i]->flop = (uint64_t)(both[i]->flop * share / PPB);
    }
}

void sim_compute_attention(const struct fabric_machine *machine, const struct sim_model *model,
                           const struct sim_attention *attention, struct sim_work *projection,
                           struct sim_work *core)
{
    assert(attention->heads_split >= 1);
    *projection = *core = (struct sim_work){.fixed_ps = 0};
    if (attention->rows == 0) return;
    *projection = projections(machine, model, attention);
    *core = attend(machine, model, attention);
    if (attention->table && !attention->prefill && attention->heads_split == 1 &&
        attention->rows == attention->requests &&
        strcmp(machine->attention.model, model->name) == 0)
        correct(machine, model, attention, projection, core);
}
