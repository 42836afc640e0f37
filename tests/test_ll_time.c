/* tests/test_ll_time.c - times of low-latency dispatch and combine.
 *
 * Method: one message alone, summed up by hand from named parts of the machine file, equals the
 * simulation to the picosecond; then properties that every exchange has; then every parameter
 * of the machine, moved, moves the result the right way. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/link.h"
#include "fabric/share.h"
#include "sim/exchange.h"
#include "sim/generator.h"
#include "tests/support.h"

Suite *ll_time_suite(void);

enum { HIDDEN = 2048, DISPATCH_ROW = 16 + HIDDEN + HIDDEN / 32, COMBINE_ROW = 2 * HIDDEN };
enum { RANKS_MAX = 16 };

static struct fabric_machine machine;
static struct ref_routing routing;
static struct sim_traffic traffic;
static struct sim_timing timing;
static struct sim_engine *engine;
static uint64_t token_start[RANKS_MAX + 1], start_ps[RANKS_MAX];
static int64_t choices[65536];
static char err[256];

static void load(const char *name)
{
    ck_assert_msg(fabric_machine_load(name, &machine, err, sizeof err) == 0, "%s", err);
    engine = sim_engine_open(64, err, sizeof err);
    ck_assert_ptr_nonnull(engine);
}

/* tokens[r] tokens of rank r; choices are filled by the caller, or drawn when drawn is set. */
static void build(uint32_t ranks, uint32_t experts, uint32_t topk, const uint32_t *tokens,
                  int drawn)
{
    const struct sim_generator generator = {
        .kind = SIM_GENERATOR_UNIFORM, .experts = experts, .topk = topk, .nodes = 1, .seed = 5};
    for (uint32_t r = 0; r < ranks; r++) {
        token_start[r + 1] = token_start[r] + tokens[r];
        ck_assert_uint_le(token_start[r + 1] * topk, sizeof choices / sizeof choices[0]);
        if (drawn)
            sim_generator_draw(&generator, 0, 0, r, tokens[r], choices + token_start[r] * topk);
    }
    routing = (struct ref_routing){.ranks = ranks,
                                   .experts = experts,
                                   .topk = topk,
                                   .token_start = token_start,
                                   .topk_idx = choices};
    const struct sim_traffic_shape shape = {.mode = SIM_MODE_LL,
                                            .ranks_per_node = machine.gpus_per_node,
                                            .nvlink = machine.nvlink_bytes_per_s > 0,
                                            .row_bytes = {DISPATCH_ROW, COMBINE_ROW},
                                            .formula_bytes = {HIDDEN, COMBINE_ROW}};
    ck_assert_int_eq(sim_traffic_build(&routing, &shape, &traffic, err, sizeof err), 0);
    ck_assert_int_eq(
        sim_timing_open(&timing, ranks, traffic.message_count[SIM_DISPATCH], err, sizeof err), 0);
}

static struct sim_exchange exchange_of(enum sim_direction direction)
{
    return (struct sim_exchange){.machine = &machine,
                                 .traffic = &traffic,
                                 .direction = direction,
                                 .hidden = HIDDEN,
                                 .start_ps = start_ps};
}

static void run(const struct sim_exchange *exchange)
{
    ck_assert_msg(sim_ll_time(engine, exchange, &timing, err, sizeof err) == 0, "%s", err);
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t in_series(uint64_t a, uint64_t b)
{
    return (uint64_t)((fabric_u128)a * b / (a + b));
}

static uint64_t bytes_ps(uint64_t bytes, uint64_t a, uint64_t b)
{
    return fabric_transfer_ps(bytes, a < b ? a : b);
}

/* One token of rank 0 to the expert of rank 1, of two: every part once. */
static void build_single(void)
{
    const uint32_t tokens[] = {1, 0};
    choices[0] = 1;
    build(2, 2, 1, tokens, 0);
}

static uint64_t first_instruction(uint64_t launch_ps, uint32_t blocks)
{
    return launch_ps + blocks * machine.costs.ll.block_launch_ps;
}

START_TEST(a_single_nvlink_dispatch_is_the_sum_of_its_parts)
{
    load("h200-hgx");
    build_single();
    const struct fabric_ll_costs *c = &machine.costs.ll;
    const struct sim_exchange exchange = exchange_of(SIM_DISPATCH);
    run(&exchange);
    const uint64_t port =
        in_series(machine.nvlink_goodput_bytes_per_s, c->dispatch_path_bytes_per_s);
    const uint64_t begin_ps = first_instruction(c->dispatch_launch_ps, 2);
    const uint64_t staged_ps =
        begin_ps + c->token_chain_ps +
        fabric_transfer_ps(2 * HIDDEN + DISPATCH_ROW, c->sm_copy_bytes_per_s);
    const uint64_t stored_ps = staged_ps + bytes_ps(DISPATCH_ROW, c->sm_store_bytes_per_s, port);
    const uint64_t landed_ps = stored_ps + machine.nvlink_flight_ps;
    const uint64_t counted_ps = begin_ps + c->expert_pass_ps; /* Block 0's share of the counter. */
    const uint64_t sent_ps = max(landed_ps + machine.nvlink_flight_ps, counted_ps) + c->publish_ps;
    const uint64_t flag_ps = sent_ps + machine.nvlink_flight_ps;
    /* Rank 1 sends nothing, so its barrier is over long before. */
    const uint64_t open_ps = counted_ps + c->publish_ps + c->grid_barrier_ps;
    const uint64_t seen_ps = max(open_ps, flag_ps) + c->receive_chain_ps;
    const uint64_t copied_ps =
        max(bytes_ps(DISPATCH_ROW, c->warp_receive_bytes_per_s, c->receive_bytes_per_s),
            fabric_transfer_ps(DISPATCH_ROW, c->sm_receive_bytes_per_s));
    ck_assert_uint_eq(timing.land_ps[0], landed_ps);
    ck_assert_uint_eq(timing.end_ps[1], seen_ps + copied_ps);
    ck_assert_uint_eq(timing.send_ps[0], sent_ps);
    ck_assert_uint_eq(timing.awaited[1], 0);
    ck_assert_uint_eq(timing.wait_ps[1], flag_ps - open_ps);
    /* Rank 0 receives only empty groups: it ends when rank 1's count and its own are read. */
    ck_assert_uint_eq(timing.end_ps[0], sent_ps + c->grid_barrier_ps + c->receive_chain_ps);
    ck_assert_uint_eq(timing.floor_ps,
                      machine.nvlink_flight_ps +
                          fabric_transfer_ps(DISPATCH_ROW, machine.nvlink_bytes_per_s));
}
END_TEST

START_TEST(a_single_nic_dispatch_is_the_sum_of_its_parts)
{
    load("h100-hgx");
    machine.gpus_per_node = 1;
    build_single();
    const struct fabric_ll_costs *c = &machine.costs.ll;
    const struct sim_exchange exchange = exchange_of(SIM_DISPATCH);
    run(&exchange);
    const uint64_t wire_ps = fabric_transfer_ps(DISPATCH_ROW, machine.nic_goodput_bytes_per_s);
    const uint64_t begin_ps = first_instruction(c->dispatch_launch_ps, 2);
    const uint64_t staged_ps =
        begin_ps + c->token_chain_ps +
        fabric_transfer_ps(2 * HIDDEN + DISPATCH_ROW, c->sm_copy_bytes_per_s);
    const uint64_t sent_ps =
        max(staged_ps + c->post_ps, begin_ps + c->expert_pass_ps) + c->publish_ps;
    /* One message rings no doorbell: it waits for its count's. Then the engine takes one after
     * the other, and the count leaves the wire behind the row. */
    const uint64_t rung_ps = sent_ps + c->post_ps + c->doorbell_ps;
    const uint64_t row_out_ps = rung_ps + machine.nic_message_ps;
    const uint64_t flag_out_ps = max(row_out_ps + c->nic_flag_ps, row_out_ps + wire_ps);
    const uint64_t row_in_ps = row_out_ps + machine.nic_flight_ps + machine.nic_message_ps;
    const uint64_t flag_in_ps =
        max(flag_out_ps + machine.nic_flight_ps + c->nic_flag_ps, row_in_ps + wire_ps);
    const uint64_t copied_ps =
        max(bytes_ps(DISPATCH_ROW, c->warp_receive_bytes_per_s, c->receive_bytes_per_s),
            fabric_transfer_ps(DISPATCH_ROW, c->sm_receive_bytes_per_s));
    ck_assert_uint_eq(timing.depart_ps[0], row_out_ps);
    ck_assert_uint_eq(timing.land_ps[0], row_in_ps + wire_ps);
    ck_assert_uint_eq(timing.end_ps[1], flag_in_ps + c->receive_chain_ps + copied_ps);
}
END_TEST

START_TEST(a_single_nvlink_combine_is_the_sum_of_its_parts)
{
    load("h200-hgx");
    build_single();
    const struct fabric_ll_costs *c = &machine.costs.ll;
    const struct sim_exchange exchange = exchange_of(SIM_COMBINE);
    run(&exchange);
    const uint64_t port =
        in_series(machine.nvlink_goodput_bytes_per_s, c->combine_path_bytes_per_s);
    const uint64_t begin_ps = first_instruction(c->combine_launch_ps, 2);
    const uint64_t left_ps = begin_ps + c->row_chain_ps +
                             max(bytes_ps(COMBINE_ROW, c->warp_send_bytes_per_s, port),
                                 fabric_transfer_ps(COMBINE_ROW, c->sm_send_bytes_per_s));
    const uint64_t landed_ps = left_ps + machine.nvlink_flight_ps;
    const uint64_t sent_ps = landed_ps + machine.nvlink_flight_ps;
    const uint64_t flag_ps = sent_ps + machine.nvlink_flight_ps;
    const uint64_t reduced_ps =
        c->reduce_chain_ps + bytes_ps(COMBINE_ROW, c->sm_reduce_bytes_per_s, c->reduce_bytes_per_s);
    ck_assert_uint_eq(timing.land_ps[0], landed_ps);
    ck_assert_uint_eq(timing.end_ps[0], flag_ps + c->poll_ps + c->grid_barrier_ps + reduced_ps);
    ck_assert_uint_eq(timing.send_ps[1], sent_ps);
    ck_assert_uint_eq(timing.awaited[0], 1);
}
END_TEST

/* ---- what every exchange has ---- */

static void build_two_nodes(void)
{
    const uint32_t tokens[] = {40, 33, 64, 0, 17, 40, 8, 1};
    load("toy-2x4");
    build(8, 64, 8, tokens, 1);
}

START_TEST(every_byte_leaves_and_arrives_once) /* _i: direction */
{
    build_two_nodes();
    struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    uint64_t want[SIM_LINK_CLASSES] = {0}, out[2] = {0}, in[2] = {0};
    run(&exchange);
    for (uint64_t m = 0; m < traffic.message_count[_i]; m++) {
        const struct sim_message *message = &traffic.messages[_i][m];
        want[message->link_class] += traffic.row_bytes[_i];
        ck_assert_uint_gt(timing.depart_ps[m], 0);
        ck_assert_uint_gt(timing.land_ps[m], timing.depart_ps[m]);
        ck_assert_uint_gt(timing.end_ps[message->dst_rank], timing.land_ps[m]);
    }
    for (uint32_t i = 0; i < timing.resource_count; i++) {
        const struct sim_resource_use *use = &timing.resources[i];
        const int nic = strcmp(use->kind, "nic") == 0;
        if (strstr(use->name, "link.out") || strstr(use->name, "nic.out")) out[nic] += use->bytes;
        if (strstr(use->name, "link.in") || strstr(use->name, "nic.in")) in[nic] += use->bytes;
    }
    ck_assert_uint_gt(want[SIM_LINK_NIC], 0);
    ck_assert_uint_eq(out[0], want[SIM_LINK_NVLINK]);
    ck_assert_uint_eq(in[0], want[SIM_LINK_NVLINK]);
    ck_assert_uint_eq(out[1], want[SIM_LINK_NIC]);
    ck_assert_uint_eq(in[1], want[SIM_LINK_NIC]);
    uint64_t last_ps = 0;
    for (uint32_t r = 0; r < 8; r++) last_ps = max(last_ps, timing.end_ps[r]);
    ck_assert_uint_gt(last_ps, timing.floor_ps);
}
END_TEST

START_TEST(the_same_exchange_twice_has_the_same_digest) /* _i: direction */
{
    build_two_nodes();
    struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    run(&exchange);
    const uint64_t digest = timing.digest, events = timing.events, end_ps = timing.end_ps[3];
    exchange.direction = (enum sim_direction)(1 - _i);
    run(&exchange);
    ck_assert_uint_ne(timing.digest, digest);
    exchange.direction = (enum sim_direction)_i;
    run(&exchange);
    ck_assert_uint_eq(timing.digest, digest);
    ck_assert_uint_eq(timing.events, events);
    ck_assert_uint_eq(timing.end_ps[3], end_ps);
}
END_TEST

/* A whole run later by d is the same run later by d; one rank later makes others wait for it. */
START_TEST(a_late_rank_is_awaited) /* _i: direction */
{
    const uint64_t late_ps = 100000000;
    build_two_nodes();
    struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    run(&exchange);
    uint64_t end_ps[8];
    memcpy(end_ps, timing.end_ps, sizeof end_ps);
    for (uint32_t r = 0; r < 8; r++) start_ps[r] = late_ps;
    run(&exchange);
    for (uint32_t r = 0; r < 8; r++) ck_assert_uint_eq(timing.end_ps[r], end_ps[r] + late_ps);
    for (uint32_t r = 0; r < 8; r++) start_ps[r] = r == 5 ? late_ps : 0;
    run(&exchange);
    for (uint32_t r = 0; r < 8; r++) {
        ck_assert_uint_gt(timing.end_ps[r], late_ps);
        if (r == 5) continue;
        ck_assert_uint_eq(timing.awaited[r], 5);
        ck_assert_uint_gt(timing.wait_ps[r], late_ps / 2);
    }
}
END_TEST

START_TEST(hook_mode_splits_the_kernel_in_two) /* _i: direction */
{
    uint64_t recv_start_ps[8];
    build_two_nodes();
    struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    run(&exchange);
    uint64_t whole_ps[8], send_ps[8];
    memcpy(whole_ps, timing.end_ps, sizeof whole_ps);
    memcpy(send_ps, timing.send_ps, sizeof send_ps);
    exchange.hook = true;
    run(&exchange);
    for (uint32_t r = 0; r < 8; r++) {
        ck_assert_uint_eq(timing.send_ps[r], send_ps[r]);
        ck_assert_uint_eq(timing.send_ps[r] + timing.recv_ps[r], timing.end_ps[r]);
        recv_start_ps[r] = 500000000;
    }
    /* Long after all has landed nobody waits, and the receive half is its own work alone. */
    exchange.recv_start_ps = recv_start_ps;
    run(&exchange);
    for (uint32_t r = 0; r < 8; r++) {
        ck_assert_uint_eq(timing.send_ps[r], send_ps[r]);
        ck_assert_uint_eq(timing.wait_ps[r], 0);
        ck_assert_uint_eq(timing.end_ps[r], recv_start_ps[r] + timing.recv_ps[r]);
        ck_assert_uint_lt(timing.recv_ps[r], whole_ps[r]);
    }
}
END_TEST

/* 40 rows of a rank for one far expert. Doorbells ring for every fourth, so the first leaves
 * long before the count; a ring of 8 slots makes the rest wait, and a deep one does not. */
START_TEST(a_shallow_queue_pair_stalls) /* _i: direction */
{
    const uint32_t tokens[] = {40, 0};
    load("h100-hgx");
    machine.gpus_per_node = 1;
    for (int t = 0; t < 40; t++) choices[t] = 1;
    build(2, 2, 1, tokens, 0);
    struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    const uint32_t home = _i == SIM_DISPATCH ? 1 : 0;
    uint64_t end_ps[4], stall_ps[4];
    const uint32_t depths[4] = {0, 41, 8, 1};
    for (int d = 0; d < 4; d++) {
        exchange.qp_depth = depths[d];
        run(&exchange);
        end_ps[d] = timing.end_ps[home];
        stall_ps[d] = 0;
        for (uint32_t i = 0; i < timing.resource_count; i++)
            if (strcmp(timing.resources[i].kind, "qp") == 0)
                stall_ps[d] += timing.resources[i].stall_ps;
        for (int m = 0; m < 40; m++) ck_assert_uint_gt(timing.land_ps[m], 0);
        if (d == 0) ck_assert_uint_lt(timing.depart_ps[0], timing.depart_ps[39]);
    }
    ck_assert_uint_eq(end_ps[0], end_ps[1]);
    ck_assert_uint_eq(stall_ps[1], 0);
    ck_assert_uint_gt(end_ps[2], end_ps[1]);
    ck_assert_uint_gt(end_ps[3], end_ps[2]);
    ck_assert_uint_gt(stall_ps[2], 0);
    ck_assert_uint_gt(stall_ps[3], stall_ps[2]);
}
END_TEST

START_TEST(no_tokens_at_all_still_ends) /* _i: direction */
{
    const uint32_t tokens[8] = {0};
    load("toy-2x4");
    build(8, 64, 8, tokens, 0);
    const struct sim_exchange exchange = exchange_of((enum sim_direction)_i);
    run(&exchange);
    for (uint32_t r = 0; r < 8; r++) ck_assert_uint_gt(timing.end_ps[r], 0);
    ck_assert_uint_eq(timing.floor_ps, 0);
}
END_TEST

/* ---- every parameter moves the result ---- */

/* Sum of all ranks' ends over both directions, one token and many, one node and two: what
 * floors, rates, NVLink and NICs decide are all in it. */
static uint64_t total_ps(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t size = i % 2 ? 64 : 1;
        const uint32_t tokens[] = {size, size, size, size, size, size, size, size};
        machine.gpus_per_node = i / 2 ? 8 : 4;
        build(8, 64, 8, tokens, 1);
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            const struct sim_exchange exchange = exchange_of((enum sim_direction)d);
            run(&exchange);
            for (uint32_t r = 0; r < 8; r++) sum += timing.end_ps[r];
        }
        sim_traffic_free(&traffic);
        sim_timing_close(&timing);
    }
    return sum;
}

START_TEST(every_cost_moves_the_time_the_right_way)
{
    size_t count;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    load("toy-2x4");
    const struct fabric_machine base = machine;
    const uint64_t before = total_ps();
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].section, "ll") != 0) continue;
        uint64_t *value = fabric_cost_at(&machine.costs, &fields[i]);
        if (strstr(fields[i].name, "_per_s"))
            *value /= 8;
        else
            *value += 5000000;
        const uint64_t after = total_ps();
        ck_assert_msg(after > before, "%s: a slower one does not slow anything", fields[i].name);
        machine = base;
    }
}
END_TEST

START_TEST(every_link_figure_moves_the_time_the_right_way)
{
    load("toy-2x4");
    const uint64_t before = total_ps();
    uint64_t *const rates[] = {&machine.nvlink_goodput_bytes_per_s,
                               &machine.nic_goodput_bytes_per_s};
    uint64_t *const spans[] = {&machine.nvlink_flight_ps, &machine.nic_flight_ps,
                               &machine.nic_message_ps};
    for (size_t i = 0; i < 2; i++) {
        const uint64_t kept = *rates[i];
        *rates[i] /= 4;
        ck_assert_msg(total_ps() > before, "rate %zu", i);
        *rates[i] = kept;
    }
    for (size_t i = 0; i < 3; i++) {
        const uint64_t kept = *spans[i];
        *spans[i] += 1000000;
        ck_assert_msg(total_ps() > before, "span %zu", i);
        *spans[i] = kept;
    }
    ck_assert_uint_eq(total_ps(), before);
}
END_TEST

Suite *ll_time_suite(void)
{
    Suite *suite = suite_create("ll time");
    TCase *tests = tcase_create("ll time");
    tcase_add_test(tests, a_single_nvlink_dispatch_is_the_sum_of_its_parts);
    tcase_add_test(tests, a_single_nic_dispatch_is_the_sum_of_its_parts);
    tcase_add_test(tests, a_single_nvlink_combine_is_the_sum_of_its_parts);
    tcase_add_loop_test(tests, every_byte_leaves_and_arrives_once, 0, SIM_DIRECTIONS);
    tcase_add_loop_test(tests, the_same_exchange_twice_has_the_same_digest, 0, SIM_DIRECTIONS);
    tcase_add_loop_test(tests, a_late_rank_is_awaited, 0, SIM_DIRECTIONS);
    tcase_add_loop_test(tests, hook_mode_splits_the_kernel_in_two, 0, SIM_DIRECTIONS);
    tcase_add_loop_test(tests, a_shallow_queue_pair_stalls, 0, SIM_DIRECTIONS);
    tcase_add_loop_test(tests, no_tokens_at_all_still_ends, 0, SIM_DIRECTIONS);
    tcase_add_test(tests, every_cost_moves_the_time_the_right_way);
    tcase_add_test(tests, every_link_figure_moves_the_time_the_right_way);
    suite_add_tcase(suite, tests);
    return suite;
}
