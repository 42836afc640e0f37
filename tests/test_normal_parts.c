/* tests/test_normal_parts.c - normal mode's clock: one row takes the sum of its named parts.
 *
 * Method: one token on an idle machine whose every number is another prime, so that no sum can
 * hide a swap; the time is added up here by hand, to the picosecond. */
#include "tests/normal_layer.h"

Suite *normal_parts_suite(void);

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
    costs->crowd_ppm = costs->cold_ps = 0;
    costs->link_ppm = 1000000;
    costs->send_row_ps = 40009;
    costs->bulk_row_ps = 40013;
    costs->forward_row_ps = 40039;
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
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps;
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
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps;
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
    const uint64_t sent =
        depart + costs->forward_row_ps + warp_ps(DISPATCH_BYTES) + costs->publish_ps;
    const uint64_t land = sent + machine.nvlink_flight_ps;
    const uint64_t end = land + costs->poll_ps + costs->bulk_row_ps;
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

Suite *normal_parts_suite(void)
{
    Suite *suite = suite_create("normal_parts");
    TCase *forms = tcase_create("closed forms");
    tcase_add_checked_fixture(forms, setup, NULL);
    tcase_add_test(forms, a_local_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_dispatched_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_combined_row_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_row_over_two_hops_takes_the_sum_of_its_parts);
    tcase_add_test(forms, a_sum_over_two_hops_takes_the_sum_of_its_parts);
    suite_add_tcase(suite, forms);
    return suite;
}
