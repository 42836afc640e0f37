/* ref/sizes.h - how many bytes and how deep a queue the library needs, exactly.
 *
 * The formulas of DeepEP dd758ca, csrc/legacy/config.hpp, in 64 bits. They answer what the
 * library would compute; whether it would accept that is said by the *_fits functions. */
#ifndef REF_SIZES_H
#define REF_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tuning of normal mode: tokens per chunk sent, and slots of a receive ring. */
struct ref_size_config {
    uint32_t sms; /* Even; channels = sms / 2. */
    uint32_t nvl_send;
    uint32_t nvl_recv;
    uint32_t rdma_send;
    uint32_t rdma_recv; /* As given; ref_size_rdma_recv rounds it up. */
};

/* rdma_recv rounded up to a multiple of rdma_send, as the library's constructor does. */
uint32_t ref_size_rdma_recv(const struct ref_size_config *config);

/* The library's default table for dispatch or combine. False for a rank count that it does not
 * list (it asserts there); then *config is not written. sms comes from the caller. */
bool ref_size_default_config(bool combine, uint32_t ranks, uint32_t sms,
                             struct ref_size_config *config);

/* get_nvl_buffer_size_hint. hidden_bytes = hidden * max(element size, 2). */
uint64_t ref_size_nvl(const struct ref_size_config *config, uint64_t hidden_bytes, uint32_t ranks);

/* get_rdma_buffer_size_hint; 0 up to 8 ranks. */
uint64_t ref_size_rdma(const struct ref_size_config *config, uint64_t hidden_bytes, uint32_t ranks);

/* The parts of an LL buffer. Each of send, recv and signal stands there twice. */
struct ref_size_ll {
    uint64_t dispatch_message_bytes; /* 16 + max(2H, H + 4H/128): the larger recipe. */
    uint64_t combine_slot_bytes;     /* 2H + 4H/128. */
    uint64_t send_bytes;
    uint64_t recv_bytes;
    uint64_t signal_bytes;
    uint64_t total_bytes; /* What get_low_latency_rdma_size_hint returns. */
};

/* max_tokens is M, num_max_dispatch_tokens_per_rank. Ranks do not enter. */
struct ref_size_ll ref_size_ll(uint64_t max_tokens, uint32_t hidden, uint32_t experts);

/* Does the library's constructor take a buffer of that many bytes? bytes / 16 < 2^31 - 1. */
bool ref_size_bytes_fit(uint64_t bytes);

/* Largest M, a multiple of `multiple` (4 satisfies every rank count), whose LL buffer fits;
 * 0 when none does. */
uint64_t ref_size_ll_max_tokens(uint32_t hidden, uint32_t experts, uint32_t multiple);

/* Work requests that a queue pair must hold: 2 * (M + 1). */
uint64_t ref_size_qp_depth(uint64_t max_tokens);

/* Largest M that a depth carries: depth / 2 - 1, and 0 when that is none. */
uint64_t ref_size_qp_max_tokens(uint64_t qp_depth);

#ifdef __cplusplus
}
#endif

#endif
