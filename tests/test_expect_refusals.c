/* tests/test_expect_refusals.c - what expect refuses, each in one line and with nothing written. */
#include <check.h>
#include <string.h>
#include "sim/capture.h"
#include "tests/expect_support.h"
#include "tests/make_case.h"
#include "tests/support.h"

/* The command refuses, names that, and leaves no folder behind. */
static void refused(const char *names)
{
    struct test_output output;
    const int status = TEST_EPSIM(&output, "expect", in_folder, "--out", out_folder);

    ck_assert_msg(status == 2, "exit %d: %s%s", status, output.out, output.err);
    TEST_SAYS(output.err, names);
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    ck_assert_uint_eq(output.out_bytes, 0);
    ck_assert(!test_exists(out_folder));
}

static const uint16_t plain_x[] = {0x3F80, 0x3F80, 0x3F80, 0x3F80, 0x3F80,
                                   0x3F80, 0x3F80, 0x3F80, 0x3F80};
static const int64_t plain_ids[18] = {0};
static const float plain_weights[18] = {0};

START_TEST(an_id_past_the_last_expert_is_refused_as_64_bits)
{
    static const int64_t wide[] = {0, 4294967296};
    const struct made_rank good = {1, plain_x, plain_ids, halves}, bad = {1, plain_x, wide, halves};

    put(0, _i == 0 ? ll_2_4 : normal_2_4, 2, &good);
    put(1, _i == 0 ? ll_2_4 : normal_2_4, 2, &bad);
    refused("topk_idx: [0][1]: 4294967296: must be below 4");
}
END_TEST

START_TEST(more_tokens_than_max_are_refused)
{
    const struct made_rank many = {9, plain_x, plain_ids, plain_weights},
                           none = {0, NULL, NULL, NULL};
    put(0, ll_2_4, 1, &many);
    put(1, ll_2_4, 1, &none);
    refused("9 tokens: must be at most max, 8");
}
END_TEST

START_TEST(more_sends_to_an_expert_than_max_are_refused)
{
    const struct made_rank twice = {5, plain_x, plain_ids, plain_weights},
                           none = {0, NULL, NULL, NULL};
    put(0, ll_2_4, 2, &twice); /* Five tokens, two times expert 0 each. */
    put(1, ll_2_4, 2, &none);
    refused("10 rows for expert 0: must be at most max, 8");
}
END_TEST

START_TEST(ranks_must_agree_about_the_settings)
{
    const struct made_rank none = {0, NULL, NULL, NULL};

    put(0, ll_2_4, 2, &none);
    put(1, "{\"mode\": \"ll\", \"ranks\": 2, \"experts\": 4, \"max\": 9}", 2, &none);
    refused("case.rank1.safetensors: __metadata__.case differs");
}
END_TEST

static const struct {
    const char *settings, *names;
} broken_settings[] = {
    {"{\"mode\": \"ll\", \"ranks\": 1, \"experts\": 4}", "max is missing"},
    {"{\"ranks\": 1, \"experts\": 4, \"max\": 1}", "mode is missing"},
    {"{\"mode\": \"v2\", \"ranks\": 1, \"experts\": 4, \"max\": 1}", "must be ll or normal"},
    {"{\"mode\": \"ll\", \"experts\": 4, \"max\": 1}", "ranks is missing"},
    {"{\"mode\": \"ll\", \"ranks\": 1.5, \"experts\": 4, \"max\": 1}", "ranks: 1.5"},
    {"{\"mode\": \"ll\", \"ranks\": 0, \"experts\": 4, \"max\": 1}", "ranks: 0"},
    {"{\"mode\": \"normal\", \"ranks\": 1, \"experts\": 4, \"sms\": 5}", "sms: 5"},
    {"{\"mode\": \"ll\", \"ranks\": 1, \"experts\": 4, \"max\": 1, \"expert\": \"mlp\"}",
     "must be standin or identity"},
    {"{\"mode\": \"ll\", \"ranks\": 1, \"ranks\": 1, \"experts\": 4, \"max\": 1}",
     "must be a JSON object"},
    {"[1]", "must be a JSON object"},
    {"{", "must be a JSON object"},
};

START_TEST(broken_settings_are_named)
{
    const struct made_rank none = {0, NULL, NULL, NULL};

    put(0, broken_settings[_i].settings, 2, &none);
    refused(broken_settings[_i].names);
}
END_TEST

START_TEST(experts_must_divide)
{
    const struct made_rank none = {0, NULL, NULL, NULL};
    static const char settings[] = "{\"mode\": \"ll\", \"ranks\": 2, \"experts\": 5, \"max\": 1}";

    put(0, settings, 2, &none);
    put(1, settings, 2, &none);
    refused("5 experts on 2 ranks");
}
END_TEST

START_TEST(a_missing_rank_is_refused)
{
    const struct made_rank none = {0, NULL, NULL, NULL};

    put(0, ll_2_4, 2, &none);
    refused("case.rank1.safetensors: missing");
}
END_TEST

START_TEST(codes_without_scales_are_refused)
{
    const struct made_rank a = {1, plain_x, plain_ids, halves}, none = {0, NULL, NULL, NULL};
    static const uint8_t codes[HIDDEN] = {0};
    const struct trace_tensor more = made_tensor("x_fp8", TRACE_F8_E4M3, 1, HIDDEN, codes);

    make_rank(in_folder, "case", 0, normal_2_4, HIDDEN, 2, &a, &more, 1);
    put(1, normal_2_4, 2, &none);
    refused("x_fp8 and x_scales come together");
}
END_TEST

START_TEST(one_broken_case_leaves_nothing_of_the_others)
{
    static const int64_t wide[] = {0, 7};
    static const char one[] = "{\"mode\": \"ll\", \"ranks\": 1, \"experts\": 4, \"max\": 8}";
    const struct made_rank good = {1, plain_x, plain_ids, halves}, bad = {1, plain_x, wide, halves};

    make_rank(in_folder, "a", 0, one, HIDDEN, 2, &good, NULL, 0);
    make_rank(in_folder, "b", 0, one, HIDDEN, 2, &bad, NULL, 0);
    refused("b.rank0.safetensors: topk_idx");
}
END_TEST

START_TEST(results_do_not_go_into_the_folder_of_the_inputs)
{
    const struct made_rank none = {0, NULL, NULL, NULL};
    struct test_output output;

    put(0, ll_2_4, 2, &none);
    put(1, ll_2_4, 2, &none);
    ck_assert_int_eq(TEST_EPSIM(&output, "expect", in_folder, "--out", in_folder), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "expect", in_folder), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "expect", in_folder, "--out", out_folder, "--json"), 0);
    TEST_SAYS(output.out, "\"files\": 2");
}
END_TEST

Suite *expect_refusals_suite(void);
Suite *expect_refusals_suite(void)
{
    Suite *suite = suite_create("expect_refusals");
    TCase *tcase = tcase_create("expect_refusals");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, an_id_past_the_last_expert_is_refused_as_64_bits, 0, 2);
    tcase_add_test(tcase, more_tokens_than_max_are_refused);
    tcase_add_test(tcase, more_sends_to_an_expert_than_max_are_refused);
    tcase_add_test(tcase, ranks_must_agree_about_the_settings);
    tcase_add_loop_test(tcase, broken_settings_are_named, 0,
                        (int)(sizeof(broken_settings) / sizeof(broken_settings[0])));
    tcase_add_test(tcase, experts_must_divide);
    tcase_add_test(tcase, a_missing_rank_is_refused);
    tcase_add_test(tcase, codes_without_scales_are_refused);
    tcase_add_test(tcase, one_broken_case_leaves_nothing_of_the_others);
    tcase_add_test(tcase, results_do_not_go_into_the_folder_of_the_inputs);
    suite_add_tcase(suite, tcase);
    return suite;
}
