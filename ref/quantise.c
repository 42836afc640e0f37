/* ref/quantise.c - the table of recipes and the two loops that all of them share.
 *
 * A recipe is data: floor, form of the scale, form of the factor, fate of NaN. A group of
 * finite values takes the vector loops; a group that holds an infinity or a NaN takes the
 * element loop, which writes out what each library's hardware does, NaN signs included, so
 * that no bit depends on the machine that runs this file. */
#include "ref/quantise.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/hot.h"

enum { GROUP = REF_GROUP_CHANNELS };

enum scale_form { TIMES_INV448, OVER_448 };
enum round_form {
    EXACT,
    CEIL_POWER,         /* Up to a power of two. */
    CEIL_POWER_CLAMPED, /* The same on bits, biased exponent held in 1..254 even for NaN. */
    CEIL_POWER_STORED   /* Only the stored scale; codes still use the exact one. */
};
enum factor_form {
    F448_OVER_MAX,    /* x * (448 / a) */
    RECIPROCAL_448,   /* x * (fp32(1 / a) * 448) */
    RECIPROCAL_SCALE, /* x * fp32(1 / s) */
    BY_SCALE,         /* x / s */
    POWER_BITS        /* x * 2^-e, the power built by shifting 127 - e into place */
};
enum nan_form {
    NAN_7F,         /* The maximum drops it; the cast makes it 7F. */
    NAN_FE,         /* The maximum drops it; clamping from below makes it -448. */
    NAN_GROUP_CUDA, /* The maximum is NaN, so is all; GPU arithmetic has one NaN, positive. */
    NAN_GROUP_CPU   /* The same on x86, where NaN has a sign: cpu_nan_code(). */
};

struct recipe_rule {
    const char *name;
    float max_floor;   /* Under the maximum. */
    float scale_floor; /* Under the scale, before rounding to a power. */
    enum scale_form scale;
    enum round_form round;
    enum factor_form factor;
    enum nan_form nan;
    enum ref_scale_kind kind;
};

#define F32 REF_SCALE_F32
#define UE8M0 REF_SCALE_UE8M0
#define TORCH_FLOOR (1.0f / (448.0f * 512.0f))
/* clang-format off */
static const struct recipe_rule rules[REF_RECIPE_COUNT] = {
    [REF_RECIPE_BF16] = {"bf16", 0, 0,
        TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, REF_SCALE_NONE},
    [REF_RECIPE_LL] = {"ll", 1e-4f, 0,
        TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, F32},
    [REF_RECIPE_LL_ROUND] = {"ll_round", 1e-4f, 0,
        TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, F32},
    [REF_RECIPE_LL_UE8M0] = {"ll_ue8m0", 1e-4f, 0,
        TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, UE8M0},
    [REF_RECIPE_PY_CUDA] = {"py_cuda", 1e-4f, 0,
        TIMES_INV448, EXACT, RECIPROCAL_448, NAN_GROUP_CUDA, F32},
    [REF_RECIPE_PY_CPU] = {"py_cpu", 1e-4f, 0,
        OVER_448, EXACT, RECIPROCAL_448, NAN_GROUP_CPU, F32},
    [REF_RECIPE_DEEPGEMM_PY_CUDA] = {"deepgemm_py_cuda", 1e-4f, 0,
        TIMES_INV448, EXACT, RECIPROCAL_SCALE, NAN_GROUP_CUDA, F32},
    [REF_RECIPE_DEEPGEMM_PY_CPU] = {"deepgemm_py_cpu", 1e-4f, 0,
        OVER_448, EXACT, RECIPROCAL_SCALE, NAN_GROUP_CPU, F32},
    [REF_RECIPE_DEEPGEMM_PY_CUDA_UE8M0] = {"deepgemm_py_cuda_ue8m0", 1e-4f, 0,
        TIMES_INV448, CEIL_POWER_CLAMPED, RECIPROCAL_SCALE, NAN_GROUP_CUDA, F32},
    [REF_RECIPE_DEEPGEMM_PY_CPU_UE8M0] = {"deepgemm_py_cpu_ue8m0", 1e-4f, 0,
        OVER_448, CEIL_POWER_CLAMPED, RECIPROCAL_SCALE, NAN_GROUP_CPU, F32},
    [REF_RECIPE_DEEPGEMM_DEV] = {"deepgemm_dev", 0, 0,
        TIMES_INV448, CEIL_POWER, POWER_BITS, NAN_7F, UE8M0},
    [REF_RECIPE_SGLANG_CUDA_V1] = {"sglang_cuda_v1", 1e-10f, 0,
        TIMES_INV448, EXACT, F448_OVER_MAX, NAN_7F, F32},
    [REF_RECIPE_SGLANG_CUDA_V2] = {"sglang_cuda_v2", 1e-10f, 0,
        TIMES_INV448, EXACT, F448_OVER_MAX, NAN_FE, F32},
    [REF_RECIPE_SGLANG_CUDA_V1_UE8M0] = {"sglang_cuda_v1_ue8m0", 1e-10f, 0,
        TIMES_INV448, CEIL_POWER, RECIPROCAL_SCALE, NAN_7F, F32},
    [REF_RECIPE_SGLANG_CUDA_V2_UE8M0] = {"sglang_cuda_v2_ue8m0", 1e-10f, 0,
        TIMES_INV448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32},
    [REF_RECIPE_SGLANG_UE8M0_OLD] = {"sglang_ue8m0_old", 1e-10f, 0,
        TIMES_INV448, CEIL_POWER_STORED, F448_OVER_MAX, NAN_7F, F32},
    [REF_RECIPE_SGLANG_TRITON_ROW] = {"sglang_triton_row", 1e-10f, 0,
        OVER_448, EXACT, RECIPROCAL_SCALE, NAN_FE, F32},
    [REF_RECIPE_SGLANG_TRITON_COL] = {"sglang_triton_col", 1e-10f, 0,
        OVER_448, EXACT, BY_SCALE, NAN_FE, F32},
    [REF_RECIPE_SGLANG_TRITON_ROW_UE8M0] = {"sglang_triton_row_ue8m0", 1e-10f, 0,
        OVER_448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32},
    [REF_RECIPE_SGLANG_TRITON_COL_UE8M0] = {"sglang_triton_col_ue8m0", 1e-10f, 0,
        OVER_448, CEIL_POWER, BY_SCALE, NAN_FE, F32},
    [REF_RECIPE_VLLM_CUDA] = {"vllm_cuda", 1e-10f, 0,
        OVER_448, EXACT, BY_SCALE, NAN_FE, F32},
    [REF_RECIPE_VLLM_CUDA_UE8M0] = {"vllm_cuda_ue8m0", 1e-10f, 1e-10f,
        OVER_448, CEIL_POWER, RECIPROCAL_SCALE, NAN_FE, F32},
    [REF_RECIPE_VLLM_TORCH_CUDA] = {"vllm_torch_cuda", 0, TORCH_FLOOR,
        TIMES_INV448, EXACT, BY_SCALE, NAN_GROUP_CUDA, F32},
    [REF_RECIPE_VLLM_TORCH_CPU] = {"vllm_torch_cpu", 0, TORCH_FLOOR,
        OVER_448, EXACT, BY_SCALE, NAN_GROUP_CPU, F32},
    [REF_RECIPE_VLLM_TORCH_CUDA_UE8M0] = {"vllm_torch_cuda_ue8m0", 0, TORCH_FLOOR,
        TIMES_INV448, CEIL_POWER, BY_SCALE, NAN_GROUP_CUDA, F32},
    [REF_RECIPE_VLLM_TORCH_CPU_UE8M0] = {"vllm_torch_cpu_ue8m0", 0, TORCH_FLOOR,
        OVER_448, CEIL_POWER, BY_SCALE, NAN_GROUP_CPU, F32},
    [REF_RECIPE_TILELANG] = {"tilelang", 1e-4f, 0,
        OVER_448, EXACT, F448_OVER_MAX, NAN_FE, F32},
    [REF_RECIPE_TILELANG_DIV] = {"tilelang_div", 1e-4f, 0,
        OVER_448, EXACT, BY_SCALE, NAN_FE, F32},
};
/* clang-format on */
#undef F32
#undef UE8M0

const char *ref_recipe_name(enum ref_recipe recipe)
{
    assert((unsigned)recipe < REF_RECIPE_COUNT);
    return rules[recipe].name;
}

bool ref_recipe_parse(const char *name, enum ref_recipe *out)
{
    static const struct {
        const char *name;
        enum ref_recipe recipe;
    } short_names[] = {
        {"fp8", REF_RECIPE_LL}, {"fp8r", REF_RECIPE_LL_ROUND}, {"ue8m0", REF_RECIPE_LL_UE8M0}};

    assert(name != NULL && out != NULL);
    for (unsigned i = 0; i < sizeof short_names / sizeof short_names[0]; i++)
        if (strcmp(name, short_names[i].name) == 0) {
            *out = short_names[i].recipe;
            return true;
        }
    for (unsigned i = 0; i < REF_RECIPE_COUNT; i++)
        if (strcmp(name, rules[i].name) == 0) {
            *out = (enum ref_recipe)i;
            return true;
        }
    return false;
}

uint32_t ref_recipe_payload_bytes(enum ref_recipe recipe)
{
    assert((unsigned)recipe < REF_RECIPE_COUNT);
    return recipe == REF_RECIPE_BF16 ? 2 : 1;
}

enum ref_scale_kind ref_recipe_scales(enum ref_recipe recipe)
{
    assert((unsigned)recipe < REF_RECIPE_COUNT);
    return rules[recipe].kind;
}

float ref_scale_of(enum ref_scale_kind kind, const void *scales, uint32_t groups, uint64_t row,
                   uint32_t group)
{
    assert(kind != REF_SCALE_NONE && scales != NULL && group < groups);
    if (kind == REF_SCALE_F32) return ((const float *)scales)[row * groups + group];
    const uint64_t word = row * ref_scale_packed_words(groups) + group / 4;
    const uint32_t packed = ((const uint32_t *)scales)[word];
    return ref_f32_from_bits((packed >> (8 * (group % 4)) & 0xFFu) << 23);
}

static bool is_nan(float value)
{
    return (ref_f32_bits(value) & 0x7FFFFFFFu) > 0x7F800000u;
}

/* The least power of two that is not below a positive scale, on bits: the float functions miss
 * exact powers by one step now and then. A subnormal becomes 2^-126, NaN stays NaN. */
static float ceil_power(float scale, enum round_form round)
{
    const uint32_t bits = ref_f32_bits(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);

    assert(bits >> 31 == 0);
    if (round == CEIL_POWER_CLAMPED)
        return ref_f32_from_bits((exponent < 1 ? 1 : exponent > 254 ? 254 : exponent) << 23);
    return is_nan(scale) ? scale : ref_f32_from_bits(exponent << 23);
}

struct group_scale {
    float stored; /* What is delivered. */
    float factor; /* x is multiplied with it, or divided by it for BY_SCALE. */
};

REF_INLINE struct group_scale group_scale(const struct recipe_rule *rule, float max)
{
    const float inv448 = ref_f32_from_bits(0x3B124925u); /* fp32(1 / 448) */
    struct group_scale out;

    /* A NaN maximum passes both floors, as clamp does: the comparisons are false. */
    const float floored = max < rule->max_floor ? rule->max_floor : max;
    const float plain = rule->scale == OVER_448 ? floored / 448.0f : floored * inv448;
    const float exact = plain < rule->scale_floor ? rule->scale_floor : plain;
    out.stored = rule->round == EXACT ? exact : ceil_power(exact, rule->round);
    switch (rule->factor) {
    case F448_OVER_MAX: out.factor = 448.0f / floored; break;
    case RECIPROCAL_448: out.factor = (1.0f / floored) * 448.0f; break;
    case RECIPROCAL_SCALE: out.factor = 1.0f / out.stored; break;
    case POWER_BITS:
        /* 127 - e, shifted: for e = 128 (an infinite maximum) the borrow makes it -infinity,
         * and that is what the kernels multiply with. */
        out.factor = ref_f32_from_bits((254u - (ref_f32_bits(out.stored) >> 23)) << 23);
        break;
    case BY_SCALE:
    default: out.factor = out.stored; break;
    }
    return out;
}

/* The largest magnitude as bf16 bits; 7F80 and above says that something is not finite. */
REF_INLINE uint32_t max_bits(const uint16_t *x)
{
    int16_t max = 0;
    for (int i = 0; i < GROUP; i++) {
        const int16_t magnitude = (int16_t)(x[i] & 0x7FFF);
        max = magnitude > max ? magnitude : max;
    }
    return (uint32_t)max;
}

/* Signs as seen with torch on x86: a NaN factor was made from |x| and is positive; it is the
 * first operand of the product, so it wins; a quotient keeps the sign of x; and an invalid
 * operation (infinity times 0, infinity over infinity) makes a negative NaN. */
static uint8_t cpu_nan_code(const struct recipe_rule *rule, uint16_t x, float factor)
{
    const bool x_nan = (x & 0x7FFFu) > 0x7F80u;

    if (x_nan && (rule->factor == BY_SCALE || !is_nan(factor))) return x & 0x8000u ? 0xFF : 0x7F;
    return is_nan(factor) ? 0x7F : 0xFF;
}

static uint8_t special_code(const struct recipe_rule *rule, uint16_t x, float factor)
{
    const float wide = ref_bf16_to_f32(x);
    const float value = rule->factor == BY_SCALE ? wide / factor : wide * factor;
    const bool torch_cast = rule->nan == NAN_GROUP_CUDA || rule->nan == NAN_GROUP_CPU;

    if (!is_nan(value))
        return torch_cast ? ref_e4m3_from_f32_torch(value) : ref_e4m3_from_f32_sat(value);
    switch (rule->nan) {
    case NAN_FE: return 0xFE;
    case NAN_GROUP_CPU: return cpu_nan_code(rule, x, factor);
    case NAN_7F:
    case NAN_GROUP_CUDA:
    default: return 0x7F;
    }
}

/* A group with an infinity or a NaN in it. */
static float quantise_special(const struct recipe_rule *rule, const uint16_t *x, uint8_t *codes)
{
    const bool whole_group = rule->nan == NAN_GROUP_CUDA || rule->nan == NAN_GROUP_CPU;
    uint32_t max = 0;
    bool any_nan = false;

    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = x[i] & 0x7FFFu;
        if (magnitude > 0x7F80u)
            any_nan = true;
        else if (magnitude > max)
            max = magnitude;
    }
    if (whole_group && any_nan) max = 0x7FC0u;
    const struct group_scale scale = group_scale(rule, ref_bf16_to_f32((uint16_t)max));
    for (int i = 0; i < GROUP; i++) codes[i] = special_code(rule, x[i], scale.factor);
    if (!is_nan(scale.stored)) return scale.stored;
    return ref_f32_from_bits(rule->nan == NAN_GROUP_CUDA ? 0x7FFFFFFFu : 0x7FC00000u);
}

/* A group of finite values by one factor. Scaled magnitudes stay below 448.001: nothing rounds
 * past 448, so the code needs no clamp (tests/test_quantise.c tries every maximum). The stages
 * are separate loops of one width each, which gcc turns into twice as fast vector code. */
REF_INLINE void quantise_group(const uint16_t *restrict x, float factor, bool divide,
                               uint8_t *restrict codes)
{
    uint32_t wide[GROUP];
    uint16_t narrow[GROUP];

    if (divide)
        for (int i = 0; i < GROUP; i++)
            wide[i] = ref_e4m3_round_magnitude(ref_bf16_to_f32(x[i] & 0x7FFF) / factor);
    else
        for (int i = 0; i < GROUP; i++)
            wide[i] = ref_e4m3_round_magnitude(ref_bf16_to_f32(x[i] & 0x7FFF) * factor);
    for (int i = 0; i < GROUP; i++) narrow[i] = (uint16_t)wide[i];
    for (int i = 0; i < GROUP; i++) codes[i] = (uint8_t)(narrow[i] | (x[i] >> 8 & 0x80));
}

REF_HOT static void quantise_row(const struct recipe_rule *rule, const uint16_t *restrict x,
                                 uint32_t groups, uint8_t *restrict codes, float *restrict scales)
{
    for (uint32_t g = 0; g < groups; g++, x += GROUP, codes += GROUP) {
        const uint32_t max = max_bits(x);
        if (max >= 0x7F80u) {
            scales[g] = quantise_special(rule, x, codes);
            continue;
        }
        const struct group_scale scale = group_scale(rule, ref_bf16_to_f32((uint16_t)max));
        scales[g] = scale.stored;
        quantise_group(x, scale.factor, rule->factor == BY_SCALE, codes);
    }
}

void ref_quantise(enum ref_recipe recipe, const uint16_t *x, uint64_t rows, uint32_t hidden,
                  uint8_t *codes, float *scales)
{
    assert((unsigned)recipe < REF_RECIPE_COUNT && hidden > 0);
    assert(rows == 0 || (x != NULL && codes != NULL));
    if (recipe == REF_RECIPE_BF16) {
        if (rows > 0) memcpy(codes, x, rows * hidden * sizeof *x);
        return;
    }
    assert(hidden % GROUP == 0 && (rows == 0 || scales != NULL));
    const uint32_t groups = hidden / GROUP;
    for (uint64_t r = 0; r < rows; r++)
        quantise_row(&rules[recipe], x + r * hidden, groups, codes + r * hidden,
                     scales + r * groups);
}

int ref_scales_pack_ue8m0(const float *scales, uint64_t rows, uint32_t groups, uint32_t *packed,
                          char *err, size_t err_len)
{
    const uint32_t words = ref_scale_packed_words(groups);

    assert(rows == 0 || (scales != NULL && packed != NULL));
    for (uint64_t i = 0; i < rows * groups; i++) {
        const uint32_t bits = ref_f32_bits(scales[i]);
        if ((bits & 0x807FFFFFu) == 0) continue;
        snprintf(err, err_len,
                 "scale of row %llu, group %llu is %08x: a UE8M0 scale must be a power of two, "
                 "without mantissa bits or sign",
                 (unsigned long long)(i / groups), (unsigned long long)(i % groups), bits);
        return -1;
    }
    memset(packed, 0, rows * words * sizeof *packed);
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < groups; g++)
            packed[r * words + g / 4] |= (ref_f32_bits(scales[r * groups + g]) >> 23)
                                         << (8 * (g % 4));
    return 0;
}

void ref_scales_unpack_ue8m0(const uint32_t *packed, uint64_t rows, uint32_t groups, float *scales)
{
    const uint32_t words = ref_scale_packed_words(groups);

    assert(rows == 0 || (scales != NULL && packed != NULL));
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < groups; g++)
            scales[r * groups + g] =
                ref_f32_from_bits((packed[r * words + g / 4] >> (8 * (g % 4)) & 0xFFu) << 23);
}

void ref_scales_to_columns(const void *in, uint64_t rows, uint32_t columns, uint64_t stride_rows,
                           void *out)
{
    const uint32_t *from = (const uint32_t *)in;
    uint32_t *to = (uint32_t *)out;

    assert(stride_rows >= rows && (columns == 0 || stride_rows == 0 || to != NULL));
    for (uint32_t c = 0; c < columns; c++) {
        for (uint64_t r = 0; r < rows; r++) to[c * stride_rows + r] = from[r * columns + c];
        for (uint64_t r = rows; r < stride_rows; r++) to[c * stride_rows + r] = 0;
    }
}

void ref_scales_from_columns(const void *in, uint64_t rows, uint32_t columns, uint64_t stride_rows,
                             void *out)
{
    const uint32_t *from = (const uint32_t *)in;
    uint32_t *to = (uint32_t *)out;

    assert(stride_rows >= rows && (columns == 0 || rows == 0 || (from != NULL && to != NULL)));
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) to[r * columns + c] = from[c * stride_rows + r];
}

REF_HOT static void widen_row(const uint16_t *restrict x, uint32_t hidden, float *restrict out)
{
    for (uint32_t i = 0; i < hidden; i++) out[i] = ref_bf16_to_f32(x[i]);
}

REF_HOT static void dequantise_group(const uint8_t *restrict codes, float scale,
                                     float *restrict out)
{
    if (ref_e4m3_any_nan(codes, GROUP))
        for (int i = 0; i < GROUP; i++) out[i] = ref_e4m3_to_f32(codes[i]) * scale;
    else
        for (int i = 0; i < GROUP; i++) out[i] = ref_e4m3_finite_to_f32(codes[i]) * scale;
}

void ref_dequantise(enum ref_recipe recipe, const void *payload, const void *scales, uint64_t rows,
                    uint32_t hidden, float *out)
{
    const enum ref_scale_kind kind = ref_recipe_scales(recipe);
    const uint32_t groups = hidden / GROUP;

    assert(rows == 0 || (payload != NULL && out != NULL));
    if (kind == REF_SCALE_NONE) {
        for (uint64_t r = 0; r < rows; r++)
            widen_row((const uint16_t *)payload + r * hidden, hidden, out + r * hidden);
        return;
    }
    assert(hidden % GROUP == 0 && (rows == 0 || scales != NULL));
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < groups; g++) {
            const uint64_t at = r * hidden + (uint64_t)g * GROUP;
            dequantise_group((const uint8_t *)payload + at,
                             ref_scale_of(kind, scales, groups, r, g), out + at);
        }
}
