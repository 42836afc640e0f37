/* tests/test_rules_ids.c - rules that only ids can tell, what --allow lifts, and the commands that
 * print or obey the rules. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "tests/json.h"
#include "tests/rules_support.h"
#include "tests/support.h"
#include "traces/npy.h"

/* Two ranks of two tokens with top-2 of four experts. */
static struct ref_routing routing_of(const int64_t ids[8])
{
    static const uint64_t start[] = {0, 2, 4};
    const struct ref_routing routing = {
        .ranks = 2, .experts = 4, .topk = 2, .token_start = start, .topk_idx = ids};

    return routing;
}

START_TEST(ids_stay_in_range_as_64_bit_numbers)
{
    int64_t ids[8] = {0, 1, 2, -1, 3, 0, 1, 4294967296 + 2};
    const struct ref_routing routing = routing_of(ids);
    struct sim_rules_input input = deployment(SIM_MODE_LL, 2);

    input.experts = 4, input.topk = 2, input.routing = &routing;
    fails_alone(&input, SIM_RULE_ID_RANGE, 4294967298, 3);
    TEST_SAYS(rules[SIM_RULE_ID_RANGE].text, "token 1 of rank 1");
    ids[7] = 4;
    fails_alone(&input, SIM_RULE_ID_RANGE, 4, 3);
    ids[7] = -9;
    passes(&input);
    ck_assert(rules[SIM_RULE_ID_RANGE].applies);
}
END_TEST

START_TEST(a_duplicate_is_named_with_its_token) /* D13 */
{
    int64_t ids[8] = {1, 1, 2, 3, -1, -1, 0, 3};
    const struct ref_routing routing = routing_of(ids);
    struct sim_rules_input input = deployment(SIM_MODE_LL, 2);

    input.experts = 4, input.topk = 2, input.routing = &routing;
    fails_alone(&input, SIM_RULE_DUPLICATE_ID, 1, 0);
    TEST_SAYS(rules[SIM_RULE_DUPLICATE_ID].text, "token 0 names expert 1 twice");
    input.mode = SIM_MODE_NORMAL;
    fails_alone(&input, SIM_RULE_DUPLICATE_ID, 1, 0);
}
END_TEST

START_TEST(duplicates_can_overrun_a_capacity_that_holds_the_tokens)
{
    int64_t ids[8] = {1, 1, 1, 1, 0, 2, 3, 2};
    const struct ref_routing routing = routing_of(ids);
    struct sim_rules_input input = deployment(SIM_MODE_LL, 2);

    input.experts = 4, input.topk = 2, input.routing = &routing;
    for (uint32_t r = 0; r < 2; r++) tokens[r] = capacity[r] = 2;
    const struct sim_rule *rule = check(&input, SIM_RULE_CAPACITY);
    ck_assert(!rule->ok && rules[SIM_RULE_TOKENS_OVER_CAPACITY].ok);
    ck_assert_int_eq(rule->limit, 4);
    ck_assert_int_eq(rule->nearest, 4);
    TEST_SAYS(rule->text, "rank 0 sends 4 rows to expert 1");
}
END_TEST

START_TEST(a_token_reaches_at_most_eight_nodes)
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 96);
    uint64_t starts[97];
    uint32_t many[96] = {1};
    int64_t ids[9];

    starts[0] = 0;
    for (uint32_t r = 1; r <= 96; r++) starts[r] = 1;
    for (uint32_t k = 0; k < 9; k++) ids[k] = 16 * (int64_t)k; /* 192 experts, 16 a node. */
    const struct ref_routing routing = {
        .ranks = 96, .experts = 192, .topk = 9, .token_start = starts, .topk_idx = ids};
    input.experts = 192, input.topk = 9, input.routing = &routing;
    input.tokens = input.capacity = many;
    fails_alone(&input, SIM_RULE_TOPK, 9, 8);
    TEST_SAYS(rules[SIM_RULE_TOPK].text, "9 nodes");
    ids[8] = 1;
    passes(&input);
}
END_TEST

START_TEST(allow_knows_only_rule_names)
{
    const struct sim_rules_input input = deployment(SIM_MODE_LL, 8);
    char err[256] = "";

    sim_rules_check(&input, rules);
    ck_assert_int_eq(sim_rules_allow(rules, "qp_depth,topk", err, sizeof(err)), 0);
    ck_assert(!rules[SIM_RULE_QP_DEPTH].lifted); /* It passes: nothing to lift. */
    ck_assert_int_eq(sim_rules_allow(rules, "qp_depth,speed", err, sizeof(err)), -1);
    TEST_SAYS(err, "'speed'");
}
END_TEST

/* The rule of that name in the command's JSON. */
static json_t *json_rule(const json_t *json, const char *name)
{
    size_t i = 0;
    json_t *rule = NULL;

    json_array_foreach(json_object_get(json, "rules"), i,
                       rule) if (strcmp(text_at(rule, "name"), name) == 0) return rule;
    ck_abort_msg("no rule %s", name);
    return NULL;
}

START_TEST(check_answers_in_json_and_by_exit_status)
{
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--model", "deepseek-v3", "--ep", "8", "--mode",
                                "ll", "--tokens", "1025", "--json"),
                     1);
    json_t *json = test_json(&output);
    ck_assert(!is_true_at(json, "ok"));
    ck_assert_uint_eq(json_array_size(json_object_get(json, "rules")), SIM_RULES);
    const json_t *depth = json_rule(json, "qp_depth"); /* Capacity is 1025 rounded up: 1152. */
    ck_assert(!is_true_at(depth, "ok"));
    ck_assert_int_eq(int_at(depth, "value"), 1024);
    ck_assert_int_eq(int_at(depth, "nearest"), 2306);
    ck_assert(json_is_null(json_object_get(json_rule(json, "num_sms_even"), "value")));
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--model", "deepseek-v3", "--ep", "8", "--mode",
                                "ll", "--tokens", "128"),
                     0);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--allow", "speed"), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--tokens", "1025", "--mode", "ll", "--qp-depth",
                                "4096", "--allow", "max_tokens_1024"),
                     0);
    TEST_SAYS(output.out, "lifted");
}
END_TEST

START_TEST(run_refuses_what_check_refuses)
{
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--mode", "ll",
                                "--tokens", "1025", "--capacity", "1025", "--qp-depth", "1024"),
                     2);
    TEST_SAYS(output.err, "2052");
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    ck_assert_uint_eq(output.out_bytes, 0);
}
END_TEST

START_TEST(check_reads_the_ids_of_a_trace)
{
    struct test_output output;
    const char *folder = test_temp_dir();
    const uint64_t shape[3] = {2, 1, 2};
    const int32_t ids[4] = {0, 3, 7, 7};
    char err[256] = "";
    const char *path = test_join(folder, "ids.npy");

    ck_assert_int_eq(trace_npy_write(path, TRACE_I32, shape, 3, ids, err, sizeof(err)), 0);
    ck_assert_int_eq(
        TEST_EPSIM(&output, "check", "--model", "toy-16x2", "--routing", path, "--json"), 1);
    json_t *json = test_json(&output);
    ck_assert(is_true_at(json_rule(json, "id_range"), "ok"));
    ck_assert_int_eq(int_at(json_rule(json, "id_range"), "value"), 7);
    const char *text = text_at(json_rule(json, "duplicate_id"), "text");
    TEST_SAYS(text, "token 1 names expert 7 twice");
    json_decref(json);
}
END_TEST

START_TEST(check_remarks_weights_that_are_no_weights)
{
    struct test_output output;
    const char *folder = test_temp_dir(), *ids_path = test_join(folder, "ids.npy"),
               *path = test_join(folder, "weights.npy");
    const uint64_t shape[3] = {3, 1, 2};
    const int32_t ids[6] = {0, 3, 7, -1, 2, 1};
    /* The NaN beside no expert is nobody's. */
    float weights[6] = {0.5f, 0.5f, 1, NAN, 0.5f, 0.5f};
    char err[256] = "";

    ck_assert_int_eq(trace_npy_write(ids_path, TRACE_I32, shape, 3, ids, err, sizeof err), 0);
    ck_assert_int_eq(trace_npy_write(path, TRACE_F32, shape, 3, weights, err, sizeof err), 0);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--model", "toy-16x2", "--routing", ids_path,
                                "--weights", path),
                     0);
    ck_assert_ptr_null(strstr(output.out, "warning"));
    weights[1] = -1;
    weights[4] = -2;
    weights[5] = INFINITY;
    ck_assert_int_eq(trace_npy_write(path, TRACE_F32, shape, 3, weights, err, sizeof err), 0);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--model", "toy-16x2", "--routing", ids_path,
                                "--weights", path),
                     0);
    TEST_SAYS(output.out,
              "warning: 1 weight is NaN or infinite, the first of token 2, layer 0, column 1: so "
              "is what combine makes of it; 2 are negative, the first of token 0, layer 0, column "
              "1\n");
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--model", "toy-16x2", "--weights", path), 2);
    TEST_SAYS(output.err, "--weights: needs --routing TRACE");
}
END_TEST

/* 256 experts do not divide over 72 ranks; 288 places do. */
START_TEST(check_takes_places_for_replicas_as_run_does)
{
    static const struct {
        const char *words[6];
        int status;
        const char *says;
    } asked[] = {
        {{"--ep", "72"}, 1, "experts_divide"},
        {{"--ep", "72", "--eplb", "288"}, 0, "256 experts in 288 places"},
        {{"--ep", "72", "--eplb", "290"}, 1, "experts_divide: 290 experts on 72 ranks"},
        {{"--ep", "8", "--eplb", "128"}, 2, "--eplb: 128: must be at least the 256 experts"},
        {{"--ep", "8", "--eplb", "264", "--eplb-groups", "7"}, 2, "--eplb-groups: 7: must be a"},
        {{"--ep", "8", "--eplb", "264", "--eplb-weights", "WEIGHTS"},
         2,
         "--eplb-weights: WEIGHTS: 1 layers of 2 experts, but deepseek-v3 has 256"},
        {{"--ep", "8", "--eplb-groups", "8"}, 2, "--eplb-groups: needs --eplb"},
        {{"--ep", "8", "--phase", "prefill"}, 0, "normal\n"},
        {{"--ep", "8", "--phase", "prefill", "--mode", "ll"}, 2, "--phase: prefill: "},
    };
    const char *weights = test_write_text(test_temp_dir(), "w.json", "[[1, 2]]");
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const char *argv[9] = {test_epsim(), "check"}, *says = asked[i].says;
        struct test_output output;
        for (size_t w = 0; w < 6 && asked[i].words[w] != NULL; w++)
            argv[w + 2] = strcmp(asked[i].words[w], "WEIGHTS") == 0 ? weights : asked[i].words[w];
        test_run(argv, &output);
        ck_assert_msg(output.status == asked[i].status, "%s: %d", says, output.status);
        const char *path = strstr(says, "WEIGHTS");
        if (path != NULL)
            says = test_format("%.*s%s%s", (int)(path - says), says, weights, path + 7);
        ck_assert_msg(strstr(output.status == 2 ? output.err : output.out, says) != NULL,
                      "%s: %s%s", says, output.out, output.err);
    }
}
END_TEST

Suite *rules_ids_suite(void);
Suite *rules_ids_suite(void)
{
    Suite *suite = suite_create("rules_ids");
    TCase *tcase = tcase_create("rules_ids");

    tcase_add_test(tcase, ids_stay_in_range_as_64_bit_numbers);
    tcase_add_test(tcase, a_duplicate_is_named_with_its_token);
    tcase_add_test(tcase, duplicates_can_overrun_a_capacity_that_holds_the_tokens);
    tcase_add_test(tcase, a_token_reaches_at_most_eight_nodes);
    tcase_add_test(tcase, allow_knows_only_rule_names);
    tcase_add_test(tcase, check_answers_in_json_and_by_exit_status);
    tcase_add_test(tcase, run_refuses_what_check_refuses);
    tcase_add_test(tcase, check_reads_the_ids_of_a_trace);
    tcase_add_test(tcase, check_remarks_weights_that_are_no_weights);
    tcase_add_test(tcase, check_takes_places_for_replicas_as_run_does);
    suite_add_tcase(suite, tcase);
    return suite;
}
