/* fabric/costs.c - the table of costs: names, places and ranges. */
#include "fabric/costs.h"
#include <string.h>

#define PS_MAX UINT64_C(1000000000000)     /* One second: nothing here is longer. */
#define RATE_MIN UINT64_C(1000000)         /* 1 MB/s. */
#define RATE_MAX UINT64_C(100000000000000) /* 100 TB/s. */
/* A macro, since the place of a field is not a value that a function could take. */
#define LL(name, min, max)                                                                         \
    {                                                                                              \
        "ll", #name, offsetof(struct fabric_costs, ll.name), min, max                              \
    }
#define NORMAL(name, min, max)                                                                     \
    {                                                                                              \
        "normal", #name, offsetof(struct fabric_costs, normal.name), min, max                      \
    }

#define COMPUTE(name, min, max)                                                                    \
    {                                                                                              \
        "compute", #name, offsetof(struct fabric_costs, compute.name), min, max                    \
    }
#define FLOP_MIN UINT64_C(1000000000)       /* 1 GFLOP/s. */
#define FLOP_MAX UINT64_C(1000000000000000) /* 1 PFLOP/s in one SM. */

static const struct fabric_cost_field fields[] = {
    LL(dispatch_launch_ps, 0, PS_MAX),
    LL(combine_launch_ps, 0, PS_MAX),
    LL(block_launch_ps, 0, PS_MAX),
    LL(grid_barrier_ps, 0, PS_MAX),
    LL(post_ps, 0, PS_MAX),
    LL(doorbell_ps, 0, PS_MAX),
    LL(nic_flag_ps, 0, PS_MAX),
    LL(expert_pass_ps, 0, PS_MAX),
    LL(token_chain_ps, 0, PS_MAX),
    LL(sm_copy_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(sm_store_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(dispatch_path_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(publish_ps, 0, PS_MAX),
    LL(receive_chain_ps, 0, PS_MAX),
    LL(warp_receive_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(sm_receive_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(receive_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(row_chain_ps, 0, PS_MAX),
    LL(stage_ps, 0, PS_MAX),
    LL(warp_send_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(sm_send_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(combine_path_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(poll_ps, 0, PS_MAX),
    LL(reduce_chain_ps, 0, PS_MAX),
    LL(sm_reduce_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(reduce_bytes_per_s, RATE_MIN, RATE_MAX),

    NORMAL(dispatch_call_ps, 0, PS_MAX),
    NORMAL(combine_call_ps, 0, PS_MAX),
    NORMAL(dispatch_kernel_ps, 0, PS_MAX),
    NORMAL(combine_kernel_ps, 0, PS_MAX),
    NORMAL(exchange_ps, 0, PS_MAX),
    NORMAL(exchange_node_ps, 0, PS_MAX),
    NORMAL(exchange_token_ps, 0, PS_MAX),
    NORMAL(cached_token_ps, 0, PS_MAX),
    NORMAL(cached_row_ps, 0, PS_MAX),
    NORMAL(poll_ps, 0, PS_MAX),
    NORMAL(publish_ps, 0, PS_MAX),
    NORMAL(scan_ps, 0, PS_MAX),
    NORMAL(visit_ps, 0, PS_MAX),
    NORMAL(put_ps, 0, PS_MAX),
    NORMAL(crowd_ppm, 0, 1000000),
    NORMAL(cold_ps, 0, PS_MAX),
    NORMAL(cache_bytes, 0, UINT64_C(1) << 40),
    NORMAL(link_ppm, 1, 1000000),
    NORMAL(send_row_ps, 0, PS_MAX),
    NORMAL(scale_ppm, 0, 100000000),
    NORMAL(send_warp_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(send_block_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(bulk_row_ps, 0, PS_MAX),
    NORMAL(bulk_block_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(forward_row_ps, 0, PS_MAX),
    NORMAL(forward_warp_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(return_row_ps, 0, PS_MAX),
    NORMAL(return_warp_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(return_rail_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(return_block_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(sum_step_ps, 0, PS_MAX),
    NORMAL(sum_block_bytes_per_s, RATE_MIN, RATE_MAX),
    NORMAL(merge_step_ps, 0, PS_MAX),
    NORMAL(merge_block_bytes_per_s, RATE_MIN, RATE_MAX),

    COMPUTE(hbm_ppm, 1, 1000000),
    COMPUTE(sm_stream_bytes_per_s, RATE_MIN, RATE_MAX),
    COMPUTE(sm_flop_per_s, FLOP_MIN, FLOP_MAX),
    COMPUTE(sm_projection_flop_per_s, FLOP_MIN, FLOP_MAX),
    COMPUTE(sm_attention_flop_per_s, FLOP_MIN, FLOP_MAX),
    COMPUTE(expert_launch_ps, 0, PS_MAX),
    COMPUTE(expert_ps, 0, PS_MAX),
    COMPUTE(masked_ppm, 0, 1000000),
    COMPUTE(contiguous_ppm, 0, 1000000),
    COMPUTE(permute_ppm, 1, 1000000),
    COMPUTE(lead_ps, 0, PS_MAX),
    COMPUTE(host_ps, 0, PS_MAX),
    COMPUTE(attention_launch_ps, 0, PS_MAX),
    COMPUTE(attention_split_ps, 0, PS_MAX),
    COMPUTE(kernel_ps, 0, PS_MAX),
    COMPUTE(collective_ps, 0, PS_MAX),
};

const struct fabric_cost_field *fabric_cost_fields(size_t *count)
{
    *count = sizeof fields / sizeof fields[0];
    return fields;
}

const struct fabric_cost_field *fabric_cost_find(const char *section, const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].section, section) == 0 && strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}
