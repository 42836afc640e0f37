/* tests/test_diff.c - two runs that differ are told apart down to the bits.
 *
 * Method: pairs of recorded runs of which it is known beforehand where they first differ. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/db_support.h"
#include "tests/json.h"
#include "traces/npy.h"

Suite *diff_suite(void);

#define RUN(output, db, ...)                                                                       \
    TEST_EPSIM(output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "16", "--steps",     \
               "2", "--backend", "ref", "--db", db, __VA_ARGS__)

static json_t *diff(const char *a, const char *b, int status)
{
    struct test_output output;
    TEST_EPSIM(&output, "diff", a, b, "--json");
    ck_assert_msg(output.status == status, "status %d: %s%s", output.status, output.err,
                  output.out);
    return test_json(&output);
}

static const char *run_name(const char *db, int run)
{
    return test_format("%s#%d", db, run);
}

START_TEST(equal_runs_have_no_difference)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--threads", "1"), 0);
    ck_assert_int_eq(RUN(&output, db, "--threads", "2"), 0);
    json_t *json = diff(run_name(db, 1), run_name(db, 2), 0);
    ck_assert(is_true_at(json, "same"));
    /* 2 steps x 1 layer x 4 ranks x 4 stages. */
    ck_assert_int_eq(int_at(json, "compared"), 32);
    ck_assert(json_is_null(json_object_get(json, "first_difference")));
    json_decref(json);
}
END_TEST

START_TEST(figures_of_another_program_are_shown_as_they_are)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--threads", "1", "--steps", "1"), 0);
    ck_assert_int_eq(RUN(&output, db, "--threads", "1", "--steps", "1"), 0);
    /* An operation without a name, in one run alone; a part as large as can be, both ways. */
    db_execute(db, "UPDATE resource_use SET op = '' WHERE run = 1 AND op = 'dispatch';"
                   "INSERT INTO attribution VALUES (1, 0, 0, 'dispatch', 0, 'sm', -(1 << 62)),"
                   "(2, 0, 0, 'dispatch', 0, 'sm', (1 << 62) + ((1 << 62) - 1))");
    json_t *json = diff(run_name(db, 1), run_name(db, 2), 0);
    const json_t *row = json_array_get(json_object_get(json, "resources"), 0);
    ck_assert_str_eq(text_at(row, "op"), "");
    ck_assert(json_is_object(json_object_get(row, "a")));
    ck_assert(json_is_null(json_object_get(row, "b")));
    json_decref(json);
    TEST_EPSIM(&output, "diff", run_name(db, 1), run_name(db, 2));
    ck_assert_msg(output.status == 0, "status %d: %s", output.status, output.err);
    /* 2^63 - 1 + 2^62 ps. */
    TEST_SAYS(output.out, "+13835058055282.16");
}
END_TEST

START_TEST(another_recipe_is_named_at_its_first_code)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--recipe", "fp8"), 0);
    ck_assert_int_eq(RUN(&output, db, "--recipe", "fp8r"), 0);
    json_t *json = diff(run_name(db, 1), db, 1);
    ck_assert_int_eq(int_at(json, "first_difference.step"), 0);
    ck_assert_int_eq(int_at(json, "first_difference.rank"), 0);
    ck_assert_str_eq(text_at(json, "first_difference.stage"), "dispatch");
    ck_assert_int_eq(int_at(json, "first_difference.channel"), 0);
    TEST_SAYS(text_at(json, "first_difference.note"), "A quantises by ll, B by ll_round");
    json_decref(json);
}
END_TEST

START_TEST(a_fault_of_one_run_is_found_in_its_step_rank_token_and_channel)
{
    const char *folder = test_temp_dir(), *db = test_join(folder, "run.db");
    const char *fault =
        test_write_text(folder, "fault.yaml",
                        "faults:\n- {kind: corrupt, step: 1, layer: 0, stage: combine, source: 2, "
                        "token: 3, byte: 101, xor: 128}\n");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--seed", "1"), 0);
    ck_assert_int_eq(RUN(&output, db, "--seed", "1", "--scenario", fault), 1);
    json_t *json = diff(run_name(db, 1), run_name(db, 2), 1);
    ck_assert_int_eq(int_at(json, "first_difference.step"), 1);
    ck_assert_int_eq(int_at(json, "first_difference.layer"), 0);
    ck_assert_int_eq(int_at(json, "first_difference.rank"), 2);
    ck_assert_str_eq(text_at(json, "first_difference.stage"), "combine");
    ck_assert_int_eq(int_at(json, "first_difference.src_rank"), 2);
    ck_assert_int_eq(int_at(json, "first_difference.src_token"), 3);
    ck_assert_int_eq(int_at(json, "first_difference.channel"),
                     50); /* Byte 101 is the high half of channel 50. */
    ck_assert_str_ne(text_at(json, "first_difference.a"), text_at(json, "first_difference.b"));
    json_decref(json);
}
END_TEST

START_TEST(a_trace_that_has_changed_since_is_named)
{
    static uint8_t ids[4][1][2] = {{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6, 7}}};
    const uint64_t shape[3] = {4, 1, 2};
    const char *folder = test_temp_dir(), *db = test_join(folder, "run.db");
    const char *trace = test_join(folder, "ids.npy");
    struct test_output output;
    ck_assert_int_eq(trace_npy_write(trace, TRACE_U8, shape, 3, ids, err, sizeof err), 0);
    for (int run = 0; run < 2; run++)
        ck_assert_int_eq(TEST_EPSIM(&output, "replay", trace, "--model", "toy-16x2", "--ep", "2",
                                    "--batch", "2", "--backend", "ref", "--db", db, "--recipe",
                                    run == 0 ? "fp8" : "fp8r"),
                         0);
    ids[0][0][0] = 9;
    ck_assert_int_eq(trace_npy_write(trace, TRACE_U8, shape, 3, ids, err, sizeof err), 0);
    json_t *json = diff(run_name(db, 1), run_name(db, 2), 1);
    ck_assert_str_eq(text_at(json, "first_difference.stage"), "dispatch");
    TEST_SAYS(text_at(json, "first_difference.note"), "ids.npy");
    TEST_SAYS(text_at(json, "first_difference.note"), "changed since");
    ck_assert_ptr_null(json_object_get(json_object_get(json, "first_difference"), "a"));
    json_decref(json);
}
END_TEST

START_TEST(broken_databases_and_unlike_arguments_are_refused)
{
    const char *folder = test_temp_dir();
    const char *broken = test_write_text(folder, "broken.db", "SQLite format 3, or so it says");
    struct test_output output;
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", broken, broken), 2);
    TEST_SAYS(output.err, "broken.db");
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", folder, broken), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", broken), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", test_join(folder, "none.db"), broken), 2);
}
END_TEST

START_TEST(a_folder_of_captures_equals_itself)
{
    struct test_output output;
    const char *golden = test_tree_path("tests/golden");
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", golden, golden), 0);
    TEST_SAYS(output.out, "3 cases: 3 equal, 0 differ");
}
END_TEST

/* The entry of a list whose op and second key have these values. */
static const json_t *entry(const json_t *json, const char *list, const char *op, const char *key,
                           const char *value)
{
    const json_t *all = json_object_get(json, list);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        if (strcmp(text_at(one, "op"), op) != 0) continue;
        if (key == NULL || strcmp(text_at(one, key), value) == 0) return one;
    }
    ck_abort_msg("no %s of %s in %s", value != NULL ? value : "entry", op, list);
    return NULL;
}

START_TEST(settings_stages_resources_and_parts_stand_side_by_side)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--steps", "1", "--explain"), 0);
    ck_assert_int_eq(RUN(&output, db, "--steps", "1", "--explain", "--skew", "late:1:300"), 0);
    json_t *json = diff(run_name(db, 1), db, 1);
    const json_t *settings = json_object_get(json, "settings");
    ck_assert_uint_eq(json_object_size(settings), 1);
    const json_t *skew = json_object_get(settings, "skew");
    ck_assert_str_eq(text_at(skew, "a"), "none");
    ck_assert_str_eq(text_at(skew, "b"), "late:1:300");

    /* The three others spin for rank 1, 300 us late, in their dispatch. */
    const json_t *stage = entry(json, "stages", "dispatch", NULL, NULL);
    const int64_t more_ps = int_at(stage, "b.ps") - int_at(stage, "a.ps");
    ck_assert_int_gt(more_ps, 290000000);
    ck_assert_int_le(more_ps, 300000000);
    const json_t *wait = entry(json, "parts", "dispatch", "part", "wait");
    ck_assert_int_gt(int_at(wait, "b.ps"), 290000000);
    ck_assert_int_eq(int_at(wait, "a.ps"), 0); /* A part that is not there is 0. */
    /* The same rows both times. */
    const json_t *port = entry(json, "resources", "dispatch", "resource", "nvlink.out");
    ck_assert_int_gt(int_at(port, "a.bytes"), 0);
    ck_assert_int_eq(int_at(port, "a.bytes"), int_at(port, "b.bytes"));
    ck_assert_int_gt(int_at(port, "a.ps"), 0);
    json_decref(json);
    TEST_EPSIM(&output, "diff", run_name(db, 1), db);
    TEST_SAYS(output.out, "\nsetting   skew: A none, B late:1:300\n");
}
END_TEST

START_TEST(parts_of_a_run_sum_to_its_stages)
{
    static const char *const OPS[] = {"dispatch", "combine"};
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    ck_assert_int_eq(RUN(&output, db, "--steps", "1", "--explain"), 0);
    json_t *json = diff(db, db, 0);
    for (int d = 0; d < 2; d++) {
        const json_t *parts = json_object_get(json, "parts");
        int64_t sum_ps = 0;
        for (size_t i = 0; i < json_array_size(parts); i++) {
            const json_t *one = json_array_get(parts, i);
            if (strcmp(text_at(one, "op"), OPS[d]) == 0) sum_ps += int_at(one, "a.ps");
        }
        ck_assert_int_eq(sum_ps, int_at(entry(json, "stages", OPS[d], NULL, NULL), "a.ps"));
    }
    json_decref(json);
}
END_TEST

Suite *diff_suite(void)
{
    Suite *suite = suite_create("diff");
    TCase *tests = tcase_create("diff");
    tcase_add_test(tests, equal_runs_have_no_difference);
    tcase_add_test(tests, figures_of_another_program_are_shown_as_they_are);
    tcase_add_test(tests, another_recipe_is_named_at_its_first_code);
    tcase_add_test(tests, a_fault_of_one_run_is_found_in_its_step_rank_token_and_channel);
    tcase_add_test(tests, a_trace_that_has_changed_since_is_named);
    tcase_add_test(tests, broken_databases_and_unlike_arguments_are_refused);
    tcase_add_test(tests, a_folder_of_captures_equals_itself);
    tcase_add_test(tests, settings_stages_resources_and_parts_stand_side_by_side);
    tcase_add_test(tests, parts_of_a_run_sum_to_its_stages);
    suite_add_tcase(suite, tests);
    return suite;
}
