/* tests/test_fp8.c - fp32 to e4m3fn in five variants, against a slow definition.
 *
 * Method: the 127 magnitudes are written as sums of powers of two; the right code is the one at
 * the least distance in double, the even one of two, with 480 (which does not exist) as the
 * neighbour of 448. What happens beyond comes from a table. Inputs: every bf16 value, a sweep
 * over fp32, and both sides of every boundary between codes. */
#include <check.h>
#include <math.h>
#include "ref/fp8.h"
#include "tests/support.h"

static double magnitude_of(uint32_t code) /* 00..7F, where 7F stands for the missing 480. */
{
    const uint32_t exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? ldexp((double)mantissa, -9)
                         : ldexp((double)(8 + mantissa), (int)exponent - 10);
}

/* The code 00..7F nearest to a magnitude; 7F when that would be 480 or more. */
static uint32_t slow_code(double magnitude)
{
    uint32_t low = 0, high = 0x7F;
    if (magnitude >= magnitude_of(0x7F)) return 0x7F;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (magnitude_of(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = magnitude - magnitude_of(low), above = magnitude_of(high) - magnitude;
    if (below == above) return low % 2 == 0 ? low : high;
    return below < above ? low : high;
}

/* In the long loops Check's own asserts, which note every call, would take most of the time. */
static void same(const char *variant, uint32_t bits, uint32_t code, uint32_t right)
{
    if (code != right) ck_abort_msg("%s(%08x) is %02x, not %02x", variant, bits, code, right);
}

static void check_all_variants(uint32_t bits)
{
    const float value = ref_f32_from_bits(bits);
    const uint32_t sign = bits >> 24 & 0x80;
    uint32_t clamping = 0x7F, breaking = 0x7F, nan_sign = sign; /* Of 464.01 and more; of NaN. */
    if (!isnan(value)) {
        breaking = slow_code(fabs((double)value)) | sign;
        clamping = (breaking & 0x7F) == 0x7F ? 0x7E | sign : breaking;
        nan_sign = 0;
    }
    same("sat", bits, ref_e4m3_from_f32_sat(value), clamping);
    same("nosat", bits, ref_e4m3_from_f32_nosat(value), breaking);
    same("torch", bits, ref_e4m3_from_f32_torch(value), breaking | nan_sign);
    same("ml_dtypes", bits, ref_e4m3_from_f32_ml_dtypes(value), breaking | nan_sign);
    same("torch_2_12", bits, ref_e4m3_from_f32_torch_2_12(value), clamping | nan_sign);
}

START_TEST(every_bf16_value_converts_by_the_definition)
{
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) check_all_variants(bits << 16);
}
END_TEST

START_TEST(a_sweep_over_fp32_converts_by_the_definition)
{
    const uint64_t stride = test_quick() ? 999983 : 9973;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += stride)
        check_all_variants((uint32_t)bits);
}
END_TEST

START_TEST(both_sides_of_every_boundary_convert_by_the_definition)
{
    for (uint32_t code = 0; code < 0x7F; code++) {
        const double edge = (magnitude_of(code) + magnitude_of(code + 1)) / 2;
        const uint32_t at = ref_f32_bits((float)edge),
                       exact = ref_f32_bits((float)magnitude_of(code));
        for (uint32_t near = 0; near < 5; near++) {
            check_all_variants(at + near - 2);
            check_all_variants((at + near - 2) | 0x80000000u);
            check_all_variants(exact + near - (exact < 2 ? 0 : 2));
        }
    }
}
END_TEST

START_TEST(samples_convert_as_documented)
{
    static const struct {
        uint32_t bits, code;
    } samples[] = {
        {0x00000000, 0x00}, {0x80000000, 0x80}, {0x3A800000, 0x00}, /* 2^-10: tie */
        {0x3A800001, 0x01}, {0x3B000000, 0x01}, {0x3B400000, 0x02}, /* 3 * 2^-10: tie */
        {0xBA800000, 0x80}, {0x41880000, 0x58}, {0x41900000, 0x59}, /* 17: tie, 18 */
        {0x41980000, 0x5A}, {0x43E00000, 0x7E}, {0x43E40000, 0x7E}, /* 19: tie, 448, 456 */
        {0x43E80000, 0x7E},                                         /* 464: tie with 480 */
    };
    for (unsigned i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const float value = ref_f32_from_bits(samples[i].bits);
        ck_assert_uint_eq(ref_e4m3_from_f32_sat(value), samples[i].code);
        ck_assert_uint_eq(ref_e4m3_from_f32_nosat(value), samples[i].code);
        ck_assert_uint_eq(ref_e4m3_from_f32_torch(value), samples[i].code);
    }
    ck_assert_uint_eq(ref_e4m3_from_f32_sat(0.0156249f), 0x08); /* Up to the smallest normal. */
}
END_TEST

/* input, then cuda satfinite, cuda nosat, torch <= 2.11, torch >= 2.12, ml_dtypes */
START_TEST(beyond_464_the_variants_differ_as_documented)
{
    static const uint32_t rows[][6] = {
        {0x43E80001, 0x7E, 0x7F, 0x7F, 0x7E, 0x7F}, /* Just above 464. */
        {0x43F00000, 0x7E, 0x7F, 0x7F, 0x7E, 0x7F}, /* 480 */
        {0x4E6E6B28, 0x7E, 0x7F, 0x7F, 0x7E, 0x7F}, /* 1e9 */
        {0xC3F00000, 0xFE, 0xFF, 0xFF, 0xFE, 0xFF}, /* -480 */
        {0x7F800000, 0x7E, 0x7F, 0x7F, 0x7E, 0x7F}, /* infinity */
        {0xFF800000, 0xFE, 0xFF, 0xFF, 0xFE, 0xFF},
        {0x7FC00000, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F}, /* NaN */
        {0xFFC00000, 0x7F, 0x7F, 0xFF, 0xFF, 0xFF},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const float value = ref_f32_from_bits(rows[i][0]);
        ck_assert_uint_eq(ref_e4m3_from_f32_sat(value), rows[i][1]);
        ck_assert_uint_eq(ref_e4m3_from_f32_nosat(value), rows[i][2]);
        ck_assert_uint_eq(ref_e4m3_from_f32_torch(value), rows[i][3]);
        ck_assert_uint_eq(ref_e4m3_from_f32_torch_2_12(value), rows[i][4]);
        ck_assert_uint_eq(ref_e4m3_from_f32_ml_dtypes(value), rows[i][5]);
    }
}
END_TEST

START_TEST(every_code_widens_to_its_value_and_back)
{
    for (uint32_t code = 0; code <= 0xFF; code++) {
        const float value = ref_e4m3_to_f32((uint8_t)code);
        if ((code & 0x7F) == 0x7F) {
            ck_assert_uint_eq(ref_f32_bits(value), 0x7FC00000u | (code & 0x80) << 24);
            ck_assert_uint_eq(ref_e4m3_any_nan((const uint8_t[]){0, (uint8_t)code, 1}, 3), 1);
            continue;
        }
        const double right = magnitude_of(code & 0x7F);
        ck_assert_double_eq((double)value, code & 0x80 ? -right : right);
        ck_assert_uint_eq(ref_f32_bits(value) >> 31, code >> 7); /* -0 keeps its sign. */
        ck_assert_uint_eq(ref_e4m3_from_f32_sat(value), code);
        ck_assert_uint_eq(ref_e4m3_any_nan((const uint8_t[]){(uint8_t)code}, 1), 0);
    }
}
END_TEST

START_TEST(fnuz_codes_have_another_bias_and_one_nan)
{
    ck_assert_float_eq(ref_e4m3_to_f32(0x78), 256.0f);
    ck_assert_float_eq(ref_e4m3fnuz_to_f32(0x78), 128.0f);
    ck_assert_float_eq(ref_e4m3fnuz_to_f32(0x7F), 240.0f);
    ck_assert_float_eq(ref_e4m3fnuz_to_f32(0xFF), -240.0f);
    ck_assert_float_eq(ref_e4m3fnuz_to_f32(0x81), -0.0009765625f);
    ck_assert(isnan(ref_e4m3fnuz_to_f32(0x80)));
}
END_TEST

Suite *fp8_suite(void)
{
    Suite *suite = suite_create("fp8");
    TCase *tests = tcase_create("fp8");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_bf16_value_converts_by_the_definition);
    tcase_add_test(tests, a_sweep_over_fp32_converts_by_the_definition);
    tcase_add_test(tests, both_sides_of_every_boundary_convert_by_the_definition);
    tcase_add_test(tests, samples_convert_as_documented);
    tcase_add_test(tests, beyond_464_the_variants_differ_as_documented);
    tcase_add_test(tests, every_code_widens_to_its_value_and_back);
    tcase_add_test(tests, fnuz_codes_have_another_bias_and_one_nan);
    suite_add_tcase(suite, tests);
    return suite;
}
