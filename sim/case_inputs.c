/* sim/case_inputs.c - draws ids, weights and rows of a named case. */
#include "sim/case_inputs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/digest.h"
#include "ref/ll_phase.h"
#include "ref/normal_phase.h"
#include "sim/received.h"
#include "sim/rng.h"

enum { PURPOSE_IDS = 11, PURPOSE_WEIGHTS = 12, PURPOSE_X = 13, PURPOSE_BIAS = 14 };
enum { COPY_EVERY = 3, HOT_PERCENT = 75, GROUP = REF_GROUP_CHANNELS };

static uint64_t seed_of(const struct sim_table_case *made)
{
    return ref_digest(made->name, strlen(made->name));
}

/* Every third token of the duplicates repeats the one before it, of the same rank. */
static bool is_copy(const struct sim_table_case *made, uint64_t token)
{
    return made->kind == SIM_KIND_DUPLICATES && token % COPY_EVERY == COPY_EVERY - 1;
}

/* Experts that may be named: with empty ranks none of the last rank's, nor of one rank's upper
 * half. */
static uint32_t experts_named(const struct sim_table_case *made)
{
    if (made->kind != SIM_KIND_EMPTY) return made->experts;
    if (made->ep == 1) return (made->experts + 1) / 2;
    return made->experts - made->experts / made->ep;
}

/* One token's ids: K distinct ones (as many as may be named, then -1), bent to the kind. */
static void draw_ids(const struct sim_table_case *made, struct sim_rng *rng, uint64_t token,
                     int64_t *row)
{
    const uint32_t named = experts_named(made), topk = made->topk;
    uint32_t have = 0;

    if (made->kind == SIM_KIND_HOT && sim_rng_below(rng, 100) < HOT_PERCENT)
        row[have++] = made->experts / 2;
    while (have < topk && have < named) {
        const int64_t expert = sim_rng_below(rng, named);
        bool taken = false;
        for (uint32_t k = 0; k < have; k++) taken |= row[k] == expert;
        if (!taken) row[have++] = expert;
    }
    while (have < topk) row[have++] = -1;
    if (made->kind == SIM_KIND_DUPLICATES && topk > 1 && token % 2 == 1) row[topk - 1] = row[0];
    for (uint32_t k = 0; made->kind == SIM_KIND_MASKED && k < topk; k++)
        if (token % 8 == 5 || sim_rng_below(rng, 4) == 0) row[k] = -1;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Beside an expert a weight in (0, 1] with all its bits; of the special kind one in eight is
 * something else. Normal mode adds weights in fp32 and never rounds them, and processors disagree
 * about the bits of a sum that is NaN, so there no sum may become one. */
static float draw_weight(const struct sim_table_case *made, struct sim_rng *rng, int64_t id)
{
    static const uint32_t special[] = {0x80000000, 0x7F800000, 0x00000001, 0xBE99999A,
                                       0xFF800000, 0x7FC00000, 0xFFC12345};
    const uint32_t kinds = made->mode == SIM_MODE_LL ? 7 : 4;
    const uint64_t draw = sim_rng_next(rng);

    if (id < 0) return float_of(0x7FC00000); /* Never read. */
    if (made->kind == SIM_KIND_SPECIAL && draw % 8 == 0) return float_of(special[draw / 8 % kinds]);
    return (float)((draw >> 40) + 1) / 16777216.0f;
}

/* One token's channels: per group of 128 a largest magnitude (any mantissa: which maximum it is
 * decides whether a reciprocal shows), values of three binades below it and now and then a zero of
 * either sign. */
static void draw_row(uint64_t key, uint32_t hidden, uint32_t top_min, uint32_t top_count,
                     uint16_t *row)
{
    for (uint32_t g = 0; g < hidden / GROUP; g++) {
        uint64_t at = sim_rng_mix(key + (g + 1) * UINT64_C(0x9e3779b97f4a7c15));
        const uint32_t top = top_min + (uint32_t)(at >> 32) % top_count;
        const uint32_t cap = (uint32_t)at & 0x7F; /* Of mantissas at the top. */

        for (uint32_t c = 0; c < GROUP; c += 4) {
            uint64_t bits = sim_rng_mix(at += UINT64_C(0x9e3779b97f4a7c15));
            for (uint32_t i = 0; i < 4; i++, bits >>= 16) {
                const uint32_t exponent = top - (bits >> 8 & 3);
                const bool zero = (bits >> 10 & 31) == 0;
                const uint32_t drawn = bits & 0x7F;
                const uint32_t mantissa = exponent == top && drawn > cap ? cap : drawn;
                row[g * GROUP + c + i] =
                    (uint16_t)((bits & 0x8000) | (zero ? 0 : exponent << 7 | mantissa));
            }
        }
    }
}

/* Put what arithmetic stumbles over into a row: one value in every fourth group, and one group in
 * sixteen all zero but for a -0. */
static void add_specials(uint64_t key, uint32_t hidden, uint16_t *row)
{
    static const uint16_t special[] = {0x7FC0, 0xFFC1, 0x7F81, 0x7F80, 0xFF80,
                                       0x8000, 0x0001, 0x807F, 0x7F7F, 0xFF7F};
    for (uint32_t g = 0; g < hidden / GROUP; g++) {
        const uint64_t draw = sim_rng_mix(key ^ (g + 1));
        uint16_t *group = row + (size_t)g * GROUP;

        if (draw % 16 == 1) memset(group, 0, GROUP * sizeof *group);
        if (draw % 16 == 1) group[draw >> 8 & 127] = 0x8000;
        if (draw % 4 == 0) group[draw >> 8 & 127] = special[(draw >> 16) % 10];
    }
}

/* The floor is 1e-4, between 38D1 and 38D2. Rows come with groups far under it; one group in four
 * is raised to ordinary values, one in sixteen is subnormal, two in sixteen stand at the edge. */
static void add_edges(uint64_t key, uint32_t hidden, uint16_t *row)
{
    for (uint32_t g = 0; g < hidden / GROUP; g++) {
        const uint64_t draw = sim_rng_mix(key ^ (g + 1)) % 16;
        uint16_t *group = row + (size_t)g * GROUP;

        for (uint32_t c = 0; c < GROUP; c++) {
            const uint16_t sign = group[c] & 0x8000, low = group[c] & 0x7F;
            if (draw < 4) group[c] = (uint16_t)(group[c] + (low != 0 ? 16 << 7 : 0));
            if (draw == 4) group[c] = sign | low;
            if (draw == 5 || draw == 6) group[c] = (uint16_t)(sign | (0x38CC + draw));
        }
    }
}

static void draw_token(const struct sim_table_case *made, uint64_t seed, uint64_t purpose,
                       uint64_t rank, uint64_t token, uint16_t *row)
{
    struct sim_rng rng = sim_rng_stream(seed, purpose, rank, token, 0);
    const uint64_t key = sim_rng_next(&rng), more = sim_rng_next(&rng);
    const bool floor = made->kind == SIM_KIND_FLOOR;

    draw_row(key, made->hidden, floor ? 100 : 121, floor ? 13 : 16, row);
    if (made->kind == SIM_KIND_SPECIAL) add_specials(more, made->hidden, row);
    if (floor) add_edges(more, made->hidden, row);
}

static void draw_routing(const struct sim_table_case *made, struct sim_case_inputs *inputs)
{
    const uint64_t seed = seed_of(made);
    const uint32_t topk = made->topk;

    for (uint32_t r = 0; r < made->ep; r++)
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1]; t++) {
            const uint64_t token = t - inputs->token_start[r];
            struct sim_rng ids = sim_rng_stream(seed, PURPOSE_IDS, r, token, 0);
            struct sim_rng weights = sim_rng_stream(seed, PURPOSE_WEIGHTS, r, token, 0);
            int64_t *row = inputs->topk_idx + t * topk;
            float *weight = inputs->topk_weights + t * topk;

            draw_ids(made, &ids, token, row);
            for (uint32_t k = 0; k < topk; k++) weight[k] = draw_weight(made, &weights, row[k]);
            if (!is_copy(made, token)) continue;
            memcpy(row, row - topk, topk * sizeof *row);
            memcpy(weight, weight - topk, topk * sizeof *weight);
        }
}

static void draw_rows(const struct sim_table_case *made, const struct sim_case_inputs *inputs,
                      uint64_t purpose, uint16_t *rows)
{
    const uint64_t seed = seed_of(made);

    for (uint32_t r = 0; rows != NULL && r < made->ep; r++)
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1]; t++) {
            const uint64_t token = t - inputs->token_start[r];
            uint16_t *row = rows + t * made->hidden;

            if (is_copy(made, token))
                memcpy(row, row - made->hidden, made->hidden * sizeof *row);
            else
                draw_token(made, seed, purpose, r, token, row);
        }
}

/* Inputs, the results of two computations, the arenas of the reference's phases, messages twice. */
static uint64_t bytes_needed(const struct sim_table_case *made,
                             const struct sim_case_inputs *inputs)
{
    const struct sim_traffic *traffic = &inputs->traffic;
    const struct sim_row_shape shape = sim_row_shape(&inputs->layer);
    const bool ll = made->mode == SIM_MODE_LL, internode = traffic->nodes > 1;
    const uint64_t rows = traffic->received_rows, hidden_bytes = 2 * (uint64_t)made->hidden;
    const uint64_t message =
        ll ? ref_ll_message_bytes(made->hidden, made->recipe)
           : ref_record_dispatch(shape.payload_bytes, shape.scale_bytes, made->topk, internode)
                 .bytes;
    const uint64_t answer =
        ll ? hidden_bytes : ref_record_combine(made->hidden, made->topk, internode).bytes;
    const uint64_t row_tables = ll ? 4 : 4 + 12 * (uint64_t)made->topk;
    const uint64_t result = rows * (shape.payload_bytes + shape.scale_bytes + row_tables) +
                            rows * hidden_bytes + inputs->tokens * (hidden_bytes + row_tables) +
                            4 * shape.blocks;
    const uint64_t arenas =
        (inputs->tokens + rows + traffic->rail_rows) * message +
        (rows + traffic->contribution_rows + traffic->rail_rows + traffic->home_rows) * answer +
        8 * shape.blocks + 8 * rows;
    const uint64_t cast = ll ? 0 : inputs->tokens * (shape.payload_bytes + 2 * shape.scale_bytes);
    const uint64_t messages =
        traffic->message_count[SIM_DISPATCH] + traffic->message_count[SIM_COMBINE];

    return inputs->tokens * (hidden_bytes * (1 + made->biases) + 12 * (uint64_t)made->topk) +
           2 * result + arenas + cast + messages * (2 * sizeof(struct sim_message) + 40);
}

uint64_t sim_case_inputs_digest(const struct sim_table_case *made,
                                const struct sim_case_inputs *inputs)
{
    const uint64_t ids = inputs->tokens * made->topk, values = inputs->tokens * made->hidden;
    const uint64_t shape[] = {made->ep,   made->node,   made->mode,    made->recipe,
                              made->topk, made->hidden, made->experts, made->biases};
    uint64_t digest = ref_digest(shape, sizeof shape);

    digest = ref_digest_mix(
        digest, ref_digest(inputs->token_start, (made->ep + 1) * sizeof *inputs->token_start));
    digest = ref_digest_mix(digest, ref_digest(inputs->topk_idx, ids * sizeof *inputs->topk_idx));
    digest = ref_digest_mix(digest,
                            ref_digest(inputs->topk_weights, ids * sizeof *inputs->topk_weights));
    digest = ref_digest_mix(digest, ref_digest(inputs->x, values * sizeof *inputs->x));
    if (inputs->bias0 != NULL)
        digest = ref_digest_mix(digest, ref_digest(inputs->bias0, values * sizeof *inputs->x));
    if (inputs->bias1 != NULL)
        digest = ref_digest_mix(digest, ref_digest(inputs->bias1, values * sizeof *inputs->x));
    return digest;
}

/* Token starts, ids, weights and traffic: enough to know what the rows will take. */
static int open_routing(const struct sim_table_case *made, struct sim_case_inputs *inputs,
                        char *err, size_t err_len)
{
    const struct sim_traffic_shape shape = {.mode = made->mode,
                                            .ranks_per_node =
                                                made->ep < made->node ? made->ep : made->node,
                                            .nvlink = true};

    inputs->token_start = (uint64_t *)calloc((size_t)made->ep + 1, sizeof *inputs->token_start);
    if (inputs->token_start == NULL) goto no_memory;
    for (uint32_t r = 0; r < made->ep; r++)
        inputs->token_start[r + 1] = inputs->token_start[r] + sim_case_rank_tokens(made, r);
    inputs->tokens = inputs->token_start[made->ep];
    const uint64_t ids = inputs->tokens * made->topk;
    inputs->topk_idx = (int64_t *)malloc((ids + 1) * sizeof *inputs->topk_idx);
    inputs->topk_weights = (float *)malloc((ids + 1) * sizeof *inputs->topk_weights);
    if (inputs->topk_idx == NULL || inputs->topk_weights == NULL) goto no_memory;
    draw_routing(made, inputs);
    inputs->routing =
        (struct ref_routing){made->ep,         made->experts,       made->topk, inputs->token_start,
                             inputs->topk_idx, inputs->topk_weights};
    return sim_traffic_build(&inputs->routing, &shape, &inputs->traffic, err, err_len);
no_memory:
    snprintf(err, err_len, "%s: inputs: out of memory", made->name);
    return -1;
}

static int open_rows(const struct sim_table_case *made, struct sim_case_inputs *inputs, char *err,
                     size_t err_len)
{
    const size_t bytes = (inputs->tokens * made->hidden + 1) * sizeof(uint16_t);

    inputs->x = (uint16_t *)malloc(bytes);
    if (made->biases > 0) inputs->bias0 = (uint16_t *)malloc(bytes);
    if (made->biases > 1) inputs->bias1 = (uint16_t *)malloc(bytes);
    if (inputs->x == NULL || (made->biases > 0 && inputs->bias0 == NULL) ||
        (made->biases > 1 && inputs->bias1 == NULL)) {
        snprintf(err, err_len, "%s: %" PRIu64 " rows: out of memory", made->name, inputs->tokens);
        return -1;
    }
    draw_rows(made, inputs, PURPOSE_X, inputs->x);
    draw_rows(made, inputs, PURPOSE_BIAS, inputs->bias0);
    draw_rows(made, inputs, PURPOSE_BIAS + 1, inputs->bias1);
    return 0;
}

/* All but the rows, which are most of it. */
static int open_shape(const struct sim_table_case *made, struct sim_case_inputs *inputs, char *err,
                      size_t err_len)
{
    memset(inputs, 0, sizeof *inputs);
    if (open_routing(made, inputs, err, err_len) != 0) return -1;
    inputs->layer = (struct sim_layer_input){.routing = &inputs->routing,
                                             .traffic = &inputs->traffic,
                                             .hidden = made->hidden,
                                             .recipe = (uint32_t)made->recipe,
                                             .expert = SIM_EXPERT_STANDIN};
    inputs->bytes = bytes_needed(made, inputs);
    if (inputs->bytes <= SIM_CASE_BYTES_MAX) return 0;
    snprintf(err, err_len,
             "%s: takes %" PRIu64 " bytes of memory: must be at most %" PRIu64
             "; fewer tokens, a smaller hidden size or top-k",
             made->name, inputs->bytes, SIM_CASE_BYTES_MAX);
    return SIM_CASE_TOO_LARGE;
}

int sim_case_bytes(const struct sim_table_case *table_case, uint64_t *bytes, char *err,
                   size_t err_len)
{
    struct sim_case_inputs inputs;
    const int status = open_shape(table_case, &inputs, err, err_len);

    *bytes = inputs.bytes;
    sim_case_inputs_free(&inputs);
    return status;
}

int sim_case_inputs_open(const struct sim_table_case *table_case, struct sim_case_inputs *inputs,
                         char *err, size_t err_len)
{
    int status = open_shape(table_case, inputs, err, err_len);

    if (status == 0) status = open_rows(table_case, inputs, err, err_len);
    if (status != 0) {
        sim_case_inputs_free(inputs);
        return status;
    }
    inputs->layer.x = inputs->x;
    inputs->layer.bias0 = inputs->bias0;
    inputs->layer.bias1 = inputs->bias1;
    inputs->digest = sim_case_inputs_digest(table_case, inputs);
    return 0;
}

void sim_case_inputs_free(struct sim_case_inputs *inputs)
{
    sim_traffic_free(&inputs->traffic);
    free(inputs->token_start);
    free(inputs->topk_idx);
    free(inputs->topk_weights);
    free(inputs->x);
    free(inputs->bias0);
    free(inputs->bias1);
    memset(inputs, 0, sizeof *inputs);
}
