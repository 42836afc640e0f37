/* tests/test_breakdown.c - run --explain: its JSON, its table and its rows in the database agree
 * with the run's own times, and a knob that does nothing says so. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/db_support.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *breakdown_suite(void);

static const char *const OPS[] = {"dispatch", "combine"};

static json_t *run_json(const char *const arguments[])
{
    struct test_output output;
    ck_assert_int_eq(test_run(arguments, &output), 0);
    return test_json(&output);
}

/* Two layers and two steps of low latency on two nodes, with a skew, or of normal mode. */
static json_t *explained(const char *mode, const char *db)
{
    const char *const arguments[] = {
        test_epsim(), "run",       "--json",  "--explain",       "--mode", mode,      "--ep",
        "16",         "--tokens",  "16",      "--layers",        "2",      "--steps", "2",
        "--skew",     "normal:20", "--model", "qwen3-235b-a22b", "--db",   db,        NULL};
    return run_json(arguments);
}

static int64_t sum_of_parts(const json_t *sum)
{
    const char *name = NULL;
    json_t *value = NULL, *parts = json_object_get(sum, "parts_ps");
    int64_t sum_ps = 0;
    json_object_foreach(parts, name, value) sum_ps += json_integer_value(value);
    return sum_ps;
}

static const char *const MODES[] = {"ll", "normal"};

START_TEST(parts_in_json_and_database_sum_to_the_runs_own_times)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    json_t *json = explained(MODES[_i], db), *explain = json_object_get(json, "explain");
    char sql[512], expected[64];
    for (int d = 0; d < 2; d++) {
        const json_t *sum = json_object_get(explain, OPS[d]);
        int64_t layers_ps = 0;
        ck_assert_int_eq(int_at(sum, "cells"), 4);
        ck_assert_int_eq(sum_of_parts(sum), int_at(sum, "time_ps"));
        for (size_t l = 0; l < 2; l++) {
            const json_t *layer = json_array_get(json_object_get(explain, "layers"), l);
            layers_ps += int_at(json_object_get(layer, OPS[d]), "time_ps");
            ck_assert_int_eq(sum_of_parts(json_object_get(layer, OPS[d])),
                             int_at(json_object_get(layer, OPS[d]), "time_ps"));
        }
        ck_assert_int_eq(layers_ps, int_at(sum, "time_ps"));
        snprintf(sql, sizeof sql,
                 "SELECT sum(slowest) FROM (SELECT max(end_ps - start_ps) AS slowest FROM span "
                 "WHERE op = '%s' GROUP BY step, layer)",
                 OPS[d]);
        snprintf(expected, sizeof expected, "%" PRId64, int_at(sum, "time_ps"));
        ck_assert_str_eq(db_ask(db, sql), expected);
    }
    /* Every rank, layer and step: 16 x 2 x 2 x 2. */
    ck_assert_str_eq(
        db_ask(db, "SELECT count(*) FROM span JOIN (SELECT step, layer, op, rank, sum(ps) AS ps "
                   "FROM attribution GROUP BY step, layer, op, rank) USING (step, layer, op, rank) "
                   "WHERE ps = end_ps - start_ps"),
        "128");
    ck_assert_str_eq(db_ask(db, "SELECT count(*), min(before_ps) > 0 FROM whatif"), "88|1");
    json_decref(json);
}
END_TEST

START_TEST(asking_changes_no_time_and_not_asking_leaves_no_row)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    const char *const plain[] = {test_epsim(), "run",    "--json",    "--ep",    "16",
                                 "--tokens",   "16",     "--layers",  "2",       "--steps",
                                 "2",          "--skew", "normal:20", "--model", "qwen3-235b-a22b",
                                 "--mode",     "ll",     "--db",      db,        NULL};
    json_t *without = run_json(plain);
    ck_assert_ptr_null(json_object_get(without, "explain"));
    ck_assert_str_eq(db_ask(db, "SELECT count(*) FROM attribution"), "0");
    json_t *with = explained("ll", db);
    ck_assert_str_eq(text_at(with, "digest"), text_at(without, "digest"));
    ck_assert(json_equal(json_object_get(with, "layers"), json_object_get(without, "layers")));
    json_decref(without);
    json_decref(with);
}
END_TEST

static const json_t *knob_of(const json_t *explain, const char *op, const char *name)
{
    const json_t *knobs = json_object_get(explain, "widen");
    for (size_t i = 0; i < json_array_size(knobs); i++) {
        const json_t *knob = json_array_get(knobs, i);
        if (strcmp(text_at(knob, "knob"), name) == 0 && strcmp(text_at(knob, "op"), op) == 0)
            return knob;
    }
    ck_abort_msg("%s of %s", name, op);
    return NULL;
}

static void does_nothing(const json_t *explain, const char *name, const char *reason)
{
    for (int d = 0; d < 2; d++) {
        const json_t *knob = knob_of(explain, OPS[d], name);
        ck_assert_msg(is_true_at(knob, "does_nothing"), "%s", name);
        ck_assert_int_eq(int_at(knob, "gain_ps"), 0);
        ck_assert_str_eq(text_at(knob, "reason"), reason);
    }
}

START_TEST(a_knob_that_does_nothing_says_so)
{
    const char *const arguments[] = {
        test_epsim(), "run", "--json",  "--explain",       "--ep", "8", "--tokens", "16",
        "--layers",   "1",   "--model", "qwen3-235b-a22b", NULL};
    json_t *json = run_json(arguments), *explain = json_object_get(json, "explain");
    does_nothing(explain, "nic-rate", "no row goes by NIC");
    does_nothing(explain, "fabric", "no row goes by NIC");
    does_nothing(explain, "sms", "low latency takes a grid of its own");
    does_nothing(explain, "qp-depth", "no ring is ever full");
    does_nothing(explain, "notify", "low latency exchanges no counts beforehand");
    ck_assert(!is_true_at(knob_of(explain, "dispatch", "launch"), "does_nothing"));
    json_decref(json);
}
END_TEST

START_TEST(a_setting_that_does_nothing_is_noted)
{
    static const char *const CASES[][4] = {
        {"normal", "--machine", "h800-hgx-nonvl",
         "note      h800-hgx-nonvl has no NVLink: hops within a node go by NIC too"},
        {"ll", "--sms", "40",
         "note      --sms 40 does nothing: low latency takes a grid of its own"},
        {"ll", "--qp-depth", "4096", "note      --qp-depth 4096 does nothing: no row goes by NIC"},
        {"normal", "--qp-depth", "4096",
         "note      --qp-depth 4096 does nothing: normal mode's chunks never fill a ring"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct test_output output;
        TEST_EPSIM(&output, "run", "--tokens", "4", "--layers", "1", "--mode", CASES[i][0],
                   CASES[i][1], CASES[i][2]);
        ck_assert_int_eq(output.status, 0);
        TEST_SAYS(output.out, CASES[i][3]);
    }
}
END_TEST

START_TEST(what_widening_gives_is_what_a_run_with_it_takes)
{
    /* Normal mode on one node: --sms 8, and the same with 16. */
    const char *arguments[] = {test_epsim(), "run",  "--json",  "--explain",       "--mode",
                               "normal",     "--ep", "8",       "--tokens",        "64",
                               "--layers",   "1",    "--model", "qwen3-235b-a22b", "--sms",
                               "8",          NULL};
    json_t *eight = run_json(arguments);
    arguments[15] = "16";
    json_t *sixteen = run_json(arguments);
    const json_t *knob = knob_of(json_object_get(eight, "explain"), "dispatch", "sms");
    ck_assert_int_eq(int_at(knob, "after_ps"), int_at(sixteen, "explain.dispatch.time_ps"));
    ck_assert_int_lt(int_at(knob, "after_ps"), int_at(knob, "before_ps"));
    json_decref(eight);
    json_decref(sixteen);
}
END_TEST

/* The same run with and without other traffic; the first dispatch starts with both at once. */
START_TEST(an_ideal_fabric_gives_back_what_a_real_one_takes)
{
    const char *arguments[] = {test_epsim(),   "run",     "--json",    "--explain",
                               "--mode",       "ll",      "--ep",      "16",
                               "--tokens",     "32",      "--machine", "h100-hgx",
                               "--layers",     "1",       "--model",   "qwen3-235b-a22b",
                               "--background", "200:own", NULL};
    json_t *shared = run_json(arguments);
    arguments[16] = NULL;
    json_t *ideal = run_json(arguments);
    const json_t *knob = knob_of(json_object_get(shared, "explain"), "dispatch", "fabric");
    ck_assert_int_eq(int_at(knob, "after_ps"), int_at(ideal, "explain.dispatch.time_ps"));
    ck_assert_int_lt(int_at(knob, "after_ps"), int_at(knob, "before_ps"));
    does_nothing(json_object_get(ideal, "explain"), "fabric", "it is ideal");
    json_decref(shared);
    json_decref(ideal);
}
END_TEST

START_TEST(the_table_fits_a_terminal_and_names_three_assumptions)
{
    struct test_output output;
    const char *const arguments[] = {test_epsim(),      "run", "--explain", "--ep", "16",
                                     "--tokens",        "64",  "--layers",  "1",    "--model",
                                     "qwen3-235b-a22b", NULL};
    size_t assumptions = 0;
    ck_assert_int_eq(test_run(arguments, &output), 0);
    for (const char *line = strstr(output.out, "explain "); strncmp(line, "bytes ", 6) != 0;) {
        const size_t length = strcspn(line, "\n");
        ck_assert_msg(length <= 100, "%.*s", (int)length, line);
        assumptions += strncmp(line, "hangs on ", 9) == 0;
        line += length + (line[length] == '\n');
    }
    ck_assert_uint_eq(assumptions, 3);
    TEST_SAYS(output.out, "\nwiden     dispatch: NIC rate x 2, saves ");
}
END_TEST

/* The run's own options are asked only where they were given, and named as such. */
START_TEST(what_a_time_hangs_on_is_named_by_its_kind)
{
    const char *arguments[] = {test_epsim(), "run",      "--json", "--explain", "--ep",
                               "16",         "--tokens", "32",     "--layers",  "1",
                               "--machine",  "h100-hgx", "--mode", "ll",        "--skew",
                               "normal:20",  NULL};
    for (int given = 1; given >= 0; given--) {
        if (!given) arguments[14] = NULL;
        json_t *json = run_json(arguments);
        const json_t *list = json_at(json, "explain.assumptions");
        bool skew = false;
        ck_assert_uint_eq(json_array_size(list), 3);
        for (size_t i = 0; i < 3; i++) {
            const json_t *found = json_array_get(list, i);
            const char *number = text_at(found, "number"), *kind = text_at(found, "kind");
            if (strcmp(number, "--skew") == 0) {
                ck_assert_str_eq(text_at(found, "value"), "normal:20");
                ck_assert_str_eq(kind, "option of the run");
                skew = true;
            } else if (strcmp(number, "nic_goodput_gbytes_per_s") == 0) {
                ck_assert_str_eq(kind, "measured");
                ck_assert_str_eq(text_at(found, "origin"), "h100-hgx");
            } else {
                ck_assert_msg(strstr("datasheet measured fitted assumed", kind) != NULL, "%s: %s",
                              number, kind);
            }
        }
        ck_assert(skew == (given == 1));
        json_decref(json);
    }
}
END_TEST

START_TEST(a_measured_row_is_taken_apart_by_its_id)
{
    const char *csv = test_write_text(
        test_temp_dir(), "rows.csv",
        "id,machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"
        "dispatch_dtype,comm_sms,us\n"
        "a,h100-hgx,1,8,ll,dispatch,8,16,4096,4,16,fp8,,20\n"
        "b,h100-hgx,2,8,normal,combine,16,32,4096,4,32,fp8,8,90\n"
        "c,h100-hgx,1,8,ll,combine_recv,8,16,4096,4,16,fp8,,20\n");
    static const char *const IDS[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        const char *const arguments[] = {test_epsim(), "accuracy",  "--json", "--measured",
                                         csv,          "--explain", IDS[i],   NULL};
        json_t *json = run_json(arguments), *explain = json_object_get(json, "explain");
        const json_t *sum = json_object_get(explain, OPS[i > 0]);
        ck_assert_int_eq(int_at(sum, "cells"), 1);
        ck_assert_int_gt(int_at(sum, "time_ps"), 0);
        ck_assert_int_eq(sum_of_parts(sum), int_at(sum, "time_ps"));
        ck_assert_int_eq(int_at(json_object_get(explain, OPS[i == 0]), "cells"), 0);
        json_decref(json);
    }
    struct test_output output;
    TEST_EPSIM(&output, "accuracy", "--measured", csv, "--explain", "d");
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "--explain: d: no row of an exchange has this id");
    TEST_EPSIM(&output, "accuracy", "--measured", csv, "--explain", "b");
    TEST_SAYS(output.out, "count exchange between nodes");
    ck_assert_ptr_null(strstr(output.out, "dispatch us"));
}
END_TEST

START_TEST(a_file_from_before_a_table_was_added_gets_it)
{
    const char *path = test_join(test_temp_dir(), "old.db");
    trace_db_close(db_open(path));
    db_ask(path, "DROP TABLE attribution");
    trace_db_close(db_open(path));
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM attribution"), "0");
}
END_TEST

Suite *breakdown_suite(void)
{
    Suite *suite = suite_create("breakdown");
    TCase *tcase = tcase_create("breakdown");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, parts_in_json_and_database_sum_to_the_runs_own_times, 0, 2);
    tcase_add_test(tcase, asking_changes_no_time_and_not_asking_leaves_no_row);
    tcase_add_test(tcase, a_knob_that_does_nothing_says_so);
    tcase_add_test(tcase, a_setting_that_does_nothing_is_noted);
    tcase_add_test(tcase, what_widening_gives_is_what_a_run_with_it_takes);
    tcase_add_test(tcase, an_ideal_fabric_gives_back_what_a_real_one_takes);
    tcase_add_test(tcase, the_table_fits_a_terminal_and_names_three_assumptions);
    tcase_add_test(tcase, what_a_time_hangs_on_is_named_by_its_kind);
    tcase_add_test(tcase, a_measured_row_is_taken_apart_by_its_id);
    tcase_add_test(tcase, a_file_from_before_a_table_was_added_gets_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
