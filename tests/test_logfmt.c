/* tests/test_logfmt.c - which chunks are encoded, what falls back bit for bit, and how far an
 * encoded value may be off. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/digest.h"
#include "ref/logfmt.h"
#include "ref/routing.h"

enum { GROUP = REF_GROUP_CHANNELS, HIDDEN = 1024, GROUPS = HIDDEN / GROUP };

/* Values of both signs with magnitudes in (2^-8, 1). */
static void fill_small(uint16_t *y)
{
    for (uint64_t i = 0; i < HIDDEN; i++) {
        const uint64_t z = ref_digest_scramble(i + 5);
        y[i] = (uint16_t)(0x3B81 + z % (0x3F80 - 0x3B81) + (z >> 40 & 1) * 0x8000);
    }
}

static bool encodes(const uint16_t *y)
{
    uint32_t ranges[GROUPS];
    for (uint32_t g = 0; g < GROUPS; g++) ranges[g] = ref_logfmt_group_range(y + g * GROUP);
    return ref_logfmt_chunk_encodes(ranges, GROUPS);
}

START_TEST(chunks_are_1024_or_512_channels)
{
    ck_assert_uint_eq(ref_logfmt_chunk_channels(7168), 1024);
    ck_assert_uint_eq(ref_logfmt_chunk_channels(2048), 1024);
    ck_assert_uint_eq(ref_logfmt_chunk_channels(2560), 512);
    ck_assert_uint_eq(ref_logfmt_chunk_channels(512), 512);
}
END_TEST

START_TEST(one_group_decides_for_its_chunk)
{
    uint16_t y[HIDDEN];
    fill_small(y);
    ck_assert(encodes(y));
    y[5 * GROUP + 9] = 0x3F7F; /* The largest bf16 below 1. */
    ck_assert(encodes(y));
    y[5 * GROUP + 9] = 0x3F80; /* 1 */
    ck_assert(!encodes(y));
    y[5 * GROUP + 9] = 0xBF80;
    ck_assert(!encodes(y));
    y[5 * GROUP + 9] = 0x7F80;
    ck_assert(!encodes(y));
    fill_small(y);
    for (int i = 0; i < GROUP; i++) y[3 * GROUP + i] = i % 2 ? 0x3F00 : 0xBF00; /* Equal sizes. */
    ck_assert(!encodes(y));
    y[3 * GROUP] = 0; /* Now the smallest is 0. */
    ck_assert(encodes(y));
    for (int i = 0; i < GROUP; i++) y[3 * GROUP + i] = 0; /* A zero group falls back. */
    ck_assert(!encodes(y));
}
END_TEST

START_TEST(nan_does_not_take_part_in_the_decision)
{
    uint16_t y[HIDDEN];
    fill_small(y);
    y[7] = 0x7FC0;
    ck_assert(encodes(y));
    for (int i = 0; i < GROUP; i++) y[i] = 0x7FC0;
    ck_assert(!encodes(y));
}
END_TEST

START_TEST(fallback_is_bit_for_bit)
{
    uint16_t y[HIDDEN];
    uint32_t ranges[GROUPS];
    uint8_t data[2 * HIDDEN];
    float back[HIDDEN];
    for (uint32_t i = 0; i < HIDDEN; i++) y[i] = (uint16_t)(i * 64 + 3); /* NaN among them. */
    ck_assert_uint_eq(ref_logfmt_encode(y, HIDDEN, ranges, data), 2 * HIDDEN);
    ck_assert_mem_eq(data, y, sizeof y);
    ref_logfmt_decode(ranges, data, HIDDEN, back);
    for (uint32_t i = 0; i < HIDDEN; i++)
        ck_assert_uint_eq(ref_f32_bits(back[i]), (uint32_t)y[i] << 16);
}
END_TEST

START_TEST(encoded_values_are_within_half_a_step)
{
    uint16_t y[HIDDEN];
    uint32_t ranges[GROUPS];
    uint8_t data[2 * HIDDEN];
    float back[HIDDEN];
    fill_small(y);
    ck_assert_uint_eq(ref_logfmt_encode(y, HIDDEN, ranges, data), HIDDEN * 10 / 8);
    ref_logfmt_decode(ranges, data, HIDDEN, back);
    for (uint32_t i = 0; i < HIDDEN; i++) {
        const double right = (double)ref_bf16_to_f32(y[i]);
        /* 8 binades in 510 steps: a ratio of 1.0109, so at most 0.55 % off. */
        ck_assert_double_le(fabs((double)back[i] - right), 0.0055 * fabs(right));
        ck_assert_int_eq(signbit(back[i]) != 0, y[i] >> 15);
    }
    for (uint32_t g = 0; g < GROUPS; g++) { /* The ends of the range come back nearly exact. */
        ck_assert_uint_lt(ranges[g] & 0xFFFF, 0x3F80);
        ck_assert_uint_gt(ranges[g] >> 16, 0x3B80);
    }
}
END_TEST

START_TEST(zeros_and_what_the_clip_hides_become_zero)
{
    uint16_t y[HIDDEN];
    uint32_t ranges[GROUPS];
    uint8_t data[2 * HIDDEN];
    float back[HIDDEN];
    fill_small(y);
    y[0] = 0x3F00; /* 2^-1 */
    y[1] = 0x8000;
    y[2] = 0x0001; /* 2^-133, more than 32 binades below. */
    y[3] = 0x7FC0; /* NaN: 0 as well, like the kernel's maximum with 0. */
    ck_assert_uint_eq(ref_logfmt_encode(y, HIDDEN, ranges, data), HIDDEN * 10 / 8);
    ref_logfmt_decode(ranges, data, HIDDEN, back);
    ck_assert_uint_eq(ref_f32_bits(back[1]), 0x80000000);
    ck_assert_uint_eq(ref_f32_bits(back[2]), 0);
    ck_assert_uint_eq(ref_f32_bits(back[3]), 0);
    ck_assert_float_eq_tol(back[0], 0.5f, 0.012f); /* 32 binades in 510 steps: 4.4 %. */
}
END_TEST

/* Codes by hand: a group of 2^-1 and 2^-9 has La -1, Li -9; the ends get codes 511 and 1. */
START_TEST(sixteen_values_make_twenty_bytes)
{
    uint16_t y[HIDDEN];
    uint32_t ranges[GROUPS];
    uint8_t data[2 * HIDDEN];
    for (uint32_t i = 0; i < HIDDEN; i++) y[i] = i % 2 == 0 ? 0x3F00 : 0xBB00;
    ref_logfmt_encode(y, HIDDEN, ranges, data);
    ck_assert_uint_eq(ranges[0], 0x3B003F00);
    for (int i = 0; i < 8; i++) { /* Two codes are 18 bits: 511 | 1 << 9. */
        const unsigned bit = 18 * (unsigned)i;
        uint32_t word;
        memcpy(&word, data + bit / 8, sizeof word);
        ck_assert_uint_eq(word >> bit % 8 & 0x3FFFF, 511 | 1 << 9);
    }
    ck_assert_uint_eq(data[18], 0xAA);
    ck_assert_uint_eq(data[19], 0xAA);
}
END_TEST

START_TEST(chunks_decide_apart)
{
    uint16_t y[3 * 512];
    uint32_t ranges[3 * 512 / GROUP];
    uint8_t data[2 * 3 * 512];
    float back[3 * 512];
    uint16_t small[HIDDEN];
    fill_small(small);
    memcpy(y, small, 512 * sizeof *y);
    for (int i = 512; i < 1024; i++) y[i] = 0x4000;
    memcpy(y + 1024, small, 512 * sizeof *y);
    ck_assert_uint_eq(ref_logfmt_encode(y, 3 * 512, ranges, data), 640 + 1024 + 640);
    ref_logfmt_decode(ranges, data, 3 * 512, back);
    ck_assert_float_eq(back[512], 2.0f);
    ck_assert_float_eq(back[1023], 2.0f);
    for (int i = 0; i < 512; i++) ck_assert_float_eq(back[i], back[1024 + i]);
}
END_TEST

Suite *logfmt_suite(void)
{
    Suite *suite = suite_create("logfmt");
    TCase *tests = tcase_create("logfmt");
    tcase_add_test(tests, chunks_are_1024_or_512_channels);
    tcase_add_test(tests, one_group_decides_for_its_chunk);
    tcase_add_test(tests, nan_does_not_take_part_in_the_decision);
    tcase_add_test(tests, fallback_is_bit_for_bit);
    tcase_add_test(tests, encoded_values_are_within_half_a_step);
    tcase_add_test(tests, zeros_and_what_the_clip_hides_become_zero);
    tcase_add_test(tests, sixteen_values_make_twenty_bytes);
    tcase_add_test(tests, chunks_decide_apart);
    suite_add_tcase(suite, tests);
    return suite;
}
