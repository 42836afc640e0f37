/* sim/what_if_json.c - a what-if as the flat object that tables, plots and other programs read. */
#include <stdio.h>

#include "sim/what_if.h"

static void put_us(json_t *json, const char *key, uint64_t time_ps)
{
    json_object_set_new(json, key, json_real((double)time_ps / 1e6));
}

static void put_count(json_t *json, const char *key, uint64_t count)
{
    json_object_set_new(json, key, json_integer((json_int_t)count));
}

/* What a whole step's MoE layer is made of: every kernel that took time, as NAME_us. */
static void put_ops(json_t *json, const struct sim_step_times *times)
{
    char key[48];
    for (int o = 0; o < SIM_OPS; o++) {
        if (o == SIM_OP_DISPATCH || o == SIM_OP_COMBINE || times->op_ps[o] == 0) continue;
        snprintf(key, sizeof key, "%s_us", sim_op_name((enum sim_op)o));
        put_us(json, key, times->op_ps[o]);
    }
}

/* Rates that a step of no time has not. */
static void put_rates(json_t *json, const struct sim_what_if *what_if)
{
    if (what_if->step_ps == 0 || what_if->tokens == 0) return;
    const double rate =
        (double)what_if->tokens * 1e12 / (double)what_if->step_ps / (double)what_if->ranks;
    json_object_set_new(json, "tokens_per_s_per_gpu", json_real(rate));
    if (what_if->gpu_hour_microusd > 0) /* Micro-dollars an hour over tokens an hour. */
        json_object_set_new(json, "usd_per_million_tokens",
                            json_real((double)what_if->gpu_hour_microusd / (rate * 3600)));
}

static void put_memory(json_t *json, const struct sim_step_memory *memory)
{
    put_count(json, "weight_bytes", memory->expert_bytes + memory->other_bytes);
    put_count(json, "buffer_bytes", memory->buffer_bytes);
    put_count(json, "workspace_bytes", memory->workspace_bytes);
    put_count(json, "rank_bytes", memory->held_bytes);
    put_count(json, "hbm_bytes", memory->hbm_bytes);
    put_count(json, "kv_bytes", memory->kv_bytes);
    put_count(json, "kv_tokens", memory->kv_tokens);
}

json_t *sim_what_if_json(const struct sim_what_if *what_if)
{
    json_t *json = json_object();

    put_count(json, "ranks", what_if->ranks);
    put_count(json, "nodes", what_if->nodes);
    json_object_set_new(json, "mode", json_string(what_if->mode == SIM_MODE_LL ? "ll" : "normal"));
    json_object_set_new(json, "timed",
                        json_string(what_if->whole ? "whole step" : "dispatch and combine"));
    put_count(json, "tokens", what_if->tokens);
    put_count(json, "layers", what_if->layers);
    put_us(json, "dispatch_us", what_if->dispatch_ps);
    put_us(json, "combine_us", what_if->combine_ps);
    if (what_if->whole) put_ops(json, &what_if->times);
    put_us(json, "layer_us", what_if->layer_ps);
    put_us(json, "step_us", what_if->step_ps);
    put_rates(json, what_if);
    put_count(json, "local_bytes", what_if->wire_bytes[SIM_LINK_LOCAL]);
    put_count(json, "nvlink_bytes", what_if->wire_bytes[SIM_LINK_NVLINK]);
    put_count(json, "nic_bytes", what_if->wire_bytes[SIM_LINK_NIC]);
    put_memory(json, &what_if->memory);
    put_count(json, "kv_needed_tokens", what_if->kv_needed_tokens);
    json_object_set_new(json, "weights_fit", json_boolean(what_if->weights_fit));
    json_object_set_new(json, "fits", json_boolean(what_if->fits));
    return json;
}
