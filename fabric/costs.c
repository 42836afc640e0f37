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

static const struct fabric_cost_field fields[] = {
    LL(dispatch_launch_ps, 0, PS_MAX),
    LL(combine_launch_ps, 0, PS_MAX),
    LL(grid_barrier_ps, 0, PS_MAX),
    LL(poll_ps, 0, PS_MAX),
    LL(expert_pass_ps, 0, PS_MAX),
    LL(token_chain_ps, 0, PS_MAX),
    LL(warp_store_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(post_ps, 0, PS_MAX),
    LL(nic_flag_ps, 0, PS_MAX),
    LL(sm_receive_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(receive_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(row_chain_ps, 0, PS_MAX),
    LL(warp_send_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(sm_send_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(send_link_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(clean_flag_ps, 0, PS_MAX),
    LL(reduce_chain_ps, 0, PS_MAX),
    LL(sm_reduce_bytes_per_s, RATE_MIN, RATE_MAX),
    LL(reduce_bytes_per_s, RATE_MIN, RATE_MAX),

    NORMAL(launch_ps, 0, PS_MAX),
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
