/* tests/test_faults.c - the check can fail: every kind of fault, in every stage and hop of every
 * mode, is reported with the rank, expert, source and channel where it did harm.
 *
 * Method: play one layer whole, then with one fault on a message picked from the traffic, and
 * compare the report with what the message itself says. */
#include "tests/fault_bench.h"
#include "tests/support.h"

Suite *faults_suite(void);

static char err[512];

/* One check of the stage names this message's row. */
static void assert_named(const struct fault_bench *bench, enum sim_direction direction,
                         const struct sim_message *message)
{
    const enum sim_stage stage = direction == SIM_DISPATCH ? SIM_STAGE_DISPATCH : SIM_STAGE_COMBINE;
    const uint32_t ranks = bench->plan->ranks;
    bool found = false;
    for (uint32_t r = 0; r < ranks; r++) {
        const struct sim_check *check = &bench->cell->checks[stage * ranks + r];
        if (check->mismatch_count == 0) continue;
        ck_assert_int_ge(check->channel, 0);
        ck_assert_int_lt(check->channel, (int64_t)bench->plan->hidden);
        ck_assert_str_ne(check->expected_hex, check->actual_hex);
        ck_assert_uint_gt(strlen(check->cause), 0);
        if (check->src_rank != message->home_rank || check->src_token != message->token) continue;
        if (stage == SIM_STAGE_COMBINE) ck_assert_uint_eq(check->rank, message->home_rank);
        if (stage == SIM_STAGE_DISPATCH) ck_assert_int_eq(check->expert, message->expert);
        found = true;
    }
    ck_assert_msg(found, "no check names token %u of rank %u", message->token, message->home_rank);
}

/* One fault of this kind at place _i: what the report must name. */
static void check_fault(int place, enum sim_fault_kind kind)
{
    struct fault_bench bench =
        fault_bench_open(sim_backend_ref(), NULL, FAULT_PLACES[place].mode,
                         FAULT_PLACES[place].machine, FAULT_PLACES[place].ep);
    const enum sim_direction direction = FAULT_PLACES[place].direction;
    uint64_t mismatches[SIM_STAGES];
    struct sim_message other;

    fault_bench_play(&bench, mismatches);
    for (int s = 0; s < SIM_STAGES; s++) ck_assert_uint_eq(mismatches[s], 0);
    const struct sim_message message =
        fault_bench_pick(&bench, direction, FAULT_PLACES[place].hop, &other);
    bench.plan->scenario.count = 1;
    bench.plan->scenario.faults[0] = (struct sim_fault){.kind = kind,
                                                        .stage = direction,
                                                        .hop = FAULT_PLACES[place].hop,
                                                        .target = fault_bench_target(&message),
                                                        .other = fault_bench_target(&other),
                                                        .byte = 64,
                                                        .xor_mask = 0x11};
    fault_bench_play(&bench, mismatches);
    ck_assert_uint_eq(mismatches[SIM_STAGE_LAYOUT], 0);
    ck_assert_uint_gt(mismatches[SIM_STAGE_COMBINE], 0);
    if (direction == SIM_DISPATCH) {
        ck_assert_uint_gt(mismatches[SIM_STAGE_DISPATCH], 0);
        ck_assert_uint_gt(mismatches[SIM_STAGE_EXPERT], 0);
    } else {
        ck_assert_uint_eq(mismatches[SIM_STAGE_DISPATCH], 0);
        ck_assert_uint_eq(mismatches[SIM_STAGE_EXPERT], 0);
    }
    assert_named(&bench, direction, kind == SIM_FAULT_DOUBLE ? &other : &message);
    fault_bench_close(&bench);
}

START_TEST(a_dropped_message_is_named)
{
    check_fault(_i, SIM_FAULT_DROP);
}
END_TEST

START_TEST(a_doubled_message_is_named_where_it_displaced_another)
{
    check_fault(_i, SIM_FAULT_DOUBLE);
}
END_TEST

START_TEST(swapped_messages_are_named)
{
    check_fault(_i, SIM_FAULT_SWAP);
}
END_TEST

START_TEST(a_corrupted_message_is_named)
{
    check_fault(_i, SIM_FAULT_CORRUPT);
}
END_TEST

START_TEST(a_message_that_lands_after_its_receiver_has_read_is_named)
{
    if (FAULT_PLACES[_i].machine[0] == 't' && FAULT_PLACES[_i].hop == 0)
        return; /* Read by a later hop. */
    check_fault(_i, SIM_FAULT_LATE);
}
END_TEST

START_TEST(a_message_overtaken_by_its_count_is_named)
{
    if (FAULT_PLACES[_i].machine[0] == 't' && FAULT_PLACES[_i].hop == 0)
        return; /* Read by a later hop. */
    check_fault(_i, SIM_FAULT_OVERTAKE);
}
END_TEST

/* Low latency: the row at the expert's rank, what the expert made of it, the token it came from. */
START_TEST(a_lost_dispatch_message_spoils_three_rows_by_name)
{
    struct fault_bench bench = fault_bench_open(sim_backend_ref(), NULL, "ll", "h200-hgx", "2");
    const struct sim_wrong_rows *wrong = bench.cell->wrong;
    uint64_t mismatches[SIM_STAGES];
    struct sim_message other;
    fault_bench_play(&bench, mismatches);
    const struct sim_message message = fault_bench_pick(&bench, SIM_DISPATCH, 0, &other);
    bench.plan->scenario.count = 1;
    bench.plan->scenario.faults[0] =
        (struct sim_fault){.kind = SIM_FAULT_DROP, .target = fault_bench_target(&message)};
    fault_bench_play(&bench, mismatches);
    ck_assert_uint_eq(wrong->count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sim_wrong_row *row = &wrong->rows[i];
        ck_assert_uint_eq(row->stage, SIM_STAGE_DISPATCH + i);
        ck_assert_uint_eq(row->rank, i < 2 ? message.dst_rank : message.home_rank);
        ck_assert_int_eq(row->expert, i < 2 ? message.expert : -1);
        ck_assert_uint_eq(row->src_rank, message.home_rank);
        ck_assert_int_eq(row->src_token, message.token);
    }
    fault_bench_close(&bench);
}
END_TEST

START_TEST(a_list_of_wrong_rows_ends_but_its_digest_goes_on)
{
    static struct sim_wrong_rows layer, run; /* Large. */
    struct sim_wrong_row row = {.stage = SIM_STAGE_EXPERT, .expert = 3};
    uint64_t before = 0;
    for (uint32_t i = 0; i < SIM_WRONG_ROWS_MAX + 5; i++) {
        row.src_token = i;
        sim_wrong_rows_add(&layer, &row);
        ck_assert_uint_ne(layer.digest, before);
        before = layer.digest;
    }
    ck_assert_uint_eq(layer.count, SIM_WRONG_ROWS_MAX + 5);
    ck_assert_uint_eq(sim_wrong_rows_listed(&layer), SIM_WRONG_ROWS_MAX);
    for (uint32_t l = 0; l < 2; l++) {
        sim_wrong_rows_append(&run, &layer, 7, l);
        ck_assert_uint_ne(run.digest, before);
        before = run.digest;
    }
    ck_assert_uint_eq(run.count, 2 * (SIM_WRONG_ROWS_MAX + 5));
    ck_assert_uint_eq(run.rows[9].step, 7);
    ck_assert_int_eq(run.rows[9].src_token, 9);
    ck_assert_uint_eq(run.rows[SIM_WRONG_ROWS_MAX - 1].layer, 0);
}
END_TEST

START_TEST(a_corrupted_byte_is_named_to_the_channel)
{
    /* LL dispatch: 16 bytes of header, then one code a channel: byte 64 is channel 48. */
    struct fault_bench bench = fault_bench_open(sim_backend_ref(), NULL, "ll", "h200-hgx", "2");
    uint64_t mismatches[SIM_STAGES];
    struct sim_message other;
    fault_bench_play(&bench, mismatches);
    const struct sim_message message = fault_bench_pick(&bench, SIM_DISPATCH, 0, &other);
    bench.plan->scenario.count = 1;
    bench.plan->scenario.faults[0] = (struct sim_fault){.kind = SIM_FAULT_CORRUPT,
                                                        .target = fault_bench_target(&message),
                                                        .byte = 64,
                                                        .xor_mask = 0x80};
    fault_bench_play(&bench, mismatches);
    ck_assert_uint_eq(mismatches[SIM_STAGE_DISPATCH], 1);
    const struct sim_check *check =
        &bench.cell->checks[SIM_STAGE_DISPATCH * bench.plan->ranks + message.dst_rank];
    ck_assert_int_eq(check->expert, message.expert);
    ck_assert_uint_eq(check->src_rank, message.home_rank);
    ck_assert_uint_eq(check->src_token, message.token);
    ck_assert_int_eq(check->channel, 48);
    ck_assert_int_eq(strtol(check->expected_hex, NULL, 16) ^ strtol(check->actual_hex, NULL, 16),
                     0x80);
    fault_bench_close(&bench);
}
END_TEST

START_TEST(a_fault_on_a_message_that_does_not_exist_is_refused)
{
    struct fault_bench bench = fault_bench_open(sim_backend_ref(), NULL, "ll", "h200-hgx", "2");
    uint64_t ready_ps[SIM_RANKS_MAX] = {0};
    bench.plan->scenario.count = 1;
    bench.plan->scenario.faults[0] =
        (struct sim_fault){.kind = SIM_FAULT_DROP, .target = {0, 12, -1, -1}};
    ck_assert_int_eq(
        sim_cell_prepare(bench.cell, bench.source, 0, 0, bench.engine, ready_ps, err, sizeof err),
        -2);
    TEST_SAYS(err, "no such message");
    fault_bench_close(&bench);
}
END_TEST

/* What a fault says of itself, and what is said of it; "" = fine. */
static const struct {
    const char *fields, *says;
} scenarios[] = {
    {"kind: corrupt, byte: 3, xor: 0x41", ""},
    {"kind: corrupt, byte: 3, xor: 65", ""},
    {"kind: corrupt, byte: 3, xor: 0XfF", ""},
    {"kind: corrupt, xor: 0", "must be 1 to 255, or 0x1 to 0xff"},
    {"kind: corrupt, xor: 0x0", "must be 1 to 255, or 0x1 to 0xff"},
    {"kind: corrupt, xor: 0x100", "must be 1 to 255, or 0x1 to 0xff"},
    {"kind: corrupt, xor: 0x", "must be 1 to 255, or 0x1 to 0xff"},
    {"kind: corrupt, xor: 0x4g", "must be 1 to 255, or 0x1 to 0xff"},
    {"kind: drop, source: 1, token: 2, expert: 3, peer: 1, hop: 1", ""},
    {"kind: drop, xor: 1", "xor: 1: is no field of a fault of kind drop"},
    {"kind: late, byte: 1", "is no field of a fault of kind late"},
    {"kind: double, other_token: 1", "is no field of a fault of kind double"},
    {"kind: swap, other_source: 1, other_token: 1, other_expert: 2", ""},
    {"kind: swap, us: 3", "is no field of a fault of kind swap"},
    {"kind: delay, rank: 1, us: 3", ""},
    {"kind: delay, rank: 1, token: 3", "is no field of a fault of kind delay"},
    {"kind: drop, speed: 3", "is no field of a fault"},
};

START_TEST(a_scenario_takes_the_fields_of_its_kind)
{
    struct sim_scenario scenario;
    const char *text = test_format("faults:\n- {%s}\n", scenarios[_i].fields);
    const char *path = test_write_text(test_temp_dir(), "fault.yaml", text);
    const bool fine = scenarios[_i].says[0] == '\0';
    const int status = sim_scenario_load(path, &scenario, err, sizeof err);
    ck_assert_msg((status == 0) == fine, "%s: %s", scenarios[_i].fields, status == 0 ? "" : err);
    if (!fine) TEST_SAYS(err, scenarios[_i].says);
    if (_i < 2) ck_assert_uint_eq(scenario.faults[0].xor_mask, 0x41);
}
END_TEST

Suite *faults_suite(void)
{
    Suite *suite = suite_create("faults");
    TCase *tests = tcase_create("faults");
    tcase_add_loop_test(tests, a_dropped_message_is_named, 0, FAULT_PLACE_COUNT);
    tcase_add_loop_test(tests, a_doubled_message_is_named_where_it_displaced_another, 0,
                        FAULT_PLACE_COUNT);
    tcase_add_loop_test(tests, swapped_messages_are_named, 0, FAULT_PLACE_COUNT);
    tcase_add_loop_test(tests, a_corrupted_message_is_named, 0, FAULT_PLACE_COUNT);
    tcase_add_loop_test(tests, a_message_that_lands_after_its_receiver_has_read_is_named, 0,
                        FAULT_PLACE_COUNT);
    tcase_add_loop_test(tests, a_message_overtaken_by_its_count_is_named, 0, FAULT_PLACE_COUNT);
    tcase_add_test(tests, a_lost_dispatch_message_spoils_three_rows_by_name);
    tcase_add_test(tests, a_list_of_wrong_rows_ends_but_its_digest_goes_on);
    tcase_add_test(tests, a_corrupted_byte_is_named_to_the_channel);
    tcase_add_test(tests, a_fault_on_a_message_that_does_not_exist_is_refused);
    tcase_add_loop_test(tests, a_scenario_takes_the_fields_of_its_kind, 0,
                        sizeof scenarios / sizeof scenarios[0]);
    suite_add_tcase(suite, tests);
    return suite;
}
