/* tests/test_share.c - streams share a rate evenly, to the picosecond.
 *
 * Method: answers by hand first (1 byte per ps, so bytes are picoseconds), then properties of
 * drawn loads: work is conserved, and nothing beats the server's capacity. */
#include <check.h>
#include <stdlib.h>

#include "fabric/link.h"
#include "fabric/share.h"
#include "sim/rng.h"

Suite *share_suite(void);

#define BYTE_PER_PS UINT64_C(1000000000000)
enum { JOBS = 64 };
static struct fabric_share_job jobs[JOBS];
static struct fabric_share share;

static void expect_take(uint64_t now_ps, uint32_t want)
{
    uint32_t id = 999;
    ck_assert_uint_eq(fabric_share_next_ps(&share), now_ps);
    ck_assert_int_eq(fabric_share_take(&share, now_ps, &id), 1);
    ck_assert_uint_eq(id, want);
}

START_TEST(a_stream_alone_takes_its_bytes_over_its_rate)
{
    const uint64_t rates[] = {370000000000, 48500000000, 6310000000, 7};
    for (size_t i = 0; i < 4; i++) {
        fabric_share_init(&share, 400000000000, rates[i], jobs, JOBS);
        fabric_share_add(&share, 12345, 7, 1, 7408);
        expect_take(12345 + fabric_transfer_ps(7408, rates[i]), 7);
        ck_assert_uint_eq(fabric_share_next_ps(&share), UINT64_MAX);
    }
}
END_TEST

/* Two of 100 bytes at 1 byte/ps: 0..50 alone 50 done; then half rate each: the first ends at
 * 150 with the second at 50 of 100, which runs alone to 200. */
START_TEST(a_second_stream_halves_the_rate)
{
    fabric_share_init(&share, BYTE_PER_PS, BYTE_PER_PS, jobs, JOBS);
    fabric_share_add(&share, 0, 1, 1, 100);
    fabric_share_add(&share, 50, 2, 1, 100);
    expect_take(150, 1);
    expect_take(200, 2);
}
END_TEST

/* Three streams of one job and one of another, all of 10 bytes: 40 bytes, all end at 40. */
START_TEST(streams_count_not_jobs)
{
    fabric_share_init(&share, BYTE_PER_PS, BYTE_PER_PS, jobs, JOBS);
    fabric_share_add(&share, 0, 1, 3, 10);
    fabric_share_add(&share, 0, 2, 1, 10);
    expect_take(40, 1);
    expect_take(40, 2);
}
END_TEST

/* A cap of a quarter: two streams do not meet; five share the whole. */
START_TEST(the_cap_holds_until_the_capacity_binds)
{
    fabric_share_init(&share, BYTE_PER_PS, BYTE_PER_PS / 4, jobs, JOBS);
    fabric_share_add(&share, 0, 1, 1, 10);
    fabric_share_add(&share, 0, 2, 1, 10);
    expect_take(40, 1);
    expect_take(40, 2);
    for (uint32_t i = 0; i < 5; i++) fabric_share_add(&share, 100, i, 1, 10);
    for (uint32_t i = 0; i < 5; i++) expect_take(150, i);
}
END_TEST

START_TEST(drawn_loads_conserve_work) /* _i: seed */
{
    struct sim_rng rng = sim_rng_stream((uint64_t)_i, 1, 0, 0, 0);
    uint64_t now_ps = 0, bytes = 0, first_ps = UINT64_MAX, last_ps = 0, idle_ps = 0;
    uint32_t added = 0, taken = 0, id;
    fabric_share_init(&share, BYTE_PER_PS, BYTE_PER_PS, jobs, JOBS);
    while (taken < 500) {
        const uint64_t next_ps = fabric_share_next_ps(&share);
        const uint64_t arrival_ps = now_ps + sim_rng_below(&rng, 900);
        if (added < 500 && share.count < JOBS && (next_ps > arrival_ps)) {
            const uint32_t streams = 1 + sim_rng_below(&rng, 8);
            const uint64_t each = 1 + sim_rng_below(&rng, 200);
            if (share.count == 0 && added > 0) idle_ps += arrival_ps - now_ps;
            now_ps = arrival_ps;
            if (first_ps == UINT64_MAX) first_ps = now_ps;
            fabric_share_add(&share, now_ps, added++, streams, each);
            bytes += streams * each;
        } else {
            now_ps = next_ps;
            while (fabric_share_take(&share, now_ps, &id)) taken++;
            last_ps = now_ps;
        }
    }
    /* At 1 byte per ps it is busy as many ps as there are bytes; ends are rounded up to 1 ps. */
    ck_assert_uint_ge(last_ps - first_ps - idle_ps, bytes);
    ck_assert_uint_le(last_ps - first_ps - idle_ps, bytes + 500);
    ck_assert_uint_eq(share.streams, 0);
}
END_TEST

Suite *share_suite(void)
{
    Suite *suite = suite_create("share");
    TCase *tests = tcase_create("share");
    tcase_add_test(tests, a_stream_alone_takes_its_bytes_over_its_rate);
    tcase_add_test(tests, a_second_stream_halves_the_rate);
    tcase_add_test(tests, streams_count_not_jobs);
    tcase_add_test(tests, the_cap_holds_until_the_capacity_binds);
    tcase_add_loop_test(tests, drawn_loads_conserve_work, 0, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
