/* tests/test_digest.c - the digest is the documented number, and sees what it must see.
 *
 * Pinned numbers come from an independent implementation (Python integers). */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "ref/digest.h"

enum { BYTES = 5000 };

static void fill(unsigned char *bytes)
{
    for (unsigned i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * i + 3 * i);
}

START_TEST(digests_are_the_documented_numbers)
{
    static const struct {
        uint64_t bytes, digest;
    } right[] = {
        {0, UINT64_C(0x48218226ff3cd4bf)},    {1, UINT64_C(0x04b0c8c9e2427d75)},
        {7, UINT64_C(0x8a3cea32b9cb547b)},    {8, UINT64_C(0x0e5ce5918cea6544)},
        {9, UINT64_C(0x8b07fed60127c0d1)},    {2047, UINT64_C(0x29de1542eb6bc484)},
        {2048, UINT64_C(0xc3b08c5677d8a3ef)}, {2049, UINT64_C(0xbc798d0f8b95751f)},
        {5000, UINT64_C(0xf3bf6aeeee289ca2)},
    };
    unsigned char bytes[BYTES];
    fill(bytes);
    for (unsigned i = 0; i < sizeof right / sizeof right[0]; i++)
        ck_assert_uint_eq(ref_digest(bytes, right[i].bytes), right[i].digest);
    ck_assert_uint_eq(ref_digest(NULL, 0), right[0].digest);
}
END_TEST

START_TEST(alignment_does_not_matter)
{
    unsigned char bytes[BYTES], moved[BYTES + 8];
    fill(bytes);
    for (unsigned by = 1; by < 8; by++) {
        memcpy(moved + by, bytes, BYTES);
        ck_assert_uint_eq(ref_digest(moved + by, BYTES), ref_digest(bytes, BYTES));
    }
}
END_TEST

START_TEST(parts_add_up_in_any_order)
{
    unsigned char bytes[BYTES];
    fill(bytes);
    const uint64_t last = ref_digest_part(bytes + 4096, BYTES - 4096, 2);
    const uint64_t first = ref_digest_part(bytes, 2048, 0);
    const uint64_t middle = ref_digest_part(bytes + 2048, 2048, 1);
    ck_assert_uint_eq(ref_digest_finish(last + first + middle, BYTES), ref_digest(bytes, BYTES));
}
END_TEST

START_TEST(every_single_bit_is_seen)
{
    unsigned char bytes[BYTES];
    fill(bytes);
    const uint64_t before = ref_digest(bytes, BYTES);
    for (unsigned bit = 0; bit < BYTES * 8; bit += 7) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ck_assert_uint_ne(ref_digest(bytes, BYTES), before);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}
END_TEST

static void swap(unsigned char *a, unsigned char *b, size_t bytes)
{
    unsigned char kept[2048];
    memcpy(kept, a, bytes);
    memcpy(a, b, bytes);
    memcpy(b, kept, bytes);
}

START_TEST(swapped_words_rows_and_blocks_are_seen)
{
    static const size_t sizes[] = {1, 2, 4, 8, 64, 512, 2048};
    unsigned char bytes[BYTES];
    fill(bytes);
    bytes[0] = 0xA5; /* The pattern repeats every 256 bytes: make the first place unlike. */
    const uint64_t before = ref_digest(bytes, BYTES);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        swap(bytes, bytes + 2048, sizes[i]);
        ck_assert_uint_ne(ref_digest(bytes, BYTES), before);
        swap(bytes, bytes + 2048, sizes[i]);
        if (2 * sizes[i] > 2048) continue;
        swap(bytes, bytes + sizes[i], sizes[i]);
        ck_assert_uint_ne(ref_digest(bytes, BYTES), before);
        swap(bytes, bytes + sizes[i], sizes[i]);
    }
}
END_TEST

/* Rows a b b a against b a a b: with keys that grow linearly the two changes cancel. */
START_TEST(two_swaps_do_not_cancel)
{
    unsigned char rows[4][256], other[4][256];
    for (unsigned i = 0; i < 256; i++) {
        rows[0][i] = rows[3][i] = other[1][i] = other[2][i] = (unsigned char)(i * 7 + 1);
        rows[1][i] = rows[2][i] = other[0][i] = other[3][i] = (unsigned char)(i * 13 + 5);
    }
    ck_assert_uint_ne(ref_digest(rows, sizeof rows), ref_digest(other, sizeof other));
}
END_TEST

START_TEST(trailing_zeros_change_the_digest)
{
    static const unsigned char zeros[4096] = {0};
    for (unsigned n = 0; n < 4096; n++)
        ck_assert_uint_ne(ref_digest(zeros, n), ref_digest(zeros, n + 1));
}
END_TEST

START_TEST(chaining_depends_on_order)
{
    const uint64_t ab = ref_digest_mix(ref_digest_mix(0, 1), 2);
    const uint64_t ba = ref_digest_mix(ref_digest_mix(0, 2), 1);
    ck_assert_uint_ne(ab, ba);
    ck_assert_uint_ne(ref_digest_mix(0, 0), 0);
}
END_TEST

Suite *digest_suite(void)
{
    Suite *suite = suite_create("digest");
    TCase *tests = tcase_create("digest");
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, digests_are_the_documented_numbers);
    tcase_add_test(tests, alignment_does_not_matter);
    tcase_add_test(tests, parts_add_up_in_any_order);
    tcase_add_test(tests, every_single_bit_is_seen);
    tcase_add_test(tests, swapped_words_rows_and_blocks_are_seen);
    tcase_add_test(tests, two_swaps_do_not_cancel);
    tcase_add_test(tests, trailing_zeros_change_the_digest);
    tcase_add_test(tests, chaining_depends_on_order);
    suite_add_tcase(suite, tests);
    return suite;
}
