/* sim/step_memory.c - what a rank must hold: weights, the library's buffers, activations; the
 * rest is room for the KV cache. */
#include <assert.h>
#include <string.h>

#include "ref/sizes.h"
#include "sim/step.h"

enum { BF16 = 2, ROWS_UNIT = 128 };

static uint64_t weights_bytes(const struct sim_model *model, uint64_t weights)
{
    return weights / 32 * model->expert_32_bytes;
}

/* Embedding and logits stand whole on every rank, in BF16. */
static uint64_t other_bytes(const struct sim_plan *plan)
{
    const struct sim_model *model = &plan->model;
    const uint64_t hidden = model->hidden;
    const bool spread = plan->settings.gather[0] != 'n';
    const uint64_t dense = weights_bytes(model, 3 * hidden * model->dense_inter);
    uint64_t bytes = 2 * hidden * model->vocabulary * BF16;
    bytes += (uint64_t)model->layers * model->attention_weight_bytes / plan->settings.attn_tp;
    bytes += model->dense_layers * (spread ? dense / plan->ranks : dense);
    bytes += model->moe_layers *
             (hidden * model->experts * BF16 +
              weights_bytes(model, 3 * hidden * model->moe_inter * model->shared_experts));
    return bytes;
}

static uint64_t buffer_bytes(const struct sim_plan *plan)
{
    struct ref_size_config configs[2];
    const uint64_t row = (uint64_t)plan->hidden * BF16;
    uint64_t nvl = 0, rdma = 0, most = 0;
    if (plan->mode == SIM_MODE_LL) {
        for (uint32_t r = 0; r < plan->ranks; r++)
            if (plan->capacity[r] > most) most = plan->capacity[r];
        return ref_size_ll(most, plan->hidden, plan->experts).total_bytes;
    }
    for (int c = 0; c < 2; c++) {
        /* Other rank counts: the table of the next that the library lists. */
        uint32_t listed = plan->ranks;
        while (listed < 160 &&
               !ref_size_default_config(c == 1, listed, plan->settings.sms, &configs[c]))
            listed++;
        if (!ref_size_default_config(c == 1, listed, plan->settings.sms, &configs[c])) return 0;
        const uint64_t own = ref_size_nvl(&configs[c], row, plan->ranks);
        const uint64_t far = ref_size_rdma(&configs[c], row, plan->ranks);
        if (own > nvl) nvl = own;
        if (far > rdma) rdma = far;
    }
    return nvl + rdma;
}

/* Low latency: the second GEMM's output rectangle and what goes into both GEMMs; normal: the same
 * for as many rows as a balanced rank receives, copies made. */
static uint64_t workspace_bytes(const struct sim_plan *plan)
{
    const struct sim_model *model = &plan->model;
    const uint64_t local = plan->experts / plan->ranks;
    const uint64_t row = (uint64_t)plan->hidden * (BF16 + 1) + model->moe_inter * (2 * BF16 + 1);
    uint64_t rows = 0, most = 0;
    for (uint32_t r = 0; r < plan->ranks; r++)
        if (plan->capacity[r] > most) most = plan->capacity[r];
    if (plan->mode == SIM_MODE_LL)
        rows = local * plan->ranks * most;
    else
        rows = plan->token_start[plan->ranks] * plan->topk / plan->ranks + local * ROWS_UNIT;
    return rows * row;
}

void sim_step_memory(const struct sim_plan *plan, struct sim_step_memory *memory)
{
    const struct sim_model *model = &plan->model;
    assert(plan->ranks > 0 && plan->experts % plan->ranks == 0);
    assert(plan->settings.attn_tp > 0);
    const uint64_t kv = model->kv_bytes_fp8 > 0 ? model->kv_bytes_fp8 : model->kv_bytes;
    struct sim_step_memory made = {
        .hbm_bytes = plan->machine.hbm_bytes,
        .expert_bytes = model->moe_layers *
                        weights_bytes(model, 3 * (uint64_t)model->hidden * model->moe_inter *
                                                 (plan->experts / plan->ranks)),
        .other_bytes = other_bytes(plan),
        .buffer_bytes = buffer_bytes(plan),
        .workspace_bytes = workspace_bytes(plan),
        .kv_token_bytes =
            kv * model->layers + (uint64_t)model->indexer_bytes * model->indexer_layers};
    made.held_bytes =
        made.expert_bytes + made.other_bytes + made.buffer_bytes + made.workspace_bytes;
    if (made.held_bytes < made.hbm_bytes) made.kv_bytes = made.hbm_bytes - made.held_bytes;
    if (made.kv_token_bytes > 0) made.kv_tokens = made.kv_bytes / made.kv_token_bytes;
    assert(made.kv_bytes <= made.hbm_bytes);
    *memory = made;
}
