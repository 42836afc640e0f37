/* ref/expert.h - what an expert does to the rows it received: stand-in, identity, or an FP8 MLP.
 *
 * The stand-in is what the captures of the real kernels used: cheap, and different for every
 * value, so that a row in the wrong place is seen. The MLP computes block-scaled FP8 GEMMs in
 * one exact order of fp32 operations, so that a GPU kernel that promises that order can be
 * compared bit for bit. In low latency a row is for one expert; in normal mode for all experts of
 * its rank that the token chose, and what they answer becomes one row again. Pure functions over
 * the caller's arrays; nothing is allocated. */
#ifndef REF_EXPERT_H
#define REF_EXPERT_H

#include <stdint.h>

#include "ref/quantise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out [rows][hidden] = bf16(fp32(fp32(x) * 0.37f) + 0.11f): two roundings in fp32, never fused,
 * one to bf16. x is the payload widened, or fp32(code) * scale, not rounded to bf16 between.
 * payload and scales as in ref_dequantise(). */
void ref_expert_standin(enum ref_recipe recipe, const void *payload, const void *scales,
                        uint64_t rows, uint32_t hidden, uint16_t *out);

/* out = x as BF16: bf16 rows are copied bit for bit, FP8 rows dequantised and rounded once. */
void ref_expert_identity(enum ref_recipe recipe, const void *payload, const void *scales,
                         uint64_t rows, uint32_t hidden, uint16_t *out);

/* One expert's weights: e4m3 codes, row-major with the summed dimension last, and one fp32 scale
 * per block of 128 x 128. H = hidden, I = inter; both multiples of 128. */
struct ref_expert_weights {
    uint32_t hidden;
    uint32_t inter;
    const uint8_t *gate;      /* [inter][hidden] */
    const uint8_t *up;        /* [inter][hidden] */
    const uint8_t *down;      /* [hidden][inter] */
    const float *gate_scales; /* [inter / 128][hidden / 128] */
    const float *up_scales;   /* [inter / 128][hidden / 128] */
    const float *down_scales; /* [hidden / 128][inter / 128] */
};

/* Bytes of code and number of scales that one of the three matrices takes. */
static inline uint64_t ref_expert_matrix_codes(uint32_t hidden, uint32_t inter)
{
    return (uint64_t)hidden * inter;
}

static inline uint64_t ref_expert_matrix_scales(uint32_t hidden, uint32_t inter)
{
    return (uint64_t)(hidden / REF_GROUP_CHANNELS) * (inter / REF_GROUP_CHANNELS);
}

/* Fills one matrix of `expert` from a seed, integers only, so the same everywhere. matrix is 0,
 * 1, 2 for gate, up, down. With key = ref_digest_mix(ref_digest_mix(seed, expert), matrix), code
 * i is byte i % 8, lowest first, of scramble(key + (i / 8) * REF_DIGEST_STEP), a NaN code with
 * bit 40 flipped; scale i is 2^-13 with the top 23 bits of scramble(~key + i * REF_DIGEST_STEP)
 * as mantissa: small enough that a few thousand products of order 100 sum to order 1. */
void ref_expert_fill(uint64_t seed, uint32_t expert, uint32_t matrix, uint32_t hidden,
                     uint32_t inter, uint8_t *codes, float *scales);

/* Bytes of scratch that ref_expert_mlp() needs for these shapes, aligned to 8. */
uint64_t ref_expert_mlp_scratch_bytes(uint64_t rows, uint32_t hidden, uint32_t inter);

/* The step between the GEMMs: gate[i] = bf16(silu(gate[i]) * up[i]), in place. */
void ref_expert_activate(uint16_t *gate, const uint16_t *up, uint64_t count);

/* out [rows][hidden] = down(quantise(silu(gate(x)) * up(x))) for rows already in FP8 (any recipe
 * but bf16), in this order and no other:
 *   GEMM     for each 128-block of the summed dimension, ascending: s = fma(a_k, b_k, s) over
 *            ascending k from +0, then acc = fma(s, scale_a * scale_b, acc), acc from +0; one
 *            rounding to bf16 at the end. Gate and up are rounded to bf16 this way.
 *   act      silu(g) = g / (1 + exp(-g)) with ref/mathfn.h, times up, in fp32; rounded to bf16.
 *   quantise activation recipe, per 128 channels, which is then a of the second GEMM. */
void ref_expert_mlp(const struct ref_expert_weights *weights, enum ref_recipe recipe,
                    const void *payload, const void *scales, uint64_t rows,
                    enum ref_recipe activation, uint16_t *out, void *scratch);

/* Rows of one rank as normal mode's dispatch leaves them. An answer is what the expert of a column
 * makes of the row; answers are numbered by (row, column), columns without an expert of the rank
 * left out. A row whose columns name one expert twice has two equal answers. */
struct ref_expert_choices {
    uint64_t rows;
    uint32_t topk;             /* 1..REF_TOPK_MAX */
    uint32_t experts;          /* Of the rank. */
    const int64_t *topk_idx;   /* [rows][topk]: 0..experts - 1; all else is no expert. */
    const float *topk_weights; /* [rows][topk]; not read where the id is no expert. */
};

/* First answer of every row: answer_start [rows + 1]. Returns how many there are. */
uint64_t ref_expert_answers(const struct ref_expert_choices *choices, uint64_t *answer_start);

/* The answers of one expert, ascending, and whose row each is: rows and answers [all answers] at
 * most. Returns how many. */
uint64_t ref_expert_pick(const struct ref_expert_choices *choices, uint32_t expert, uint64_t *rows,
                         uint64_t *answers);

/* out [rows][hidden] = bf16 of the row's answers times their weights: fp32 from +0, columns
 * ascending, fused multiply-add, one rounding; a row without answer is +0. answers BF16 [answers]
 * [hidden], hidden a multiple of 128. Normal mode's combine adds rows as they are, so the weights
 * belong here; the gather that SGLang and vLLM run between their grouped GEMMs and DeepEP's combine
 * (_fwd_kernel_ep_gather) has this order. */
void ref_expert_weigh(const struct ref_expert_choices *choices, uint32_t hidden,
                      const uint64_t *answer_start, const uint16_t *answers, uint16_t *out);

#ifdef __cplusplus
}
#endif

#endif
