/* tests/test_step.c - whole steps: order on streams, what waits for what, SMs that are held, the
 * published shape of overlaps.
 *
 * Right values: properties that hold whatever the numbers (spans of a stream never overlap, a
 * kernel never starts before what it reads), sums by hand, and published gains as ranges. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/sizes.h"
#include "sim/source.h"
#include "sim/step.h"
#include "tests/json.h"
#include "tests/support.h"

enum { SPANS_MAX = 20000 };

static struct sim_settings settings;
static struct sim_step_span spans[SPANS_MAX];
static size_t span_count;
static char err[512];

static void set(const char *name, const char *value)
{
    ck_assert_msg(sim_settings_set(&settings, name, value, err, sizeof err) == 0, "%s", err);
}

static void setup(void)
{
    sim_settings_default(&settings);
    set("context", "2048");
    set("layers", "3");
    span_count = 0;
}

static struct sim_step_times estimate(void)
{
    struct sim_step_times times;
    ck_assert_msg(sim_step_estimate(&settings, &times, NULL, err, sizeof err) == 0, "%s", err);
    return times;
}

static int keep(void *context, const struct sim_step_span *span, char *message, size_t message_len)
{
    (void)context;
    (void)message;
    (void)message_len;
    ck_assert_uint_lt(span_count, SPANS_MAX);
    spans[span_count++] = *span;
    return 0;
}

/* One step of the settings, its kernels in spans. */
static struct sim_step_times play(void)
{
    static int64_t choices[1 << 20];
    static float weights[1 << 20];
    struct sim_step_times times;
    struct sim_plan *plan = (struct sim_plan *)malloc(sizeof *plan);
    struct sim_source *source = sim_source_open(&settings, err, sizeof err);
    ck_assert_ptr_nonnull(plan);
    ck_assert_ptr_nonnull(source);
    ck_assert_msg(sim_plan_make(&settings, 0, 0, plan, err, sizeof err) == 0, "%s", err);
    ck_assert_int_eq(sim_source_start(source, plan, err, sizeof err), 0);
    struct sim_step *step = sim_step_open(plan, keep, NULL, err, sizeof err);
    ck_assert_msg(step != NULL, "%s", err);
    ck_assert_int_eq(sim_step_begin(step, 0, err, sizeof err), 0);
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        sim_source_layer(source, plan->layers[l], choices, weights);
        const struct ref_routing routing = {plan->ranks,       plan->experts, plan->topk,
                                            plan->token_start, choices,       weights};
        ck_assert_int_eq(sim_step_layer(step, &routing, plan->layers[l], err, sizeof err), 0);
    }
    ck_assert_int_eq(sim_step_end(step, &times, err, sizeof err), 0);
    sim_step_close(step);
    sim_source_close(source);
    free(plan);
    return times;
}

static const struct {
    const char *overlap, *mode, *machine;
} cases[] = {
    {"none", "ll", "h200-hgx"},
    {"none", "normal", "h200-hgx"},
    {"layers", "ll", "h200-hgx"},
    {"layers", "normal", "h200-hgx"},
    {"shared-dispatch", "ll", "h200-hgx"},
    {"shared-dispatch", "normal", "h200-hgx"},
    {"shared-combine", "ll", "b200-hgx"},
    {"shared-combine", "normal", "b200-hgx"},
    {"sbo", "ll", "b200-hgx"},
    {"tbo", "ll", "h200-hgx"},
    {"tbo", "normal", "h200-hgx"},
    {"hooks", "ll", "h200-hgx"},
};

static void set_case(int i)
{
    set("overlap", cases[i].overlap);
    set("mode", cases[i].mode);
    set("machine", cases[i].machine);
    set("ep", "16");
    set("tokens", "32");
    set("gather", "all");
    set("attn-tp", "2");
    set("phase", "decode");
}

/* A launch of combine that takes 10 us more: once for a whole kernel, twice for one whose halves
 * are kernels, in both micro-batches; all on one stream, so it shows, but for what a later launch
 * of a receive half saves by waiting less. */
START_TEST(a_hooked_receive_half_pays_a_launch_of_its_own)
{
    const char *slow = test_write_text(test_temp_dir(), "slow.yaml",
                                       "inherits: h200-hgx\nll: {combine_launch_us: 11.846}\n");
    static const struct {
        const char *overlap;
        uint64_t launches;
    } asked[] = {{"none", 1}, {"hooks", 4}};
    for (size_t i = 0; i < 2; i++) {
        set("overlap", asked[i].overlap);
        set("mode", "ll");
        set("phase", "decode");
        set("tokens", "8");
        set("machine", "h200-hgx");
        const uint64_t before_ps = estimate().layer_ps;
        set("machine", slow);
        const uint64_t more_ps = estimate().layer_ps - before_ps;
        ck_assert_uint_ge(more_ps, asked[i].launches * 9000000);
        ck_assert_uint_le(more_ps, asked[i].launches * 10500000);
    }
}
END_TEST

START_TEST(kernels_of_a_stream_follow_each_other)
{
    set_case(_i);
    play();
    ck_assert_uint_gt(span_count, 100);
    for (size_t a = 0; a < span_count; a++) {
        for (size_t b = a + 1; b < span_count; b++) {
            if (spans[a].rank != spans[b].rank || spans[a].stream != spans[b].stream) continue;
            ck_assert_msg(spans[b].start_ps >= spans[a].end_ps, "%s: %s then %s of rank %u",
                          cases[_i].overlap, sim_op_name(spans[a].op), sim_op_name(spans[b].op),
                          spans[a].rank);
            break; /* Told in the stream's order: the next one of the stream is enough. */
        }
    }
}
END_TEST

START_TEST(no_kernel_starts_before_what_it_reads)
{
    set_case(_i);
    play();
    for (size_t b = 0; b < span_count; b++) {
        const uint32_t needs = sim_overlap_needs(spans[b].op);
        for (size_t a = 0; a < span_count; a++) {
            if (spans[a].rank != spans[b].rank || spans[a].half != spans[b].half ||
                spans[a].layer != spans[b].layer || spans[a].dense != spans[b].dense ||
                !(needs & 1u << spans[a].op))
                continue;
            if (spans[b].op == SIM_OP_COMBINE && strcmp(cases[_i].overlap, "sbo") == 0)
                ck_assert_uint_ge(spans[b].end_ps, spans[a].end_ps);
            else
                ck_assert_uint_ge(spans[b].start_ps, spans[a].end_ps);
        }
    }
}
END_TEST

START_TEST(without_overlap_a_rank_is_never_idle)
{
    /* So the kernels of a rank, waiting included, add up to the step. */
    uint64_t at_ps[16] = {0};
    set("ep", "8");
    const struct sim_step_times times = play();
    for (size_t i = 0; i < span_count; i++) {
        ck_assert_uint_eq(spans[i].start_ps, at_ps[spans[i].rank]);
        at_ps[spans[i].rank] = spans[i].end_ps;
    }
    uint64_t sum_ps = 0;
    for (int o = 0; o < SIM_OPS; o++) sum_ps += times.op_ps[o];
    ck_assert_uint_le(sum_ps, times.layer_ps);
    ck_assert_uint_ge(sum_ps, times.layer_ps * 95 / 100);
    ck_assert_uint_eq(times.dense_layers, 3);
    ck_assert_uint_eq(times.simulated, 3);
    const uint64_t step_ps = 3 * times.dense_ps + 58 * times.layer_ps;
    ck_assert_uint_le(step_ps, times.step_ps);
    ck_assert_uint_ge(step_ps + 61, times.step_ps); /* Both are rounded down. */
    ck_assert_uint_eq(times.rows, 8 * 128);
}
END_TEST

START_TEST(reduce_scatter_hides_behind_the_next_layers_projections)
{
    set("ep", "8");
    set("gather", "all");
    const struct sim_step_times serial = estimate();
    set("overlap", "layers");
    const struct sim_step_times beside = estimate();
    ck_assert_uint_eq(serial.op_ps[SIM_OP_REDUCE_SCATTER], beside.op_ps[SIM_OP_REDUCE_SCATTER]);
    ck_assert_uint_lt(beside.step_ps, serial.step_ps);
    /* All of it but the last layer's, which nothing follows. */
    ck_assert_uint_ge(serial.layer_ps - beside.layer_ps,
                      serial.op_ps[SIM_OP_REDUCE_SCATTER] * 6 / 10);
    ck_assert_uint_gt(serial.collective_bytes, 0);
}
END_TEST

START_TEST(compute_slows_while_communication_holds_sms)
{
    set("ep", "8");
    set("mode", "normal");
    set("tokens", "4096");
    set("sms", "48");
    set("layers", "1");
    const struct sim_step_times alone = estimate();
    set("overlap", "shared-combine");
    const struct sim_step_times beside = estimate();
    ck_assert_uint_gt(beside.op_ps[SIM_OP_SHARED], alone.op_ps[SIM_OP_SHARED] * 12 / 10);
    ck_assert_uint_lt(beside.step_ps, alone.step_ps);
}
END_TEST

START_TEST(combine_hides_behind_the_down_gemm_unless_its_sms_are_too_few)
{
    set("machine", "b200-hgx");
    set("ep", "16");
    set("tokens", "64");
    const struct sim_step_times serial = estimate();
    set("overlap", "sbo");
    const struct sim_step_times beside = estimate();
    ck_assert_uint_lt(beside.step_ps, serial.step_ps);
    /* No more can be hidden than the down GEMM is long. */
    ck_assert_uint_le(serial.layer_ps - beside.layer_ps, serial.op_ps[SIM_OP_DOWN]);
    set("ep", "8");
    const uint64_t wide_ps = estimate().step_ps;
    set("comm-sms", "1");
    ck_assert_uint_gt(estimate().step_ps, wide_ps);
}
END_TEST

START_TEST(late_ranks_are_waited_for)
{
    set("ep", "8");
    const struct sim_step_times even = estimate();
    set("skew", "late:3:50");
    const struct sim_step_times late = estimate();
    const uint64_t more_ps = late.layer_ps - even.layer_ps;
    ck_assert_uint_ge(more_ps, 40 * UINT64_C(1000000)); /* 50 us a layer, less what hid before. */
    ck_assert_uint_le(more_ps, 50 * UINT64_C(1000000));
}
END_TEST

START_TEST(layers_not_simulated_cost_what_the_later_ones_do)
{
    /* Two halves fill their pipeline once, not in every layer. */
    set("model", "gpt-oss-20b");
    set("ep", "8");
    set("tokens", "64");
    set("overlap", "tbo");
    set("layers", "");
    const struct sim_step_times all = estimate();
    set("layers", "3");
    const struct sim_step_times few = estimate();
    ck_assert_uint_eq(all.simulated, 24);
    ck_assert_uint_ge(few.step_ps, all.step_ps * 97 / 100);
    ck_assert_uint_le(few.step_ps, all.step_ps * 103 / 100);
}
END_TEST

START_TEST(a_step_longer_than_an_hour_is_no_step)
{
    struct sim_step_times times;
    const char *slow = test_write_text(test_temp_dir(), "slow.yaml",
                                       "inherits: h100-hgx\nhbm_gbytes_per_s: 0.000000001\n");
    set("machine", slow);
    set("ep", "8");
    ck_assert_int_eq(sim_step_estimate(&settings, &times, NULL, err, sizeof err), -1);
    ck_assert_str_eq(err, "dense layer 0: the step takes more than an hour on machine slow");
}
END_TEST

START_TEST(a_rank_that_cannot_cut_its_rows_keeps_all_from_it)
{
    set("ep", "4");
    set("tokens", "8,8,1,8");
    set("overlap", "tbo");
    const struct sim_step_times refused = estimate();
    ck_assert(!refused.halved);
    set("overlap", "none");
    ck_assert_uint_eq(estimate().step_ps, refused.step_ps);
    set("overlap", "tbo");
    set("tokens", "8,8,0,8"); /* An idle rank goes along. */
    ck_assert(estimate().halved);
}
END_TEST

START_TEST(padded_rows_of_a_graph_cost_like_real_ones)
{
    set("ep", "8");
    set("tokens", "65");
    const struct sim_step_times padded = estimate();
    set("tokens", "72");
    const struct sim_step_times full = estimate();
    ck_assert_uint_eq(padded.op_ps[SIM_OP_ROUTER], full.op_ps[SIM_OP_ROUTER]);
    ck_assert_uint_eq(padded.op_ps[SIM_OP_SHARED], full.op_ps[SIM_OP_SHARED]);
    ck_assert_uint_lt(padded.op_ps[SIM_OP_ATTENTION], full.op_ps[SIM_OP_ATTENTION]);
}
END_TEST

START_TEST(verified_rows_share_their_requests_context)
{
    set("ep", "8");
    set("model", "gpt-oss-20b"); /* Bound by the bytes of its keys and values. */
    set("context", "8192");
    set("tokens", "24");
    set("verify", "6");
    const struct sim_step_times six = estimate();
    ck_assert_uint_eq(six.requests, 32);
    ck_assert_uint_eq(six.rows, 192);
    set("verify", "1");
    ck_assert_uint_gt(estimate().op_ps[SIM_OP_ATTENTION], six.op_ps[SIM_OP_ATTENTION]);
}
END_TEST

START_TEST(memory_is_what_the_account_says)
{
    struct sim_step_memory memory;
    set("model", "glm-5.3-article");
    set("ep", "8");
    set("tokens", "24");
    ck_assert_int_eq(sim_step_estimate(&settings, NULL, &memory, err, sizeof err), 0);
    ck_assert_uint_eq(memory.expert_bytes, 90596966400); /* 3 x 6144 x 2048 x 32 x 75 */
    ck_assert_uint_eq(memory.buffer_bytes, ref_size_ll(128, 6144, 256).total_bytes);
    ck_assert_uint_eq(memory.kv_token_bytes, 656 * 78 + 132 * 21);
    ck_assert_uint_eq(memory.hbm_bytes, 141000000000);
    /* Quoted: 109 GB with the rest. */
    ck_assert_uint_ge(memory.expert_bytes + memory.other_bytes, 105000000000);
    ck_assert_uint_le(memory.expert_bytes + memory.other_bytes, 115000000000);
    ck_assert_uint_eq(memory.kv_tokens, memory.kv_bytes / memory.kv_token_bytes);
}
END_TEST

START_TEST(auto_is_normal_mode_for_prefill)
{
    set("ep", "8");
    set("layers", "1");
    set("phase", "prefill");
    set("mode", "normal");
    const uint64_t normal_ps = estimate().step_ps;
    set("mode", "auto");
    ck_assert_uint_eq(estimate().step_ps, normal_ps);
}
END_TEST

START_TEST(what_cannot_be_asked_is_refused_in_one_line)
{
    struct sim_step_times times;
    set("ep", "6");
    set("model", "gpt-oss-20b");
    set("ep", "8");
    set("attn-tp", "3");
    ck_assert_int_eq(sim_step_estimate(&settings, &times, NULL, err, sizeof err), -1);
    ck_assert_str_eq(err, "--attn-tp: 3: must divide --ep 8");
    set("attn-tp", "1");
    set("phase", "prefill");
    set("mode", "ll");
    ck_assert_int_eq(sim_step_estimate(&settings, &times, NULL, err, sizeof err), -1);
    ck_assert_str_eq(err, "--phase: prefill: the low-latency mode decodes: needs --mode normal");
    set("mode", "auto");
    set("phase", "auto");
    set("model", "olmoe-1b-7b");
    ck_assert_int_eq(sim_step_estimate(&settings, &times, NULL, err, sizeof err), -1);
    TEST_SAYS(err, "attention_params: unknown");
}
END_TEST

/* Gain of an overlap in thousandths of the rate without it. */
static int64_t gain(const char *overlap)
{
    set("overlap", "none");
    const uint64_t without_ps = estimate().step_ps;
    set("overlap", overlap);
    return (int64_t)(without_ps * 1000 / estimate().step_ps) - 1000;
}

START_TEST(two_batches_lose_at_32_tokens_and_win_at_256)
{
    /* Published (SGLang, DeepSeek-V3, EP72 decode on H100, 2000 tokens of context): -27 % at 32
     * tokens per device, small or negative below 64, +25.5 % at 256. 256 experts and 32 replicas
     * are 288 slots, 4 a rank. The model gives -30 and +27 and breaks even near 115, not 64: two
     * halves pay each floor (attention module 48 us, its weights, router, experts' weights) twice,
     * which at 64 tokens is more than the communication that they hide. */
    set("eplb", "288");
    set("machine", "h100-hgx");
    set("ep", "72");
    set("context", "2000");
    set("layers", "2");
    set("tokens", "32");
    const int64_t few = gain("tbo");
    set("tokens", "256");
    const int64_t many = gain("tbo");
    set("tokens", "64");
    const int64_t some = gain("tbo");
    ck_assert_int_lt(few, -120);
    ck_assert_int_gt(few, -350);
    ck_assert_int_gt(some, few + 50);
    ck_assert_int_lt(some, 50);
    ck_assert_int_gt(many, 180);
    ck_assert_int_lt(many, 350);
}
END_TEST

START_TEST(two_batches_win_in_prefill)
{
    /* Published: +27 to +35 %. */
    if (test_quick()) return;
    set("model", "deepseek-v3");
    set("machine", "h100-hgx");
    set("mode", "normal");
    set("ep", "32");
    set("tokens", "2048");
    set("sms", "24");
    set("context", "0");
    set("phase", "prefill");
    set("routing", "limited:4");
    set("layers", "2");
    const int64_t won = gain("tbo");
    ck_assert_int_gt(won, 180);
    ck_assert_int_lt(won, 420);
}
END_TEST

START_TEST(the_command_prints_a_whole_step)
{
    struct test_output output;
    ck_assert_int_eq(TEST_EPSIM(&output, "run", "--model", "gpt-oss-20b", "--ep", "8", "--tokens",
                                "8", "--context", "1024", "--layers", "2", "--overlap", "tbo",
                                "--explain-schedule", "--json"),
                     0);
    json_t *json = test_json(&output), *step = json_object_get(json, "step");
    ck_assert_ptr_nonnull(step);
    ck_assert_double_gt(number_at(step, "step_us"), 100);
    ck_assert_int_eq(int_at(step, "halves"), 2);
    ck_assert_int_gt(int_at(step, "tokens_per_s_per_gpu"), 0);
    json_t *kernels = json_object_get(step, "kernels_us");
    ck_assert_double_gt(number_at(kernels, "gate_up"), 0);
    TEST_SAYS(text_at(step, "schedule"), "stage 4");
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "run", "--overlap", "sbo", "--tokens", "8"), 2);
    TEST_SAYS(output.err, "sbo_wheel");
    ck_assert_int_eq(TEST_EPSIM(&output, "run", "--overlap", "sideways"), 2);
}
END_TEST

Suite *step_suite(void);
Suite *step_suite(void)
{
    const int all = (int)(sizeof cases / sizeof cases[0]);
    Suite *suite = suite_create("step");
    TCase *tcase = tcase_create("step");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, kernels_of_a_stream_follow_each_other, 0, all);
    tcase_add_loop_test(tcase, no_kernel_starts_before_what_it_reads, 0, all);
    tcase_add_test(tcase, without_overlap_a_rank_is_never_idle);
    tcase_add_test(tcase, reduce_scatter_hides_behind_the_next_layers_projections);
    tcase_add_test(tcase, compute_slows_while_communication_holds_sms);
    tcase_add_test(tcase, combine_hides_behind_the_down_gemm_unless_its_sms_are_too_few);
    tcase_add_test(tcase, late_ranks_are_waited_for);
    tcase_add_test(tcase, layers_not_simulated_cost_what_the_later_ones_do);
    tcase_add_test(tcase, a_step_longer_than_an_hour_is_no_step);
    tcase_add_test(tcase, a_rank_that_cannot_cut_its_rows_keeps_all_from_it);
    tcase_add_test(tcase, padded_rows_of_a_graph_cost_like_real_ones);
    tcase_add_test(tcase, verified_rows_share_their_requests_context);
    tcase_add_test(tcase, memory_is_what_the_account_says);
    tcase_add_test(tcase, auto_is_normal_mode_for_prefill);
    tcase_add_test(tcase, what_cannot_be_asked_is_refused_in_one_line);
    tcase_add_test(tcase, two_batches_lose_at_32_tokens_and_win_at_256);
    tcase_add_test(tcase, two_batches_win_in_prefill);
    tcase_add_test(tcase, the_command_prints_a_whole_step);
    tcase_add_test(tcase, a_hooked_receive_half_pays_a_launch_of_its_own);
    suite_add_tcase(suite, tcase);
    return suite;
}
