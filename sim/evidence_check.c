/* sim/evidence_check.c - holds a record against the reference, and makes one on GPUs. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/config.h"
#include "sim/backends.h"
#include "sim/evidence.h"
#include "sim/verify_cases.h"
#if EPSIM_CUDA
#include "sim/backend_cuda.h"
#endif

static bool is_stale(const struct sim_evidence_line *line)
{
    return strcmp(line->kernels, sim_evidence_kernels()) != 0;
}

static bool is_case(const struct sim_evidence_line *line)
{
    return strcmp(line->kind, "case") == 0;
}

static const struct sim_evidence_line *find(const struct sim_evidence *evidence, const char *kind,
                                            const char *name)
{
    for (size_t i = 0; i < evidence->count; i++)
        if (strcmp(evidence->lines[i].kind, kind) == 0 &&
            strcmp(evidence->lines[i].name, name) == 0)
            return &evidence->lines[i];
    return NULL;
}

/* Count a line that is not stale: what it says against what is right. */
static void judge(const struct sim_evidence_line *line, uint64_t input, uint64_t output,
                  struct sim_evidence_report *report)
{
    const bool same_input = line->input == input;

    assert(!is_stale(line));
    if (same_input && line->output == output) {
        report->matched++;
        return;
    }
    if (report->mismatched++ > 0) return;
    snprintf(report->first, sizeof report->first,
             "%s %s: %s digest %016" PRIx64 ", the reference's is %016" PRIx64, line->kind,
             line->name, same_input ? "output" : "input", same_input ? line->output : line->input,
             same_input ? output : input);
}

static void refuse(const struct sim_evidence_line *line, const char *why,
                   struct sim_evidence_report *report)
{
    if (report->mismatched++ > 0) return;
    snprintf(report->first, sizeof report->first, "%s %s: %s", line->kind, line->name, why);
}

/* The reference's digests of all cases that a line names. */
static int check_cases(const struct sim_evidence *evidence,
                       const struct sim_evidence_question *question,
                       struct sim_case_verdict *verdicts, bool *wanted,
                       struct sim_evidence_report *report, bool *usage, char *err, size_t err_len)
{
    const struct sim_case_table *table = question->table;
    const struct sim_cases_job job = {.table = table,
                                      .reference = true,
                                      .wanted = wanted,
                                      .threads = question->threads,
                                      .progress = question->progress,
                                      .context = question->context};
    struct sim_verify_report cases;
    uint64_t bytes_max = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct sim_evidence_line *line = find(evidence, "case", table->cases[i].name);
        wanted[i] = line != NULL && !is_stale(line);
        report->missing += line == NULL;
    }
    const int status = sim_verify_cases(&job, verdicts, &cases, &bytes_max, usage, err, err_len);
    for (size_t i = 0; status == 0 && i < evidence->count; i++) {
        const struct sim_evidence_line *line = &evidence->lines[i];
        const struct sim_table_case *named = sim_case_table_find(table, line->name);

        if (!is_case(line) || is_stale(line)) continue;
        if (named == NULL) {
            refuse(line, "no such case", report);
            continue;
        }
        assert((size_t)(named - table->cases) < table->count);
        const struct sim_case_verdict *right = &verdicts[named - table->cases];
        judge(line, right->input_digest, right->expected_digest, report);
    }
    return status;
}

static int check_jobs(const struct sim_evidence *evidence,
                      const struct sim_evidence_question *question,
                      struct sim_evidence_report *report, bool *usage, char *err, size_t err_len)
{
    struct sim_job_result main_result = {0, 0, 0};
    bool main_known = false;
    size_t job_count = 0;
    const struct sim_job *jobs = sim_jobs(&job_count);

    for (size_t j = 0; j < job_count; j++)
        report->missing += find(evidence, jobs[j].kind, jobs[j].name) == NULL;
    assert(report->missing <= question->table->count + job_count);
    for (size_t i = 0; i < evidence->count; i++) {
        const struct sim_evidence_line *line = &evidence->lines[i];
        const struct sim_job *job = sim_job_find(line->kind, line->name);
        struct sim_job_result right = {0, 0, 0};

        if (is_case(line) || is_stale(line)) continue;
        if (job == NULL) {
            refuse(line, "no such job", report);
            continue;
        }
        const bool needs_trace = sim_job_needs_trace(job, &right);
        if (needs_trace && main_known) right = main_result;
        if (needs_trace && question->routing == NULL) {
            judge(line, right.input, right.output, report);
            report->pinned += line->input == right.input && line->output == right.output;
            continue;
        }
        if (!(needs_trace && main_known) &&
            sim_job_play(job, "ref", question->routing, question->offsets, &right, usage, err,
                         err_len) != 0)
            return -1;
        if (needs_trace) main_result = right, main_known = true;
        judge(line, right.input, right.output, report);
    }
    return 0;
}

int sim_evidence_check(const struct sim_evidence *evidence,
                       const struct sim_evidence_question *question,
                       struct sim_evidence_report *report, bool *usage, char *err, size_t err_len)
{
    const size_t count = question->table->count;
    struct sim_case_verdict *verdicts = (struct sim_case_verdict *)calloc(count, sizeof *verdicts);
    bool *wanted = (bool *)calloc(count, sizeof *wanted);
    int status = -1;

    memset(report, 0, sizeof *report);
    *usage = false;
    report->lines = evidence->count;
    for (size_t i = 0; i < evidence->count; i++) report->stale += is_stale(&evidence->lines[i]);
    if (verdicts == NULL || wanted == NULL)
        snprintf(err, err_len, "record: out of memory");
    else
        status = check_cases(evidence, question, verdicts, wanted, report, usage, err, err_len);
    if (status == 0) status = check_jobs(evidence, question, report, usage, err, err_len);
    free(verdicts);
    free(wanted);
    assert(status != 0 || report->lines == report->matched + report->mismatched + report->stale);
    return status;
}

/* --- making one ------------------------------------------------------------------------------- */

#if EPSIM_CUDA
/* "580.159.04" out of the line that the driver shows; what the runtime says (of the CUDA version
 * that the driver serves) where there is none. */
static void driver_version(const char *runtime, char *version, size_t version_len)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    char text[256] = "";

    snprintf(version, version_len, "%s", runtime);
    if (file == NULL) return;
    if (fgets(text, sizeof text, file) != NULL)
        for (const char *at = text; *at != '\0'; at += strcspn(at, " ")) {
            at += strspn(at, " ");
            const size_t digits = strspn(at, "0123456789.");
            if (digits < 5 || digits >= version_len || memchr(at, '.', digits) == NULL) continue;
            snprintf(version, version_len, "%.*s", (int)digits, at);
            break;
        }
    fclose(file);
}
#endif

/* What every line says of the machine, on so many of its GPUs. */
static int describe(uint32_t gpus, struct sim_evidence_line *line, char *err, size_t err_len)
{
#if EPSIM_CUDA
    struct sim_backend_place place = sim_backend_place_default();
    struct gpu_info info;
    void *state = NULL;

    place.gpus = gpus;
    if (sim_backend_open(sim_backend_cuda(), &place, &state, err, err_len) != 0) return -1;
    const int status = sim_backend_cuda_describe(state, &info, err, err_len);
    sim_backend_cuda()->close(state);
    if (status != 0) return -1;
    memset(line, 0, sizeof *line);
    snprintf(line->kernels, sizeof line->kernels, "%s", sim_evidence_kernels());
    if (gpus == 1)
        snprintf(line->gpu, sizeof line->gpu, "%.64s", info.name);
    else
        snprintf(line->gpu, sizeof line->gpu, "%" PRIu32 " x %.64s", gpus, info.name);
    for (char *at = line->gpu; *at != '\0'; at++)
        if (*at == ',') *at = ' ';
    driver_version(info.driver, line->driver, sizeof line->driver);
    snprintf(line->cuda, sizeof line->cuda, "%s", info.cuda);
    return 0;
#else
    (void)gpus;
    (void)line;
    snprintf(err, err_len, "--backend: cuda: not in this build; `make CUDA=1` with nvcc has it");
    return -1;
#endif
}

static int gpu_count(uint32_t *count, char *err, size_t err_len)
{
#if EPSIM_CUDA
    return gpu_device_count(count, err, err_len);
#else
    *count = 0;
    (void)err;
    (void)err_len;
    return 0;
#endif
}

static int make_cases(const struct sim_evidence_question *question, struct sim_evidence *evidence,
                      struct sim_case_verdict *verdicts, struct sim_verify_report *cases,
                      bool *usage, char *err, size_t err_len)
{
    const struct sim_cases_job job = {.table = question->table,
                                      .backend = sim_backend_cuda(),
                                      .threads = question->threads,
                                      .progress = question->progress,
                                      .context = question->context};
    struct sim_evidence_line line;
    uint64_t bytes_max = 0;

    if (describe(1, &line, err, err_len) != 0) return -1;
    if (sim_verify_cases(&job, verdicts, cases, &bytes_max, usage, err, err_len) != 0) return -1;
    snprintf(line.kind, sizeof line.kind, "case");
    for (size_t i = 0; i < question->table->count; i++) {
        const struct sim_case_verdict *verdict = &verdicts[i];

        if (verdict->outcome != SIM_CASE_PASSED && verdict->outcome != SIM_CASE_FAILED) continue;
        snprintf(line.name, sizeof line.name, "%s", question->table->cases[i].name);
        line.input = verdict->input_digest;
        line.output = verdict->output_digest;
        line.kernel_ns = verdict->kernel_ns;
        if (sim_evidence_add(evidence, &line, err, err_len) != 0) return -1;
    }
    return 0;
}

static int make_jobs(const struct sim_evidence_question *question, struct sim_evidence *evidence,
                     bool *usage, char *err, size_t err_len)
{
    size_t count = 0;
    uint32_t gpus = 0, described = 0;
    const struct sim_job *jobs = sim_jobs(&count);
    struct sim_evidence_line line = {0};

    if (gpu_count(&gpus, err, err_len) != 0) return -1;
    for (size_t i = 0; i < count; i++) {
        struct sim_job_result result;

        if (sim_job_needs_trace(&jobs[i], &result) && question->routing == NULL) continue;
        if (jobs[i].gpus > gpus) continue;
        if (described != jobs[i].gpus && describe(jobs[i].gpus, &line, err, err_len) != 0)
            return -1;
        described = jobs[i].gpus;
        if (sim_job_play(&jobs[i], "cuda", question->routing, question->offsets, &result, usage,
                         err, err_len) != 0)
            return -1;
        snprintf(line.kind, sizeof line.kind, "%s", jobs[i].kind);
        snprintf(line.name, sizeof line.name, "%s", jobs[i].name);
        line.input = result.input;
        line.output = result.output;
        if (sim_evidence_add(evidence, &line, err, err_len) != 0) return -1;
    }
    return 0;
}

int sim_evidence_make(const struct sim_evidence_question *question, struct sim_evidence *evidence,
                      struct sim_verify_report *cases, bool *usage, char *err, size_t err_len)
{
    struct sim_case_verdict *verdicts =
        (struct sim_case_verdict *)calloc(question->table->count, sizeof *verdicts);
    int status = -1;

    memset(evidence, 0, sizeof *evidence);
    *usage = false;
    if (verdicts == NULL)
        snprintf(err, err_len, "record: out of memory");
    else
        status = make_cases(question, evidence, verdicts, cases, usage, err, err_len);
    if (status == 0) status = make_jobs(question, evidence, usage, err, err_len);
    free(verdicts);
    if (status != 0) sim_evidence_free(evidence);
    return status;
}
