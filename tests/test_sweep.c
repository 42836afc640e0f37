/* tests/test_sweep.c - a grid of what-ifs: numbering, refusals, resuming, advice.
 *
 * Method: grids and advice worked out by hand; cells against `run` with the same settings; the
 * database doctored between two sweeps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/advise.h"
#include "tests/db_support.h"
#include "tests/json.h"

Suite *sweep_suite(void);

static void make_grid(struct sim_sweep *grid, const char *const axes[][2], size_t count)
{
    struct sim_settings base;
    sim_settings_default(&base);
    sim_sweep_init(grid, &base);
    for (size_t a = 0; a < count; a++)
        DB_OK(sim_sweep_add(grid, axes[a][0], axes[a][1], err, sizeof err));
}

static json_t *sweep(const char *const *arguments, size_t count)
{
    struct test_output output;
    const char *words[32] = {test_epsim(), "sweep", "--json", "--layers", "1"};

    ck_assert_uint_lt(count + 5, 32);
    for (size_t i = 0; i < count; i++) words[5 + i] = arguments[i];
    test_run(words, &output);
    ck_assert_msg(output.status == 0, "%s", output.err);
    return test_json(&output);
}
#define SWEEP(...)                                                                                 \
    sweep((const char *const[]){__VA_ARGS__},                                                      \
          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static const json_t *cell_of(const json_t *json, size_t cell)
{
    return json_array_get(json_object_get(json, "cells"), cell);
}

static double number_of(const json_t *json, size_t cell, const char *key)
{
    return number_at(json_at(cell_of(json, cell), "result"), key);
}

static size_t kept_in(const json_t *json)
{
    size_t kept = 0;
    for (size_t c = 0; c < json_array_size(json_object_get(json, "cells")); c++)
        kept += is_true_at(cell_of(json, c), "kept");
    return kept;
}

START_TEST(the_last_axis_varies_fastest)
{
    static const char *const axes[][2] = {
        {"ep", "8,16"}, {"mode", "ll,normal"}, {"tokens", "1,2,3"}};
    struct sim_sweep grid;
    struct sim_settings settings;

    make_grid(&grid, axes, 3);
    ck_assert_uint_eq(sim_sweep_cells(&grid), 12);
    sim_sweep_settings(&grid, 7, &settings); /* 7 = 1 * 6 + 0 * 3 + 1. */
    ck_assert_uint_eq(settings.ep, 16);
    ck_assert_str_eq(settings.mode, "ll");
    ck_assert_str_eq(settings.tokens, "2");
    sim_sweep_settings(&grid, 5, &settings);
    ck_assert_uint_eq(settings.ep, 8);
    ck_assert_str_eq(settings.mode, "normal");
    ck_assert_str_eq(settings.tokens, "3");
    sim_sweep_free(&grid);
}
END_TEST

START_TEST(a_list_that_is_wrong_is_named)
{
    static const char *const wrong[][3] = {
        {"--ep", "8,,16", "empty value"},
        {"--ep", "8,x", "whole number"},
        {"--ep", "8,8", "stands twice"},
        {"--mode", "ll,fast", "must be one of"},
        {"--advise", "luck", "latency, throughput, memory, cost"},
        {"--tokens", "", "--tokens: needs a value"},
        {"--tokens", "8,", "empty value"},
    };
    struct test_output output;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        TEST_EPSIM(&output, "sweep", wrong[i][0], wrong[i][1]);
        ck_assert_msg(output.status == 2, "%s: %d", wrong[i][1], output.status);
        ck_assert_msg(strstr(output.err, wrong[i][2]) != NULL, "%s: %s", wrong[i][1], output.err);
    }
}
END_TEST

START_TEST(a_cell_is_what_run_says_of_its_settings)
{
    struct test_output output;
    json_t *json = SWEEP("--ep", "2,4", "--tokens", "16,64");
    TEST_EPSIM(&output, "run", "--json", "--layers", "1", "--ep", "4", "--tokens", "64");
    json_t *run = test_json(&output);
    const json_t *layer = json_array_get(json_object_get(run, "layers"), 0);
    const double dispatch = number_at(layer, "dispatch_us.p50");
    ck_assert_double_eq_tol(number_of(json, 3, "dispatch_us"), dispatch, 1e-6);
    ck_assert_double_eq_tol(number_of(json, 3, "step_us"), number_at(run, "end_us"), 1e-6);
    /* 4 ranks x 64 tokens in a step, per GPU. */
    ck_assert_double_eq_tol(number_of(json, 3, "tokens_per_s_per_gpu"),
                            64e6 / number_of(json, 3, "step_us"), 1e-3);
    json_decref(run);
    json_decref(json);
}
END_TEST

START_TEST(threads_do_not_change_a_result)
{
    json_t *one = SWEEP("--ep", "2,4,8", "--tokens", "8,16", "--threads", "1");
    json_t *three = SWEEP("--ep", "2,4,8", "--tokens", "8,16", "--threads", "3");
    ck_assert(json_equal(json_object_get(one, "cells"), json_object_get(three, "cells")));
    ck_assert(json_equal(json_object_get(one, "digest"), json_object_get(three, "digest")));
    json_decref(one);
    json_decref(three);
}
END_TEST

START_TEST(a_refused_cell_says_why_and_the_rest_goes_on)
{
    json_t *json = SWEEP("--ep", "2", "--mode", "ll", "--tokens", "16,2000");
    ck_assert_str_eq(text_at(cell_of(json, 0), "state"), "done");
    ck_assert_str_eq(text_at(cell_of(json, 1), "state"), "refused");
    const char *why = text_at(cell_of(json, 1), "result.why");
    ck_assert_msg(why != NULL && strstr(why, "1024") != NULL, "%s", why);
    const json_t *counts = json_object_get(json, "counts");
    ck_assert_int_eq(int_at(counts, "done"), 1);
    ck_assert_int_eq(int_at(counts, "refused"), 1);
    ck_assert_int_eq(int_at(counts, "failed"), 0);
    json_decref(json);
}
END_TEST

/* Of all cells refused there is nothing to show: the question could not be asked. */
START_TEST(a_sweep_of_refused_cells_alone_is_refused_by_the_first)
{
    static const char WHY[] = "epsim sweep: all 2 cells are refused, the first: ";
    const char *folder = test_temp_dir(), *csv = test_join(folder, "cells.csv"),
               *db = test_join(folder, "cells.db");
    struct test_output output, again;
    TEST_EPSIM(&output, "sweep", "--ep", "2", "--mode", "ll", "--tokens", "2000,3000", "--layers",
               "1", "--csv", csv, "--db", db, "--json");
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_msg(strncmp(output.err, WHY, sizeof WHY - 1) == 0, "%s", output.err);
    TEST_SAYS(output.err, "capacity 2048");
    ck_assert_ptr_null(strstr(output.err, "capacity 3072"));
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
    ck_assert(!test_exists(csv));
    TEST_EPSIM(&again, "sweep", "--ep", "2", "--mode", "ll", "--tokens", "2000,3000", "--layers",
               "1", "--db", db); /* Kept as refused, and so refused again. */
    ck_assert_int_eq(again.status, 2);
    ck_assert_str_eq(again.err, output.err);
    TEST_EPSIM(&output, "sweep", "--machine", "nowhere", "--batch", "8");
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_msg(strncmp(output.err, "epsim sweep: machine nowhere: unknown; there are ", 49) == 0,
                  "%s", output.err); /* One cell needs no count. */
}
END_TEST

START_TEST(a_sweep_goes_on_where_it_stopped)
{
    const char *path = test_join(test_temp_dir(), "sweep.db");
    json_t *first = SWEEP("--ep", "2,4", "--tokens", "8,16", "--db", path);
    ck_assert_uint_eq(kept_in(first), 0);
    db_execute(path, "DELETE FROM cell WHERE settings_digest = (SELECT min"
                     "(settings_digest) FROM cell)");
    json_t *second = SWEEP("--ep", "2,4", "--tokens", "8,16,32", "--db", path);
    ck_assert_uint_eq(kept_in(second), 3); /* Of 4 kept before, one was removed; 2 are new. */
    for (size_t c = 0; c < 2; c++)
        ck_assert_double_eq(number_of(first, c, "step_us"), number_of(second, c, "step_us"));
    ck_assert_str_eq(db_ask(path, "SELECT run, count(*) FROM cell GROUP BY run"), "1|3;2|6");
    db_execute(path, "UPDATE run SET tool_version = 'another'");
    json_t *third = SWEEP("--ep", "2,4", "--tokens", "8,16", "--db", path);
    ck_assert_uint_eq(kept_in(third), 0);
    json_decref(first);
    json_decref(second);
    json_decref(third);
}
END_TEST

START_TEST(cells_kept_make_the_same_csv)
{
    const char *folder = test_temp_dir(), *db = test_join(folder, "sweep.db");
    const char *fresh = test_join(folder, "fresh.csv"), *kept = test_join(folder, "kept.csv");
    json_decref(SWEEP("--ep", "2,4", "--tokens", "8", "--csv", fresh));
    json_decref(SWEEP("--ep", "2", "--tokens", "8", "--db", db));
    json_t *json = SWEEP("--ep", "2,4", "--tokens", "8", "--db", db, "--csv", kept);
    ck_assert_uint_eq(kept_in(json), 1);
    ck_assert_str_eq(test_read(kept, NULL), test_read(fresh, NULL));
    /* The last column, fits, is a yes or no: 671 GB of weights are too much for 2 GPUs. */
    TEST_SAYS(test_read(kept, NULL), ",fits\n2,8,done,");
    TEST_SAYS(test_read(kept, NULL), ",false\n4,8,done,");
    json_decref(json);
}
END_TEST

START_TEST(cells_of_an_edited_machine_file_are_played_again)
{
    const char *folder = test_temp_dir();
    const char *path = test_join(folder, "sweep.db");
    const char *machine = test_write_text(folder, "mine.yaml", "inherits: h200-hgx\n");
    json_t *first = SWEEP("--ep", "2", "--machine", machine, "--db", path);
    test_write_text(folder, "mine.yaml", "inherits: h200-hgx\nnvlink_goodput_gbytes_per_s: 20\n");
    json_t *second = SWEEP("--ep", "2", "--machine", machine, "--db", path);
    ck_assert_uint_eq(kept_in(second), 0);
    ck_assert_double_gt(number_of(second, 0, "step_us"), number_of(first, 0, "step_us"));
    json_decref(first);
    json_decref(second);
}
END_TEST

START_TEST(cells_of_edited_weights_are_played_again)
{
    const char *folder = test_temp_dir();
    const char *path = test_join(folder, "sweep.db");
    const char *weights = test_write_text(folder, "w.json", "[[9,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]");
    json_t *first = SWEEP("--model", "toy-16x2", "--ep", "2", "--eplb", "18", "--eplb-weights",
                          weights, "--db", path);
    json_decref(first);
    first = SWEEP("--model", "toy-16x2", "--ep", "2", "--eplb", "18", "--eplb-weights", weights,
                  "--db", path);
    ck_assert_uint_eq(kept_in(first), 1);
    test_write_text(folder, "w.json", "[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,9]]");
    json_t *second = SWEEP("--model", "toy-16x2", "--ep", "2", "--eplb", "18", "--eplb-weights",
                           weights, "--db", path);
    ck_assert_uint_eq(kept_in(second), 0);
    json_decref(first);
    json_decref(second);
}
END_TEST

START_TEST(advice_names_the_best_and_what_another_choice_costs)
{
    /* Conditions: tokens. Cells: ep 8 {ll: 10 20, normal: 30 12}, ep 16 {ll: 11 NaN, normal: NaN
     * 18}. */
    static const char *const axes[][2] = {
        {"ep", "8,16"}, {"mode", "ll,normal"}, {"tokens", "32,512"}};
    const double values[] = {10, 20, 30, 12, 11, NAN, NAN, 18};
    const struct sim_goal *goal = sim_goal_find("latency");
    struct sim_sweep grid;
    struct sim_advice advice;

    make_grid(&grid, axes, 3);
    ck_assert_uint_eq(sim_advise_conditions(&grid), 2);
    sim_advise(&grid, values, goal, 0, &advice);
    ck_assert_uint_eq(advice.best, 0);
    ck_assert_uint_eq(advice.second.cell, 4);
    ck_assert_double_eq_tol(advice.second.worse, 0.1, 1e-12);
    ck_assert_uint_eq(advice.other[0].cell, 4);
    ck_assert_uint_eq(advice.other[1].cell, 2);
    ck_assert_double_eq_tol(advice.other[1].worse, 2.0, 1e-12);
    sim_advise(&grid, values, goal, 1, &advice);
    ck_assert_uint_eq(advice.best, 3);
    ck_assert_uint_eq(advice.other[0].cell, 7);
    ck_assert_double_eq_tol(advice.other[0].worse, 0.5, 1e-12);
    ck_assert(!sim_advise_same_choice(&grid, 0, 3));
    ck_assert(sim_advise_same_choice(&grid, 0, 1));
    sim_advise(&grid, values, sim_goal_find("throughput"), 0, &advice);
    ck_assert_uint_eq(advice.best, 2);
    ck_assert_double_eq_tol(advice.second.worse, (30.0 - 11.0) / 30.0, 1e-12);
    sim_sweep_free(&grid);
}
END_TEST

START_TEST(a_cell_whose_cache_does_not_fit_is_no_advice)
{
    /* GLM article shape, EP8: 26 GB beside weights of 115 GB hold some 490,000 tokens of KV, so
     * 64 requests with 4,096 each fit and 256 do not. */
    json_t *json = SWEEP("--model", "glm-5.3-article", "--mode", "ll", "--ep", "8", "--context",
                         "4096", "--tokens", "64,256", "--advise", "throughput");
    const json_t *few = json_object_get(cell_of(json, 0), "result"),
                 *many = json_object_get(cell_of(json, 1), "result");
    ck_assert_int_eq(int_at(few, "kv_needed_tokens"), 64 * 4097);
    ck_assert_int_eq(int_at(many, "kv_needed_tokens"), 256 * 4097);
    ck_assert(is_true_at(few, "fits"));
    ck_assert(!is_true_at(many, "fits"));
    const json_t *advice = json_object_get(json, "advice");
    ck_assert_int_eq(int_at(json_array_get(advice, 0), "best"), 0);
    ck_assert(json_is_null(json_object_get(json_array_get(advice, 1), "best")));
    json_decref(json);
}
END_TEST

START_TEST(a_cell_whose_weights_do_not_fit_is_no_advice)
{
    /* DeepSeek-V3 on H100: 256 experts of 3 x 7168 x 2048 bytes in 58 layers are 81.7 GB a rank at
     * EP8, of 80 GB. At EP16 they are 40.9 GB. */
    struct test_output output;
    json_t *json = SWEEP("--machine", "h100-hgx", "--mode", "ll", "--ep", "8,16", "--tokens", "32",
                         "--advise", "latency");
    ck_assert_double_gt(number_of(json, 0, "weight_bytes"), 81.7e9);
    ck_assert_int_eq(int_at(cell_of(json, 0), "result.hbm_bytes"), 80000000000);
    ck_assert(!is_true_at(cell_of(json, 0), "result.fits"));
    ck_assert(!is_true_at(cell_of(json, 0), "result.weights_fit"));
    ck_assert(is_true_at(cell_of(json, 1), "result.fits"));
    ck_assert_double_lt(number_of(json, 0, "step_us"), number_of(json, 1, "step_us"));
    ck_assert_int_eq(int_at(json_array_get(json_object_get(json, "advice"), 0), "best"), 1);
    json_decref(json);
    TEST_EPSIM(&output, "sweep", "--machine", "h100-hgx", "--mode", "ll", "--ep", "8", "--tokens",
               "32,64", "--layers", "1", "--context", "64", "--advise", "latency");
    ck_assert_int_eq(output.status, 0);
    TEST_SAYS(output.out, "0 B  weights too big\n");
    TEST_SAYS(output.out, "; 2 cells left out: weights and buffers exceed the GPU's memory:\n"
                          "  tokens 32: nothing fits into a GPU's memory\n"
                          "  tokens 64: nothing fits into a GPU's memory\n");
    ck_assert_ptr_null(strstr(output.out, "KV too big"));
    TEST_EPSIM(&output, "run", "--machine", "h100-hgx", "--mode", "ll", "--ep", "8", "--tokens",
               "32", "--layers", "1", "--context", "64");
    TEST_SAYS(output.out, "0 B left for KV");
    TEST_SAYS(output.out, "does not fit: 105 GB of weights, buffers and workspace on a GPU of "
                          "80.0 GB");
}
END_TEST

START_TEST(advice_agrees_with_the_printed_figures)
{
    struct test_output output;
    double ms[2] = {0, 0}, worse = 0;
    TEST_EPSIM(&output, "sweep", "--model", "gpt-oss-20b", "--ep", "8,16", "--mode", "ll",
               "--tokens", "16", "--layers", "1", "--advise", "latency");
    for (int c = 0; c < 2; c++) {
        const char *row = strstr(output.out, c == 0 ? "\n8 " : "\n16 ");
        ck_assert_msg(row != NULL && sscanf(row, "%*d %*f %lf", &ms[c]) == 1, "%s", output.out);
    }
    const char *other = strstr(output.out, "another ep: ");
    ck_assert_msg(other != NULL && sscanf(other, "another ep: %lf %%", &worse) == 1, "%s",
                  output.out);
    ck_assert_double_eq_tol(100 * (ms[1] - ms[0]) / ms[0], worse, 0.5);
}
END_TEST

START_TEST(redundancy_is_an_axis_and_eases_a_hot_expert)
{
    json_t *json =
        SWEEP("--ep", "8", "--routing", "lognormal:1", "--eplb", "0,288", "--replica", "row-mod");
    ck_assert_double_lt(number_of(json, 1, "layer_us"), number_of(json, 0, "layer_us"));
    ck_assert_double_gt(number_of(json, 1, "weight_bytes"), number_of(json, 0, "weight_bytes"));
    json_decref(json);
}
END_TEST

START_TEST(money_is_price_over_rate)
{
    const char *machine =
        test_write_text(test_temp_dir(), "priced.yaml", "inherits: h200-hgx\ngpu_hour_usd: 2.5\n");
    json_t *json = SWEEP("--ep", "2", "--machine", machine);
    ck_assert_double_eq_tol(number_of(json, 0, "usd_per_million_tokens"),
                            2.5e6 / 3600 / number_of(json, 0, "tokens_per_s_per_gpu"), 1e-9);
    json_decref(json);
}
END_TEST

START_TEST(modes_cross_between_two_token_counts)
{
    json_t *json = SWEEP("--ep", "2", "--mode", "ll,normal", "--tokens", "8,1024");
    const double gain_few = number_of(json, 2, "step_us") - number_of(json, 0, "step_us");
    const double gain_many = number_of(json, 3, "step_us") - number_of(json, 1, "step_us");
    ck_assert_double_gt(gain_few, 0);  /* Low latency wins with few tokens ... */
    ck_assert_double_lt(gain_many, 0); /* ... and loses with many. */
    const json_t *crossing = json_array_get(json_object_get(json, "crossovers"), 0);
    ck_assert_double_eq_tol(number_at(crossing, "tokens"),
                            8 + 1016 * gain_few / (gain_few - gain_many), 1e-6);
    ck_assert_int_eq(int_at(crossing, "unfit"), 2); /* 671 GB of weights on two GPUs. */
    json_decref(json);
}
END_TEST

START_TEST(advice_without_figures_says_so)
{
    static const char *const axes[][2] = {{"ep", "8"}};
    const double values[] = {NAN};
    struct sim_sweep grid;
    struct sim_advice advice;
    make_grid(&grid, axes, 1);
    sim_advise(&grid, values, sim_goal_find("cost"), 0, &advice);
    ck_assert_uint_eq(advice.best, SIM_NO_CELL);
    sim_sweep_free(&grid);
}
END_TEST

START_TEST(files_are_written_for_others)
{
    const char *folder = test_join(test_temp_dir(), "out");
    char *text = NULL;

    if (!test_has_program("gnuplot")) {
        test_skip("no gnuplot");
        return;
    }
    json_decref(SWEEP("--ep", "8,2,4", "--tokens", "8,16", "--mode", "ll,normal", "-o", folder));
    text = test_read(test_join(folder, "cells.csv"), NULL);
    ck_assert_msg(strncmp(text, "ep_given,mode_given,tokens_given,state,why,", 43) == 0, "%.60s",
                  text);
    size_t lines = 0;
    for (const char *at = text; *at != '\0'; at++) lines += *at == '\n';
    ck_assert_uint_eq(lines, 13);
    static const char *const files[] = {"tokens-step_us.svg", "tokens-step_us.png",
                                        "ep-tokens_per_s_per_gpu.svg", "index.html"};
    for (size_t i = 0; i < 4; i++)
        ck_assert_msg(access(test_join(folder, files[i]), R_OK) == 0, "%s", files[i]);
    text = test_read(test_join(folder, "ep-step_us.svg"), NULL);
    /* 671 GB of weights fit into 141 GB on 8 ranks alone: 4 points, the other 8 are drawn apart. */
    TEST_SAYS(text, "does not fit into the GPU");
    TEST_SAYS(text, "mode normal, tokens 16<");
    TEST_SAYS(text, ">2</tspan>"); /* Ticks at the cells' own values, no others. */
    TEST_SAYS(text, ">4</tspan>");
    TEST_SAYS(text, ">8</tspan>");
    ck_assert_ptr_null(strstr(text, ">6</tspan>"));
    text = test_read(test_join(folder, "index.html"), NULL);
    TEST_SAYS(text, "<svg");
    ck_assert_ptr_null(strstr(text, "<script"));
}
END_TEST

Suite *sweep_suite(void)
{
    Suite *suite = suite_create("sweep");
    TCase *tcase = tcase_create("sweep");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_last_axis_varies_fastest);
    tcase_add_test(tcase, a_list_that_is_wrong_is_named);
    tcase_add_test(tcase, a_cell_is_what_run_says_of_its_settings);
    tcase_add_test(tcase, threads_do_not_change_a_result);
    tcase_add_test(tcase, a_refused_cell_says_why_and_the_rest_goes_on);
    tcase_add_test(tcase, a_sweep_of_refused_cells_alone_is_refused_by_the_first);
    tcase_add_test(tcase, a_sweep_goes_on_where_it_stopped);
    tcase_add_test(tcase, cells_kept_make_the_same_csv);
    tcase_add_test(tcase, cells_of_an_edited_machine_file_are_played_again);
    tcase_add_test(tcase, cells_of_edited_weights_are_played_again);
    tcase_add_test(tcase, advice_names_the_best_and_what_another_choice_costs);
    tcase_add_test(tcase, a_cell_whose_cache_does_not_fit_is_no_advice);
    tcase_add_test(tcase, a_cell_whose_weights_do_not_fit_is_no_advice);
    tcase_add_test(tcase, advice_agrees_with_the_printed_figures);
    tcase_add_test(tcase, redundancy_is_an_axis_and_eases_a_hot_expert);
    tcase_add_test(tcase, money_is_price_over_rate);
    tcase_add_test(tcase, modes_cross_between_two_token_counts);
    tcase_add_test(tcase, advice_without_figures_says_so);
    tcase_add_test(tcase, files_are_written_for_others);
    suite_add_tcase(suite, tcase);
    return suite;
}
