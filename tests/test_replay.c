/* tests/test_replay.c - `run` and `replay` as a user meets them.
 *
 * Method: a trace of two layers, four tokens and four experts on two ranks, with every answer
 * worked out by hand:
 *
 *   token   plays on        layer 0   layer 1        experts 0, 1 live on rank 0
 *   0       rank 0, step 0  0 1       3 2            experts 2, 3 live on rank 1
 *   1       rank 0, step 1  0 2       3 1
 *   2       rank 1, step 0  0 3       3 0
 *   3       rank 1, step 1  2 3       1 3
 *
 * Selections off the own rank: layer 0: token 1's 2, token 2's 0; layer 1: token 0's 3 and 2,
 * token 1's 3, token 2's 0, token 3's 1. A dispatch message is 16 + 2048 + 64 = 2128 bytes, a
 * combine message 4096. */
#include <check.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "tests/json.h"
#include "tests/support.h"
#include "traces/npy.h"
#include "traces/safetensors.h"

Suite *replay_suite(void);

enum { MESSAGE = 16 + 2048 + 64, ANSWER = 2 * 2048 };

static const char MODEL[] = "hidden: 2048\nlayers: 2\ndense_layers: 0\nexperts: 4\ntopk: 2\n"
                            "groups: 1\ngroups_kept: 1\nmoe_inter: 1024\nshared_experts: 0\n"
                            "router: softmax_norm\nrouted_scale: 1\nsource: a test's own\n";

/* The folder with ids.npy, offsets.npy and model.yaml. */
static const char *make_trace(void)
{
    static const uint8_t ids[4][2][2] = {
        {{0, 1}, {3, 2}}, {{0, 2}, {3, 1}}, {{0, 3}, {3, 0}}, {{2, 3}, {1, 3}}};
    static const int64_t offsets[3] = {0, 2, 4};
    const uint64_t ids_shape[3] = {4, 2, 2}, offsets_shape[1] = {3};
    const char *folder = test_temp_dir();
    char err[256];
    test_write_text(folder, "model.yaml", MODEL);
    ck_assert_int_eq(
        trace_npy_write(test_join(folder, "ids.npy"), TRACE_U8, ids_shape, 3, ids, err, sizeof err),
        0);
    ck_assert_int_eq(trace_npy_write(test_join(folder, "offsets.npy"), TRACE_I64, offsets_shape, 1,
                                     offsets, err, sizeof err),
                     0);
    return folder;
}

#define REPLAY(output, folder, ...)                                                                \
    TEST_EPSIM(output, "replay", test_join(folder, "ids.npy"), "--offsets",                        \
               test_join(folder, "offsets.npy"), "--model", test_join(folder, "model.yaml"),       \
               "--ep", "2", "--mode", "ll", "--batch", "1", "--steps", "2", __VA_ARGS__)

START_TEST(bytes_and_imbalance_are_those_worked_out_by_hand)
{
    const char *folder = make_trace();
    struct test_output output;
    ck_assert_int_eq(REPLAY(&output, folder, "--backend", "ref", "--json"), 0);
    json_t *json = test_json(&output);
    /* 16 selections in all, 7 of them to the other rank; token 0 in layer 0 names two experts of
     * rank 0, token 0 in layer 1 two of rank 1, token 3 in layer 0 two of rank 1: 13 distinct. */
    ck_assert_int_eq(int_at(json, "bytes.formula"), 16 * (2048 + ANSWER));
    ck_assert_int_eq(int_at(json, "bytes.distinct_rank"), 13 * (2048 + ANSWER));
    ck_assert_int_eq(int_at(json, "bytes.local"), 9 * (MESSAGE + ANSWER));
    ck_assert_int_eq(int_at(json, "bytes.nvlink"), 7 * (MESSAGE + ANSWER));
    ck_assert_int_eq(int_at(json, "bytes.nic"), 0);
    ck_assert_int_eq(int_at(json, "checks.mismatches"), 0);
    ck_assert_int_gt(int_at(json, "checks.compared_bytes"), 16 * (2048 + ANSWER));
    ck_assert_int_eq(int_at(json, "settings.ep"), 2);
    /* Expert max / mean: layer 0, step 0: tokens 0, 2: experts 0 1 0 3: 2 / 1; step 1: 0 2 2 3: 2;
     * layer 1, step 0: 3 2 3 0: 2; step 1: 3 1 1 3: 2. Rank: 3/2, 3/2, 3/2, 1. */
    const json_t *imbalance = json_object_get(json, "imbalance");
    ck_assert_double_eq_tol(number_at(imbalance, "expert_max_over_mean"), 2.0, 1e-9);
    ck_assert_double_eq_tol(number_at(imbalance, "rank_max_over_mean"), (1.5 + 1.5 + 1.5 + 1.0) / 4,
                            1e-9);
    json_t *layers = json_object_get(json, "layers");
    ck_assert_uint_eq(json_array_size(layers), 2);
    ck_assert_int_eq(int_at(json_array_get(layers, 0), "bytes.nvlink"), 2 * (MESSAGE + ANSWER));
    ck_assert_int_eq(int_at(json_array_get(layers, 1), "bytes.nvlink"), 5 * (MESSAGE + ANSWER));
    json_decref(json);
}
END_TEST

START_TEST(threads_and_detail_change_neither_digest_nor_checks)
{
    const char *folder = make_trace();
    struct test_output one, three;
    ck_assert_int_eq(REPLAY(&one, folder, "--backend", "ref", "--threads", "1", "--json"), 0);
    ck_assert_int_eq(REPLAY(&three, folder, "--backend", "ref", "--threads", "3", "--detail",
                            "message", "--db", test_join(folder, "three.db"), "--json"),
                     0);
    json_t *a = test_json(&one), *b = test_json(&three);
    ck_assert_str_eq(text_at(a, "digest"), text_at(b, "digest"));
    ck_assert(json_equal(json_object_get(a, "layers"), json_object_get(b, "layers")));
    ck_assert_uint_eq(strlen(text_at(a, "digest")), 16);
    json_decref(a);
    json_decref(b);
}
END_TEST

/* Every row of a query as "a|b|c\n". */
static const char *query(const char *path, const char *sql)
{
    static char text[1024];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    size_t at = 0;
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK, "%s",
                  sqlite3_errmsg(db));
    text[0] = '\0';
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int c = 0; c < sqlite3_column_count(statement); c++) {
            const char *cell = (const char *)sqlite3_column_text(statement, c);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", c > 0 ? "|" : "",
                                   cell != NULL ? cell : "");
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "\n");
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return text;
}

START_TEST(a_late_rank_is_in_the_database)
{
    const char *folder = make_trace();
    const char *db = test_join(folder, "run.db");
    const char *late = test_write_text(folder, "late.yaml",
                                       "faults:\n- {kind: delay, step: 1, layer: 0, stage: "
                                       "dispatch, rank: 1, us: 500}\n");
    struct test_output output;
    ck_assert_int_eq(REPLAY(&output, folder, "--backend", "ref", "--db", db, "--scenario", late),
                     0);
    ck_assert_str_eq(query(db, "SELECT complete, last_step FROM run"), "1|1\n");
    ck_assert_str_eq(query(db, "SELECT kind, target FROM fault"), "delay|rank 1\n");
    ck_assert_str_eq(query(db, "SELECT count(*), sum(mismatch_count) FROM check_result"), "32|0\n");
}
END_TEST

START_TEST(a_fault_in_a_run_exits_1_and_names_the_element)
{
    const char *folder = make_trace();
    const char *drop = test_write_text(folder, "drop.yaml",
                                       "faults:\n- {kind: drop, step: 0, layer: 1, stage: "
                                       "dispatch, source: 1, token: 0, expert: 0}\n");
    struct test_output output;
    const char *db = test_join(folder, "run.db");
    ck_assert_int_eq(
        REPLAY(&output, folder, "--backend", "ref", "--scenario", drop, "--json", "--db", db), 1);
    json_t *json = test_json(&output);
    const json_t *first = json_object_get(json_object_get(json, "checks"), "first_mismatch");
    /* Token 0 of rank 1 in step 0 is trace token 2; its row for expert 0 lands on rank 0. */
    ck_assert_str_eq(text_at(first, "stage"), "dispatch");
    ck_assert_int_eq(int_at(first, "layer"), 1);
    ck_assert_int_eq(int_at(first, "rank"), 0);
    ck_assert_int_eq(int_at(first, "expert"), 0);
    ck_assert_int_eq(int_at(first, "src_rank"), 1);
    ck_assert_int_eq(int_at(first, "src_token"), 0);
    ck_assert_int_eq(int_at(first, "channel"), 0);
    ck_assert_str_eq(text_at(first, "actual"), "FF");
    const json_t *wrong = json_object_get(json_object_get(json, "checks"), "wrong_rows");
    ck_assert_uint_eq(json_array_size(wrong), 3);
    const json_t *combined = json_array_get(wrong, 2);
    ck_assert_str_eq(text_at(combined, "stage"), "combine");
    ck_assert_int_eq(int_at(combined, "layer"), 1);
    ck_assert_int_eq(int_at(combined, "rank"), 1);
    ck_assert(json_is_null(json_object_get(combined, "expert")));
    ck_assert_str_eq(query(db, "SELECT step, layer, stage, rank, expert, src_rank, src_token "
                               "FROM wrong_row"),
                     "0|1|dispatch|0|0|1|0\n0|1|expert|0|0|1|0\n0|1|combine|1||1|0\n");
    json_decref(json);
}
END_TEST

START_TEST(weights_that_are_no_numbers_are_remarked)
{
    const char *folder = make_trace(), *path = test_join(folder, "weights.npy");
    const uint64_t shape[3] = {4, 2, 2};
    float weights[16] = {0};
    struct test_output output;
    char err[256];
    for (int i = 0; i < 16; i++) weights[i] = 0.5f;
    ck_assert_int_eq(trace_npy_write(path, TRACE_F32, shape, 3, weights, err, sizeof err), 0);
    ck_assert_int_eq(REPLAY(&output, folder, "--weights", path, "--backend", "ref"), 0);
    ck_assert_ptr_null(strstr(output.out, "NaN"));
    ck_assert_ptr_null(strstr(output.out, "negative"));
    weights[5] = -0.25f; /* Token 1, layer 0, column 1. */
    weights[6] = NAN;    /* Token 1, layer 1, column 0. */
    weights[13] = INFINITY;
    ck_assert_int_eq(trace_npy_write(path, TRACE_F32, shape, 3, weights, err, sizeof err), 0);
    ck_assert_int_eq(REPLAY(&output, folder, "--weights", path, "--backend", "ref"), 0);
    const json_t *notes = NULL;
    ck_assert_int_eq(REPLAY(&output, folder, "--weights", path, "--backend", "ref", "--json"), 0);
    json_t *json = test_json(&output);
    notes = json_object_get(json, "notes");
    ck_assert_str_eq(json_string_value(json_array_get(notes, json_array_size(notes) - 1)),
                     "2 weights are NaN or infinite, the first of token 1, layer 1, column 0: so "
                     "is what combine makes of them; 1 is negative, the first of token 1, layer 0, "
                     "column 1");
    json_decref(json);
}
END_TEST

/* The container says whose routing it is; folders and letters do not matter. */
START_TEST(a_trace_of_another_model_is_remarked)
{
    static const struct {
        const char *says, *want;
    } cases[] = {{"some/Mine", NULL},
                 {"mine", NULL},
                 {"some/Other\n", "note      the trace is of model 'some/Other?', played is mine"}};
    const char *folder = test_temp_dir(), *path = test_join(folder, "trace.safetensors");
    const uint8_t ids[16] = {0, 1, 3, 2, 0, 2, 3, 1, 0, 3, 3, 0, 2, 3, 1, 3};
    const struct trace_tensor tensor = {"topk_ids", TRACE_U8, 3, {4, 2, 2}, 0, 0, ids};
    const char *model = test_write_text(folder, "mine.yaml", MODEL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct trace_pair pair = {"model", cases[i].says};
        struct test_output output;
        char err[256];
        ck_assert_int_eq(trace_tensors_write(path, &tensor, 1, &pair, 1, err, sizeof err), 0);
        TEST_EPSIM(&output, "replay", path, "--model", model, "--ep", "2", "--batch", "1");
        ck_assert_msg(output.status == 0, "%s", output.err);
        if (cases[i].want == NULL)
            ck_assert_msg(strstr(output.out, "is of model") == NULL, "%s", output.out);
        else
            TEST_SAYS(output.out, cases[i].want);
    }
}
END_TEST

START_TEST(options_that_say_nothing_alone_are_remarked)
{
    static const char *const cases[][3] = {
        {"--eplb-weights", "w.json", "note      --eplb-weights does nothing without --eplb\n"},
        {"--eplb-groups", "2", "note      --eplb-groups does nothing without --eplb\n"},
        {"--replica", "row-mod", "note      --replica does nothing without --eplb\n"},
        {"--weights", "w.npy", "note      --weights does nothing without a trace\n"},
        {"--offsets", "o.npy", "note      --offsets does nothing without a trace\n"}};
    struct test_output output;
    TEST_EPSIM(&output, "replay", "uniform", "--model", "toy-16x2", "--ep", "2", "--batch", "4",
               cases[_i][0], cases[_i][1]);
    ck_assert_int_eq(output.status, 0);
    TEST_SAYS(output.out, cases[_i][2]);
    TEST_EPSIM(&output, "replay", "uniform", "--model", "toy-16x2", "--ep", "2", "--batch", "4");
    ck_assert_ptr_null(strstr(output.out, "does nothing"));
}
END_TEST

/* Exit status 2, one line on standard error that holds `words`, nothing on standard output. */
static void assert_refused(const struct test_output *output, const char *words)
{
    ck_assert_msg(output->status == 2, "status %d: %s", output->status, output->err);
    TEST_SAYS(output->err, words);
    ck_assert_uint_eq(output->out_bytes, 0);
    ck_assert_ptr_eq(strchr(output->err, '\n'), output->err + output->err_bytes - 1);
}

START_TEST(a_run_says_the_options_that_make_its_numbers)
{
    struct test_output output;
    TEST_EPSIM(&output, "run", "--machine", "h100-hgx", "--ep", "16", "--layers", "1", "--tokens",
               "4");
    ck_assert_ptr_null(strstr(output.out, "\noptions "));
    TEST_EPSIM(&output, "run", "--machine", "h100-hgx", "--ep", "16", "--layers", "1", "--tokens",
               "4", "--hook", "78", "--skew", "normal:56", "--background", "100",
               "--fabric-routing", "static", "--congestion-control", "on", "--detail", "summary");
    TEST_SAYS(output.out, "\noptions   --fabric-routing static --congestion-control on "
                          "--background 100 --skew normal:56 --hook\n          78\n");
    TEST_SAYS(output.out, "without the 78 us of other work");
    TEST_SAYS(output.out, "so there is no floor and no ratio");
    TEST_EPSIM(&output, "run", "--ep", "8", "--layers", "1", "--tokens", "4", "--hook", "78",
               "--json");
    json_t *json = test_json(&output);
    ck_assert_str_eq(text_at(json, "settings.hook"), "78");
    ck_assert_str_eq(text_at(json, "settings.skew"), "none");
    ck_assert_uint_eq(json_array_size(json_at(json, "notes")), 1);
    json_decref(json);
}
END_TEST

START_TEST(what_cannot_be_asked_is_one_line_and_status_2)
{
    const char *folder = make_trace();
    const char *db = test_join(folder, "never.db");
    struct test_output output;
    REPLAY(&output, folder, "--db", db, "--model", "deepseek-v3");
    assert_refused(&output, "2 layers, but model deepseek-v3 has 58");
    REPLAY(&output, folder, "--db", db, "--nodes", "3", "--allow", "local_ranks,node_count");
    assert_refused(&output, "2 ranks do not divide over 3 nodes");
    REPLAY(&output, folder, "--db", db, "--ep", "3");
    assert_refused(&output, "experts_divide");
    REPLAY(&output, folder, "--db", db, "--recipe", "fp9");
    assert_refused(&output, "--recipe: fp9");
    REPLAY(&output, folder, "--db", db, "--layers", "3");
    assert_refused(&output, "--layers: 3");
    REPLAY(&output, folder, "--db", db, "--batch", "1,2,3");
    assert_refused(&output, "--batch: more than 2 numbers");
    REPLAY(&output, folder, "--db", db, "--steps", "-1");
    assert_refused(&output, "--steps: -1");
    REPLAY(&output, folder, "--db", db, "--scenario", test_join(folder, "none.yaml"));
    assert_refused(&output, "none.yaml");
    TEST_EPSIM(&output, "replay", test_join(folder, "model.yaml"), "--db", db);
    assert_refused(&output, "model.yaml");
    TEST_EPSIM(&output, "run", "--routing", "hot:101");
    assert_refused(&output, "--routing: hot:101");
    TEST_EPSIM(&output, "run", "--routing", "zipf");
    assert_refused(&output, "routing zipf: no such file: must be uniform, lognormal:S, hot:N,");
    TEST_EPSIM(&output, "run", "--ep", "72", "--db", db);
    assert_refused(&output, "288 places pass (--eplb 288");
    TEST_EPSIM(&output, "accuracy", "--measured", folder);
    assert_refused(&output, "cannot be read: a folder?");
    ck_assert(!test_exists(db));
}
END_TEST

START_TEST(faults_that_cannot_happen_are_refused_and_leave_no_run)
{
    static const struct {
        const char *fault, *words;
    } CASES[] = {
        {"{kind: corrupt, byte: 2128, xor: 1}", "byte 2128: its row has 2128 bytes"},
        {"{kind: drop, step: 2}", "step 2: the run has steps 0 to 1"},
        {"{kind: drop, layer: 2}", "layer 2: the run has layers 0 to 1"},
        {"{kind: drop, source: 2}", "source 2: the run has ranks 0 to 1"},
        {"{kind: drop, token: 1}", "token 1: rank 0 has 1 tokens"},
        {"{kind: delay, rank: 2, us: 1}", "rank 2: the run has ranks 0 to 1"},
        {"{kind: drop, expert: 3}", "no such message to expert 3; this token's experts: 0, 1\n"}};
    const char *folder = make_trace();
    struct test_output output;
    char text[128];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        snprintf(text, sizeof text, "faults:\n- %s\n", CASES[i].fault);
        const char *scenario = test_write_text(folder, "fault.yaml", text);
        REPLAY(&output, folder, "--backend", "ref", "--scenario", scenario);
        assert_refused(&output, CASES[i].words);
    }
    /* Without a data path a dropped message would do no harm and prove nothing. */
    const char *drop = test_write_text(folder, "drop.yaml", "faults:\n- {kind: drop}\n");
    REPLAY(&output, folder, "--scenario", drop);
    assert_refused(&output, "needs a --backend");
}
END_TEST

START_TEST(what_no_machine_can_do_is_refused_whatever_is_allowed)
{
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "3", "--allow", "experts_divide");
    assert_refused(&output, "experts_divide cannot be lifted");
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "8", "--machine", "h200-pair",
               "--allow", "node_count");
    assert_refused(&output, "has no NIC");
    TEST_EPSIM(&output, "run", "--model", "a\nb");
    assert_refused(&output, "a?b");
    TEST_EPSIM(&output, "run", "--backend", "typo");
    assert_refused(&output, "--backend: typo");
}
END_TEST

START_TEST(a_trace_that_names_an_expert_twice_must_be_allowed_by_name)
{
    static const uint8_t ids[2][1][2] = {{{3, 3}}, {{0, 1}}};
    const uint64_t shape[3] = {2, 1, 2};
    const char *trace = test_join(test_temp_dir(), "twice.npy");
    struct test_output output;
    char err[128];
    ck_assert_int_eq(trace_npy_write(trace, TRACE_U8, shape, 3, ids, err, sizeof err), 0);
    TEST_EPSIM(&output, "replay", trace, "--model", "toy-16x2", "--ep", "2", "--batch", "1");
    assert_refused(&output, "1 rows name an expert twice");
    TEST_EPSIM(&output, "replay", trace, "--model", "toy-16x2", "--ep", "2", "--batch", "1",
               "--allow", "duplicate_id", "--backend", "ref");
    ck_assert_int_eq(output.status, 0);
}
END_TEST

START_TEST(lost_output_is_a_failure)
{
    struct test_output output;
    char command[512];
    snprintf(command, sizeof command, "'%s' models >/dev/full", test_epsim());
    test_run((const char *const[]){"sh", "-c", command, NULL}, &output);
    ck_assert_int_eq(output.status, 3);
    TEST_SAYS(output.err, "standard output");
}
END_TEST

/* A step's time is never below its floor, so neither is the median. */
static void assert_above_floor(const json_t *layer, const char *times, const char *operation)
{
    const json_t *p50 = json_object_get(json_object_get(layer, times), "p50");
    const json_t *floor = json_object_get(json_object_get(layer, "floor_us"), operation);
    ck_assert_msg(json_number_value(p50) >= json_number_value(floor), "%s: %f below %f", times,
                  json_number_value(p50), json_number_value(floor));
}

START_TEST(other_machines_modes_and_recipes_compare_clean)
{
    static const char *const CASES[][4] = {
        {"toy-2x4", "8", "normal", "fp8"},    {"toy-2x4", "8", "ll", "ue8m0"},
        {"h200-hgx", "16", "normal", "bf16"}, {"h200-hgx", "16", "ll", "fp8r"},
        {"h200-hgx", "1", "ll", "bf16"},      {"b200-hgx", "8", "normal", "ue8m0"}};
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--backend", "ref", "--tokens", "7",
               "--machine", CASES[_i][0], "--ep", CASES[_i][1], "--mode", CASES[_i][2], "--recipe",
               CASES[_i][3], "--json");
    ck_assert_msg(output.status == 0, "%s", output.err);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "checks.mismatches"), 0);
    ck_assert_int_gt(int_at(json, "checks.compared_bytes"), 0);
    const json_t *layer = json_array_get(json_object_get(json, "layers"), 0);
    assert_above_floor(layer, "dispatch_us", "dispatch");
    assert_above_floor(layer, "combine_us", "combine");
    json_decref(json);
}
END_TEST

Suite *replay_suite(void)
{
    Suite *suite = suite_create("replay");
    TCase *tests = tcase_create("replay");
    tcase_add_test(tests, bytes_and_imbalance_are_those_worked_out_by_hand);
    tcase_add_test(tests, threads_and_detail_change_neither_digest_nor_checks);
    tcase_add_test(tests, a_late_rank_is_in_the_database);
    tcase_add_test(tests, a_fault_in_a_run_exits_1_and_names_the_element);
    tcase_add_test(tests, a_trace_of_another_model_is_remarked);
    tcase_add_loop_test(tests, options_that_say_nothing_alone_are_remarked, 0, 5);
    tcase_add_test(tests, weights_that_are_no_numbers_are_remarked);
    tcase_add_test(tests, a_run_says_the_options_that_make_its_numbers);
    tcase_add_test(tests, what_cannot_be_asked_is_one_line_and_status_2);
    tcase_add_test(tests, faults_that_cannot_happen_are_refused_and_leave_no_run);
    tcase_add_test(tests, what_no_machine_can_do_is_refused_whatever_is_allowed);
    tcase_add_test(tests, a_trace_that_names_an_expert_twice_must_be_allowed_by_name);
    tcase_add_test(tests, lost_output_is_a_failure);
    tcase_add_loop_test(tests, other_machines_modes_and_recipes_compare_clean, 0, 6);
    suite_add_tcase(suite, tests);
    return suite;
}
