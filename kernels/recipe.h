/* kernels/recipe.h - the table of quantisation recipes, as the kernels know it.
 *
 * A twin of the table in ref/quantise.c, in the order of enum ref_recipe: written a second time
 * so that neither side leans on the other, and compared row by row by a test. A recipe is data:
 * floor, form of the scale, form of the factor, fate of NaN. */
#ifndef KERNELS_RECIPE_H
#define KERNELS_RECIPE_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What host and kernels both compute. */
#if defined(__CUDACC__)
#define GPU_BOTH static inline __host__ __device__
#else
#define GPU_BOTH static inline
#endif

enum { GPU_GROUP_CHANNELS = 128 };

enum gpu_scale_form { GPU_TIMES_INV448, GPU_OVER_448 };
enum gpu_round_form {
    GPU_EXACT,
    GPU_CEIL_POWER,         /* Up to a power of two. */
    GPU_CEIL_POWER_CLAMPED, /* The same on bits, biased exponent held in 1..254 even for NaN. */
    GPU_CEIL_POWER_STORED   /* Only the stored scale; codes still use the exact one. */
};
enum gpu_factor_form {
    GPU_F448_OVER_MAX,    /* x * (448 / a) */
    GPU_RECIPROCAL_448,   /* x * (fp32(1 / a) * 448) */
    GPU_RECIPROCAL_SCALE, /* x * fp32(1 / s) */
    GPU_BY_SCALE,         /* x / s */
    GPU_POWER_BITS        /* x * 2^-e, the power built by shifting */
};
enum gpu_nan_form {
    GPU_NAN_7F,         /* The maximum drops it; the cast makes it 7F. */
    GPU_NAN_FE,         /* The maximum drops it; clamping from below makes it -448. */
    GPU_NAN_GROUP_CUDA, /* The maximum is NaN, so is all; one NaN, positive. */
    GPU_NAN_GROUP_CPU   /* The same where NaN has a sign, as on x86. */
};
enum gpu_scale_kind { GPU_SCALE_NONE, GPU_SCALE_F32, GPU_SCALE_UE8M0 };

/* Passed to kernels by value. */
struct gpu_rule {
    float max_floor;   /* Under the maximum. */
    float scale_floor; /* Under the scale, before rounding to a power. */
    uint8_t scale;     /* enum gpu_scale_form, and so on. */
    uint8_t round;
    uint8_t factor;
    uint8_t nan;
    uint8_t kind;
};

struct gpu_recipe {
    const char *name;
    struct gpu_rule rule;
};

enum { GPU_RECIPES = 28, GPU_RECIPE_BF16 = 0, GPU_RECIPE_LL = 1 };

#define GPU_RULE(floor, scale_floor, scale, round, factor, nan, kind)                              \
    {                                                                                              \
        (floor), (scale_floor), GPU_##scale, GPU_##round, GPU_##factor, GPU_##nan,                 \
            GPU_SCALE_##kind                                                                       \
    }
#define GPU_TORCH_FLOOR (1.0f / (448.0f * 512.0f))

static inline struct gpu_recipe gpu_recipe_of(uint32_t recipe)
{
    /* clang-format off */
    static const struct gpu_recipe table[GPU_RECIPES] = {
        {"bf16", GPU_RULE(0, 0, TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, NONE)},
        {"ll", GPU_RULE(1e-4f, 0, TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, F32)},
        {"ll_round", GPU_RULE(1e-4f, 0, TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, F32)},
        {"ll_ue8m0", GPU_RULE(1e-4f, 0, TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, UE8M0)},
        {"py_cuda",
            GPU_RULE(1e-4f, 0, TIMES_INV448, EXACT, RECIPROCAL_448, NAN_GROUP_CUDA, F32)},
        {"py_cpu", GPU_RULE(1e-4f, 0, OVER_448, EXACT, RECIPROCAL_448, NAN_GROUP_CPU, F32)},
        {"deepgemm_py_cuda",
            GPU_RULE(1e-4f, 0, TIMES_INV448, EXACT, RECIPROCAL_SCALE, NAN_GROUP_CUDA, F32)},
        {"deepgemm_py_cpu",
            GPU_RULE(1e-4f, 0, OVER_448, EXACT, RECIPROCAL_SCALE, NAN_GROUP_CPU, F32)},
        {"deepgemm_py_cuda_ue8m0",
            GPU_RULE(1e-4f, 0, TIMES_INV448, CEIL_POWER_CLAMPED, RECIPROCAL_SCALE,
                     NAN_GROUP_CUDA, F32)},
        {"deepgemm_py_cpu_ue8m0",
            GPU_RULE(1e-4f, 0, OVER_448, CEIL_POWER_CLAMPED, RECIPROCAL_SCALE, NAN_GROUP_CPU,
                     F32)},
        {"deepgemm_dev", GPU_RULE(0, 0, TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, UE8M0)},
        {"sglang_cuda_v1",
            GPU_RULE(1e-10f, 0, TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, F32)},
        {"sglang_cuda_v2",
            GPU_RULE(1e-10f, 0, TIMES_INV448, EXACT, F448_OVER_MAX, NAN_FE, F32)},
        {"sglang_cuda_v1_ue8m0",
            GPU_RULE(1e-10f, 0, TIMES_INV448, CEIL_POWER, RECIPROCAL_SCALE, NAN_7F, F32)},
        {"sglang_cuda_v2_ue8m0",
            GPU_RULE(1e-10f, 0, TIMES_INV448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32)},
        {"sglang_ue8m0_old",
            GPU_RULE(1e-10f, 0, TIMES_INV448, CEIL_POWER_STORED, F448_OVER_MAX, NAN_7F, F32)},
        {"sglang_triton_row",
            GPU_RULE(1e-10f, 0, OVER_448, EXACT, RECIPROCAL_SCALE, NAN_FE, F32)},
        {"sglang_triton_col", GPU_RULE(1e-10f, 0, OVER_448, EXACT, BY_SCALE, NAN_FE, F32)},
        {"sglang_triton_row_ue8m0",
            GPU_RULE(1e-10f, 0, OVER_448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32)},
        {"sglang_triton_col_ue8m0",
            GPU_RULE(1e-10f, 0, OVER_448, CEIL_POWER, BY_SCALE, NAN_FE, F32)},
        {"vllm_cuda", GPU_RULE(1e-10f, 0, OVER_448, EXACT, BY_SCALE, NAN_FE, F32)},
        {"vllm_cuda_ue8m0",
            GPU_RULE(1e-10f, 1e-10f, OVER_448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32)},
        {"vllm_torch_cuda",
            GPU_RULE(0, GPU_TORCH_FLOOR, TIMES_INV448, EXACT, BY_SCALE, NAN_GROUP_CUDA, F32)},
        {"vllm_torch_cpu",
            GPU_RULE(0, GPU_TORCH_FLOOR, OVER_448, EXACT, BY_SCALE, NAN_GROUP_CPU, F32)},
        {"vllm_torch_cuda_ue8m0",
            GPU_RULE(0, GPU_TORCH_FLOOR, TIMES_INV448, CEIL_POWER, BY_SCALE, NAN_GROUP_CUDA,
                     F32)},
        {"vllm_torch_cpu_ue8m0",
            GPU_RULE(0, GPU_TORCH_FLOOR, OVER_448, CEIL_POWER, BY_SCALE, NAN_GROUP_CPU, F32)},
        {"tilelang", GPU_RULE(1e-4f, 0, OVER_448, EXACT, F448_OVER_MAX, NAN_FE, F32)},
        {"tilelang_div", GPU_RULE(1e-4f, 0, OVER_448, EXACT, BY_SCALE, NAN_FE, F32)},
    };
    /* clang-format on */
    assert(recipe < GPU_RECIPES);
    return table[recipe];
}

GPU_BOTH uint64_t gpu_payload_bytes(uint32_t hidden, uint32_t recipe)
{
    return (uint64_t)hidden * (recipe == GPU_RECIPE_BF16 ? 2 : 1);
}

GPU_BOTH uint32_t gpu_scale_groups(uint32_t hidden)
{
    return hidden / GPU_GROUP_CHANNELS;
}

/* Words of packed exponents per row: the last word of an odd count is padded with 0. */
GPU_BOTH uint32_t gpu_packed_words(uint32_t groups)
{
    return (groups + 3) / 4;
}

#ifdef __cplusplus
}
#endif

#endif
