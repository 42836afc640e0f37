/* tests/test_verify_cases.c - named cases: what they are made of, and that a wrong backend is found
 * and named.
 *
 * Method: a backend is the reference's own table with one operation replaced by a wrong one, so
 * what must be reported is known to the element. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/quantise.h"
#include "sim/received.h"
#include "sim/verify_cases.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *verify_cases_suite(void);

static char err[1024];
static struct sim_case_table table;
static struct sim_case_verdict verdict;
static struct sim_verify_report report;
static uint64_t bytes_max;

/* A table of lines without their header. */
static void load(const char *lines)
{
    const char *path = test_write_text(test_temp_dir(), "cases.csv", lines);
    sim_case_table_free(&table);
    ck_assert_msg(sim_case_table_load(path, &table, err, sizeof err) == 0, "%s", err);
}

static const char LL[] = "one,4,ll,fp8,7,2048,4,uniform,8,16,0,\n";
static const char NORMAL[] = "two,16,normal,fp8,7,2048,4,uniform,8,32,2,\n";

static void open_inputs(const char *line, struct sim_case_inputs *inputs)
{
    load(line);
    ck_assert_msg(sim_case_inputs_open(&table.cases[0], inputs, err, sizeof err) == 0, "%s", err);
}

/* --- inputs ----------------------------------------------------------------------------------- */

START_TEST(a_case_has_the_same_bytes_whatever_else_is_in_the_table)
{
    struct sim_case_inputs once;
    open_inputs(LL, &once);
    load("other,4,ll,fp8,7,2048,4,uniform,8,16,0,\none,4,ll,fp8,7,2048,4,uniform,8,16,0,\n");
    struct sim_case_inputs again, other;
    ck_assert_int_eq(sim_case_inputs_open(&table.cases[1], &again, err, sizeof err), 0);
    ck_assert_int_eq(sim_case_inputs_open(&table.cases[0], &other, err, sizeof err), 0);
    ck_assert_uint_eq(once.digest, again.digest);
    ck_assert_mem_eq(once.x, again.x, once.tokens * 2048 * sizeof *once.x);
    ck_assert_uint_ne(once.digest, other.digest); /* The name is the seed. */
    sim_case_inputs_free(&once);
    sim_case_inputs_free(&again);
    sim_case_inputs_free(&other);
}
END_TEST

START_TEST(the_inputs_digest_moves_with_any_bit)
{
    struct sim_case_inputs inputs;
    open_inputs(NORMAL, &inputs);
    const struct sim_table_case *made = &table.cases[0];
    uint8_t *const arrays[] = {(uint8_t *)inputs.x, (uint8_t *)inputs.topk_idx,
                               (uint8_t *)inputs.topk_weights, (uint8_t *)inputs.bias0,
                               (uint8_t *)inputs.bias1};
    ck_assert_uint_eq(inputs.tokens, 16 * 7);
    for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++)
        for (uint32_t bit = 0; bit < 8; bit++) {
            arrays[a][1777 % (inputs.tokens * 16)] ^= (uint8_t)(1u << bit);
            ck_assert_uint_ne(sim_case_inputs_digest(made, &inputs), inputs.digest);
            arrays[a][1777 % (inputs.tokens * 16)] ^= (uint8_t)(1u << bit);
        }
    ck_assert_uint_eq(sim_case_inputs_digest(made, &inputs), inputs.digest);
    sim_case_inputs_free(&inputs);
}
END_TEST

START_TEST(kinds_are_what_their_names_say)
{
    uint64_t masked = 0, all_masked = 0, hot = 0, twice = 0;
    struct sim_case_inputs inputs;
    open_inputs("m,2,ll,fp8,128,2048,4,masked,8,16,0,\n", &inputs);
    for (uint64_t t = 0; t < inputs.tokens; t++) {
        uint32_t here = 0;
        for (uint32_t k = 0; k < 4; k++) {
            here += inputs.topk_idx[4 * t + k] == -1;
            ck_assert_int_eq(inputs.topk_idx[4 * t + k] == -1,
                             isnan(inputs.topk_weights[4 * t + k]) != 0);
        }
        masked += here;
        all_masked += here == 4;
    }
    ck_assert(masked > 256 && masked < 512 && all_masked >= 32); /* Of 1024 ids, 256 tokens. */
    sim_case_inputs_free(&inputs);

    open_inputs("h,2,ll,fp8,128,2048,1,hot,8,16,0,\n", &inputs);
    for (uint64_t t = 0; t < inputs.tokens; t++) hot += inputs.topk_idx[t] == 8;
    ck_assert(hot > 160 && hot < 240); /* Of 256. */
    sim_case_inputs_free(&inputs);

    open_inputs("d,1,ll,fp8,128,2048,4,duplicates,8,16,0,\n", &inputs);
    for (uint64_t t = 0; t < inputs.tokens; t++) {
        twice += inputs.topk_idx[4 * t] == inputs.topk_idx[4 * t + 3];
        if (t % 3 != 2) continue;
        ck_assert_mem_eq(&inputs.topk_idx[4 * t], &inputs.topk_idx[4 * t - 4], 32);
        ck_assert_mem_eq(&inputs.x[2048 * t], &inputs.x[2048 * t - 2048], 4096);
    }
    ck_assert_uint_ge(twice, 60);
    sim_case_inputs_free(&inputs);

    open_inputs("e,8,ll,fp8,128,2048,4,empty,8,16,0,\n", &inputs);
    ck_assert_uint_eq(inputs.tokens, 256); /* Ranks 0 and 4. */
    for (uint64_t i = 0; i < inputs.tokens * 4; i++) ck_assert_int_lt(inputs.topk_idx[i], 14);
    sim_case_inputs_free(&inputs);
}
END_TEST

START_TEST(rows_are_special_or_under_the_floor_where_the_kind_says_so)
{
    uint64_t nan = 0, infinite = 0, minus_zero = 0, under = 0, groups = 0;
    struct sim_case_inputs inputs;
    open_inputs("s,1,ll,fp8,128,2048,1,special,8,8,0,\n", &inputs);
    for (uint64_t i = 0; i < inputs.tokens * 2048; i++) {
        nan += (inputs.x[i] & 0x7FFF) > 0x7F80;
        infinite += (inputs.x[i] & 0x7FFF) == 0x7F80;
        minus_zero += inputs.x[i] == 0x8000;
    }
    ck_assert(nan > 50 && infinite > 50 && minus_zero > 50);
    sim_case_inputs_free(&inputs);

    open_inputs("f,1,ll,fp8,128,2048,1,floor,8,8,0,\n", &inputs);
    for (uint64_t g = 0; g < inputs.tokens * 16; g++, groups++) {
        float most = 0;
        for (uint32_t c = 0; c < 128; c++) {
            const float value = fabsf(ref_bf16_to_f32(inputs.x[g * 128 + c]));
            ck_assert(isfinite(value));
            if (value > most) most = value;
        }
        under += most < 1e-4f;
    }
    ck_assert(under > groups / 2 && under < groups * 9 / 10);
    sim_case_inputs_free(&inputs);
}
END_TEST

/* --- the output digest ------------------------------------------------------------------------ */

static void run_reference(const struct sim_case_inputs *inputs, struct sim_results *results,
                          struct sim_layer_results *view)
{
    const struct sim_backend_ops *ops = sim_backend_ref();
    void *state = NULL;
    ck_assert_int_eq(ops->open(ops, &state, err, sizeof err), 0);
    ck_assert_int_eq(sim_results_reserve(results, &inputs->layer, err, sizeof err), 0);
    ck_assert_int_eq(ops->dispatch(state, &inputs->layer, &results->received, err, sizeof err), 0);
    ck_assert_int_eq(ops->expert(state, &inputs->layer, &results->received, results->expert_out,
                                 err, sizeof err),
                     0);
    ck_assert_int_eq(ops->combine(state, &inputs->layer, results->expert_out,
                                  results->received.topk_weights, &results->combined, err,
                                  sizeof err),
                     0);
    *view = (struct sim_layer_results){results->received, results->expert_out, results->combined};
    ops->close(state);
}

START_TEST(the_output_digest_moves_with_any_array)
{
    const char *lines[] = {LL, NORMAL};
    struct sim_case_inputs inputs;
    open_inputs(lines[_i], &inputs);
    struct sim_results results = {0};
    struct sim_layer_results view;
    run_reference(&inputs, &results, &view);
    const uint64_t digest = sim_case_digest(&inputs.layer, &view);
    for (int a = 0; a < SIM_RESULT_ARRAYS; a++) {
        const bool normal_only = a == SIM_RESULT_TOPK_IDX || a == SIM_RESULT_TOPK_WEIGHTS ||
                                 a == SIM_RESULT_COMBINED_WEIGHTS;
        if (_i == 0 && normal_only) continue;
        results.arenas[a].bytes[100] ^= 4;
        ck_assert_uint_ne(sim_case_digest(&inputs.layer, &view), digest);
        results.arenas[a].bytes[100] ^= 4;
    }
    ck_assert_uint_eq(sim_case_digest(&inputs.layer, &view), digest);
    sim_results_free(&results);
    sim_case_inputs_free(&inputs);
}
END_TEST

static void exchange(void *a, void *b, size_t bytes)
{
    uint8_t *left = (uint8_t *)a, *right = (uint8_t *)b;
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t byte = left[i];
        left[i] = right[i];
        right[i] = byte;
    }
}

START_TEST(rows_of_a_low_latency_block_may_stand_in_any_order)
{
    struct sim_case_inputs inputs;
    open_inputs("b,1,ll,fp8,128,2048,1,hot,8,8,0,\n", &inputs);
    struct sim_results results = {0};
    struct sim_layer_results view;
    run_reference(&inputs, &results, &view);
    const uint64_t digest = sim_case_digest(&inputs.layer, &view);
    const uint64_t first = inputs.traffic.block_start[4], last = inputs.traffic.block_start[5] - 1;
    struct sim_received *received = &view.received;
    ck_assert_uint_gt(last, first + 50); /* The hot expert's. */
    exchange(received->payload + first * 2048, received->payload + last * 2048, 2048);
    ck_assert_uint_ne(sim_case_digest(&inputs.layer, &view), digest); /* Payloads alone: wrong. */
    exchange(received->src_token + first, received->src_token + last, sizeof(int32_t));
    exchange(received->scales + first * 16, received->scales + last * 16, 64);
    exchange(view.expert_out + first * 2048, view.expert_out + last * 2048, 4096);
    ck_assert_uint_eq(sim_case_digest(&inputs.layer, &view), digest);
    sim_results_free(&results);
    sim_case_inputs_free(&inputs);
}
END_TEST

/* --- wrong backends --------------------------------------------------------------------------- */

static void play(const char *line, const struct sim_backend_ops *ops, int status)
{
    bool usage = true;
    load(line);
    const struct sim_cases_job job = {.table = &table, .backend = ops, .threads = 2};
    struct sim_case_verdict verdicts[4];
    ck_assert_uint_le(table.count, 4);
    const int found =
        sim_verify_cases(&job, verdicts, &report, &bytes_max, &usage, err, sizeof err);
    ck_assert_msg(found == status, "%d: %s", found, err);
    verdict = verdicts[0];
    if (status != 0) return;
    ck_assert_uint_eq(report.cases, table.count);
    ck_assert_uint_eq(report.passed + report.failed + report.skipped + report.failure_count,
                      report.cases);
}

START_TEST(the_reference_passes_by_its_phases)
{
    play(_i == 0 ? LL : NORMAL, NULL, 0);
    ck_assert_uint_eq(report.passed, 1);
    ck_assert_uint_gt(report.bytes, 100000);
    ck_assert_uint_eq(verdict.output_digest, verdict.expected_digest);
    struct sim_backend_ops same = *sim_backend_ref(); /* Now both paths. */
    const uint64_t bytes = report.bytes;
    play(_i == 0 ? LL : NORMAL, &same, 0);
    ck_assert_uint_eq(report.bytes, 2 * bytes);
    ck_assert_uint_eq(verdict.output_digest, verdict.expected_digest);
}
END_TEST

/* The last bit of channel 1811 of token 2 of rank 1. */
static int combine_wrong(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                         const float *row_weights, struct sim_combined *out, char *why,
                         size_t why_len)
{
    const uint64_t token = in->routing->token_start[1] + 2;
    if (sim_backend_ref()->combine(state, in, expert_out, row_weights, out, why, why_len) != 0)
        return -1;
    out->x[token * in->hidden + 1811] ^= 1;
    return 0;
}

START_TEST(one_wrong_bit_of_combine_is_named)
{
    struct sim_backend_ops wrong = *sim_backend_ref();
    wrong.combine = combine_wrong;
    play(_i == 0 ? LL : NORMAL, &wrong, 0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first_case, _i == 0 ? "one" : "two");
    ck_assert_uint_eq(report.first_mismatches, 1);
    ck_assert_str_eq(report.first.stage, "combine");
    ck_assert_str_eq(report.first.tensor, "combined (group path)");
    ck_assert_uint_eq(report.first.rank, 1);
    ck_assert_int_eq(report.first.src_rank, 1);
    ck_assert_int_eq(report.first.src_token, 2);
    ck_assert_int_eq(report.first.channel, 1811);
    ck_assert_int_eq(
        strtol(report.first.expected, NULL, 16) ^ strtol(report.first.actual, NULL, 16), 1);
    ck_assert_str_ne(report.first.cause, "");
    ck_assert_uint_ne(verdict.output_digest, verdict.expected_digest);
}
END_TEST

/* Casts with scales rounded up to powers of two. */
static int dispatch_wrong(void *state, const struct sim_layer_input *in, struct sim_received *out,
                          char *why, size_t why_len)
{
    struct sim_layer_input other = *in;
    other.recipe = REF_RECIPE_LL_ROUND;
    return sim_backend_ref()->dispatch(state, &other, out, why, why_len);
}

START_TEST(another_recipe_is_named_as_the_cause)
{
    struct sim_backend_ops wrong = *sim_backend_ref();
    wrong.dispatch = dispatch_wrong;
    play("f,2,ll,fp8,7,2048,2,uniform,8,8,0,\n", &wrong, 0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.stage, "dispatch");
    ck_assert_int_ge(report.first.expert, 0);
    ck_assert_int_ge(report.first.src_token, 0);
    TEST_SAYS(report.first.cause, "match");
}
END_TEST

/* The first message of a dispatch never lands. */
static int deliver_wrong(void *state, enum sim_direction direction,
                         const struct sim_message *messages, size_t count, char *why,
                         size_t why_len)
{
    const size_t lost = direction == SIM_DISPATCH && count > 0 ? 1 : 0;
    return sim_backend_ref()->deliver(state, direction, messages + lost, count - lost, why,
                                      why_len);
}

START_TEST(a_lost_message_fails_the_phase_path_alone)
{
    struct sim_backend_ops wrong = *sim_backend_ref();
    wrong.deliver = deliver_wrong;
    play(LL, &wrong, 0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.stage, "dispatch");
    TEST_SAYS(report.first.tensor, "(phase path)");
    TEST_SAYS(report.first.cause, "poison");
    ck_assert_uint_ne(verdict.output_digest, verdict.expected_digest);
}
END_TEST

/* A row that the kernel does not write at all. */
static int dispatch_short(void *state, const struct sim_layer_input *in, struct sim_received *out,
                          char *why, size_t why_len)
{
    const int status = sim_backend_ref()->dispatch(state, in, out, why, why_len);
    memset(out->payload + (out->rows - 1) * in->hidden, 0xFF, in->hidden);
    return status;
}

START_TEST(a_row_never_written_is_poison)
{
    struct sim_backend_ops wrong = *sim_backend_ref();
    wrong.dispatch = dispatch_short;
    play(LL, &wrong, 0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.actual, "FF");
    TEST_SAYS(report.first.cause, "poison");
}
END_TEST

static int combine_long(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                        const float *row_weights, struct sim_combined *out, char *why,
                        size_t why_len)
{
    out->x[in->routing->token_start[in->routing->ranks] * in->hidden] = 0;
    return sim_backend_ref()->combine(state, in, expert_out, row_weights, out, why, why_len);
}

START_TEST(a_row_too_many_is_a_failure)
{
    struct sim_backend_ops wrong = *sim_backend_ref();
    wrong.combine = combine_long;
    play(LL, &wrong, 0);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.cause, "combined: written past its last row");
    ck_assert_str_eq(report.first.actual, "written");
}
END_TEST

static int dispatch_picky(void *state, const struct sim_layer_input *in, struct sim_received *out,
                          char *why, size_t why_len)
{
    if (in->traffic->mode == SIM_MODE_NORMAL) {
        snprintf(why, why_len, "no normal mode here");
        return SIM_BACKEND_UNSUPPORTED;
    }
    if (in->hidden == 4096) {
        snprintf(why, why_len, "the device is gone");
        return SIM_BACKEND_FAILED;
    }
    return sim_backend_ref()->dispatch(state, in, out, why, why_len);
}

START_TEST(what_a_backend_does_not_support_is_skipped_and_its_failure_is_a_line)
{
    struct sim_backend_ops picky = *sim_backend_ref();
    picky.dispatch = dispatch_picky;
    play("a,2,ll,fp8,7,2048,2,uniform,8,8,0,\nb,2,normal,fp8,7,2048,2,uniform,8,8,0,\n", &picky, 0);
    ck_assert_uint_eq(report.passed, 1);
    ck_assert_uint_eq(report.skipped, 1);
    ck_assert_uint_eq(report.failure_count, 0);
    play("c,2,ll,fp8,7,4096,2,uniform,8,8,0,\nd,2,ll,fp8,7,2048,2,uniform,8,8,0,\n", &picky, 0);
    ck_assert_uint_eq(report.failure_count, 1);
    ck_assert_str_eq(report.failures[0].where, "c");
    ck_assert_str_eq(report.failures[0].text, "the device is gone");
    ck_assert_uint_eq(report.passed, 1); /* Opened anew for the other. */
}
END_TEST

START_TEST(without_phases_the_group_path_is_all)
{
    struct sim_backend_ops plain = *sim_backend_ref();
    plain.begin = NULL;
    play(LL, &plain, 0);
    ck_assert_uint_eq(report.passed, 1);
    ck_assert_uint_eq(verdict.output_digest, verdict.expected_digest);
}
END_TEST

START_TEST(threads_change_nothing)
{
    struct sim_case_verdict one[64], four[64];
    bool usage = true, wanted[512] = {false};
    struct sim_case_table all;
    ck_assert_int_eq(sim_case_table_load(NULL, &all, err, sizeof err), 0);
    ck_assert_uint_gt(all.count, 64);
    for (size_t i = 0; i < 64; i += 7) wanted[i] = true;
    struct sim_cases_job job = {.table = &all, .wanted = wanted, .threads = 1};
    memset(one, 0, sizeof one);
    memset(four, 0, sizeof four);
    ck_assert_int_eq(sim_verify_cases(&job, one, &report, &bytes_max, &usage, err, sizeof err), 0);
    job.threads = 4;
    ck_assert_int_eq(sim_verify_cases(&job, four, &report, &bytes_max, &usage, err, sizeof err), 0);
    ck_assert_uint_eq(report.cases, 10);
    ck_assert_mem_eq(one, four, sizeof one);
    sim_case_table_free(&all);
}
END_TEST

/* --- the command ------------------------------------------------------------------------------ */

START_TEST(verify_cases_prints_one_document)
{
    const char *path = test_write_text(test_temp_dir(), "few.csv", LL);
    struct test_output output;
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--cases", path, "--json"), 0);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "cases"), 1);
    ck_assert_int_eq(int_at(json, "passed"), 1);
    ck_assert_int_eq(int_at(json, "failed"), 0);
    ck_assert_int_eq(int_at(json, "skipped"), 0);
    ck_assert_int_gt(int_at(json, "compared_bytes"), 100000);
    ck_assert(json_is_real(json_object_get(json, "wall_s")));
    ck_assert(json_is_null(json_object_get(json, "first_failure")));
    json_decref(json);
}
END_TEST

START_TEST(what_cannot_be_asked_is_one_line_and_exit_2)
{
    const char *folder = test_temp_dir();
    const char *large =
        test_write_text(folder, "large.csv", "a,8,ll,bf16,1024,8192,8,uniform,8,64,0,\n");
    const char *torn = test_write_text(folder, "torn.csv", "a,8,ll\n");
    struct test_output output;
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--cases", large), 2);
    TEST_SAYS(output.err, "must be at most 1073741824");
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--cases", torn), 2);
    TEST_SAYS(output.err, "torn.csv:1: 3 fields");
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--cases", "--golden", folder), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--cases", "--backend", "none"), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify"), 2);
    ck_assert_str_eq(output.out, "");
}
END_TEST

Suite *verify_cases_suite(void)
{
    Suite *suite = suite_create("verify_cases");
    TCase *tests = tcase_create("verify_cases");
    tcase_add_test(tests, a_case_has_the_same_bytes_whatever_else_is_in_the_table);
    tcase_add_test(tests, the_inputs_digest_moves_with_any_bit);
    tcase_add_test(tests, kinds_are_what_their_names_say);
    tcase_add_test(tests, rows_are_special_or_under_the_floor_where_the_kind_says_so);
    tcase_add_loop_test(tests, the_output_digest_moves_with_any_array, 0, 2);
    tcase_add_test(tests, rows_of_a_low_latency_block_may_stand_in_any_order);
    tcase_add_loop_test(tests, the_reference_passes_by_its_phases, 0, 2);
    tcase_add_loop_test(tests, one_wrong_bit_of_combine_is_named, 0, 2);
    tcase_add_test(tests, another_recipe_is_named_as_the_cause);
    tcase_add_test(tests, a_lost_message_fails_the_phase_path_alone);
    tcase_add_test(tests, a_row_never_written_is_poison);
    tcase_add_test(tests, a_row_too_many_is_a_failure);
    tcase_add_test(tests, what_a_backend_does_not_support_is_skipped_and_its_failure_is_a_line);
    tcase_add_test(tests, without_phases_the_group_path_is_all);
    tcase_add_test(tests, threads_change_nothing);
    tcase_add_test(tests, verify_cases_prints_one_document);
    tcase_add_test(tests, what_cannot_be_asked_is_one_line_and_exit_2);
    suite_add_tcase(suite, tests);
    return suite;
}
