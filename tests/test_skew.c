/* tests/test_skew.c - late ranks: how they are drawn, and what they do to a kernel's time.
 *
 * The published times of one dispatch (EP72 of H100, DeepSeek-V3's shape): 0.06 ms in a unit
 * test, 0.17 ms in a server, 0.09 ms with a slow kernel between send and receive. They are
 * rounded to 0.01 ms, so the ratios lie between 0.165 / 0.065 = 2.5 and 0.175 / 0.055 = 3.2, and
 * between 0.085 / 0.065 = 1.3 and 0.095 / 0.055 = 1.7; a tenth to either side of 2.8 and of 1.5
 * is well inside both. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/skew_study.h"
#include "tests/support.h"

Suite *skew_suite(void);

enum { RANKS = 72, LAYERS = 20 };

static char err[256];
static struct fabric_machine machine;

static struct sim_skew_ask published(const char *skew, uint64_t pause_us)
{
    struct sim_skew_ask ask = {.machine = &machine,
                               .ranks = RANKS,
                               .experts = 288,
                               .topk = 8,
                               .hidden = 7168,
                               .tokens = 40,
                               .layers = LAYERS,
                               .pause_ps = pause_us * 1000000,
                               .seed = 1};
    ck_assert_int_eq(fabric_machine_load("h100-hgx", &machine, err, sizeof err), 0);
    ck_assert_msg(sim_skew_parse(skew, RANKS, &ask.skew, err, sizeof err) == 0, "%s", err);
    return ask;
}

static struct sim_skew_times study(const struct sim_skew_ask *ask)
{
    struct sim_skew_times times;
    ck_assert_msg(sim_skew_study(ask, &times, err, sizeof err) == 0, "%s", err);
    return times;
}

START_TEST(one_skew_explains_the_unit_test_the_server_and_the_dummy_kernel)
{
    const struct sim_skew_ask ask = published("normal:54", 81);
    const struct sim_skew_times times = study(&ask);
    const double server = (double)times.server_ps / (double)times.unit_ps;
    const double hook = (double)times.hook_ps / (double)times.unit_ps;

    ck_assert_uint_le(ask.skew.ps, UINT64_C(150000000)); /* 0.15 ms. */
    ck_assert_double_ge(server, 2.8 * 0.9);
    ck_assert_double_le(server, 2.8 * 1.1);
    ck_assert_double_ge(hook, 1.5 * 0.9);
    ck_assert_double_le(hook, 1.5 * 1.1);
    /* The times themselves are the published ones, rounded as they are: 0.06, 0.17 and 0.09 ms. */
    ck_assert_uint_eq((times.unit_ps + 5000000) / 10000000, 6);
    ck_assert_uint_eq((times.server_ps + 5000000) / 10000000, 17);
    ck_assert_uint_eq((times.hook_ps + 5000000) / 10000000, 9);
}
END_TEST

START_TEST(without_skew_nobody_spins_for_a_late_rank)
{
    const struct sim_skew_ask ask = published("none", 0);
    const struct sim_skew_times times = study(&ask);
    ck_assert_uint_eq(times.server_ps, times.unit_ps);
    ck_assert_uint_eq(times.spread_ps, 0);
}
END_TEST

START_TEST(more_skew_is_more_spinning_and_a_longer_pause_is_less)
{
    struct sim_skew_ask ask = published("normal:30", 40);
    struct sim_skew_times before = study(&ask);
    ask.skew.ps *= 2;
    const struct sim_skew_times skewed = study(&ask);
    ck_assert_uint_gt(skewed.server_ps, before.server_ps + 40000000);
    ck_assert_uint_eq(skewed.unit_ps, before.unit_ps);
    ask.pause_ps *= 2;
    ck_assert_uint_lt(study(&ask).hook_ps, skewed.hook_ps);
}
END_TEST

START_TEST(lateness_has_the_mean_and_deviation_asked_for)
{
    const struct sim_skew skew = {SIM_SKEW_NORMAL, 0, 50000000};
    uint64_t late_ps[RANKS];
    double sum = 0, squares = 0, most = 0;
    for (uint32_t layer = 0; layer < 400; layer++) {
        double mean = 0, latest = 0;
        uint64_t first_ps = UINT64_MAX;
        memset(late_ps, 0, sizeof late_ps);
        sim_skew_add(&skew, 7, 3, layer, RANKS, late_ps);
        for (uint32_t r = 0; r < RANKS; r++) {
            mean += (double)late_ps[r] / RANKS;
            if (late_ps[r] < first_ps) first_ps = late_ps[r];
            if ((double)late_ps[r] > latest) latest = (double)late_ps[r];
        }
        ck_assert_uint_eq(first_ps, 0); /* The earliest rank is not late. */
        for (uint32_t r = 0; r < RANKS; r++)
            squares += ((double)late_ps[r] - mean) * ((double)late_ps[r] - mean);
        sum += latest - mean;
        most = latest > most ? latest : most;
    }
    /* 28,800 deviates: their variance within 3 % of 50 us squared; the largest of 72 normal
     * deviates lies 2.4 deviations above the mean. */
    ck_assert_double_le(squares / (400.0 * (RANKS - 1)), 2500e12 * 1.03);
    ck_assert_double_ge(squares / (400.0 * (RANKS - 1)), 2500e12 * 0.97);
    ck_assert_double_ge(sum / 400, 2.25 * 50e6);
    ck_assert_double_le(sum / 400, 2.5 * 50e6);
    ck_assert_double_le(most, 12 * 50e6);
}
END_TEST

START_TEST(a_late_rank_is_late_in_every_layer_and_nobody_else_is)
{
    struct sim_skew skew;
    uint64_t late_ps[4] = {5, 5, 5, 5};
    ck_assert_int_eq(sim_skew_parse("late:2:12.5", 4, &skew, err, sizeof err), 0);
    sim_skew_add(&skew, 1, 0, 0, 4, late_ps);
    ck_assert_uint_eq(late_ps[0] + late_ps[1] + late_ps[3], 15);
    ck_assert_uint_eq(late_ps[2], 12500005);
}
END_TEST

START_TEST(what_is_no_skew_is_refused)
{
    static const char *const BAD[] = {"",          "normal",     "normal:",        "normal:-1",
                                      "normal:x",  "late:1",     "late:4:1",       "late:-1:1",
                                      "late::1",   "late:1:",    "late:1:1e3",     "uniform:3",
                                      "normal:1 ", "normal:1e9", "normal:1000001", "none:1"};
    struct sim_skew skew;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ck_assert_msg(sim_skew_parse(BAD[i], 4, &skew, err, sizeof err) == -1, "%s", BAD[i]);
        TEST_SAYS(err, "--skew");
    }
}
END_TEST

Suite *skew_suite(void)
{
    Suite *suite = suite_create("skew");
    TCase *tcase = tcase_create("skew");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, one_skew_explains_the_unit_test_the_server_and_the_dummy_kernel);
    tcase_add_test(tcase, without_skew_nobody_spins_for_a_late_rank);
    tcase_add_test(tcase, more_skew_is_more_spinning_and_a_longer_pause_is_less);
    tcase_add_test(tcase, lateness_has_the_mean_and_deviation_asked_for);
    tcase_add_test(tcase, a_late_rank_is_late_in_every_layer_and_nobody_else_is);
    tcase_add_test(tcase, what_is_no_skew_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
