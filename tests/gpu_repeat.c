/* tests/gpu_repeat.c - one answer, time after time: 20 repeats over both transports, any number of
 * multiprocessors, GPUs and mapping, alone or with other layers in flight.
 *
 * Method: one layer on the reference gives the digest of routing, times and every stage's bytes;
 * then the kernels play it again and again, each time placed otherwise. */
#include "sim/backends.h"
#include "sim/budget.h"
#include "sim/run.h"
#include "tests/gpu_support.h"

Suite *gpu_repeat_suite(void);

enum { REPEATS = 20, QUICK_REPEATS = 3 };

static char err[512];

static const char *const modes[] = {"ll", "normal"};
static const char *const recipes[] = {"fp8", "bf16", "ue8m0"};
static const char *const eps[] = {"8", "2"}; /* Two ranks: with a GPU each, one launch each. */
enum { MODES = 2, RECIPES = 3, EPS = 2 };

static struct sim_plan *make_plan(const char *const options[][2])
{
    struct sim_settings settings;
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);

    sim_settings_default(&settings);
    for (int i = 0; options[i][0] != NULL; i++)
        ck_assert_msg(sim_settings_set(&settings, options[i][0], options[i][1], err, sizeof err) ==
                          0,
                      "%s", err);
    ck_assert_ptr_nonnull(plan);
    ck_assert_msg(sim_plan_make(&settings, 0, 0, plan, err, sizeof err) == 0, "%s", err);
    return plan;
}

struct layer {
    struct sim_plan *plan;
    struct sim_source *source;
    struct sim_engine *engine;
    struct sim_cell *cell;
};

static struct layer make_layer(const char *ep, const char *mode, const char *recipe,
                               const char *expert)
{
    const char *const options[][2] = {
        {"model", "olmoe-1b-7b"}, {"ep", ep},         {"mode", mode},
        {"recipe", recipe},       {"expert", expert}, {"tokens", test_quick() ? "3" : "40"},
        {"layers", "1"},          {NULL, NULL}};
    uint64_t ready_ps[SIM_RANKS_MAX] = {0};
    struct layer layer;

    layer.plan = make_plan(options);
    layer.plan->model.moe_inter = 128; /* An MLP that takes no seconds on the reference. */
    layer.source = sim_source_open(&layer.plan->settings, err, sizeof err);
    ck_assert_int_eq(sim_source_start(layer.source, layer.plan, err, sizeof err), 0);
    layer.engine = sim_engine_open(1024, err, sizeof err);
    layer.cell = sim_cell_open(layer.plan, err, sizeof err);
    ck_assert_int_eq(
        sim_cell_prepare(layer.cell, layer.source, 0, 0, layer.engine, ready_ps, err, sizeof err),
        0);
    return layer;
}

static void close_layer(struct layer *layer)
{
    sim_cell_close(layer->cell);
    sim_engine_close(layer->engine);
    sim_source_close(layer->source);
    free(layer->plan);
}

static uint64_t play(struct layer *layer, const struct sim_backend_ops *backend,
                     const struct sim_backend_place *place)
{
    struct sim_datapath *path = sim_datapath_open(backend, place, err, sizeof err);
    ck_assert_msg(path != NULL, "%s", err);
    ck_assert_msg(sim_cell_play(layer->cell, path, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(layer->cell->wrong->count, 0);
    sim_datapath_close(path);
    return sim_cell_digest(layer->cell);
}

START_TEST(twenty_repeats_placed_otherwise_each_time_are_one_digest)
{
    static const uint32_t sms[] = {0, 1, 20, 131, 7};
    struct layer layer =
        make_layer(eps[_i % EPS], modes[_i / EPS % MODES], recipes[_i / EPS / MODES], "standin");
    const uint64_t expected = play(&layer, sim_backend_ref(), NULL);

    /* The least: one repeat on each transport. */
    for (uint32_t i = 0; i < (test_quick() ? QUICK_REPEATS : REPEATS); i += test_least() ? 2 : 1) {
        struct sim_backend_place place = test_gpu_place((int)i % test_gpu_places());
        place.transport = i / 2 % 2 == 0 ? SIM_TRANSPORT_DIRECT : SIM_TRANSPORT_DRIVEN;
        place.sms = sms[i % 5];
        place.in_flight = 1 + i % 3;
        const uint64_t digest = play(&layer, sim_backend_cuda(), &place);
        ck_assert_msg(digest == expected,
                      "repeat %u (transport %u, %u GPUs, mapping %u, %u SMs): %016" PRIx64
                      ", not %016" PRIx64,
                      i, place.transport, place.gpus, place.interleave, place.sms, digest,
                      expected);
    }
    close_layer(&layer);
}
END_TEST

/* Every layer of a run, several at a time. */
static uint64_t run_digest(const char *mode, const char *backend, const char *transport,
                           const char *mapping, const char *threads)
{
    static struct sim_summary summary; /* Large. */
    char gpus[16];
    snprintf(gpus, sizeof gpus, "%u", strcmp(backend, "cuda") == 0 ? test_gpu_count() : 1);
    const bool least = test_least();
    const char *const options[][2] = {{"model", "olmoe-1b-7b"},
                                      {"ep", least ? "2" : "8"},
                                      {"mode", mode},
                                      {"tokens", least ? "2" : "16"},
                                      {"layers", least ? "2" : "6"},
                                      {"steps", least ? "1" : "3"},
                                      {"backend", backend},
                                      {"threads", threads},
                                      {"transport", transport},
                                      {"gpus", gpus},
                                      {"mapping", mapping},
                                      {NULL, NULL}};
    const struct sim_backend_ops *ops = NULL;
    struct sim_plan *plan = make_plan(options);
    struct sim_source *source = sim_source_open(&plan->settings, err, sizeof err);

    ck_assert_int_eq(sim_source_start(source, plan, err, sizeof err), 0);
    ck_assert_int_eq(sim_backend_find(backend, &ops, err, sizeof err), 0);
    ck_assert_int_eq(sim_summary_open(plan, &summary, err, sizeof err), 0);
    const struct sim_run run = {.plan = plan, .source = source, .backend = ops};
    ck_assert_msg(sim_run_play(&run, &summary, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(summary.mismatches, 0);
    const uint64_t digest = summary.digest;
    sim_summary_close(&summary);
    sim_source_close(source);
    free(plan);
    return digest;
}

START_TEST(layers_in_flight_on_all_gpus_do_not_disturb_each_other)
{
    const char *mode = modes[_i];
    const uint64_t expected = run_digest(mode, "ref", "driven", "blocks", "1");
    static const char *const placed[][3] = {{"driven", "blocks", "4"},
                                            {"driven", "round-robin", "7"},
                                            {"direct", "blocks", "4"},
                                            {"direct", "round-robin", "3"},
                                            {"direct", "blocks", "1"}};
    for (size_t i = 0; i < sizeof placed / sizeof placed[0]; i += test_least() ? 2 : 1)
        ck_assert_msg(run_digest(mode, "cuda", placed[i][0], placed[i][1], placed[i][2]) ==
                          expected,
                      "%s, %s, %s, %s threads", mode, placed[i][0], placed[i][1], placed[i][2]);
}
END_TEST

/* What a run counts beforehand is what the layer then asks for; the direct transport's own memory,
 * which is asked for later, is counted too. */
static void budgeted(const struct layer *layer, uint32_t transport, uint64_t needed)
{
    struct sim_plan *plan = layer->plan;
    const struct sim_budget_rows rows = sim_budget_rows_counted(&layer->cell->traffic);
    ck_assert_int_eq(sim_settings_set(&plan->settings, "backend", "cuda", err, sizeof err), 0);
    ck_assert_int_eq(sim_settings_set(&plan->settings, "transport",
                                      transport == SIM_TRANSPORT_DIRECT ? "direct" : "driven", err,
                                      sizeof err),
                     0);
    const uint64_t counted = sim_budget_need(plan, &rows).gpu_bytes;
    ck_assert_msg(counted >= needed - needed / 20, "%" PRIu64 " counted, %" PRIu64 " asked for",
                  counted, needed);
    if (transport == SIM_TRANSPORT_DRIVEN) ck_assert_uint_le(counted, needed + needed / 20);
}

/* A limit stands for a smaller GPU. */
START_TEST(a_layer_that_does_not_fit_is_refused_with_the_number_missing)
{
    static const char *const experts[] = {"standin", "mlp"};
    struct layer layer = make_layer("8", modes[_i % MODES], "fp8", experts[_i / MODES]);
    struct sim_backend_place place = test_gpu_place(0);
    place.gpu_bytes = 100000;
    for (uint32_t transport = 0; transport < 2; transport++) {
        place.transport = transport;
        struct sim_datapath *path = sim_datapath_open(sim_backend_cuda(), &place, err, sizeof err);
        ck_assert_msg(path != NULL, "%s", err);
        ck_assert_int_eq(sim_cell_play(layer.cell, path, err, sizeof err), -1);
        uint64_t needed = 0, missing = 0;
        ck_assert_msg(sscanf(err,
                             "cuda: GPU 0: this layer needs %" SCNu64
                             " bytes, 100000 are allowed: %" SCNu64 " bytes missing",
                             &needed, &missing) == 2,
                      "%s", err);
        ck_assert_uint_eq(needed, missing + 100000);
        budgeted(&layer, transport, needed);
        sim_datapath_close(path);
    }
    close_layer(&layer);
}
END_TEST

Suite *gpu_repeat_suite(void)
{
    Suite *suite = suite_create("gpu_repeat");
    TCase *tests = tcase_create("repeat");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, twenty_repeats_placed_otherwise_each_time_are_one_digest, 0,
                        EPS * MODES * (test_quick() ? 1 : RECIPES));
    tcase_add_loop_test(tests, layers_in_flight_on_all_gpus_do_not_disturb_each_other, 0, MODES);
    tcase_add_loop_test(tests, a_layer_that_does_not_fit_is_refused_with_the_number_missing, 0,
                        2 * MODES);
    suite_add_tcase(suite, tests);
    return suite;
}
