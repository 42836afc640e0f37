/* ref/quantise.h - BF16 rows to FP8 codes with one scale per 128 channels, by every known recipe.
 *
 * Libraries that say "per-token 128-group FP8" differ in the floor of the maximum, in whether
 * they divide or multiply by a reciprocal, in the cast, and in what NaN does; half of all
 * scales and a few codes in a thousand depend on it. Each behaviour has its own name here,
 * built from the same few parts (quantise.c holds the table).
 *
 * Rows stand one after the other, hidden channels each, hidden a multiple of 128 for all but
 * bf16. Pure functions over the caller's arrays; nothing is allocated. */
#ifndef REF_QUANTISE_H
#define REF_QUANTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ref/routing.h" /* REF_GROUP_CHANNELS */

#ifdef __cplusplus
extern "C" {
#endif

/* Where a library does two things (CPU or CUDA, old or new version), it has two names. */
enum ref_recipe {
    REF_RECIPE_BF16,     /* Not quantised: the payload is the rows' own bytes. */
    REF_RECIPE_LL,       /* DeepEP low latency, FP8. */
    REF_RECIPE_LL_ROUND, /* The same with round_scale: scales are powers of two, FP32. */
    REF_RECIPE_LL_UE8M0, /* The same again, scales delivered as packed exponents. */
    REF_RECIPE_PY_CUDA,  /* DeepEP's Python cast, tensors on a GPU. */
    REF_RECIPE_PY_CPU,   /* The same, tensors on the CPU (x86). */
    REF_RECIPE_DEEPGEMM_PY_CUDA,
    REF_RECIPE_DEEPGEMM_PY_CPU,
    REF_RECIPE_DEEPGEMM_PY_CUDA_UE8M0,
    REF_RECIPE_DEEPGEMM_PY_CPU_UE8M0,
    REF_RECIPE_DEEPGEMM_DEV, /* DeepGEMM's device helper: no floor, scales packed exponents. */
    REF_RECIPE_SGLANG_CUDA_V1,
    REF_RECIPE_SGLANG_CUDA_V2, /* Clamps before the cast, which turns NaN into -448. */
    REF_RECIPE_SGLANG_CUDA_V1_UE8M0,
    REF_RECIPE_SGLANG_CUDA_V2_UE8M0,
    REF_RECIPE_SGLANG_UE8M0_OLD, /* Codes by the exact scale, stored scale rounded up: a bug. */
    REF_RECIPE_SGLANG_TRITON_ROW,
    REF_RECIPE_SGLANG_TRITON_COL,
    REF_RECIPE_SGLANG_TRITON_ROW_UE8M0,
    REF_RECIPE_SGLANG_TRITON_COL_UE8M0,
    REF_RECIPE_VLLM_CUDA,
    REF_RECIPE_VLLM_CUDA_UE8M0,
    REF_RECIPE_VLLM_TORCH_CUDA,
    REF_RECIPE_VLLM_TORCH_CPU,
    REF_RECIPE_VLLM_TORCH_CUDA_UE8M0,
    REF_RECIPE_VLLM_TORCH_CPU_UE8M0,
    REF_RECIPE_TILELANG,     /* As the documented formula: x * (448 / a). */
    REF_RECIPE_TILELANG_DIV, /* As the published kernel: clamp(x / s). */
    REF_RECIPE_COUNT
};

enum ref_scale_kind {
    REF_SCALE_NONE,  /* bf16. */
    REF_SCALE_F32,   /* One float per group. */
    REF_SCALE_UE8M0, /* One exponent byte per group, four to a uint32, lowest group lowest. */
};

/* The recipe's own name, lower case with underscores, e.g. "sglang_cuda_v2". */
const char *ref_recipe_name(enum ref_recipe recipe);

/* Finds a recipe by name, or by the command line's short names fp8 (ll), fp8r (ll_round) and
 * ue8m0 (ll_ue8m0). *out is written only when found. */
bool ref_recipe_parse(const char *name, enum ref_recipe *out);

uint32_t ref_recipe_payload_bytes(enum ref_recipe recipe); /* Per channel: 1, or 2 for bf16. */
enum ref_scale_kind ref_recipe_scales(enum ref_recipe recipe);

static inline uint32_t ref_scale_groups(uint32_t hidden)
{
    return hidden / REF_GROUP_CHANNELS;
}

/* Group g of row r in a row-major scale array of either kind. */
float ref_scale_of(enum ref_scale_kind kind, const void *scales, uint32_t groups, uint64_t row,
                   uint32_t group);

/* uint32 words of packed exponents per row: the last word of an odd count is padded with 0. */
static inline uint32_t ref_scale_packed_words(uint32_t groups)
{
    return (groups + 3) / 4;
}

/* x [rows][hidden] BF16 to codes [rows][hidden] and scales [rows][hidden / 128], the factor that
 * a code is multiplied with to get the value back. Power-of-two recipes write the power as a
 * float here; ref_scales_pack_ue8m0() makes bytes of it. With bf16, codes receives the rows'
 * 2 * hidden bytes unchanged (NaN payloads survive) and scales is not touched (may be NULL). */
void ref_quantise(enum ref_recipe recipe, const uint16_t *x, uint64_t rows, uint32_t hidden,
                  uint8_t *codes, float *scales);

/* scales [rows][groups] to packed [rows][ref_scale_packed_words(groups)]: the biased exponent.
 * A scale with mantissa bits or a sign cannot be an exponent: then -1, err names row, group and
 * value, and packed is untouched. Zero packs to byte 0 and infinity to 255, as the kernel's
 * shift does. */
int ref_scales_pack_ue8m0(const float *scales, uint64_t rows, uint32_t groups, uint32_t *packed,
                          char *err, size_t err_len);

/* The inverse; byte 0 becomes +0 and 255 infinity. */
void ref_scales_unpack_ue8m0(const uint32_t *packed, uint64_t rows, uint32_t groups, float *scales);

/* Scale matrices of 32-bit words (floats or packed exponents), row-major [rows][columns] to
 * column-major [columns][stride_rows]. stride_rows = rows is plain column-major;
 * ref_scale_tma_rows(rows) is what TMA loads need, columns that start on 16 bytes. Words of
 * padding rows are 0. in and out must not overlap. */
void ref_scales_to_columns(const void *in, uint64_t rows, uint32_t columns, uint64_t stride_rows,
                           void *out);
void ref_scales_from_columns(const void *in, uint64_t rows, uint32_t columns, uint64_t stride_rows,
                             void *out);

static inline uint64_t ref_scale_tma_rows(uint64_t rows)
{
    return (rows + 3) / 4 * 4;
}

/* Payload rows back to FP32: fp32(code) * scale, one multiplication; bf16 is widened. scales is
 * float or packed uint32 as ref_recipe_scales(recipe) says, row-major; NULL for bf16. */
void ref_dequantise(enum ref_recipe recipe, const void *payload, const void *scales, uint64_t rows,
                    uint32_t hidden, float *out);

#ifdef __cplusplus
}
#endif

#endif
