/* sim/datapath_check.c - byte comparison first, since nearly every stage of nearly every run is
 * equal; where it is not, the first differing element gets a name. */
#include "sim/datapath_check.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ref/digest.h"
#include "ref/layout.h"
#include "ref/quantise.h"
#include "sim/received.h"

const char *sim_stage_name(enum sim_stage stage)
{
    static const char *const NAMES[SIM_STAGES] = {"layout", "dispatch", "expert", "combine"};
    assert(stage < SIM_STAGES);
    return NAMES[stage];
}

/* Blocks of the rank in traffic->block_start. */
static uint64_t blocks_per_rank(const struct sim_layer_input *input)
{
    const struct ref_routing *routing = input->routing;
    return input->traffic->mode == SIM_MODE_LL
               ? (uint64_t)ref_local_experts(routing) * routing->ranks
               : routing->ranks;
}

static void add_part(struct sim_check_part *parts, uint32_t *count, const char *name,
                     const void *expected, const void *actual, uint64_t first, uint64_t row_bytes,
                     uint32_t element_bytes, uint32_t channels)
{
    if (expected == NULL || row_bytes == 0) return;
    assert(actual != NULL && *count < SIM_CHECK_PARTS_MAX);
    parts[(*count)++] = (struct sim_check_part){name,
                                                (const uint8_t *)expected + first * row_bytes,
                                                (const uint8_t *)actual + first * row_bytes,
                                                row_bytes,
                                                element_bytes,
                                                channels};
}

uint32_t sim_check_parts(const struct sim_layer_input *input,
                         const struct sim_layer_results *expected,
                         const struct sim_layer_results *actual, enum sim_stage stage,
                         uint32_t rank, uint64_t *first, uint64_t *rows,
                         struct sim_check_part *parts)
{
    const struct sim_row_shape shape = sim_row_shape(input);
    const struct sim_received *e = &expected->received, *a = &actual->received;
    const uint64_t *block_start = input->traffic->block_start;
    const uint64_t blocks = blocks_per_rank(input), topk = input->routing->topk;
    const uint64_t bf16_row = 2 * (uint64_t)input->hidden;
    uint32_t n = 0;

    *first = block_start[rank * blocks];
    *rows = block_start[(rank + 1) * blocks] - *first;
    switch (stage) {
    case SIM_STAGE_LAYOUT:
        *first = rank * blocks;
        *rows = blocks;
        add_part(parts, &n, "row count", e->counts, a->counts, *first, 4, 4, 0);
        break;
    case SIM_STAGE_DISPATCH:
        add_part(parts, &n, "source token", e->src_token, a->src_token, *first, 4, 4, 0);
        add_part(parts, &n, "payload", e->payload, a->payload, *first, shape.payload_bytes,
                 (uint32_t)(shape.payload_bytes / input->hidden), 1);
        add_part(parts, &n, "scale", e->scales, a->scales, *first, shape.scale_bytes, 4,
                 REF_GROUP_CHANNELS);
        add_part(parts, &n, "scale exponents", e->scales_ue8m0, a->scales_ue8m0, *first,
                 shape.scale_bytes, 4, 4 * REF_GROUP_CHANNELS);
        add_part(parts, &n, "expert ids", e->topk_idx, a->topk_idx, *first, 8 * topk, 8, 0);
        add_part(parts, &n, "weights", e->topk_weights, a->topk_weights, *first, 4 * topk, 4, 0);
        break;
    case SIM_STAGE_EXPERT:
        add_part(parts, &n, "expert output", expected->expert_out, actual->expert_out, *first,
                 bf16_row, 2, 1);
        break;
    case SIM_STAGE_COMBINE:
        *first = input->routing->token_start[rank];
        *rows = input->routing->token_start[rank + 1] - *first;
        add_part(parts, &n, "combined", expected->combined.x, actual->combined.x, *first, bf16_row,
                 2, 1);
        add_part(parts, &n, "weight sums", expected->combined.topk_weights,
                 actual->combined.topk_weights, *first, 4 * topk, 4, 0);
        break;
    case SIM_STAGES: assert(!"a stage"); break;
    }
    return n;
}

/* Whose row it is. */
struct row_name {
    int64_t expert;    /* -1: the stage has none. */
    uint32_t src_rank; /* Home rank of the row's token. */
    int64_t src_token; /* -1: a count. */
};

static struct row_name name_row(const struct sim_layer_input *input,
                                const struct sim_layer_results *expected, enum sim_stage stage,
                                uint64_t row)
{
    const struct ref_routing *routing = input->routing;
    const bool ll = input->traffic->mode == SIM_MODE_LL;
    struct row_name name = {-1, 0, -1};
    uint64_t block = row; /* Counts: rows are blocks. */

    if (stage == SIM_STAGE_COMBINE) {
        assert(row < ref_token_count(routing));
        name.src_rank = ref_token_home(routing, row);
        name.src_token = (int64_t)(row - routing->token_start[name.src_rank]);
        return name;
    }
    if (stage != SIM_STAGE_LAYOUT) {
        assert(row < input->traffic->received_rows);
        const uint64_t *start = input->traffic->block_start;
        uint64_t low = 0;
        uint64_t high = (uint64_t)(ll ? routing->experts : routing->ranks) * routing->ranks - 1;
        while (low < high) { /* Last block that starts at or before the row and is not empty. */
            const uint64_t middle = low + (high - low + 1) / 2;
            if (start[middle] <= row)
                low = middle;
            else
                high = middle - 1;
        }
        block = low;
        name.src_token = expected->received.src_token[row];
    }
    name.src_rank = (uint32_t)(block % routing->ranks);
    if (ll) name.expert = (int64_t)(block / routing->ranks);
    return name;
}

static void add_wrong(const struct sim_layer_input *input, const struct sim_layer_results *expected,
                      enum sim_stage stage, uint32_t rank, uint64_t row,
                      struct sim_wrong_rows *wrong)
{
    const struct row_name name = name_row(input, expected, stage, row);
    const struct sim_wrong_row added = {.stage = (uint32_t)stage,
                                        .rank = rank,
                                        .expert = (int32_t)name.expert,
                                        .src_rank = name.src_rank,
                                        .src_token = name.src_token};
    assert(rank < input->routing->ranks && name.src_rank < input->routing->ranks);
    sim_wrong_rows_add(wrong, &added);
}

/* Big-endian hexadecimal of one little-endian element, as bit patterns are written. */
static void print_hex(char *hex, const uint8_t *element, uint32_t bytes)
{
    for (uint32_t b = 0; b < bytes; b++)
        snprintf(hex + (size_t)2 * b, 3, "%02X", element[bytes - 1 - b]);
}

static bool all_poison(const uint8_t *row, uint64_t bytes)
{
    for (uint64_t b = 0; b < bytes; b++)
        if (row[b] != 0xFF) return false;
    return true;
}

/* A sum that took in poison is NaN, which rounds to 7FFF: do all differing BF16 elements say so? */
static bool all_nan(const struct sim_check_part *part, uint64_t i)
{
    const uint8_t *expected = part->expected + i * part->row_bytes;
    const uint8_t *actual = part->actual + i * part->row_bytes;
    if (part->element_bytes != 2) return false;
    assert(part->row_bytes % 2 == 0);
    for (uint64_t b = 0; b < part->row_bytes; b += 2)
        if (memcmp(expected + b, actual + b, 2) != 0 &&
            (actual[b] != 0xFF || actual[b + 1] != 0x7F))
            return false;
    return true;
}

/* In words: what seems to have happened to row i of the part. */
static void name_cause(const struct sim_check_part *part, uint64_t rows, uint64_t i,
                       uint64_t differing_bytes, struct sim_check *check)
{
    const uint8_t *actual = part->actual + i * part->row_bytes;
    assert(i < rows && differing_bytes > 0 && differing_bytes <= part->row_bytes);
    if (all_poison(actual, part->row_bytes)) {
        snprintf(check->cause, sizeof check->cause, "%s: never delivered, still poison",
                 part->name);
        return;
    }
    if (all_nan(part, i)) {
        snprintf(check->cause, sizeof check->cause,
                 "%s: NaN: a part of it was never delivered, poison was read", part->name);
        return;
    }
    for (uint64_t other = 0; part->row_bytes >= 64 && other < rows; other++) {
        if (memcmp(part->expected + other * part->row_bytes, actual, part->row_bytes) != 0)
            continue;
        snprintf(check->cause, sizeof check->cause,
                 "%s: holds what row %" PRIu64 " of this rank should hold", part->name, other);
        return;
    }
    snprintf(check->cause, sizeof check->cause,
             "%s: %" PRIu64 " of %" PRIu64 " bytes of the row differ", part->name, differing_bytes,
             part->row_bytes);
}

/* The first row and element that differ in any part. */
static void name_first(const struct sim_layer_input *input,
                       const struct sim_layer_results *expected, enum sim_stage stage,
                       const struct sim_check_part *parts, uint32_t part_count, uint64_t first,
                       uint64_t rows, uint64_t row, struct sim_check *check)
{
    const struct sim_check_part *chosen = NULL;
    for (uint32_t p = 0; p < part_count; p++) { /* Prefer a part that has channels. */
        const uint8_t *e = parts[p].expected + row * parts[p].row_bytes;
        const uint8_t *a = parts[p].actual + row * parts[p].row_bytes;
        if (memcmp(e, a, parts[p].row_bytes) == 0) continue;
        if (chosen == NULL || (chosen->channels == 0 && parts[p].channels > 0)) chosen = &parts[p];
    }
    assert(chosen != NULL);
    const uint8_t *e = chosen->expected + row * chosen->row_bytes;
    const uint8_t *a = chosen->actual + row * chosen->row_bytes;
    uint64_t element = UINT64_MAX, differing = 0;
    for (uint64_t b = 0; b < chosen->row_bytes; b++) {
        if (e[b] == a[b]) continue;
        if (element == UINT64_MAX) element = b / chosen->element_bytes;
        differing++;
    }
    const struct row_name name = name_row(input, expected, stage, first + row);
    check->expert = name.expert;
    check->src_rank = name.src_rank;
    check->src_token = name.src_token < 0 ? 0 : (uint32_t)name.src_token;
    check->channel = chosen->channels > 0 ? (int64_t)(element * chosen->channels) : -1;
    print_hex(check->expected_hex, e + element * chosen->element_bytes, chosen->element_bytes);
    print_hex(check->actual_hex, a + element * chosen->element_bytes, chosen->element_bytes);
    name_cause(chosen, rows, row, differing, check);
}

void sim_datapath_check(const struct sim_layer_input *input,
                        const struct sim_layer_results *expected,
                        const struct sim_layer_results *actual, enum sim_stage stage, uint32_t rank,
                        struct sim_check *check, struct sim_wrong_rows *wrong)
{
    struct sim_check_part parts[SIM_CHECK_PARTS_MAX];
    uint64_t first = 0, rows = 0;
    bool equal = true;
    const uint32_t count =
        sim_check_parts(input, expected, actual, stage, rank, &first, &rows, parts);

    memset(check, 0, sizeof *check);
    check->stage = stage;
    check->rank = rank;
    check->rows = rows;
    for (uint32_t p = 0; p < count; p++) {
        const uint64_t bytes = rows * parts[p].row_bytes;
        check->bytes += bytes;
        check->digest = ref_digest_mix(check->digest, ref_digest(parts[p].actual, bytes));
        equal = equal && memcmp(parts[p].expected, parts[p].actual, bytes) == 0;
    }
    if (equal) return;
    for (uint64_t row = 0; row < rows; row++) {
        bool same = true;
        for (uint32_t p = 0; p < count; p++)
            same =
                same && memcmp(parts[p].expected + row * parts[p].row_bytes,
                               parts[p].actual + row * parts[p].row_bytes, parts[p].row_bytes) == 0;
        if (same) continue;
        if (wrong != NULL) add_wrong(input, expected, stage, rank, first + row, wrong);
        if (check->mismatch_count++ == 0)
            name_first(input, expected, stage, parts, count, first, rows, row, check);
    }
}
