/* tests/test_db_read.c - runs are found by name, compared, and hostile files end in one line.
 *
 * Method: small runs whose first difference is known; files broken on purpose, by hand and by
 * seed. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/db_support.h"
#include "tests/mutate.h"
#include "tests/support.h"
#include "traces/db_read.h"

static struct trace_reader *reader_open(const char *name)
{
    struct trace_reader *reader = trace_reader_open(name, err, sizeof err);
    ck_assert_msg(reader != NULL, "%s", err);
    return reader;
}

/* The line that opening name ends in. */
static const char *refusal(const char *name)
{
    memset(err, 0, sizeof err);
    ck_assert_ptr_null(trace_reader_open(name, err, sizeof err));
    ck_assert_ptr_null(strchr(err, '\n'));
    return err;
}

#define REFUSED(name, expected)                                                                    \
    ck_assert_msg(strstr(refusal(name), expected) != NULL, "gave %s\n not %s", err, expected)

/* Append a run of so many steps, 2 layers, 2 ranks and 4 stages. Its digests count up, except
 * the one at (salted_step, layer 1, salted_rank, salted_stage), which is salted. */
static void append_run(const char *path, uint64_t steps, uint64_t salted_step, uint32_t salted_rank,
                       const char *salted_stage, uint64_t salt)
{
    static const char *const stages[] = {"combine", "dispatch", "expert", "quantise"};
    struct trace_db *db = db_open(path);
    db_begin(db);
    for (uint64_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t layer = i / 8, rank = i / 4 % 2;
            const bool salted = step == salted_step && layer == 1 && rank == salted_rank &&
                                strcmp(stages[i % 4], salted_stage) == 0;
            db_put_check(db, step, layer, rank, stages[i % 4], "ref",
                         (step * 16 + i) ^ (salted ? salt : 0));
        }
        DB_OK(trace_db_step_done(db, step, err, sizeof err));
    }
    DB_OK(trace_db_end_run(db, "fedcba9876543210", err, sizeof err));
    trace_db_close(db);
}

static struct trace_difference compare(const char *name_a, const char *name_b)
{
    struct trace_reader *a = reader_open(name_a), *b = reader_open(name_b);
    struct trace_difference difference;
    DB_OK(trace_db_first_difference(a, b, &difference, err, sizeof err));
    trace_reader_close(a);
    trace_reader_close(b);
    return difference;
}

START_TEST(a_run_is_named_by_file_and_number)
{
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    append_run(path, 1, 9, 0, "", 0);
    append_run(path, 2, 9, 0, "", 0);
    struct trace_reader *reader = reader_open(path);
    ck_assert_uint_eq(trace_reader_run(reader)->run, 2); /* The last. */
    ck_assert_str_eq(trace_reader_path(reader), path);
    ck_assert_str_eq(trace_reader_run(reader)->settings_json, "{\"ep\": 2}");
    ck_assert_str_eq(trace_reader_run(reader)->settings_digest, "00112233445566ff");
    ck_assert_str_eq(trace_reader_run(reader)->digest, "fedcba9876543210");
    ck_assert_str_eq(trace_reader_run(reader)->command, "epsim run --ep 2");
    ck_assert_uint_eq(trace_reader_run(reader)->seed, 7);
    ck_assert(trace_reader_run(reader)->complete);
    ck_assert_int_eq(trace_reader_run(reader)->last_step, 1);
    ck_assert_uint_gt(trace_reader_run(reader)->wall_ns, 0);
    size_t count;
    const struct trace_run_info *runs = trace_reader_runs(reader, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(runs[0].run, 1);
    ck_assert_int_eq(runs[0].last_step, 0);
    trace_reader_close(reader);

    reader = reader_open(test_join(folder, "run.db#1"));
    ck_assert_uint_eq(trace_reader_run(reader)->run, 1);
    ck_assert_str_eq(trace_reader_path(reader), path);
    trace_reader_close(reader);

    REFUSED(test_join(folder, "run.db#3"), "run.db#3: no such run: expected 1 to 2");
    REFUSED(test_join(folder, "run.db#0"), "run.db#0: run numbers begin at 1");
    REFUSED(test_join(folder, "run.db#99999999999999999999999"), "run numbers begin at 1");
    REFUSED(test_join(folder, "run.db#"), "run.db#: No such file");
    REFUSED(test_join(folder, "run.db#1x"), "run.db#1x: No such file");
    REFUSED(test_join(folder, "none.db#1"), "none.db: No such file");

    /* A file whose own name ends so is that file. */
    ck_assert_int_eq(rename(path, test_join(folder, "run#1")), 0);
    reader = reader_open(test_join(folder, "run#1"));
    ck_assert_uint_eq(trace_reader_run(reader)->run, 2);
    trace_reader_close(reader);
    reader = reader_open(test_join(folder, "run#1#1"));
    ck_assert_uint_eq(trace_reader_run(reader)->run, 1);
    trace_reader_close(reader);
}
END_TEST

START_TEST(many_runs_are_listed)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    trace_db_close(db);
    db_execute(path, "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n LIMIT 149) "
                     "INSERT INTO run SELECT i, '', '', '', '', 0, NULL, 0, NULL, '', NULL FROM n");
    struct trace_reader *reader = reader_open(path);
    size_t count;
    const struct trace_run_info *runs = trace_reader_runs(reader, &count);
    ck_assert_uint_eq(count, 150);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(runs[i].run, i + 1);
        ck_assert_int_eq(runs[i].last_step, -1);
    }
    trace_reader_close(reader);
}
END_TEST

START_TEST(routing_files_are_listed)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    const struct trace_routing_row rows[] = {{"b.npy", UINT64_MAX, "logical", ""},
                                             {"a.npy", 1, "physical", "toy"}};
    for (int i = 0; i < 2; i++) DB_OK(trace_db_routing(db, &rows[i], err, sizeof err));
    DB_OK(trace_db_end_run(db, "fedcba9876543210", err, sizeof err));
    trace_db_close(db);
    struct trace_reader *reader = reader_open(path);
    size_t count;
    const struct trace_routing_info *infos = trace_reader_routing(reader, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(infos[0].path, "a.npy");
    ck_assert_uint_eq(infos[0].file_digest, 1);
    ck_assert_str_eq(infos[0].id_space, "physical");
    ck_assert_str_eq(infos[0].model, "toy");
    ck_assert_str_eq(infos[1].path, "b.npy");
    ck_assert_uint_eq(infos[1].file_digest, UINT64_MAX);
    trace_reader_close(reader);
}
END_TEST

START_TEST(equal_runs_do_not_differ)
{
    const char *folder = test_temp_dir();
    const char *one = test_join(folder, "one.db"), *two = test_join(folder, "two.db");
    append_run(one, 3, 9, 0, "", 0);
    append_run(one, 3, 9, 0, "", 0);
    append_run(two, 3, 9, 0, "", 0);
    const char *pairs[][2] = {{one, two}, {one, one}, {test_join(folder, "one.db#1"), one}};
    for (size_t i = 0; i < 3; i++) {
        const struct trace_difference difference = compare(pairs[i][0], pairs[i][1]);
        ck_assert_uint_eq(difference.compared, 48);
        ck_assert(!difference.differs);
        ck_assert_uint_eq(difference.only_a + difference.only_b, 0);
    }
}
END_TEST

START_TEST(the_first_difference_is_the_first_in_the_data_path)
{
    const char *folder = test_temp_dir();
    const char *one = test_join(folder, "one.db"), *two = test_join(folder, "two.db");
    append_run(one, 3, 9, 0, "", 0);
    append_run(two, 3, 1, 1, "dispatch", 0xf000);
    const struct trace_difference difference = compare(one, two);
    ck_assert(difference.differs);
    ck_assert_uint_eq(difference.key.step, 1);
    ck_assert_uint_eq(difference.key.layer, 1);
    ck_assert_uint_eq(difference.key.rank, 1);
    ck_assert_str_eq(difference.key.stage, "dispatch");
    ck_assert_uint_eq(difference.digest_a, 16 + 13);
    ck_assert_uint_eq(difference.digest_b, (16 + 13) ^ 0xf000);
    ck_assert_str_eq(difference.backend_a, "ref");
    ck_assert_uint_eq(difference.compared, 48);

    /* Combine comes after dispatch, though not in the alphabet; rank before stage. */
    db_execute(two, "UPDATE check_result SET digest = 'ffffffffffffffff' WHERE step = 1 AND "
                    "layer = 1 AND rank = 1 AND stage = 'combine'");
    ck_assert_str_eq(compare(one, two).key.stage, "dispatch");
    db_execute(two, "UPDATE check_result SET digest = 'ffffffffffffffff' WHERE step = 1 AND "
                    "layer = 1 AND rank = 1 AND stage = 'quantise'");
    ck_assert_str_eq(compare(one, two).key.stage, "quantise");
    db_execute(two, "UPDATE check_result SET digest = 'ffffffffffffffff' WHERE step = 1 AND "
                    "layer = 1 AND rank = 0 AND stage = 'combine'");
    ck_assert_uint_eq(compare(one, two).key.rank, 0);
    db_execute(two, "UPDATE check_result SET digest = 'ffffffffffffffff' WHERE step = 0 AND "
                    "layer = 1 AND rank = 1 AND stage = 'expert'");
    ck_assert_uint_eq(compare(one, two).key.step, 0);
}
END_TEST

START_TEST(a_shorter_run_differs_by_what_it_lacks)
{
    const char *folder = test_temp_dir();
    const char *one = test_join(folder, "one.db"), *two = test_join(folder, "two.db");
    append_run(one, 3, 9, 0, "", 0);
    append_run(two, 2, 9, 0, "", 0);
    struct trace_difference difference = compare(one, two);
    ck_assert(!difference.differs);
    ck_assert_uint_eq(difference.compared, 32);
    ck_assert_uint_eq(difference.only_a, 16);
    ck_assert_uint_eq(difference.only_b, 0);
    ck_assert_uint_eq(difference.first_only_a.step, 2);
    ck_assert_str_eq(difference.first_only_a.stage, "quantise");

    db_execute(one, "DELETE FROM check_result WHERE stage = 'expert'");
    difference = compare(one, two);
    ck_assert_uint_eq(difference.compared, 24);
    ck_assert_uint_eq(difference.only_b, 8);
    ck_assert_uint_eq(difference.first_only_b.step, 0);
    ck_assert_str_eq(difference.first_only_b.stage, "expert");
}
END_TEST

START_TEST(every_backend_of_a_stage_must_agree)
{
    const char *folder = test_temp_dir();
    const char *one = test_join(folder, "one.db"), *two = test_join(folder, "two.db");
    append_run(one, 1, 9, 0, "", 0);
    append_run(two, 1, 9, 0, "", 0);
    db_execute(two, "INSERT INTO check_result SELECT run, step, layer, stage, 'cuda', rank, rows, "
                    "bytes, digest, mismatch_count, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM "
                    "check_result");
    ck_assert(!compare(one, two).differs);
    ck_assert_uint_eq(compare(one, two).compared, 16);
    db_execute(two,
               "UPDATE check_result SET digest = '0000000000000abc' WHERE backend = 'cuda' AND "
               "layer = 1 AND rank = 0 AND stage = 'expert'");
    const struct trace_difference difference = compare(one, two);
    ck_assert(difference.differs);
    ck_assert_uint_eq(difference.key.layer, 1);
    ck_assert_str_eq(difference.key.stage, "expert");
    ck_assert_str_eq(difference.backend_a, "ref");
    ck_assert_str_eq(difference.backend_b, "cuda");
    ck_assert_uint_eq(difference.digest_b, 0xabc);
}
END_TEST

START_TEST(times_are_those_of_the_slowest_rank)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    const struct trace_span spans[] = {
        {0, 1, 0, "comm", "dispatch", 100, 110, 0, 0},
        {0, 1, 1, "comm", "dispatch", 100, 130, 0, 0},
        {1, 1, 0, "comm", "dispatch", 200, 240, 0, 0},
        {1, 1, 1, "comm", "dispatch", 200, 205, 0, 0},
        {0, 0, 0, "comm", "combine", 0, 7, 0, 0},
        {0, TRACE_NO_LAYER, 0, "comm", "x", 5, 6, 0, 0},
    };
    for (size_t i = 0; i < 6; i++) DB_OK(trace_db_span(db, &spans[i], err, sizeof err));
    DB_OK(trace_db_end_run(db, "fedcba9876543210", err, sizeof err));
    trace_db_close(db);
    struct trace_reader *reader = reader_open(path);
    struct trace_op_time *times;
    size_t count;
    DB_OK(trace_reader_op_times(reader, &times, &count, err, sizeof err));
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(times[0].layer, -1);
    ck_assert_str_eq(times[1].op, "combine");
    ck_assert_uint_eq(times[1].mean_ps, 7);
    ck_assert_int_eq(times[2].layer, 1);
    ck_assert_str_eq(times[2].op, "dispatch");
    ck_assert_uint_eq(times[2].steps, 2);
    ck_assert_uint_eq(times[2].mean_ps, 35); /* (30 + 40) / 2 */
    ck_assert_uint_eq(times[2].max_ps, 40);
    free(times);
    trace_reader_close(reader);
}
END_TEST

START_TEST(files_that_are_no_databases_are_refused)
{
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    REFUSED(folder, "is not a regular file");
    REFUSED(test_write_text(folder, "empty", ""), "empty: not an epsim database of this version: "
                                                  "user_version is 0, expected 1");
    REFUSED(test_write_text(folder, "text", "this is no database, only a line of text"),
            "text: not an epsim database: file is not a database");
    trace_db_close(db_open(path));
    REFUSED(path, "run.db: holds no run");
    append_run(path, 3, 9, 0, "", 0);
    db_execute(path, "PRAGMA user_version = 9");
    REFUSED(path, "user_version is 9, expected 1");
    db_execute(path, "PRAGMA user_version = 1; ALTER TABLE routing RENAME TO elsewhere");
    REFUSED(path, "run.db: not an epsim database: no such table: routing");
    db_execute(path, "ALTER TABLE elsewhere RENAME TO routing; UPDATE run SET seed = -4");
    REFUSED(path, "run.db: run 1: negative figures");
    db_execute(path, "UPDATE run SET seed = 4");

    size_t bytes;
    const char *good = test_read(path, &bytes);
    REFUSED(test_write(folder, "short", good, 3 * 4096 + 100), "short: ");
    trace_reader_close(reader_open(test_write(folder, "whole", good, bytes)));
}
END_TEST

START_TEST(rows_that_cannot_be_are_named)
{
    static const char *const cases[][2] = {
        {"UPDATE check_result SET digest = 'xyz' WHERE step = 1", "digest: expected 16 hex digits"},
        {"UPDATE check_result SET digest = '0123456789abcdef0' WHERE step = 1", "16 hex digits"},
        {"UPDATE check_result SET layer = -1 WHERE step = 1 AND layer = 0", "layer -1"},
        {"UPDATE check_result SET rank = 4294967296 WHERE rank = 1", "rank 4294967296"},
        {"DROP TABLE check_result", "no such table: check_result"},
    };
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    append_run(path, 3, 9, 0, "", 0);
    size_t bytes;
    const char *good = test_read(path, &bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *broken = test_write(folder, "broken.db", good, bytes);
        db_execute(broken, cases[i][0]);
        struct trace_reader *a = reader_open(path), *b = reader_open(broken);
        struct trace_difference difference;
        ck_assert_int_eq(trace_db_first_difference(a, b, &difference, err, sizeof err), -1);
        ck_assert_msg(strstr(err, cases[i][1]) != NULL && strstr(err, "broken.db: ") != NULL, "%s",
                      err);
        trace_reader_close(a);
        trace_reader_close(b);
    }
}
END_TEST

START_TEST(a_view_in_the_place_of_a_table_does_not_act)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    append_run(path, 1, 9, 0, "", 0);
    db_execute(path, "ALTER TABLE run RENAME TO other; CREATE VIEW run AS SELECT * FROM other");
    REFUSED(path, "run.db: not an epsim database: access to view \"run\" prohibited");
    /* One that would never end. */
    db_execute(path, "DROP VIEW run; CREATE VIEW run AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                     "SELECT i FROM n) SELECT other.* FROM other, n");
    REFUSED(path, "run.db: not an epsim database: ");
}
END_TEST

START_TEST(a_read_only_folder_is_enough)
{
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    append_run(path, 1, 9, 0, "", 0);
    db_make_read_only(folder, path);
    const bool was_root = geteuid() == 0;
    if (was_root) ck_assert_int_eq(seteuid(65534), 0);
    trace_reader_close(reader_open(path));
    if (was_root) ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
}
END_TEST

START_TEST(damage_is_refused_or_read_but_never_more) /* Loop: seeds. */
{
    uint64_t seed = 4000 + (uint64_t)_i;
    const char *folder = test_temp_dir(), *path = test_join(folder, "run.db");
    append_run(path, 3, 9, 0, "", 0);
    size_t good_bytes;
    const char *good = test_read(path, &good_bytes);
    const int rounds = test_quick() ? 20 : 120;
    uint8_t *work = (uint8_t *)malloc(good_bytes);
    for (int round = 0; round < rounds; round++) {
        memcpy(work, good, good_bytes);
        size_t bytes = good_bytes;
        if (round % 10 == 0) bytes = (size_t)mutate_below(&seed, good_bytes);
        for (uint64_t i = 1 + mutate_below(&seed, 40); i > 0;) {
            uint8_t *at = work + mutate_below(&seed, good_bytes);
            if (*at == 0) continue; /* Most of a small database is empty space. */
            *at = (uint8_t)mutate_next(&seed);
            i--;
        }
        unlink(test_join(folder, "broken")); /* Some file systems sync an overwritten file. */
        const char *broken = test_write(folder, "broken", work, bytes);
        struct trace_reader *reader = trace_reader_open(broken, err, sizeof err);
        if (reader != NULL) {
            struct trace_difference difference;
            struct trace_op_time *times = NULL;
            size_t count = 0;
            trace_db_first_difference(reader, reader, &difference, err, sizeof err);
            if (trace_reader_op_times(reader, &times, &count, err, sizeof err) == 0) free(times);
            trace_reader_close(reader);
        } else {
            ck_assert_msg(strstr(err, "broken") != NULL && strchr(err, '\n') == NULL,
                          "loop %d round %d: %s", _i, round, err);
        }
    }
    free(work);
}
END_TEST

START_TEST(a_file_from_before_a_table_was_added_gets_it)
{
    const char *path = test_join(test_temp_dir(), "old.db");
    const struct trace_wrong_row wrong = {0, 0, "combine", 1, -1, 0, 5};
    trace_db_close(db_open(path));
    (void)db_ask(path, "DROP TABLE wrong_row");
    struct trace_db *db = db_open(path);
    (void)db_begin(db);
    DB_OK(trace_db_wrong_row(db, &wrong, err, sizeof err));
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    trace_db_close(db);
    ck_assert_str_eq(db_ask(path, "SELECT stage, src_token FROM wrong_row"), "combine|5");
}
END_TEST

/* SQLite would call it empty and write over it. */
START_TEST(a_file_of_one_byte_is_no_database_to_append_to)
{
    const char *path = test_write(test_temp_dir(), "byte", "x", 1);
    bool broken = false;
    ck_assert_ptr_null(trace_db_open(path, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "byte: not an epsim database: file is not a database");
    ck_assert_str_eq(test_read(path, NULL), "x");
}
END_TEST

START_TEST(behind_the_last_run_number_there_is_no_next)
{
    const char *path = test_join(test_temp_dir(), "run.db");
    bool broken = false;
    struct trace_db *db = trace_db_open(path, 100, &broken, err, sizeof err);
    ck_assert_msg(db != NULL, "%s", err);
    trace_db_close(db);
    db_execute(path, "INSERT INTO run (run, tool_version, command, settings_json, settings_digest, "
                     "seed, started_utc) VALUES (9223372036854775807, '', '', '{}', "
                     "'0123456789abcdef', 1, '')");
    ck_assert_ptr_null(trace_db_open(path, 100, &broken, err, sizeof err));
    ck_assert(broken);
    TEST_SAYS(err, "run 9223372036854775807 is the last number there is");
    ck_assert_str_eq(db_ask(path, "SELECT count(*) FROM run"), "1");
}
END_TEST

Suite *db_read_suite(void)
{
    TCase *tcase = tcase_create("db_read");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_file_from_before_a_table_was_added_gets_it);
    tcase_add_test(tcase, a_run_is_named_by_file_and_number);
    tcase_add_test(tcase, many_runs_are_listed);
    tcase_add_test(tcase, routing_files_are_listed);
    tcase_add_test(tcase, equal_runs_do_not_differ);
    tcase_add_test(tcase, the_first_difference_is_the_first_in_the_data_path);
    tcase_add_test(tcase, a_shorter_run_differs_by_what_it_lacks);
    tcase_add_test(tcase, every_backend_of_a_stage_must_agree);
    tcase_add_test(tcase, times_are_those_of_the_slowest_rank);
    tcase_add_test(tcase, files_that_are_no_databases_are_refused);
    tcase_add_test(tcase, rows_that_cannot_be_are_named);
    tcase_add_test(tcase, a_view_in_the_place_of_a_table_does_not_act);
    tcase_add_test(tcase, a_read_only_folder_is_enough);
    tcase_add_loop_test(tcase, damage_is_refused_or_read_but_never_more, 0, 6);
    Suite *suite = suite_create("db_read");
    tcase_add_test(tcase, a_file_of_one_byte_is_no_database_to_append_to);
    tcase_add_test(tcase, behind_the_last_run_number_there_is_no_next);
    suite_add_tcase(suite, tcase);
    return suite;
}
