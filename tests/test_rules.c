/* tests/test_rules.c - each rule fails where the library would, and names what works.
 *
 * Figures are the cases D3, D4, D5 and D14 and the tables of the library's limits, worked out by
 * hand. Every test changes one thing in a deployment that passes. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tests/rules_support.h"
#include "tests/support.h"

START_TEST(a_deployment_that_works_passes_every_rule)
{
    for (uint32_t mode = 0; mode < 2; mode++)
        for (uint32_t ranks = 8; ranks <= 32; ranks *= 2) {
            const struct sim_rules_input input = deployment((enum sim_mode)mode, ranks);
            passes(&input);
        }
}
END_TEST

START_TEST(low_latency_takes_eight_hidden_sizes) /* D5 */
{
    static const uint32_t accepted[] = {2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};
    static const uint32_t refused[][2] = {{2880, 3072}, {3584, 4096}, {1536, 2048},
                                          {2176, 2560}, {7680, 8192}, {16384, 8192}};
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    for (size_t i = 0; i < 8; i++) {
        input.hidden = accepted[i];
        passes(&input);
    }
    for (size_t i = 0; i < 6; i++) {
        input.hidden = refused[i][0];
        fails_alone(&input, SIM_RULE_HIDDEN_LL, refused[i][0], refused[i][1]);
    }
    TEST_SAYS(rules[SIM_RULE_HIDDEN_LL].text, "16384");
}
END_TEST

START_TEST(normal_hidden_fits_the_copy_buffers)
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 8);

    input.payload_bytes = 2; /* One node, BF16: up to 8176; 8192 traps. */
    input.hidden = 8176;
    passes(&input);
    input.hidden = 8192;
    fails_alone(&input, SIM_RULE_HIDDEN_NORMAL, 8192, 8176);
    input.payload_bytes = 1; /* FP8: whole groups, at most 64 of them. */
    passes(&input);
    input.hidden = 8320;
    fails_alone(&input, SIM_RULE_HIDDEN_NORMAL, 8320, 8192);
    input.hidden = 2880;
    fails_alone(&input, SIM_RULE_HIDDEN_NORMAL, 2880, 2944);

    input = deployment(SIM_MODE_NORMAL, 16); /* Several nodes: combine, 256 channels at a time. */
    input.hidden = 7936;
    passes(&input);
    input.hidden = 8192;
    fails_alone(&input, SIM_RULE_HIDDEN_NORMAL, 8192, 7936);
    input.hidden = 2944;
    fails_alone(&input, SIM_RULE_HIDDEN_NORMAL, 2944, 3072);
}
END_TEST

START_TEST(top_k_stops_at_11_in_low_latency_and_at_32_in_normal) /* D5 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    input.topk = 11;
    passes(&input);
    input.topk = 12;
    fails_alone(&input, SIM_RULE_TOPK, 12, 11);
    input.topk = 0;
    fails_alone(&input, SIM_RULE_TOPK, 0, 1);
    input = deployment(SIM_MODE_NORMAL, 8);
    input.topk = 32;
    passes(&input);
    input.topk = 33;
    fails_alone(&input, SIM_RULE_TOPK, 33, 32);
}
END_TEST

START_TEST(experts_divide_over_the_ranks) /* D4 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 4);

    input.experts = 10;
    fails_alone(&input, SIM_RULE_EXPERTS_DIVIDE, 10, 12);
    TEST_SAYS(rules[SIM_RULE_EXPERTS_DIVIDE].text, "10 % 4");
    input = deployment(SIM_MODE_NORMAL, 2); /* One node: 128 local experts. */
    passes(&input);
    input.experts = 258;
    fails_alone(&input, SIM_RULE_EXPERTS_DIVIDE, 258, 256);
    input = deployment(SIM_MODE_NORMAL, 16); /* 512 experts a node. */
    input.experts = 1024;
    passes(&input);
    input.experts = 1040;
    fails_alone(&input, SIM_RULE_EXPERTS_DIVIDE, 1040, 1024);
    input = deployment(SIM_MODE_LL, 8); /* 14 warp groups on each of 132 SMs: 1848 experts. */
    for (uint32_t r = 0; r < 64; r++) tokens[r] = capacity[r] = 4;
    input.experts = 1848;
    passes(&input);
    input.experts = 1856;
    fails_alone(&input, SIM_RULE_EXPERTS_DIVIDE, 1856, 1848);
}
END_TEST

START_TEST(normal_kernels_exist_for_2_4_and_8_ranks_a_node) /* D5 */
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 6);

    input.experts = 192;
    fails_alone(&input, SIM_RULE_LOCAL_RANKS, 6, 8);
    input.ranks = 12;
    input.nodes = 1;
    fails_alone(&input, SIM_RULE_LOCAL_RANKS, 12, 8);
    input.ranks = 3;
    fails_alone(&input, SIM_RULE_LOCAL_RANKS, 3, 4);
    for (input.ranks = 2; input.ranks <= 8; input.ranks *= 2) passes(&input);
    input.ranks = 24; /* 3 x 8 */
    input.nodes = 3;
    passes(&input);
    input.nodes = 6; /* 6 x 4 */
    fails_alone(&input, SIM_RULE_LOCAL_RANKS, 4, 8);
    ck_assert(!rules[SIM_RULE_LOCAL_RANKS].model_only);
}
END_TEST

START_TEST(low_latency_takes_below_8_ranks_or_whole_eights) /* D4 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 9);

    input.experts = 288;
    input.machine_hbm_bytes = 0;
    fails_alone(&input, SIM_RULE_LOCAL_RANKS, 9, 8);
    input.ranks = 1;
    input.nodes = 1;
    passes(&input);
    input.ranks = 6;
    passes(&input);
}
END_TEST

START_TEST(normal_kernels_exist_for_ten_node_counts) /* D5 */
{
    static const uint32_t accepted[] = {1, 2, 3, 4, 6, 8, 12, 16, 18, 20};
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 8);
    uint32_t many[168];

    for (uint32_t r = 0; r < 168; r++) many[r] = 128;
    input.tokens = input.capacity = many;
    for (uint32_t nodes = 1; nodes <= 21; nodes++) {
        bool expected = false;

        for (size_t i = 0; i < 10; i++) expected |= accepted[i] == nodes;
        input.nodes = nodes;
        input.ranks = 8 * nodes;
        input.experts = input.ranks * 8;
        ck_assert_msg(check(&input, SIM_RULE_NODE_COUNT)->ok == expected, "%" PRIu32, nodes);
    }
    input.nodes = 5;
    input.ranks = 40;
    input.experts = 320;
    fails_alone(&input, SIM_RULE_NODE_COUNT, 5, 6);
    input.machine_has_nic = false;
    fails_alone(&input, SIM_RULE_NODE_COUNT, 5, 1);
}
END_TEST

START_TEST(nodes_of_another_size_are_model_only)
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 8);
    char refusal[SIM_RULE_REFUSAL_MAX];

    input.nodes = 2;
    input.machine_node_ranks = 4;
    const struct sim_rule *rule = check(&input, SIM_RULE_LOCAL_RANKS);
    ck_assert(!rule->ok && rule->model_only);
    ck_assert_uint_eq(sim_rules_refuse(rules, false, refusal, sizeof(refusal)), 0);
    ck_assert_uint_eq(sim_rules_refuse(rules, true, refusal, sizeof(refusal)), 1);
    TEST_SAYS(refusal, "local_ranks: ");
}
END_TEST

START_TEST(capacity_holds_the_tokens) /* D4 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    tokens[3] = 129;
    fails_alone(&input, SIM_RULE_TOKENS_OVER_CAPACITY, 129, 128);
    TEST_SAYS(rules[SIM_RULE_TOKENS_OVER_CAPACITY].text, "rank 3");
    tokens[3] = 0;
    passes(&input);
    for (uint32_t r = 0; r < 8; r++) capacity[r] = tokens[r] = 0;
    fails_alone(&input, SIM_RULE_CAPACITY, 0, 1);
}
END_TEST

START_TEST(capacity_is_the_same_everywhere) /* D4 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    capacity[5] = tokens[5] = 64;
    fails_alone(&input, SIM_RULE_CAPACITY_EQUAL, 64, 128);
}
END_TEST

START_TEST(ranks_times_capacity_is_a_multiple_of_4) /* D4 */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 2);

    tokens[0] = tokens[1] = capacity[0] = capacity[1] = 5;
    fails_alone(&input, SIM_RULE_CAPACITY_MULTIPLE_4, 5, 6);
    capacity[0] = capacity[1] = 6;
    passes(&input);
    input.ranks = 1; /* Multiples of 4 only; below where the tokens still fit. */
    tokens[0] = 4, capacity[0] = 5;
    fails_alone(&input, SIM_RULE_CAPACITY_MULTIPLE_4, 5, 4);
    tokens[0] = 5;
    fails_alone(&input, SIM_RULE_CAPACITY_MULTIPLE_4, 5, 8);
}
END_TEST

START_TEST(queue_depth_is_twice_capacity_and_one) /* D3 c */
{
    static const uint32_t needed[][2] = {{128, 258},   {511, 1024},  {512, 1026},
                                         {1024, 2050}, {1025, 2052}, {2304, 4610}};
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    for (size_t i = 0; i < 6; i++) {
        for (uint32_t r = 0; r < 8; r++) capacity[r] = needed[i][0];
        const struct sim_rule *rule = check(&input, SIM_RULE_QP_DEPTH);
        ck_assert_int_eq(rule->limit, needed[i][1]);
        ck_assert_int_eq(rule->ok, needed[i][1] <= 1024);
        if (!rule->ok) ck_assert_int_eq(rule->nearest, needed[i][1]);
    }
    for (uint32_t r = 0; r < 8; r++) capacity[r] = 512;
    fails_alone(&input, SIM_RULE_QP_DEPTH, 1024, 1026);
    TEST_SAYS(rules[SIM_RULE_QP_DEPTH].text, "511");
}
END_TEST

START_TEST(one_hot_expert_is_refused_with_the_depth_it_needs) /* D3 a, b */
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 4);
    char refusal[SIM_RULE_REFUSAL_MAX], err[256];

    input.experts = 8, input.topk = 1, input.hidden = 2048;
    for (uint32_t r = 0; r < 4; r++) capacity[r] = tokens[r] = 1025;
    sim_rules_check(&input, rules);
    ck_assert_uint_eq(sim_rules_refuse(rules, false, refusal, sizeof(refusal)), 2);
    TEST_SAYS(refusal, "max_tokens_1024: ");
    TEST_SAYS(refusal, "2052");
    input = deployment(SIM_MODE_LL, 16);
    input.topk = 1;
    for (uint32_t r = 0; r < 16; r++) capacity[r] = tokens[r] = 2304;
    sim_rules_check(&input, rules);
    ck_assert_uint_gt(sim_rules_refuse(rules, false, refusal, sizeof(refusal)), 0);
    TEST_SAYS(refusal, "4610");
    ck_assert_ptr_null(strchr(refusal, '\n'));
    input.qp_depth = 4610; /* The guard alone is left; it can be lifted. */
    fails_alone(&input, SIM_RULE_MAX_TOKENS_1024, 2304, 1024);
    ck_assert_int_eq(sim_rules_allow(rules, "max_tokens_1024", err, sizeof(err)), 0);
    ck_assert_uint_eq(sim_rules_refuse(rules, true, refusal, sizeof(refusal)), 0);
    ck_assert(!rules[SIM_RULE_MAX_TOKENS_1024].ok && rules[SIM_RULE_MAX_TOKENS_1024].lifted);
}
END_TEST

START_TEST(low_latency_buffers_count_to_the_byte) /* D14 */
{
    static const struct {
        uint32_t hidden, ranks, experts, capacity;
        int64_t bytes;
        bool ok;
        int64_t nearest;
    } cases[] = {
        {2048, 8, 128, 128, 272630912, true, 0},
        {7168, 8, 256, 128, 1908410496, true, 0},
        {7168, 16, 288, 128, 2146961792, true, 0},
        {7168, 8, 256, 256, 3816818816, true, 0},
        {7168, 32, 288, 1024, 17175677312, true, 0},
        {5120, 16, 448, 1536, 28626128512, true, 0},
        {5120, 16, 448, 1840, 34291715712, true, 0},
        {5120, 16, 448, 1856, 34589904512, false, 1840},
        {5120, 16, 448, 2048, 38168170112, false, 1840},
        {7168, 16, 256, 2304, 34351351936, true, 0},
        {7168, 16, 256, 2308, 34410989696, false, 2304},
        {7168, 16, 288, 2400, 0, false, 2048},
        {7168, 16, 320, 2400, 0, false, 1840},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sim_rules_input input = deployment(SIM_MODE_LL, cases[i].ranks);

        input.hidden = cases[i].hidden;
        input.experts = cases[i].experts;
        for (uint32_t r = 0; r < 64; r++) capacity[r] = cases[i].capacity;
        const struct sim_rule *rule = check(&input, SIM_RULE_BUFFER_BYTES);
        if (cases[i].bytes > 0) ck_assert_int_eq(rule->value, cases[i].bytes);
        ck_assert_int_eq(rule->limit, 34359738352);
        ck_assert_int_eq(rule->ok, cases[i].ok);
        if (!rule->ok) ck_assert_int_eq(rule->nearest, cases[i].nearest);
    }
}
END_TEST

START_TEST(a_buffer_must_fit_the_memory_of_the_gpu)
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    input.machine_hbm_bytes = 1908410496; /* Exactly the buffer of capacity 128: no room. */
    fails_alone(&input, SIM_RULE_BUFFER_BYTES, 1908410496, 124);
    input.machine_hbm_bytes++;
    passes(&input);
}
END_TEST

START_TEST(normal_buffers_stay_in_an_int_with_rdma)
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 16);

    ck_assert_int_eq(check(&input, SIM_RULE_BUFFER_BYTES)->value, 377673984); /* 4.2's table. */
    ck_assert_int_eq(rules[SIM_RULE_BUFFER_BYTES].limit, INT32_MAX);
    input = deployment(SIM_MODE_NORMAL, 8);
    ck_assert_int_eq(check(&input, SIM_RULE_BUFFER_BYTES)->value, 335709824);
}
END_TEST

START_TEST(communication_sms_are_even_and_not_too_many)
{
    struct sim_rules_input input = deployment(SIM_MODE_NORMAL, 8);

    input.sms = 21;
    fails_alone(&input, SIM_RULE_NUM_SMS_EVEN, 21, 22);
    input.sms = 134;
    fails_alone(&input, SIM_RULE_NUM_SMS_MAX, 134, 132);
    input = deployment(SIM_MODE_NORMAL, 16);
    input.sms = 56;
    passes(&input);
    input.sms = 58;
    fails_alone(&input, SIM_RULE_NUM_SMS_MAX, 58, 56);
    input.sms = 2;
    fails_alone(&input, SIM_RULE_NUM_SMS_MAX, 2, 4);
}
END_TEST

START_TEST(low_latency_after_normal_needs_a_clean)
{
    struct sim_rules_input input = deployment(SIM_MODE_LL, 8);

    input.after = SIM_MODE_NORMAL;
    passes(&input); /* Cleaned since. */
    input.clean = false;
    fails_alone(&input, SIM_RULE_MODE_CLEAN, 1, 0);
    TEST_SAYS(rules[SIM_RULE_MODE_CLEAN].text, "clean_low_latency_buffer");
    input.mode = SIM_MODE_NORMAL;
    passes(&input);
}
END_TEST

START_TEST(ranks_that_a_refusal_names_pass_every_rule)
{
    uint32_t many[SIM_RANKS_MAX], named = 0;
    char way[96];

    for (uint32_t r = 0; r < SIM_RANKS_MAX; r++) many[r] = 128;
    for (uint32_t ranks = 1; ranks <= 64; ranks++) {
        const enum sim_mode mode = _i == 0 ? SIM_MODE_LL : SIM_MODE_NORMAL;
        struct sim_rules_input input = deployment(mode, ranks);
        uint32_t found[2] = {0, 0};
        input.tokens = input.capacity = many;
        input.machine_has_nic = _i < 2;
        input.machine_node_ranks = _i < 2 ? 8 : 2;
        input.nodes = (ranks + input.machine_node_ranks - 1) / input.machine_node_ranks;
        sim_rules_check(&input, rules);
        sim_rules_way_out(&input, rules, way, sizeof way);
        const int count = sscanf(way, "--ep %" SCNu32 " or --ep %" SCNu32, &found[0], &found[1]);
        const bool refused = !rules[SIM_RULE_EXPERTS_DIVIDE].ok ||
                             !rules[SIM_RULE_LOCAL_RANKS].ok || !rules[SIM_RULE_NODE_COUNT].ok;
        ck_assert_msg(refused == (count > 0), "%" PRIu32 ": %s", ranks, way);
        for (int f = 0; f < count; f++) {
            input.ranks = found[f];
            input.nodes = (found[f] + input.machine_node_ranks - 1) / input.machine_node_ranks;
            sim_rules_check(&input, rules);
            for (uint32_t i = 0; i < SIM_RULES; i++)
                ck_assert_msg(rules[i].ok || rules[i].model_only, "%" PRIu32 ": %s: %s", ranks, way,
                              rules[i].text);
            named++;
        }
    }
    ck_assert_uint_gt(named, 30);
    const struct sim_rules_input twelve = deployment(SIM_MODE_LL, 12); /* 256 = 8 x 32 = 16 x 16. */
    sim_rules_check(&twelve, rules);
    sim_rules_way_out(&twelve, rules, way, sizeof way);
    ck_assert_str_eq(way, "--ep 8 or --ep 16 passes");
    ck_assert_ptr_null(strstr(rules[SIM_RULE_EXPERTS_DIVIDE].text, "264")); /* No 12 ranks. */
}
END_TEST

Suite *rules_suite(void);
Suite *rules_suite(void)
{
    Suite *suite = suite_create("rules");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, a_deployment_that_works_passes_every_rule);
    tcase_add_test(tcase, low_latency_takes_eight_hidden_sizes);
    tcase_add_test(tcase, normal_hidden_fits_the_copy_buffers);
    tcase_add_test(tcase, top_k_stops_at_11_in_low_latency_and_at_32_in_normal);
    tcase_add_test(tcase, experts_divide_over_the_ranks);
    tcase_add_test(tcase, normal_kernels_exist_for_2_4_and_8_ranks_a_node);
    tcase_add_test(tcase, low_latency_takes_below_8_ranks_or_whole_eights);
    tcase_add_test(tcase, normal_kernels_exist_for_ten_node_counts);
    tcase_add_test(tcase, nodes_of_another_size_are_model_only);
    tcase_add_test(tcase, capacity_holds_the_tokens);
    tcase_add_test(tcase, capacity_is_the_same_everywhere);
    tcase_add_test(tcase, ranks_times_capacity_is_a_multiple_of_4);
    tcase_add_test(tcase, queue_depth_is_twice_capacity_and_one);
    tcase_add_test(tcase, one_hot_expert_is_refused_with_the_depth_it_needs);
    tcase_add_test(tcase, low_latency_buffers_count_to_the_byte);
    tcase_add_test(tcase, a_buffer_must_fit_the_memory_of_the_gpu);
    tcase_add_test(tcase, normal_buffers_stay_in_an_int_with_rdma);
    tcase_add_test(tcase, communication_sms_are_even_and_not_too_many);
    tcase_add_test(tcase, low_latency_after_normal_needs_a_clean);
    tcase_add_loop_test(tcase, ranks_that_a_refusal_names_pass_every_rule, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
