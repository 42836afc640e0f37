/* tests/test_budget.c - memory is counted before it is taken: as much as is then taken, fewer
 * layers in flight where it is short, and a refusal that says how many bytes are missing.
 *
 * Method: what malloc has handed out before and after a layer was played; sums worked out by hand;
 * a limit of --host-mib stands for a small machine. */
#include <check.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "sim/budget.h"
#include "sim/cell.h"
#include "tests/support.h"

Suite *budget_suite(void);

static char err[512];

static uint64_t taken_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static struct sim_plan *make_plan(const char *const options[][2])
{
    struct sim_settings settings;
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);
    sim_settings_default(&settings);
    ck_assert_ptr_nonnull(plan);
    for (int i = 0; options[i][0] != NULL; i++)
        ck_assert_msg(sim_settings_set(&settings, options[i][0], options[i][1], err, sizeof err) ==
                          0,
                      "%s", err);
    ck_assert_msg(sim_plan_make(&settings, 0, 0, plan, err, sizeof err) == 0, "%s", err);
    return plan;
}

static const char *const shapes[][5] = {
    /* mode, recipe, ranks, machine, expert */
    {"ll", "fp8", "8", "h200-hgx", "standin"},      {"ll", "bf16", "4", "h200-hgx", "standin"},
    {"ll", "ue8m0", "16", "h200-hgx", "standin"},   {"normal", "fp8", "8", "h200-hgx", "standin"},
    {"normal", "bf16", "2", "h200-hgx", "standin"}, {"normal", "fp8", "8", "toy-2x4", "standin"},
    {"ll", "fp8", "16", "h200-hgx", "mlp"}, /* An expert a rank: the budget knows no finer. */
    {"normal", "fp8", "8", "h200-hgx", "mlp"},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

START_TEST(what_is_counted_is_what_is_taken)
{
    const char *const options[][2] = {
        {"model", "toy-16x2"},      {"backend", "ref"},        {"tokens", "96"},
        {"mode", shapes[_i][0]},    {"recipe", shapes[_i][1]}, {"ep", shapes[_i][2]},
        {"machine", shapes[_i][3]}, {"expert", shapes[_i][4]}, {NULL, NULL}};
    uint64_t ready_ps[SIM_RANKS_MAX] = {0};
    if (test_quick()) return; /* Sanitizers count memory in their own way. */
    struct sim_plan *plan = make_plan(options);
    struct sim_source *source = sim_source_open(&plan->settings, err, sizeof err);
    plan->model.moe_inter = 128; /* An MLP that takes no seconds. */
    ck_assert_int_eq(sim_source_start(source, plan, err, sizeof err), 0);
    struct sim_engine *engine = sim_engine_open(65536, err, sizeof err);
    const uint64_t before = taken_bytes();
    struct sim_cell *cell = sim_cell_open(plan, err, sizeof err);
    ck_assert_int_eq(sim_cell_prepare(cell, source, 0, 0, engine, ready_ps, err, sizeof err), 0);
    const uint64_t prepared = taken_bytes();
    struct sim_datapath *path = sim_datapath_open(sim_backend_ref(), NULL, err, sizeof err);
    ck_assert_int_eq(sim_cell_play(cell, path, err, sizeof err), 0);
    const uint64_t played = taken_bytes();
    const struct sim_budget_rows rows = sim_budget_rows_counted(&cell->traffic);
    const struct sim_budget_rows most = sim_budget_rows_most(plan);
    const struct sim_budget_need need = sim_budget_need(plan, &rows);
    const uint64_t counted = need.cell_bytes + need.worker_bytes, real = played - before;

    ck_assert_msg(counted >= real - real / 10 && counted <= real + real / 10,
                  "%s %s %s: %" PRIu64 " counted (cell %" PRIu64 "), %" PRIu64
                  " taken (before playing %" PRIu64 ")",
                  shapes[_i][0], shapes[_i][1], shapes[_i][4], counted, need.cell_bytes, real,
                  prepared - before);
    ck_assert_uint_ge(most.received, rows.received);
    ck_assert_uint_ge(most.rails, rows.rails);
    ck_assert_uint_ge(most.contributions, rows.contributions);
    ck_assert_uint_ge(most.home, rows.home);
    ck_assert_uint_ge(most.answers, rows.answers);
    ck_assert_uint_ge(most.answers_most, rows.answers_most);
    ck_assert_uint_ge(rows.answers_most * plan->ranks, rows.answers);
    for (int d = 0; d < SIM_DIRECTIONS; d++) ck_assert_uint_ge(most.messages[d], rows.messages[d]);
    if (plan->mode == SIM_MODE_LL) ck_assert_uint_eq(most.received, rows.received);
    sim_datapath_close(path);
    sim_cell_close(cell);
    sim_engine_close(engine);
    sim_source_close(source);
    free(plan);
}
END_TEST

START_TEST(layers_in_flight_are_as_many_as_fit)
{
    const struct sim_budget_need need = {.cell_bytes = 10, .worker_bytes = 100, .gpu_bytes = 1000};
    ck_assert_uint_eq(sim_budget_host_bytes(&need, 1), 130);
    ck_assert_uint_eq(sim_budget_host_bytes(&need, 4), 460);
    ck_assert_uint_eq(sim_budget_in_flight(&need, 4, 460, UINT64_MAX), 4);
    ck_assert_uint_eq(sim_budget_in_flight(&need, 4, 459, UINT64_MAX), 3);
    ck_assert_uint_eq(sim_budget_in_flight(&need, 4, UINT64_MAX, 2999), 2);
    ck_assert_uint_eq(sim_budget_in_flight(&need, 4, 1, 1), 1);
    ck_assert_int_eq(sim_budget_fits(&need, 4, 460, err, sizeof err), 0);
    ck_assert_int_eq(sim_budget_fits(&need, 4, 459, err, sizeof err), -1);
    ck_assert_str_eq(err, "memory for 4 layers in flight (--threads, --host-mib): it needs "
                          "460 bytes, 459 are free: 1 bytes missing");
}
END_TEST

/* EP32, 1024 tokens a rank, hidden 7168, top-8: by capacity the library's buffers would be 455 GiB.
 */
START_TEST(a_large_layer_is_counted_by_its_rows)
{
    const char *const options[][2] = {{"model", "deepseek-v3"}, {"backend", "cuda"}, {"ep", "32"},
                                      {"tokens", "1024"},       {"mode", "ll"},      {NULL, NULL}};
    struct sim_plan *plan = make_plan(options);
    const struct sim_budget_rows rows = sim_budget_rows_most(plan);
    const struct sim_budget_need need = sim_budget_need(plan, &rows);
    ck_assert_uint_eq(rows.received, 262144);
    /* Landed, as payload, scales, expert output, staged and home again: 72 KiB a row. */
    ck_assert_uint_gt(need.gpu_bytes >> 30, 14);
    ck_assert_uint_lt(need.gpu_bytes >> 30, 20);
    free(plan);
}
END_TEST

#define RUN(output, ...)                                                                           \
    TEST_EPSIM(output, "run", "--model", "toy-16x2", "--ep", "4", "--tokens", "64", "--backend",   \
               "ref", __VA_ARGS__)

START_TEST(a_run_that_does_not_fit_exits_3_with_the_number_missing)
{
    struct test_output output;
    uint64_t needed = 0, missing = 0;
    ck_assert_int_eq(RUN(&output, "--host-mib", "1"), 3);
    ck_assert_msg(sscanf(output.err,
                         "epsim run: memory for 1 layer in flight (--threads, --host-mib): "
                         "it needs %" SCNu64 " bytes, 1048576 are free: %" SCNu64
                         " bytes missing\n",
                         &needed, &missing) == 2,
                  "%s", output.err);
    ck_assert_uint_eq(needed, missing + 1048576);
    ck_assert_uint_eq(output.out_bytes, 0);
    ck_assert_int_eq(RUN(&output, "--host-mib", "24", "--threads", "200"), 3);
}
END_TEST

static const char *digest_of(const struct test_output *output)
{
    const char *digest = strstr(output->out, "\ndigest ");
    ck_assert_msg(digest != NULL, "%s%s", output->out, output->err);
    return digest;
}

START_TEST(less_memory_means_fewer_layers_in_flight_and_the_same_digest)
{
    struct test_output plenty, short_of;
    ck_assert_int_eq(RUN(&plenty, "--steps", "3"), 0);
    ck_assert_int_eq(RUN(&short_of, "--steps", "3", "--host-mib", "24"), 0);
    ck_assert_str_eq(digest_of(&short_of), digest_of(&plenty));
}
END_TEST

Suite *budget_suite(void)
{
    Suite *suite = suite_create("budget");
    TCase *tests = tcase_create("budget");
    tcase_add_loop_test(tests, what_is_counted_is_what_is_taken, 0, SHAPES);
    tcase_add_test(tests, layers_in_flight_are_as_many_as_fit);
    tcase_add_test(tests, a_large_layer_is_counted_by_its_rows);
    tcase_add_test(tests, a_run_that_does_not_fit_exits_3_with_the_number_missing);
    tcase_add_test(tests, less_memory_means_fewer_layers_in_flight_and_the_same_digest);
    suite_add_tcase(suite, tests);
    return suite;
}
