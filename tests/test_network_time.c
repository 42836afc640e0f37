/* tests/test_network_time.c - what lies between the NICs moves both protocols' times.
 *
 * Method: a lone message is late by exactly the hops it crosses; under load, every option and
 * every number of it moves the slowest rank the right way, and an idle one not at all. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/nic.h"
#include "sim/exchange.h"
#include "sim/generator.h"
#include "sim/ll_queue.h"
#include "sim/rng.h"

Suite *network_time_suite(void);

enum { HIDDEN = 2048, ROW = 16 + HIDDEN + HIDDEN / 32, RANKS_MAX = 32, TOKENS_MAX = 1024 };

static struct fabric_machine machine;
static struct sim_engine *engine;
static struct ref_routing routing;
static struct sim_traffic traffic;
static struct sim_timing timing;
static uint64_t token_start[RANKS_MAX + 1], start_ps[RANKS_MAX];
static int64_t choices[RANKS_MAX * TOKENS_MAX * 4];
static char err[256];

static void set_up(void)
{
    engine = sim_engine_open(64, err, sizeof err);
    ck_assert_ptr_nonnull(engine);
    ck_assert_int_eq(fabric_machine_load("h100-hgx", &machine, err, sizeof err), 0);
    machine.gpus_per_node = 4;
}

static void tear_down(void)
{
    sim_timing_close(&timing);
    sim_traffic_free(&traffic);
    sim_engine_close(engine);
}

/* tokens of every rank go to topk of experts; choices are the caller's. */
static void build(enum sim_mode mode, uint32_t ranks, uint32_t experts, uint32_t topk,
                  uint32_t tokens)
{
    ck_assert_uint_le((uint64_t)ranks * tokens * topk, sizeof choices / sizeof choices[0]);
    for (uint32_t r = 0; r < ranks; r++) token_start[r + 1] = token_start[r] + tokens;
    routing = (struct ref_routing){.ranks = ranks,
                                   .experts = experts,
                                   .topk = topk,
                                   .token_start = token_start,
                                   .topk_idx = choices};
    const struct sim_traffic_shape shape = {.mode = mode,
                                            .ranks_per_node = machine.gpus_per_node,
                                            .nvlink = machine.nvlink_bytes_per_s > 0,
                                            .row_bytes = {ROW, 2 * HIDDEN},
                                            .formula_bytes = {HIDDEN, 2 * HIDDEN}};
    ck_assert_int_eq(sim_traffic_build(&routing, &shape, &traffic, err, sizeof err), 0);
    const uint64_t messages = traffic.message_count[SIM_DISPATCH];
    ck_assert_int_eq(sim_timing_open(&timing, ranks, messages, err, sizeof err), 0);
}

/* 16 ranks on four nodes, 64 experts, uniform. */
static void build_drawn(enum sim_mode mode, uint32_t tokens)
{
    const struct sim_generator generator = {
        .kind = SIM_GENERATOR_UNIFORM, .experts = 64, .topk = 4, .nodes = 4, .seed = 5};
    for (uint32_t r = 0; r < 16; r++)
        sim_generator_draw(&generator, 0, 0, r, tokens, choices + (size_t)r * tokens * 4);
    build(mode, 16, 64, 4, tokens);
}

static uint64_t slowest_ps(enum sim_direction direction, const struct fabric_network_shape *network)
{
    const struct sim_exchange exchange = {.machine = &machine,
                                          .traffic = &traffic,
                                          .network = network,
                                          .direction = direction,
                                          .hidden = HIDDEN,
                                          .sms = 4, /* Two channels: few flows to spread. */
                                          .start_ps = start_ps};
    const int status = traffic.mode == SIM_MODE_LL
                           ? sim_ll_time(engine, &exchange, &timing, err, sizeof err)
                           : sim_normal_time(engine, &exchange, &timing, err, sizeof err);
    uint64_t slowest = 0;
    ck_assert_msg(status == 0, "%s", err);
    for (uint32_t r = 0; r < traffic.ranks; r++)
        if (timing.end_ps[r] > slowest) slowest = timing.end_ps[r];
    for (uint64_t m = 0; m < traffic.message_count[direction]; m++) {
        const uint64_t land_ps = timing.land_ps[m];
        const uint32_t dst = traffic.messages[direction][m].dst_rank;
        if (land_ps < timing.depart_ps[m] || land_ps > timing.end_ps[dst])
            ck_abort_msg("message %llu", (unsigned long long)m);
    }
    return slowest;
}

static const struct fabric_network_shape hashed = {.routing = FABRIC_ROUTING_STATIC, .seed = 1};
static const struct fabric_network_shape adaptive = {.routing = FABRIC_ROUTING_ADAPTIVE, .seed = 1};

/* Four ranks on two nodes, one token of rank 0 to rank 2 (its rail) or 3 (not). */
START_TEST(a_lone_message_is_late_by_the_hops_it_crosses)
{
    const uint32_t to = _i == 0 ? 2 : 3;
    const uint64_t spine_ps = _i == 0 ? 0 : 2 * machine.switch_hop_ps;
    const uint64_t adaptive_ps = _i == 0 ? 0 : machine.adaptive_ps;
    machine.gpus_per_node = 2;
    for (int i = 0; i < 4; i++) choices[i] = i == 0 ? (int64_t)to : -1;
    build(SIM_MODE_LL, 4, 4, 1, 1);
    ck_assert_uint_eq(traffic.message_count[SIM_DISPATCH], 1);
    (void)slowest_ps(SIM_DISPATCH, NULL);
    const uint64_t ideal_ps = timing.land_ps[0], depart_ps = timing.depart_ps[0];
    ck_assert_uint_eq(ideal_ps - depart_ps,
                      machine.nic_flight_ps + machine.nic_message_ps +
                          fabric_transfer_ps(ROW, machine.nic_goodput_bytes_per_s));
    (void)slowest_ps(SIM_DISPATCH, &hashed);
    ck_assert_uint_eq(timing.land_ps[0], ideal_ps + spine_ps);
    ck_assert_uint_eq(timing.depart_ps[0], depart_ps);
    (void)slowest_ps(SIM_DISPATCH, &adaptive);
    ck_assert_uint_eq(timing.land_ps[0], ideal_ps + spine_ps + adaptive_ps);
}
END_TEST

static int by_departure(const void *left, const void *right)
{
    const uint64_t a = timing.depart_ps[*(const uint64_t *)left];
    const uint64_t b = timing.depart_ps[*(const uint64_t *)right];
    return a < b ? -1 : a > b;
}

/* 256 rows of one sender, in the order in which they leave, through fabric/nic.h one by one: bound
 * by the wire, then by the message rate. */
START_TEST(a_nic_of_the_protocol_is_one_of_fabric)
{
    enum { ROWS = 256 };
    struct fabric_nic nic;
    uint64_t order[ROWS];
    machine.gpus_per_node = 1;
    if (_i == 1) machine.nic_message_ps = 200000;
    for (int i = 0; i < 2 * ROWS; i++) choices[i] = i < ROWS ? 1 : -1;
    build(SIM_MODE_LL, 2, 2, 1, ROWS);
    (void)slowest_ps(SIM_DISPATCH, NULL);
    ck_assert_uint_eq(traffic.message_count[SIM_DISPATCH], ROWS);
    for (uint64_t i = 0; i < ROWS; i++) order[i] = i;
    qsort(order, ROWS, sizeof order[0], by_departure);
    fabric_nic_init(&nic, machine.nic_goodput_bytes_per_s, 0, machine.nic_message_ps, 0);
    const uint64_t wire_ps = fabric_transfer_ps(ROW, machine.nic_goodput_bytes_per_s);
    for (int i = 0; i < ROWS; i++) {
        const uint64_t first_ps = timing.depart_ps[order[i]] + machine.nic_flight_ps;
        const struct fabric_slot slot = fabric_nic_receive(&nic, first_ps, first_ps + wire_ps, ROW);
        ck_assert_uint_eq(timing.land_ps[order[i]], slot.arrive_ps);
    }
}
END_TEST

static const struct {
    enum sim_mode mode;
    enum sim_direction direction;
} kinds[] = {{SIM_MODE_LL, SIM_DISPATCH},
             {SIM_MODE_LL, SIM_COMBINE},
             {SIM_MODE_NORMAL, SIM_DISPATCH},
             {SIM_MODE_NORMAL, SIM_COMBINE}};

static void build_kind(int kind)
{
    /* Slow enough that it is not SMs that count. */
    machine.nic_goodput_bytes_per_s = machine.nic_bytes_per_s = UINT64_C(5000000000);
    build_drawn(kinds[kind].mode, 128);
}

/* One leaf per node, so that rails do not help, and one uplink for its four NICs' rail each: as
 * many as there are nodes on the leaf. Two nodes to a leaf halve that. */
START_TEST(oversubscribed_leaves_cost_time)
{
    const enum sim_direction direction = kinds[_i].direction;
    build_kind(_i);
    const uint64_t ideal_ps = slowest_ps(direction, NULL);
    machine.leaf_nodes = 1;
    machine.leaf_uplinks = 64;
    const uint64_t wide_ps = slowest_ps(direction, &adaptive);
    machine.leaf_nodes = 2;
    machine.leaf_uplinks = 1;
    const uint64_t narrow_ps = slowest_ps(direction, &adaptive);
    ck_assert_uint_ge(wide_ps, ideal_ps); /* A busy receiver hides two hops. */
    /* Half of normal mode's rows stay on the rail of their leaf. */
    ck_assert_uint_gt(narrow_ps, wide_ps + wide_ps / 20);
}
END_TEST

/* Some seeds' hashes collide, adaptive routing does not; where nothing collides it only adds its
 * latency. */
START_TEST(adaptive_routing_wins_under_load_and_costs_latency_without)
{
    const enum sim_direction direction = kinds[_i].direction;
    struct fabric_network_shape seeded = hashed;
    uint64_t worst_ps = 0;
    build_kind(_i);
    machine.leaf_nodes = 2;
    machine.leaf_uplinks = 2;
    for (seeded.seed = 1; seeded.seed <= 8; seeded.seed++) {
        const uint64_t hashed_ps = slowest_ps(direction, &seeded);
        if (hashed_ps > worst_ps) worst_ps = hashed_ps;
    }
    ck_assert_uint_lt(slowest_ps(direction, &adaptive), worst_ps);
    machine.leaf_uplinks = 1024;
    machine.adaptive_ps = 50000000;
    ck_assert_uint_gt(slowest_ps(direction, &adaptive), slowest_ps(direction, &hashed));
}
END_TEST

START_TEST(other_traffic_costs_its_rate_and_an_own_lane_guards_ours)
{
    const enum sim_direction direction = kinds[_i].direction;
    struct fabric_network_shape shared = {.background_bytes_per_s = UINT64_C(3000000000)};
    struct fabric_network_shape own = {.background_bytes_per_s = UINT64_C(3000000000),
                                       .own_lane = true};
    build_kind(_i);
    const uint64_t ideal_ps = slowest_ps(direction, NULL);
    const uint64_t shared_ps = slowest_ps(direction, &shared);
    const uint64_t own_ps = slowest_ps(direction, &own);
    machine.lane_ppm = 900000;
    const uint64_t heavy_ps = slowest_ps(direction, &own);
    shared.background_bytes_per_s = UINT64_C(4000000000);
    const uint64_t more_ps = slowest_ps(direction, &shared);
    ck_assert_uint_gt(shared_ps, own_ps); /* 2 of 5 GB/s are left, 2.5 are ours by weight. */
    ck_assert_uint_gt(own_ps, heavy_ps);
    ck_assert_uint_gt(heavy_ps, ideal_ps);
    ck_assert_uint_gt(more_ps, shared_ps);
}
END_TEST

/* Own lane: to the picosecond the time of a machine whose NIC is that much slower. */
START_TEST(an_own_lane_is_a_narrower_nic)
{
    const struct fabric_network_shape own = {.background_bytes_per_s = UINT64_C(2000000000),
                                             .own_lane = true};
    build_kind(_i);
    const uint64_t own_ps = slowest_ps(kinds[_i].direction, &own);
    machine.nic_goodput_bytes_per_s -= UINT64_C(2000000000);
    ck_assert_uint_eq(own_ps, slowest_ps(kinds[_i].direction, NULL));
}
END_TEST

START_TEST(a_narrow_pcie_link_is_a_narrow_nic)
{
    build_kind(_i);
    machine.pcie_bytes_per_s = UINT64_C(3000000000);
    const uint64_t pcie_ps = slowest_ps(kinds[_i].direction, NULL);
    machine.pcie_bytes_per_s = 0;
    ck_assert_uint_gt(pcie_ps, slowest_ps(kinds[_i].direction, NULL));
    machine.nic_goodput_bytes_per_s = UINT64_C(3000000000);
    ck_assert_uint_eq(pcie_ps, slowest_ps(kinds[_i].direction, NULL));
}
END_TEST

/* Eight nodes of one GPU. Ranks 0 to 6 send 96 tokens to rank 7; rank 0 sends the 32 after them to
 * rank 1, whose port is idle. */
static uint64_t bystander_ps(const struct fabric_network_shape *network)
{
    uint64_t last_ps = 0;
    (void)slowest_ps(SIM_DISPATCH, network);
    for (uint64_t m = 0; m < traffic.message_count[SIM_DISPATCH]; m++)
        if (traffic.messages[SIM_DISPATCH][m].dst_rank == 1 && timing.land_ps[m] > last_ps)
            last_ps = timing.land_ps[m];
    return last_ps;
}

START_TEST(incast_holds_up_bystanders_and_congestion_control_frees_them)
{
    const struct fabric_network_shape off = {.control = FABRIC_CONTROL_OFF};
    const struct fabric_network_shape on = {.control = FABRIC_CONTROL_ON};
    machine.gpus_per_node = 1;
    machine.port_buffer_bytes = 65536;
    machine.congestion_reaction_ps = 4000000;
    for (int64_t i = 0; i < 8 * 128; i++)
        choices[i] = i / 128 == 7 ? -1 : i % 128 < 96 ? 7 : i / 128 == 0 ? 1 : -1;
    build(SIM_MODE_LL, 8, 8, 1, 128);
    const uint64_t ideal_ps = bystander_ps(NULL);
    const uint64_t off_ps = bystander_ps(&off);
    const uint64_t on_ps = bystander_ps(&on);
    ck_assert_uint_gt(off_ps, ideal_ps + ideal_ps / 4);
    ck_assert_uint_lt(on_ps, off_ps);
    machine.congestion_reaction_ps *= 8;
    ck_assert_uint_gt(bystander_ps(&on), on_ps);
    machine.port_buffer_bytes = UINT64_C(1) << 30;
    ck_assert_uint_eq(bystander_ps(&off), ideal_ps);
}
END_TEST

START_TEST(congestion_control_costs_the_bottleneck_its_headroom)
{
    const struct fabric_network_shape off = {.control = FABRIC_CONTROL_OFF};
    const struct fabric_network_shape on = {.control = FABRIC_CONTROL_ON};
    machine.gpus_per_node = 1;
    machine.port_buffer_bytes = 65536;
    machine.paced_ppm = 700000;
    for (int64_t i = 0; i < 8 * 128; i++) choices[i] = i / 128 == 7 ? -1 : 7;
    build(SIM_MODE_LL, 8, 8, 1, 128);
    const uint64_t off_ps = slowest_ps(SIM_DISPATCH, &off);
    ck_assert_uint_gt(slowest_ps(SIM_DISPATCH, &on), off_ps);
}
END_TEST

/* Normal mode keeps to its rails: with all nodes on one leaf per rail, nothing is above it. */
START_TEST(normal_mode_on_its_rails_never_sees_a_spine)
{
    build_kind(2);
    machine.leaf_uplinks = 1;
    ck_assert_uint_eq(slowest_ps(SIM_DISPATCH, &hashed), slowest_ps(SIM_DISPATCH, NULL));
    ck_assert_uint_eq(slowest_ps(SIM_COMBINE, &hashed), slowest_ps(SIM_COMBINE, NULL));
}
END_TEST

/* Every row that leaves a node goes up one leaf and down another, but for those on a rail. */
START_TEST(leaves_report_what_went_over_their_uplinks)
{
    const enum sim_direction direction = kinds[_i].direction;
    uint64_t up_bytes = 0, down_bytes = 0, busy_ps = 0, off_leaf = 0;
    build_kind(_i);
    machine.leaf_nodes = 1;
    machine.leaf_uplinks = 3;
    (void)slowest_ps(direction, &hashed);
    for (uint32_t i = 0; i < timing.resource_count; i++) {
        const struct sim_resource_use *use = &timing.resources[i];
        if (strcmp(use->kind, "switch") != 0) continue;
        if (strstr(use->name, ".up")) up_bytes += use->bytes;
        if (strstr(use->name, ".down")) down_bytes += use->bytes;
        busy_ps += use->busy_ps;
    }
    for (uint64_t m = 0; m < traffic.message_count[direction]; m++)
        off_leaf += traffic.messages[direction][m].link_class == SIM_LINK_NIC;
    ck_assert_uint_eq(up_bytes, off_leaf * traffic.row_bytes[direction]);
    ck_assert_uint_eq(down_bytes, up_bytes);
    ck_assert_uint_ge(busy_ps, fabric_transfer_ps(2 * up_bytes, UINT64_C(5000000000)));
}
END_TEST

/* Three quarters of every port are others', and half of the rows go to one expert: what is held or
 * paced must not hold up ports that are idle, or waits would breed waits. */
START_TEST(waits_do_not_breed_waits)
{
    const struct fabric_network_shape all[2] = {
        {FABRIC_ROUTING_STATIC, FABRIC_CONTROL_OFF, UINT64_C(3750000000), false, 1},
        {FABRIC_ROUTING_ADAPTIVE, FABRIC_CONTROL_ON, UINT64_C(3750000000), false, 1}};
    build_kind(_i);
    for (uint64_t t = 0; t < token_start[16]; t += 2)
        if (choices[4 * t + 1] != 0 && choices[4 * t + 2] != 0 && choices[4 * t + 3] != 0)
            choices[4 * t] = 0;
    sim_traffic_free(&traffic);
    sim_timing_close(&timing);
    build(kinds[_i].mode, 16, 64, 4, 128);
    const uint64_t ideal_ps = slowest_ps(kinds[_i].direction, NULL);
    for (int i = 0; i < 2; i++) {
        const uint64_t took_ps = slowest_ps(kinds[_i].direction, &all[i]);
        ck_assert_uint_gt(took_ps, ideal_ps);
        ck_assert_uint_lt(took_ps, 10 * ideal_ps);
    }
}
END_TEST

/* Everything that an exchange says, for comparing: times of messages and ranks, and resources. */
static size_t list_times(enum sim_direction direction, uint64_t *list)
{
    size_t count = 0;
    for (uint64_t m = 0; m < traffic.message_count[direction]; m++) {
        list[count++] = timing.depart_ps[m];
        list[count++] = timing.land_ps[m];
    }
    for (uint32_t r = 0; r < traffic.ranks; r++) {
        list[count++] = timing.end_ps[r];
        list[count++] = timing.send_ps[r];
        list[count++] = timing.wait_ps[r];
    }
    for (uint32_t u = 0; u < timing.resource_count; u++) {
        const struct sim_resource_use *use = &timing.resources[u];
        list[count++] = use->bytes;
        list[count++] = use->busy_ps;
        list[count++] = use->stall_ps;
        list[count++] = use->queue_peak;
    }
    return count;
}

/* Low-latency mode asks NICs in one go where nothing is in the way, and by events where something
 * might be: with buffers that are never full both must find the same. Ranks start apart, so that
 * no two trains come at one instant, whose order is nobody's to say. */
START_TEST(
    events_find_what_order_finds) /* _i: direction; one or more tokens a block; slow engine */
{
    static uint64_t by_order[200000], by_events[200000];
    const struct fabric_network_shape idle = {.control = FABRIC_CONTROL_OFF};
    const enum sim_direction direction = (enum sim_direction)(_i % 2);
    struct sim_rng rng = {.state = (uint64_t)_i};
    build_drawn(SIM_MODE_LL, _i / 2 % 2 == 0 ? 60 : 400);
    machine.port_buffer_bytes = UINT64_C(1) << 40;
    if (_i >= 4) machine.nic_message_ps = fabric_transfer_ps(6 * HIDDEN, 48500000000);
    if (_i >= 4) machine.costs.ll.nic_flag_ps = 700000;
    for (uint32_t r = 0; r < traffic.ranks; r++) start_ps[r] = sim_rng_below(&rng, 40000000);
    ck_assert_uint_le(2 * traffic.message_count[direction] + (uint64_t)traffic.ranks * 27, 200000);
    (void)slowest_ps(direction, NULL);
    const size_t count = list_times(direction, by_order);
    (void)slowest_ps(direction, &idle);
    memset(start_ps, 0, sizeof start_ps);
    ck_assert_uint_eq(list_times(direction, by_events), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(by_order[i] == by_events[i], "seed %d: %zu of %zu: %llu and %llu", _i, i,
                      count, (unsigned long long)by_order[i], (unsigned long long)by_events[i]);
}
END_TEST

/* Rank 1 of 4 was told, in this order, of entries 0 and 1 for rank 0, 2 for rank 3, 3 for rank 2.
 */
START_TEST(a_nic_serves_its_destinations_in_turn)
{
    uint32_t first[4], *last[4], next[5];
    struct ll_queue queue = {.first = first, .last = last, .next = next, .ranks = 4};
    ll_queue_clear(&queue, 1);
    ll_queue_push(&queue, 0, 0);
    ll_queue_push(&queue, 0, 1);
    ll_queue_push(&queue, 3, 2);
    ll_queue_push(&queue, 2, 3);
    ck_assert_uint_eq(ll_queue_pop(&queue), 3);
    ck_assert_uint_eq(ll_queue_pop(&queue), 2);
    ck_assert_uint_eq(ll_queue_pop(&queue), 0);
    ll_queue_push(&queue, 3, 4); /* Behind nobody: 3 has its turn before 0 again. */
    ck_assert_uint_eq(ll_queue_pop(&queue), 4);
    ck_assert_uint_eq(ll_queue_pop(&queue), 1);
    ck_assert_uint_eq(queue.waiting, 0);
}
END_TEST

/* All ranks ring by expert, so all at once for the same ranks: in turn, nobody ends long after the
 * others. In the order of the doorbells the last of these eight nodes ended much later. */
START_TEST(the_last_nodes_do_not_starve)
{
    const struct sim_generator generator = {
        .kind = SIM_GENERATOR_UNIFORM, .experts = 256, .topk = 4, .nodes = 8, .seed = 5};
    uint64_t node_ps[8] = {0};
    for (uint32_t r = 0; r < 32; r++)
        sim_generator_draw(&generator, 0, 0, r, 128, choices + (size_t)r * 128 * 4);
    build(SIM_MODE_LL, 32, 256, 4, 128);
    (void)slowest_ps(SIM_DISPATCH, NULL);
    for (uint32_t r = 0; r < 32; r++) node_ps[r / 4] += timing.end_ps[r] / 4;
    for (int n = 1; n < 8; n++) {
        ck_assert_uint_lt(10 * node_ps[n], 11 * node_ps[0]);
        ck_assert_uint_lt(10 * node_ps[0], 11 * node_ps[n]);
    }
}
END_TEST

START_TEST(a_seed_gives_one_digest_and_another_seed_other_hashes)
{
    struct fabric_network_shape other = hashed;
    other.seed = 2;
    build_kind(_i);
    machine.leaf_nodes = machine.leaf_uplinks = 2;
    (void)slowest_ps(kinds[_i].direction, &hashed);
    const uint64_t digest = timing.digest;
    (void)slowest_ps(kinds[_i].direction, &other);
    ck_assert_uint_ne(timing.digest, digest);
    (void)slowest_ps(kinds[_i].direction, &hashed);
    ck_assert_uint_eq(timing.digest, digest);
}
END_TEST

Suite *network_time_suite(void)
{
    Suite *suite = suite_create("network_time");
    TCase *tests = tcase_create("exchanges");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_lone_message_is_late_by_the_hops_it_crosses, 0, 2);
    tcase_add_loop_test(tests, a_nic_of_the_protocol_is_one_of_fabric, 0, 2);
    tcase_add_loop_test(tests, oversubscribed_leaves_cost_time, 0, 4);
    tcase_add_loop_test(tests, adaptive_routing_wins_under_load_and_costs_latency_without, 0, 4);
    tcase_add_loop_test(tests, other_traffic_costs_its_rate_and_an_own_lane_guards_ours, 0, 4);
    tcase_add_loop_test(tests, an_own_lane_is_a_narrower_nic, 0, 4);
    tcase_add_loop_test(tests, a_narrow_pcie_link_is_a_narrow_nic, 0, 4);
    tcase_add_test(tests, incast_holds_up_bystanders_and_congestion_control_frees_them);
    tcase_add_test(tests, congestion_control_costs_the_bottleneck_its_headroom);
    tcase_add_test(tests, normal_mode_on_its_rails_never_sees_a_spine);
    tcase_add_loop_test(tests, leaves_report_what_went_over_their_uplinks, 0, 4);
    tcase_add_loop_test(tests, waits_do_not_breed_waits, 0, 4);
    tcase_add_test(tests, a_nic_serves_its_destinations_in_turn);
    tcase_add_test(tests, the_last_nodes_do_not_starve);
    tcase_add_loop_test(tests, events_find_what_order_finds, 0, 8);
    tcase_add_loop_test(tests, a_seed_gives_one_digest_and_another_seed_other_hashes, 0, 4);
    suite_add_tcase(suite, tests);
    return suite;
}
