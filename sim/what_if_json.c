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

json_t *sim_what_if_json(const struct sim_what_if *what_if)
{
    json_t *json = json_object();
    char digest[17];

    put_count(json, "ranks", what_if->ranks);
    put_count(json, "nodes", what_if->nodes);
    json_object_set_new(json, "mode", json_string(what_if->mode == SIM_MODE_LL ? "ll" : "normal"));
    put_count(json, "tokens", what_if->tokens);
    put_count(json, "layers", what_if->layers);
    put_us(json, "dispatch_us", what_if->dispatch_ps);
    put_us(json, "combine_us", what_if->combine_ps);
    put_us(json, "layer_us", what_if->layer_ps);
    put_us(json, "step_us", what_if->step_ps);
    if (what_if->step_ps > 0 && what_if->ranks > 0)
        json_object_set_new(json, "tokens_per_s_per_gpu",
                            json_real((double)what_if->tokens * 1e12 / (double)what_if->step_ps /
                                      (double)what_if->ranks));
    put_count(json, "local_bytes", what_if->bytes.wire[SIM_LINK_LOCAL]);
    put_count(json, "nvlink_bytes", what_if->bytes.wire[SIM_LINK_NVLINK]);
    put_count(json, "nic_bytes", what_if->bytes.wire[SIM_LINK_NIC]);
    put_count(json, "buffer_bytes", what_if->buffer_bytes);
    json_object_set_new(json, "expert_max_over_mean",
                        json_real((double)what_if->expert_ratio_ppm / 1e6));
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)what_if->digest);
    json_object_set_new(json, "digest", json_string(digest));
    return json;
}
