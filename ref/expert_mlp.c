/* ref/expert_mlp.c - an expert's FP8 MLP in one exact order of fp32 operations.
 *
 * The order is fixed along the summed dimension only, so the loops are free to run over rows
 * and outputs: 128 outputs stand side by side in vectors, and 16 steps of the sum are taken per
 * load and store of a partial sum, which is what keeps the fused multiply-adds fed. */
#include "ref/expert.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/digest.h"
#include "ref/fp8.h"
#include "ref/hot.h"
#include "ref/mathfn.h"

enum { GROUP = REF_GROUP_CHANNELS, STEPS = 16 };

/* One operand of a GEMM: codes widened to float, and its scales, unfolded to float. */
struct left {
    const float *values; /* [rows][depth] */
    const float *scales; /* [rows][depth / 128] */
    uint64_t rows;
    uint32_t depth;
};

/* Where the parts of the caller's scratch begin. */
struct scratch {
    float *values;  /* [rows][max(H, I)] */
    float *scales;  /* [rows][max(H, I) / 128] */
    float *tile;    /* [128][128], weights transposed: tile[k][n]. */
    float *partial; /* [rows][128], the sum of one block of K. */
    float *total;   /* [rows][128] */
    uint16_t *gate; /* [rows][I] */
    uint16_t *up;   /* [rows][I] */
    uint8_t *codes; /* [rows][I] */
};

static uint64_t round_up_64(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Lays the parts out from base and returns their bytes; with base NULL it only measures. */
static uint64_t lay_out(uint64_t rows, uint32_t hidden, uint32_t inter, unsigned char *base,
                        struct scratch *out)
{
    const uint64_t wider = hidden > inter ? hidden : inter;
    const uint64_t bytes[8] = {rows * wider * sizeof(float),
                               rows * (wider / GROUP) * sizeof(float),
                               (uint64_t)GROUP * GROUP * sizeof(float),
                               rows * GROUP * sizeof(float),
                               rows * GROUP * sizeof(float),
                               rows * inter * sizeof(uint16_t),
                               rows * inter * sizeof(uint16_t),
                               rows * inter};
    uint64_t start[8];
    uint64_t end = 0;

    for (int i = 0; i < 8; i++) {
        start[i] = end;
        end += round_up_64(bytes[i]);
    }
    if (base == NULL) return end;
    out->values = (float *)(void *)(base + start[0]);
    out->scales = (float *)(void *)(base + start[1]);
    out->tile = (float *)(void *)(base + start[2]);
    out->partial = (float *)(void *)(base + start[3]);
    out->total = (float *)(void *)(base + start[4]);
    out->gate = (uint16_t *)(void *)(base + start[5]);
    out->up = (uint16_t *)(void *)(base + start[6]);
    out->codes = base + start[7];
    return end;
}

uint64_t ref_expert_mlp_scratch_bytes(uint64_t rows, uint32_t hidden, uint32_t inter)
{
    return lay_out(rows, hidden, inter, NULL, NULL);
}

REF_HOT static void widen_group(const uint8_t *restrict codes, float *restrict out)
{
    if (ref_e4m3_any_nan(codes, GROUP))
        for (int i = 0; i < GROUP; i++) out[i] = ref_e4m3_to_f32(codes[i]);
    else
        for (int i = 0; i < GROUP; i++) out[i] = ref_e4m3_finite_to_f32(codes[i]);
}

static void widen(const uint8_t *codes, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i += GROUP) widen_group(codes + i, out + i);
}

/* 128 x 128 weight codes, rows of `depth`, to tile[k][n]. Turned while they are bytes: a
 * quarter of the traffic, and widening then runs over neighbours. */
static void load_tile(const uint8_t *codes, uint32_t depth, float *tile)
{
    uint8_t turned[GROUP * GROUP];
    for (uint32_t n = 0; n < GROUP; n++)
        for (uint32_t k = 0; k < GROUP; k++) turned[k * GROUP + n] = codes[(uint64_t)n * depth + k];
    widen(turned, sizeof turned, tile);
}

/* sum[n] = fma(a[k], tile[k][n], sum[n]) for 16 k ascending: one chain per output. */
REF_HOT static void add_steps(const float *restrict a, const float *restrict tile,
                              float *restrict sum)
{
    _Static_assert(STEPS == 16, "the chain below is written out");
    for (int n = 0; n < GROUP; n++) {
        float s = sum[n];
        s = fmaf(a[0], tile[0 * GROUP + n], s);
        s = fmaf(a[1], tile[1 * GROUP + n], s);
        s = fmaf(a[2], tile[2 * GROUP + n], s);
        s = fmaf(a[3], tile[3 * GROUP + n], s);
        s = fmaf(a[4], tile[4 * GROUP + n], s);
        s = fmaf(a[5], tile[5 * GROUP + n], s);
        s = fmaf(a[6], tile[6 * GROUP + n], s);
        s = fmaf(a[7], tile[7 * GROUP + n], s);
        s = fmaf(a[8], tile[8 * GROUP + n], s);
        s = fmaf(a[9], tile[9 * GROUP + n], s);
        s = fmaf(a[10], tile[10 * GROUP + n], s);
        s = fmaf(a[11], tile[11 * GROUP + n], s);
        s = fmaf(a[12], tile[12 * GROUP + n], s);
        s = fmaf(a[13], tile[13 * GROUP + n], s);
        s = fmaf(a[14], tile[14 * GROUP + n], s);
        s = fmaf(a[15], tile[15 * GROUP + n], s);
        sum[n] = s;
    }
}

REF_HOT static void add_block(const float *restrict partial, float scale, float *restrict total)
{
    for (int n = 0; n < GROUP; n++) total[n] = fmaf(partial[n], scale, total[n]);
}

/* out [rows][outputs] bf16 = a times the transpose of codes [outputs][depth]. */
static void gemm(const struct left *a, const uint8_t *codes, const float *scales, uint32_t outputs,
                 const struct scratch *work, uint16_t *out)
{
    const uint32_t blocks = a->depth / GROUP;

    for (uint32_t nb = 0; nb < outputs / GROUP; nb++) {
        memset(work->total, 0, a->rows * GROUP * sizeof(float));
        for (uint32_t kb = 0; kb < blocks; kb++) {
            const uint8_t *corner = codes + (uint64_t)nb * GROUP * a->depth + kb * GROUP;
            const float weight_scale = scales[(uint64_t)nb * blocks + kb];
            load_tile(corner, a->depth, work->tile);
            memset(work->partial, 0, a->rows * GROUP * sizeof(float));
            for (uint32_t k = 0; k < GROUP; k += STEPS)
                for (uint64_t r = 0; r < a->rows; r++)
                    add_steps(a->values + r * a->depth + kb * GROUP + k, work->tile + k * GROUP,
                              work->partial + r * GROUP);
            for (uint64_t r = 0; r < a->rows; r++)
                add_block(work->partial + r * GROUP, a->scales[r * blocks + kb] * weight_scale,
                          work->total + r * GROUP);
        }
        for (uint64_t r = 0; r < a->rows; r++)
            for (uint32_t n = 0; n < GROUP; n++)
                out[r * outputs + (uint64_t)nb * GROUP + n] =
                    ref_bf16_from_f32(work->total[r * GROUP + n]);
    }
}

/* gate = bf16(silu(gate) * up), in place. */
REF_HOT static void activate(uint16_t *restrict gate, const uint16_t *restrict up, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        gate[i] = ref_bf16_from_f32(ref_silu(ref_bf16_to_f32(gate[i])) * ref_bf16_to_f32(up[i]));
}

void ref_expert_activate(uint16_t *gate, const uint16_t *up, uint64_t count)
{
    assert(count == 0 || (gate != NULL && up != NULL));
    activate(gate, up, count);
}

void ref_expert_mlp(const struct ref_expert_weights *weights, enum ref_recipe recipe,
                    const void *payload, const void *scales, uint64_t rows,
                    enum ref_recipe activation, uint16_t *out, void *scratch)
{
    const uint32_t hidden = weights->hidden, inter = weights->inter;
    const enum ref_scale_kind kind = ref_recipe_scales(recipe);
    struct scratch work;

    assert(hidden > 0 && hidden % GROUP == 0 && inter > 0 && inter % GROUP == 0);
    assert(recipe != REF_RECIPE_BF16 && activation != REF_RECIPE_BF16);
    if (rows == 0) return;
    assert(payload != NULL && scales != NULL && out != NULL && scratch != NULL);
    lay_out(rows, hidden, inter, (unsigned char *)scratch, &work);

    const struct left x = {work.values, work.scales, rows, hidden};
    widen((const uint8_t *)payload, rows * hidden, work.values);
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < hidden / GROUP; g++)
            work.scales[r * (hidden / GROUP) + g] =
                ref_scale_of(kind, scales, hidden / GROUP, r, g);
    gemm(&x, weights->gate, weights->gate_scales, inter, &work, work.gate);
    gemm(&x, weights->up, weights->up_scales, inter, &work, work.up);

    activate(work.gate, work.up, rows * inter);
    ref_quantise(activation, work.gate, rows, inter, work.codes, work.scales);
    const struct left h = {work.values, work.scales, rows, inter};
    widen(work.codes, rows * inter, work.values);
    gemm(&h, weights->down, weights->down_scales, hidden, &work, out);
}

/* Word i of a stream: 64 bits that depend on every bit of seed, expert, matrix and i. */
static uint64_t stream_word(uint64_t key, uint64_t i)
{
    return ref_digest_scramble(key + i * REF_DIGEST_STEP);
}

void ref_expert_fill(uint64_t seed, uint32_t expert, uint32_t matrix, uint32_t hidden,
                     uint32_t inter, uint8_t *codes, float *scales)
{
    const uint64_t count = ref_expert_matrix_codes(hidden, inter);
    const uint64_t key = ref_digest_mix(ref_digest_mix(seed, expert), matrix);

    assert(matrix < 3 && count % 8 == 0);
    for (uint64_t i = 0; i < count; i += 8) {
        const uint64_t word = stream_word(key, i / 8);
        for (uint32_t b = 0; b < 8; b++) {
            const uint8_t code = (uint8_t)(word >> (8 * b));
            codes[i + b] = (code & 0x7Fu) == 0x7Fu ? (uint8_t)(code ^ 0x40u) : code;
        }
    }
    for (uint64_t i = 0; i < ref_expert_matrix_scales(hidden, inter); i++)
        scales[i] = ref_f32_from_bits(0x39000000u | (uint32_t)(stream_word(~key, i) >> 41));
}
