/* tests/test_transport.c - what the direct transport takes, and where a backend is to run: said
 * before anything is opened, so on machines without a GPU too.
 *
 * Method: a shape that it takes, then each limit of kernels/direct.h crossed alone; and the command
 * line's refusals with their exit status. */
#include <check.h>
#include <string.h>

#include "ref/quantise.h"
#include "sim/backends.h"
#include "sim/transport.h"
#include "tests/support.h"

Suite *transport_suite(void);

static char err[512];

static const struct sim_transport_shape usual = {.mode = SIM_MODE_LL,
                                                 .nodes = 2,
                                                 .ranks = 16,
                                                 .experts = 256,
                                                 .topk = 8,
                                                 .hidden = 7168,
                                                 .recipe = REF_RECIPE_LL,
                                                 .tokens_max = 128};

static void refuses(const struct sim_transport_shape *shape, uint32_t gpus, const char *line)
{
    ck_assert_int_eq(sim_transport_takes(shape, gpus, err, sizeof err), -1);
    ck_assert_str_eq(err, line);
}

START_TEST(low_latency_takes_any_nodes_and_normal_mode_one)
{
    struct sim_transport_shape shape = usual;
    ck_assert_int_eq(sim_transport_takes(&shape, 2, err, sizeof err), 0);
    shape.mode = SIM_MODE_NORMAL;
    refuses(&shape, 2, "direct: normal mode on 2 nodes: must be one node");
    shape.nodes = 1;
    ck_assert_int_eq(sim_transport_takes(&shape, 2, err, sizeof err), 0);
}
END_TEST

START_TEST(each_limit_is_named_with_its_number)
{
    struct sim_transport_shape shape = usual;
    shape.ranks = 65;
    refuses(&shape, 1, "direct: 65 ranks: must be at most 64");
    shape = usual;
    refuses(&shape, 17, "direct: 17 GPUs: must be at most 16, a rank each");
    shape.experts = 4096;
    refuses(&shape, 1, "direct: 4096 experts: must be below 4096");
    shape = usual;
    shape.topk = 33;
    refuses(&shape, 1, "direct: top-33: must be at most 32");
    shape = usual;
    shape.tokens_max = 131072;
    refuses(&shape, 1, "direct: 131072 tokens by top-8: must be below 1048576 selections a rank");
}
END_TEST

START_TEST(a_hidden_size_of_640_is_taken_in_bf16_and_in_normal_mode_alone)
{
    struct sim_transport_shape shape = usual;
    shape.hidden = 640;
    refuses(&shape, 1, "direct: hidden 640 in FP8: must be a multiple of 512");
    shape.recipe = REF_RECIPE_BF16;
    ck_assert_int_eq(sim_transport_takes(&shape, 1, err, sizeof err), 0);
    shape.recipe = REF_RECIPE_LL;
    shape.mode = SIM_MODE_NORMAL;
    shape.nodes = 1;
    ck_assert_int_eq(sim_transport_takes(&shape, 1, err, sizeof err), 0);
}
END_TEST

/* A settings struct of one backend and one more option. */
static struct sim_settings settings_of(const char *backend, const char *name, const char *value)
{
    struct sim_settings settings;
    sim_settings_default(&settings);
    ck_assert_int_eq(sim_settings_set(&settings, "backend", backend, err, sizeof err), 0);
    ck_assert_int_eq(sim_settings_set(&settings, name, value, err, sizeof err), 0);
    return settings;
}

START_TEST(settings_say_where)
{
    struct sim_backend_place place;
    struct sim_settings settings = settings_of("cuda", "transport", "direct");
    ck_assert_int_eq(sim_settings_set(&settings, "gpus", "2", err, sizeof err), 0);
    ck_assert_int_eq(sim_settings_set(&settings, "mapping", "round-robin", err, sizeof err), 0);
    ck_assert_int_eq(sim_backend_place(&settings, &place, err, sizeof err), 0);
    ck_assert_uint_eq(place.transport, SIM_TRANSPORT_DIRECT);
    ck_assert_uint_eq(place.gpus, 2);
    ck_assert_uint_eq(place.interleave, 1);
    settings = settings_of("cuda", "seed", "1");
    ck_assert_int_eq(sim_backend_place(&settings, &place, err, sizeof err), 0);
    ck_assert_uint_eq(place.transport, SIM_TRANSPORT_DRIVEN);
    ck_assert_uint_eq(place.gpus, 1);
    ck_assert_uint_eq(place.interleave, 0);
    ck_assert_uint_eq(place.in_flight, 1);
}
END_TEST

START_TEST(where_a_backend_runs_is_not_part_of_what_it_must_answer)
{
    char digests[4][17];
    const struct sim_settings settings[] = {
        settings_of("ref", "seed", "1"), settings_of("cuda", "transport", "direct"),
        settings_of("cuda", "gpus", "2"), settings_of("cuda", "mapping", "round-robin")};
    for (int i = 0; i < 4; i++) sim_settings_digest(&settings[i], digests[i]);
    for (int i = 1; i < 4; i++) ck_assert_str_eq(digests[i], digests[0]);
}
END_TEST

/* epsim run of a toy with these words: its exit status, its complaint. */
static const struct {
    const char *words[10];
    const char *line;
} refused[] = {
    {{"--backend", "ref", "--transport", "direct"},
     "--transport: direct: --backend ref has no GPUs: it needs --backend cuda"},
    {{"--backend", "none", "--gpus", "2"},
     "--gpus: --backend none has no GPUs: it needs --backend cuda"},
    {{"--backend", "ref", "--mapping", "round-robin"},
     "--mapping: round-robin: --backend ref has no GPUs: it needs --backend cuda"},
    {{"--backend", "cuda", "--transport", "sideways"},
     "--transport: sideways: must be one of driven|direct"},
    {{"--backend", "cuda", "--gpus", "17"}, "--gpus: 17: must be a whole number from 1 to 16"},
    {{"--backend", "cuda", "--transport", "direct", "--gpus", "8", "--ep", "4"},
     "--transport: direct: 8 GPUs: must be at most 4, a rank each"},
    {{"--backend", "cuda", "--transport", "direct", "--mode", "normal", "--ep", "16"},
     "--transport: direct: normal mode on 2 nodes: must be one node"},
};

START_TEST(what_cannot_be_is_refused_before_a_gpu_is_looked_for)
{
    const char *argv[20] = {test_epsim(), "run", "--model", "toy-16x2", "--tokens", "4"};
    struct test_output output;
    int at = 6;

    for (int w = 0; refused[_i].words[w] != NULL; w++) argv[at++] = refused[_i].words[w];
    argv[at] = NULL;
    ck_assert_int_eq(test_run(argv, &output), 2);
    TEST_SAYS(output.err, refused[_i].line);
    ck_assert_str_eq(output.out, "");
}
END_TEST

START_TEST(a_lost_message_needs_the_driven_transport)
{
    struct test_output output;
    const char *path = test_write_text(
        test_temp_dir(), "lost.yaml",
        "faults:\n- {kind: drop, layer: 0, stage: dispatch, source: 0, token: 0, expert: 0}\n");
    ck_assert_int_eq(TEST_EPSIM(&output, "run", "--model", "toy-16x2", "--tokens", "4", "--backend",
                                "cuda", "--transport", "direct", "--scenario", path),
                     2);
    TEST_SAYS(output.err, "fault 1 (drop): --transport direct has no single messages: "
                          "must be driven");
}
END_TEST

Suite *transport_suite(void)
{
    Suite *suite = suite_create("transport");
    TCase *tests = tcase_create("transport");
    tcase_add_test(tests, low_latency_takes_any_nodes_and_normal_mode_one);
    tcase_add_test(tests, each_limit_is_named_with_its_number);
    tcase_add_test(tests, a_hidden_size_of_640_is_taken_in_bf16_and_in_normal_mode_alone);
    tcase_add_test(tests, settings_say_where);
    tcase_add_test(tests, where_a_backend_runs_is_not_part_of_what_it_must_answer);
    tcase_add_loop_test(tests, what_cannot_be_is_refused_before_a_gpu_is_looked_for, 0,
                        sizeof refused / sizeof refused[0]);
    tcase_add_test(tests, a_lost_message_needs_the_driven_transport);
    suite_add_tcase(suite, tests);
    return suite;
}
