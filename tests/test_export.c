/* tests/test_export.c - a recorded run as trace events that a viewer can open.
 *
 * Method: a small run written by hand, of which every event is known; then a real one, of which
 * the format's own rules are checked: a name for every track, slices of a track apart, both
 * ends of a flow inside slices, bytes in flight down to 0 at the end. */
#include <stdlib.h>

#include "tests/db_support.h"
#include "tests/json.h"
#include "traces/export_perfetto.h"

Suite *export_suite(void);

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s:%d: %s", path, error.line, error.text);
    return json;
}

static json_t *export_run(const char *run, const char *path)
{
    struct test_output output;
    TEST_EPSIM(&output, "export", "--perfetto", run, "-o", path);
    ck_assert_msg(output.status == 0, "%s", output.err);
    return load(path);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL ? text : "";
}

/* Nanoseconds: events have microseconds with three decimals. */
static int64_t ns_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    return (int64_t)(json_number_value(value) * 1000 + 0.5);
}

/* The n-th event of a phase and name, from 0; NULL when there are fewer. */
static const json_t *find(const json_t *document, const char *phase, const char *name, size_t n)
{
    const json_t *events = json_object_get(document, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text_of(event, "ph"), phase) != 0 || strcmp(text_of(event, "name"), name) != 0)
            continue;
        if (n-- == 0) return event;
    }
    return NULL;
}

static void put_span(struct trace_db *db, uint32_t rank, const char *stream, const char *op,
                     uint64_t start_ps, uint64_t end_ps)
{
    const struct trace_span span = {0, 3, rank, stream, op, start_ps, end_ps, 4096, 2};
    DB_OK(trace_db_span(db, &span, err, sizeof err));
}

static void put_message(struct trace_db *db, uint32_t src, uint32_t dst, const char *link,
                        uint64_t send_ps, uint64_t land_ps)
{
    const struct trace_message message = {0,  3,    "dispatch", src,     dst,    link,
                                          -1, 1000, 1,          send_ps, land_ps};
    DB_OK(trace_db_message(db, &message, err, sizeof err));
}

/* Two ranks, one layer: dispatch from 1,000,999 to 5,000,500 ps, then combine; on rank 1 a second
 * dispatch overlaps it. */
static const char *write_run(const char *folder)
{
    const char *path = test_join(folder, "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    put_span(db, 0, "comm", "dispatch", 1000999, 5000500);
    put_span(db, 0, "comm", "combine", 5000500, 9000000);
    put_span(db, 1, "comm", "dispatch", 1000999, 5000500);
    put_span(db, 1, "comm", "combine", 4000000, 9000000);
    put_span(db, 1, "com\"pute\n", "exp\\ert", 0, 0);
    put_message(db, 0, 1, "nvlink", 2000000, 3000000);
    put_message(db, 0, 1, "nvlink", 2500000, 4000000);
    put_message(db, 1, 1, "local", 2000000, 2000000);
    put_message(db, 1, 0, "nic", 2000000, 6000000); /* Lands behind rank 0's dispatch. */
    const struct trace_resource_use use = {0,    3, "dispatch", "rank1.nvlink.in", "link", 1999751,
                                           8000, 1, 0};
    const struct trace_resource_use pool = {0, 3, "dispatch", "rank1.sm", "sm_pool", 5, 0, 1, 0};
    DB_OK(trace_db_resource_use(db, &use, err, sizeof err));
    DB_OK(trace_db_resource_use(db, &pool, err, sizeof err));
    const struct trace_step step = {0, 0, 9000000, 16};
    DB_OK(trace_db_step(db, &step, err, sizeof err));
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    DB_OK(trace_db_end_run(db, "0123456789abcdef", err, sizeof err));
    trace_db_close(db);
    return path;
}

START_TEST(spans_are_slices_on_a_track_per_rank_and_stream)
{
    const char *folder = test_temp_dir();
    json_t *json = export_run(write_run(folder), test_join(folder, "run.json"));
    const json_t *slice = find(json, "X", "dispatch", 0);
    ck_assert_int_eq(int_at(slice, "pid"), 1);
    ck_assert_int_eq(ns_of(slice, "ts"), 1000); /* 1000.999 ns, rounded down. */
    ck_assert_int_eq(ns_of(slice, "dur"), 4000);
    const json_t *arguments = json_object_get(slice, "args");
    ck_assert_int_eq(int_at(arguments, "layer"), 3);
    ck_assert_int_eq(int_at(arguments, "bytes"), 4096);
    ck_assert_int_eq(int_at(arguments, "start_ps"), 1000999);
    ck_assert_int_eq(int_at(arguments, "end_ps"), 5000500);
    const json_t *next = find(json, "X", "combine", 0);
    ck_assert_int_eq(ns_of(next, "ts"), 5000); /* Touches the slice before. */
    ck_assert_int_eq(int_at(next, "tid"), int_at(slice, "tid"));

    const json_t *beside = find(json, "X", "combine", 1); /* Rank 1's overlaps its dispatch. */
    ck_assert_int_eq(int_at(beside, "pid"), 2);
    ck_assert_int_ne(int_at(beside, "tid"), int_at(find(json, "X", "dispatch", 1), "tid"));
    ck_assert_ptr_nonnull(find(json, "X", "exp?ert", 0));
    ck_assert_str_eq(text_of(find(json, "X", "exp?ert", 0), "cat"), "com?pute?");
    ck_assert_int_eq(ns_of(find(json, "X", "step 0", 0), "dur"), 9000);
    json_decref(json);
}
END_TEST

START_TEST(messages_are_flows_and_bytes_in_flight)
{
    const char *folder = test_temp_dir();
    json_t *json = export_run(write_run(folder), test_join(folder, "run.json"));
    const json_t *from = find(json, "s", "nvlink", 0), *to = find(json, "f", "nvlink", 0);
    ck_assert_int_eq(int_at(from, "id"), int_at(to, "id"));
    ck_assert_int_eq(int_at(from, "pid"), 1);
    ck_assert_int_eq(int_at(to, "pid"), 2);
    ck_assert_int_eq(ns_of(from, "ts"), 2000);
    ck_assert_int_eq(ns_of(to, "ts"), 3000);
    ck_assert_str_eq(text_of(to, "bp"), "e");
    ck_assert_ptr_null(find(json, "s", "nvlink", 2));
    ck_assert_ptr_null(find(json, "s", "local", 0));
    ck_assert_ptr_null(find(json, "s", "nic", 0));
    ck_assert_str_eq(text_of(json_object_get(json, "otherData"), "messages without flow"), "1");
    static const int64_t FLIGHT[4][2] = {{2000, 1000}, {2500, 2000}, {3000, 1000}, {4000, 0}};
    for (size_t i = 0; i < 4; i++) {
        const json_t *value = find(json, "C", "nvlink bytes in flight", i);
        ck_assert_int_eq(ns_of(value, "ts"), FLIGHT[i][0]);
        ck_assert_int_eq(ns_of(json_object_get(value, "args"), "bytes in flight"),
                         1000 * FLIGHT[i][1]);
    }
    json_decref(json);
}
END_TEST

START_TEST(links_have_rates_and_busy_shares)
{
    /* 8000 bytes in 3,999,501 ps are 2.000 GB/s; 1,999,751 of these are 50.000 %. */
    const char *folder = test_temp_dir();
    json_t *json = export_run(write_run(folder), test_join(folder, "run.json"));
    const json_t *rate = find(json, "C", "nvlink.in dispatch GB/s", 0);
    ck_assert_int_eq(int_at(rate, "pid"), 2);
    ck_assert_int_eq(ns_of(rate, "ts"), 1000);
    ck_assert_int_eq(ns_of(json_object_get(rate, "args"), "GB/s"), 2000);
    const json_t *busy = find(json, "C", "nvlink.in dispatch busy %", 0);
    ck_assert_int_eq(ns_of(json_object_get(busy, "args"), "busy %"), 50000);
    const json_t *end = find(json, "C", "nvlink.in dispatch GB/s", 1);
    ck_assert_int_eq(ns_of(end, "ts"), 5000);
    ck_assert_int_eq(ns_of(json_object_get(end, "args"), "GB/s"), 0);
    ck_assert_ptr_null(find(json, "C", "nvlink.in dispatch GB/s", 2));
    ck_assert_ptr_null(find(json, "C", "sm dispatch GB/s", 0));
    json_decref(json);
}
END_TEST

START_TEST(what_lands_before_its_receiver_begins_reaches_it_when_it_does)
{
    const char *folder = test_temp_dir(), *db = write_run(folder);
    db_execute(db, "UPDATE span SET start_ps = 3500000 WHERE rank = 1 AND op = 'dispatch'");
    json_t *json = export_run(db, test_join(folder, "run.json"));
    ck_assert_int_eq(ns_of(find(json, "s", "nvlink", 0), "ts"), 2000);
    ck_assert_int_eq(ns_of(find(json, "f", "nvlink", 0), "ts"), 3500); /* Landed at 3000. */
    ck_assert_int_eq(ns_of(find(json, "f", "nvlink", 1), "ts"), 4000);
    json_decref(json);
}
END_TEST

START_TEST(a_real_run_keeps_the_rules_of_the_format)
{
    enum { RANKS = 8, TRACKS = RANKS + 1 };
    const char *folder = test_temp_dir(), *db = test_join(folder, "run.db");
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--machine", "toy-2x4", "--ep", "8", "--mode",
               "ll", "--tokens", "8", "--steps", "2", "--detail", "message", "--db", db);
    ck_assert_msg(output.status == 0, "%s", output.err);
    json_t *json = export_run(db, test_join(folder, "run.json"));
    const json_t *events = json_object_get(json, "traceEvents");
    const json_t *open[1024] = {NULL}; /* Flows begun, by id. */
    int64_t last_end[RANKS + 2] = {0}; /* By process; the run's own counts as 0. */
    size_t slices = 0, flows = 0, names = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char phase = text_of(event, "ph")[0];
        const int64_t process = int_at(event, "pid") > RANKS ? 0 : int_at(event, "pid");
        if (phase == 'M') {
            names += strcmp(text_of(event, "name"), "thread_name") == 0;
        } else if (phase == 'X') {
            ck_assert_int_ge(ns_of(event, "ts"), last_end[process]);
            last_end[process] = ns_of(event, "ts") + ns_of(event, "dur");
            slices++;
        } else if (phase == 's') {
            ck_assert_int_lt(int_at(event, "id"), 1024);
            open[int_at(event, "id")] = event;
        } else if (phase == 'f') {
            const json_t *from = open[int_at(event, "id")];
            ck_assert_ptr_nonnull(from);
            ck_assert_int_le(ns_of(from, "ts"), ns_of(event, "ts"));
            ck_assert_str_eq(text_of(from, "cat"), text_of(event, "cat"));
            ck_assert_int_ne(int_at(from, "pid"), int_at(event, "pid"));
            flows++;
        } else {
            ck_assert_int_eq(phase, 'C');
            ck_assert(json_is_number(
                json_object_iter_value(json_object_iter(json_object_get(event, "args")))));
        }
    }
    ck_assert_uint_eq(names, TRACKS);
    ck_assert_uint_eq(slices, 2 + 2 * 2 * RANKS); /* Steps; dispatch and combine of each. */
    char remote[32];
    snprintf(remote, sizeof remote, "%zu", flows);
    ck_assert_str_eq(db_ask(db, "SELECT count(*) FROM message WHERE link_class <> 'local'"),
                     remote);
    ck_assert_str_eq(text_of(json_object_get(json, "otherData"), "messages without flow"), "0");
    json_decref(json);
}
END_TEST

START_TEST(a_run_without_spans_is_refused_and_the_target_kept)
{
    const char *folder = test_temp_dir(), *db = test_join(folder, "run.db");
    const char *target = test_write_text(folder, "kept.json", "kept");
    struct test_output output;
    TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--ep", "2", "--tokens", "4", "--detail",
               "summary", "--db", db);
    ck_assert_msg(output.status == 0, "%s", output.err);
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", target);
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "has no spans: record the run with detail span");
    ck_assert_str_eq(test_read(target, NULL), "kept");
}
END_TEST

static const struct {
    const char *sql, *complaint;
} DAMAGES[] = {
    {"UPDATE span SET end_ps = start_ps - 1 WHERE rank = 0", "ends before it starts\n"},
    {"UPDATE span SET rank = 70000", "span: rank: 70000: must be a whole number from 0 to 65535\n"},
    {"UPDATE message SET bytes = -1", "must be a whole number from 0 to 9223372036854775807\n"},
    {"UPDATE message SET send_ps = 'x'", "must be a whole number from 0 to 9223372036854775807\n"},
    {"UPDATE resource_use SET busy_ps = -50000",
     "resource_use: rank1.nvlink.in dispatch: busy %: below 0, or too much"},
    {"DROP TABLE message", "no such table: message\n"},
};

START_TEST(a_damaged_run_is_one_line)
{
    const char *folder = test_temp_dir(), *db = write_run(folder);
    struct test_output output;
    db_execute(db, DAMAGES[_i].sql);
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", test_join(folder, "run.json"));
    ck_assert_msg(output.status == 2, "%s", output.err);
    TEST_SAYS(output.err, DAMAGES[_i].complaint);
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    ck_assert(!test_exists(test_join(folder, "run.json")));
}
END_TEST

/* Steps 0 to 2 of layers 0 and 1, four spans each. */
static const char *write_steps(const char *folder)
{
    const char *path = test_join(folder, "steps.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    for (uint64_t s = 0; s < 3; s++) {
        for (uint32_t i = 0; i < 8; i++) {
            const uint64_t start_ps = 1000000 * (8 * s + i);
            const struct trace_span span = {
                s, i / 4, i % 4, "comm", "dispatch", start_ps, start_ps + 1000000, 1, 1};
            DB_OK(trace_db_span(db, &span, err, sizeof err));
        }
        const struct trace_step step = {s, 8000000 * s, 8000000 * (s + 1), 16};
        DB_OK(trace_db_step(db, &step, err, sizeof err));
    }
    DB_OK(trace_db_step_done(db, 2, err, sizeof err));
    DB_OK(trace_db_end_run(db, "0123456789abcdef", err, sizeof err));
    trace_db_close(db);
    return path;
}

/* What of 24 spans is exported, and where the rest begins, by choice. */
static const struct {
    struct trace_export_choice choice;
    uint64_t spans;
    const char *rest; /* "": nothing is left out. */
} PARTS[] = {
    {{0, -1, 0}, 24, ""},                 /* No limit. */
    {{0, -1, 24}, 24, ""},                /* All fit. */
    {{0, -1, 23}, 20, "step 2, layer 1"}, /* Whole layers alone. */
    {{0, -1, 16}, 16, "step 2"},          /* A whole step is not begun. */
    {{0, -1, 1}, 4, "step 0, layer 1"},   /* The first layer, whatever it has. */
    {{1, 1, 1}, 8, ""},                   /* Steps that were chosen have no limit. */
    {{2, 99, 1}, 8, ""},
};

START_TEST(a_long_run_is_exported_in_part)
{
    const char *folder = test_temp_dir(), *path = test_join(folder, "part.json");
    struct trace_reader *reader = trace_reader_open(write_steps(folder), err, sizeof err);
    struct trace_perfetto_counts counts;
    char end[64] = "";
    ck_assert_msg(reader != NULL, "%s", err);
    DB_OK(trace_export_perfetto(reader, &PARTS[_i].choice, path, &counts, err, sizeof err));
    trace_reader_close(reader);
    ck_assert_uint_eq(counts.spans, PARTS[_i].spans);
    if (trace_export_part_cut(&counts.part)) trace_export_part_end(&counts.part, end);
    ck_assert_str_eq(end, PARTS[_i].rest);
    json_t *json = load(path);
    const json_t *left_out = json_object_get(json_object_get(json, "otherData"), "left out");
    ck_assert_str_eq(json_string_value(left_out),
                     end[0] != '\0' ? test_format("from %s on", end) : "");
    /* Step 2's own slice is there when any of its layers is. */
    ck_assert_int_eq(find(json, "X", "step 2", 0) != NULL,
                     _i == 0 || _i == 1 || _i == 2 || _i == 6);
    ck_assert_int_eq(find(json, "X", "step 0", 0) != NULL, _i < 5);
    json_decref(json);
}
END_TEST

START_TEST(steps_are_chosen_and_the_rest_is_said_to_be_left_out)
{
    const char *folder = test_temp_dir(), *db = write_steps(folder),
               *path = test_join(folder, "part.json");
    struct test_output output;
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path, "--steps", "1");
    ck_assert_str_eq(output.out,
                     test_format("8 spans, 0 counter values, 0 flows written to %s\n", path));
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path, "--steps", "1-2", "--json");
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "spans"), 16);
    ck_assert(json_is_null(json_object_get(json, "left_out_from")));
    json_decref(json);
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path, "--steps", "3-4");
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "#1: spans of steps 0 to 2, none of those chosen\n");
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path, "--steps", "2-1");
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "--steps: must be N (the first N) or A-B");

    db_execute(db, "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < "
                   "199999) INSERT INTO span SELECT 1, 1, 2, 0, 'comm', 'more', 0, 0, 0, 0 FROM n");
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path);
    TEST_SAYS(output.out, "left out: from step 1, layer 2 on, beyond 200000 rows; "
                          "--steps A-B chooses");
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", path, "--json");
    json = test_json(&output);
    ck_assert_int_eq(int_at(json, "spans"), 16);
    const json_t *from = json_object_get(json, "left_out_from");
    ck_assert_int_eq(int_at(from, "step"), 1);
    ck_assert_int_eq(int_at(from, "layer"), 2);
    json_decref(json);
}
END_TEST

START_TEST(the_database_itself_is_not_overwritten)
{
    const char *db = write_run(test_temp_dir());
    struct test_output output;
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", db);
    ck_assert_int_eq(output.status, 2);
    TEST_SAYS(output.err, "is the database itself");
    ck_assert_str_eq(db_ask(db, "SELECT count(*) FROM span"), "5");
}
END_TEST

START_TEST(misuse_is_one_line)
{
    const char *db = write_run(test_temp_dir());
    struct test_output output;
    TEST_EPSIM(&output, "export", db, "-o", "x.json");
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.err, "epsim export: name a format: --perfetto\n");
    TEST_EPSIM(&output, "export", "--perfetto", db);
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.err, "epsim export: --out: missing: name the file to write\n");
    TEST_EPSIM(&output, "export", "--perfetto", db, "-o", "/no/such/folder/x.json");
    ck_assert_int_eq(output.status, 3);
}
END_TEST

Suite *export_suite(void)
{
    Suite *suite = suite_create("export");
    TCase *tests = tcase_create("export");
    tcase_add_test(tests, spans_are_slices_on_a_track_per_rank_and_stream);
    tcase_add_test(tests, messages_are_flows_and_bytes_in_flight);
    tcase_add_test(tests, links_have_rates_and_busy_shares);
    tcase_add_test(tests, what_lands_before_its_receiver_begins_reaches_it_when_it_does);
    tcase_add_test(tests, a_real_run_keeps_the_rules_of_the_format);
    tcase_add_test(tests, a_run_without_spans_is_refused_and_the_target_kept);
    tcase_add_loop_test(tests, a_damaged_run_is_one_line, 0, sizeof DAMAGES / sizeof DAMAGES[0]);
    tcase_add_loop_test(tests, a_long_run_is_exported_in_part, 0, sizeof PARTS / sizeof PARTS[0]);
    tcase_add_test(tests, steps_are_chosen_and_the_rest_is_said_to_be_left_out);
    tcase_add_test(tests, the_database_itself_is_not_overwritten);
    tcase_add_test(tests, misuse_is_one_line);
    suite_add_tcase(suite, tests);
    return suite;
}
