/* tests/plugin_example.c - a whole plugin, for the CPU, to copy from.
 *
 *   make plugin-example                      # or, anywhere, against the installed headers:
 *   gcc -O2 -ffp-contract=off -shared -fPIC plugin_example.c -o mine.so -lm \
 *       $(pkg-config --cflags epsim_ref)
 *   epsim verify --golden DIR --backend ./mine.so
 *
 * It computes everything itself, slowly and in plain sight: where a row goes, how it is cast, what
 * the expert does to it and how the answers are added. The three group operations are all that a
 * plugin must have; this one offers no phases. To wrap a kernel of yours instead, replace the body
 * of each operation by copies to the device, the launch, and copies back.
 *
 * -ffp-contract=off, because a multiplication and an addition that become one instruction round
 * once where the kernels round twice. */
#include "sim/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 128 }; /* Channels under one scale. */

/* --- numbers --- */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* To nearest, ties to even; every NaN becomes 7FFF, as on the GPU. */
static uint16_t to_bf16(float value)
{
    const uint32_t bits = bits_of_float(value);
    if (isnan(value)) return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* E4M3 has 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinity, and 448 at most, where
 * the cast saturates. */
static uint8_t to_e4m3(float value)
{
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    const float magnitude = fabsf(value) > 448.0f ? 448.0f : fabsf(value);
    int exponent = 0;

    if (isnan(value)) return 0x7F;
    if (magnitude < 0x1p-6f) return (uint8_t)(sign | (int)rintf(magnitude * 512.0f));
    const float fraction = frexpf(magnitude, &exponent); /* In [0.5, 1). */
    const int steps = (int)rintf(fraction * 16.0f);      /* 8..16; 16 carries by itself. */
    return (uint8_t)(sign | (((exponent + 6) << 3) + steps - 8));
}

static float from_e4m3(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float magnitude = (code & 0x7F) == 0x7F ? NAN
                            : exponent == 0       ? ldexpf((float)mantissa, -9)
                                                  : ldexpf((float)(8 + mantissa), exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

/* --- casting a row --- */

/* One group of channels to codes; returns the scale that is stored with them. */
static float cast_group(uint32_t recipe, const uint16_t *x, uint8_t *codes)
{
    float max = 0, scale, factor;
    int any_nan = 0;

    for (int c = 0; c < GROUP; c++) {
        /* A NaN is not above anything. Not fmaxf: a signalling NaN passes glibc's. */
        const float magnitude = fabsf(from_bf16(x[c]));
        if (magnitude > max) max = magnitude;
        any_nan |= isnan(magnitude);
    }
    if (recipe == REF_RECIPE_PY_CUDA && any_nan) { /* torch's maximum does not. */
        memset(codes, 0x7F, GROUP);
        return float_of_bits(0x7FFFFFFF);
    }
    if (max < 1e-4f) max = 1e-4f;
    scale = max * float_of_bits(0x3B124925); /* fp32(1 / 448) */
    if (recipe == REF_RECIPE_PY_CUDA) {
        factor = (1.0f / max) * 448.0f;
    } else if (recipe == REF_RECIPE_LL) {
        factor = 448.0f / max;
    } else { /* Up to a power of two, on bits; the factor is its inverse. */
        const uint32_t bits = bits_of_float(scale);
        const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
        scale = float_of_bits(exponent << 23);
        factor = float_of_bits((254 - exponent) << 23);
    }
    for (int c = 0; c < GROUP; c++) codes[c] = to_e4m3(from_bf16(x[c]) * factor);
    return scale;
}

static int casts(uint32_t recipe)
{
    return recipe == REF_RECIPE_BF16 || recipe == REF_RECIPE_LL || recipe == REF_RECIPE_LL_ROUND ||
           recipe == REF_RECIPE_LL_UE8M0 || recipe == REF_RECIPE_PY_CUDA;
}

/* Token x as received row `row`: payload and scales, the latter as floats or as packed exponents.
 */
static void write_row(const struct sim_layer_input *in, const uint16_t *x, uint64_t row,
                      const struct sim_received *out)
{
    const uint64_t groups = in->hidden / GROUP, words = (groups + 3) / 4;

    if (in->recipe == REF_RECIPE_BF16) { /* Bytes as they are: NaNs keep their payload. */
        memcpy(out->payload + row * 2 * in->hidden, x, 2 * (size_t)in->hidden);
        return;
    }
    if (out->scales_ue8m0 != NULL)
        memset(out->scales_ue8m0 + row * words, 0, words * sizeof(uint32_t));
    for (uint64_t g = 0; g < groups; g++) {
        const float scale =
            cast_group(in->recipe, x + g * GROUP, out->payload + row * in->hidden + g * GROUP);
        if (out->scales != NULL) out->scales[row * groups + g] = scale;
        if (out->scales_ue8m0 != NULL)
            out->scales_ue8m0[row * words + g / 4] |= bits_of_float(scale) >> 23 << 8 * (g % 4);
    }
}

/* --- where rows go --- */

/* Rows of (place, source rank) begin at traffic->block_start[place * ranks + source], where a
 * place is an expert in low latency and a destination rank in normal mode. Everybody who visits
 * tokens in order, and a token's places in order, gets the same rows. */
struct walk {
    const struct sim_layer_input *in;
    uint64_t *filled; /* [places]: rows so far, of the source rank being visited. */
    uint32_t source;
};

static uint64_t next_row(struct walk *walk, uint64_t place)
{
    const struct sim_traffic *traffic = walk->in->traffic;
    return traffic->block_start[place * traffic->ranks + walk->source] + walk->filled[place]++;
}

static int has_expert(const struct ref_routing *routing, int64_t id)
{
    return id >= 0 && id < (int64_t)routing->experts;
}

/* Does the token choose an expert of this rank? */
static int visits(const struct ref_routing *routing, uint64_t token, uint32_t rank)
{
    const int64_t local = routing->experts / routing->ranks;
    for (uint32_t k = 0; k < routing->topk; k++) {
        const int64_t id = routing->topk_idx[token * routing->topk + k];
        if (has_expert(routing, id) && id / local == rank) return 1;
    }
    return 0;
}

/* Call visit for every token of every rank, in order. */
static int walk_tokens(const struct sim_layer_input *in, void *context,
                       void (*visit)(struct walk *walk, uint64_t token, void *context), char *err,
                       size_t err_len)
{
    const struct ref_routing *routing = in->routing;
    const size_t places = routing->experts > routing->ranks ? routing->experts : routing->ranks;
    struct walk walk = {in, (uint64_t *)malloc(places * sizeof(uint64_t)), 0};

    if (walk.filled == NULL) {
        snprintf(err, err_len, "out of memory");
        return SIM_BACKEND_FAILED;
    }
    for (; walk.source < routing->ranks; walk.source++) {
        memset(walk.filled, 0, places * sizeof(uint64_t));
        for (uint64_t t = routing->token_start[walk.source];
             t < routing->token_start[walk.source + 1]; t++)
            visit(&walk, t, context);
    }
    free(walk.filled);
    return 0;
}

/* --- dispatch --- */

static void count_row(const struct walk *walk, uint64_t token, uint64_t place, uint64_t row,
                      const struct sim_received *out)
{
    const struct ref_routing *routing = walk->in->routing;
    out->counts[place * routing->ranks + walk->source]++;
    out->src_token[row] = (int32_t)(token - routing->token_start[walk->source]);
    write_row(walk->in, walk->in->x + token * walk->in->hidden, row, out);
}

/* Low latency: a row for every column that names an expert. */
static void dispatch_ll(struct walk *walk, uint64_t token, void *context)
{
    const struct ref_routing *routing = walk->in->routing;
    for (uint32_t k = 0; k < routing->topk; k++) {
        const int64_t id = routing->topk_idx[token * routing->topk + k];
        if (!has_expert(routing, id)) continue;
        const uint64_t expert = (uint64_t)id, row = next_row(walk, expert);
        count_row(walk, token, expert, row, (const struct sim_received *)context);
    }
}

/* Normal: one row for every rank with a chosen expert, and with it that rank's own choices. */
static void dispatch_normal(struct walk *walk, uint64_t token, void *context)
{
    const struct ref_routing *routing = walk->in->routing;
    const struct sim_received *out = (const struct sim_received *)context;
    const int64_t local = routing->experts / routing->ranks;

    for (uint32_t rank = 0; rank < routing->ranks; rank++) {
        if (!visits(routing, token, rank)) continue;
        const uint64_t row = next_row(walk, rank);
        count_row(walk, token, rank, row, out);
        for (uint32_t k = 0; k < routing->topk; k++) {
            const uint64_t from = token * routing->topk + k, to = row * routing->topk + k;
            const int64_t id = routing->topk_idx[from];
            const int mine = has_expert(routing, id) && id / local == rank;
            out->topk_idx[to] = mine ? id - local * rank : -1;
            out->topk_weights[to] = mine ? routing->topk_weights[from] : 0.0f;
        }
    }
}

static int example_dispatch(void *state, const struct sim_layer_input *in, struct sim_received *out,
                            char *err, size_t err_len)
{
    const int ll = in->traffic->mode == SIM_MODE_LL;
    const uint64_t places = ll ? in->routing->experts : in->routing->ranks;

    (void)state;
    if (!casts(in->recipe)) {
        snprintf(err, err_len, "recipe %u: only bf16, ll, ll_round, ll_ue8m0 and py_cuda",
                 in->recipe);
        return SIM_BACKEND_UNSUPPORTED;
    }
    memset(out->counts, 0, places * in->routing->ranks * sizeof(int32_t));
    return walk_tokens(in, out, ll ? dispatch_ll : dispatch_normal, err, err_len);
}

/* --- expert --- */

static float scale_of(const struct sim_received *rows, uint64_t row, uint64_t group,
                      uint64_t groups)
{
    if (rows->scales != NULL) return rows->scales[row * groups + group];
    const uint32_t word = rows->scales_ue8m0[row * ((groups + 3) / 4) + group / 4];
    return float_of_bits((word >> 8 * (group % 4) & 0xFF) << 23);
}

static uint16_t apply_expert(uint32_t expert, float x)
{
    const float scaled = x * 0.37f; /* Rounded here, and again after the addition. */
    return to_bf16(expert == SIM_EXPERT_IDENTITY ? x : scaled + 0.11f);
}

static int example_expert(void *state, const struct sim_layer_input *in,
                          const struct sim_received *rows, uint16_t *expert_out, char *err,
                          size_t err_len)
{
    const uint64_t hidden = in->hidden, values = in->traffic->received_rows * hidden;

    (void)state;
    if (in->expert == SIM_EXPERT_MLP) {
        snprintf(err, err_len, "--expert mlp: only standin and identity");
        return SIM_BACKEND_UNSUPPORTED;
    }
    for (uint64_t i = 0; i < values; i++) {
        if (in->recipe == REF_RECIPE_BF16) {
            uint16_t x;
            memcpy(&x, rows->payload + 2 * i, sizeof x);
            expert_out[i] =
                in->expert == SIM_EXPERT_IDENTITY ? x : apply_expert(in->expert, from_bf16(x));
        } else {
            const float scale = scale_of(rows, i / hidden, i % hidden / GROUP, hidden / GROUP);
            expert_out[i] = apply_expert(in->expert, from_e4m3(rows->payload[i]) * scale);
        }
    }
    return 0;
}

/* --- combine --- */

struct answers {
    const uint16_t *expert_out;
    const float *row_weights;
    const struct sim_combined *out;
};

/* Low latency: from 0, columns in order, weight and addition fused, one rounding at the end. */
static void combine_ll(struct walk *walk, uint64_t token, void *context)
{
    const struct answers *answers = (const struct answers *)context;
    const struct ref_routing *routing = walk->in->routing;
    const uint64_t hidden = walk->in->hidden;
    const uint16_t *row[REF_TOPK_MAX];
    float weight[REF_TOPK_MAX];
    uint32_t count = 0;

    for (uint32_t k = 0; k < routing->topk; k++) {
        const uint64_t at = token * routing->topk + k;
        if (!has_expert(routing, routing->topk_idx[at])) continue; /* Its weight may be NaN. */
        weight[count] = routing->topk_weights[at];
        row[count++] =
            answers->expert_out + next_row(walk, (uint64_t)routing->topk_idx[at]) * hidden;
    }
    for (uint64_t c = 0; c < hidden; c++) {
        float sum = 0;
        for (uint32_t i = 0; i < count; i++) sum = fmaf(from_bf16(row[i][c]), weight[i], sum);
        answers->out->x[token * hidden + c] = to_bf16(sum);
    }
}

/* Normal: plain sums by ascending rank. Between nodes each node's sum is rounded to BF16 before it
 * leaves; biases come first at home. */
static void combine_normal(struct walk *walk, uint64_t token, void *context)
{
    const struct answers *answers = (const struct answers *)context;
    const struct sim_layer_input *in = walk->in;
    const struct ref_routing *routing = in->routing;
    const uint32_t per_node = in->traffic->nodes > 1 ? in->traffic->ranks_per_node : 0;
    uint64_t row[REF_TOPK_MAX];
    uint32_t node[REF_TOPK_MAX], count = 0;

    for (uint32_t rank = 0; rank < routing->ranks; rank++) {
        if (!visits(routing, token, rank)) continue;
        node[count] = per_node > 0 ? rank / per_node : 0;
        row[count++] = next_row(walk, rank);
    }
    for (uint64_t c = 0; c < in->hidden; c++) {
        const uint64_t home = token * in->hidden + c;
        float sum = in->bias0 != NULL ? from_bf16(in->bias0[home]) : 0.0f;
        sum += in->bias1 != NULL ? from_bf16(in->bias1[home]) : 0.0f;
        for (uint32_t i = 0; i < count;) {
            const uint32_t here = node[i];
            float part = 0;
            for (; i < count && node[i] == here; i++) {
                const float value = from_bf16(answers->expert_out[row[i] * in->hidden + c]);
                if (per_node > 0)
                    part += value;
                else
                    sum += value;
            }
            if (per_node > 0) sum += from_bf16(to_bf16(part));
        }
        answers->out->x[home] = to_bf16(sum);
    }
    for (uint32_t k = 0; k < routing->topk && answers->row_weights != NULL; k++) {
        float sum = 0;
        for (uint32_t i = 0; i < count;) {
            const uint32_t here = node[i];
            float part = 0;
            for (; i < count && node[i] == here; i++)
                part += answers->row_weights[row[i] * routing->topk + k];
            sum += part;
        }
        answers->out->topk_weights[token * routing->topk + k] = sum;
    }
}

static int example_combine(void *state, const struct sim_layer_input *in,
                           const uint16_t *expert_out, const float *row_weights,
                           struct sim_combined *out, char *err, size_t err_len)
{
    struct answers answers = {expert_out, out->topk_weights != NULL ? row_weights : NULL, out};
    (void)state;
    return walk_tokens(in, &answers, in->traffic->mode == SIM_MODE_LL ? combine_ll : combine_normal,
                       err, err_len);
}

/* --- the table --- */

/* Where a plugin would make its streams and buffers; *state_out comes back with every call. */
static int example_open(const struct sim_backend_ops *self, void **state_out, char *err,
                        size_t err_len)
{
    (void)self, (void)err, (void)err_len;
    *state_out = NULL;
    return 0;
}

static void example_close(void *state)
{
    (void)state;
}

const struct sim_backend_ops *sim_backend_v1(void)
{
    static const struct sim_backend_ops table = {
        .abi = SIM_BACKEND_ABI,
        .table_bytes = sizeof(struct sim_backend_ops),
        .name = "example",
        .open = example_open,
        .close = example_close,
        .dispatch = example_dispatch,
        .expert = example_expert,
        .combine = example_combine,
    };
    return &table;
}
