/* tests/test_normal_time.c - normal mode's clock: parts, order, bytes, credits.
 *
 * Method: one row on an idle machine, whose time is the sum of its named parts, worked out
 * here from the machine's numbers; then properties over random routing. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/exchange.h"
#include "sim/generator.h"
#include "sim/normal_model.h"
#include "tests/support.h"

Suite *normal_time_suite(void);

enum { HIDDEN = 1024, DISPATCH_BYTES = 2000, COMBINE_BYTES = 3000, RANKS_MAX = 32 };

static char err[256];
static struct fabric_machine machine;
static struct sim_engine *engine;

/* Every part another prime number of picoseconds, so that no sum can hide a swap. */
static void toy_machine(void)
{
    struct fabric_normal_costs *costs = &machine.costs.normal;
    memset(&machine, 0, sizeof machine);
    machine.sm_count = 132;
    machine.gpus_per_node = 2;
    machine.nvlink_bytes_per_s = machine.nvlink_goodput_bytes_per_s = UINT64_C(1000000000000);
    machine.nic_bytes_per_s = machine.nic_goodput_bytes_per_s = UINT64_C(100000000000);
    machine.nvlink_flight_ps = 100003;
    machine.nic_flight_ps = 1000003;
    machine.nic_message_ps = 5003;
    size_t count;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++) /* Rates so high that a row takes 1 ps a kilobyte. */
        *fabric_cost_at(&machine.costs, &fields[i]) = fields[i].min > 0 ? fields[i].max : 0;
    costs->dispatch_call_ps = 10007;
    costs->combine_call_ps = 10009;
    costs->dispatch_kernel_ps = 10037;
    costs->combine_kernel_ps = 10039;
    costs->exchange_ps = 30011;
    costs->exchange_node_ps = 30013;
    costs->exchange_token_ps = 17;
    costs->cached_token_ps = 19;
    costs->cached_row_ps = 23;
    costs->poll_ps = 20011;
    costs->publish_ps = 20021;
    costs->scan_ps = 20023;
    costs->visit_ps = 50033;
    costs->put_ps = 50023;
    costs->crowd_ppm = costs->cold_ppm = 0;
    costs->link_ppm = 1000000;
    costs->send_row_ps = 40009;
    costs->bulk_row_ps = 40013;
    costs->return_row_ps = 40031;
    costs->sum_step_ps = 41;
    costs->merge_step_ps = 53;
}

static void setup(void)
{
    toy_machine();
    engine = sim_engine_open(64, err, sizeof err);
    ck_assert_ptr_nonnull(engine);
}

/* --- one layer's exchange -------------------------------------------------------------------- */

struct layer {
    struct ref_routing routing;
    struct sim_traffic traffic;
    uint64_t token_start[RANKS_MAX + 1];
    uint64_t start_ps[RANKS_MAX];
    int64_t *ids;
    struct sim_exchange exchange;
    struct sim_timing timing;
};

static void layer_open(struct layer *layer, uint32_t ranks, uint32_t experts, uint32_t topk,
                       enum sim_direction direction, uint32_t sms)
{
    struct sim_traffic_shape shape = {
        .mode = SIM_MODE_NORMAL, .ranks_per_node = machine.gpus_per_node, .nvlink = true};
    layer->routing = (struct ref_routing){.ranks = ranks,
                                          .experts = experts,
                                          .topk = topk,
                                          .token_start = layer->token_start,
                                          .topk_idx = layer->ids};
    shape.row_bytes[SIM_DISPATCH] = shape.formula_bytes[SIM_DISPATCH] = DISPATCH_BYTES;
    shape.row_bytes[SIM_COMBINE] = shape.formula_bytes[SIM_COMBINE] = COMBINE_BYTES;
    memset(&layer->traffic, 0, sizeof layer->traffic);
    ck_assert_int_eq(sim_traffic_build(&layer->routing, &shape, &layer->traffic, err, sizeof err),
                     0);
    layer->exchange = (struct sim_exchange){.machine = &machine,
                                            .traffic = &layer->traffic,
                                            .direction = direction,
                                            .hidden = HIDDEN,
                                            .payload_bytes = 1,
                                            .sms = sms,
                                            .start_ps = layer->start_ps};
    ck_assert_int_eq(sim_timing_open(&layer->timing, ranks, layer->traffic.message_count[direction],
                                     err, sizeof err),
                     0);
}

static void layer_time(struct layer *layer)
{
    ck_assert_int_eq(sim_normal_time(engine, &layer->exchange, &layer->timing, err, sizeof err), 0);
}

static void layer_close(struct layer *layer)
{
    sim_timing_close(&layer->timing);
    sim_traffic_free(&layer->traffic);
    free(layer->ids);
    layer->ids = NULL;
}

/* Rank 0 has one token, for the only expert of rank `to`; nobody else has any. */
static void one_token(struct layer *layer, uint32_t ranks, uint32_t to,
                      enum sim_direction direction)
{
    memset(layer, 0, sizeof *layer);
    layer->ids = (int64_t *)calloc(1, sizeof *layer->ids);
    layer->ids[0] = to;
    for (uint32_t r = 1; r <= ranks; r++) layer->token_start[r] = 1;
    for (uint32_t r = 0; r < ranks; r++) layer->start_ps[r] = 1000;
    layer_open(layer, ranks, ranks, 1, direction, 2);
    layer_time(layer);
}

/* Uniform routing, or over several nodes limited to four of them. */
static void random_layer(struct layer *layer, uint32_t ranks, uint32_t tokens,
                         enum sim_direction direction, uint32_t sms)
{
    const uint32_t nodes = ranks / machine.gpus_per_node;
    struct sim_generator generator = {
        .kind = SIM_GENERATOR_UNIFORM, .experts = 256, .topk = 8, .nodes = nodes, .seed = 7};
    memset(layer, 0, sizeof *layer);
    if (nodes > 1) {
        generator.kind = SIM_GENERATOR_LIMITED;
        generator.parameter = nodes < 4 ? nodes : 4;
    }
    layer->ids = (int64_t *)calloc((size_t)ranks * tokens * 8, sizeof *layer->ids);
    for (uint32_t r = 0; r < ranks; r++) {
        layer->token_start[r + 1] = layer->token_start[r] + tokens;
        sim_generator_draw(&generator, 0, 0, r, tokens, layer->ids + (size_t)r * tokens * 8);
    }
    layer_open(layer, ranks, 256, 8, direction, sms);
    layer_time(layer);
}

static uint64_t slowest_ps(const struct layer *layer)
{
    uint64_t slowest = 0;
    for (uint32_t r = 0; r < layer->traffic.ranks; r++)
        if (layer->timing.end_ps[r] > slowest) slowest = layer->timing.end_ps[r];
    return slowest;
}

/* --- closed forms ---------------------------------------------------------------------------- */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}
/* At 100 TB/s, the highest rate a machine file may say. */
static uint64_t warp_ps(uint64_t bytes)
{
    return ceil_div(bytes, 100);
}

START_TEST(a_local_row_takes_the_sum_of_its_parts)
{
    const struct fabric_normal_costs *costs = &machine.costs.normal;
    struct layer layer;
    one_token(&layer, 2, 0, SIM_DISPATCH);
    const uint64_t depart = 1000 + costs->poll_ps + costs->scan_ps;
    const uint64_t land = depart + costs->send_row_ps + warp_ps(DISPATCH_BYTES) + costs->publish_ps;
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps + warp_ps(DISPATCH_BYTES);
    ck_assert_uint_eq(layer.timing.depart_ps[0], depart);
    ck_assert_uint_eq(layer.timing.land_ps[0], land);
    ck_assert_uint_eq(layer.timing.end_ps[0], end + costs->dispatch_call_ps);
    ck_assert_uint_eq(layer.timing.end_ps[1], 1000 + costs->dispatch_call_ps);
    layer_close(&layer);
}
END_TEST

START_TEST(a_dispatched_row_takes_the_sum_of_its_parts)
{
    const struct fabric_normal_costs *costs = &machine.costs.normal;
    struct layer layer;
    one_token(&layer, 2, 1, SIM_DISPATCH);
    const uint64_t credit = 2 * machine.nvlink_flight_ps + costs->poll_ps;
    const uint64_t depart = 1000 + credit + costs->scan_ps;
    const uint64_t sent = depart + costs->send_row_ps + warp_ps(DISPATCH_BYTES) + costs->publish_ps;
    const uint64_t land = sent + machine.nvlink_flight_ps;
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps + warp_ps(DISPATCH_BYTES);
    ck_assert_uint_eq(layer.timing.depart_ps[0], depart);
    ck_assert_uint_eq(layer.timing.land_ps[0], land);
    ck_assert_uint_eq(layer.timing.end_ps[0], sent + costs->dispatch_call_ps);
    ck_assert_uint_eq(layer.timing.end_ps[1], end + costs->dispatch_call_ps);
    ck_assert_uint_eq(layer.timing.awaited[1], 0);
    ck_assert_uint_eq(layer.timing.wait_ps[1], end - 1000);
    /* 2,000 bytes at 1 TB/s and one flight: no schedule is faster. */
    ck_assert_uint_eq(layer.timing.floor_ps, 2000 + machine.nvlink_flight_ps);
    layer_close(&layer);
}
END_TEST

START_TEST(a_combined_row_takes_the_sum_of_its_parts)
{
    const struct fabric_normal_costs *costs = &machine.costs.normal;
    struct layer layer;
    one_token(&layer, 2, 1, SIM_COMBINE);
    const uint64_t steps = HIDDEN / 256;
    const uint64_t depart = 1000 + 2 * machine.nvlink_flight_ps + costs->poll_ps;
    const uint64_t sent =
        depart + costs->return_row_ps + warp_ps(COMBINE_BYTES) + costs->publish_ps;
    const uint64_t land = sent + machine.nvlink_flight_ps;
    const uint64_t end = land + costs->poll_ps + steps * costs->sum_step_ps;
    ck_assert_uint_eq(layer.timing.land_ps[0], land);
    ck_assert_uint_eq(layer.timing.end_ps[1], sent + costs->combine_call_ps);
    ck_assert_uint_eq(layer.timing.end_ps[0], end + costs->combine_call_ps);
    ck_assert_uint_eq(layer.timing.awaited[0], 1);
    layer_close(&layer);
}
END_TEST

/* Rank 0 of node 0 to rank 3 on node 1: over the rail to rank 2, then over NVLink. */
START_TEST(a_row_over_two_hops_takes_the_sum_of_its_parts)
{
    const struct fabric_normal_costs *costs = &machine.costs.normal;
    struct layer layer;
    one_token(&layer, 4, 3, SIM_DISPATCH);
    const uint64_t begin =
        1000 + costs->exchange_ps + costs->exchange_node_ps + costs->exchange_token_ps;
    const uint64_t put = begin + costs->send_row_ps + warp_ps(DISPATCH_BYTES) + costs->put_ps;
    const uint64_t wire = 20000 + 2 * machine.nic_message_ps; /* 2,000 bytes at 100 GB/s. */
    const uint64_t rail = put + wire + machine.nic_flight_ps;
    const uint64_t depart =
        rail + 2 * costs->poll_ps + 2 * machine.nvlink_flight_ps + costs->poll_ps + costs->visit_ps;
    const uint64_t sent = depart + costs->bulk_row_ps + warp_ps(DISPATCH_BYTES) + costs->publish_ps;
    const uint64_t land = sent + machine.nvlink_flight_ps;
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps + warp_ps(DISPATCH_BYTES);
    ck_assert_uint_eq(layer.traffic.message_count[SIM_DISPATCH], 2);
    ck_assert_uint_eq(layer.timing.depart_ps[0], put);
    ck_assert_uint_eq(layer.timing.land_ps[0], rail);
    ck_assert_uint_eq(layer.timing.depart_ps[1], depart);
    ck_assert_uint_eq(layer.timing.land_ps[1], land);
    ck_assert_uint_eq(layer.timing.notify_ps[0], begin - 1000);
    ck_assert_uint_eq(layer.timing.end_ps[0], put + wire + costs->dispatch_kernel_ps);
    ck_assert_uint_eq(layer.timing.end_ps[3], end + costs->dispatch_kernel_ps);
    ck_assert_uint_eq(layer.timing.floor_ps, 20000 + machine.nic_flight_ps);
    layer_close(&layer);
}
END_TEST

START_TEST(a_sum_over_two_hops_takes_the_sum_of_its_parts)
{
    const struct fabric_normal_costs *costs = &machine.costs.normal;
    struct layer layer;
    one_token(&layer, 4, 3, SIM_COMBINE);
    const uint64_t steps = HIDDEN / 256;
    const uint64_t begin = 1000 + costs->exchange_ps + costs->exchange_node_ps +
                           costs->cached_token_ps; /* A quarter of a rail row per rank: 0. */
    const uint64_t depart = begin + 2 * machine.nvlink_flight_ps + costs->poll_ps;
    const uint64_t land = depart + costs->return_row_ps + warp_ps(COMBINE_BYTES) +
                          costs->publish_ps + machine.nvlink_flight_ps;
    const uint64_t put = land + costs->poll_ps + steps * costs->merge_step_ps + costs->put_ps;
    const uint64_t home = put + 30000 + 2 * machine.nic_message_ps + machine.nic_flight_ps;
    const uint64_t end = home + costs->poll_ps + steps * costs->sum_step_ps;
    ck_assert_uint_eq(layer.timing.land_ps[0], land);
    ck_assert_uint_eq(layer.timing.depart_ps[1], put);
    ck_assert_uint_eq(layer.timing.land_ps[1], home);
    ck_assert_uint_eq(layer.timing.end_ps[0], end + costs->combine_kernel_ps);
    ck_assert_uint_eq(layer.timing.awaited[0], 2);
    layer_close(&layer);
}
END_TEST

/* --- properties ------------------------------------------------------------------------------ */

static void load_h200(void)
{
    ck_assert_int_eq(fabric_machine_load("h200-hgx", &machine, err, sizeof err), 0);
}

/* Case of a loop test: direction, ranks. */
static const struct {
    enum sim_direction direction;
    uint32_t ranks;
} shapes[] = {{SIM_DISPATCH, 8}, {SIM_COMBINE, 8}, {SIM_DISPATCH, 16}, {SIM_COMBINE, 16}};

START_TEST(what_leaves_arrives_and_is_counted_once)
{
    struct layer layer;
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 100, shapes[_i].direction, 20);
    const enum sim_direction direction = shapes[_i].direction;
    uint64_t sent[RANKS_MAX][2] = {{0}}, came[RANKS_MAX][2] = {{0}};
    for (uint64_t m = 0; m < layer.traffic.message_count[direction]; m++) {
        const struct sim_message *message = &layer.traffic.messages[direction][m];
        if (message->link_class == SIM_LINK_LOCAL) {
            ck_assert_uint_ge(layer.timing.land_ps[m], layer.timing.depart_ps[m]);
            continue;
        }
        ck_assert_uint_gt(layer.timing.land_ps[m], layer.timing.depart_ps[m]);
        sent[message->src_rank][message->link_class == SIM_LINK_NIC]++;
        came[message->dst_rank][message->link_class == SIM_LINK_NIC]++;
    }
    const uint64_t bytes = layer.traffic.row_bytes[direction];
    for (uint32_t r = 0; r < layer.traffic.ranks; r++) {
        const struct sim_resource_use *use = layer.timing.resources + (size_t)r * 5;
        ck_assert_uint_eq(use[0].bytes, sent[r][0] * bytes);
        ck_assert_uint_eq(use[1].bytes, came[r][0] * bytes);
        ck_assert_uint_eq(use[2].bytes, sent[r][1] * bytes);
        ck_assert_uint_eq(use[3].bytes, came[r][1] * bytes);
        ck_assert_uint_gt(layer.timing.end_ps[r], layer.timing.floor_ps);
    }
    layer_close(&layer);
}
END_TEST

/* The second hop of a row starts only after its first hop landed; in combine, after all rows
 * of the token on that node landed at the forwarder. */
START_TEST(second_hops_follow_first_hops)
{
    struct layer layer;
    load_h200();
    const enum sim_direction direction = _i == 0 ? SIM_DISPATCH : SIM_COMBINE;
    random_layer(&layer, 16, 150, direction, 20);
    static uint64_t landed[16][150][2];
    const struct sim_message *messages = layer.traffic.messages[direction];
    uint64_t seconds = 0;
    for (int hop = 0; hop < 2; hop++) {
        for (uint64_t m = 0; m < layer.traffic.message_count[direction]; m++) {
            const struct sim_message *message = &messages[m];
            const uint32_t forwarder = message->hop == 0 ? message->dst_rank : message->src_rank;
            uint64_t *land = &landed[message->home_rank][message->token][forwarder / 8];
            if (message->hop != hop) continue;
            if (hop == 0 && layer.timing.land_ps[m] > *land) *land = layer.timing.land_ps[m];
            if (hop == 0) continue;
            ck_assert_uint_gt(*land, 0);
            ck_assert_uint_ge(layer.timing.depart_ps[m], *land);
            seconds++;
        }
    }
    ck_assert_uint_gt(seconds, 16 * 150);
    layer_close(&layer);
}
END_TEST

START_TEST(the_same_run_gives_the_same_digest)
{
    struct layer layer;
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 64, shapes[_i].direction, 16);
    const uint64_t digest = layer.timing.digest, events = layer.timing.events;
    const uint64_t slowest = slowest_ps(&layer);
    layer_time(&layer);
    ck_assert_uint_eq(layer.timing.digest, digest);
    ck_assert_uint_eq(layer.timing.events, events);
    ck_assert_uint_eq(slowest_ps(&layer), slowest);
    layer_close(&layer);
}
END_TEST

START_TEST(times_do_not_depend_on_who_asks_for_rows)
{
    struct layer layer;
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 64, shapes[_i].direction, 16);
    const uint64_t slowest = slowest_ps(&layer);
    sim_timing_close(&layer.timing);
    ck_assert_int_eq(sim_timing_open(&layer.timing, layer.traffic.ranks, 0, err, sizeof err), 0);
    layer_time(&layer);
    ck_assert_uint_eq(slowest_ps(&layer), slowest);
    layer_close(&layer);
}
END_TEST

/* More SMs help until a link is full, and cost at most a few percent then: each SM's share
 * arrives in smaller pieces. */
START_TEST(more_sms_are_never_much_slower)
{
    uint64_t least = UINT64_MAX;
    load_h200();
    for (uint32_t sms = 4; sms <= 24; sms += 4) {
        struct layer layer;
        random_layer(&layer, shapes[_i].ranks, 600, shapes[_i].direction, sms);
        const uint64_t now = slowest_ps(&layer);
        if (least != UINT64_MAX) ck_assert_uint_le(now, least + least / 20);
        if (now < least) least = now;
        layer_close(&layer);
    }
}
END_TEST

START_TEST(a_late_rank_delays_all_and_is_named)
{
    struct layer layer;
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 32, shapes[_i].direction, 16);
    const uint64_t prompt = slowest_ps(&layer);
    layer.start_ps[5] = 1000000000; /* A millisecond late. */
    layer_time(&layer);
    ck_assert_uint_eq(slowest_ps(&layer), prompt + 1000000000);
    ck_assert_uint_eq(layer.timing.awaited[2], 5);
    ck_assert_uint_eq(layer.timing.wait_ps[2], 1000000000);
    ck_assert_uint_lt(layer.timing.notify_ps[5], layer.timing.notify_ps[2]);
    layer_close(&layer);
}
END_TEST

START_TEST(the_best_chunk_is_no_slower_than_the_table)
{
    struct layer layer;
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 300, shapes[_i].direction, 20);
    const uint64_t table = slowest_ps(&layer);
    layer.exchange.best_chunk = true;
    layer_time(&layer);
    ck_assert_uint_le(slowest_ps(&layer), table);
    layer_close(&layer);
}
END_TEST

/* A ring that holds little more than a chunk makes the sender wait for every drain. */
START_TEST(a_small_ring_is_slower)
{
    struct layer layer;
    struct normal_plan plan;
    uint64_t end_ps[2] = {0, 0};
    load_h200();
    random_layer(&layer, shapes[_i].ranks, 1500, shapes[_i].direction, 4);
    ck_assert_int_eq(normal_plan_open(&layer.traffic, 2, 0, &plan, err, sizeof err), 0);
    for (int small = 0; small < 2; small++) {
        struct normal_run run = {.plan = &plan,
                                 .engine = engine,
                                 .combine = shapes[_i].direction == SIM_COMBINE,
                                 .nvl_chunk = 6,
                                 .nvl_slots = small ? (_i == 3 ? 14 : 7) : 288,
                                 .rdma_chunk = 8,
                                 .rdma_slots = small ? 16 : 128};
        normal_costs_init(&run.costs, &layer.exchange);
        ck_assert_int_eq(normal_run_open(&run, false, err, sizeof err), 0);
        ck_assert_int_eq(normal_run_kernel(&run, err, sizeof err), 0);
        for (uint32_t r = 0; r < plan.ranks; r++)
            end_ps[small] = normal_max(end_ps[small], run.ranks[r].end_ps);
        normal_run_close(&run);
    }
    ck_assert_uint_gt(end_ps[1], end_ps[0]);
    normal_plan_close(&plan);
    layer_close(&layer);
}
END_TEST

/* Each number of the machine moves the times it should, up when it costs more. */
static const struct {
    const char *name;
    uint32_t shape; /* Of shapes. */
} movers[] = {
    {"dispatch_call_ps", 0},
    {"combine_call_ps", 1},
    {"dispatch_kernel_ps", 2},
    {"combine_kernel_ps", 3},
    {"exchange_ps", 2},
    {"exchange_ps", 3},
    {"exchange_node_ps", 2},
    {"exchange_token_ps", 2},
    {"cached_token_ps", 3},
    {"cached_row_ps", 3},
    {"poll_ps", 0},
    {"poll_ps", 1},
    {"poll_ps", 2},
    {"poll_ps", 3},
    {"publish_ps", 0},
    {"publish_ps", 1},
    {"publish_ps", 2},
    {"scan_ps", 0},
    {"visit_ps", 2},
    {"put_ps", 2},
    {"put_ps", 3},

    {"crowd_ppm", 1},
    {"send_row_ps", 0},
    {"send_row_ps", 2},
    {"send_warp_bytes_per_s", 0},
    {"send_block_bytes_per_s", 0},
    {"send_block_bytes_per_s", 2},
    {"bulk_row_ps", 0},
    {"bulk_row_ps", 2},
    {"bulk_warp_bytes_per_s", 2},
    {"bulk_block_bytes_per_s", 0},
    {"return_row_ps", 1},
    {"return_row_ps", 3},
    {"return_warp_bytes_per_s", 1},
    {"return_block_bytes_per_s", 1},
    {"return_block_bytes_per_s", 3},
    {"sum_step_ps", 1},
    {"sum_step_ps", 3},
    {"sum_block_bytes_per_s", 1},
    {"merge_step_ps", 3},
    {"merge_block_bytes_per_s", 3},
};

/* A few tokens, whose time is latency, and many in large chunks, which fill what is shared. */
static uint64_t few_and_many_ps(uint32_t shape)
{
    struct layer layer;
    random_layer(&layer, shapes[shape].ranks, 8, shapes[shape].direction, 8);
    uint64_t sum_ps = slowest_ps(&layer);
    layer_close(&layer);
    random_layer(&layer, shapes[shape].ranks, 400, shapes[shape].direction, 8);
    if (shapes[shape].ranks == 8) layer.exchange.nvl_chunk = 16;
    layer_time(&layer);
    sum_ps += slowest_ps(&layer);
    layer_close(&layer);
    return sum_ps;
}

START_TEST(a_dearer_part_makes_its_exchange_slower)
{
    load_h200();
    const struct fabric_cost_field *field = fabric_cost_find("normal", movers[_i].name);
    ck_assert_ptr_nonnull(field);
    uint64_t *value = fabric_cost_at(&machine.costs, field);
    const uint64_t before = few_and_many_ps(movers[_i].shape);
    const bool rate = strstr(field->name, "per_s") != NULL;
    /* Four times slower, or three times as long. */
    *value = rate ? *value / 4 : *value * 3 + 1000;
    ck_assert_msg(few_and_many_ps(movers[_i].shape) > before, "%s does not move shape %u",
                  field->name, movers[_i].shape);
}
END_TEST

Suite *normal_time_suite(void)
{
    Suite *suite = suite_create("normal_time");
    TCase *forms = tcase_create("closed forms");
    tcase_add_checked_fixture(forms, setup, NULL);
    tcase_add_test(forms, a_local_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_dispatched_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_combined_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_row_over_two_hops_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_sum_over_two_hops_takes_the_sum_of_its_parts);
    suite_add_tcase(suite, forms);
    TCase *properties = tcase_create("properties");
    const int count = (int)(sizeof shapes / sizeof shapes[0]);
    tcase_set_timeout(properties, 20);
    tcase_add_checked_fixture(properties, setup, NULL);
    tcase_add_loop_test(properties, what_leaves_arrives_and_is_counted_once, 0, count);
    tcase_add_loop_test(properties, second_hops_follow_first_hops, 0, 2);
    tcase_add_loop_test(properties, the_same_run_gives_the_same_digest, 0, count);
    tcase_add_loop_test(properties, times_do_not_depend_on_who_asks_for_rows, 0, count);
    tcase_add_loop_test(properties, more_sms_are_never_much_slower, 0, count);
    tcase_add_loop_test(properties, a_late_rank_delays_all_and_is_named, 0, count);
    tcase_add_loop_test(properties, the_best_chunk_is_no_slower_than_the_table, 0, count);
    tcase_add_loop_test(properties, a_small_ring_is_slower, 0, count);
    tcase_add_loop_test(properties, a_dearer_part_makes_its_exchange_slower, 0,
                        (int)(sizeof movers / sizeof movers[0]));
    suite_add_tcase(suite, properties);
    return suite;
}
