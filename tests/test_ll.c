/* tests/test_ll.c - low-latency mode gives what the real kernels gave, row by row found by key
 * (local expert, source rank, source token), and what nested loops give on random routings. */
#include "tests/exchange.h"

#include <math.h>

#include "ref/expert.h"
#include "ref/ll.h"
#include "ref/quantise.h"

static const char *const CASES[] = {"ll_ep2_small", "ll_ep2_masked", "ll_ep2_onerank",
                                    "ll_ep4_small", "ll_ep4_masked", "ll_ep8_masked"};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0], TAG_COUNT = 4 };

static const struct {
    const char *tag;
    enum ref_recipe recipe;
} TAGS[TAG_COUNT] = {{"bf16", REF_RECIPE_BF16},
                     {"fp8", REF_RECIPE_LL},
                     {"fp8r", REF_RECIPE_LL_ROUND},
                     {"ue8m0", REF_RECIPE_LL_UE8M0}};

struct received {
    uint64_t *blocks;
    uint64_t *scratch;
    uint64_t row_count;
    uint64_t payload_bytes;
    uint64_t groups, words;
    struct ref_ll_rows rows;
};

static struct received dispatch(const struct exchange *in, enum ref_recipe recipe)
{
    const uint64_t experts = in->routing.experts, ranks = in->routing.ranks;
    struct received got = {.blocks = TEST_ARRAY(uint64_t, experts * ranks + 1),
                           .scratch = TEST_ARRAY(uint64_t, experts),
                           .payload_bytes = ref_ll_payload_bytes(in->hidden, recipe),
                           .groups = in->hidden / 128,
                           .words = ref_scale_packed_words(in->hidden / 128)};
    got.row_count = ref_ll_blocks(&in->routing, got.blocks);
    got.rows.payload = TEST_ARRAY(uint8_t, got.row_count * got.payload_bytes);
    if (ref_recipe_scales(recipe) == REF_SCALE_UE8M0) {
        got.rows.scales_ue8m0 = TEST_ARRAY(uint32_t, got.row_count * got.words);
    } else {
        got.rows.scales = TEST_ARRAY(float, got.row_count *got.groups);
    }
    got.rows.src_token = TEST_ARRAY(int32_t, got.row_count);
    got.rows.counts = TEST_ARRAY(int32_t, experts * ranks);
    ref_ll_dispatch(&in->routing, in->hidden, recipe, in->x, got.blocks, got.scratch, &got.rows);
    return got;
}

/* A captured tensor TAG.eE.FIELD. */
static const struct trace_tensor *field(const struct capture *capture, uint32_t rank,
                                        const char *tag, uint32_t expert, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%s.e%" PRIu32 ".%s", tag, expert, name);
    return capture_tensor(capture, rank, key);
}

/* Captured row `theirs` of a local expert against ours. */
static void row_equals(const struct capture *capture, uint32_t rank, const char *tag,
                       uint32_t expert, uint64_t theirs, const struct received *got, uint64_t ours)
{
    const struct trace_tensor *x = field(capture, rank, tag, expert, "x");
    const uint8_t *payload = (const uint8_t *)x->data + theirs * got->payload_bytes;
    ck_assert_uint_eq(x->bytes, x->shape[0] * got->payload_bytes);
    if (memcmp(payload, got->rows.payload + ours * got->payload_bytes, got->payload_bytes) != 0)
        ck_abort_msg("%s rank %" PRIu32 " %s expert %" PRIu32 " row %" PRIu64, capture->name, rank,
                     tag, expert, theirs);
    if (strcmp(tag, "bf16") == 0) return;
    const bool packed = got->rows.scales == NULL;
    const uint64_t bytes = 4 * (packed ? got->words : got->groups);
    const struct trace_tensor *scales = field(capture, rank, tag, expert, "scales");
    const void *mine = packed ? (const void *)(got->rows.scales_ue8m0 + ours * got->words)
                              : (const void *)(got->rows.scales + ours * got->groups);
    ck_assert_uint_eq(scales->bytes, scales->shape[0] * bytes);
    if (memcmp((const uint8_t *)scales->data + theirs * bytes, mine, bytes) != 0)
        ck_abort_msg("%s rank %" PRIu32 " %s expert %" PRIu32 " scales of row %" PRIu64,
                     capture->name, rank, tag, expert, theirs);
}

/* One (local expert, source rank) block: the same source tokens, in any order, same rows. */
static void block_equals(const struct capture *capture, uint32_t rank, const char *tag,
                         uint32_t expert, uint32_t source, const struct received *got,
                         uint64_t block)
{
    const int64_t range =
        ((const int64_t *)field(capture, rank, tag, expert, "layout")->data)[source];
    const uint64_t count = (uint64_t)range & 0xFFFFFFFFu, begin = (uint64_t)range >> 32;
    const int32_t *tokens = (const int32_t *)field(capture, rank, tag, expert, "src")->data;
    uint64_t row = got->blocks[block];

    ck_assert_uint_eq(got->blocks[block + 1] - row, count);
    ck_assert_int_eq(got->rows.counts[block], (int64_t)count);
    for (; row < got->blocks[block + 1]; row++) { /* Captures hold no duplicates: key is unique. */
        uint64_t theirs = begin;
        while (theirs < begin + count && tokens[theirs] != got->rows.src_token[row]) theirs++;
        ck_assert_uint_lt(theirs, begin + count);
        row_equals(capture, rank, tag, expert, theirs, got, row);
    }
}

START_TEST(captured_dispatch_is_reproduced_bit_for_bit) /* _i: case, then tag */
{
    struct capture capture;
    const char *tag = TAGS[_i % TAG_COUNT].tag;
    if (!capture_open(CASES[_i / TAG_COUNT], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const struct received got = dispatch(&in, TAGS[_i % TAG_COUNT].recipe);
    const uint32_t ranks = in.routing.ranks, local = in.routing.experts / ranks;

    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t e = 0; e < local; e++) {
            char key[32];
            const uint64_t block = (uint64_t)(r * local + e) * ranks;
            snprintf(key, sizeof key, "%s.count", tag);
            ck_assert_int_eq(((const int32_t *)capture_tensor(&capture, r, key)->data)[e],
                             (int64_t)(got.blocks[block + ranks] - got.blocks[block]));
            for (uint32_t s = 0; s < ranks; s++)
                block_equals(&capture, r, tag, e, s, &got, block + s);
        }
}
END_TEST

START_TEST(captured_combine_is_reproduced_bit_for_bit)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const struct received got = dispatch(&in, REF_RECIPE_BF16);
    uint16_t *expert_out = TEST_ARRAY(uint16_t, got.row_count * in.hidden);
    uint16_t *combined = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    ref_expert_standin(REF_RECIPE_BF16, got.rows.payload, NULL, got.row_count, in.hidden,
                       expert_out);
    ref_ll_combine(&in.routing, in.hidden, expert_out, got.blocks, got.scratch, combined);
    for (uint32_t r = 0; r < in.routing.ranks; r++) {
        const uint64_t first = in.routing.token_start[r];
        const uint64_t count = in.routing.token_start[r + 1] - first;
        capture_equals(&capture, r, "combined_x", combined + first * in.hidden,
                       count * in.hidden * 2);
    }
}
END_TEST

/* Rows by the definition: four nested loops, no arithmetic on indices. */
START_TEST(rows_stand_by_expert_source_token_and_column)
{
    const struct exchange in = exchange_random((uint64_t)_i, 3, 9, 4, 12, 512);
    const enum ref_recipe recipe = TAGS[_i % TAG_COUNT].recipe;
    const struct received got = dispatch(&in, recipe);
    uint8_t *codes = TEST_ARRAY(uint8_t, got.payload_bytes);
    float scales[4];
    uint32_t word = 0;
    uint64_t row = 0;

    for (uint32_t e = 0; e < 9; e++)
        for (uint32_t s = 0; s < 3; s++) {
            ck_assert_uint_eq(got.blocks[e * 3 + s], row);
            for (uint64_t t = in.routing.token_start[s]; t < in.routing.token_start[s + 1]; t++)
                for (uint32_t k = 0; k < 4; k++) {
                    if (in.routing.topk_idx[t * 4 + k] != (int64_t)e) continue;
                    ref_quantise(recipe, in.x + t * in.hidden, 1, in.hidden, codes, scales);
                    if (got.rows.scales_ue8m0 != NULL)
                        ck_assert_int_eq(ref_scales_pack_ue8m0(scales, 1, 4, &word, NULL, 0), 0);
                    ck_assert_msg(memcmp(got.rows.payload + row * got.payload_bytes, codes,
                                         got.payload_bytes) == 0,
                                  "seed %" PRIu64 " row %" PRIu64, in.seed, row);
                    ck_assert_uint_eq((uint64_t)got.rows.src_token[row],
                                      t - in.routing.token_start[s]);
                    if (got.rows.scales_ue8m0 != NULL)
                        ck_assert_uint_eq(got.rows.scales_ue8m0[row], word);
                    else if (recipe != REF_RECIPE_BF16)
                        ck_assert_mem_eq(got.rows.scales + row * 4, scales, sizeof scales);
                    row++;
                }
        }
    ck_assert_uint_eq(row, got.row_count);
}
END_TEST

START_TEST(combine_adds_columns_in_order_with_one_rounding)
{
    const struct exchange in = exchange_random((uint64_t)_i, 4, 8, 5, 10, 128);
    const struct received got = dispatch(&in, REF_RECIPE_BF16);
    uint64_t state = in.seed + 5;
    uint16_t *expert_out = TEST_ARRAY(uint16_t, got.row_count * in.hidden);
    uint16_t *combined = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    uint64_t taken[8 * 4] = {0};
    for (uint64_t i = 0; i < got.row_count * in.hidden; i++) expert_out[i] = exchange_value(&state);
    ref_ll_combine(&in.routing, in.hidden, expert_out, got.blocks, got.scratch, combined);

    for (uint32_t s = 0; s < 4; s++)
        for (uint64_t t = in.routing.token_start[s]; t < in.routing.token_start[s + 1]; t++) {
            float sum[128] = {0};
            for (uint32_t k = 0; k < 5; k++) {
                const int64_t id = in.routing.topk_idx[t * 5 + k];
                if (id < 0) continue;
                const uint64_t block = (uint64_t)id * 4 + s;
                const uint16_t *row = expert_out + (got.blocks[block] + taken[block]++) * 128;
                for (uint32_t c = 0; c < 128; c++)
                    sum[c] = fmaf(slow_f32(row[c]), in.routing.topk_weights[t * 5 + k], sum[c]);
            }
            for (uint32_t c = 0; c < 128; c++)
                if (combined[t * 128 + c] != slow_bf16(sum[c]))
                    ck_abort_msg("seed %" PRIu64 " token %" PRIu64 " channel %" PRIu32, in.seed, t,
                                 c);
        }
}
END_TEST

START_TEST(layout_range_holds_count_and_first_row)
{
    const struct exchange in = exchange_random((uint64_t)_i, 3, 6, 2, 9, 128);
    const struct received got = dispatch(&in, REF_RECIPE_BF16);
    for (uint32_t r = 0; r < 3; r++) {
        int64_t range[2 * 3];
        ref_ll_layout_range(&in.routing, got.blocks, r, range);
        for (uint32_t e = 0; e < 2; e++) {
            uint64_t row = 0;
            for (uint32_t s = 0; s < 3; s++) {
                const int32_t count = got.rows.counts[(r * 2 + e) * 3 + s];
                ck_assert_uint_eq((uint64_t)range[e * 3 + s], row << 32 | (uint64_t)count);
                row += (uint64_t)count;
            }
        }
    }
}
END_TEST

START_TEST(nan_passes_dispatch_untouched_and_leaves_combine_as_7fff)
{
    const uint64_t counts[1] = {1};
    const int64_t ids[2] = {1, 0};
    const float weights[2] = {1.0f, 1.0f};
    struct exchange in = exchange_of(1, 2, 2, counts, ids, weights);
    const uint16_t special[6] = {0x7F81, 0xFFC1, 0x7F80, 0xFF80, 0x8000, 0x0001};
    const uint16_t right[6] = {0x7FFF, 0x7FFF, 0x7F80, 0xFF80, 0x0000, 0x0002};
    uint16_t combined[128];
    in.hidden = 128;
    in.x = TEST_ARRAY(uint16_t, 128);
    memcpy(in.x, special, sizeof special);
    const struct received got = dispatch(&in, REF_RECIPE_BF16);
    ck_assert_uint_eq(got.row_count, 2);
    ck_assert_mem_eq(got.rows.payload, in.x, 256);
    ck_assert_mem_eq(got.rows.payload + 256, in.x, 256);
    ref_ll_combine(&in.routing, 128, (const uint16_t *)(const void *)got.rows.payload, got.blocks,
                   got.scratch, combined);
    ck_assert_mem_eq(combined, right, sizeof right);
}
END_TEST

Suite *ll_suite(void)
{
    Suite *suite = suite_create("ll");
    TCase *captures = tcase_create("captures");
    tcase_add_loop_test(captures, captured_dispatch_is_reproduced_bit_for_bit, 0,
                        CASE_COUNT * TAG_COUNT);
    tcase_add_loop_test(captures, captured_combine_is_reproduced_bit_for_bit, 0, CASE_COUNT);
    suite_add_tcase(suite, captures);
    TCase *model = tcase_create("model");
    tcase_add_loop_test(model, rows_stand_by_expert_source_token_and_column, 0, 16);
    tcase_add_loop_test(model, combine_adds_columns_in_order_with_one_rounding, 0, 16);
    tcase_add_loop_test(model, layout_range_holds_count_and_first_row, 0, 8);
    tcase_add_test(model, nan_passes_dispatch_untouched_and_leaves_combine_as_7fff);
    suite_add_tcase(suite, model);
    return suite;
}
