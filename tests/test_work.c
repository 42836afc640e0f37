/* tests/test_work.c - the time of a compute kernel: bytes, tiles, waves, what hides and what not.
 *
 * Right values by hand on a machine of round numbers: 1000 GB/s of HBM of which 50 % are reached,
 * 10 SMs that each pull 100 GB/s and multiply 1 TFLOP/s. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "sim/compute.h"
#include "tests/support.h"

static struct fabric_machine machine;
static struct sim_model model;
static char err[512];

#define US UINT64_C(1000000)

static void setup(void)
{
    static const char text[] = "inherits: h100-hgx\nsm_count: 10\nhbm_gbytes_per_s: 1000\n"
                               "compute:\n  hbm_percent: 50\n  sm_stream_gbytes_per_s: 100\n"
                               "  sm_tflop_per_s: 1\n  kernel_us: 5\n  collective_us: 10\n"
                               "  masked_percent: 0\n  expert_launch_us: 0\n  expert_us: 0\n";
    ck_assert_msg(
        fabric_machine_parse("round.yaml", text, sizeof text - 1, &machine, err, sizeof err) == 0,
        "%s", err);
    ck_assert_int_eq(sim_model_load("deepseek-v3", &model, err, sizeof err), 0);
}

START_TEST(bytes_take_the_rate_that_kernels_reach)
{
    const struct sim_work work = {.bytes = 500000};
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 10), US); /* 0.5 MB at 500 GB/s */
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 5), US);
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 2), 5 * US / 2); /* 2 SMs pull 200 GB/s */
}
END_TEST

START_TEST(a_started_wave_takes_as_long_as_a_full_one)
{
    struct sim_work work = {.tiles = 10, .tile_flop = 3000000, .sm_flop_per_s = 1000000000000};
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 10), 3 * US);
    work.tiles = 11;
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 10), 6 * US);
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 3), 12 * US); /* 11 tiles on 3: 4 waves */
}
END_TEST

START_TEST(the_shorter_hides_but_for_its_exposed_part)
{
    struct sim_work work = {.fixed_ps = 7,
                            .bytes = 5000000, /* 10 us */
                            .flop = 40000000, /* 4 us on 10 SMs */
                            .sm_flop_per_s = 1000000000000,
                            .exposed_ppm = 250000};
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 10), 7 + 11 * US);
    work.exposed_ppm = 0;
    ck_assert_uint_eq(sim_work_ps(&machine, &work, 10), 7 + 10 * US);
}
END_TEST

START_TEST(fewer_sms_are_never_faster)
{
    for (uint32_t sms = 1; sms < 10; sms++) {
        const struct sim_work work = {.bytes = 123456789,
                                      .tiles = 37,
                                      .tile_flop = 987654,
                                      .flop = 55555,
                                      .sm_flop_per_s = 1000000000000,
                                      .exposed_ppm = 417000};
        ck_assert_uint_ge(sim_work_ps(&machine, &work, sms), sim_work_ps(&machine, &work, sms + 1));
    }
}
END_TEST

START_TEST(experts_without_rows_cost_no_weights_and_rows_come_in_tiles)
{
    const uint64_t rows[4] = {1, 0, 65, 128};
    const struct sim_experts masked =
        sim_compute_experts(&machine, &model, SIM_LAYOUT_MASKED, rows, 4, 64, 0);
    const uint64_t gate_up = 7168 * 4096, down = 2048 * 7168;

    ck_assert_uint_eq(masked.block_m, 64);
    ck_assert_uint_eq(masked.gate_up.bytes, 3 * gate_up); /* Activations fit the cache. */
    ck_assert_uint_eq(masked.gate_up.tiles, (1 + 2 + 2) * 32);
    ck_assert_uint_eq(masked.gate_up.tile_flop, UINT64_C(2) * 64 * 128 * 7168);
    ck_assert_uint_eq(masked.down.bytes, 3 * down);
    ck_assert_uint_eq(masked.down.tiles, 5 * 56);
    ck_assert_uint_eq(masked.activation.bytes, 194 * 5 * 2048); /* Two BF16 in, one FP8 out. */
    ck_assert_uint_eq(masked.permute.bytes, 0);

    const struct sim_experts sorted =
        sim_compute_experts(&machine, &model, SIM_LAYOUT_CONTIGUOUS, rows, 4, 64, 100);
    ck_assert_uint_eq(sorted.block_m, 128);
    ck_assert_uint_eq(sorted.gate_up.tiles, 3 * 32);
    ck_assert_uint_eq(sorted.permute.bytes, (100 + 194) * (7168 + 56 * 4));
    ck_assert_uint_eq(sorted.unpermute.bytes, (100 + 194) * 2 * 7168);
}
END_TEST

START_TEST(more_rows_per_expert_than_guessed_are_all_computed)
{
    /* masked_m rules the work; the guess only picks the tile. */
    const uint64_t rows[2] = {1024, 0};
    const struct sim_experts work =
        sim_compute_experts(&machine, &model, SIM_LAYOUT_MASKED, rows, 2, 10, 0);
    ck_assert_uint_eq(work.gate_up.tiles, 16 * 32);
}
END_TEST

START_TEST(narrow_weights_are_fewer_bytes_and_wide_arithmetic_is_slower)
{
    const uint64_t rows[1] = {1};
    ck_assert_int_eq(sim_model_load("gpt-oss-20b", &model, err, sizeof err), 0);
    const struct sim_experts work =
        sim_compute_experts(&machine, &model, SIM_LAYOUT_MASKED, rows, 1, 1, 0);
    ck_assert_uint_eq(work.gate_up.bytes, UINT64_C(2880) * 5760 / 32 * 17);
    ck_assert_uint_eq(work.gate_up.sm_flop_per_s, UINT64_C(500000000000));
}
END_TEST

START_TEST(collectives_carry_all_but_a_ranks_own_share)
{
    /* 8 ranks of one node, 370 GB/s a port, 0.68 us a flight: 7/8 of 37 MB and 7 flights. */
    const uint64_t wire_ps = UINT64_C(37000000) * 7 / 8 * 1000000 / 370000;
    const uint64_t flights_ps = 7 * 680000;
    ck_assert_uint_eq(sim_compute_collective(&machine, SIM_ALL_GATHER, 8, 8, 37000000),
                      10 * US + wire_ps + flights_ps);
    ck_assert_uint_eq(sim_compute_collective(&machine, SIM_REDUCE_SCATTER, 8, 8, 37000000),
                      10 * US + wire_ps + flights_ps);
    ck_assert_uint_eq(sim_compute_collective(&machine, SIM_ALL_REDUCE, 8, 8, 37000000),
                      10 * US + 2 * (wire_ps + flights_ps));
    ck_assert_uint_eq(sim_compute_collective(&machine, SIM_ALL_REDUCE, 1, 8, 37000000), 0);
    /* Two nodes: half of it through 8 NICs of 47 GB/s is faster than 15/16 of it at 370. */
    ck_assert_uint_eq(sim_compute_collective(&machine, SIM_ALL_GATHER, 16, 8, 37000000),
                      10 * US + 93750000 + flights_ps + 1800000);
}
END_TEST

START_TEST(padding_follows_the_librarys_rule)
{
    const uint64_t even[4] = {10, 10, 10, 10}, one[4] = {10, 0, 0, 0}, half[4] = {10, 10, 0, 0};
    const enum sim_padding automatic = SIM_PADDING_AUTO;
    ck_assert_int_eq(sim_compute_padding(automatic, even, 4, false), SIM_PADDING_MAX);
    ck_assert_int_eq(sim_compute_padding(automatic, one, 4, false), SIM_PADDING_SUM);
    ck_assert_int_eq(sim_compute_padding(automatic, half, 4, false), SIM_PADDING_SUM);
    ck_assert_int_eq(sim_compute_padding(automatic, even, 4, true), SIM_PADDING_SUM);
    ck_assert_int_eq(sim_compute_padding(automatic, even, 1, true), SIM_PADDING_MAX);
    ck_assert_int_eq(sim_compute_padding(SIM_PADDING_MAX, one, 4, true), SIM_PADDING_MAX);
}
END_TEST

START_TEST(layers_read_what_their_attention_sees)
{
    uint32_t windowed = 0;
    ck_assert_int_eq(sim_model_load("gpt-oss-20b", &model, err, sizeof err), 0);
    for (uint32_t l = 0; l < model.layers; l++) {
        const uint64_t read = sim_compute_read(&model, l, 4096);
        ck_assert(read == 128 || read == 4096);
        windowed += read == 128;
        ck_assert_uint_eq(sim_compute_read(&model, l, 100), 100);
    }
    ck_assert_uint_eq(windowed, 12);
    ck_assert_int_eq(sim_model_load("glm-5.3-article", &model, err, sizeof err), 0);
    ck_assert_uint_eq(sim_compute_read(&model, 5, 8192), 2048);
}
END_TEST

START_TEST(attention_reads_latents_once_per_request_whatever_it_verifies)
{
    const struct sim_attention one = {.requests = 4, .rows = 4, .context = 1000, .heads_split = 1};
    struct sim_attention six = one;
    struct sim_work projection[2], core[2];
    six.rows = 24;
    sim_compute_attention(&machine, &model, &one, &projection[0], &core[0]);
    sim_compute_attention(&machine, &model, &six, &projection[1], &core[1]);
    ck_assert_uint_eq(core[0].bytes, 4 * 1000 * 656);
    ck_assert_uint_eq(core[1].bytes, core[0].bytes);
    ck_assert_uint_eq(core[0].flop, UINT64_C(4) * 1000 * 278528);
    ck_assert_uint_eq(core[1].flop, 6 * core[0].flop);
    ck_assert_uint_eq(projection[1].flop, 6 * projection[0].flop);
    ck_assert_uint_eq(projection[1].bytes, 203882496);
    six.heads_split = 2;
    sim_compute_attention(&machine, &model, &six, &projection[1], &core[1]);
    ck_assert_uint_eq(core[1].bytes, core[0].bytes); /* Every rank reads all latents. */
    ck_assert_uint_eq(core[1].flop, 3 * core[0].flop);
    ck_assert_uint_eq(projection[1].bytes, 203882496 / 2);
}
END_TEST

START_TEST(the_machines_table_is_taken_where_it_answers)
{
    struct fabric_machine h200;
    struct sim_work projection, core;
    struct sim_attention attention = {
        .requests = 128, .rows = 128, .context = 1024, .heads_split = 1, .table = true};
    ck_assert_int_eq(fabric_machine_load("h200-hgx", &h200, err, sizeof err), 0);
    sim_compute_attention(&h200, &model, &attention, &projection, &core);
    const uint64_t whole_ps = sim_work_ps(&h200, &projection, 132) + sim_work_ps(&h200, &core, 132);
    ck_assert_uint_ge(whole_ps, 180800000 * UINT64_C(999) / 1000); /* 180.8 us in the table */
    ck_assert_uint_le(whole_ps, 180800000 * UINT64_C(1001) / 1000);
    attention.table = false;
    sim_compute_attention(&h200, &model, &attention, &projection, &core);
    const uint64_t model_ps = sim_work_ps(&h200, &projection, 132) + sim_work_ps(&h200, &core, 132);
    ck_assert_uint_ne(model_ps, whole_ps);
}
END_TEST

static uint64_t module_ps(const struct fabric_machine *on, uint64_t requests, bool table)
{
    struct sim_work projection, core;
    const struct sim_attention attention = {
        .requests = requests, .rows = requests, .context = 1, .heads_split = 1, .table = table};
    sim_compute_attention(on, &model, &attention, &projection, &core);
    return sim_work_ps(on, &projection, 132) + sim_work_ps(on, &core, 132);
}

START_TEST(between_measured_points_the_models_error_is_interpolated_not_time)
{
    /* At 32 and 256 requests measured time is twice the model's: so it is between, where the model
     * bends (weights until about 90 rows, then multiplications) and a straight line would not. */
    struct fabric_machine on;
    char text[512];
    ck_assert_int_eq(fabric_machine_load("h100-hgx", &on, err, sizeof err), 0);
    const double few_us = 2 * (double)module_ps(&on, 32, false) / 1e6;
    const double many_us = 2 * (double)module_ps(&on, 256, false) / 1e6;
    snprintf(text, sizeof text,
             "inherits: h100-hgx\nattention:\n  model: deepseek-v3\n  tokens: [1]\n"
             "  requests_32_us: [%.6f]\n  requests_256_us: [%.6f]\n",
             few_us, many_us);
    ck_assert_msg(fabric_machine_parse("t.yaml", text, strlen(text), &on, err, sizeof err) == 0,
                  "%s", err);
    const uint64_t twice_ps = 2 * module_ps(&on, 64, false), table_ps = module_ps(&on, 64, true);
    ck_assert_uint_ge(table_ps + 1000, twice_ps);
    ck_assert_uint_le(table_ps, twice_ps + 1000);
}
END_TEST

START_TEST(what_is_unknown_is_asked_for_by_name)
{
    ck_assert_int_eq(sim_compute_check(&machine, &model, err, sizeof err), 0);
    ck_assert_int_eq(sim_model_load("olmoe-1b-7b", &model, err, sizeof err), 0);
    ck_assert_int_eq(sim_compute_check(&machine, &model, err, sizeof err), -1);
    ck_assert_str_eq(err, "model olmoe-1b-7b: attention_params: unknown, and without it a step "
                          "has no time");
    for (size_t i = 0; i < 3; i++) {
        static const char *const complete[] = {"deepseek-v3", "glm-5.3-article", "gpt-oss-20b"};
        ck_assert_int_eq(sim_model_load(complete[i], &model, err, sizeof err), 0);
        ck_assert_int_eq(sim_compute_check(&machine, &model, err, sizeof err), 0);
    }
}
END_TEST

Suite *work_suite(void);
Suite *work_suite(void)
{
    Suite *suite = suite_create("work");
    TCase *tcase = tcase_create("work");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, bytes_take_the_rate_that_kernels_reach);
    tcase_add_test(tcase, a_started_wave_takes_as_long_as_a_full_one);
    tcase_add_test(tcase, the_shorter_hides_but_for_its_exposed_part);
    tcase_add_test(tcase, fewer_sms_are_never_faster);
    tcase_add_test(tcase, experts_without_rows_cost_no_weights_and_rows_come_in_tiles);
    tcase_add_test(tcase, more_rows_per_expert_than_guessed_are_all_computed);
    tcase_add_test(tcase, narrow_weights_are_fewer_bytes_and_wide_arithmetic_is_slower);
    tcase_add_test(tcase, collectives_carry_all_but_a_ranks_own_share);
    tcase_add_test(tcase, padding_follows_the_librarys_rule);
    tcase_add_test(tcase, layers_read_what_their_attention_sees);
    tcase_add_test(tcase, attention_reads_latents_once_per_request_whatever_it_verifies);
    tcase_add_test(tcase, the_machines_table_is_taken_where_it_answers);
    tcase_add_test(tcase, between_measured_points_the_models_error_is_interpolated_not_time);
    tcase_add_test(tcase, what_is_unknown_is_asked_for_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
