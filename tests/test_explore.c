/* tests/test_explore.c - interleavings walked whole: who is safe, and how the others break.
 *
 * Right values by hand. Sentinel: four combinations of A and B times n + 1 counts of sends, and one
 * state more for every one in which the poller may see twice the tag. Queue pair with M rows a
 * kernel: place q of a kernel holds 0..M + 1 + q requests in flight, the first place 2(M + 1). */
#include <check.h>
#include <string.h>

#include "sim/explore.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *explore_suite(void);

static char err[256];

static struct sim_exploration explore(const struct sim_explore_ask *ask)
{
    struct sim_exploration exploration;
    ck_assert_msg(sim_explore(ask, &exploration, err, sizeof err) == 0, "%s", err);
    return exploration;
}

static struct sim_exploration sentinel(uint32_t tokens, uint32_t tag, bool ordered)
{
    return explore(&(struct sim_explore_ask){
        .protocol = SIM_EXPLORE_SENTINEL, .tokens = tokens, .tag = tag, .ordered = ordered});
}

/* Rows [first, end) of rank 0 for expert 1, and no others, are wrong. */
static void assert_rows(const struct sim_exploration *exploration, uint32_t first, uint32_t end)
{
    ck_assert(!exploration->safe);
    ck_assert_uint_eq(exploration->row_count, end - first);
    for (uint64_t r = 0; r < exploration->row_count; r++) {
        ck_assert_uint_eq(exploration->rows[r].expert, 1);
        ck_assert_uint_eq(exploration->rows[r].src_rank, 0);
        ck_assert_uint_eq(exploration->rows[r].src_token, first + r);
    }
}

static const struct {
    uint32_t tokens;
    bool ordered, safe;
    uint64_t states;
} SENTINELS[] = {
    {1, true, true, 4 * 2 + 1},         {1023, true, true, 4 * 1024 + 1},
    {1024, true, true, 4 * 1025 + 1},   {1025, true, true, 4 * 1026 + 1},
    {2304, true, true, 4 * 2305 + 1},   {1, false, true, 4 * 2 + 1},
    {1023, false, true, 4 * 1024 + 1},  {1024, false, true, 4 * 1025 + 2}, /* B adds 0 there. */
    {1025, false, false, 4 * 1026 + 2}, {2047, false, false, 4 * 2048 + 2},
    {2304, false, false, 4 * 2305 + 3}, /* Without A and B too, after 2048 sends. */
};

START_TEST(ordered_is_safe_and_unordered_is_safe_up_to_the_tag)
{
    struct sim_exploration exploration =
        sentinel(SENTINELS[_i].tokens, 1024, SENTINELS[_i].ordered);
    ck_assert_int_eq(exploration.safe, SENTINELS[_i].safe);
    ck_assert_uint_eq(exploration.states, SENTINELS[_i].states);
    if (SENTINELS[_i].safe) {
        ck_assert_uint_eq(exploration.step_count, 0);
        ck_assert_uint_eq(exploration.row_count, 0);
    } else {
        ck_assert_uint_eq(exploration.step_count, 1 + 1024 + 1); /* A, as many sends, the poll. */
        assert_rows(&exploration, 1024, SENTINELS[_i].tokens);
    }
    sim_explore_free(&exploration);
}
END_TEST

START_TEST(every_small_count_and_tag_agrees_with_the_rule)
{
    for (uint32_t tag = 1; tag <= 6; tag++) {
        for (uint32_t tokens = 1; tokens <= 15; tokens++) {
            struct sim_exploration exploration = sentinel(tokens, tag, false);
            ck_assert_int_eq(exploration.safe, tokens <= tag);
            if (!exploration.safe) {
                ck_assert_uint_eq(exploration.step_count, tag + 2);
                assert_rows(&exploration, tag, tokens);
            }
            sim_explore_free(&exploration);
            exploration = sentinel(tokens, tag, true);
            ck_assert(exploration.safe);
            sim_explore_free(&exploration);
        }
    }
}
END_TEST

START_TEST(a_schedule_is_told_step_by_step_and_in_short)
{
    static const char *const LINES[] = {"A adds the tag, 2: counter 2",
                                        "C adds 1 after the send of token 0: counter 3",
                                        "C adds 1 after the send of token 1: counter 4",
                                        ("the poller sees 4, twice the tag, after 2 of 3 sends: "
                                         "the receiver reads")};
    struct sim_exploration exploration = sentinel(3, 2, false);
    struct sim_explore_reader reader = {0, {0}}, again = {0, {0}};
    char text[256];
    size_t lines = 0;
    while (sim_explore_line(&exploration, &reader, false, text, sizeof text)) {
        ck_assert_uint_lt(lines, 4);
        ck_assert_str_eq(text, LINES[lines]);
        lines++;
    }
    ck_assert_uint_eq(lines, 4);
    for (lines = 0; sim_explore_line(&exploration, &again, true, text, sizeof text); lines++)
        if (lines == 1)
            ck_assert_str_eq(text, "C adds 1 after the send of tokens 0 to 1: counter 4");
    ck_assert_uint_eq(lines, 3);
    sim_explore_free(&exploration);
}
END_TEST

static struct sim_exploration qp(uint32_t rows, uint32_t depth)
{
    return explore(
        &(struct sim_explore_ask){.protocol = SIM_EXPLORE_QP, .tokens = rows, .depth = depth});
}

START_TEST(a_queue_pair_needs_two_kernels_of_rows_and_flags)
{
    for (uint32_t rows = 1; rows <= 6; rows++) {
        for (uint32_t depth = 1; depth <= 2 * (rows + 1) + 2; depth++) {
            struct sim_exploration exploration = qp(rows, depth);
            ck_assert_int_eq(exploration.safe, depth >= 2 * (rows + 1));
            if (exploration.safe)
                ck_assert_uint_eq(exploration.states,
                                  rows * (rows + 2) + rows * (rows + 1) / 2 + 2 * rows + 3);
            else
                ck_assert_uint_eq(exploration.step_count, depth + 1);
            sim_explore_free(&exploration);
        }
    }
}
END_TEST

START_TEST(the_library_default_of_1024_is_right_up_to_511_rows)
{
    struct sim_exploration exploration = qp(511, 1024);
    ck_assert(exploration.safe);
    sim_explore_free(&exploration);
    exploration = qp(512, 1024);
    assert_rows(&exploration, 0, 1); /* Request 1024 takes the place of request 0, row 0. */
    sim_explore_free(&exploration);
}
END_TEST

START_TEST(a_flag_posted_over_the_first_row_makes_every_row_late)
{
    /* Depth M: request M, the flag, stands in slot 0 and is sent before any row. */
    struct sim_exploration exploration = qp(8, 8);
    assert_rows(&exploration, 0, 8);
    sim_explore_free(&exploration);
    exploration = qp(8, 7); /* One less: row 7 takes the place of row 0. */
    assert_rows(&exploration, 0, 1);
    sim_explore_free(&exploration);
}
END_TEST

START_TEST(two_results_may_be_held_and_a_third_overwrites_the_first)
{
    for (uint32_t outstanding = 1; outstanding <= 8; outstanding++) {
        struct sim_exploration exploration = explore(&(struct sim_explore_ask){
            .protocol = SIM_EXPLORE_BUFFERS, .tokens = 6, .outstanding = outstanding});
        ck_assert_int_eq(exploration.safe, outstanding <= 2);
        /* 0..N held by either buffer; spoilt reads leave 2..N - 1 held. */
        ck_assert_uint_eq(exploration.states,
                          2 * (outstanding + 1) + 2 * (outstanding > 2 ? outstanding - 2 : 0));
        if (!exploration.safe) {
            ck_assert_uint_eq(exploration.step_count, 4);
            assert_rows(&exploration, 0, 6);
        }
        sim_explore_free(&exploration);
    }
}
END_TEST

START_TEST(the_command_prints_one_document_and_its_status_is_the_answer)
{
    struct test_output output;
    TEST_EPSIM(&output, "explore", "sentinel", "--tokens", "2304", "--ordering", "unordered",
               "--json");
    ck_assert_int_eq(output.status, 1);
    json_t *json = test_json(&output);
    ck_assert(!is_true_at(json, "safe"));
    ck_assert_int_eq(int_at(json, "states"), 9223);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "schedule")), 1026);
    ck_assert_int_eq(int_at(json, "wrong_rows"), 1280);
    const json_t *rows = json_object_get(json, "rows");
    ck_assert_uint_eq(json_array_size(rows), 1280);
    const json_t *row = json_array_get(rows, 0);
    ck_assert_int_eq(int_at(row, "expert"), 1);
    ck_assert_int_eq(int_at(row, "src_rank"), 0);
    ck_assert_int_eq(int_at(row, "src_token"), 1024);
    json_decref(json);

    TEST_EPSIM(&output, "explore", "sentinel", "--tokens", "2304", "--ordering", "ordered",
               "--json");
    ck_assert_int_eq(output.status, 0);
    json = test_json(&output);
    ck_assert(is_true_at(json, "safe"));
    ck_assert_uint_eq(json_array_size(json_object_get(json, "schedule")), 0);
    ck_assert_int_eq(int_at(json, "wrong_rows"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "rows")), 0);
    json_decref(json);
}
END_TEST

START_TEST(a_document_holds_the_question_and_a_depth_that_is_enough)
{
    struct test_output output;
    TEST_EPSIM(&output, "explore", "qp", "--depth", "1024", "--capacity", "512", "--json");
    ck_assert_int_eq(output.status, 1);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "question.depth"), 1024);
    ck_assert_int_eq(int_at(json, "question.capacity"), 512);
    ck_assert_int_eq(int_at(json, "depth_enough"), 1026); /* 2 (M + 1) */
    json_decref(json);
    TEST_EPSIM(&output, "explore", "qp", "--depth", "1024", "--capacity", "512");
    TEST_SAYS(output.out, "\nenough: a depth of 1026, 2 * (512 rows + 1 flag)\n");
    TEST_EPSIM(&output, "explore", "qp", "--depth", "1026", "--capacity", "512");
    ck_assert_int_eq(output.status, 0);
    TEST_EPSIM(&output, "explore", "sentinel", "--tokens", "4", "--tag", "6", "--ordering",
               "unordered", "--json");
    json = test_json(&output);
    ck_assert_int_eq(int_at(json, "question.tokens"), 4);
    ck_assert_int_eq(int_at(json, "question.tag"), 6);
    ck_assert_str_eq(text_at(json, "question.ordering"), "unordered");
    json_decref(json);
    TEST_EPSIM(&output, "explore", "buffers", "--outstanding", "3", "--json");
    json = test_json(&output);
    ck_assert_int_eq(int_at(json, "question.outstanding"), 3);
    json_decref(json);
}
END_TEST

static const struct {
    const char *protocol, *option, *value, *complaint;
} MISUSES[] = {
    {"ring", "--tag", "2", "epsim explore: ring: must be sentinel, qp, buffers or skew\n"},
    {"qp", "--tag", "2", "epsim explore: --tag: belongs to sentinel, not to qp\n"},
    {"sentinel", "--tokens", "0",
     "epsim explore: --tokens: 0: must be a whole number from 1 to 1048576\n"},
    {"sentinel", "--ordering", "loose",
     "epsim explore: --ordering: loose: must be ordered or unordered\n"},
    {"buffers", "--outstanding", "-1",
     "epsim explore: --outstanding: -1: must be a whole number from 1 to 1024\n"},
    {"skew", "--ep", "0", "epsim explore skew: --ep: 0: must be a whole number from 1 to 1024\n"},
};

START_TEST(a_question_that_cannot_be_asked_is_one_line)
{
    struct test_output output;
    TEST_EPSIM(&output, "explore", MISUSES[_i].protocol, MISUSES[_i].option, MISUSES[_i].value);
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_str_eq(output.err, MISUSES[_i].complaint);
}
END_TEST

Suite *explore_suite(void)
{
    Suite *suite = suite_create("explore");
    TCase *tests = tcase_create("explore");
    tcase_add_loop_test(tests, ordered_is_safe_and_unordered_is_safe_up_to_the_tag, 0,
                        sizeof SENTINELS / sizeof SENTINELS[0]);
    tcase_add_test(tests, every_small_count_and_tag_agrees_with_the_rule);
    tcase_add_test(tests, a_schedule_is_told_step_by_step_and_in_short);
    tcase_add_test(tests, a_queue_pair_needs_two_kernels_of_rows_and_flags);
    tcase_add_test(tests, the_library_default_of_1024_is_right_up_to_511_rows);
    tcase_add_test(tests, a_flag_posted_over_the_first_row_makes_every_row_late);
    tcase_add_test(tests, two_results_may_be_held_and_a_third_overwrites_the_first);
    tcase_add_test(tests, the_command_prints_one_document_and_its_status_is_the_answer);
    tcase_add_test(tests, a_document_holds_the_question_and_a_depth_that_is_enough);
    tcase_add_loop_test(tests, a_question_that_cannot_be_asked_is_one_line, 0,
                        sizeof MISUSES / sizeof MISUSES[0]);
    suite_add_tcase(suite, tests);
    return suite;
}
