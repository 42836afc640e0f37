/* tests/gpu_direct_stuck.c - a wait that nothing ends is ended, and named.
 *
 * The GPU's context is lost by that, so it happens in a process of its own: this program again,
 * told by EPSIM_TEST_STUCK what to do. */
#include <stdio.h>
#include <unistd.h>

#include "tests/gpu_direct.h"
#include "tests/support.h"

Suite *gpu_direct_stuck_suite(void);

enum { STUCK_STATUS = 7 };

/* Held, and never told to go. */
static void get_stuck(void)
{
    const struct gpu_direct_shape shape = {.ranks = 1,
                                           .experts = 1,
                                           .topk = 1,
                                           .hidden = 512,
                                           .tokens_max = 1,
                                           .wait_ns = 50000000,
                                           .ll = true};
    const struct gpu_part none = {NULL, 1, 16};
    struct gpu_direct *direct = NULL;
    struct gpu *gpu = test_gpu_open(0);
    char err[256] = "";

    TEST_GPU(gpu_plan, gpu, 1, &none, 1);
    TEST_GPU(gpu_direct_open, gpu, &shape, &direct);
    TEST_GPU(gpu_direct_hold, direct);
    const int status = gpu_direct_wait(direct, err, sizeof err);
    printf("%s\n", err);
    fflush(stdout);
    _exit(status == -1 ? STUCK_STATUS : 0);
}

START_TEST(a_wait_that_lasts_too_long_is_ended_and_named)
{
    struct test_output output;
    char self[4096];

    if (getenv("EPSIM_TEST_STUCK") != NULL) get_stuck();
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(length, 0);
    self[length] = '\0';
    ck_assert_int_eq(setenv("EPSIM_TEST_STUCK", "1", 1), 0);
    const int status = test_run((const char *const[]){self, "direct_stuck", NULL}, &output);
    unsetenv("EPSIM_TEST_STUCK");
    ck_assert_msg(status == STUCK_STATUS &&
                      strstr(output.out, "rank 0 block 0 waited too long for "
                                         "the word to go 0: 0 seen, 1 wanted"),
                  "status %d: %s%s", status, output.out, output.err);
}
END_TEST

Suite *gpu_direct_stuck_suite(void)
{
    Suite *suite = suite_create("gpu_direct_stuck");
    TCase *tcase = tcase_create("direct_stuck");
    tcase_add_test(tcase, a_wait_that_lasts_too_long_is_ended_and_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
