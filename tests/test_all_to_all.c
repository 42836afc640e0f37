/* tests/test_all_to_all.c - packets between hosts around a switch, against arithmetic by hand. */
#include <check.h>

#include "sim/all_to_all.h"
#include "sim/bench_engine.h"

Suite *all_to_all_suite(void);

static struct sim_engine *engine;
static char err[200];

static void set_up(void)
{
    engine = sim_engine_open(64, err, sizeof err);
    ck_assert_ptr_nonnull(engine);
}

static void tear_down(void)
{
    sim_engine_close(engine);
}

/* One port of 400 Gb/s moves 50 bytes a nanosecond: 4 KiB take 81,920 ps. */
static struct sim_all_to_all shape_of(uint32_t hosts, uint32_t packets)
{
    return (struct sim_all_to_all){.hosts = hosts,
                                   .packets = packets,
                                   .packet_bytes = 4096,
                                   .rate_bytes_per_s = UINT64_C(50000000000),
                                   .hop_ps = 500000};
}

static struct sim_all_to_all_result run(const struct sim_all_to_all *shape)
{
    struct sim_all_to_all_result result;
    ck_assert_msg(sim_all_to_all_run(engine, shape, &result, err, sizeof err) == 0, "%s", err);
    return result;
}

/* 31 x 256 packets of 81.92 ns and two hops of half a microsecond. */
START_TEST(a_mebibyte_to_each_of_31_others_ends_after_651_117_120_ps)
{
    const struct sim_all_to_all shape = shape_of(32, 31 * 256);
    const struct sim_all_to_all_result result = run(&shape);
    ck_assert_uint_eq(result.arrived, 253952);
    ck_assert_uint_eq(result.events, 3 * 253952);
    ck_assert_uint_eq(result.end_ps, UINT64_C(651117120));
    ck_assert_uint_eq(sim_all_to_all_closed_ps(&shape), UINT64_C(651117120));
    ck_assert_uint_eq(result.wait_ps, 0);
}
END_TEST

/* 1,023 messages of 81.92 ns, two hops: 84,804,160 ps. */
START_TEST(a_thousand_ranks_send_4_kib_to_each_other)
{
    const struct sim_all_to_all shape = shape_of(1024, 1023);
    const struct sim_all_to_all_result result = run(&shape);
    ck_assert_uint_eq(result.end_ps, UINT64_C(84804160));
    ck_assert_uint_eq(result.arrived, UINT64_C(1024) * 1023);
}
END_TEST

/* Three hosts, two packets each: 0 sends to 1, 2; 1 to 2, 0; 2 to 0, 1. Host 1 starts 40,960 ps
 * late and host 2 81,920 ps late, so that at output 2 the packet of host 0 (head there at 81,920
 * plus a hop) finds that of host 1 (from 40,960) half through and waits 40,960 ps. At output 0
 * host 2's packet comes at 81,920, host 1's second at 122,880 and waits 40,960; at output 1 host
 * 0's first is through at 81,920, before host 2's second comes at 163,840. */
START_TEST(packets_for_one_output_wait_for_each_other)
{
    struct sim_all_to_all shape = shape_of(3, 2);
    shape.host_skew_ps = 40960;
    const struct sim_all_to_all_result result = run(&shape);
    ck_assert_uint_eq(result.wait_ps, 2 * 40960);
    ck_assert_uint_eq(result.end_ps, 163840 + 81920 + 2 * 500000);
}
END_TEST

START_TEST(two_runs_have_one_digest_and_other_shapes_another)
{
    const struct sim_all_to_all shape = shape_of(8, 70);
    struct sim_all_to_all late = shape;
    late.host_skew_ps = 1;
    const uint64_t digest = run(&shape).digest;
    ck_assert_uint_eq(run(&shape).digest, digest);
    ck_assert_uint_ne(run(&late).digest, digest);
}
END_TEST

/* No time is asserted: only that the benchmark measures this very exchange. */
START_TEST(the_benchmark_counts_the_events_of_one_exchange)
{
    const struct sim_all_to_all shape = shape_of(4, 30);
    struct sim_bench_all_to_all bench;
    ck_assert_int_eq(sim_bench_all_to_all(&shape, 2, &bench, err, sizeof err), 0);
    ck_assert_uint_eq(bench.result.end_ps, 30 * 81920 + 1000000);
    ck_assert_uint_eq(bench.result.events, 4 * 30 * 3);
    ck_assert(bench.best_s > 0.0);
}
END_TEST

Suite *all_to_all_suite(void)
{
    Suite *suite = suite_create("all_to_all");
    TCase *tests = tcase_create("packets");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_mebibyte_to_each_of_31_others_ends_after_651_117_120_ps);
    tcase_add_test(tests, a_thousand_ranks_send_4_kib_to_each_other);
    tcase_add_test(tests, packets_for_one_output_wait_for_each_other);
    tcase_add_test(tests, two_runs_have_one_digest_and_other_shapes_another);
    tcase_add_test(tests, the_benchmark_counts_the_events_of_one_exchange);
    suite_add_tcase(suite, tests);
    return suite;
}
