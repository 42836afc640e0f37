/* tests/test_generator.c - drawn routing has the properties that its name promises.
 *
 * Method: expectations in closed form. Distinct ranks of a token with K distinct experts chosen
 * uniformly: R (1 - C(E - L, K) / C(E, K)); the seed is printed with every failure. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/generator.h"
#include "tests/support.h"

Suite *generator_suite(void);

enum { TOKENS = 4096, SEED = 7 };

static char err[256];

static struct sim_generator make(const char *text, uint32_t experts, uint32_t topk, uint32_t nodes)
{
    struct sim_generator generator;
    ck_assert_msg(
        sim_generator_parse(text, experts, topk, nodes, SEED, &generator, err, sizeof err) == 0,
        "%s", err);
    return generator;
}

static int64_t *draw(const struct sim_generator *generator, uint32_t rank)
{
    int64_t *ids = (int64_t *)malloc((size_t)TOKENS * generator->topk * sizeof *ids);
    sim_generator_draw(generator, 0, 3, rank, TOKENS, ids);
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t k = 0; k < generator->topk; k++) {
            const int64_t id = ids[t * generator->topk + k];
            ck_assert_int_ge(id, 0);
            ck_assert_int_lt(id, generator->experts);
            for (uint32_t j = 0; j < k; j++) ck_assert_int_ne(id, ids[t * generator->topk + j]);
        }
    }
    return ids;
}

/* Mean number of distinct groups of `size` experts that a row touches. */
static double distinct(const int64_t *ids, uint32_t topk, uint32_t size)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t k = 0; k < topk; k++) {
            uint32_t j = 0;
            while (ids[t * topk + j] / size != ids[t * topk + k] / size) j++;
            sum += j == k;
        }
    }
    return (double)sum / TOKENS;
}

START_TEST(uniform_rows_touch_as_many_ranks_as_combinatorics_says)
{
    /* E, K, experts per group, expectation; 4096 tokens put the mean within 0.02 (3 sigma). */
    static const struct {
        uint32_t experts, topk, size;
        double expected;
    } CASES[] = {{256, 8, 32, 5.294652},  {256, 8, 16, 6.523280}, {256, 8, 8, 7.266800},
                 {256, 8, 128, 1.993020}, {256, 8, 64, 3.614214}, {128, 8, 16, 5.339357},
                 {384, 8, 24, 6.499418}};
    const struct sim_generator generator = make("uniform", CASES[_i].experts, CASES[_i].topk, 1);
    int64_t *ids = draw(&generator, 0);
    const double mean = distinct(ids, CASES[_i].topk, CASES[_i].size);
    ck_assert_msg(mean > CASES[_i].expected - 0.05 && mean < CASES[_i].expected + 0.05,
                  "seed %d: %f, expected %f", SEED, mean, CASES[_i].expected);
    free(ids);
}
END_TEST

START_TEST(a_draw_depends_on_its_labels_alone)
{
    const struct sim_generator generator = make("lognormal:1", 64, 6, 1);
    int64_t *one = draw(&generator, 1), *again = draw(&generator, 1), *other = draw(&generator, 2);
    ck_assert_int_eq(memcmp(one, again, (size_t)TOKENS * 6 * sizeof *one), 0);
    ck_assert_int_ne(memcmp(one, other, (size_t)TOKENS * 6 * sizeof *one), 0);
    free(one);
    free(again);
    free(other);
}
END_TEST

static double max_over_mean(const int64_t *ids, uint32_t experts, uint32_t topk)
{
    uint64_t counts[SIM_EXPERTS_MAX] = {0}, most = 0;
    for (uint32_t i = 0; i < TOKENS * topk; i++)
        if (++counts[ids[i]] > most) most = counts[ids[i]];
    return (double)most * experts / ((double)TOKENS * topk);
}

START_TEST(lognormal_is_more_skewed_the_larger_s)
{
    static const char *const NAMES[] = {"lognormal:0", "lognormal:0.5", "lognormal:1",
                                        "lognormal:1.5"};
    double last = 0.0;
    for (int i = 0; i < 4; i++) {
        const struct sim_generator generator = make(NAMES[i], 256, 8, 1);
        int64_t *ids = draw(&generator, 0);
        const double ratio = max_over_mean(ids, 256, 8);
        ck_assert_msg(ratio > last, "seed %d, %s: %f after %f", SEED, NAMES[i], ratio, last);
        if (i == 0) ck_assert_double_lt(ratio, 1.6); /* Noise of 128 draws an expert. */
        if (i == 2) ck_assert(ratio > 4.0 && ratio < 20.0);
        last = ratio;
        free(ids);
    }
}
END_TEST

START_TEST(hot_takes_its_percentage_of_tokens)
{
    static const struct {
        const char *name;
        double low, high;
    } CASES[] = {{"hot:0", 0.0, 0.0}, {"hot:50", 0.46, 0.54}, {"hot:100", 1.0, 1.0}};
    for (int i = 0; i < 3; i++) {
        const struct sim_generator generator = make(CASES[i].name, 16, 2, 1);
        int64_t *ids = draw(&generator, 0);
        uint64_t counts[16] = {0}, most = 0, least = UINT64_MAX;
        for (uint32_t k = 0; k < TOKENS * 2; k++) counts[ids[k]]++;
        for (int e = 0; e < 16; e++) {
            if (counts[e] > most) most = counts[e];
            if (counts[e] < least) least = counts[e];
        }
        /* hot:0: the hot expert is never first, and second as seldom as any other. */
        const double share = (double)(i == 0 ? 0 : most) / TOKENS;
        ck_assert_msg(share >= CASES[i].low && share <= CASES[i].high, "seed %d, %s: %f", SEED,
                      CASES[i].name, share);
        free(ids);
    }
}
END_TEST

START_TEST(roundrobin_is_balanced_to_the_row)
{
    const struct sim_generator generator = make("roundrobin", 32, 4, 1);
    int64_t *ids = draw(&generator, 0);
    ck_assert_double_eq_tol(max_over_mean(ids, 32, 4), 1.0, 1e-12);
    free(ids);
}
END_TEST

START_TEST(limited_rows_stay_on_their_nodes_and_hold_the_best_expert_of_each)
{
    const struct sim_generator generator = make("limited:4", 256, 8, 8);
    int64_t *ids = draw(&generator, 0);
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint32_t nodes = 0;
        for (uint32_t k = 0; k < 8; k++) nodes |= 1u << (ids[t * 8 + k] / 32);
        ck_assert_int_le(__builtin_popcount(nodes), 4);
    }
    /* The best experts of the four kept nodes are among the best eight of those nodes nearly
     * always, so rows touch almost four nodes: uniform scores give about 3.7. */
    const double mean = distinct(ids, 8, 32);
    ck_assert_msg(mean > 3.5 && mean <= 4.0, "seed %d: %f", SEED, mean);
    free(ids);
}
END_TEST

START_TEST(names_and_parameters_are_checked)
{
    static const char *const BAD[] = {"unifrom",
                                      "uniform:1",
                                      "hot",
                                      "hot:101",
                                      "lognormal:4.01",
                                      "lognormal:-1",
                                      "lognormal:1.234",
                                      "limited:0",
                                      "limited:9",
                                      "roundrobin:",
                                      ""};
    struct sim_generator generator;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ck_assert_msg(sim_generator_parse(BAD[i], 256, 8, 8, 1, &generator, err, sizeof err) == -1,
                      "%s", BAD[i]);
        TEST_SAYS(err, BAD[i]);
    }
    ck_assert_int_eq(sim_generator_parse("uniform", 4, 5, 1, 1, &generator, err, sizeof err), -1);
    ck_assert_int_eq(sim_generator_parse("limited:1", 64, 9, 8, 1, &generator, err, sizeof err),
                     -1);
}
END_TEST

Suite *generator_suite(void)
{
    Suite *suite = suite_create("generator");
    TCase *tests = tcase_create("generator");
    tcase_add_loop_test(tests, uniform_rows_touch_as_many_ranks_as_combinatorics_says, 0, 7);
    tcase_add_test(tests, a_draw_depends_on_its_labels_alone);
    tcase_add_test(tests, lognormal_is_more_skewed_the_larger_s);
    tcase_add_test(tests, hot_takes_its_percentage_of_tokens);
    tcase_add_test(tests, roundrobin_is_balanced_to_the_row);
    tcase_add_test(tests, limited_rows_stay_on_their_nodes_and_hold_the_best_expert_of_each);
    tcase_add_test(tests, names_and_parameters_are_checked);
    suite_add_tcase(suite, tests);
    return suite;
}
