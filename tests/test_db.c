/* tests/test_db.c - what a run leaves in the database, also when it is killed or not alone.
 *
 * Method: rows in, SQLite's own answers out; a child process that is killed in the middle of a
 * step; two writers on one file. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/db_support.h"
#include "tests/support.h"
#include "traces/db_private.h"
#include "traces/db_read.h"

static const char digest_text[] = "fedcba9876543210";

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What others' queries rely on: these columns, in this order, before any that were added. */
START_TEST(the_schema_is_the_published_one)
{
    static const char *const tables[][2] = {
        {"run", "run tool_version command settings_json settings_digest seed digest complete "
                "last_step started_utc wall_ns"},
        {"step", "run step start_ps end_ps tokens"},
        {"span", "run step layer rank stream op start_ps end_ps bytes rows"},
        {"message_stat", "run step layer op src_rank dst_rank link_class messages formula_bytes "
                         "distinct_rank_bytes wire_bytes"},
        {"resource_use", "run step layer resource kind busy_ps bytes queue_peak stall_ps"},
        {"expert_load", "run step layer rank expert rows"},
        {"wait", "run step layer op waiter awaited wait_ps"},
        {"check_result", "run step layer stage backend rank rows bytes digest mismatch_count "
                         "expert src_rank src_token channel expected_hex actual_hex cause"},
        {"routing", "run path file_digest id_space model"},
        {"cell", "run settings_digest state summary_json"},
        {"message", "run step layer op src_rank dst_rank link_class qp bytes rows send_ps land_ps"},
        {"attribution", "run step layer op rank part ps"},
        {"whatif", "run step layer op knob before_ps after_ps"},
        {"fault", "run step at_ps kind target detail"},
        {"measured", "run source row_id predicted_ps measured_ps"},
        {"wrong_row", "run step layer stage rank expert src_rank src_token"},
    };
    const char *path = test_join(test_temp_dir(), "run.db");
    trace_db_close(db_open(path));
    ck_assert_str_eq(db_ask(path, "PRAGMA user_version"), "1");
    ck_assert_str_eq(db_ask(path, "PRAGMA journal_mode"), "delete");
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"), "16");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        char sql[512], words[512];
        snprintf(words, sizeof words, "%s", tables[i][1]);
        for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
            snprintf(sql, sizeof sql,
                     "SELECT count(*) FROM pragma_table_info('%s') WHERE name = '%s'", tables[i][0],
                     word);
            ck_assert_msg(strcmp(db_ask(path, sql), "1") == 0, "%s.%s", tables[i][0], word);
        }
    }
}
END_TEST

static void put_one_of_each(struct trace_db *db)
{
    const struct trace_step step = {0, 10, 900, 128};
    const struct trace_span span = {0, 3, 1, "comm", "dispatch", 10, 20, 4096, 2};
    const struct trace_span whole = {0, TRACE_NO_LAYER, 1, "compute", "other", 10, 20, 0, 0};
    const struct trace_message_stat stat = {0, 3, "combine", 1, 0, "nic", 5, 100, 90, 120};
    const struct trace_resource_use use = {0, 3, "dispatch", "rank1.nic.in", "nic", 7, 8, 9, 10};
    const struct trace_expert_load load = {0, 3, 1, 17, 44};
    const struct trace_wait wait = {0, 3, "dispatch", 1, 0, 123};
    const struct trace_check_result mismatch = {
        0, 3,  "dispatch", "cuda", 1,  44,     5000,   UINT64_C(0x0123456789abcdef),
        2, 17, 0,          5,      99, "3f80", "3f81", "two roundings"};
    const struct trace_routing_row routing = {"ids.npy", 255, "logical", ""};
    const struct trace_cell cell = {"00112233445566ff", "done", "{}"},
                            again = {"00112233445566ff", "failed", "{\"a\": 1}"};
    const struct trace_message message = {0, 3, "dispatch", 1, 0, "nvlink", -1, 7168, 1, 11, 12};
    const struct trace_message queued = {0, 3, "dispatch", 1, 0, "nic", 4, 7168, 1, 11, INT64_MAX};
    const struct trace_fault fault = {0, 50, "drop", "message 4", "rank 1 to 0"};
    const struct trace_measured measured = {"a.csv", "a.csv:7", 1000, 1100};
    const struct trace_wrong_row wrong[] = {{0, 3, "dispatch", 1, 17, 0, 5},
                                            {0, 3, "layout", 1, -1, 0, -1}};
    DB_OK(trace_db_step(db, &step, err, sizeof err));
    DB_OK(trace_db_span(db, &span, err, sizeof err));
    DB_OK(trace_db_span(db, &whole, err, sizeof err));
    DB_OK(trace_db_message_stat(db, &stat, err, sizeof err));
    DB_OK(trace_db_resource_use(db, &use, err, sizeof err));
    DB_OK(trace_db_expert_load(db, &load, err, sizeof err));
    DB_OK(trace_db_wait(db, &wait, err, sizeof err));
    DB_OK(trace_db_check_result(db, &mismatch, err, sizeof err));
    db_put_check(db, 0, 3, 0, "dispatch", "cuda", 1);
    DB_OK(trace_db_routing(db, &routing, err, sizeof err));
    DB_OK(trace_db_cell(db, &cell, err, sizeof err));
    DB_OK(trace_db_cell(db, &again, err, sizeof err));
    DB_OK(trace_db_message(db, &message, err, sizeof err));
    DB_OK(trace_db_message(db, &queued, err, sizeof err));
    DB_OK(trace_db_fault(db, &fault, err, sizeof err));
    DB_OK(trace_db_measured(db, &measured, err, sizeof err));
    const struct trace_attribution part = {0, 3, "combine", 1, "nic", -12};
    const struct trace_whatif whatif = {0, 3, "combine", "nic-rate", 2000, 1500};
    DB_OK(trace_db_attribution(db, &part, err, sizeof err));
    DB_OK(trace_db_whatif(db, &whatif, err, sizeof err));
    for (int i = 0; i < 2; i++) DB_OK(trace_db_wrong_row(db, &wrong[i], err, sizeof err));
}

START_TEST(every_table_holds_what_was_put_in)
{
    static const char *const cases[][2] = {
        {"step", "1|0|10|900|128"},
        {"span", "1|0|3|1|comm|dispatch|10|20|4096|2;1|0|NULL|1|compute|other|10|20|0|0"},
        {"message_stat", "1|0|3|combine|1|0|nic|5|100|90|120"},
        {"resource_use", "1|0|3|dispatch|rank1.nic.in|nic|7|8|9|10"},
        {"expert_load", "1|0|3|1|17|44"},
        {"wait", "1|0|3|dispatch|1|0|123"},
        {"check_result",
         "1|0|3|dispatch|cuda|0|4|512|0000000000000001|0|NULL|NULL|NULL|NULL|NULL|NULL|NULL;"
         "1|0|3|dispatch|cuda|1|44|5000|0123456789abcdef|2|17|0|5|99|3f80|3f81|two roundings"},
        {"routing", "1|ids.npy|00000000000000ff|logical|"},
        {"cell", "1|00112233445566ff|failed|{\"a\": 1}"},
        {"message", "1|0|3|dispatch|1|0|nvlink|NULL|7168|1|11|12;"
                    "1|0|3|dispatch|1|0|nic|4|7168|1|11|9223372036854775807"},
        {"fault", "1|0|50|drop|message 4|rank 1 to 0"},
        {"measured", "1|a.csv|a.csv:7|1000|1100"},
        {"attribution", "1|0|3|combine|1|nic|-12"},
        {"whatif", "1|0|3|combine|nic-rate|2000|1500"},
        {"wrong_row", "1|0|3|dispatch|1|17|0|5;1|0|3|layout|1|NULL|0|NULL"},
    };
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    struct trace_db *db = db_open(path);
    ck_assert_uint_eq(db_begin(db), 1);
    put_one_of_each(db);
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    DB_OK(trace_db_end_run(db, digest_text, err, sizeof err));
    trace_db_close(db);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT * FROM %s", cases[i][0]);
        ck_assert_str_eq(db_ask(path, sql), cases[i][1]);
    }
    ck_assert_str_eq(db_ask(path, "SELECT run, tool_version, command, settings_json, "
                                  "settings_digest, seed, digest, complete, last_step FROM run"),
                     "1|epsim 1|epsim run --ep 2|{\"ep\": 2}|00112233445566ff|7|fedcba9876543210|"
                     "1|0");
    ck_assert_str_eq(db_ask(path, "SELECT started_utc GLOB '20[0-9][0-9]-[01][0-9]-[0-3][0-9]T"
                                  "[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z', wall_ns > 0 FROM run"),
                     "1|1");
    struct test_output listing;
    test_run((const char *const[]){"ls", folder, NULL}, &listing);
    ck_assert_str_eq(listing.out, "run.db\n"); /* One file, no journal. */
}
END_TEST

START_TEST(runs_are_appended)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    for (uint64_t i = 1; i <= 3; i++) {
        struct trace_db *db = db_open(path);
        ck_assert_uint_eq(db_begin(db), i);
        DB_OK(trace_db_step_done(db, 9 + i, err, sizeof err));
        if (i != 2) DB_OK(trace_db_end_run(db, digest_text, err, sizeof err));
        trace_db_close(db);
    }
    ck_assert_str_eq(db_ask(path, "SELECT run, complete, last_step FROM run"),
                     "1|1|10;2|0|11;3|1|12");
}
END_TEST

START_TEST(one_open_database_takes_several_runs)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    for (uint64_t i = 1; i <= 2; i++) {
        ck_assert_uint_eq(db_begin(db), i);
        put_one_of_each(db);
        DB_OK(trace_db_end_run(db, digest_text, err, sizeof err));
    }
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT run, count(*) FROM span GROUP BY run"), "1|2;2|2");
}
END_TEST

START_TEST(a_row_that_stands_twice_is_an_error)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    const struct trace_expert_load load = {0, 3, 1, 17, 44};
    DB_OK(trace_db_expert_load(db, &load, err, sizeof err));
    ck_assert_int_eq(trace_db_expert_load(db, &load, err, sizeof err), -1);
    TEST_SAYS(err, "run.db: expert_load: UNIQUE constraint failed");
    trace_db_close(db);
}
END_TEST

/* Write steps 0 to 2, then half of step 3; say so through the pipe; wait to be killed. */
static void write_until_killed(const char *path, int ready_fd, bool spill)
{
    struct trace_db *db = db_open(path);
    /* A small cache makes SQLite write pages of the open transaction into the file. */
    if (spill) sqlite3_exec(db->sqlite, "PRAGMA cache_size = 8", NULL, NULL, NULL);
    db_begin(db);
    for (uint64_t step = 0; step < 4; step++) {
        for (uint32_t rank = 0; rank < 1000; rank++)
            db_put_check(db, step, 0, rank, "dispatch", "ref", rank);
        if (step < 3) DB_OK(trace_db_step_done(db, step, err, sizeof err));
    }
    ck_assert_int_eq(write(ready_fd, "x", 1), 1);
    for (;;) pause();
}

static void kill_in_the_middle(const char *path, bool spill)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) write_until_killed(path, ready[1], spill);
    ck_assert_int_gt(child, 0);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ready[0]);
}

static void expect_killed_run(const char *path)
{
    struct trace_reader *reader = trace_reader_open(path, err, sizeof err);
    ck_assert_msg(reader != NULL, "%s", err);
    ck_assert(!trace_reader_run(reader)->complete);
    ck_assert_int_eq(trace_reader_run(reader)->last_step, 2);
    ck_assert_str_eq(trace_reader_run(reader)->digest, "");
    struct trace_difference difference;
    DB_OK(trace_db_first_difference(reader, reader, &difference, err, sizeof err));
    ck_assert_uint_eq(difference.compared, 3000); /* Nothing of step 3. */
    ck_assert(!difference.differs);
    trace_reader_close(reader);
}

START_TEST(a_killed_run_is_readable_and_says_so) /* Loop: 1 = its journal matters. */
{
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    kill_in_the_middle(path, _i == 1);
    if (_i == 1) ck_assert(test_exists(test_join(folder, "run.db-journal")));
    expect_killed_run(path);
    ck_assert_str_eq(db_ask(path, "PRAGMA integrity_check"), "ok");

    /* And the next run goes behind it. */
    struct trace_db *db = db_open(path);
    ck_assert_uint_eq(db_begin(db), 2);
    DB_OK(trace_db_end_run(db, digest_text, err, sizeof err));
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT run, complete, last_step FROM run"), "1|0|2;2|1|NULL");
}
END_TEST

START_TEST(a_killed_run_is_readable_where_nothing_can_be_written)
{
    if (geteuid() != 0) {
        test_skip("needs root, to become somebody else");
        return;
    }
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    kill_in_the_middle(path, true);
    ck_assert(test_exists(test_join(folder, "run.db-journal")));
    db_make_read_only(folder, path);
    setenv("TMPDIR", "/tmp", 1);
    ck_assert_int_eq(seteuid(65534), 0);
    expect_killed_run(path);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert(test_exists(test_join(folder, "run.db-journal"))); /* Untouched. */
}
END_TEST

START_TEST(a_second_writer_waits_and_then_names_the_file)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *first = db_open(path);
    db_begin(first);
    const double start_s = now_s();
    ck_assert_ptr_null(trace_db_open(path, 300, NULL, err, sizeof err));
    const double waited_s = now_s() - start_s;
    ck_assert_msg(waited_s >= 0.3 && waited_s < 3.0, "%f s", waited_s);
    TEST_SAYS(err, "run.db: another run is writing it (waited 300 ms)");
    DB_OK(trace_db_end_run(first, digest_text, err, sizeof err));
    trace_db_close(first);
    trace_db_close(db_open(path)); /* Free again. */
}
END_TEST

START_TEST(another_programs_lock_is_waited_for_and_named)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    trace_db_close(db_open(path));
    sqlite3 *other = NULL;
    ck_assert_int_eq(sqlite3_open(path, &other), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    const double start_s = now_s();
    bool broken = true;
    ck_assert_ptr_null(trace_db_open(path, 300, &broken, err, sizeof err));
    ck_assert(!broken);
    ck_assert(now_s() - start_s >= 0.25);
    TEST_SAYS(err, "run.db: in use by another program");
    sqlite3_close(other);
    ck_assert(test_exists(path));
}
END_TEST

START_TEST(readers_look_between_two_steps)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    ck_assert_str_eq(db_ask(path, "SELECT complete, last_step FROM run"), "0|NULL");
    db_put_check(db, 0, 0, 0, "dispatch", "ref", 1);
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM check_result"), "0");
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM check_result"), "1");
    ck_assert_str_eq(db_ask(path, "SELECT complete, last_step FROM run"), "0|0");
    trace_db_close(db);
}
END_TEST

START_TEST(a_reader_in_the_way_delays_a_step_but_not_the_run)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = trace_db_open(path, 50, NULL, err, sizeof err);
    ck_assert_ptr_nonnull(db);
    db_begin(db);
    sqlite3 *other = NULL;
    ck_assert_int_eq(sqlite3_open(path, &other), SQLITE_OK);
    sqlite3_exec(other, "BEGIN; SELECT * FROM run", NULL, NULL, NULL); /* Holds a read lock. */
    db_put_check(db, 0, 0, 0, "dispatch", "ref", 1);
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    sqlite3_close(other);
    db_put_check(db, 1, 0, 0, "dispatch", "ref", 1);
    DB_OK(trace_db_step_done(db, 1, err, sizeof err));
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT count(*), last_step FROM check_result, run"), "2|1");
}
END_TEST

START_TEST(a_step_longer_than_a_second_is_committed_on_the_way)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    db_put_check(db, 0, 0, 0, "dispatch", "ref", 1);
    db->begin_ns -= UINT64_C(2000000000); /* As if it had begun two seconds ago. */
    for (uint32_t rank = 1; rank < 5000; rank++)
        db_put_check(db, 0, 0, rank, "dispatch", "ref", rank);
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM check_result"), "4096");
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM check_result"), "4096");
}
END_TEST

START_TEST(a_full_disk_ends_the_run_and_not_the_database)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    db_put_check(db, 0, 0, 0, "dispatch", "ref", 1);
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    sqlite3_exec(db->sqlite, "PRAGMA max_page_count = 40", NULL, NULL, NULL);
    int status = 0;
    for (uint32_t rank = 0; rank < 20000 && status == 0; rank++) {
        const struct trace_check_result row = db_check(1, 0, rank, "dispatch", "ref", rank);
        status = trace_db_check_result(db, &row, err, sizeof err);
    }
    ck_assert_int_eq(status, -1);
    TEST_SAYS(err, "run.db: check_result: database or disk is full");
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT complete, last_step, count(*) FROM run, check_result"),
                     "0|0|1");
}
END_TEST

START_TEST(files_of_others_are_refused_and_left_alone)
{
    const char *folder = test_temp_dir();
    bool broken = false;
    const char *text = test_write_text(folder, "text", "not a database, not even close to one");
    ck_assert_ptr_null(trace_db_open(text, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "text: not an epsim database: file is not a database");
    ck_assert_str_eq(test_read(text, NULL), "not a database, not even close to one");

    const char *other = test_join(folder, "other.db");
    db_execute(other, "CREATE TABLE t (a)");
    ck_assert_ptr_null(trace_db_open(other, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "other.db: not an epsim database of this version: user_version is 0, "
                   "expected 1");
    db_execute(other, "PRAGMA user_version = 1");
    ck_assert_ptr_null(trace_db_open(other, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "other.db: not an epsim database: no such table: step");
    db_execute(other, "PRAGMA user_version = 2");
    ck_assert_ptr_null(trace_db_open(other, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "user_version is 2, expected 1");
    ck_assert_str_eq(db_ask(other, "SELECT name FROM sqlite_schema"), "t");

    ck_assert_ptr_null(trace_db_open(folder, 100, &broken, err, sizeof err));
    ck_assert(!broken);
    TEST_SAYS(err, "Is a directory");
    ck_assert_ptr_null(
        trace_db_open(test_join(folder, "no/run.db"), 100, &broken, err, sizeof err));
    ck_assert(!broken);
    TEST_SAYS(err, "no/run.db: cannot write it: No such file");
}
END_TEST

START_TEST(an_empty_file_becomes_a_database)
{
    const char *path = test_write_text(test_temp_dir(), "run.db", "");
    trace_db_close(db_open(path));
    ck_assert_str_eq(db_ask(path, "PRAGMA user_version"), "1");
}
END_TEST

START_TEST(special_names_are_files_too)
{
    ck_assert_int_eq(chdir(test_temp_dir()), 0);
    trace_db_close(db_open(":memory:"));
    ck_assert(test_exists("./:memory:"));
    trace_db_close(db_open("file:x?mode=memory"));
    ck_assert(test_exists("./file:x?mode=memory"));
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

static void put_beyond_63_bits(struct trace_db *db)
{
    const struct trace_expert_load load = {0, 3, 1, 17, UINT64_C(1) << 63};
    trace_db_expert_load(db, &load, err, sizeof err);
}

START_TEST(a_seed_beyond_63_bits_is_refused)
{
    struct trace_db *db = db_open(test_join(test_temp_dir(), "run.db"));
    const struct trace_run settings = {"", "", "", "0000000000000000", UINT64_C(1) << 63};
    ck_assert_int_eq(trace_db_begin_run(db, &settings, NULL, err, sizeof err), -1);
    TEST_SAYS(err, "run.db: run: seed 9223372036854775808: at most");
    trace_db_close(db);
}
END_TEST

START_TEST(a_figure_beyond_63_bits_is_a_bug) /* Ends by SIGABRT. */
{
    struct trace_db *db = db_open(test_join(test_temp_dir(), "run.db"));
    db_begin(db);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* The assert's own words. */
    put_beyond_63_bits(db);
}
END_TEST

Suite *db_suite(void)
{
    TCase *tcase = tcase_create("db");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, the_schema_is_the_published_one);
    tcase_add_test(tcase, every_table_holds_what_was_put_in);
    tcase_add_test(tcase, runs_are_appended);
    tcase_add_test(tcase, one_open_database_takes_several_runs);
    tcase_add_test(tcase, a_row_that_stands_twice_is_an_error);
    tcase_add_loop_test(tcase, a_killed_run_is_readable_and_says_so, 0, 2);
    tcase_add_test(tcase, a_killed_run_is_readable_where_nothing_can_be_written);
    tcase_add_test(tcase, a_second_writer_waits_and_then_names_the_file);
    tcase_add_test(tcase, another_programs_lock_is_waited_for_and_named);
    tcase_add_test(tcase, readers_look_between_two_steps);
    tcase_add_test(tcase, a_reader_in_the_way_delays_a_step_but_not_the_run);
    tcase_add_test(tcase, a_step_longer_than_a_second_is_committed_on_the_way);
    tcase_add_test(tcase, a_full_disk_ends_the_run_and_not_the_database);
    tcase_add_test(tcase, files_of_others_are_refused_and_left_alone);
    tcase_add_test(tcase, an_empty_file_becomes_a_database);
    tcase_add_test(tcase, special_names_are_files_too);
    tcase_add_test(tcase, a_seed_beyond_63_bits_is_refused);
    tcase_add_test_raise_signal(tcase, a_figure_beyond_63_bits_is_a_bug, SIGABRT);
    Suite *suite = suite_create("db");
    suite_add_tcase(suite, tcase);
    return suite;
}
