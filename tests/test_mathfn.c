/* tests/test_mathfn.c - exp, log and their kin stay within their stated errors, bit for bit.
 *
 * Method: exact answers first; then the error against double, in units of the last place, over
 * every 257th fp32 input (EPSIM_LONG: all 2^32); and digests of the outputs, the same for every
 * compiler, optimisation level and vector width. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "ref/digest.h"
#include "ref/hot.h"
#include "ref/mathfn.h"
#include "tests/support.h"

enum { BATCH = 4096 };

#define BATCH_OF(function)                                                                         \
    REF_HOT static void function##_batch(const float *restrict x, float *restrict y)               \
    {                                                                                              \
        for (int i = 0; i < BATCH; i++) y[i] = function(x[i]);                                     \
    }
BATCH_OF(ref_exp)
BATCH_OF(ref_exp2)
BATCH_OF(ref_log)
BATCH_OF(ref_log2)
BATCH_OF(ref_sigmoid)
BATCH_OF(ref_silu)
BATCH_OF(ref_softplus)

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static const struct {
    const char *name;
    void (*batch)(const float *restrict x, float *restrict y);
    double (*exact)(double x);
    double ulps_max; /* As ref/mathfn.h states it. */
    float from;      /* Below, the formula itself leaves the range of its parts. */
    uint64_t digest; /* Of the outputs for every 257th input. */
} functions[] = {
    {"exp", ref_exp_batch, exp, 0.979, -INFINITY, UINT64_C(0xF19E6240625D53DF)},
    {"exp2", ref_exp2_batch, exp2, 0.868, -INFINITY, UINT64_C(0x42004CAD3D9A9529)},
    {"log", ref_log_batch, log, 0.912, -INFINITY, UINT64_C(0x455F50F28249AB82)},
    {"log2", ref_log2_batch, log2, 1.477, -INFINITY, UINT64_C(0xB673722B40CC87C6)},
    {"sigmoid", ref_sigmoid_batch, sigmoid, 2.481, -87.0f, UINT64_C(0xA668A4B53AAEF091)},
    {"silu", ref_silu_batch, silu, 2.404, -87.0f, UINT64_C(0x0FB682E9B744209E)},
    {"softplus", ref_softplus_batch, softplus, 1.956, -INFINITY, UINT64_C(0x0CC4B97A82B66F2B)},
};

enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* The distance of fp32 numbers at a value: 2^-149 at the least. */
static double ulp(double value)
{
    int exponent;
    if (fabs(value) < 0x1p-126) return 0x1p-149;
    (void)frexp(value, &exponent);
    return ldexp(1, exponent - 24);
}

/* Infinity counts as 2^128, where the next number would be. */
static double error_ulps(float got, double right)
{
    if (isnan(right)) return ref_math_bits(got) == 0x7FC00000u ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (isinf(got)) got = got > 0 ? FLT_MAX : -FLT_MAX;
    if (fabs(right) > (double)FLT_MAX) right = copysign((double)FLT_MAX, right);
    return fabs((double)got - right) / ulp(right);
}

static bool is_long(void)
{
    return getenv("EPSIM_LONG") != NULL;
}

/* Every stride-th input from `first` on; past the end the last one repeats. */
static void fill(float *x, uint64_t first, uint64_t stride)
{
    for (uint64_t i = 0; i < BATCH; i++) {
        const uint64_t bits = first + i * stride;
        x[i] = ref_math_float(bits > UINT32_MAX ? UINT32_MAX : (uint32_t)bits);
    }
}

START_TEST(errors_stay_below_what_the_header_states)
{
    static float x[BATCH], y[BATCH];
    const uint64_t stride = is_long() ? 1 : test_quick() ? 8191 : 257;
    double worst = 0;
    float at = 0;

    for (uint64_t first = 0; first <= UINT32_MAX; first += stride * BATCH) {
        fill(x, first, stride);
        functions[_i].batch(x, y);
        for (int i = 0; i < BATCH; i++) {
            if (x[i] < functions[_i].from) continue;
            const double error = error_ulps(y[i], functions[_i].exact((double)x[i]));
            if (error <= worst) continue;
            worst = error;
            at = x[i];
        }
    }
    if (worst > functions[_i].ulps_max)
        ck_abort_msg("%s(%a): %.4f ulp", functions[_i].name, (double)at, worst);
    if (is_long()) printf("%s: %.4f ulp at %a\n", functions[_i].name, worst, (double)at);
}
END_TEST

START_TEST(outputs_are_the_pinned_bits)
{
    static float x[BATCH], y[BATCH];
    uint64_t digest = 0;
    for (uint64_t first = 0; first <= UINT32_MAX; first += 257 * BATCH) {
        fill(x, first, 257);
        functions[_i].batch(x, y);
        digest = ref_digest_mix(digest, ref_digest(y, sizeof y));
    }
    if (digest != functions[_i].digest)
        ck_abort_msg("%s: digest 0x%016llX", functions[_i].name, (unsigned long long)digest);
}
END_TEST

START_TEST(exact_answers_are_exact)
{
    ck_assert_float_eq(ref_exp(0.0f), 1.0f);
    ck_assert_float_eq(ref_exp(-0.0f), 1.0f);
    ck_assert_float_eq(ref_exp(-INFINITY), 0.0f);
    ck_assert(isinf(ref_exp(INFINITY)) && isinf(ref_exp(88.8f)));
    ck_assert_float_eq(ref_exp(88.72283f), (float)exp((double)88.72283f));
    ck_assert(ref_exp(-103.9f) > 0 && ref_exp(-104.1f) == 0);
    ck_assert_float_eq(ref_log(1.0f), 0.0f);
    ck_assert(ref_log(0.0f) == -INFINITY && ref_log(-0.0f) == -INFINITY);
    ck_assert(ref_log2(0.0f) == -INFINITY && ref_log2(INFINITY) == INFINITY);
    ck_assert_float_eq(ref_sigmoid(0.0f), 0.5f);
    ck_assert_float_eq(ref_sigmoid(INFINITY), 1.0f);
    ck_assert_float_eq(ref_sigmoid(-INFINITY), 0.0f);
    ck_assert_float_eq(ref_silu(0.0f), 0.0f);
    ck_assert_float_eq(ref_softplus(100.0f), 100.0f);
    for (int e = -149; e <= 127; e++) {
        const float power = (float)ldexp(1, e);
        ck_assert_float_eq(ref_exp2((float)e), power);
        ck_assert_float_eq(ref_log2(power), (float)e);
    }
    ck_assert(ref_exp2(-150.0f) == 0 && ref_exp2(128.0f) == INFINITY);
}
END_TEST

START_TEST(nan_is_always_the_same_bits)
{
    static const uint32_t nans[] = {0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF};
    for (int i = 0; i < 5; i++) {
        const float x = ref_math_float(nans[i]);
        ck_assert_uint_eq(ref_math_bits(ref_exp(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_exp2(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_log(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_log2(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_sigmoid(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_silu(x)), 0x7FC00000);
        ck_assert_uint_eq(ref_math_bits(ref_softplus(x)), 0x7FC00000);
    }
    ck_assert_uint_eq(ref_math_bits(ref_log(-1.0f)), 0x7FC00000);
    ck_assert_uint_eq(ref_math_bits(ref_log2(-INFINITY)), 0x7FC00000);
    ck_assert_uint_eq(ref_math_bits(ref_silu(-INFINITY)), 0x7FC00000); /* -inf / inf */
}
END_TEST

/* LogFMT decides by the sign of log2, and the router by the order of exp. */
START_TEST(neighbours_keep_their_order_where_it_decides)
{
    for (uint32_t down = 1; down < 100000; down++)
        if (ref_log2(ref_math_float(0x3F800000 - down)) >= 0) ck_abort_msg("below 1: -%u", down);
    for (uint32_t up = 1; up < 100000; up++)
        if (ref_log2(ref_math_float(0x3F800000 + up)) <= 0) ck_abort_msg("above 1: +%u", up);
}
END_TEST

Suite *mathfn_suite(void)
{
    Suite *suite = suite_create("mathfn");
    TCase *tests = tcase_create("mathfn");
    tcase_set_timeout(tests, is_long() ? 3600 : 120);
    tcase_add_loop_test(tests, errors_stay_below_what_the_header_states, 0, FUNCTIONS);
    tcase_add_loop_test(tests, outputs_are_the_pinned_bits, 0, FUNCTIONS);
    tcase_add_test(tests, exact_answers_are_exact);
    tcase_add_test(tests, nan_is_always_the_same_bits);
    tcase_add_test(tests, neighbours_keep_their_order_where_it_decides);
    suite_add_tcase(suite, tests);
    return suite;
}
