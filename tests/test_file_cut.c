/* tests/test_file_cut.c - a file that is cut short while it is mapped is one line and no crash.
 *
 * Method: a process of its own maps a file, cuts it and touches what is gone. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/support.h"
#include "traces/file.h"
#include "traces/file_cut.h"

Suite *file_cut_suite(void);

enum { PAGE = 4096 };

/* Do it in a child; what it wrote to standard error is in text. Returns its wait status. */
static int in_child(void (*work)(const char *path), const char *path, char *text, size_t text_len)
{
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t bytes = 0;
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        work(path);
        _exit(0);
    }
    close(ends[1]);
    while (used + 1 < text_len && (bytes = read(ends[0], text + used, text_len - 1 - used)) > 0)
        used += (size_t)bytes;
    text[used] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static const char *write_sized(const char *name, off_t bytes)
{
    const char *path = test_write_text(test_temp_dir(), name, "x");
    ck_assert_int_eq(truncate(path, bytes), 0); /* A hole: no bytes on disk. */
    return path;
}

static void touch_small(const char *path)
{
    const int fd = open(path, O_RDONLY);
    const volatile char *map =
        (const volatile char *)mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    trace_file_cut_watch();
    if (map == MAP_FAILED || truncate(path, PAGE) != 0 || map[0] != 'x') _exit(9);
    (void)map[2 * PAGE];
}

static void touch_large(const char *path)
{
    struct trace_file file;
    char err[256];
    trace_file_cut_watch();
    if (trace_file_open(path, &file, err, sizeof err) != 0 || truncate(path, PAGE) != 0) _exit(9);
    (void)*(const volatile uint8_t *)&file.data[(size_t)1 << 29];
}

static void send_oneself(const char *path)
{
    (void)path;
    trace_file_cut_watch();
    (void)raise(SIGBUS);
}

START_TEST(a_cut_file_is_named_and_the_status_is_3)
{
    char text[1024];
    const char *small = write_sized("small one", 3 * PAGE);
    const int status = in_child(touch_small, small, text, sizeof text);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 3, "%x", (unsigned)status);
    ck_assert_str_eq(text, test_format("epsim: %s: became shorter while it was read\n", small));
}
END_TEST

START_TEST(so_is_one_that_is_too_large_to_be_read)
{
    char text[1024];
    const char *large = write_sized("large", ((off_t)1 << 30) + PAGE);
    const int status = in_child(touch_large, large, text, sizeof text);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 3, "%x: %s", (unsigned)status, text);
    ck_assert_str_eq(text, test_format("epsim: %s: became shorter while it was read\n", large));
}
END_TEST

START_TEST(another_bus_error_is_what_it_was)
{
    char text[1024];
    const int status = in_child(send_oneself, "", text, sizeof text);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    ck_assert_str_eq(text, "");
}
END_TEST

Suite *file_cut_suite(void)
{
    Suite *suite = suite_create("file_cut");
    TCase *tcase = tcase_create("file_cut");
    tcase_add_test(tcase, a_cut_file_is_named_and_the_status_is_3);
    tcase_add_test(tcase, so_is_one_that_is_too_large_to_be_read);
    tcase_add_test(tcase, another_bus_error_is_what_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}
