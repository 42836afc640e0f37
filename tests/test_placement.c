/* tests/test_placement.c - a run whose experts have replicas sends every choice to a replica of the
 * expert that was chosen, and to the one that the policy names.
 *
 * Method: the same source twice, without and with replicas; what the second gives, taken back to
 * experts, must be what the first gave. Which replica: by hand on a placement of 4 experts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "sim/placement.h"
#include "sim/source.h"
#include "tests/json.h"
#include "tests/support.h"

enum { RANKS = 8, TOKENS = 24, LAYERS = 3 };

struct bench {
    struct sim_settings settings;
    struct sim_plan *plan;
    struct sim_source *source;
};

static struct bench open_bench(const char *eplb, const char *replica)
{
    static const char *const fixed[][2] = {
        {"model", "deepseek-v3"},   {"ep", "8"},    {"tokens", "24"}, {"layers", "3"},
        {"routing", "lognormal:1"}, {"steps", "2"}, {"mode", "ll"}};
    struct bench bench = {.plan = (struct sim_plan *)malloc(sizeof *bench.plan)};
    char err[512] = "";

    ck_assert_ptr_nonnull(bench.plan);
    sim_settings_default(&bench.settings);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        ck_assert_int_eq(
            sim_settings_set(&bench.settings, fixed[i][0], fixed[i][1], err, sizeof err), 0);
    ck_assert_int_eq(sim_settings_set(&bench.settings, "eplb", eplb, err, sizeof err), 0);
    ck_assert_int_eq(sim_settings_set(&bench.settings, "replica", replica, err, sizeof err), 0);
    bench.source = sim_source_open(&bench.settings, err, sizeof err);
    ck_assert_msg(sim_plan_make(&bench.settings, 0, 0, bench.plan, err, sizeof err) == 0, "%s",
                  err);
    ck_assert_msg(sim_source_start(bench.source, bench.plan, err, sizeof err) == 0, "%s", err);
    return bench;
}

static void close_bench(struct bench *bench)
{
    sim_source_close(bench->source);
    free(bench->plan);
}

static const char *const policies[] = {"static", "row-mod", "row-hash"};

START_TEST(every_choice_goes_to_a_replica_of_its_expert)
{
    struct bench plain = open_bench("0", "static"), placed = open_bench("288", policies[_i]);
    const struct sim_placement *placement = sim_source_placement(placed.source);
    static int64_t expert[RANKS * TOKENS * 8], place[RANKS * TOKENS * 8];
    static float weights[RANKS * TOKENS * 8];
    uint64_t moved = 0;

    ck_assert_ptr_null(sim_source_placement(plain.source));
    ck_assert_ptr_nonnull(placement);
    ck_assert_uint_eq(placed.plan->experts, 288);
    ck_assert_uint_eq(placed.plan->logical_experts, 256);
    for (uint32_t l = 0; l < LAYERS; l++) {
        sim_source_layer(plain.source, l, expert, weights);
        sim_source_layer(placed.source, l, place, weights);
        for (int i = 0; i < RANKS * TOKENS * 8; i++) {
            const struct ref_physical at = {(int32_t)place[i]};
            ck_assert_int_eq(sim_placement_expert(placement, l, at).id, expert[i]);
            moved += place[i] != expert[i];
        }
    }
    ck_assert_uint_gt(moved, 0);
    close_bench(&plain);
    close_bench(&placed);
}
END_TEST

/* 4 experts, 6 places, 2 GPUs of one node: expert 0 weighs 6, expert 1 weighs 4, the others 1. The
 * two more places go to 0 (6 against 4), then to 1 (4 against 3); replicas weigh 3 3 2 2 1 1 and
 * are packed 0 1 2 | 0 1 3. */
static void place_four(enum sim_replica_policy policy, struct sim_placement *placement)
{
    static float values[4] = {6, 4, 1, 1};
    const struct sim_eplb_weights weights = {1, 4, values};
    const struct ref_eplb_shape shape = {4, 6, 1, 1, 2};
    char err[256] = "";
    ck_assert_msg(sim_placement_open(&weights, &shape, policy, placement, err, sizeof err) == 0,
                  "%s", err);
    static const int32_t on_place[6] = {0, 1, 2, 0, 1, 3};
    for (int32_t p = 0; p < 6; p++)
        ck_assert_int_eq(sim_placement_expert(placement, 0, (struct ref_physical){p}).id,
                         on_place[p]);
}

static int32_t choose(const struct sim_placement *placement, uint32_t rank, uint64_t row,
                      int32_t expert)
{
    return sim_placement_choose(placement, 0, rank, row, (struct ref_logical){expert}).id;
}

START_TEST(static_takes_the_ranks_own_replica)
{
    struct sim_placement placement;
    place_four(SIM_REPLICA_STATIC, &placement);
    for (uint64_t row = 0; row < 3; row++) { /* Whatever the row. */
        ck_assert_int_eq(choose(&placement, 0, row, 0), 0);
        ck_assert_int_eq(choose(&placement, 1, row, 0), 3);
        ck_assert_int_eq(choose(&placement, 0, row, 1), 1);
        ck_assert_int_eq(choose(&placement, 1, row, 1), 4);
        ck_assert_int_eq(choose(&placement, 0, row, 3), 5); /* There is one alone. */
    }
    sim_placement_close(&placement);
}
END_TEST

START_TEST(rows_take_replicas_in_turn)
{
    struct sim_placement mod, hash;
    place_four(SIM_REPLICA_ROW_MOD, &mod);
    place_four(SIM_REPLICA_ROW_HASH, &hash);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const int32_t even = choose(&mod, rank, 0, 0), odd = choose(&mod, rank, 1, 0);
        ck_assert_int_eq(even + odd, 0 + 3);
        ck_assert_int_eq(choose(&mod, rank, 2, 0), even);
        /* The hash of an odd row is odd, of an even one even: its factor is odd. */
        ck_assert_int_eq(choose(&hash, rank, 3, 0), odd);
        ck_assert_int_eq(choose(&hash, rank, 4, 0), even);
        ck_assert_int_eq(choose(&hash, rank, 9, 2), 2);
    }
    sim_placement_close(&mod);
    sim_placement_close(&hash);
}
END_TEST

static const struct {
    const char *mode, *replica;
} moved_by[] = {{"ll", "static"}, {"ll", "row-hash"}, {"normal", "row-mod"}};

START_TEST(bytes_arrive_at_the_replicas)
{
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8", "--mode",
               moved_by[_i].mode, "--tokens", "40", "--routing", "hot:50", "--eplb", "24",
               "--replica", moved_by[_i].replica, "--backend", "ref");
    ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
    TEST_SAYS(output.out, "16 experts in 24 places");
    TEST_SAYS(output.out, ", 0 rows differ");
}
END_TEST

START_TEST(what_cannot_be_placed_is_refused)
{
    static const struct {
        const char *option, *value, *says;
    } wrong[] = {
        {"--eplb", "12", "--eplb: 12: must be at least the 16 experts of toy-16x2"},
        {"--eplb", "20", "and a multiple of --ep 8"},
        {"--eplb-weights", "[[1,2,3]]", "1 layers of 3 experts, but the run needs 1 of 16"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct test_output output;
        const bool file = wrong[i].value[0] == '[';
        const char *value =
            file ? test_write_text(test_temp_dir(), "w.json", wrong[i].value) : wrong[i].value;
        if (file)
            TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8",
                       "--eplb", "24", wrong[i].option, value);
        else
            TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8",
                       wrong[i].option, value);
        ck_assert_int_eq(output.status, 2);
        TEST_SAYS(output.err, wrong[i].says);
    }
}
END_TEST

START_TEST(replicas_even_out_what_is_skewed)
{
    struct test_output output, plain;
    TEST_EPSIM(&output, "eplb", "--routing", "lognormal:1", "--model", "deepseek-v3", "--ep", "16",
               "--batch", "64", "--layers", "2", "--steps", "2", "--replicas", "288", "--json");
    TEST_EPSIM(&plain, "run", "--routing", "lognormal:1", "--model", "deepseek-v3", "--ep", "16",
               "--tokens", "64", "--layers", "2", "--steps", "2", "--json");
    ck_assert_msg(output.status == 0, "%s", output.err);
    json_t *json = test_json(&output), *run = test_json(&plain);
    const json_t *sides = json_object_get(json, "sides"), *none = json_array_get(sides, 0);
    ck_assert_uint_eq(json_array_size(sides), 4);
    const double before = number_at(none, "rank_max_over_mean");
    ck_assert_double_eq_tol(before, number_at(run, "imbalance.rank_max_over_mean"), 1e-9);
    for (size_t i = 1; i < 4; i++) {
        const json_t *side = json_array_get(sides, i);
        ck_assert_double_lt(number_at(side, "rank_max_over_mean") - 1, (before - 1) / 2);
        ck_assert_double_lt(number_at(side, "combine_us"), number_at(none, "combine_us"));
        ck_assert_double_eq(number_at(side, "places"), 288);
    }
    json_decref(json);
    json_decref(run);
}
END_TEST

Suite *placement_suite(void)
{
    TCase *tcase = tcase_create("placement");
    tcase_add_loop_test(tcase, every_choice_goes_to_a_replica_of_its_expert, 0, 3);
    tcase_add_test(tcase, static_takes_the_ranks_own_replica);
    tcase_add_test(tcase, rows_take_replicas_in_turn);
    tcase_add_loop_test(tcase, bytes_arrive_at_the_replicas, 0, 3);
    tcase_add_test(tcase, what_cannot_be_placed_is_refused);
    tcase_add_test(tcase, replicas_even_out_what_is_skewed);
    Suite *suite = suite_create("placement");
    suite_add_tcase(suite, tcase);
    return suite;
}
