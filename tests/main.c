/* tests/main.c - run every suite, each test in a process of its own, and count once.
 *
 * usage: test-runner [--list] [SUITE...]
 *
 * The suites come from the names of tests/test_*.c (gen/suites.inc). Suites run side by side,
 * EPSIM_TEST_JOBS at a time (all cores), each by its own Check runner in a worker process; the
 * workers' counts meet in shared memory. Standard output ends with what failed, what was
 * skipped and why, and last the count over all suites in the form that Check prints it. */
#include <assert.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/support.h"

#define SUITE(name) Suite *name##_suite(void);
#include "gen/suites.inc"
#undef SUITE

static const struct {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
#define SUITE(name) {#name, name##_suite},
#include "gen/suites.inc"
#undef SUITE
};

enum { SUITE_COUNT = sizeof(suites) / sizeof(suites[0]) };

/* One suite's result, written by its worker and read by main once the worker has ended. */
struct result {
    int checks, failures, errors;
    bool complete; /* The worker got as far as counting. */
};

struct worker {
    pid_t process; /* 0: not started. */
    double start_s;
};

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *report_path(const char *folder, size_t suite)
{
    static char path[4200];
    snprintf(path, sizeof(path), "%s/%s.report", folder, suites[suite].name);
    return path;
}

/* In the worker: what a suite prints goes to its report, so that suites do not mix. */
static void run_suite(const char *folder, size_t suite, struct result *result)
{
    const int report = open(report_path(folder, suite), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (report < 0) _exit(3);
    dup2(report, STDOUT_FILENO);
    dup2(report, STDERR_FILENO);

    SRunner *runner = srunner_create(suites[suite].make());
    srunner_run_all(runner, CK_SILENT);
    result->checks = srunner_ntests_run(runner);
    TestResult **failed = srunner_failures(runner);
    for (int i = 0; i < srunner_ntests_failed(runner); i++) {
        if (tr_rtype(failed[i]) == CK_FAILURE)
            result->failures++;
        else
            result->errors++;
    }
    result->complete = true;
    if (result->failures + result->errors > 0) srunner_print(runner, CK_NORMAL);
    free(failed);
    srunner_free(runner);
    fflush(NULL);
    _exit(0);
}

/* Wait for one worker, take its result, and say how it went. */
static void reap(struct worker *workers, struct result *results)
{
    int status = 0;
    const pid_t process = wait(&status);
    if (process < 0) return; /* A signal asked to stop; the workers end by themselves. */
    size_t suite = 0;
    while (suite < SUITE_COUNT && workers[suite].process != process) suite++;
    if (suite == SUITE_COUNT) return;

    struct result *result = &results[suite];
    if (!result->complete) result->errors++;
    const int bad = result->failures + result->errors;
    printf("%-24s %5d checks %8.2f s", suites[suite].name, result->checks,
           now_s() - workers[suite].start_s);
    if (!result->complete)
        printf("  the suite itself died (wait status %d)", status);
    else if (bad > 0)
        printf("  %d failed", bad);
    putchar('\n');
    fflush(stdout);
    workers[suite].process = 0;
}

static void run_wanted(const char *folder, const bool *wanted, struct result *results)
{
    struct worker workers[SUITE_COUNT] = {0};
    const char *jobs_text = getenv("EPSIM_TEST_JOBS");
    long jobs = jobs_text != NULL ? atol(jobs_text) : sysconf(_SC_NPROCESSORS_ONLN);
    if (jobs < 1) jobs = 1;

    long running = 0;
    for (size_t i = 0; i < SUITE_COUNT && !stopped; i++) {
        if (!wanted[i]) continue;
        if (running == jobs) {
            reap(workers, results);
            running--;
        }
        fflush(stdout);
        workers[i].start_s = now_s();
        workers[i].process = fork();
        if (workers[i].process == 0) run_suite(folder, i, &results[i]);
        assert(workers[i].process > 0);
        running++;
    }
    for (; running > 0; running--) reap(workers, results);
}

static void print_failures(const char *folder, const struct result *results)
{
    for (size_t i = 0; i < SUITE_COUNT; i++) {
        if (results[i].failures + results[i].errors == 0) continue;
        printf("--- %s\n", suites[i].name);
        FILE *report = fopen(report_path(folder, i), "r");
        if (report == NULL) continue;
        for (int c = getc(report); c != EOF; c = getc(report)) putchar(c);
        fclose(report);
    }
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The file holds "reason TAB test" lines in the order of running; a looped test stands there
 * once per round. Sorted, equal lines and equal reasons are neighbours. */
static void print_skips(const char *path)
{
    static char text[1 << 20]; /* support.c's reader fails tests, and none is running here. */
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);

    char *lines[4096];
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line != NULL && count < 4096; line = strtok(NULL, "\n"))
        lines[count++] = line;
    qsort(lines, count, sizeof(lines[0]), compare_lines);

    for (size_t first = 0; first < count;) {
        const size_t reason_bytes = strcspn(lines[first], "\t") + 1;
        size_t tests = 0, end = first;
        for (; end < count && strncmp(lines[end], lines[first], reason_bytes) == 0; end++)
            tests += end == first || strcmp(lines[end], lines[end - 1]) != 0;
        printf("skipped %zu: %.*s\n", tests, (int)reason_bytes - 1, lines[first]);
        for (size_t i = first; i < end; i++)
            if (i == first || strcmp(lines[i], lines[i - 1]) != 0)
                printf("    %s\n", lines[i] + reason_bytes);
        first = end;
    }
}

/* Check's own last line, summed over the workers. */
static int print_count(const struct result *results)
{
    struct result sum = {0};
    for (size_t i = 0; i < SUITE_COUNT; i++) {
        sum.checks += results[i].checks;
        sum.failures += results[i].failures;
        sum.errors += results[i].errors;
    }
    const int bad = sum.failures + sum.errors;
    const int good = sum.checks > bad ? sum.checks - bad : 0;
    const int percent = sum.checks > 0 ? good * 100 / sum.checks : bad == 0 ? 100 : 0;
    printf("%d%%: Checks: %d, Failures: %d, Errors: %d\n", percent, sum.checks, sum.failures,
           sum.errors);
    return bad;
}

/* Which suites the arguments ask for; none means all. -1 after naming an unknown one. */
static int choose(int argc, char **argv, bool *wanted)
{
    for (size_t i = 0; i < SUITE_COUNT; i++) wanted[i] = argc == 1;
    for (int a = 1; a < argc; a++) {
        size_t i = 0;
        while (i < SUITE_COUNT && strcmp(argv[a], suites[i].name) != 0) i++;
        if (i == SUITE_COUNT) {
            fprintf(stderr, "%s: no such suite (%s --list names them)\n", argv[a], argv[0]);
            return -1;
        }
        wanted[i] = true;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool wanted[SUITE_COUNT];
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < SUITE_COUNT; i++) puts(suites[i].name);
        return 0;
    }
    if (choose(argc, argv, wanted) < 0) return 2;

    struct result *results =
        (struct result *)mmap(NULL, sizeof(*results) * SUITE_COUNT, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *root = getenv("TMPDIR");
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s/epsim-tests-XXXXXX", root != NULL ? root : "/tmp");
    if (results == MAP_FAILED || mkdtemp(folder) == NULL) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        return 3;
    }
    /* Check's own limit of 4 s is too short on a loaded machine. */
    setenv("CK_DEFAULT_TIMEOUT", "120", 0);
    setenv("EPSIM_TEST_TEMP", folder, 1);
    char skips[4200];
    snprintf(skips, sizeof(skips), "%s/skips", folder);
    setenv("EPSIM_TEST_SKIPS", skips, 1);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    run_wanted(folder, wanted, results);
    print_failures(folder, results);
    print_skips(skips);
    const int bad = print_count(results);
    test_remove(folder);
    return bad == 0 && !stopped ? 0 : 1;
}
