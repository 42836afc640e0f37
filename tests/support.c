/* tests/support.c - data, scratch folders, files and commands for tests. Check's own macros report
 * what fails here. */
#include "tests/support.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef TEST_TREE
#error "the Makefile says where the tree is"
#endif

/* Every string handed out hangs here, so that a leak checker sees it is still held. */
struct held {
    struct held *next;
    char text[];
};
static struct held *held_strings;

static char *hold(size_t bytes)
{
    struct held *held = (struct held *)malloc(sizeof(*held) + bytes);
    ck_assert_msg(held != NULL, "out of memory");
    held->next = held_strings;
    held_strings = held;
    return held->text;
}

const char *test_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ck_assert_int_ge(length, 0);
    char *text = hold((size_t)length + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

const char *test_join(const char *folder, const char *name)
{
    return test_format("%s/%s", folder, name);
}

bool test_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

const char *test_data(void)
{
    const char *folder = getenv("EPSIM_DATA");
    return folder != NULL && folder[0] != '\0' ? folder : NULL;
}

const char *test_data_path(const char *name)
{
    if (test_data() == NULL) return NULL;
    const char *path = test_join(test_data(), name);
    return test_exists(path) ? path : NULL;
}

const char *test_tree_path(const char *name)
{
    return test_join(TEST_TREE, name);
}

const char *test_epsim(void)
{
    const char *chosen = getenv("EPSIM_BIN");
    if (chosen != NULL) return chosen;
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    ck_assert_msg(length > 0, "/proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    return test_join(self, "epsim");
}

bool test_quick(void)
{
    return getenv("EPSIM_QUICK") != NULL;
}

bool test_least(void)
{
    const char *quick = getenv("EPSIM_QUICK");
    return quick != NULL && strcmp(quick, "2") == 0;
}

/* A forked test can tell the runner nothing but pass or fail, so the reason travels in a
 * file. One write of one line: tests of several processes may append at once. */
void test_skip_named(const char *test, const char *reason)
{
    const char *path = getenv("EPSIM_TEST_SKIPS");
    if (path == NULL) return;
    size_t name_bytes = strlen(test);
    if (name_bytes > 3 && strcmp(test + name_bytes - 3, "_fn") == 0) name_bytes -= 3;
    char line[512];
    const int bytes = snprintf(line, sizeof(line), "%s\t%.*s\n", reason, (int)name_bytes, test);
    ck_assert_int_lt(bytes, (int)sizeof(line));
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    ck_assert_msg(file >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(file, line, (size_t)bytes), bytes);
    close(file);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

void test_remove(const char *folder)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Folders to remove at exit: those made by this process, not by the one it was forked from. */
static struct {
    const char *path;
    pid_t owner;
} temp_dirs[64];
static size_t temp_dir_count;

static void remove_temp_dirs(void)
{
    for (size_t i = 0; i < temp_dir_count; i++)
        if (temp_dirs[i].owner == getpid()) test_remove(temp_dirs[i].path);
}

const char *test_temp_dir(void)
{
    const char *root = getenv("EPSIM_TEST_TEMP");
    if (root == NULL) root = getenv("TMPDIR");
    char *path = hold(4096);
    snprintf(path, 4096, "%s/epsim-test-XXXXXX", root != NULL ? root : "/tmp");
    ck_assert_msg(mkdtemp(path) != NULL, "%s: %s", path, strerror(errno));

    ck_assert_uint_lt(temp_dir_count, sizeof(temp_dirs) / sizeof(temp_dirs[0]));
    if (temp_dir_count == 0) atexit(remove_temp_dirs);
    temp_dirs[temp_dir_count].path = path;
    temp_dirs[temp_dir_count++].owner = getpid();
    return path;
}

const char *test_write(const char *folder, const char *name, const void *data, size_t bytes)
{
    const char *path = test_join(folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

const char *test_write_text(const char *folder, const char *name, const char *text)
{
    return test_write(folder, name, text, strlen(text));
}

/* Text grows by doubling: what is read may be a pipe, which does not know its size. */
struct growing {
    char *text;
    size_t bytes, room;
};

/* Append what one read() gives. False at the end of the file. */
static bool read_some(int file, struct growing *growing)
{
    if (growing->room - growing->bytes < 2) {
        const size_t room = growing->room * 2 + 4096;
        char *text = hold(room);
        if (growing->bytes > 0) memcpy(text, growing->text, growing->bytes);
        growing->text = text;
        growing->room = room;
    }
    const ssize_t got =
        read(file, growing->text + growing->bytes, growing->room - growing->bytes - 1);
    ck_assert_msg(got >= 0 || errno == EINTR, "read: %s", strerror(errno));
    if (got > 0) growing->bytes += (size_t)got;
    growing->text[growing->bytes] = '\0';
    return got != 0;
}

char *test_read(const char *path, size_t *bytes)
{
    const int file = open(path, O_RDONLY);
    ck_assert_msg(file >= 0, "%s: %s", path, strerror(errno));
    struct growing content = {0};
    while (read_some(file, &content)) continue;
    close(file);
    if (bytes != NULL) *bytes = content.bytes;
    return content.text;
}

/* In the forked child: never returns. */
static void become(const char *const argv[], int out, int err)
{
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv); /* exec's own type lacks the const */
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int test_run(const char *const argv[], struct test_output *output)
{
    int out[2], err[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
    const pid_t child = fork();
    ck_assert_msg(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) become(argv, out[1], err[1]);
    close(out[1]);
    close(err[1]);

    /* Both pipes at once, or a child that fills one while we wait on the other would hang. */
    struct growing texts[2] = {{0}, {0}};
    struct pollfd ends[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends, 2, -1) < 0) continue;
        for (int i = 0; i < 2; i++)
            if (ends[i].fd >= 0 && ends[i].revents != 0 && !read_some(ends[i].fd, &texts[i]))
                ends[i].fd = -1;
    }
    close(out[0]);
    close(err[0]);

    int wait_status = 0;
    while (waitpid(child, &wait_status, 0) < 0) ck_assert_int_eq(errno, EINTR);
    *output = (struct test_output){.out = texts[0].text,
                                   .out_bytes = texts[0].bytes,
                                   .err = texts[1].text,
                                   .err_bytes = texts[1].bytes};
    output->status =
        WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    return output->status;
}

bool test_has_program(const char *name)
{
    const char *rest = getenv("PATH");
    while (rest != NULL && rest[0] != '\0') {
        const size_t bytes = strcspn(rest, ":");
        char path[4096];
        snprintf(path, sizeof(path), "%.*s/%s", (int)bytes, rest, name);
        if (access(path, X_OK) == 0) return true;
        rest += bytes + (rest[bytes] == ':');
    }
    return false;
}
