/* tests/main.c - run every suite, each test in a process of its own, and count once.
 *
 * usage: test-runner [--list] [SUITE...]
 *
 * The suites come from the names of tests/test_*.c (gen/suites.inc). Skipped tests are listed
 * before the count, which is Check's own line and the last on standard output. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    {NULL, NULL}};

int main(int argc, char **argv)
{
    setenv("CK_DEFAULT_TIMEOUT", "120", 0);
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; suites[i].name != NULL; i++) puts(suites[i].name);
        return 0;
    }
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; suites[i].name != NULL; i++) {
        bool wanted = argc == 1;
        for (int a = 1; a < argc; a++) wanted = wanted || strcmp(argv[a], suites[i].name) == 0;
        if (wanted) srunner_add_suite(runner, suites[i].make());
    }
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
