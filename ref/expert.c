/* ref/expert.c - stand-in and identity experts. The MLP is in expert_mlp.c. */
#include "ref/expert.h"

#include <assert.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/hot.h"

enum { GROUP = REF_GROUP_CHANNELS };

/* Two statements, so that -ffp-contract=off is not the only thing that keeps them apart. */
REF_INLINE uint16_t standin(float x)
{
    const float scaled = x * 0.37f;
    return ref_bf16_from_f32(scaled + 0.11f);
}

REF_HOT static void standin_bf16(const uint16_t *restrict x, uint64_t groups,
                                 uint16_t *restrict out)
{
    for (uint64_t g = 0; g < groups; g++, x += GROUP, out += GROUP)
        for (int i = 0; i < GROUP; i++) out[i] = standin(ref_bf16_to_f32(x[i]));
}

REF_INLINE void widen_fp8(const uint8_t *restrict codes, float scale, float *restrict x)
{
    if (ref_e4m3_any_nan(codes, GROUP))
        for (int i = 0; i < GROUP; i++) x[i] = ref_e4m3_to_f32(codes[i]) * scale;
    else
        for (int i = 0; i < GROUP; i++) x[i] = ref_e4m3_finite_to_f32(codes[i]) * scale;
}

REF_HOT static void standin_fp8(const uint8_t *restrict codes, float scale, uint16_t *restrict out)
{
    float x[GROUP];
    widen_fp8(codes, scale, x);
    for (int i = 0; i < GROUP; i++) out[i] = standin(x[i]);
}

REF_HOT static void narrow_fp8(const uint8_t *restrict codes, float scale, uint16_t *restrict out)
{
    float x[GROUP];
    widen_fp8(codes, scale, x);
    for (int i = 0; i < GROUP; i++) out[i] = ref_bf16_from_f32(x[i]);
}

static void fp8_rows(enum ref_recipe recipe, const uint8_t *codes, const void *scales,
                     uint64_t rows, uint32_t hidden, uint16_t *out,
                     void (*group)(const uint8_t *, float, uint16_t *))
{
    const enum ref_scale_kind kind = ref_recipe_scales(recipe);
    const uint32_t groups = hidden / GROUP;

    assert(hidden % GROUP == 0 && (rows == 0 || scales != NULL));
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < groups; g++) {
            const uint64_t at = r * hidden + (uint64_t)g * GROUP;
            group(codes + at, ref_scale_of(kind, scales, groups, r, g), out + at);
        }
}

void ref_expert_standin(enum ref_recipe recipe, const void *payload, const void *scales,
                        uint64_t rows, uint32_t hidden, uint16_t *out)
{
    assert(hidden > 0 && (rows == 0 || (payload != NULL && out != NULL)));
    if (recipe != REF_RECIPE_BF16) {
        fp8_rows(recipe, (const uint8_t *)payload, scales, rows, hidden, out, standin_fp8);
        return;
    }
    const uint16_t *x = (const uint16_t *)payload;
    const uint64_t groups = rows * hidden / GROUP;
    standin_bf16(x, groups, out);
    for (uint64_t i = groups * GROUP; i < rows * hidden; i++)
        out[i] = standin(ref_bf16_to_f32(x[i]));
}

void ref_expert_identity(enum ref_recipe recipe, const void *payload, const void *scales,
                         uint64_t rows, uint32_t hidden, uint16_t *out)
{
    assert(hidden > 0 && (rows == 0 || (payload != NULL && out != NULL)));
    if (recipe != REF_RECIPE_BF16)
        fp8_rows(recipe, (const uint8_t *)payload, scales, rows, hidden, out, narrow_fp8);
    else if (rows > 0)
        memcpy(out, payload, rows * hidden * sizeof *out);
}
