/* sim/compute_attention.c - one layer's attention module: a measured table, or a roofline. */
#include <assert.h>
#include <string.h>

#include "sim/compute.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { SPLIT_TOKENS = 256 };

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

/* Both works stretched or shrunk so that together, on all SMs, they take whole_ps. */
static void fit_to(const struct fabric_machine *machine, uint64_t whole_ps,
                   struct sim_work *projection, struct sim_work *core)
{
    const uint64_t modelled_ps = sim_work_ps(machine, projection, machine->sm_count) +
                                 sim_work_ps(machine, core, machine->sm_count);
    struct sim_work *const both[2] = {projection, core};
    assert(modelled_ps > 0);
    for (int i = 0; i < 2; i++) {
        both[i]->fixed_ps = (uint64_t)((u128)both[i]->fixed_ps * whole_ps / modelled_ps);
        both[i]->bytes = (uint64_t)((u128)both[i]->bytes * whole_ps / modelled_ps);
        both[i]->flop = (uint64_t)((u128)both[i]->flop * whole_ps / modelled_ps);
    }
}

void sim_compute_attention(const struct fabric_machine *machine, const struct sim_model *model,
                           const struct sim_attention *attention, struct sim_work *projection,
                           struct sim_work *core)
{
    uint64_t measured_ps = 0;
    assert(attention->heads_split >= 1);
    *projection = *core = (struct sim_work){.fixed_ps = 0};
    if (attention->rows == 0) return;
    *projection = projections(machine, model, attention);
    *core = attend(machine, model, attention);
    if (attention->table && !attention->prefill && attention->heads_split == 1 &&
        attention->rows == attention->requests &&
        strcmp(machine->attention.model, model->name) == 0 &&
        fabric_attention_at(&machine->attention, attention->requests,
                            attention->context > 0 ? attention->context : 1, &measured_ps))
        fit_to(machine, measured_ps, projection, core);
}
