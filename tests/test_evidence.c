/* tests/test_evidence.c - the record of what kernels computed: read, written, judged.
 *
 * Method: the reference's own digests make a record that must match; then one thing in it is
 * changed at a time. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/evidence.h"
#include "sim/verify_cases.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *evidence_suite(void);

static char err[1024];
static struct sim_case_table table;
static struct sim_evidence evidence;
static struct sim_evidence_report report;

static const char CASES[] = "a,2,ll,fp8,7,2048,2,uniform,8,8,0,\n"
                            "b,8,normal,bf16,7,2048,4,masked,8,16,1,\n"
                            "c,4,ll,ue8m0,1,4096,1,special,8,8,0,\n";

static struct sim_evidence_line line_of(const char *kind, const char *name, uint64_t input,
                                        uint64_t output)
{
    struct sim_evidence_line line = {.input = input, .output = output, .kernel_ns = 12345};
    snprintf(line.kind, sizeof line.kind, "%s", kind);
    snprintf(line.name, sizeof line.name, "%s", name);
    snprintf(line.kernels, sizeof line.kernels, "%s", sim_evidence_kernels());
    snprintf(line.gpu, sizeof line.gpu, "NVIDIA H200");
    snprintf(line.driver, sizeof line.driver, "580.159");
    snprintf(line.cuda, sizeof line.cuda, "13.0");
    return line;
}

/* A record of the three cases and one fault, all right. */
static void make_right(void)
{
    struct sim_case_verdict verdicts[3];
    struct sim_verify_report cases;
    uint64_t bytes_max = 0;
    bool usage = true;
    const char *path = test_write_text(test_temp_dir(), "cases.csv", CASES);

    ck_assert_int_eq(sim_case_table_load(path, &table, err, sizeof err), 0);
    const struct sim_cases_job job = {.table = &table, .threads = 1};
    ck_assert_int_eq(sim_verify_cases(&job, verdicts, &cases, &bytes_max, &usage, err, sizeof err),
                     0);
    ck_assert_uint_eq(cases.passed, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct sim_evidence_line line = line_of(
            "case", table.cases[i].name, verdicts[i].input_digest, verdicts[i].output_digest);
        ck_assert_int_eq(sim_evidence_add(&evidence, &line, err, sizeof err), 0);
    }
    struct sim_job_result result;
    const struct sim_job *fault = sim_job_find("fault", "ll-dispatch-drop");
    ck_assert_ptr_nonnull(fault);
    ck_assert_msg(sim_job_play(fault, "ref", NULL, NULL, &result, &usage, err, sizeof err) == 0,
                  "%s", err);
    const struct sim_evidence_line line =
        line_of("fault", fault->name, result.input, result.output);
    ck_assert_int_eq(sim_evidence_add(&evidence, &line, err, sizeof err), 0);
}

static void check(uint64_t matched, uint64_t mismatched, uint64_t stale)
{
    const struct sim_evidence_question question = {.table = &table, .threads = 1};
    bool usage = true;
    ck_assert_msg(sim_evidence_check(&evidence, &question, &report, &usage, err, sizeof err) == 0,
                  "%s", err);
    ck_assert_uint_eq(report.lines, evidence.count);
    ck_assert_uint_eq(report.matched, matched);
    ck_assert_uint_eq(report.mismatched, mismatched);
    ck_assert_uint_eq(report.stale, stale);
}

START_TEST(the_references_own_digests_match)
{
    size_t jobs = 0;
    (void)sim_jobs(&jobs);
    make_right();
    check(4, 0, 0);
    ck_assert_str_eq(report.first, "");
    ck_assert_uint_eq(report.missing, jobs - 1);
    evidence.count = 2; /* A case without its line is missing, and nothing else. */
    check(2, 0, 0);
    ck_assert_uint_eq(report.missing, jobs + 1);
}
END_TEST

START_TEST(a_doctored_line_is_a_mismatch)
{
    make_right();
    evidence.lines[1].output ^= 1;
    check(3, 1, 0);
    ck_assert_msg(strstr(report.first, "case b: output digest") == report.first, "%s",
                  report.first);
    evidence.lines[0].input ^= UINT64_C(1) << 63;
    check(2, 2, 0);
    ck_assert_msg(strstr(report.first, "case a: input digest") == report.first, "%s", report.first);
    evidence.lines[3].output++;
    check(1, 3, 0);
    snprintf(evidence.lines[2].name, sizeof evidence.lines[2].name, "nobody");
    check(0, 4, 0);
}
END_TEST

START_TEST(a_line_of_other_kernels_is_stale_whatever_it_says)
{
    make_right();
    evidence.lines[2].kernels[15] ^= 1;
    check(3, 0, 1);
    evidence.lines[2].output ^= 1;
    check(3, 0, 1);
    snprintf(evidence.lines[3].kernels, 17, "0123456789abcdef");
    check(2, 0, 2);
}
END_TEST

START_TEST(written_and_read_it_is_the_same)
{
    struct sim_evidence again;
    make_right();
    evidence.lines[0].input = 1; /* Leading zeros stay. */
    const char *path = test_join(test_temp_dir(), "record.csv");
    ck_assert_msg(sim_evidence_write(&evidence, path, err, sizeof err) == 0, "%s", err);
    ck_assert_msg(sim_evidence_load(path, &again, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(again.count, evidence.count);
    ck_assert_mem_eq(again.lines, evidence.lines, again.count * sizeof *again.lines);
    TEST_SAYS(test_read(path, NULL), "\ncase,a,0000000000000001,");
    sim_evidence_free(&again);
}
END_TEST

START_TEST(a_record_that_cannot_be_written_leaves_nothing)
{
    make_right();
    const char *folder = test_temp_dir();
    ck_assert_int_eq(
        sim_evidence_write(&evidence, test_join(folder, "no/record.csv"), err, sizeof err), -1);
    TEST_SAYS(err, "record.csv");
    ck_assert(!test_exists(test_join(folder, "no")));
}
END_TEST

#define HEADER "kind,name,input,kernels,output,gpu,driver,cuda,kernel_ns\n"
#define DIGEST "0123456789abcdef"
static const struct {
    const char *text, *says;
} broken[] = {
    {"", "no line of evidence"},
    {HEADER, "no line of evidence"},
    {"case,a\n", ":1: the first line must be kind,name"},
    {HEADER "case,a," DIGEST "\n", ":2: 3 fields: must be 9"},
    {HEADER "cases,a," DIGEST "," DIGEST "," DIGEST ",g,d,c,1\n", "kind: cases: must be case"},
    {HEADER "case,," DIGEST "," DIGEST "," DIGEST ",g,d,c,1\n", "name: : must be short text"},
    {HEADER "case,a,xyz," DIGEST "," DIGEST ",g,d,c,1\n", "input: xyz: must be 16 hex digits"},
    {HEADER "case,a," DIGEST ",0," DIGEST ",g,d,c,1\n", "kernels: 0: must be 16 hex digits"},
    {HEADER "case,a," DIGEST "," DIGEST ",0123456789ABCDEF,g,d,c,1\n", "output: 0123456789ABCDEF"},
    {HEADER "case,a," DIGEST "," DIGEST "," DIGEST ",,d,c,1\n", "gpu: : must be short text"},
    {HEADER "case,a," DIGEST "," DIGEST "," DIGEST ",g,d,c,-1\n", "kernel_ns: -1: must be nano"},
    {HEADER "case,a," DIGEST "," DIGEST "," DIGEST ",g,d,c,1\n"
            "case,a," DIGEST "," DIGEST "," DIGEST ",g,d,c,1\n",
     ":3: name: a: stands there twice"},
    {HEADER "case,a," DIGEST "," DIGEST "," DIGEST ",g,d,c,1\n\n", ":3: 1 fields: must be 9"},
};

START_TEST(a_broken_record_is_one_line)
{
    struct test_output output;
    const char *path = test_write_text(test_temp_dir(), "broken.csv", broken[_i].text);
    ck_assert_int_eq(sim_evidence_load(path, &evidence, err, sizeof err), -1);
    TEST_SAYS(err, broken[_i].says);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--recorded", path, "--json"), 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
}
END_TEST

START_TEST(recorded_counts_and_exits_1_unless_all_match)
{
    struct test_output output;
    make_right();
    const char *folder = test_temp_dir();
    const char *cases = test_write_text(folder, "cases.csv", CASES);
    const char *path = test_join(folder, "record.csv");
    ck_assert_int_eq(sim_evidence_write(&evidence, path, err, sizeof err), 0);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--recorded", path, "--cases", cases, "--json"),
                     0);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "lines"), 4);
    ck_assert_int_eq(int_at(json, "matched"), 4);
    ck_assert_int_eq(int_at(json, "mismatched"), 0);
    ck_assert_int_eq(int_at(json, "stale"), 0);
    json_decref(json);
    evidence.lines[0].output ^= 1;
    evidence.lines[1].kernels[0] = evidence.lines[1].kernels[0] == '0' ? '1' : '0';
    ck_assert_int_eq(sim_evidence_write(&evidence, path, err, sizeof err), 0);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--recorded", path, "--cases", cases), 1);
    TEST_SAYS(output.out, "4 lines: 2 matched, 1 mismatched, 1 stale");
    TEST_SAYS(output.out, "STALE: 1 lines");
}
END_TEST

START_TEST(only_cuda_may_record)
{
    struct test_output output;
    const char *path = test_join(test_temp_dir(), "record.csv");
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--record", path), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--backend", "ref", "--record", path), 2);
    TEST_SAYS(output.err, "needs --backend cuda");
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--backend", "./x.so", "--record", path), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--backend", "cuda", "--recorded", path), 2);
    ck_assert(!test_exists(path));
}
END_TEST

/* What harm is done shows in the digest: which message, in which stage, in which way. */
START_TEST(every_fault_leaves_its_own_mark)
{
    size_t count = 0, faults = 0;
    uint64_t marks[64];
    const struct sim_job *jobs = sim_jobs(&count);
    ck_assert_uint_le(count, 64);
    for (size_t i = 0; i < count; i++) {
        struct sim_job_result result;
        bool usage = true;
        if (strcmp(jobs[i].kind, "fault") != 0) continue;
        ck_assert_msg(sim_job_play(&jobs[i], "ref", NULL, NULL, &result, &usage, err, sizeof err) ==
                          0,
                      "%s", err);
        ck_assert_msg(result.mismatches > 0, "%s: nothing is wrong", jobs[i].name);
        marks[faults++] = result.output;
    }
    ck_assert_uint_eq(faults, 16); /* Four kinds, two stages, two modes. */
    for (size_t i = 0; i < faults; i++)
        for (size_t j = 0; j < i; j++)
            if (marks[i] == marks[j]) /* Lost or too early, the row is poison all the same. */
                ck_assert_msg(i / 4 == j / 4 && i % 4 == 3 && j % 4 == 0, "%zu and %zu", i, j);
}
END_TEST

START_TEST(the_main_jobs_pinned_digests_are_the_references)
{
    const char *ids = test_data_path("traces/gptoss20b_topk_ids.npy");
    const char *offsets = test_data_path("traces/gptoss20b_offsets.npy");
    const struct sim_job *job = sim_job_find("job", "main-1-gpu");
    struct sim_job_result result, pinned;
    bool usage = true;
    if (test_quick()) return;
    if (ids == NULL || offsets == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    ck_assert(sim_job_needs_trace(job, &pinned));
    ck_assert_msg(sim_job_play(job, "ref", ids, offsets, &result, &usage, err, sizeof err) == 0,
                  "%s", err);
    ck_assert_uint_eq(result.mismatches, 0);
    ck_assert_uint_eq(result.input, pinned.input);
    ck_assert_uint_eq(result.output, pinned.output);
}
END_TEST

Suite *evidence_suite(void)
{
    Suite *suite = suite_create("evidence");
    TCase *tests = tcase_create("evidence");
    tcase_add_test(tests, the_references_own_digests_match);
    tcase_add_test(tests, a_doctored_line_is_a_mismatch);
    tcase_add_test(tests, a_line_of_other_kernels_is_stale_whatever_it_says);
    tcase_add_test(tests, written_and_read_it_is_the_same);
    tcase_add_test(tests, a_record_that_cannot_be_written_leaves_nothing);
    tcase_add_loop_test(tests, a_broken_record_is_one_line, 0, sizeof broken / sizeof broken[0]);
    tcase_add_test(tests, recorded_counts_and_exits_1_unless_all_match);
    tcase_add_test(tests, only_cuda_may_record);
    tcase_add_test(tests, every_fault_leaves_its_own_mark);
    tcase_add_test(tests, the_main_jobs_pinned_digests_are_the_references);
    suite_add_tcase(suite, tests);
    return suite;
}
