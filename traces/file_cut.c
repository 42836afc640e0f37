/* traces/file_cut.c - see file_cut.h. Everything here runs inside a signal handler but the last
 * function, so it makes system calls and no others. */
#include "traces/file_cut.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 + 256, CHUNK_BYTES = 1024 }; /* A path, and what stands before it. */

/* Hexadecimal digits at *text, which is moved past them. */
static uintptr_t parse_hex(const char **text)
{
    uintptr_t value = 0;
    for (;; (*text)++) {
        const char c = **text;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* The file of a line of /proc/self/maps ("FROM-TO rwxp OFFSET DEVICE INODE   PATH") when it holds
 * the address, else NULL. */
static const char *find_in_line(const char *line, uintptr_t address)
{
    const uintptr_t from = parse_hex(&line);
    if (*line++ != '-') return NULL;
    const uintptr_t to = parse_hex(&line);
    return address >= from && address < to ? strchr(line, '/') : NULL;
}

/* The file that is mapped at the address; its path is in line. NULL when there is none. */
static const char *find_file(uintptr_t address, char line[LINE_BYTES])
{
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const char *path = NULL;
    char chunk[CHUNK_BYTES];
    size_t used = 0;
    ssize_t bytes = 0;

    while (fd >= 0 && path == NULL && (bytes = read(fd, chunk, sizeof chunk)) > 0) {
        for (ssize_t i = 0; i < bytes && path == NULL; i++) {
            if (chunk[i] != '\n') {
                if (used + 1 < LINE_BYTES) line[used++] = chunk[i];
                continue;
            }
            assert(used < LINE_BYTES);
            line[used] = '\0';
            used = 0;
            path = find_in_line(line, address);
        }
    }
    if (fd >= 0) (void)close(fd);
    return path;
}

static void say(const char *text)
{
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* There is nobody else to tell. */
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    char line[LINE_BYTES];
    const char *path =
        info->si_code == BUS_ADRERR ? find_file((uintptr_t)info->si_addr, line) : NULL;
    (void)context;
    if (path == NULL) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* Held back until this returns. */
        return;
    }
    say("epsim: ");
    say(path);
    say(": became shorter while it was read\n");
    _exit(TRACE_FILE_CUT_STATUS);
}

void trace_file_cut_watch(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&action.sa_mask);
    const int status = sigaction(SIGBUS, &action, NULL);
    assert(status == 0);
    (void)status;
}
