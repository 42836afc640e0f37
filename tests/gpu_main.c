/* tests/gpu_main.c - run the suites that need a GPU, in one process, and count once.
 *
 * usage: test-gpu [SUITE...]
 *
 * Without a GPU it says so and exits 0: nothing was tested, and the count says that too. Check's
 * own time limits need a fork, so the caller limits the whole program (make test-gpu does). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_support.h"

#define SUITE(name) Suite *gpu_##name##_suite(void);
#include "gen/gpu_suites.inc"
#undef SUITE

static const struct {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
#define SUITE(name) {#name, gpu_##name##_suite},
#include "gen/gpu_suites.inc"
#undef SUITE
};

enum { SUITE_COUNT = sizeof(suites) / sizeof(suites[0]) };

static uint32_t gpu_count;

uint32_t test_gpu_count(void)
{
    return gpu_count;
}

static int find(const char *name)
{
    for (int i = 0; i < SUITE_COUNT; i++)
        if (strcmp(suites[i].name, name) == 0) return i;
    return -1;
}

int main(int argc, char **argv)
{
    SRunner *runner = srunner_create(NULL);
    char err[256] = "";

    if (gpu_device_count(&gpu_count, err, sizeof err) != 0) {
        printf("SKIPPED, nothing on a GPU was tested: %s\n", err);
        puts("100%: Checks: 0, Failures: 0, Errors: 0");
        srunner_free(runner);
        return 0;
    }
    printf("on %u GPU%s\n", gpu_count, gpu_count > 1 ? "s" : "");
    for (int a = 1; a < argc; a++) {
        const int suite = find(argv[a]);
        if (suite < 0) {
            fprintf(stderr, "%s: no such suite\n", argv[a]);
            srunner_free(runner);
            return 2;
        }
        srunner_add_suite(runner, suites[suite].make());
    }
    for (int i = 0; argc == 1 && i < SUITE_COUNT; i++) srunner_add_suite(runner, suites[i].make());
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
