/* tests/test_servers.c - queue pairs and SM pools: windows, doorbells, places.
 *
 * Method: small cases worked out by hand, then a pool against a slow search over all servers. */
#include <check.h>
#include <signal.h>
#include "fabric/qp.h"
#include "fabric/sm_pool.h"

static uint64_t done_ps[8];
static struct fabric_qp qp;

/* Post and report everything released as done a fixed time after the post. */
static struct fabric_post post(uint64_t now_ps, bool ring, uint64_t takes_ps)
{
    const struct fabric_post made = fabric_qp_post(&qp, now_ps, ring);
    for (uint32_t i = 0; i < made.released; i++) fabric_qp_done(&qp, made.at_ps + takes_ps);
    return made;
}

START_TEST(doorbells_ring_for_every_batch_and_for_signals)
{
    fabric_qp_init(&qp, done_ps, 8, 4);
    ck_assert_uint_eq(post(0, false, 10).released, 0);
    ck_assert_uint_eq(post(1, false, 10).released, 0);
    ck_assert_uint_eq(post(2, false, 10).released, 0);
    ck_assert_uint_eq(post(3, false, 10).released, 4);
    ck_assert_uint_eq(post(4, false, 10).released, 0);
    ck_assert_uint_eq(post(5, true, 10).released, 2); /* A signal takes the held one along. */
    ck_assert_uint_eq(fabric_qp_drained_ps(&qp), 15);
}
END_TEST

START_TEST(a_shallow_window_stalls)
{
    fabric_qp_init(&qp, done_ps, 2, 1);
    ck_assert_uint_eq(post(0, false, 1000).at_ps, 0);
    ck_assert_uint_eq(post(10, false, 1000).at_ps, 10);
    ck_assert_uint_eq(post(20, false, 1000).at_ps, 1000); /* Waits for the first: 980. */
    ck_assert_uint_eq(post(30, false, 1000).at_ps, 1010); /* Waits for the second: 980. */
    ck_assert_uint_eq(post(5000, false, 1000).at_ps, 5000);
    ck_assert_uint_eq(qp.use.stall_ps, 980 + 980);
    ck_assert_uint_eq(qp.use.queue_peak, 2);
    ck_assert_uint_eq(fabric_qp_drained_ps(&qp), 6000);
}
END_TEST

START_TEST(a_deep_window_never_stalls)
{
    fabric_qp_init(&qp, done_ps, 8, 4);
    for (uint64_t i = 0; i < 8; i++) ck_assert_uint_eq(post(i, false, 1000).at_ps, i);
    ck_assert_uint_eq(qp.use.stall_ps, 0);
    ck_assert_uint_eq(qp.use.queue_peak, 8);
}
END_TEST

START_TEST(a_batch_above_the_depth_rings_when_the_window_is_full)
{
    fabric_qp_init(&qp, done_ps, 2, 100);
    ck_assert_uint_eq(post(0, false, 50).released, 0);
    ck_assert_uint_eq(post(1, false, 50).released, 2);
    ck_assert_uint_eq(post(2, false, 50).at_ps, 51);
}
END_TEST

START_TEST(requests_are_done_in_order)
{
    fabric_qp_init(&qp, done_ps, 4, 1);
    fabric_qp_post(&qp, 0, false);
    fabric_qp_done(&qp, 900);
    fabric_qp_post(&qp, 1, false);
    fabric_qp_done(&qp, 300); /* Its acknowledgement comes behind the first one's. */
    ck_assert_uint_eq(fabric_qp_drained_ps(&qp), 900);
    ck_assert_uint_eq(done_ps[1], 900);
}
END_TEST

START_TEST(posting_before_reporting_is_a_bug)
{
    fabric_qp_init(&qp, done_ps, 4, 1);
    fabric_qp_post(&qp, 0, false);
    fabric_qp_post(&qp, 1, false);
}
END_TEST

START_TEST(a_pool_fills_its_servers_in_order)
{
    struct fabric_sm sms[3];
    struct fabric_sm_pool pool;
    fabric_sm_pool_init(&pool, sms, 3, 100);
    const uint64_t durations[] = {50, 20, 30, 10, 10};
    const uint32_t places[] = {0, 1, 2, 1, 1};
    const uint64_t starts[] = {100, 100, 100, 120, 130};
    for (int i = 0; i < 5; i++) {
        const struct fabric_run run = fabric_sm_pool_run(&pool, 100, durations[i]);
        ck_assert_uint_eq(run.start_ps, starts[i]);
        /* At 130 the servers 1 and 2 are both free: the lower index takes it. */
        ck_assert_uint_eq(run.sm, places[i]);
        ck_assert_uint_eq(run.end_ps, run.start_ps + durations[i]);
    }
    ck_assert_uint_eq(pool.use.busy_ps, 120);
    ck_assert_uint_eq(pool.use.stall_ps, 20 + 30);
    ck_assert_uint_eq(fabric_sm_pool_first_free_ps(&pool), 130);
    ck_assert_uint_eq(fabric_sm_pool_all_free_ps(&pool), 150);
}
END_TEST

START_TEST(a_pool_agrees_with_a_search)
{
    enum { COUNT = 13 };
    struct fabric_sm sms[COUNT];
    uint64_t free_ps[COUNT] = {0};
    struct fabric_sm_pool pool;
    uint64_t state = (uint64_t)_i + 1, now_ps = 0;
    fabric_sm_pool_init(&pool, sms, COUNT, 0);
    for (int n = 0; n < 2000; n++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t duration_ps = state >> 60; /* Few values: many ties. */
        now_ps += (state >> 50) & 1;
        uint32_t best = 0;
        for (uint32_t i = 1; i < COUNT; i++)
            if (free_ps[i] < free_ps[best]) best = i;
        const uint64_t start_ps = free_ps[best] > now_ps ? free_ps[best] : now_ps;
        const struct fabric_run run = fabric_sm_pool_run(&pool, now_ps, duration_ps);
        if (run.sm != best || run.start_ps != start_ps)
            ck_abort_msg("run %d: server %u at %lu", n, run.sm, (unsigned long)run.start_ps);
        free_ps[best] = start_ps + duration_ps;
    }
}
END_TEST

START_TEST(one_server_is_a_queue)
{
    struct fabric_sm sm;
    struct fabric_sm_pool pool;
    uint64_t ring[16];
    fabric_sm_pool_init(&pool, &sm, 1, 0);
    fabric_waiting_init(&pool.waiting, ring, 16);
    for (uint64_t i = 0; i < 10; i++)
        ck_assert_uint_eq(fabric_sm_pool_run(&pool, 0, 7).start_ps, 7 * i);
    ck_assert_uint_eq(pool.use.queue_peak, 9);
}
END_TEST

Suite *servers_suite(void)
{
    Suite *suite = suite_create("servers");
    TCase *tcase = tcase_create("qp and sm pool");
    tcase_add_test(tcase, doorbells_ring_for_every_batch_and_for_signals);
    tcase_add_test(tcase, a_shallow_window_stalls);
    tcase_add_test(tcase, a_deep_window_never_stalls);
    tcase_add_test(tcase, a_batch_above_the_depth_rings_when_the_window_is_full);
    tcase_add_test(tcase, requests_are_done_in_order);
    tcase_add_test_raise_signal(tcase, posting_before_reporting_is_a_bug, SIGABRT);
    tcase_add_test(tcase, a_pool_fills_its_servers_in_order);
    tcase_add_loop_test(tcase, a_pool_agrees_with_a_search, 0, 10);
    tcase_add_test(tcase, one_server_is_a_queue);
    suite_add_tcase(suite, tcase);
    return suite;
}
