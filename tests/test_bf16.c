/* tests/test_bf16.c - bf16 is the upper half of an fp32, rounded to nearest even.
 *
 * Method: the definition, spelt with distances in double, over every value and every kind of
 * dropped half; then the samples that people get wrong. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include "ref/bf16.h"

static float f32(uint32_t bits)
{
    return ref_f32_from_bits(bits);
}

START_TEST(every_value_survives_the_round_trip)
{
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        const float wide = ref_bf16_to_f32((uint16_t)bits);
        const bool is_nan = (bits & 0x7FFF) > 0x7F80;
        if (ref_f32_bits(wide) != bits << 16 || ref_bf16_from_f32(wide) != (is_nan ? 0x7FFF : bits))
            ck_abort_msg("%04x does not survive", bits);
    }
}
END_TEST

/* Which of two neighbours is nearer, the even one when neither is. Above the largest finite
 * value the neighbour is where infinity's bit pattern would be, 2^128. */
static uint32_t nearest(uint32_t low, double value)
{
    const double below = (double)f32(low << 16);
    const double above = low == 0x7F7F ? 0x1p128 : (double)f32((low + 1) << 16);
    if (value - below < above - value) return low;
    if (value - below > above - value) return low + 1;
    return low % 2 == 0 ? low : low + 1;
}

START_TEST(narrowing_goes_to_the_nearest_and_ties_to_even)
{
    static const uint32_t dropped[] = {0, 1, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xCAFE, 0xFFFF};
    for (uint32_t low = 0; low < 0x7F80; low++)
        for (unsigned i = 0; i < sizeof dropped / sizeof dropped[0]; i++) {
            const uint32_t bits = low << 16 | dropped[i];
            const uint32_t right = nearest(low, (double)f32(bits));
            if (ref_bf16_from_f32(f32(bits)) != right ||
                ref_bf16_from_f32(f32(bits | 0x80000000u)) != (right | 0x8000))
                ck_abort_msg("%08x does not become %04x", bits, right);
        }
}
END_TEST

START_TEST(samples_round_as_documented)
{
    ck_assert_float_eq(ref_bf16_to_f32(ref_bf16_from_f32(257.0f)), 256.0f);
    ck_assert_float_eq(ref_bf16_to_f32(ref_bf16_from_f32(259.0f)), 260.0f);
    ck_assert_uint_eq(ref_bf16_from_f32(-0.0f), 0x8000);
    ck_assert_uint_eq(ref_bf16_from_f32(INFINITY), 0x7F80);
    ck_assert_uint_eq(ref_bf16_from_f32(3.4028235e38f), 0x7F80); /* Rounds past the largest. */
    ck_assert_uint_eq(ref_bf16_from_f32(f32(0x7FC00000)), 0x7FFF);
    ck_assert_uint_eq(ref_bf16_from_f32(f32(0xFFC12345)), 0x7FFF);
    ck_assert_uint_eq(ref_bf16_from_f32(f32(0x7F800001)), 0x7FFF); /* Not infinity. */
}
END_TEST

START_TEST(select_takes_the_first_where_the_condition_holds)
{
    ck_assert_uint_eq(ref_select(1, 0xDEADBEEF, 0x12345678), 0xDEADBEEF);
    ck_assert_uint_eq(ref_select(0, 0xDEADBEEF, 0x12345678), 0x12345678);
}
END_TEST

Suite *bf16_suite(void)
{
    Suite *suite = suite_create("bf16");
    TCase *tests = tcase_create("bf16");
    tcase_add_test(tests, every_value_survives_the_round_trip);
    tcase_add_test(tests, narrowing_goes_to_the_nearest_and_ties_to_even);
    tcase_add_test(tests, samples_round_as_documented);
    tcase_add_test(tests, select_takes_the_first_where_the_condition_holds);
    suite_add_tcase(suite, tests);
    return suite;
}
