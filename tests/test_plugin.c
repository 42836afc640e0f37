/* tests/test_plugin.c - a plugin is a backend like any other, and its wrong bits are named.
 *
 * The example offers group operations, the reference as a plugin phases too; tests/plugin_broken.c
 * lands rows in another order. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tests/json.h"
#include "tests/support.h"
#include "tests/with_plugin.h"

START_TEST(the_example_reproduces_every_capture)
{
    const char *const folders[2] = {golden(), test_data_path("golden")};
    if (folders[1] == NULL) test_skip("no EPSIM_DATA");
    for (int i = 0; i < 2 && folders[i] != NULL; i++) {
        struct test_output output;
        TEST_EPSIM(&output, "verify", "--golden", folders[i], "--backend", plugin("example"));
        ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
        TEST_SAYS(output.out, " 0 failed, 0 skipped");
    }
}
END_TEST

/* The cheap ones of the table: few tokens on few ranks. */
START_TEST(the_example_passes_named_cases)
{
    const char *table = test_read(test_tree_path("sim/cases.csv"), NULL), *few = "";
    struct test_output output;
    int count = 0;
    for (const char *line = table; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const char *text = test_format("%.*s\n", (int)strcspn(line, "\n"), line);
        const bool cheap =
            (strstr(text, "-ep1-") || strstr(text, "-ep2-") || strstr(text, "-ep8-")) &&
            (strstr(text, "-t0-") || strstr(text, "-t1-") || strstr(text, "-t7-"));
        if (strncmp(text, "name,", 5) != 0 && !cheap) continue;
        few = test_format("%s%s", few, text);
        count += cheap;
    }
    ck_assert_int_gt(count, 20);
    TEST_EPSIM(&output, "verify", "--cases", test_write_text(test_temp_dir(), "few.csv", few),
               "--backend", plugin("example"));
    ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
    TEST_SAYS(output.out, test_format("%d passed, 0 failed, 0 skipped", count));
}
END_TEST

START_TEST(a_backend_alone_is_asked_the_named_cases)
{
    struct test_output output;
    setenv("EPSIM_BREAK", "refuse", 1); /* All of them take half a minute. */
    TEST_EPSIM(&output, "verify", "--backend", plugin("broken"));
    ck_assert_int_eq(output.status, 3);
    TEST_SAYS(output.err, "open: no GPU of?mine here");
}
END_TEST

/* One small layer; a run with the reference and one with the plugin print the same digest. */
static const struct {
    const char *mode, *machine, *ep, *recipe, *expert;
} layers[] = {
    {"ll", "toy-2x4", "8", "fp8", "standin"},     {"ll", "toy-2x4", "4", "ue8m0", "identity"},
    {"ll", "toy-2x4", "2", "fp8r", "standin"},    {"normal", "toy-2x4", "4", "bf16", "standin"},
    {"normal", "toy-2x4", "8", "fp8", "standin"}, {"normal", "toy-2x4", "8", "bf16", "identity"},
};

static json_t *run_layer(int layer, const char *backend)
{
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--machine", layers[layer].machine, "--ep",
               layers[layer].ep, "--mode", layers[layer].mode, "--recipe", layers[layer].recipe,
               "--expert", layers[layer].expert, "--tokens", "17", "--steps", "2", "--backend",
               backend, "--json");
    ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
    return test_json(&output);
}

/* Is there a note with these words? */
static bool has_note(const json_t *json, const char *words)
{
    const json_t *notes = json_object_get(json, "notes");
    for (size_t i = 0; i < json_array_size(notes); i++)
        if (strstr(json_string_value(json_array_get(notes, i)), words) != NULL) return true;
    return false;
}

START_TEST(a_run_by_the_example_has_the_digest_of_the_reference)
{
    json_t *ours = run_layer(_i, "ref"), *theirs = run_layer(_i, plugin("example"));
    ck_assert_str_eq(text_at(theirs, "digest"), text_at(ours, "digest"));
    ck_assert(has_note(theirs, "plugin example: its group operations alone"));
    json_decref(ours);
    json_decref(theirs);
}
END_TEST

START_TEST(phases_are_driven_where_they_are_offered)
{
    json_t *ours = run_layer(_i, "ref"), *theirs = run_layer(_i, plugin("ref"));
    ck_assert_str_eq(text_at(theirs, "digest"), text_at(ours, "digest"));
    ck_assert(has_note(theirs, "plugin ref: its phase operations, message by message"));
    json_decref(ours);
    json_decref(theirs);
}
END_TEST

START_TEST(rows_of_a_block_may_land_in_any_order)
{
    setenv("EPSIM_BREAK", "unordered", 1);
    struct test_output output;
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"));
    ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
    json_t *ours = run_layer(_i, "ref"), *theirs = run_layer(_i, plugin("broken"));
    ck_assert_str_eq(text_at(theirs, "digest"), text_at(ours, "digest"));
    json_decref(ours);
    json_decref(theirs);
}
END_TEST

START_TEST(several_processes_at_once_give_the_same_digest)
{
    struct test_output one, four;
    const char *path = plugin("ref");
    TEST_EPSIM(&one, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8", "--mode",
               "ll", "--tokens", "9", "--steps", "12", "--backend", path, "--threads", "1");
    TEST_EPSIM(&four, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8", "--mode",
               "ll", "--tokens", "9", "--steps", "12", "--backend", path, "--threads", "4");
    ck_assert_msg(one.status == 0 && four.status == 0, "%s%s", one.err, four.err);
    ck_assert_str_eq(strstr(one.out, "digest"), strstr(four.out, "digest"));
}
END_TEST

static int run_faulty(const char *scenario, const char *backend, struct test_output *output)
{
    const char *path = test_write_text(test_temp_dir(), "faults.yaml", scenario);
    return TEST_EPSIM(output, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "4",
                      "--mode", "ll", "--routing", "roundrobin", "--tokens", "8", "--scenario",
                      path, "--backend", backend);
}

static const char *const drop = "faults:\n- {kind: drop, step: 0, layer: 0, stage: dispatch, "
                                "source: 0, token: 1, expert: 2}\n";

START_TEST(a_lost_message_is_found_in_a_plugin_with_phases)
{
    struct test_output ours, theirs;
    ck_assert_int_eq(run_faulty(drop, "ref", &ours), 1);
    ck_assert_int_eq(run_faulty(drop, plugin("ref"), &theirs), 1);
    ck_assert_str_eq(strstr(theirs.out, "\nfirst "), strstr(ours.out, "\nfirst "));
}
END_TEST

START_TEST(a_lost_message_is_no_question_to_a_plugin_without_phases)
{
    struct test_output output;
    ck_assert_int_eq(run_faulty(drop, plugin("example"), &output), 2);
    TEST_SAYS(output.err, "fault 1 (drop)");
    TEST_SAYS(output.err, "has no phase operations");
    ck_assert_int_eq(run_faulty("faults:\n- {kind: delay, layer: 0, rank: 1, us: 5}\n",
                                plugin("example"), &output),
                     0);
}
END_TEST

/* The example with one line changed, built as its author would build it. */
static const char *changed_example(const char *from, const char *to)
{
    const char *folder = test_temp_dir();
    const char *text = test_read(test_tree_path("tests/plugin_example.c"), NULL);
    const char *at = strstr(text, from);
    struct test_output output;

    ck_assert_msg(at != NULL, "tests/plugin_example.c no longer says %s", from);
    const char *source = test_write_text(
        folder, "mine.c", test_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    const char *const argv[] = {
        "gcc",  "-O1", "-ffp-contract=off",          "-shared", "-fPIC", "-I", test_tree_path("."),
        source, "-o",  test_join(folder, "mine.so"), "-lm",     NULL};
    ck_assert_msg(test_run(argv, &output) == 0, "%s", output.err);
    return test_join(folder, "mine.so");
}

/* A line of the example, what it is changed to, a case that shows it, and what must be said. */
static const struct {
    const char *from, *to, *shown_by, *says;
} mistakes[] = {
    {"factor = 448.0f / max", "factor = 1.0f / scale", "ll,fp8,128,2048,2,uniform",
     "multiplied by the reciprocal of the stored scale"},
    {"fmaf(from_bf16(row[i][c]), weight[i], sum)", "from_bf16(row[i][c]) * weight[i] + sum",
     "ll,bf16,7,2560,1,special", "separate multiply and add: not fused"},
    {"if (max < 1e-4f) max = 1e-4f;", "if (max < 1e-10f) max = 1e-10f;", "ll,fp8,7,2048,2,floor",
     "1e-10"},
};

START_TEST(wrong_bits_are_named_with_their_cause)
{
    struct test_output output;
    if (test_quick() || !test_has_program("gcc")) {
        test_skip(test_quick() ? "not in the quick set" : "no gcc");
        return;
    }
    const char *table = test_format("name,ep,mode,recipe,tokens,hidden,topk,kind,node,experts,bias,"
                                    "label\nmistake,8,%s,8,8,0,\n",
                                    mistakes[_i].shown_by);
    const char *path = changed_example(mistakes[_i].from, mistakes[_i].to);
    TEST_EPSIM(&output, "verify", "--cases", test_write_text(test_temp_dir(), "mistake.csv", table),
               "--backend", path);
    ck_assert_msg(output.status == 1, "%s%s", output.out, output.err);
    TEST_SAYS(output.out, mistakes[_i].says);
    TEST_SAYS(output.out, "source rank ");
    TEST_SAYS(output.out, "token ");
    TEST_SAYS(output.out, "channel ");
}
END_TEST

Suite *plugin_suite(void)
{
    TCase *tcase = tcase_create("plugin");
    const int count = sizeof layers / sizeof layers[0];
    tcase_add_test(tcase, the_example_reproduces_every_capture);
    tcase_add_test(tcase, the_example_passes_named_cases);
    tcase_add_test(tcase, a_backend_alone_is_asked_the_named_cases);
    tcase_add_loop_test(tcase, a_run_by_the_example_has_the_digest_of_the_reference, 0, count);
    tcase_add_loop_test(tcase, phases_are_driven_where_they_are_offered, 0, count);
    tcase_add_loop_test(tcase, rows_of_a_block_may_land_in_any_order, 0, 2);
    tcase_add_test(tcase, several_processes_at_once_give_the_same_digest);
    tcase_add_test(tcase, a_lost_message_is_found_in_a_plugin_with_phases);
    tcase_add_test(tcase, a_lost_message_is_no_question_to_a_plugin_without_phases);
    tcase_add_loop_test(tcase, wrong_bits_are_named_with_their_cause, 0,
                        sizeof mistakes / sizeof mistakes[0]);
    Suite *suite = suite_create("plugin");
    suite_add_tcase(suite, tcase);
    return suite;
}
