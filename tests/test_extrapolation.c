/* tests/test_extrapolation.c - predictions where nobody measured: they must still make sense.
 *
 * Method: published tables of other machines and rank counts, which nothing was fitted to; and
 * what must hold of any answer: more tokens, channels or choices never make it sooner, more SMs
 * help until a link is full. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/predict.h"
#include "tests/mutate.h"
#include "tests/support.h"

Suite *extrapolation_suite(void);

enum { QUESTIONS_MAX = 64 };

struct question {
    const char *machine, *mode, *op;
    uint32_t ep, tokens, hidden, topk, sms;
    uint32_t experts;
    bool bf16;
};

/* Microseconds. */
static void ask(const struct question *questions, size_t count, double *us)
{
    static struct sim_measured_row rows[QUESTIONS_MAX];
    const struct sim_measured measured = {SIM_MEASURED_CALIBRATE, count, rows};
    const struct sim_predict_options options = {.threads = 1};
    uint64_t predicted_ps[QUESTIONS_MAX];
    char err[256] = "";
    ck_assert_uint_le(count, QUESTIONS_MAX);
    memset(rows, 0, sizeof rows);
    for (size_t i = 0; i < count; i++) {
        snprintf(rows[i].id, sizeof rows[i].id, "%zu", i);
        strcpy(rows[i].machine, questions[i].machine);
        strcpy(rows[i].mode, questions[i].mode);
        strcpy(rows[i].op, questions[i].op);
        strcpy(rows[i].dtype, questions[i].bf16 ? "bf16" : "fp8");
        strcpy(rows[i].grade, "A");
        rows[i].gpus_per_node = 8;
        rows[i].ep = questions[i].ep;
        rows[i].nodes = (questions[i].ep + 7) / 8;
        rows[i].tokens = questions[i].tokens;
        rows[i].hidden = questions[i].hidden;
        rows[i].topk = questions[i].topk;
        rows[i].experts = questions[i].experts;
        rows[i].sms = questions[i].sms;
        rows[i].measured_ps = 1;
    }
    ck_assert_msg(sim_predict(&measured, &options, predicted_ps, NULL, err, sizeof err) == 0, "%s",
                  err);
    for (size_t i = 0; i < count; i++) us[i] = (double)predicted_ps[i] / 1e6;
}

/* DeepEP (docs/legacy.md), H800 and CX7: 4,096 tokens, hidden 7168, top-8 in 4 nodes. GB/s of the
 * rows received over NVLink (EP8), or of the (token, node) pairs (EP16: both nodes get nearly every
 * token), FP8 rows of 7,392 bytes out and BF16 rows back. */
START_TEST(published_normal_bandwidth_is_met_within_a_seventh)
{
    const double rows =
        4096 * 8 * (1 - 0.875 * 0.875 * 0.875 * 0.875 * 0.875 * 0.875 * 0.875 * 0.875);
    const double pairs = 4096 * 2 * (1 - 1.0 / 256);
    const struct question questions[] = {
        {"h800-hgx", "normal", "dispatch", 8, 4096, 7168, 8, 24, 256, false},
        {"h800-hgx", "normal", "combine", 8, 4096, 7168, 8, 24, 256, false},
        {"h800-hgx", "normal", "dispatch", 16, 4096, 7168, 8, 24, 256, false},
        {"h800-hgx", "normal", "combine", 16, 4096, 7168, 8, 24, 256, false},
    };
    const double published_us[] = {rows * 7392 / 153e3, rows * 14336 / 158e3, pairs * 7392 / 43e3,
                                   pairs * 14336 / 43e3};
    double us[4];
    ask(questions, 4, us);
    for (size_t i = 0; i < 4; i++) {
        const double ratio = us[i] / published_us[i];
        ck_assert_msg(ratio > 0.86 && ratio < 1.15, "EP%u %s: %.0f us, published %.0f",
                      questions[i].ep, questions[i].op, us[i], published_us[i]);
    }
}
END_TEST

START_TEST(more_is_never_sooner)
{
    static const char *const machines[] = {"h100-hgx", "b200-hgx", "h800-hgx-nonvl", "b300-hgx"};
    static const uint32_t tokens[] = {1, 4, 16, 48, 128, 192};
    static const uint32_t hidden[] = {2048, 4096, 7168}, topk[] = {2, 4, 8};
    double us[12];
    for (size_t m = 0; m < 4; m++)
        for (uint32_t ep = 8; ep <= 32; ep *= 2)
            for (int op = 0; op < 2; op++) {
                struct question questions[12];
                for (size_t i = 0; i < 12; i++)
                    questions[i] = (struct question){machines[m],
                                                     "ll",
                                                     op ? "combine" : "dispatch",
                                                     ep,
                                                     i < 6 ? tokens[i] : 64,
                                                     i >= 6 && i < 9 ? hidden[i - 6] : 7168,
                                                     i >= 9 ? topk[i - 9] : 8,
                                                     0,
                                                     256,
                                                     false};
                ask(questions, 12, us);
                for (size_t i = 1; i < 12; i++)
                    if (i != 6 && i != 9)
                        ck_assert_msg(us[i] > us[i - 1] * 0.99, "%s EP%u %s: step %zu: %f, %f",
                                      machines[m], ep, questions[i].op, i, us[i - 1], us[i]);
            }
}
END_TEST

/* One random question of normal mode, and the same with one of its numbers stepped: more tokens, a
 * longer hidden or more choices never take less time, more SMs (to 24) never more. Best chunks come
 * in steps, so a little is forgiven. */
START_TEST(whatever_is_asked_of_normal_mode_more_is_more) /* Loop: seeds. */
{
    static const char *const machines[] = {"h100-hgx", "b200-hgx", "b300-hgx",
                                           "h800-hgx", "h20-hgx",  "h800-hgx-nonvl"};
    static const uint32_t hidden[] = {2048, 4096, 5120, 7168}, topk[] = {2, 4, 6, 8},
                          experts[] = {64, 128, 160, 384};
    enum { STEPS = 4, KINDS = 4 };
    uint64_t seed = (uint64_t)_i;
    struct question base = {machines[mutate_below(&seed, 6)],
                            "normal",
                            mutate_below(&seed, 2) ? "combine" : "dispatch",
                            8,
                            64,
                            7168,
                            8,
                            20,
                            256,
                            false};
    base.ep = 8u << mutate_below(&seed, 2);
    base.hidden = hidden[mutate_below(&seed, 4)];
    base.topk = topk[mutate_below(&seed, 4)];
    base.experts = experts[mutate_below(&seed, 4)];
    base.sms = 8 + 4 * (uint32_t)mutate_below(&seed, 5);
    base.bf16 = mutate_below(&seed, 2);
    struct question asked[KINDS * STEPS];
    double us[KINDS * STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t kind = 0; kind < KINDS; kind++) asked[kind * STEPS + i] = base;
        asked[i].tokens = 4u << 2 * i;
        asked[STEPS + i].hidden = hidden[i];
        asked[2 * STEPS + i].topk = topk[i];
        asked[3 * STEPS + i].sms = 24 - 6 * i;
        asked[3 * STEPS + i].tokens = 96;
    }
    ask(asked, KINDS * STEPS, us);
    for (size_t i = 0; i < KINDS * STEPS; i++) {
        const struct question *q = &asked[i];
        ck_assert_msg(us[i] > 10 && us[i] < 1e5, "seed %d: %s: %f us", _i, q->machine, us[i]);
        if (i % STEPS > 0)
            ck_assert_msg(us[i] > 0.96 * us[i - 1],
                          "seed %d: %s EP%u %s %s, %u tokens of %u, top-%u of %u, %u SMs: %f after "
                          "%f us",
                          _i, q->machine, q->ep, q->op, q->bf16 ? "bf16" : "fp8", q->tokens,
                          q->hidden, q->topk, q->experts, q->sms, us[i], us[i - 1]);
    }
}
END_TEST

/* Measured: over four nodes the NICs are full from 12 to 16 SMs on; over two, the SMs still limit
 * at 20 of 24. */
START_TEST(more_sms_help_until_the_nics_are_full)
{
    static const uint32_t sms[] = {8, 12, 16, 20, 24};
    struct question questions[10];
    double us[10];
    for (size_t i = 0; i < 10; i++)
        questions[i] = (struct question){
            "h100-hgx", "normal", "dispatch", i < 5 ? 32 : 16, i < 5 ? 768 : 1024, 7168, 8,
            sms[i % 5], 256,      false};
    ask(questions, 10, us);
    ck_assert_double_gt(us[0], 1.1 * us[2]);
    ck_assert_double_gt(us[2], 0.97 * us[4]);
    ck_assert_double_lt(us[2], 1.12 * us[4]);
    for (size_t i = 6; i < 10; i++) ck_assert_double_lt(us[i], 0.97 * us[i - 1]);
}
END_TEST

Suite *extrapolation_suite(void)
{
    Suite *suite = suite_create("extrapolation");
    TCase *tests = tcase_create("extrapolation");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, published_normal_bandwidth_is_met_within_a_seventh);
    tcase_add_test(tests, more_is_never_sooner);
    tcase_add_loop_test(tests, whatever_is_asked_of_normal_mode_more_is_more, 1, 4);
    tcase_add_test(tests, more_sms_help_until_the_nics_are_full);
    suite_add_tcase(suite, tests);
    return suite;
}
