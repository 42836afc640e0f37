/* tests/test_link.c - links and NICs send in order and never lose a fraction of a picosecond.
 *
 * Method: answers worked out by hand first, then sweeps that only state a property. 450 GB/s
 * move 900 bytes in 2000 ps; 50 GB/s move 1000 bytes in 20,000 ps. */
#include <check.h>
#include "fabric/link.h"
#include "fabric/nic.h"

static struct fabric_link nvlink;
static struct fabric_nic nic_out, nic_in;
static uint64_t ring[4];

static void set_up(void)
{
    fabric_link_init(&nvlink, UINT64_C(450000000000), 500000);
    fabric_waiting_init(&nvlink.waiting, ring, 4);
    fabric_nic_init(&nic_out, UINT64_C(50000000000), 1000000, 5000, 300000);
    fabric_nic_init(&nic_in, UINT64_C(50000000000), 0, 5000, 0);
}

START_TEST(transfer_times_round_up)
{
    ck_assert_uint_eq(fabric_transfer_ps(900, UINT64_C(450000000000)), 2000);
    ck_assert_uint_eq(fabric_transfer_ps(1, UINT64_C(900000000000)), 2); /* 1.11 */
    ck_assert_uint_eq(fabric_transfer_ps(0, 1), 0);
    ck_assert_uint_eq(fabric_transfer_ps(7408, UINT64_C(450000000000)), 16463); /* 16462.2 */
    /* 18,446,744 bytes still fit 64 bits when multiplied by 10^12; one more does not. */
    ck_assert_uint_eq(fabric_transfer_ps(18446744, 1000000), UINT64_C(18446744000000));
    ck_assert_uint_eq(fabric_transfer_ps(18446745, 1000000), UINT64_C(18446745000000));
    ck_assert_uint_eq(fabric_transfer_ps(UINT64_C(1) << 40, UINT64_C(1) << 40),
                      UINT64_C(1000000000000));
    ck_assert_uint_eq(fabric_transfer_ps((UINT64_C(1) << 40) + 1, UINT64_C(1) << 40),
                      UINT64_C(1000000000001));
}
END_TEST

START_TEST(second_message_waits_for_the_first)
{
    const struct fabric_slot first = fabric_link_send(&nvlink, 1000, 900);
    const struct fabric_slot second = fabric_link_send(&nvlink, 1001, 0);

    ck_assert_uint_eq(first.depart_ps, 1000);
    ck_assert_uint_eq(first.sent_ps, 3000);
    ck_assert_uint_eq(first.first_ps, 501000);
    ck_assert_uint_eq(first.arrive_ps, 503000);
    ck_assert_uint_eq(second.depart_ps, 3000);
    ck_assert_uint_eq(second.arrive_ps, 503000);
}
END_TEST

START_TEST(a_link_counts_what_it_did)
{
    fabric_link_send(&nvlink, 0, 900);     /* 0..2000 */
    fabric_link_send(&nvlink, 500, 900);   /* waits 1500: 2000..4000 */
    fabric_link_send(&nvlink, 1000, 900);  /* waits 3000: 4000..6000, two waiting */
    fabric_link_send(&nvlink, 4500, 1800); /* waits 1500: 6000..10,000, one waiting */
    fabric_link_send(&nvlink, 20000, 450); /* idle before: 20,000..21,000 */

    ck_assert_uint_eq(nvlink.use.busy_ps, 2000 + 2000 + 2000 + 4000 + 1000);
    ck_assert_uint_eq(nvlink.use.bytes, 900 * 3 + 1800 + 450);
    ck_assert_uint_eq(nvlink.use.stall_ps, 1500 + 3000 + 1500);
    ck_assert_uint_eq(nvlink.use.queue_peak, 2);
    ck_assert_uint_eq(nvlink.busy_until_ps, 21000);
}
END_TEST

START_TEST(a_full_ring_reads_as_its_capacity)
{
    for (int i = 0; i < 100; i++) fabric_link_send(&nvlink, 0, 900);
    ck_assert_uint_eq(nvlink.use.queue_peak, 4);
    ck_assert_uint_eq(nvlink.use.stall_ps, 2000 * (99 * 100 / 2));
}
END_TEST

START_TEST(splitting_a_message_never_saves_time)
{
    struct fabric_link whole = nvlink, split = nvlink;
    const uint64_t size_bytes = (UINT64_C(1) << _i) + 1;

    const struct fabric_slot one = fabric_link_send(&whole, 0, size_bytes);
    (void)fabric_link_send(&split, 0, size_bytes / 2);
    const struct fabric_slot two = fabric_link_send(&split, 0, size_bytes - size_bytes / 2);
    ck_assert_uint_ge(two.arrive_ps, one.arrive_ps);
    ck_assert_uint_le(two.arrive_ps, one.arrive_ps + 1);
}
END_TEST

/* Cut-through: a path of equal links costs one transfer and the flights. */
START_TEST(a_relayed_message_is_sent_once)
{
    struct fabric_link port;
    fabric_link_init(&port, UINT64_C(450000000000), 1000);
    const struct fabric_slot out = fabric_link_send(&nvlink, 0, 900);
    const struct fabric_slot in = fabric_link_relay(&port, out.first_ps, out.arrive_ps, 900);
    ck_assert_uint_eq(in.depart_ps, 500000);
    ck_assert_uint_eq(in.arrive_ps, 2000 + 500000 + 1000);
}
END_TEST

START_TEST(a_faster_port_does_not_outrun_its_source)
{
    struct fabric_link port;
    fabric_link_init(&port, UINT64_C(900000000000), 0);
    const struct fabric_slot out = fabric_link_send(&nvlink, 0, 900);
    const struct fabric_slot in = fabric_link_relay(&port, out.first_ps, out.arrive_ps, 900);
    ck_assert_uint_eq(in.arrive_ps, out.arrive_ps);
    /* A slower one is the bottleneck: 900 bytes at 100 GB/s are 9000 ps. */
    fabric_link_init(&port, UINT64_C(100000000000), 0);
    ck_assert_uint_eq(fabric_link_relay(&port, out.first_ps, out.arrive_ps, 900).arrive_ps,
                      500000 + 9000);
}
END_TEST

START_TEST(two_senders_share_one_port)
{
    struct fabric_link other = nvlink, port;
    fabric_link_init(&port, UINT64_C(450000000000), 0);
    const struct fabric_slot a = fabric_link_send(&nvlink, 0, 900);
    const struct fabric_slot b = fabric_link_send(&other, 100, 900);
    ck_assert_uint_eq(fabric_link_relay(&port, a.first_ps, a.arrive_ps, 900).arrive_ps, 502000);
    ck_assert_uint_eq(fabric_link_relay(&port, b.first_ps, b.arrive_ps, 900).arrive_ps, 504000);
    ck_assert_uint_eq(port.use.stall_ps, 1900);
}
END_TEST

START_TEST(a_lone_nic_message_costs_the_sum_of_its_parts)
{
    const struct fabric_slot out = fabric_nic_send(&nic_out, 7000, 1000);
    ck_assert_uint_eq(out.depart_ps, 7000 + 300000 + 5000);
    ck_assert_uint_eq(out.arrive_ps, 7000 + 300000 + 5000 + 20000 + 1000000);
    /* The receiving engine works while bits come in: 5000 < 20,000, so the last bit decides,
     * and its wire, as fast, starts 5000 late. */
    const struct fabric_slot in = fabric_nic_receive(&nic_in, out.first_ps, out.arrive_ps, 1000);
    ck_assert_uint_eq(in.arrive_ps, out.arrive_ps + 5000);
}
END_TEST

START_TEST(small_messages_are_bound_by_the_engine)
{
    uint64_t arrive_ps = 0;
    for (int i = 0; i < 100; i++) arrive_ps = fabric_nic_send(&nic_out, 0, 8).arrive_ps;
    /* A hundred engine turns, the last one's 8 bytes (160 ps), the flight. */
    ck_assert_uint_eq(arrive_ps, 300000 + 100 * 5000 + 160 + 1000000);
    ck_assert_uint_eq(nic_out.messages, 100);
    ck_assert_uint_eq(nic_out.engine_busy_ps, 500000);
}
END_TEST

START_TEST(large_messages_are_bound_by_the_wire)
{
    uint64_t arrive_ps = 0;
    for (int i = 0; i < 100; i++) arrive_ps = fabric_nic_send(&nic_out, 0, 1000).arrive_ps;
    ck_assert_uint_eq(arrive_ps, 300000 + 5000 + 100 * 20000 + 1000000);
    ck_assert_uint_eq(nic_out.wire.use.busy_ps, 100 * 20000);
    ck_assert_uint_eq(nic_out.wire.use.bytes, 100000);
}
END_TEST

Suite *link_suite(void)
{
    Suite *suite = suite_create("link");
    TCase *tcase = tcase_create("links and nics");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, transfer_times_round_up);
    tcase_add_test(tcase, second_message_waits_for_the_first);
    tcase_add_test(tcase, a_link_counts_what_it_did);
    tcase_add_test(tcase, a_full_ring_reads_as_its_capacity);
    tcase_add_loop_test(tcase, splitting_a_message_never_saves_time, 0, 40);
    tcase_add_test(tcase, a_relayed_message_is_sent_once);
    tcase_add_test(tcase, a_faster_port_does_not_outrun_its_source);
    tcase_add_test(tcase, two_senders_share_one_port);
    tcase_add_test(tcase, a_lone_nic_message_costs_the_sum_of_its_parts);
    tcase_add_test(tcase, small_messages_are_bound_by_the_engine);
    tcase_add_test(tcase, large_messages_are_bound_by_the_wire);
    suite_add_tcase(suite, tcase);
    return suite;
}
