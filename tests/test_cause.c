/* tests/test_cause.c - what the other side did is named when it did one of the known things.
 *
 * Rows are built from the formulas of spec'd cases (D8, D9, D10, D11, D12, D16), not by the code
 * under test. */
#include <check.h>
#include <math.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/fp8.h"
#include "ref/quantise.h"
#include "sim/cause.h"
#include "tests/support.h"

enum { HIDDEN = 256 };

static uint16_t x[HIDDEN];
static uint8_t codes[HIDDEN];
static float scales[HIDDEN / 128];
static char cause[SIM_CAUSE_MAX];

/* Two groups: D8's (1, 2^-16, zeros), and 128 values between 1 and 1.99 with an odd maximum. */
static void setup(void)
{
    memset(x, 0, sizeof(x));
    x[0] = 0x3F80;
    x[1] = 0x3780;
    for (uint32_t c = 128; c < HIDDEN; c++) x[c] = (uint16_t)(0x3F80 + (c * 37) % 128);
    cause[0] = '\0';
}

static float amax_of(uint32_t group)
{
    float amax = 0.0f;

    for (uint32_t c = 0; c < 128; c++)
        amax = fmaxf(amax, fabsf(ref_bf16_to_f32(x[group * 128 + c])));
    return amax;
}

static float value(uint32_t channel)
{
    return ref_bf16_to_f32(x[channel]);
}

static bool explained(enum ref_recipe recipe)
{
    return sim_cause_quantise(recipe, x, HIDDEN, codes, scales, cause);
}

START_TEST(a_reciprocal_of_the_stored_scale)
{
    ref_quantise(REF_RECIPE_LL, x, 1, HIDDEN, codes, scales);
    ck_assert_uint_eq(codes[1], 0x04); /* D8 */
    for (uint32_t c = 0; c < HIDDEN; c++)
        codes[c] = ref_e4m3_from_f32_sat(value(c) * (1.0f / scales[c / 128]));
    ck_assert_uint_eq(codes[1], 0x03);
    ck_assert(explained(REF_RECIPE_LL));
    ck_assert_str_eq(cause, "codes match x * (1 / scale): multiplied by the reciprocal of the "
                            "stored scale");
}
END_TEST

START_TEST(a_division_by_448)
{
    x[0] = 0x3F82; /* D9: 3B14924A by multiplication, 3B149249 by division. */
    ref_quantise(REF_RECIPE_LL, x, 1, HIDDEN, codes, scales);
    ck_assert_uint_eq(ref_f32_bits(scales[0]), 0x3B14924A);
    for (uint32_t g = 0; g < 2; g++) scales[g] = amax_of(g) / 448.0f;
    ck_assert_uint_eq(ref_f32_bits(scales[0]), 0x3B149249);
    ck_assert(explained(REF_RECIPE_LL));
    ck_assert_str_eq(cause,
                     "scales match amax / 448: divided instead of multiplied by fp32(1/448)");
}
END_TEST

START_TEST(a_floor_of_another_library)
{
    for (uint32_t c = 0; c < HIDDEN; c++) x[c] = 0x3800; /* D7: 7E, 33924925 with 1e-10. */
    for (uint32_t c = 0; c < HIDDEN; c++) codes[c] = 0x7E;
    for (uint32_t g = 0; g < 2; g++) scales[g] = ref_f32_from_bits(0x33924925);
    ck_assert(explained(REF_RECIPE_LL));
    TEST_SAYS(cause, "floor of 1e-10");
}
END_TEST

START_TEST(a_scale_whose_mantissa_was_dropped)
{
    for (uint32_t c = 0; c < HIDDEN; c++) x[c] = 0x3F80; /* D10: 1.0 is byte 119, code 78. */
    for (uint32_t c = 0; c < HIDDEN; c++) codes[c] = 0x7E;
    for (uint32_t g = 0; g < 2; g++) scales[g] = ref_f32_from_bits(118u << 23);
    ck_assert(explained(REF_RECIPE_LL_ROUND));
    TEST_SAYS(cause, "mantissa was dropped");
}
END_TEST

START_TEST(a_cast_before_the_scale_was_rounded)
{
    for (uint32_t c = 0; c < HIDDEN; c++) x[c] = 0x3F80; /* D10: 7E with byte 119. */
    for (uint32_t c = 0; c < HIDDEN; c++) codes[c] = 0x7E;
    for (uint32_t g = 0; g < 2; g++) scales[g] = ref_f32_from_bits(119u << 23);
    ck_assert(explained(REF_RECIPE_LL_UE8M0));
    ck_assert_str_eq(cause, "codes match x * (448 / amax): cast before the scale was rounded up");
}
END_TEST

START_TEST(a_power_of_two_where_none_was_asked)
{
    ref_quantise(REF_RECIPE_LL_ROUND, x, 1, HIDDEN, codes, scales);
    ck_assert(explained(REF_RECIPE_LL));
    TEST_SAYS(cause, "power of two");
}
END_TEST

START_TEST(a_whole_recipe_by_its_name)
{
    x[5] = 0x7FC0; /* NaN: torch spreads it over the group, the kernel does not. */
    ref_quantise(REF_RECIPE_PY_CPU, x, 1, HIDDEN, codes, scales);
    ck_assert(explained(REF_RECIPE_LL));
    TEST_SAYS(cause, "recipe ");
}
END_TEST

START_TEST(garbage_has_no_formula)
{
    ref_quantise(REF_RECIPE_LL, x, 1, HIDDEN, codes, scales);
    for (uint32_t c = 0; c < HIDDEN; c++) codes[c] ^= 0x15;
    ck_assert(!explained(REF_RECIPE_LL));
}
END_TEST

START_TEST(what_is_right_has_no_cause)
{
    ref_quantise(REF_RECIPE_LL, x, 1, HIDDEN, codes, scales);
    ck_assert(!explained(REF_RECIPE_LL));
}
END_TEST

static uint16_t rows[3][HIDDEN], sum[HIDDEN], bias[HIDDEN];

/* A sum of one or more constant rows; channels differ a little so that no accident fits. */
static struct sim_cause_terms terms_of(bool ll, uint32_t count, const uint16_t *values)
{
    struct sim_cause_terms terms;

    memset(&terms, 0, sizeof(terms));
    terms.hidden = HIDDEN;
    terms.ll = ll;
    terms.ranks_per_node = 8;
    terms.count = count;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < HIDDEN; c++) rows[i][c] = values[i];
        terms.row[i] = rows[i];
        terms.weight[i] = 1.0f;
        terms.rank[i] = i;
        terms.expert[i] = i;
        terms.column[i] = i;
    }
    return terms;
}

static void sum_is(uint16_t value_bits)
{
    for (uint32_t c = 0; c < HIDDEN; c++) sum[c] = value_bits;
}

START_TEST(separate_multiply_and_add) /* D16: 3FDF fused, 3FDE separate. */
{
    static const uint16_t values[] = {0x3F89, 0x402E};
    struct sim_cause_terms terms = terms_of(true, 2, values);

    terms.weight[0] = ref_f32_from_bits(0x3DCCCCCD);
    terms.weight[1] = ref_f32_from_bits(0x3F19999A);
    sum_is(0x3FDE);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches separate multiply and add: not fused");
}
END_TEST

START_TEST(another_order_of_the_columns) /* D11: 2^24, -2^24, 1 give 0000 and 3F80. */
{
    static const uint16_t values[] = {0x4B80, 0xCB80, 0x3F80};
    struct sim_cause_terms terms = terms_of(true, 3, values);

    terms.expert[1] = 2; /* Columns [0, 2, 1] sum to 3F80; by expert 0000. */
    terms.expert[2] = 1;
    sum_is(0x0000);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches fused adds by ascending expert, not by column");
}
END_TEST

START_TEST(a_part_reduced_at_the_sender) /* D12 a: 3F81; with local pre-reduction 3F80. */
{
    static const uint16_t values[] = {0x3F80, 0x3B00, 0x3B80};
    struct sim_cause_terms terms = terms_of(true, 3, values);

    terms.rank[1] = 0; /* Experts 0 and 1 on rank 0. */
    terms.rank[2] = 1;
    sum_is(0x3F80);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    TEST_SAYS(cause, "each rank's part rounded to bf16");
}
END_TEST

START_TEST(weights_applied_at_the_expert) /* D12 c: 3F66; weights already in the rows 3F67. */
{
    static const uint16_t values[] = {0x3F80, 0x3F80};
    struct sim_cause_terms terms = terms_of(true, 2, values);

    terms.weight[0] = 0.3f;
    terms.weight[1] = 0.6f;
    sum_is(0x3F67);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    TEST_SAYS(cause, "bf16");
}
END_TEST

START_TEST(one_rounding_where_nodes_round_apart) /* D12 b: 3F80 on two nodes, 3F81 on one. */
{
    static const uint16_t values[] = {0x3F80, 0x3B00, 0x3B80};
    struct sim_cause_terms terms = terms_of(false, 3, values);

    terms.rank[2] = 8;
    terms.several_nodes = true;
    sum_is(0x3F81);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause,
                     "sum matches one sum over all ranks, rounded once: no rounding per node");
}
END_TEST

START_TEST(a_column_left_out_or_added_twice)
{
    static const uint16_t values[] = {0x3F80, 0x4000, 0x4080}; /* 1, 2, 4 */
    struct sim_cause_terms terms = terms_of(true, 3, values);

    sum_is(0x40A0); /* 5 */
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches when column 1 (expert 1, rank 1) is left out");
    sum_is(0x4130); /* 11 */
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches when column 2 (expert 2, rank 2) is added twice");
}
END_TEST

START_TEST(biases_in_another_place)
{
    static const uint16_t values[] = {0x3F80}; /* 1 */
    struct sim_cause_terms terms = terms_of(false, 1, values);

    for (uint32_t c = 0; c < HIDDEN; c++) bias[c] = 0x4000; /* 2 */
    terms.bias[0] = bias;
    terms.bias[1] = bias;
    sum_is(0x3F80);
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches a sum without the biases");
    sum_is(0x4040); /* 3 */
    ck_assert(sim_cause_combine(&terms, sum, cause));
    ck_assert_str_eq(cause, "sum matches a sum without the second bias");
}
END_TEST

START_TEST(no_sum_fits_garbage)
{
    static const uint16_t values[] = {0x3F80, 0x4000};
    const struct sim_cause_terms terms = terms_of(true, 2, values);

    sum_is(0x1234);
    ck_assert(!sim_cause_combine(&terms, sum, cause));
}
END_TEST

START_TEST(bytes_speak_for_themselves)
{
    uint8_t right[8] = {1, 2, 3, 4, 5, 6, 7, 8}, wrong[8];

    memset(wrong, 0xFF, sizeof(wrong));
    ck_assert(sim_cause_bytes(right, wrong, 8, 2, cause));
    TEST_SAYS(cause, "never written");
    memset(wrong, 0, sizeof(wrong));
    ck_assert(sim_cause_bytes(right, wrong, 8, 2, cause));
    TEST_SAYS(cause, "all zeros");
    for (uint32_t i = 0; i < 8; i++) wrong[i] = right[i ^ 1];
    ck_assert(sim_cause_bytes(right, wrong, 8, 2, cause));
    TEST_SAYS(cause, "other order");
    memcpy(wrong, right, 8);
    wrong[5] ^= 0x20;
    ck_assert(sim_cause_bytes(right, wrong, 8, 2, cause));
    TEST_SAYS(cause, "byte 5, by exclusive or 20: one bit is flipped");
    wrong[6] ^= 1;
    ck_assert(!sim_cause_bytes(right, wrong, 8, 2, cause));
}
END_TEST

Suite *cause_suite(void);
Suite *cause_suite(void)
{
    Suite *suite = suite_create("cause");
    TCase *tcase = tcase_create("cause");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_reciprocal_of_the_stored_scale);
    tcase_add_test(tcase, a_division_by_448);
    tcase_add_test(tcase, a_floor_of_another_library);
    tcase_add_test(tcase, a_scale_whose_mantissa_was_dropped);
    tcase_add_test(tcase, a_cast_before_the_scale_was_rounded);
    tcase_add_test(tcase, a_power_of_two_where_none_was_asked);
    tcase_add_test(tcase, a_whole_recipe_by_its_name);
    tcase_add_test(tcase, garbage_has_no_formula);
    tcase_add_test(tcase, what_is_right_has_no_cause);
    tcase_add_test(tcase, separate_multiply_and_add);
    tcase_add_test(tcase, another_order_of_the_columns);
    tcase_add_test(tcase, a_part_reduced_at_the_sender);
    tcase_add_test(tcase, weights_applied_at_the_expert);
    tcase_add_test(tcase, one_rounding_where_nodes_round_apart);
    tcase_add_test(tcase, a_column_left_out_or_added_twice);
    tcase_add_test(tcase, biases_in_another_place);
    tcase_add_test(tcase, no_sum_fits_garbage);
    tcase_add_test(tcase, bytes_speak_for_themselves);
    suite_add_tcase(suite, tcase);
    return suite;
}
