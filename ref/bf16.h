/* ref/bf16.h - bfloat16 to fp32 and back, on bit patterns.
 *
 * A bf16 is a uint16_t that holds the upper half of an fp32. Widening is exact and keeps NaN
 * payloads; narrowing rounds to nearest, ties to even, and turns every NaN into 7FFF as CUDA's
 * __float2bfloat16_rn does, so a path that must not change bits (dispatch) never narrows. */
#ifndef REF_BF16_H
#define REF_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ref_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ref_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a where condition is 1, b where it is 0. Written with a mask because gcc turns ?: into a
 * branch when one side holds a floating-point operation, and a loop with it stays scalar. */
static inline uint32_t ref_select(uint32_t condition, uint32_t a, uint32_t b)
{
    const uint32_t mask = 0u - condition;
    return (a & mask) | (b & ~mask);
}

static inline float ref_bf16_to_f32(uint16_t bits)
{
    return ref_f32_from_bits((uint32_t)bits << 16);
}

/* No branch, so that loops over it become vector code. Adding 7FFF plus the lowest kept bit
 * carries into the kept half exactly when the dropped half is above one half, or is one half
 * under an odd value; the carry out of the largest finite value lands on infinity. */
static inline uint16_t ref_bf16_from_f32(float value)
{
    const uint32_t bits = ref_f32_bits(value);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return (uint16_t)(is_nan ? 0x7FFFu : rounded);
}

#endif
