/* fabric/costs.h - what software and SMs cost the two protocols, and compute, on one machine.
 *
 * One struct per section, every field a uint64_t with its unit in its name, and one table
 * that names them all: the loader reads those sections of a machine file by it,
 * `machines` prints by it, the fitter moves fields by it. A field exists in the table or
 * nowhere: add the member here and its line in costs.c. A file may write it in any unit of
 * its family (fabric/units.h): launch_ps is usually written launch_us. */
#ifndef FABRIC_COSTS_H
#define FABRIC_COSTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Low-latency mode (sim/ll.c). A rate is what the part reaches by itself, an SM's what one SM
 * gets through with all its warps. */
struct fabric_ll_costs {
    /* Both. */
    uint64_t dispatch_launch_ps; /* Launch to first instruction, and the last block's exit. */
    uint64_t combine_launch_ps;
    uint64_t block_launch_ps; /* More for every block of the grid. */
    uint64_t grid_barrier_ps; /* All blocks of a kernel wait for each other. */
    uint64_t post_ps;         /* A warp builds a work request and rings. */
    uint64_t doorbell_ps;     /* Doorbell to wire: request and row fetched over PCIe. */
    uint64_t nic_flag_ps;     /* A count or flag as remote atomic, at either NIC. */
    /* Dispatch, sending. */
    uint64_t expert_pass_ps;            /* Finish counters: a step of one warp over 32 experts. */
    uint64_t token_chain_ps;            /* A block's token: what is not bytes. */
    uint64_t sm_copy_bytes_per_s;       /* Read and written, in the cast. */
    uint64_t sm_store_bytes_per_s;      /* Stores of an SM, local or to a peer. */
    uint64_t dispatch_path_bytes_per_s; /* GPU to NVLink port, in series with the port. */
    uint64_t publish_ps;                /* Last send complete to count on its way. */
    /* Dispatch, receiving: the copy of a (source rank, local expert) group. */
    uint64_t receive_chain_ps;         /* Count seen to first rows moving. */
    uint64_t warp_receive_bytes_per_s; /* A warp alone. */
    uint64_t sm_receive_bytes_per_s;   /* Payload; the copy reads and writes each byte. */
    uint64_t receive_bytes_per_s;      /* The same for all SMs together. */
    /* Combine, sending: a warp of a (destination rank, local expert) group moves a row. */
    uint64_t row_chain_ps;             /* Begin and end of a row. */
    uint64_t stage_ps;                 /* More for a row by NIC: written, fenced, then posted. */
    uint64_t warp_send_bytes_per_s;    /* A warp alone. */
    uint64_t sm_send_bytes_per_s;      /* All warps of an SM. */
    uint64_t combine_path_bytes_per_s; /* GPU to NVLink port, in series with the port. */
    /* Combine, receiving: the weighted sum of a token's rows. */
    uint64_t poll_ps;               /* Last flag there to all warps knowing. */
    uint64_t reduce_chain_ps;       /* A token: load its choices, first row in, store the sum. */
    uint64_t sm_reduce_bytes_per_s; /* Rows read. */
    uint64_t reduce_bytes_per_s;    /* The same for all SMs together. */
};

/* Normal mode (sim/normal.c). */
struct fabric_normal_costs {
    /* Before and after the rows. */
    uint64_t dispatch_call_ps; /* One node: launches, cached count exchange, the kernel's start and
                                  end. */
    uint64_t combine_call_ps;  /* The same for combine. */
    uint64_t dispatch_kernel_ps; /* Several nodes: the kernel's start and end. */
    uint64_t combine_kernel_ps;  /* The same for combine. */
    uint64_t exchange_ps; /* Several nodes: count exchange, launch, barriers and the usual skew. */
    uint64_t exchange_node_ps;  /* The same per node beyond the first. */
    uint64_t exchange_token_ps; /* Dispatch: a channel's tokens counted, per token. */
    uint64_t cached_token_ps;   /* Combine: a channel's tokens walked back, per token. */
    uint64_t cached_row_ps;     /* Combine: a channel's rail rows walked back, per row. */
    /* Per chunk, or per row looked at. */
    uint64_t poll_ps;    /* See a flag or a row's meta data in local memory. */
    uint64_t publish_ps; /* Warps meet, fence, store the tail. */
    uint64_t scan_ps;    /* A sending group passes a token. */
    uint64_t visit_ps;   /* A forwarding warp passes a row. */
    uint64_t put_ps;     /* A chunk handed to the NIC. */
    /* What slows copies down. */
    uint64_t crowd_ppm; /* Millionths of a block's work, per SM that copies beside it. */
    uint64_t cold_ps; /* A KiB of a token read again, for the share that the cache does not hold. */
    uint64_t cache_bytes; /* L2 of one GPU. */
    uint64_t link_ppm;    /* Share of a pair's NVLink goodput that all-to-all traffic reaches. */
    /* Dispatch, sending: loads and stores by a warp, then by all warps of a block. */
    uint64_t send_row_ps; /* A row's begin and end. */
    uint64_t scale_ppm;   /* FP8: what a byte of scales costs beyond a byte of data, in millionths:
                             words of 4 bytes, each with an index of its own. */
    uint64_t send_warp_bytes_per_s;
    uint64_t send_block_bytes_per_s;
    /* Dispatch, receiving: out of the ring; forwarders share the block's rate. */
    uint64_t bulk_row_ps; /* A round of rows, one per warp. */
    uint64_t bulk_block_bytes_per_s;
    /* Dispatch, several nodes: a forwarder's warp moves rows through shared memory, one by one. */
    uint64_t forward_row_ps; /* A row's begin and end. */
    uint64_t forward_warp_bytes_per_s;
    /* Combine, sending. */
    uint64_t return_row_ps;           /* A row's begin and end. */
    uint64_t return_warp_bytes_per_s; /* One node: loads and stores by a warp. */
    uint64_t return_rail_bytes_per_s; /* Several nodes: the same, through shared memory. */
    uint64_t return_block_bytes_per_s;
    /* Combine: sums at home, and on several nodes partial sums at the forwarder. */
    uint64_t sum_step_ps;           /* A warp's 256 channels of a token. */
    uint64_t sum_block_bytes_per_s; /* Rows read. */
    uint64_t merge_step_ps;         /* The same at the forwarder. */
    uint64_t merge_block_bytes_per_s;
};

/* Everything between dispatch and combine, and around them (sim/compute.h). */
struct fabric_compute_costs {
    /* Memory. */
    uint64_t hbm_ppm;               /* Share of the datasheet rate that kernels reach. */
    uint64_t sm_stream_bytes_per_s; /* What one SM can pull. */
    /* Tensor cores: per SM and data sheet precision FP8; BF16 has half of it. */
    uint64_t sm_flop_per_s;            /* Grouped GEMMs of the experts. */
    uint64_t sm_projection_flop_per_s; /* Projections of attention: few rows, many launches. */
    uint64_t sm_attention_flop_per_s;  /* The attention itself, in BF16. */
    /* Expert kernels. */
    uint64_t expert_launch_ps; /* Both GEMMs and the activation: begins, ends, fills, drains. */
    uint64_t expert_ps;        /* A local expert more, with rows or without. */
    uint64_t masked_ppm;       /* Of the shorter of memory and tensor time: what does not hide. */
    uint64_t contiguous_ppm;   /* The same for the kernels of prefill. */
    uint64_t permute_ppm;      /* Sorting rows by expert and back: share of the HBM rate reached. */
    uint64_t lead_ps;          /* Contiguous, no graph: counts known to first GEMM on its way. */
    uint64_t host_ps;          /* The same: the host's whole launch path, a floor. */
    /* Attention module of one layer. */
    uint64_t attention_launch_ps;
    uint64_t attention_split_ps; /* Splitting the context over SMs and merging, from 256 tokens. */
    /* Everything else. */
    uint64_t kernel_ps;     /* A small kernel in a graph, beside its bytes. */
    uint64_t collective_ps; /* A collective's launch and protocol, beside its bytes and flights. */
};

struct fabric_costs {
    struct fabric_ll_costs ll;
    struct fabric_normal_costs normal;
    struct fabric_compute_costs compute;
};

struct fabric_cost_field {
    const char *section; /* "ll" | "normal" | "compute" */
    const char *name;    /* As in the struct: the last word is the unit. */
    size_t offset;       /* Of the uint64_t in struct fabric_costs. */
    uint64_t min, max;   /* Inclusive, in the field's own unit; what a machine file may say. */
};

enum { FABRIC_COSTS_MAX = 128 }; /* Fields in all. */

/* Every cost of every section, sections together. Static storage. */
const struct fabric_cost_field *fabric_cost_fields(size_t *count);

/* NULL when no such field. name is the struct's, not another unit's. */
const struct fabric_cost_field *fabric_cost_find(const char *section, const char *name);

static inline uint64_t *fabric_cost_at(struct fabric_costs *costs,
                                       const struct fabric_cost_field *field)
{
    return (uint64_t *)(void *)((char *)costs + field->offset);
}

#ifdef __cplusplus
}
#endif

#endif
