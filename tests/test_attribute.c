/* tests/test_attribute.c - an exchange's time in parts: exact sums, and parts that move rightly.
 *
 * Method: the short way (parts that cannot matter left out, shifts asked about once) must give
 * what the long way gives, every order of all eight parts, over random exchanges of both modes;
 * then figures worked out by hand; then each knob moves its own part. */
#include "tests/attribute_layer.h"

Suite *attribute_suite(void);

enum { ALL_PARTS = (1u << SIM_PART_OTHER) - 1, LOOPS = 24 };

static struct sim_vary_bench *bench;
static char err[256];

static void setup(void)
{
    bench = sim_vary_open(1, err, sizeof err);
    ck_assert_msg(bench != NULL, "%s", err);
}

static struct sim_attribution kept[8]; /* Freed when the test ends. */
static size_t kept_count;

static void teardown(void)
{
    for (size_t i = 0; i < kept_count; i++) sim_attribution_free(&kept[i]);
    kept_count = 0;
    sim_vary_close(bench);
}

static struct sim_attribution attribute(const struct sim_exchange *exchange)
{
    struct sim_attribution made = {.ranks = 0};
    const int status = sim_attribute(bench, exchange, sim_attribute_parts(exchange),
                                     sim_attribute_shifts(exchange), &made, err, sizeof err);
    ck_assert_msg(status == 0, "%s", err);
    ck_assert_uint_lt(kept_count, sizeof kept / sizeof kept[0]);
    kept[kept_count++] = made;
    return made;
}

static int64_t slowest_part(const struct sim_attribution *made, enum sim_part part)
{
    return made->part_ps[(size_t)made->slowest * SIM_PARTS + part];
}

/* A small exchange of either mode and any machine, some with late ranks, short rings, halves. */
static struct layer *random_layer(int seed)
{
    static const char *const MACHINES[] = {"h100-hgx", "h200-pair", "h800-hgx-nonvl", "h100-hgx"};
    uint64_t state = (uint64_t)seed;
    struct layer_shape shape = {.machine = MACHINES[test_below(&state, 4)],
                                .mode = test_below(&state, 2) ? SIM_MODE_LL : SIM_MODE_NORMAL,
                                .direction = (enum sim_direction)test_below(&state, 2),
                                .topk = 1 + test_below(&state, 4),
                                .tokens = 1 + test_below(&state, 24),
                                .hidden = 1024 * (1 + test_below(&state, 4)),
                                .sms = 2 * (1 + test_below(&state, 6)),
                                .uneven = test_below(&state, 2) == 0};
    shape.ranks = test_below(&state, 2) ? 8 : strcmp(shape.machine, "h200-pair") ? 16 : 2;
    if (strcmp(shape.machine, "h200-pair") == 0) shape.ranks = 2;
    shape.experts = shape.ranks * (1 + test_below(&state, 2));
    if (shape.topk > shape.experts) shape.topk = shape.experts;
    if (shape.mode == SIM_MODE_LL && test_below(&state, 2)) shape.qp_depth = 4;
    struct layer *layer = layer_make(&shape, (uint64_t)seed);
    const bool late = test_below(&state, 2) == 0;
    for (uint32_t r = 0; late && r < shape.ranks; r++)
        layer->start_ps[r] = test_below(&state, 30000000);
    if (shape.mode == SIM_MODE_LL && test_below(&state, 3) == 0) {
        layer->exchange.hook = true;
        layer->exchange.pause_ps = test_below(&state, 20000000);
    }
    if (test_below(&state, 3) == 0) {
        static const struct fabric_network_shape network = {.routing = FABRIC_ROUTING_STATIC,
                                                            .control = FABRIC_CONTROL_OFF,
                                                            .background_bytes_per_s = 10000000000,
                                                            .seed = 3};
        if (fabric_network_check(&network, &layer->machine, err, sizeof err) == 0)
            layer->exchange.network = &network;
    }
    return layer;
}

START_TEST(parts_sum_to_the_time_and_leaving_parts_out_changes_no_share)
{
    struct layer *layer = random_layer(1000 + _i);
    struct sim_attribution quick = attribute(&layer->exchange), slow = {.ranks = 0};
    struct sim_timing timing = {.ranks = 0};
    struct sim_engine *engine = sim_engine_open(64, err, sizeof err);
    const uint32_t ranks = layer->traffic.ranks;

    ck_assert_int_eq(sim_attribute(bench, &layer->exchange, ALL_PARTS, 0, &slow, err, sizeof err),
                     0);
    ck_assert_int_eq(sim_timing_open(&timing, ranks,
                                     layer->traffic.message_count[layer->exchange.direction], err,
                                     sizeof err),
                     0);
    ck_assert_int_eq(sim_exchange_time(engine, &layer->exchange, &timing, err, sizeof err), 0);
    for (uint32_t r = 0; r < ranks; r++) {
        const int64_t *part_ps = quick.part_ps + (size_t)r * SIM_PARTS;
        int64_t sum_ps = 0;
        for (uint32_t part = 0; part < SIM_PARTS; part++) {
            const int64_t other_ps = slow.part_ps[(size_t)r * SIM_PARTS + part];
            sum_ps += part_ps[part];
            /* Remainders of the average may fall elsewhere: a picosecond a part. */
            ck_assert_msg(part_ps[part] - other_ps <= 1 && other_ps - part_ps[part] <= 1,
                          "seed %d, rank %u, %s: %lld, the long way %lld", 1000 + _i, r,
                          sim_part_name((enum sim_part)part), (long long)part_ps[part],
                          (long long)other_ps);
        }
        ck_assert_int_eq(sum_ps, (int64_t)sim_timing_took_ps(&timing, &layer->exchange, r));
        ck_assert_int_le(part_ps[SIM_PART_OTHER], 1000000); /* A picosecond a row or two. */
    }
    sim_attribution_free(&slow);
    sim_timing_close(&timing);
    sim_engine_close(engine);
}
END_TEST

static const struct layer_shape ll_two_nodes = {.machine = "h100-hgx",
                                                .mode = SIM_MODE_LL,
                                                .direction = SIM_DISPATCH,
                                                .ranks = 16,
                                                .experts = 32,
                                                .topk = 8,
                                                .tokens = 64,
                                                .hidden = 7168};

START_TEST(every_cost_of_a_machine_belongs_to_a_part)
{
    /* Work of SMs, by name: whoever adds a cost decides where it belongs. */
    static const char *const SM[] = {"token_chain_ps",
                                     "sm_copy_bytes_per_s",
                                     "sm_store_bytes_per_s",
                                     "receive_chain_ps",
                                     "row_chain_ps",
                                     "stage_ps",
                                     "reduce_chain_ps",
                                     "scan_ps",
                                     "visit_ps",
                                     "crowd_ppm",
                                     "cold_ps",
                                     "scale_ppm",
                                     "cache_bytes"};
    size_t count = 0;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++) {
        const char *name = fields[i].name;
        if (strcmp(fields[i].section, "compute") == 0) continue; /* No part of an exchange. */
        bool known = sim_part_of_cost(i) != SIM_PART_SM;
        for (size_t s = 0; s < sizeof SM / sizeof SM[0]; s++) known |= strcmp(SM[s], name) == 0;
        static const char *const WORK[] = {"receive_bytes", "send_", "bulk_",  "forward_",
                                           "return_",       "sum_",  "merge_", "reduce_",
                                           "warp_",         "sm_"};
        for (size_t w = 0; w < sizeof WORK / sizeof WORK[0]; w++)
            known |= strstr(name, WORK[w]) != NULL;
        ck_assert_msg(known, "%s.%s: say in sim/parts.c which part of the time it is",
                      fields[i].section, name);
    }
}
END_TEST

START_TEST(a_late_rank_is_waited_for_by_just_that_much)
{
    struct layer *layer = layer_make(&ll_two_nodes, 3);
    const struct sim_attribution even = attribute(&layer->exchange);
    layer->start_ps[5] = UINT64_C(400000000); /* Far beyond the exchange itself. */
    const struct sim_attribution late = attribute(&layer->exchange);

    ck_assert_int_eq(slowest_part(&even, SIM_PART_WAIT), 0);
    ck_assert_uint_ne(late.slowest, 5);
    /* All but rank 5's rows are there long before: the rest takes less than the whole did. */
    ck_assert_int_le(slowest_part(&late, SIM_PART_WAIT), 400000000);
    ck_assert_int_ge(slowest_part(&late, SIM_PART_WAIT), 350000000);
    ck_assert_int_le(late.part_ps[5 * SIM_PARTS + SIM_PART_WAIT], 0); /* It never waits. */
}
END_TEST

START_TEST(a_launch_is_paid_in_full_by_every_rank)
{
    struct layer *layer = layer_make(&ll_two_nodes, 3);
    const struct sim_attribution made = attribute(&layer->exchange);
    const struct fabric_ll_costs *costs = &layer->machine.costs.ll;
    /* 32 experts on 132 SMs: a group a block, 32 blocks. */
    const uint64_t launch_ps = costs->dispatch_launch_ps + 32 * costs->block_launch_ps;
    for (uint32_t r = 0; r < 16; r++)
        ck_assert_int_eq(made.part_ps[r * SIM_PARTS + SIM_PART_LAUNCH], (int64_t)launch_ps);
}
END_TEST

/* One knob turned: its part shrinks, and the time does not grow but for another order in queues. */
static void turns(struct layer *layer, enum sim_part part, enum sim_part scaled)
{
    const struct sim_attribution before = attribute(&layer->exchange);
    sim_part_scale(&layer->machine, scaled, SIM_SCALE_BOTH, 2);
    const struct sim_attribution after = attribute(&layer->exchange);
    ck_assert_int_gt(slowest_part(&before, part), 0);
    ck_assert_int_lt(slowest_part(&after, part), slowest_part(&before, part));
    const uint64_t took_ps = before.took_ps[before.slowest];
    ck_assert_uint_le(after.took_ps[after.slowest], took_ps + took_ps / 200);
}

START_TEST(a_faster_resource_shrinks_its_own_part)
{
    static const enum sim_part PARTS[] = {SIM_PART_LAUNCH, SIM_PART_SYNC, SIM_PART_SM,
                                          SIM_PART_NIC};
    struct layer_shape shape = ll_two_nodes;
    shape.direction = (enum sim_direction)(_i / 4);
    turns(layer_make(&shape, 7), PARTS[_i % 4], PARTS[_i % 4]);
}
END_TEST

START_TEST(normal_modes_resources_shrink_their_own_parts)
{
    static const enum sim_part PARTS[] = {SIM_PART_LAUNCH, SIM_PART_NOTIFY, SIM_PART_SYNC,
                                          SIM_PART_SM, SIM_PART_NIC};
    struct layer_shape shape = ll_two_nodes;
    shape.mode = SIM_MODE_NORMAL;
    shape.sms = 8;
    shape.tokens = 128;
    shape.direction = (enum sim_direction)(_i / 5);
    turns(layer_make(&shape, 7), PARTS[_i % 5], PARTS[_i % 5]);
}
END_TEST

START_TEST(nvlink_counts_where_rows_go_by_nvlink)
{
    struct layer_shape shape = ll_two_nodes;
    shape.ranks = 8;
    shape.tokens = 128;
    struct layer *layer = layer_make(&shape, 7);
    const struct sim_attribution made = attribute(&layer->exchange);
    ck_assert_int_eq(slowest_part(&made, SIM_PART_NIC), 0);
    turns(layer, SIM_PART_NVLINK, SIM_PART_NVLINK);
}
END_TEST

START_TEST(short_rings_stall_and_deep_ones_do_not)
{
    struct layer_shape shape = ll_two_nodes;
    shape.qp_depth = 2;
    struct layer *layer = layer_make(&shape, 7);
    const struct sim_attribution stalled = attribute(&layer->exchange);
    const uint64_t need = sim_attribute_qp_need(&layer->exchange);
    ck_assert_int_gt(slowest_part(&stalled, SIM_PART_QP), 0);
    layer->exchange.qp_depth = (uint32_t)need;
    const struct sim_attribution free = attribute(&layer->exchange);
    ck_assert_int_eq(slowest_part(&free, SIM_PART_QP), 0);
    layer->exchange.qp_depth = (uint32_t)need - 1;
    ck_assert_uint_ne(sim_attribute_parts(&layer->exchange) & 1u << SIM_PART_QP, 0);
}
END_TEST

START_TEST(a_fabric_that_is_not_ideal_has_a_part_of_its_own)
{
    static const struct fabric_network_shape network = {.background_bytes_per_s = 20000000000};
    struct layer *layer = layer_make(&ll_two_nodes, 7);
    const struct sim_attribution ideal = attribute(&layer->exchange);
    layer->exchange.network = &network;
    const struct sim_attribution shared = attribute(&layer->exchange);
    ck_assert_int_eq(slowest_part(&ideal, SIM_PART_FABRIC), 0);
    for (uint32_t r = 0; r < 16; r++) {
        const int64_t added_ps = (int64_t)(shared.took_ps[r] - ideal.took_ps[r]);
        ck_assert_int_eq(shared.part_ps[r * SIM_PARTS + SIM_PART_FABRIC], added_ps);
        ck_assert_int_eq(shared.part_ps[r * SIM_PARTS + SIM_PART_NIC],
                         ideal.part_ps[r * SIM_PARTS + SIM_PART_NIC]);
    }
    ck_assert_int_gt(slowest_part(&shared, SIM_PART_FABRIC), 0);
}
END_TEST

START_TEST(threads_change_nothing)
{
    struct layer *layer = random_layer(77);
    struct sim_vary_bench *wide = sim_vary_open(3, err, sizeof err);
    struct sim_attribution one = attribute(&layer->exchange), three = {.ranks = 0};
    ck_assert_int_eq(sim_attribute(wide, &layer->exchange, sim_attribute_parts(&layer->exchange),
                                   sim_attribute_shifts(&layer->exchange), &three, err, sizeof err),
                     0);
    ck_assert_mem_eq(one.part_ps, three.part_ps, one.ranks * SIM_PARTS * sizeof *one.part_ps);
    sim_attribution_free(&three);
    sim_vary_close(wide);
}
END_TEST

Suite *attribute_suite(void)
{
    Suite *suite = suite_create("attribute");
    TCase *tcase = tcase_create("attribute");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, parts_sum_to_the_time_and_leaving_parts_out_changes_no_share, 0,
                        LOOPS);
    tcase_add_test(tcase, every_cost_of_a_machine_belongs_to_a_part);
    tcase_add_test(tcase, a_late_rank_is_waited_for_by_just_that_much);
    tcase_add_test(tcase, a_launch_is_paid_in_full_by_every_rank);
    tcase_add_loop_test(tcase, a_faster_resource_shrinks_its_own_part, 0, 8);
    tcase_add_loop_test(tcase, normal_modes_resources_shrink_their_own_parts, 0, 10);
    tcase_add_test(tcase, nvlink_counts_where_rows_go_by_nvlink);
    tcase_add_test(tcase, short_rings_stall_and_deep_ones_do_not);
    tcase_add_test(tcase, a_fabric_that_is_not_ideal_has_a_part_of_its_own);
    tcase_add_test(tcase, threads_change_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
