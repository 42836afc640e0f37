/* tests/test_network.c - lanes, buffers, leaves and spines, part by part.
 *
 * Method: every time is worked out by hand. Ports are 50 GB/s, so 50,000 bytes take a
 * microsecond and a byte 20 ps. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/network.h"
#include "sim/plan.h"
#include "tests/support.h"

Suite *network_suite(void);

enum { NS = 1000, US = 1000000 };
#define PORT UINT64_C(50000000000)

static char err[256];

/* --- the background flow --------------------------------------------------------------------- */

/* Bursts of 100,000 bytes at 10 GB/s: 2 us of the port, every 10 us, the first at 0. */
static struct fabric_background bursts(void)
{
    struct fabric_background flow;
    fabric_background_init(&flow, PORT, UINT64_C(10000000000), 100000, 0, 0);
    return flow;
}

START_TEST(a_message_waits_for_the_bursts_before_it)
{
    struct fabric_background flow = bursts();
    ck_assert_uint_eq(flow.burst_ps, 2 * US);
    ck_assert_uint_eq(flow.period_ps, 10 * US);
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 0, 1 * US), 2 * US); /* Of 0..2. */
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 3 * US, 9 * US), 3 * US);
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 9 * US, 10 * US), 12 * US);
    /* The port busy until 25: the burst of 20 stands behind that, and counts once. */
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 25 * US, 25 * US), 27 * US);
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 27 * US, 26 * US), 27 * US);
    /* Long idle: only the burst of 90 can still be in the way. */
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 27 * US, 91 * US), 92 * US);
}
END_TEST

/* 100 messages of 20 us follow each other; with a fifth of the port gone they take 2,500 us, of
 * which the last 4 us or so belong to bursts that come after the last message's turn. */
START_TEST(a_shared_lane_leaves_the_rest_of_the_port)
{
    struct fabric_background flow = bursts();
    uint64_t free_ps = 0;
    for (int i = 0; i < 100; i++)
        free_ps = fabric_background_free_ps(&flow, free_ps, free_ps) + 20 * US;
    ck_assert_uint_le(free_ps, UINT64_C(2500) * US);
    ck_assert_uint_ge(free_ps, UINT64_C(2490) * US);
}
END_TEST

START_TEST(the_phase_is_drawn_and_past_bursts_are_past)
{
    struct fabric_background flow;
    fabric_background_init(&flow, PORT, UINT64_C(10000000000), 100000, 23 * US, 1000 * US);
    ck_assert_uint_eq(flow.phase_ps, 3 * US);
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 0, 1002 * US), 995 * US);
    ck_assert_uint_eq(fabric_background_free_ps(&flow, 0, 1004 * US), 1005 * US);
}
END_TEST

/* 30 of 50 GB/s: 20 are left, but a weight of half gives 25; of 10 GB/s 40 are left. */
START_TEST(an_own_lane_leaves_the_rest_but_at_least_our_weight)
{
    ck_assert_uint_eq(fabric_lane_bytes_per_s(PORT, UINT64_C(10000000000), 500000),
                      UINT64_C(40000000000));
    ck_assert_uint_eq(fabric_lane_bytes_per_s(PORT, UINT64_C(30000000000), 500000),
                      UINT64_C(25000000000));
    ck_assert_uint_eq(fabric_lane_bytes_per_s(PORT, UINT64_C(30000000000), 800000),
                      UINT64_C(40000000000));
}
END_TEST

/* --- leaf and spine -------------------------------------------------------------------------- */

enum { LINKS = 64 };
static struct fabric_link up[LINKS], down[LINKS];

/* Four nodes of two rails, two nodes to a leaf: leaves 0 and 1 join nodes 0 and 1, leaves 2 and 3
 * nodes 2 and 3. */
static struct fabric_spine four_nodes(uint32_t uplinks, bool adaptive)
{
    struct fabric_spine spine = {.rails = 2,
                                 .leaf_nodes = 2,
                                 .uplinks = uplinks,
                                 .leaves = fabric_spine_leaves(4, 2, 2),
                                 .adaptive_ps = 70 * NS,
                                 .seed = 7,
                                 .adaptive = adaptive,
                                 .up = up,
                                 .down = down};
    ck_assert_uint_eq(spine.leaves, 4);
    fabric_spine_reset(&spine, PORT, 300 * NS);
    return spine;
}

START_TEST(a_rail_is_one_hop_and_a_spine_two_more)
{
    struct fabric_spine spine = four_nodes(4, false);
    ck_assert(fabric_spine_same_leaf(&spine, 0, 2)); /* Nodes 0 and 1, rail 0. */
    ck_assert(!fabric_spine_same_leaf(&spine, 0, 3));
    ck_assert(!fabric_spine_same_leaf(&spine, 0, 4)); /* Node 2 has another leaf. */
    ck_assert_uint_eq(fabric_spine_cross(&spine, 0, 2, 0, 0, 0, 1 * US, 50000), 0);
    ck_assert_uint_eq(fabric_spine_cross(&spine, 0, 3, 0, 0, 0, 1 * US, 50000), 600 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&spine, 6, 4, 0, 0, 0, 1 * US, 50000), 0);
    ck_assert_uint_eq(spine.messages, 1);
    ck_assert_uint_eq(spine.waited, 0);
}
END_TEST

START_TEST(adaptive_routing_has_its_own_latency)
{
    struct fabric_spine spine = four_nodes(4, true);
    ck_assert_uint_eq(fabric_spine_cross(&spine, 0, 3, 0, 0, 0, 1 * US, 50000), 670 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&spine, 0, 2, 0, 0, 0, 1 * US, 50000), 0);
}
END_TEST

/* Nodes 0 and 1 send a microsecond's worth off their rail, together. On one uplink the second
 * waits a microsecond; on two, adaptive routing gives each its own, and hashing does where the
 * flows' hashes differ. */
START_TEST(flows_with_one_hash_wait_for_each_other)
{
    struct fabric_spine one = four_nodes(1, false);
    ck_assert_uint_eq(fabric_spine_cross(&one, 0, 3, 0, 0, 0, 1 * US, 50000), 600 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&one, 2, 1, 0, 0, 0, 1 * US, 50000), 1600 * NS);
    ck_assert_uint_eq(one.waited, 1);

    struct fabric_spine two = four_nodes(2, true);
    ck_assert_uint_eq(fabric_spine_cross(&two, 0, 3, 0, 0, 0, 1 * US, 50000), 670 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&two, 2, 1, 0, 0, 0, 1 * US, 50000), 670 * NS);

    two = four_nodes(2, false);
    uint32_t same = 1, other = 1;
    const uint32_t first = fabric_spine_hash(&two, 0, 3, 0);
    while (fabric_spine_hash(&two, 2, 1, same) != first) same++;
    while (fabric_spine_hash(&two, 2, 1, other) == first) other++;
    ck_assert_uint_eq(fabric_spine_cross(&two, 0, 3, 0, 0, 0, 1 * US, 50000), 600 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&two, 2, 1, other, 0, 0, 1 * US, 50000), 600 * NS);
    ck_assert_uint_eq(fabric_spine_cross(&two, 2, 1, same, 0, 0, 1 * US, 50000), 1600 * NS);
}
END_TEST

START_TEST(a_flow_keeps_its_uplink_and_flows_spread_over_all)
{
    struct fabric_spine spine = four_nodes(16, false);
    uint32_t used[16] = {0}, differ = 0;
    for (uint32_t flow = 0; flow < 1600; flow++) {
        const uint32_t uplink = fabric_spine_hash(&spine, 0, 3, flow);
        ck_assert_uint_lt(uplink, 16);
        ck_assert_uint_eq(fabric_spine_hash(&spine, 0, 3, flow), uplink);
        used[uplink]++;
        spine.seed++;
        differ += fabric_spine_hash(&spine, 0, 3, flow) != uplink;
        spine.seed--;
    }
    for (int u = 0; u < 16; u++) ck_assert(used[u] > 50 && used[u] < 150);
    ck_assert_uint_gt(differ, 1400);
}
END_TEST

/* --- full ports ------------------------------------------------------------------------------ */

enum { RANKS = 4 };
static struct fabric_congestion_port ports[RANKS];

/* A port holds 4 us; senders are paced to 80 % together, 10 us after 2 us are waiting. */
static struct fabric_congestion congestion_of(bool control)
{
    struct fabric_congestion congestion = {.count = RANKS,
                                           .control = control,
                                           .port_bytes_per_s = PORT,
                                           .buffer_ps = 4 * US,
                                           .reaction_ps = 10 * US,
                                           .paced_ppm = 800000,
                                           .ports = ports};
    fabric_congestion_reset(&congestion);
    return congestion;
}

/* 100,000 bytes, 2 us of a port, ready at at_ps; a way of 1 us. Returns when it may leave, and
 * lets it. */
static uint64_t send(struct fabric_congestion *congestion, uint32_t dst, uint64_t at_ps)
{
    const uint64_t hold_ps = fabric_congestion_hold_ps(congestion, dst, at_ps, 1 * US);
    return hold_ps + fabric_congestion_leave(congestion, dst, at_ps, hold_ps, 1 * US, 100000);
}

/* Three senders start at 0: the port drains at 3, 5, 7 us. What comes next would find 6 us, of
 * which 4 fit: it may leave at 7 - 4 - 1 = 2 us, the one after it at 4 us. Rank 3 is idle. */
START_TEST(a_full_port_holds_its_senders)
{
    struct fabric_congestion congestion = congestion_of(false);
    for (uint32_t src = 0; src < 3; src++) ck_assert_uint_eq(send(&congestion, 3, 0), 0);
    ck_assert_uint_eq(send(&congestion, 3, 0), 2 * US);
    ck_assert_uint_eq(send(&congestion, 3, 0), 4 * US);
    ck_assert_uint_eq(send(&congestion, 2, 0), 0);
    ck_assert_uint_eq(send(&congestion, 3, 100 * US), 100 * US);
}
END_TEST

/* Two senders at twice the port's rate: a message of 2 us each, every 2 us. The queue grows by 2
 * us every 2 us and is over 2 us long from 3 us on. From 13 us on both are paced to 40 % of the
 * port, one message in 5 us; 50 us after the last mark they are not. */
START_TEST(congestion_control_paces_senders_to_their_share)
{
    struct fabric_congestion congestion = congestion_of(true);
    uint64_t at_ps[2] = {0, 0};
    for (int i = 0; i < 8; i++)
        for (uint32_t src = 0; src < 2; src++) at_ps[src] = send(&congestion, 3, at_ps[src]);
    const uint64_t before_ps = at_ps[0];
    ck_assert_uint_gt(before_ps, 13 * US);
    at_ps[0] = send(&congestion, 3, at_ps[0]);
    ck_assert_uint_eq(at_ps[0] - before_ps, 5 * US);
    /* The pace is the port's: a message to rank 2 is not held up. */
    ck_assert_uint_eq(send(&congestion, 2, before_ps), before_ps);
    const uint64_t later_ps = congestion.ports[3].last_mark_ps + 51 * US;
    ck_assert_uint_eq(send(&congestion, 3, later_ps), later_ps);
    ck_assert_uint_eq(send(&congestion, 3, later_ps), later_ps);
}
END_TEST

START_TEST(senders_are_not_paced_before_the_reaction)
{
    struct fabric_congestion on = congestion_of(true);
    uint64_t paced[8], held[8];
    for (uint32_t i = 0; i < 8; i++) paced[i] = send(&on, 3, 0);
    struct fabric_congestion off = congestion_of(false);
    for (uint32_t i = 0; i < 8; i++) held[i] = send(&off, 3, 0);
    ck_assert_int_eq(memcmp(paced, held, sizeof held), 0);
}
END_TEST

/* --- together -------------------------------------------------------------------------------- */

static struct fabric_machine machine;

static void load(const char *name)
{
    ck_assert_msg(fabric_machine_load(name, &machine, err, sizeof err) == 0, "%s", err);
}

START_TEST(an_ideal_network_answers_now)
{
    const struct fabric_network_shape shape = {.seed = 3};
    struct fabric_network network;
    load("h100-hgx");
    ck_assert(!fabric_network_asked(&shape));
    ck_assert_int_eq(fabric_network_open(&network, &shape, &machine, 32, 8, err, sizeof err), 0);
    fabric_network_reset(&network, 0);
    ck_assert_uint_eq(fabric_network_free_ps(&network, 3, true, 5, 7), 5);
    ck_assert_uint_eq(fabric_network_hold_ps(&network, 3, 20, 7, 7), 7);
    ck_assert_uint_eq(fabric_network_cross(&network, 3, 20, 1, 7, 7, 9, 4096), 0);
    ck_assert_uint_eq(fabric_network_bytes_per_s(&shape, &machine),
                      machine.nic_goodput_bytes_per_s);
    fabric_network_close(&network);
}
END_TEST

START_TEST(every_preset_with_a_nic_can_be_asked_for_everything)
{
    const struct fabric_network_shape shape = {.routing = FABRIC_ROUTING_STATIC,
                                               .control = FABRIC_CONTROL_ON,
                                               .background_bytes_per_s = UINT64_C(10000000000)};
    const char *name;
    for (size_t i = 0; (name = fabric_machine_preset(i)) != NULL; i++) {
        load(name);
        if (machine.nic_bytes_per_s == 0) continue;
        ck_assert_msg(fabric_network_check(&shape, &machine, err, sizeof err) == 0, "%s", err);
        ck_assert_uint_eq(fabric_network_bytes_per_s(NULL, &machine),
                          machine.nic_goodput_bytes_per_s); /* PCIe is not the narrow part. */
    }
}
END_TEST

START_TEST(what_a_shape_needs_and_a_machine_lacks_is_named)
{
    struct fabric_network_shape shape = {.routing = FABRIC_ROUTING_ADAPTIVE};
    load("h100-hgx");
    machine.leaf_uplinks = 0;
    ck_assert_int_eq(fabric_network_check(&shape, &machine, err, sizeof err), -1);
    ck_assert_str_eq(err, "machine h100-hgx: leaf_uplinks: not given, and fabric routing needs it");
    shape = (struct fabric_network_shape){.background_bytes_per_s = UINT64_C(47000000000)};
    ck_assert_int_eq(fabric_network_check(&shape, &machine, err, sizeof err), -1);
    TEST_SAYS(err, "must be below what a NIC of h100-hgx carries");
    shape.background_bytes_per_s--;
    ck_assert_int_eq(fabric_network_check(&shape, &machine, err, sizeof err), 0);
}
END_TEST

START_TEST(a_pcie_link_that_is_slower_than_the_nic_is_what_a_nic_reaches)
{
    load("h100-hgx");
    machine.pcie_bytes_per_s = UINT64_C(32000000000);
    ck_assert_uint_eq(fabric_network_bytes_per_s(NULL, &machine), UINT64_C(32000000000));
    machine.pcie_bytes_per_s = 0; /* Not modelled. */
    ck_assert_uint_eq(fabric_network_bytes_per_s(NULL, &machine), UINT64_C(47000000000));
}
END_TEST

/* --- options --------------------------------------------------------------------------------- */

static struct sim_settings settings;
static struct sim_plan *plan;

/* One option more; 0 when the plan is made. */
static int make(const char *option, const char *value)
{
    if (option) ck_assert_int_eq(sim_settings_set(&settings, option, value, err, sizeof err), 0);
    if (!plan) plan = (struct sim_plan *)malloc(sizeof *plan);
    ck_assert_ptr_nonnull(plan);
    return sim_plan_make(&settings, 0, 0, plan, err, sizeof err);
}

static bool noted(const char *text)
{
    for (uint32_t n = 0; n < plan->note_count; n++)
        if (strstr(plan->notes[n], text)) return true;
    return false;
}

static void set_up_options(void)
{
    sim_settings_default(&settings);
    ck_assert_int_eq(make("machine", "h100-hgx"), 0);
}

static void tear_down_options(void)
{
    free(plan);
    plan = NULL;
}

START_TEST(words_make_a_shape)
{
    ck_assert(!fabric_network_asked(&plan->network));
    ck_assert_int_eq(make("ep", "16"), 0);
    ck_assert_int_eq(make("background", "100.5:own"), 0);
    ck_assert_uint_eq(plan->network.background_bytes_per_s, UINT64_C(12562500000));
    ck_assert(plan->network.own_lane);
    ck_assert_int_eq(make("background", "8:shared"), 0);
    ck_assert_uint_eq(plan->network.background_bytes_per_s, 1000000000);
    ck_assert(!plan->network.own_lane);
    ck_assert_int_eq(make("fabric-routing", "adaptive"), 0);
    ck_assert_int_eq(plan->network.routing, FABRIC_ROUTING_ADAPTIVE);
    ck_assert_int_eq(make("congestion-control", "off"), 0);
    ck_assert_int_eq(plan->network.control, FABRIC_CONTROL_OFF);
    ck_assert_uint_eq(plan->note_count, 0);
}
END_TEST

START_TEST(what_is_no_rate_or_too_much_is_refused)
{
    static const char *const bad[] = {"",     "fast", "-1",  "10:both",
                                      ":own", "10:",  "1e3", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(make("background", bad[i]), -1);
        TEST_SAYS(err, "--background: ");
    }
    ck_assert_int_eq(make("background", "400"), -1);
    TEST_SAYS(err, "must be below the 376 Gb/s that a NIC of h100-hgx carries");
    ck_assert_int_eq(sim_settings_set(&settings, "fabric-routing", "ecmp", err, sizeof err), -1);
    ck_assert_str_eq(err, "--fabric-routing: ecmp: must be one of ideal|static|adaptive");
}
END_TEST

START_TEST(an_option_that_cannot_matter_says_so)
{
    ck_assert_int_eq(make("fabric-routing", "static"), 0); /* EP8: one node. */
    ck_assert(noted("--fabric-routing changes nothing: on one node NVLink carries everything"));
    ck_assert_int_eq(make("background", "10"), 0);
    ck_assert(noted("--fabric-routing --background change nothing"));
    ck_assert_int_eq(make("ep", "16"), 0);
    ck_assert_uint_eq(plan->note_count, 0); /* Low latency leaves its rails. */
    ck_assert_int_eq(make("mode", "normal"), 0);
    ck_assert(noted("--fabric-routing changes nothing: every message stays on its rail"));
    ck_assert_int_eq(make("machine", "h800-hgx-nonvl"), 0);
    ck_assert(!noted("changes nothing"));
}
END_TEST

Suite *network_suite(void)
{
    Suite *suite = suite_create("network");
    TCase *parts = tcase_create("parts");
    tcase_add_test(parts, a_message_waits_for_the_bursts_before_it);
    tcase_add_test(parts, a_shared_lane_leaves_the_rest_of_the_port);
    tcase_add_test(parts, the_phase_is_drawn_and_past_bursts_are_past);
    tcase_add_test(parts, an_own_lane_leaves_the_rest_but_at_least_our_weight);
    tcase_add_test(parts, a_rail_is_one_hop_and_a_spine_two_more);
    tcase_add_test(parts, adaptive_routing_has_its_own_latency);
    tcase_add_test(parts, flows_with_one_hash_wait_for_each_other);
    tcase_add_test(parts, a_flow_keeps_its_uplink_and_flows_spread_over_all);
    tcase_add_test(parts, a_full_port_holds_its_senders);
    tcase_add_test(parts, congestion_control_paces_senders_to_their_share);
    tcase_add_test(parts, senders_are_not_paced_before_the_reaction);
    suite_add_tcase(suite, parts);
    TCase *together = tcase_create("together");
    tcase_add_test(together, an_ideal_network_answers_now);
    tcase_add_test(together, every_preset_with_a_nic_can_be_asked_for_everything);
    tcase_add_test(together, what_a_shape_needs_and_a_machine_lacks_is_named);
    tcase_add_test(together, a_pcie_link_that_is_slower_than_the_nic_is_what_a_nic_reaches);
    suite_add_tcase(suite, together);
    TCase *options = tcase_create("options");
    tcase_add_checked_fixture(options, set_up_options, tear_down_options);
    tcase_add_test(options, words_make_a_shape);
    tcase_add_test(options, what_is_no_rate_or_too_much_is_refused);
    tcase_add_test(options, an_option_that_cannot_matter_says_so);
    suite_add_tcase(suite, options);
    return suite;
}
