/* tests/test_bad_plugin.c - whatever a plugin does to itself is a line of the report, and
 * nothing is left behind.
 *
 * tests/plugin_broken.c takes what to do wrong from the environment. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sim/memory.h"
#include "sim/plugin_load.h"
#include "sim/plugin_wire.h"
#include "tests/json.h"
#include "tests/support.h"
#include "tests/with_plugin.h"

enum when { BEFORE, DURING, AFTER }; /* The cases: none is played of a plugin that does not open. */

/* What EPSIM_BREAK says, what must be said behind the plugin's path, and when it breaks. */
static const struct {
    const char *what, *says;
    enum when when;
} failures[] = {
    {"crash-load", "SIGSEGV in load: at address 0x10", BEFORE},
    {"crash-open", "SIGSEGV in open: at address 0x10", BEFORE},
    {"crash-dispatch", "SIGSEGV in dispatch: at address 0x10", DURING},
    {"crash-expert", "SIGSEGV in expert: at address 0x10", DURING},
    {"crash-combine", "SIGSEGV in combine: at address 0x10", DURING},
    {"crash-close", "SIGSEGV in close: at address 0x10", AFTER},
    {"abort-combine", "SIGABRT in combine", DURING},
    {"signal-dispatch", "SIGTERM in dispatch", DURING},
    {"exit-dispatch", "exit with status 7 in dispatch", DURING},
    {"exit-load", "exit with status 7 in load", BEFORE},
    {"hang-load", "hang in load: no answer within 1 s (--time-limit-s), killed", BEFORE},
    {"hang-close", "hang in close: no answer within 1 s (--time-limit-s), killed", AFTER},
    {"abi", "table has abi 2, this program speaks 1", BEFORE},
    {"short", "table of 40 bytes ends before `expert`, which is required", BEFORE},
    {"missing", "required operation `combine` is missing", BEFORE},
    {"half-phases", "phase operation `read` is missing beside `begin`: offer all of them or none",
     BEFORE},
    {"no-table", "sim_backend_v1 returned no table", BEFORE},
    {"refuse", "open: no GPU of?mine here", BEFORE},
    {"behind", "SIGSEGV in dispatch: 40 bytes behind the end of `payload`", DURING},
    {"just-behind", "dispatch: wrote outside its output: right behind the end of `src_token`",
     DURING},
    {"before", "dispatch: wrote outside its output: 8 bytes before `counts`", DURING},
    {"input", "SIGSEGV in dispatch: a store into its input `x`", DURING},
    {"fail", "dispatch: kernel launch: \"invalid\" ?? argument", DURING},
    {"mute", "dispatch: failed and did not say why", DURING},
    {"odd", "dispatch: returned 5: must be 0, -1 (failed) or -3 (unsupported)", DURING},
};
enum { FAILURES = sizeof failures / sizeof failures[0] };

/* The process that wrote its number to path is gone: it was waited for, so not even a zombie. */
static void assert_gone(const char *path)
{
    if (!test_exists(path)) return;
    const pid_t pid = (pid_t)strtol(test_read(path, NULL), NULL, 10);
    ck_assert_int_gt(pid, 0);
    ck_assert_msg(kill(pid, 0) != 0, "process %ld is still there", (long)pid);
}

/* How often it stands in the text. */
static int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) found++;
    return found;
}

START_TEST(a_failure_is_a_line_of_the_report)
{
    const char *pid_path = test_join(test_temp_dir(), "pid"), *path = plugin("broken");
    const char *line =
        test_format("broken: %s%s: %s\n", failures[_i].when == DURING ? "ll_ep2_masked: " : "",
                    path, failures[_i].says);
    struct test_output output;

    setenv("EPSIM_BREAK", failures[_i].what, 1);
    setenv("EPSIM_BREAK_PID", pid_path, 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", path, "--time-limit-s", "1");
    ck_assert_msg(output.status == 3, "status %d: %s%s", output.status, output.out, output.err);
    ck_assert_msg(count(output.err, failures[_i].says) == 1, "%s", output.err);
    if (failures[_i].when == BEFORE) /* Nothing to report: once is enough. */
        ck_assert_str_eq(output.out, "");
    else
        TEST_SAYS(output.out, line);
    assert_gone(pid_path);

    if (strncmp(failures[_i].what, "hang", 4) == 0) return; /* Once is slow enough. */
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", path, "--json");
    ck_assert_int_eq(output.status, 3);
    json_t *json = test_json(&output);
    const json_t *first = json_array_get(json_object_get(json, "failures"), 0);
    ck_assert_msg(strstr(text_at(first, "text"), failures[_i].says) != NULL, "%s", output.out);
    json_decref(json);
}
END_TEST

START_TEST(a_hang_names_its_operation_and_the_other_cases_go_on)
{
    const char *pid_path = test_join(test_temp_dir(), "pid");
    struct test_output output;
    setenv("EPSIM_BREAK", "hang-expert", 1);
    setenv("EPSIM_BREAK_PID", pid_path, 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"),
               "--time-limit-s", "1");
    ck_assert_int_eq(output.status, 3);
    /* One for each case. */
    ck_assert_int_eq(count(output.out, "hang in expert: no answer within 1 s"), 3);
    assert_gone(pid_path);
}
END_TEST

START_TEST(a_run_ends_with_the_line)
{
    struct test_output output;
    setenv("EPSIM_BREAK", "crash-combine", 1);
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "4", "--backend",
               plugin("broken"));
    ck_assert_int_eq(output.status, 3);
    TEST_SAYS(output.err, ": SIGSEGV in combine: at address 0x10\n");
    TEST_SAYS(output.err, "epsim run: step 0, layer 0: ");
    setenv("EPSIM_BREAK", "unsupported", 1);
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "4", "--backend",
               plugin("broken"));
    ck_assert_int_eq(output.status, 3);
    setenv("EPSIM_BREAK", "crash-close", 1);
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "4", "--backend",
               plugin("broken"));
    ck_assert_int_eq(output.status, 3);
    TEST_SAYS(output.err, "SIGSEGV in close");
}
END_TEST

START_TEST(what_is_no_plugin_is_said_to_be_none)
{
    const char *folder = test_temp_dir();
    const struct {
        const char *path, *says;
    } files[] = {
        {test_join(folder, "absent.so"), "No such file or directory"},
        {test_write_text(folder, "text.so", "this is text, and long enough for a header or two"),
         "text.so: "},
        {plugin("v2"), "exports sim_backend_v2, this program speaks sim_backend_v1"},
        {test_format("%s/libepsim_ref.so.0", test_join(plugin("v2"), "..")), "libepsim_ref.so.0"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct test_output output;
        TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", files[i].path);
        ck_assert_int_eq(output.status, 3);
        ck_assert_int_eq(count(output.err, files[i].says), 1);
        ck_assert_str_eq(output.out, "");
        TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--backend", files[i].path);
        ck_assert_int_eq(output.status, 3);
        TEST_SAYS(output.err, files[i].says);
    }
}
END_TEST

START_TEST(what_a_plugin_prints_is_not_in_the_report)
{
    struct test_output output;
    setenv("EPSIM_BREAK", "print", 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"), "--json");
    ck_assert_int_eq(output.status, 0);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "passed"), 3);
    TEST_SAYS(output.err, "for the report");
    json_decref(json);
}
END_TEST

/* The process that a plugin started holds the socket open; that is no hang of the plugin. Nor can a
 * plugin cut short the memory that it shares with the run. */
START_TEST(a_helper_process_and_a_cut_in_shared_memory_harm_nobody)
{
    static const char *const harmless[] = {"leave-dispatch", "leave-close", "shrink-dispatch"};
    struct test_output output;
    setenv("EPSIM_BREAK", harmless[_i], 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"),
               "--time-limit-s", "1");
    ck_assert_msg(output.status == 0, "status %d: %s%s", output.status, output.out, output.err);
}
END_TEST

START_TEST(wrong_counts_are_a_mismatch_and_nothing_else)
{
    struct test_output output;
    setenv("EPSIM_BREAK", "counts", 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"));
    ck_assert_int_eq(output.status, 1);
    TEST_SAYS(output.out, "ll_ep2_masked: dispatch: bf16.count of rank 0, expert 0");
}
END_TEST

/* The kernel ends it a moment later, and whoever inherits orphans waits for it: a zombie here
 * would be theirs. */
static void wait_for_end_of(pid_t pid)
{
    const struct timespec pause = {0, 20000000};
    for (int rounds = 0; rounds < 1000; rounds++, nanosleep(&pause, NULL)) {
        char state = 'X';
        const char *stat_path = test_format("/proc/%ld/stat", (long)pid);
        FILE *file = test_exists(stat_path) ? fopen(stat_path, "r") : NULL;
        if (file == NULL) return;
        if (fscanf(file, "%*d %*s %c", &state) != 1) state = 'X';
        fclose(file);
        if (state == 'Z' || state == 'X') return;
    }
    ck_abort_msg("process %ld is still there", (long)pid);
}

START_TEST(what_a_plugin_started_ends_with_it)
{
    const char *pid_path = test_join(test_temp_dir(), "pid");
    struct test_output output;
    setenv("EPSIM_BREAK", "stay-close", 1);
    setenv("EPSIM_BREAK_PID", pid_path, 1);
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("broken"));
    ck_assert_msg(output.status == 0, "status %d: %s%s", output.status, output.out, output.err);
    const pid_t helper = (pid_t)strtol(test_read(pid_path, NULL), NULL, 10);
    ck_assert_int_gt(helper, 1);
    wait_for_end_of(helper);
}
END_TEST

START_TEST(an_interrupted_run_leaves_no_process)
{
    const char *pid_path = test_join(test_temp_dir(), "pid"), *path = plugin("broken");
    const struct timespec pause = {0, 20000000};
    int status = 0;
    setenv("EPSIM_BREAK", "hang-dispatch", 1);
    setenv("EPSIM_BREAK_PID", pid_path, 1);
    const pid_t run = fork();
    ck_assert_int_ge(run, 0);
    if (run == 0) {
        execl(test_epsim(), "epsim", "verify", "--golden", golden(), "--backend", path, NULL);
        _exit(127);
    }
    while (!test_exists(pid_path) || test_read(pid_path, NULL)[0] == '\0') nanosleep(&pause, NULL);
    const pid_t host = (pid_t)strtol(test_read(pid_path, NULL), NULL, 10);
    ck_assert_int_eq(kill(host, 0), 0);
    ck_assert_int_eq(kill(run, SIGINT), 0);
    ck_assert_int_eq(waitpid(run, &status, 0), run);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    wait_for_end_of(host);
}
END_TEST

START_TEST(the_limit_is_a_number_of_seconds)
{
    struct test_output output;
    TEST_EPSIM(&output, "verify", "--golden", golden(), "--backend", plugin("example"),
               "--time-limit-s", "0");
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "--time-limit-s: 0: must be a whole number from 1 to 86400");
}
END_TEST

START_TEST(places_have_holes_between_and_end_at_page_ends)
{
    struct plugin_place places[PLUGIN_PARTS] = {{0}};
    char text[128];
    places[PART_PAYLOAD] = (struct plugin_place){1, 1, 0, 2 * PLUGIN_PAGE};
    places[PART_SRC_TOKEN] = (struct plugin_place){1, 1, 0, 20};
    places[PART_COUNTS] = (struct plugin_place){1, 1, 0, 0};
    const uint64_t bytes = plugin_place_region(places, REGION_CALL);

    /* Control, hole; 2 pages, hole; 1 page, hole; 1 page, hole. 20 bytes take 32. */
    ck_assert_uint_eq(bytes, 9 * PLUGIN_PAGE);
    ck_assert_uint_eq(places[PART_PAYLOAD].offset, 2 * PLUGIN_PAGE);
    ck_assert_uint_eq(places[PART_SRC_TOKEN].offset, 6 * PLUGIN_PAGE - 32);
    ck_assert_uint_eq(places[PART_COUNTS].offset, 8 * PLUGIN_PAGE);
    ck_assert_uint_eq(plugin_first_page(&places[PART_COUNTS]), 7 * PLUGIN_PAGE);
    plugin_place_name(places, REGION_CALL, 4 * PLUGIN_PAGE + 3, text, sizeof text);
    ck_assert_str_eq(text, "3 bytes behind the end of `payload`");
    plugin_place_name(places, REGION_CALL, 6 * PLUGIN_PAGE - 33, text, sizeof text);
    ck_assert_str_eq(text, "1 bytes before `src_token`");
    plugin_place_name(places, REGION_CALL, 8 * PLUGIN_PAGE, text, sizeof text);
    ck_assert_str_eq(text, "right behind the end of `counts`");
}
END_TEST

START_TEST(a_table_from_a_later_header_is_as_good)
{
    struct sim_backend_ops ops = *sim_backend_ref();
    char text[256];
    ops.table_bytes += 64; /* Fields that this program does not know. */
    ck_assert(plugin_check_table(&ops, text, sizeof text));
    ck_assert(plugin_offers_phases(&ops));
    ops.table_bytes = offsetof(struct sim_backend_ops, begin); /* One without phases. */
    ck_assert(plugin_check_table(&ops, text, sizeof text));
    ck_assert(!plugin_offers_phases(&ops));
    ops.table_bytes = offsetof(struct sim_backend_ops, begin) - 1;
    ck_assert(!plugin_check_table(&ops, text, sizeof text));
    TEST_SAYS(text, "ends before `combine`");
}
END_TEST

START_TEST(a_run_is_refused_before_with_the_number_missing)
{
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "256", "--mode",
               "ll", "--backend", plugin("example"), "--host-mib", "4");
    ck_assert_int_eq(output.status, 3);
    TEST_SAYS(output.err, " bytes missing\n");
}
END_TEST

START_TEST(memory_is_refused_with_the_number_missing)
{
    char err[256] = "";
    ck_assert_int_eq(sim_memory_check("x", 1000, 1000, err, sizeof err), 0);
    ck_assert_int_eq(sim_memory_check("x.so: dispatch", 1500, 1000, err, sizeof err), -1);
    ck_assert_str_eq(err, "x.so: dispatch: it needs 1500 bytes, 1000 are free: 500 bytes missing");
    ck_assert_uint_gt(sim_memory_free_bytes(), 1 << 20);
}
END_TEST

Suite *bad_plugin_suite(void)
{
    TCase *tcase = tcase_create("bad_plugin");
    tcase_add_loop_test(tcase, a_failure_is_a_line_of_the_report, 0, FAILURES);
    tcase_add_test(tcase, a_hang_names_its_operation_and_the_other_cases_go_on);
    tcase_add_test(tcase, a_run_ends_with_the_line);
    tcase_add_test(tcase, what_is_no_plugin_is_said_to_be_none);
    tcase_add_test(tcase, what_a_plugin_prints_is_not_in_the_report);
    tcase_add_loop_test(tcase, a_helper_process_and_a_cut_in_shared_memory_harm_nobody, 0, 3);
    tcase_add_test(tcase, wrong_counts_are_a_mismatch_and_nothing_else);
    tcase_add_test(tcase, what_a_plugin_started_ends_with_it);
    tcase_add_test(tcase, an_interrupted_run_leaves_no_process);
    tcase_add_test(tcase, the_limit_is_a_number_of_seconds);
    tcase_add_test(tcase, places_have_holes_between_and_end_at_page_ends);
    tcase_add_test(tcase, a_table_from_a_later_header_is_as_good);
    tcase_add_test(tcase, a_run_is_refused_before_with_the_number_missing);
    tcase_add_test(tcase, memory_is_refused_with_the_number_missing);
    Suite *suite = suite_create("bad_plugin");
    suite_add_tcase(suite, tcase);
    return suite;
}
