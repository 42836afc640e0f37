/* tests/test_report.c - a recorded run as a page: the right figures, safe whatever the run holds.
 *
 * Method: a run written by hand whose figures are known, one with hostile names, one without
 * spans, and a real one; a browser draws the page where one is installed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/db_support.h"
#include "traces/html.h"

Suite *report_suite(void);

static const char *read_page(const char *path)
{
    static char page[1 << 20];
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    const size_t bytes = fread(page, 1, sizeof page - 1, file);
    fclose(file);
    ck_assert_uint_lt(bytes, sizeof page - 1);
    page[bytes] = '\0';
    return page;
}

static size_t count_of(const char *page, const char *what)
{
    size_t count = 0;
    for (const char *at = strstr(page, what); at != NULL; at = strstr(at + 1, what)) count++;
    return count;
}

#define PAGE_HAS(page, what) ck_assert_msg(strstr(page, what) != NULL, "no %s", what)
#define PAGE_LACKS(page, what) ck_assert_msg(strstr(page, what) == NULL, "has %s", what)

/* A source formatter once took the style sheet for C: "color - scheme", "# 95c0e2". No name, colour
 * or length of ours has a blank in it, so these never stand between the tags. */
static void check_style(const char *page)
{
    const char *style = strstr(page, "<style>"), *end = strstr(page, "</style>");
    ck_assert(style != NULL && end != NULL && style < end);
    const char *const broken[] = {" - ", "# ", "#\n", "0 %", " :", ":\n"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        const char *at = strstr(style, broken[i]);
        ck_assert_msg(at == NULL || at > end, "style: %.40s", at);
    }
    PAGE_HAS(page, "box-sizing: border-box");
}

/* Every box that is opened is closed, and nothing is fetched or run. */
static void check_shape(const char *page)
{
    static const char *const boxes[][2] = {{"<section>", "</section>"}, {"<div", "</div>"},
                                           {"<table>", "</table>"},     {"<svg", "</svg>"},
                                           {"<figure", "</figure>"},    {"<p", "</p>"},
                                           {"<tr>", "</tr>"},           {"<td", "</td>"},
                                           {"<text", "</text>"},        {"<code>", "</code>"}};
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++) {
        size_t opened = count_of(page, boxes[i][0]);
        if (strcmp(boxes[i][0], "<p") == 0) opened -= count_of(page, "<path");
        ck_assert_msg(opened == count_of(page, boxes[i][1]), "%s", boxes[i][0]);
    }
    check_style(page);
    PAGE_LACKS(page, "http:");
    PAGE_LACKS(page, "https:");
    PAGE_LACKS(page, "<script");
    PAGE_LACKS(page, "url(");
    PAGE_HAS(page, "</html>");
}

static void put_span(struct trace_db *db, uint32_t layer, uint32_t rank, const char *op,
                     uint64_t start_ps, uint64_t end_ps)
{
    const struct trace_span span = {0, layer, rank, "comm", op, start_ps, end_ps, 4096, 2};
    DB_OK(trace_db_span(db, &span, err, sizeof err));
}

/* Two ranks, two layers; layer 1 is the slower one: 1 us to 9 us. */
static const char *write_run(const char *folder, const char *op)
{
    const char *path = test_join(folder, "run.db");
    struct trace_db *db = db_open(path);
    db_begin(db);
    put_span(db, 0, 0, op, 0, 1000000);
    put_span(db, 0, 1, op, 0, 3000000);
    put_span(db, 1, 0, op, 3000000, 4000000);
    put_span(db, 1, 1, op, 3000000, 8000000);
    put_span(db, 1, 0, "combine", 8000000, 11000000);
    for (uint32_t e = 0; e < 4; e++) {
        const struct trace_expert_load load = {0, 0, e / 2, e, e == 3 ? 6 : e};
        DB_OK(trace_db_expert_load(db, &load, err, sizeof err));
    }
    const struct trace_wait wait = {0, 0, op, 0, 1, 2500000};
    DB_OK(trace_db_wait(db, &wait, err, sizeof err));
    const struct trace_attribution nic = {0, 0, op, 0, "nic", 3000000},
                                   launch = {0, 0, op, 1, "launch", 1000000};
    DB_OK(trace_db_attribution(db, &nic, err, sizeof err));
    DB_OK(trace_db_attribution(db, &launch, err, sizeof err));
    const struct trace_whatif rate = {0, 0, op, "nic-rate", 4000000, 3000000},
                              sms = {0, 0, op, "sms", 4000000, 4000000};
    DB_OK(trace_db_whatif(db, &rate, err, sizeof err));
    DB_OK(trace_db_whatif(db, &sms, err, sizeof err));
    db_put_check(db, 0, 0, 0, "dispatch", "ref", 5);
    db_put_check(db, 0, 0, 1, "dispatch", "ref", 6);
    const struct trace_step step = {0, 0, 11000000, 16};
    DB_OK(trace_db_step(db, &step, err, sizeof err));
    DB_OK(trace_db_step_done(db, 0, err, sizeof err));
    DB_OK(trace_db_end_run(db, "0123456789abcdef", err, sizeof err));
    trace_db_close(db);
    return path;
}

static const char *report_run(const char *run, const char *page)
{
    struct test_output output;
    TEST_EPSIM(&output, "report", run, "-o", page);
    ck_assert_msg(output.status == 0, "%s", output.err);
    return read_page(page);
}

START_TEST(a_page_has_the_figures_of_its_run)
{
    const char *folder = test_temp_dir();
    const char *page = report_run(write_run(folder, "dispatch"), test_join(folder, "run.html"));

    check_shape(page);
    PAGE_HAS(page, "0123456789abcdef");
    PAGE_HAS(page, "Step 0, MoE layer 1."); /* 8 us; layer 0 takes 3 us. */
    /* dispatch: slowest ranks 3 and 5 us, mean 4 us, sum 8 us. */
    PAGE_HAS(page, "<td>dispatch</td><td class=\"n\">2</td><td class=\"n\">4.00 us</td><td "
                   "class=\"n\">3.00 us</td><td class=\"n\">5.00 us</td><td class=\"n\">8.00 us");
    PAGE_HAS(page, "rank 1, comm: dispatch, 0.000 to 5.000 us, 2 rows, 4096 B");
    PAGE_HAS(page, "rank 0, comm: combine, 5.000 to 8.000 us, 2 rows, 4096 B");
    /* Experts 0, 1, 2, 6: fullest 6 over mean 9 / 4; ranks 1 and 8: 8 over 4.5. */
    PAGE_HAS(page, "Fullest expert over the mean one: 2.67");
    PAGE_HAS(page, "Fullest rank over the mean one: 1.78");
    /* Two ranks, 4 us in all: 1.5 and 0.5 us each. */
    PAGE_HAS(page, "<td>nic</td><td class=\"n\">1.50 us</td><td class=\"n\">75.0 %</td>");
    PAGE_HAS(page, "<td>nic-rate</td><td class=\"n\">4.00 us</td><td class=\"n\">3.00 us</td><td "
                   "class=\"n\">25.0 %</td>");
    PAGE_HAS(page, "<td>sms</td><td class=\"n\">4.00 us</td><td class=\"n\">4.00 us</td><td "
                   "class=\"n\">nothing</td>");
    PAGE_HAS(page, "Rank 1 is waited for most: 100.0 %");
    PAGE_HAS(page, "All 2 results are equal.");
}
END_TEST

START_TEST(a_layer_can_be_chosen_and_a_missing_one_is_named)
{
    const char *folder = test_temp_dir();
    const char *run = write_run(folder, "dispatch"), *out = test_join(folder, "run.html");
    struct test_output output;

    TEST_EPSIM(&output, "report", run, "-o", out, "--layer", "0");
    ck_assert_int_eq(output.status, 0);
    PAGE_HAS(read_page(out), "Step 0, MoE layer 0.");
    TEST_EPSIM(&output, "report", run, "-o", out, "--layer", "7");
    ck_assert_int_eq(output.status, 2);
    PAGE_HAS(output.err, "no spans of that step and layer");
    TEST_EPSIM(&output, "report", run, "-o", out, "--step", "-1");
    ck_assert_int_eq(output.status, 2);
    TEST_EPSIM(&output, "report", run, "-o", run);
    ck_assert_int_eq(output.status, 2);
    PAGE_HAS(output.err, "is the database itself");
}
END_TEST

START_TEST(names_out_of_a_run_cannot_become_markup)
{
    const char *folder = test_temp_dir();
    const char *run = write_run(folder, "<img src=x onerror=alert(1)>");

    db_execute(run, "UPDATE run SET command = '<script>alert(1)</script>&\"''\xc3\xa9', "
                    "settings_json = '{\"<b>\": \"</td><script>\", \"seed\": 7}'");
    const char *page = report_run(run, test_join(folder, "run.html"));
    check_shape(page);
    PAGE_LACKS(page, "<img");
    PAGE_LACKS(page, "<b>\"");
    PAGE_HAS(page, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;??");
    PAGE_HAS(page, "<td>&lt;b&gt;</td>");
}
END_TEST

START_TEST(broken_rows_are_one_line_and_leave_no_page)
{
    static const char *const harm[] = {
        "UPDATE span SET end_ps = -5",
        "UPDATE span SET end_ps = 'x' WHERE layer = 1",
        "UPDATE span SET rank = 70000",
        ("ALTER TABLE span RENAME TO whole; CREATE TABLE span AS SELECT run, step, layer, rank, "
         "NULL AS stream, op, start_ps, end_ps, bytes, rows FROM whole"),
        "UPDATE expert_load SET expert = 100000000 WHERE expert = 1",
        "UPDATE wait SET waiter = -1",
        "UPDATE check_result SET rows = 'many'",
        "DROP TABLE message_stat",
    };
    struct test_output output;

    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
        const char *folder = test_temp_dir();
        const char *run = write_run(folder, "dispatch"), *out = test_join(folder, "run.html");
        db_execute(run, harm[i]);
        TEST_EPSIM(&output, "report", run, "-o", out);
        ck_assert_msg(output.status == 2, "%s: %d", harm[i], output.status);
        ck_assert_msg(count_of(output.err, "\n") == 1, "%s: %s", harm[i], output.err);
        ck_assert_int_ne(access(out, F_OK), 0);
    }
}
END_TEST

START_TEST(a_run_without_spans_says_how_to_record_them)
{
    const char *folder = test_temp_dir();
    const char *run = test_join(folder, "run.db");
    struct test_output output;

    TEST_EPSIM(&output, "run", "--ep", "2", "--tokens", "4", "--layers", "1", "--detail", "summary",
               "--db", run);
    ck_assert_msg(output.status == 0, "%s", output.err);
    const char *page = report_run(run, test_join(folder, "run.html"));
    check_shape(page);
    PAGE_HAS(page, "record it with <code>--detail span</code>");
}
END_TEST

START_TEST(two_runs_stand_side_by_side)
{
    const char *folder = test_temp_dir();
    const char *run = test_join(folder, "run.db"), *out = test_join(folder, "run.html");
    char first[512], second[512];
    struct test_output output;

    TEST_EPSIM(&output, "run", "--ep", "2", "--tokens", "4", "--layers", "1", "--backend", "ref",
               "--db", run);
    ck_assert_int_eq(output.status, 0);
    TEST_EPSIM(&output, "run", "--ep", "2", "--tokens", "5", "--layers", "1", "--backend", "ref",
               "--db", run);
    ck_assert_int_eq(output.status, 0);
    snprintf(first, sizeof first, "%s#1", run);
    snprintf(second, sizeof second, "%s#2", run);
    TEST_EPSIM(&output, "report", first, "--against", second, "-o", out);
    ck_assert_msg(output.status == 0, "%s", output.err);
    check_shape(read_page(out));
    PAGE_HAS(read_page(out), "<td>tokens</td><td>&quot;4&quot;</td><td>&quot;5&quot;</td>");
    PAGE_HAS(read_page(out), "<th>resource of the busiest rank</th>");
    PAGE_HAS(read_page(out), "<td>nvlink.out</td>");
    PAGE_HAS(read_page(out), "Results differ, first in step 0, layer 0, rank 0, stage layout");
    TEST_EPSIM(&output, "report", first, "--against", first, "-o", out);
    PAGE_HAS(read_page(out), "The settings are the same.");
    PAGE_HAS(read_page(out), "that both runs checked are equal.");
}
END_TEST

START_TEST(a_heat_map_draws_neighbours_of_a_shade_as_one)
{
    const char *path = test_join(test_temp_dir(), "map.html");
    /* Shades up to 8: 8 of 8, 4 of 8, 1 of 8; 0 is blank. */
    static const uint64_t values[] = {8, 8, 0, 4, 1, 0, 0, 8};
    const struct trace_heat heat = {values, 2, 4, "layer", "expert", "rows", 1};
    struct trace_html html;
    struct trace_output *output = trace_output_open(path, err, sizeof err);

    trace_html_begin(&html, output, "map", "", err, sizeof err);
    trace_html_heat(&html, &heat);
    ck_assert_int_eq(trace_html_end(&html), 0);
    DB_OK(trace_output_commit(output, err, sizeof err));
    const char *page = read_page(path);
    PAGE_HAS(page, "class=\"s8\" d=\"M0 0h2v1H0zM3 1h1v1H3z\"");
    PAGE_HAS(page, "class=\"s4\" d=\"M3 0h1v1H3z\"");
    PAGE_HAS(page, "class=\"s1\" d=\"M0 1h1v1H0z\"");
    PAGE_HAS(page, "class=\"s2\" d=\"\"");
    PAGE_HAS(page, "darkest: 8 rows");
}
END_TEST

START_TEST(halves_of_an_operation_share_a_colour_and_dense_layers_are_named)
{
    const char *folder = test_temp_dir(), *db = test_join(folder, "run.db");
    struct test_output output;
    TEST_EPSIM(&output, "run", "--layers", "1", "--tokens", "16", "--overlap", "tbo", "--db", db);
    ck_assert_msg(output.status == 0, "%s", output.err);
    const char *page = report_run(db, test_join(folder, "run.html"));
    check_shape(page);
    PAGE_HAS(page, "<td>gate_up.b</td>");
    PAGE_HAS(page, "</i>gate_up</span>");
    PAGE_LACKS(page, "</i>gate_up.b</span>");
    PAGE_HAS(page, ">dense</text>");
    PAGE_LACKS(page, ">-1</text>");
}
END_TEST

START_TEST(a_browser_draws_the_page)
{
    const char *folder = test_temp_dir();
    char command[2048];

    if (!test_has_program("chromium")) {
        test_skip("no chromium");
        return;
    }
    report_run(write_run(folder, "dispatch"), test_join(folder, "run.html"));
    snprintf(command, sizeof command,
             "cd '%s' && HOME='%s' timeout 60 chromium --headless --no-sandbox --disable-gpu "
             "--window-size=1100,2000 --screenshot=page.png run.html >/dev/null 2>&1 && "
             "test $(wc -c < page.png) -gt 20000 && HOME='%s' timeout 60 chromium --headless "
             "--no-sandbox --disable-gpu --dump-dom run.html 2>/dev/null | grep -q 'MoE layer 1'",
             folder, folder, folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

Suite *report_suite(void)
{
    Suite *suite = suite_create("report");
    TCase *tcase = tcase_create("report");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_page_has_the_figures_of_its_run);
    tcase_add_test(tcase, a_layer_can_be_chosen_and_a_missing_one_is_named);
    tcase_add_test(tcase, names_out_of_a_run_cannot_become_markup);
    tcase_add_test(tcase, broken_rows_are_one_line_and_leave_no_page);
    tcase_add_test(tcase, a_run_without_spans_says_how_to_record_them);
    tcase_add_test(tcase, two_runs_stand_side_by_side);
    tcase_add_test(tcase, a_heat_map_draws_neighbours_of_a_shade_as_one);
    tcase_add_test(tcase, halves_of_an_operation_share_a_colour_and_dense_layers_are_named);
    tcase_add_test(tcase, a_browser_draws_the_page);
    suite_add_tcase(suite, tcase);
    return suite;
}
