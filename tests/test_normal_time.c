/* tests/test_normal_time.c - normal mode's clock under load: order, bytes, credits, SMs.
 *
 * Method: properties over random routing on shipped machines; sums by hand are in
 * tests/test_normal_parts.c. */
#include "sim/generator.h"
#include "sim/normal_model.h"
#include "tests/normal_layer.h"

Suite *normal_time_suite(void);

static void setup(void)
{
    engine = sim_engine_open(64, err, sizeof err);
    ck_assert_ptr_nonnull(engine);
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

static void load(const char *name)
{
    ck_assert_int_eq(fabric_machine_load(name, &machine, err, sizeof err), 0);
}

/* Case of a loop test: direction, ranks. */
static const struct {
    enum sim_direction direction;
    uint32_t ranks;
} shapes[] = {{SIM_DISPATCH, 8}, {SIM_COMBINE, 8}, {SIM_DISPATCH, 16}, {SIM_COMBINE, 16}};

/* Every shape with NVLink, then without: there the NICs carry what stays in a node, too. */
START_TEST(what_leaves_arrives_and_is_counted_once)
{
    struct layer layer;
    const int s = _i / 2;
    const enum sim_direction direction = shapes[s].direction;
    load(_i % 2 == 0 ? "h200-hgx" : "h800-hgx-nonvl");
    random_layer(&layer, shapes[s].ranks, 100, direction, 20);
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
        ck_assert_uint_eq(sent[r][0] > 0, _i % 2 == 0);
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
    load("h200-hgx");
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
    load("h200-hgx");
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
    load("h200-hgx");
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
    load("h200-hgx");
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
    load("h200-hgx");
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
    load("h200-hgx");
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
    load("h200-hgx");
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

/* Each number of the machine moves the exchanges it should, up when it costs more. */
static const char *const movers[][12] = {
    {"dispatch_call_ps", "poll_ps", "publish_ps", "scan_ps", "scale_ppm", "send_row_ps",
     "send_warp_bytes_per_s", "send_block_bytes_per_s", "bulk_row_ps", "bulk_block_bytes_per_s"},
    {"combine_call_ps", "poll_ps", "publish_ps", "crowd_ppm", "return_row_ps",
     "return_warp_bytes_per_s", "return_block_bytes_per_s", "sum_step_ps", "sum_block_bytes_per_s"},
    {"dispatch_kernel_ps", "exchange_ps", "exchange_node_ps", "exchange_token_ps", "poll_ps",
     "publish_ps", "visit_ps", "put_ps", "send_warp_bytes_per_s", "bulk_row_ps", "forward_row_ps",
     "forward_warp_bytes_per_s"},
    {"combine_kernel_ps", "exchange_ps", "cached_token_ps", "cached_row_ps", "poll_ps", "put_ps",
     "return_row_ps", "return_rail_bytes_per_s", "sum_step_ps", "merge_step_ps",
     "merge_block_bytes_per_s"},
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
    load("h200-hgx");
    const struct fabric_costs costs = machine.costs;
    const uint64_t before = few_and_many_ps((uint32_t)_i);
    for (size_t n = 0; n < 12 && movers[_i][n]; n++) {
        const struct fabric_cost_field *field = fabric_cost_find("normal", movers[_i][n]);
        ck_assert_ptr_nonnull(field);
        machine.costs = costs;
        uint64_t *value = fabric_cost_at(&machine.costs, field);
        *value = strstr(field->name, "per_s") ? *value / 4 : *value * 3 + 1000;
        ck_assert_msg(few_and_many_ps((uint32_t)_i) > before, "%s moves nothing", field->name);
    }
}
END_TEST

Suite *normal_time_suite(void)
{
    Suite *suite = suite_create("normal_time");
    TCase *properties = tcase_create("properties");
    const int count = (int)(sizeof shapes / sizeof shapes[0]);
    tcase_set_timeout(properties, 20);
    tcase_add_checked_fixture(properties, setup, NULL);
    tcase_add_loop_test(properties, what_leaves_arrives_and_is_counted_once, 0, 2 * count);
    tcase_add_loop_test(properties, second_hops_follow_first_hops, 0, 2);
    tcase_add_loop_test(properties, the_same_run_gives_the_same_digest, 0, count);
    tcase_add_loop_test(properties, times_do_not_depend_on_who_asks_for_rows, 0, count);
    tcase_add_loop_test(properties, more_sms_are_never_much_slower, 0, count);
    tcase_add_loop_test(properties, a_late_rank_delays_all_and_is_named, 0, count);
    tcase_add_loop_test(properties, the_best_chunk_is_no_slower_than_the_table, 0, count);
    tcase_add_loop_test(properties, a_small_ring_is_slower, 0, count);
    tcase_add_loop_test(properties, a_dearer_part_makes_its_exchange_slower, 0, count);
    suite_add_tcase(suite, properties);
    return suite;
}
