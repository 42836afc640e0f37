/* ref/mathfn.h - exp, log and what follows from them, with the same bits in C and in CUDA.
 *
 * Every libm and CUDA's libdevice round the last bit of exp and log differently, and one bit in
 * a softmax moves an expert id or an FP8 code. So everything that is compared bit for bit uses
 * these: range reduction and a polynomial in explicit steps, each rounded once, with a fused
 * multiply-add only where ref_math_fma() stands. Header only, C, C++ and nvcc; needs nothing
 * else of ref/. Subnormals are kept, so nvcc must not be given -ftz=true or -prec-div=false.
 *
 * Largest error over all 2^32 inputs, in units of the last place of the exact result, measured
 * against double (tests/test_mathfn.c):
 *
 *   ref_exp 0.979   ref_exp2 0.868   ref_log 0.912   ref_log2 1.477   ref_softplus 1.956
 *   ref_sigmoid 2.481 and ref_silu 2.404 from -87 up; below, 1 + exp(-x) leaves the range
 *
 * On an H200 (CUDA 13.0, --fmad=false) all seven gave the same bits as here for every input.
 *
 * A NaN result is always 7FC00000: hardware disagrees on the sign and payload of NaN. */
#ifndef REF_MATHFN_H
#define REF_MATHFN_H

#include <stdint.h>

#if defined(__CUDA_ARCH__)
#define REF_MATH static __host__ __device__ __forceinline__
#define ref_math_fma(a, b, c) __fmaf_rn((a), (b), (c))
#define ref_math_mul(a, b) __fmul_rn((a), (b))
#define ref_math_add(a, b) __fadd_rn((a), (b))
#define ref_math_div(a, b) __fdiv_rn((a), (b))
#else
#include <math.h>
#include <string.h>
#if defined(__CUDACC__)
#define REF_MATH static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
/* Forced, so that vector clones of a caller (ref/hot.h) get vector code and the instruction. */
#define REF_MATH static inline __attribute__((always_inline))
#else
#define REF_MATH static inline
#endif
#define ref_math_fma(a, b, c) fmaf((a), (b), (c))
#define ref_math_mul(a, b) ((a) * (b))
#define ref_math_add(a, b) ((a) + (b))
#define ref_math_div(a, b) ((a) / (b))
#endif

REF_MATH uint32_t ref_math_bits(float value)
{
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

REF_MATH float ref_math_float(uint32_t bits)
{
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

/* chosen where condition is 1, other where 0, on bits: stays branch free in every compiler. */
REF_MATH float ref_math_select(uint32_t condition, float chosen, float other)
{
    const uint32_t mask = 0u - condition;
    return ref_math_float((ref_math_bits(chosen) & mask) | (ref_math_bits(other) & ~mask));
}

REF_MATH uint32_t ref_math_is_nan(float value)
{
    return (ref_math_bits(value) & 0x7FFFFFFFu) > 0x7F800000u;
}

/* Nearest integer, ties to even, for |value| < 2^22: 1.5 * 2^23 has an ulp of 1. The low bits
 * of the shifted number are the integer itself. */
#define REF_MATH_SHIFT 12582912.0f

/* p * 2^n for n in -252..254, p near 1: in two steps, since 2^n alone can leave the range; only
 * a subnormal result is rounded, and once. */
REF_MATH float ref_math_scale(float p, int32_t n)
{
    const int32_t half = (int32_t)((uint32_t)(n + 512) >> 1) - 256; /* floor(n / 2) */
    const float first = ref_math_float((uint32_t)(half + 127) << 23);
    const float second = ref_math_float((uint32_t)(n - half + 127) << 23);
    return ref_math_mul(ref_math_mul(p, first), second);
}

/* e^x. Above 88.72283 infinity, below -103.97208 zero. */
REF_MATH float ref_exp(float x)
{
    /* Outside, the answer no longer changes. NaN becomes 89 here and is put right below. */
    const float high = x < 89.0f ? x : 89.0f;
    const float inside = high < -104.0f ? -104.0f : high;
    const float shifted = ref_math_fma(inside, 1.44269502f, REF_MATH_SHIFT); /* 1 / ln 2 */
    const float n = ref_math_add(shifted, -REF_MATH_SHIFT);
    /* ln 2 in two parts; the first ends in 9 zero bits, so n times it is exact. */
    const float most = ref_math_fma(n, -0.693145752f, inside);
    const float r = ref_math_fma(n, -1.42860677e-6f, most);
    float q = 0.000199476461f;
    q = ref_math_fma(q, r, 0.00139350863f);
    q = ref_math_fma(q, r, 0.00833320431f);
    q = ref_math_fma(q, r, 0.041666463f);
    q = ref_math_fma(q, r, 0.166666672f);
    q = ref_math_fma(q, r, 0.5f);
    const float tail = ref_math_fma(ref_math_mul(r, r), q, r);
    const int32_t power = (int32_t)ref_math_bits(shifted) - 0x4B400000;
    const float result = ref_math_scale(ref_math_add(1.0f, tail), power);
    return ref_math_select(ref_math_is_nan(x), ref_math_float(0x7FC00000u), result);
}

/* 2^x, exact where x is an integer. 128 and above infinity, -150 and below zero. */
REF_MATH float ref_exp2(float x)
{
    const float high = x < 129.0f ? x : 129.0f;
    const float inside = high < -151.0f ? -151.0f : high;
    const float shifted = ref_math_add(inside, REF_MATH_SHIFT);
    const float r = ref_math_add(inside, -ref_math_add(shifted, -REF_MATH_SHIFT));
    float q = 1.46731254e-05f;
    q = ref_math_fma(q, r, 0.000154518217f);
    q = ref_math_fma(q, r, 0.00133366615f);
    q = ref_math_fma(q, r, 0.00961808767f);
    q = ref_math_fma(q, r, 0.0555040613f);
    q = ref_math_fma(q, r, 0.240226507f);
    q = ref_math_fma(q, r, 0.693147182f);
    const int32_t power = (int32_t)ref_math_bits(shifted) - 0x4B400000;
    const float result = ref_math_scale(ref_math_fma(q, r, 1.0f), power);
    return ref_math_select(ref_math_is_nan(x), ref_math_float(0x7FC00000u), result);
}

/* x = m * 2^power with m in [sqrt(1/2), sqrt(2)), for positive finite x, subnormals too. */
REF_MATH float ref_math_split(float x, float *power)
{
    const uint32_t tiny = x < 1.17549435e-38f;
    const float normal = ref_math_select(tiny, ref_math_mul(x, 8388608.0f), x); /* 2^23 */
    const uint32_t bits = ref_math_bits(normal);
    /* Whole powers of two above sqrt(1/2), 3F3504F3; 256 more keep the shift unsigned. */
    const uint32_t steps = ((bits + 0x80000000u - 0x3F3504F3u) >> 23) - 256u;
    *power = ref_math_add((float)(int32_t)steps, ref_math_select(tiny, -23.0f, 0.0f));
    return ref_math_float(bits - (steps << 23));
}

/* log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]. */
REF_MATH float ref_math_log1p_core(float f)
{
    float q = 0.0675049648f;
    q = ref_math_fma(q, f, -0.116712913f);
    q = ref_math_fma(q, f, 0.118836649f);
    q = ref_math_fma(q, f, -0.124060646f);
    q = ref_math_fma(q, f, 0.142203227f);
    q = ref_math_fma(q, f, -0.166679949f);
    q = ref_math_fma(q, f, 0.20002073f);
    q = ref_math_fma(q, f, -0.250000089f);
    q = ref_math_fma(q, f, 0.333333135f);
    q = ref_math_fma(q, f, -0.5f);
    return ref_math_fma(ref_math_mul(f, f), q, f);
}

/* What log and log2 share outside the positive finite numbers: -infinity at +-0, infinity at
 * infinity, NaN below 0 and for NaN. */
REF_MATH float ref_math_log_edges(float x, float result)
{
    const uint32_t bits = ref_math_bits(x);
    const float zero = ref_math_select((bits & 0x7FFFFFFFu) == 0u, ref_math_float(0xFF800000u),
                                       ref_math_float(0x7FC00000u));
    const float edge = ref_math_select(bits == 0x7F800000u, x, zero);
    return ref_math_select(bits - 1u < 0x7F7FFFFFu, result, edge);
}

/* Natural logarithm; exactly 0 at 1. */
REF_MATH float ref_log(float x)
{
    float power;
    const float m = ref_math_split(x, &power);
    const float y = ref_math_log1p_core(ref_math_add(m, -1.0f));
    return ref_math_log_edges(x, ref_math_fma(power, 0.693147182f, y));
}

/* Logarithm to base 2; exact at powers of two, negative exactly when x is below 1. */
REF_MATH float ref_log2(float x)
{
    float power;
    const float m = ref_math_split(x, &power);
    const float y = ref_math_log1p_core(ref_math_add(m, -1.0f));
    const float low = ref_math_mul(y, 1.92596303e-8f); /* log2 e = 1.44269502 + this */
    const float fraction = ref_math_fma(y, 1.44269502f, low);
    return ref_math_log_edges(x, ref_math_add(power, fraction));
}

/* 1 / (1 + e^-x). */
REF_MATH float ref_sigmoid(float x)
{
    const float y = ref_math_div(1.0f, ref_math_add(1.0f, ref_exp(-x)));
    return ref_math_select(ref_math_is_nan(x), ref_math_float(0x7FC00000u), y);
}

/* x / (1 + e^-x); NaN at -infinity, as the formula has it. */
REF_MATH float ref_silu(float x)
{
    const float y = ref_math_div(x, ref_math_add(1.0f, ref_exp(-x)));
    return ref_math_select(ref_math_is_nan(y), ref_math_float(0x7FC00000u), y);
}

/* log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), so that it does not overflow; what the sum 1 + t
 * loses of a small t is added back to first order, so large negative x keep their digits. */
REF_MATH float ref_softplus(float x)
{
    const float size = ref_math_float(ref_math_bits(x) & 0x7FFFFFFFu);
    const float t = ref_exp(-size);
    const float sum = ref_math_add(1.0f, t);
    const float lost = ref_math_add(t, -ref_math_add(sum, -1.0f));
    const float tail = ref_math_add(ref_log(sum), ref_math_div(lost, sum));
    const float y = ref_math_add(x > 0.0f ? x : 0.0f, tail);
    return ref_math_select(ref_math_is_nan(x), ref_math_float(0x7FC00000u), y);
}

#endif
