/* tests/test_recorded.c - the committed record of the kernels on a GPU, held against the reference.
 *
 * Every line that this build's kernels stand behind must match; lines of other kernels are stale,
 * and listed loudly with the skipped tests, since only a GPU can make them anew (STEPS=record
 * tools/gpu.sh run). */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/evidence.h"
#include "tests/support.h"

Suite *recorded_suite(void);

enum { QUICK_SHARE = 8 };

/* The quick set looks at every eighth line, always the same ones. */
static void thin_out(struct sim_evidence *evidence)
{
    size_t kept = 0;
    if (!test_quick()) return;
    for (size_t i = 0; i < evidence->count; i += QUICK_SHARE)
        evidence->lines[kept++] = evidence->lines[i];
    evidence->count = kept;
}

START_TEST(what_the_kernels_gave_is_what_the_reference_gives)
{
    const char *path = test_tree_path("tests/golden/gpu_h200.csv");
    struct sim_evidence evidence;
    struct sim_evidence_report report;
    struct sim_case_table table;
    char err[1024] = "";
    bool usage = true;

    if (!test_exists(path)) {
        test_skip("no record of a GPU in tests/golden");
        return;
    }
    ck_assert_msg(sim_case_table_load(NULL, &table, err, sizeof err) == 0, "%s", err);
    ck_assert_msg(sim_evidence_load(path, &evidence, err, sizeof err) == 0, "%s", err);
    thin_out(&evidence);
    const struct sim_evidence_question question = {
        .table = &table,
        .routing = test_quick() ? NULL : test_data_path("traces/gptoss20b_topk_ids.npy"),
        .offsets = test_data_path("traces/gptoss20b_offsets.npy")};
    ck_assert_msg(sim_evidence_check(&evidence, &question, &report, &usage, err, sizeof err) == 0,
                  "%s", err);
    ck_assert_msg(report.mismatched == 0, "%" PRIu64 " of %" PRIu64 " lines: %s", report.mismatched,
                  report.lines, report.first);
    ck_assert_uint_eq(report.lines, report.matched + report.stale);
    if (report.stale > 0)
        test_skip(test_format("STALE: %" PRIu64 " of %" PRIu64
                              " lines of tests/golden/gpu_h200.csv are of other kernels: record "
                              "them again on a GPU",
                              report.stale, report.lines));
    if (report.missing > 0 && !test_quick())
        test_skip(test_format("MISSING: %" PRIu64
                              " cases, jobs or faults are not in tests/golden/gpu_h200.csv",
                              report.missing));
    sim_evidence_free(&evidence);
    sim_case_table_free(&table);
}
END_TEST

Suite *recorded_suite(void)
{
    Suite *suite = suite_create("recorded");
    TCase *tests = tcase_create("recorded");
    tcase_add_test(tests, what_the_kernels_gave_is_what_the_reference_gives);
    suite_add_tcase(suite, tests);
    return suite;
}
