/* ref/v2.h - the second library interface (ElasticBuffer), as functions only.
 *
 * DeepEP dd758ca: how many SMs it would take, how large its buffer is, its prefix sums and the
 * order in which its combine adds. No protocol of it is simulated. */
#ifndef REF_V2_H
#define REF_V2_H

#include <stdbool.h>
#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ref_v2_group {
    uint32_t ranks;        /* R */
    uint32_t scaleup;      /* U: ranks of one NVLink domain. */
    uint32_t scaleout;     /* S: 1 = direct, else nodes; ranks = S * U. */
    uint32_t nvlink_ranks; /* P of the direct mode: ranks reachable by NVLink. */
};

/* get_theoretical_num_sms. Rates in GB/s; prefer_overlap false asks for at least 64. */
struct ref_v2_sms_in {
    struct ref_v2_group group;
    uint32_t experts;
    uint32_t topk;
    double nvlink_gbs; /* 0.9 * the sum of all NVLinks, one direction. */
    double rdma_gbs;   /* Line rate / 8. */
    bool prefer_overlap;
    uint32_t device_sms;
};
uint32_t ref_v2_num_sms(const struct ref_v2_sms_in *in);

/* get_theoretical_num_qps: what is asked for, capped by what was allocated. */
uint32_t ref_v2_num_qps(bool hybrid, uint32_t num_sms, uint32_t allocated);

/* calculate_elastic_buffer_size without the workspace; a multiple of 2 MiB. */
struct ref_v2_buffer_in {
    struct ref_v2_group group;
    uint64_t max_tokens; /* M */
    uint32_t hidden;
    uint32_t topk; /* 0 sizes with 32, as the library does. */
    bool fp8_dispatch;
    bool multiple_reduction;
};
uint64_t ref_v2_buffer_bytes(const struct ref_v2_buffer_in *in);

/* Prefix sums of one rank's handle in direct mode. NULL members are left out. */
struct ref_v2_psum {
    int32_t *rank_psum;        /* [ranks]: rows from ranks 0..r, once per (token, me). */
    int32_t *expert_psum;      /* [L]: aligned counts of experts 0..i; expanded: aligned counts of
                                  experts before i + the count of i. */
    int32_t *expert_unaligned; /* [L]: selections of each local expert. */
};
void ref_v2_psums(const struct ref_routing *routing, uint32_t rank, uint32_t alignment, bool expand,
                  const struct ref_v2_psum *out);

/* The ranks that answer a token, in the order in which combine adds them: ascending by the
 * rank's master column, the highest column of the token on that rank. Returns how many. */
uint32_t ref_v2_order(const struct ref_routing *routing, uint64_t token,
                      uint32_t ranks[REF_TOPK_MAX], uint32_t masters[REF_TOPK_MAX]);

/* Add rows (BF16 [hidden] each, in that order) onto bias0 + bias1 in fp32, one rounding. With
 * at most two rows and no bias the library uses a bf16 add, which keeps -0 where fp32 from +0
 * gives +0. hidden is a multiple of 128. */
void ref_v2_reduce(uint32_t hidden, const uint16_t *const *rows, uint32_t row_count,
                   const uint16_t *bias0, const uint16_t *bias1, uint16_t *out);

#ifdef __cplusplus
}
#endif

#endif
