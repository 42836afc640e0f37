/* traces/file.c - reads or maps a whole file; writes one beside its place and renames it. */
#include "traces/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "traces/text.h"

enum { OUTPUT_BUFFER_BYTES = 1 << 18, TEMPORARY_TRIES = 100, READ_BYTES_MAX = 1 << 30 };

struct trace_output {
    char *path;      /* What rename replaces: links already followed. */
    char *temporary; /* NULL: written directly. */
    int fd;
    size_t used;
    unsigned char buffer[OUTPUT_BUFFER_BYTES];
};

/* A file that somebody cuts short while it is mapped ends the process by SIGBUS. So files are read,
 * into memory that is given back like a mapping; only huge ones are mapped after all. */
static void *read_whole(int fd, size_t bytes)
{
    uint8_t *memory =
        (uint8_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t have = 0;

    if (memory == MAP_FAILED) return MAP_FAILED;
    while (have < bytes) {
        const ssize_t count = read(fd, memory + have, bytes - have);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            const int why = count == 0 ? ENODATA : errno;
            (void)munmap(memory, bytes);
            errno = why;
            return MAP_FAILED;
        }
        have += (size_t)count;
    }
    return memory;
}

/* Bring in what fd holds. An empty file has nothing, so it gets a constant to point at. */
static int map_whole(int fd, const char *path, const uint8_t **data, uint64_t *bytes, char *err,
                     size_t err_len)
{
    static const uint8_t nothing[8] = {0};
    struct stat status;
    if (fstat(fd, &status) != 0)
        return trace_fail(err, err_len, "%s: cannot look at it: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return trace_fail(err, err_len, "%s: is a folder, expected a file", path);
    if (!S_ISREG(status.st_mode))
        return trace_fail(err, err_len, "%s: is not a regular file", path);
    assert(status.st_size >= 0);
    if (status.st_size == 0) {
        *data = nothing;
        *bytes = 0;
        return 0;
    }
    const size_t size = (size_t)status.st_size;
    void *map = status.st_size <= READ_BYTES_MAX ? read_whole(fd, size)
                                                 : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return trace_fail(err, err_len, "%s: cannot read its %lld bytes: %s", path,
                          (long long)status.st_size,
                          errno == ENODATA ? "it became shorter meanwhile" : strerror(errno));
    *data = (const uint8_t *)map;
    *bytes = (uint64_t)status.st_size;
    return 0;
}

int trace_file_open(const char *path, struct trace_file *file, char *err, size_t err_len)
{
    assert(path != NULL && file != NULL);
    struct trace_file made = {NULL, NULL, 0};

    /* Without O_NONBLOCK, opening a pipe that nobody writes would wait for ever. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return trace_fail(err, err_len, "%s: %s", path, strerror(errno));
    if (map_whole(fd, path, &made.data, &made.bytes, err, err_len) != 0) goto close_fd;
    made.path = strdup(path);
    if (made.path == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        goto unmap;
    }
    close(fd);
    *file = made;
    return 0;

unmap:
    trace_file_close(&made);
close_fd:
    close(fd);
    return -1;
}

void trace_file_close(struct trace_file *file)
{
    assert(file != NULL);
    if (file->bytes > 0) {
        /* munmap takes a pointer to non-const; nothing is written through it. */
        const uintptr_t address = (uintptr_t)file->data;
        const int status = munmap((void *)address, (size_t)file->bytes);
        assert(status == 0);
        (void)status;
    }
    free(file->path);
    memset(file, 0, sizeof *file);
}

/* Open path + ".tmp-PID-N", which must not exist. The name is left in output->temporary. */
static int open_temporary(struct trace_output *output, char *err, size_t err_len)
{
    const size_t name_bytes = strlen(output->path) + 48;
    output->temporary = (char *)malloc(name_bytes);
    if (output->temporary == NULL)
        return trace_fail(err, err_len, "%s: out of memory", output->path);
    for (int i = 0; i < TEMPORARY_TRIES; i++) {
        snprintf(output->temporary, name_bytes, "%s.tmp-%ld-%d", output->path, (long)getpid(), i);
        output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (output->fd >= 0) return 0;
        if (errno != EEXIST) break;
    }
    trace_fail(err, err_len, "%s: cannot create it: %s", output->path, strerror(errno));
    free(output->temporary);
    output->temporary = NULL;
    return -1;
}

static int open_target(struct trace_output *output, char *err, size_t err_len)
{
    struct stat status;
    const bool exists = stat(output->path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode))
        return trace_fail(err, err_len, "%s: is a folder, expected a file", output->path);
    if (!exists || S_ISREG(status.st_mode)) return open_temporary(output, err, err_len);
    output->fd = open(output->path, O_WRONLY | O_CLOEXEC);
    if (output->fd < 0)
        return trace_fail(err, err_len, "%s: cannot write it: %s", output->path, strerror(errno));
    return 0;
}

struct trace_output *trace_output_open(const char *path, char *err, size_t err_len)
{
    assert(path != NULL);
    if (path[0] == '\0') {
        trace_fail(err, err_len, "the name of an output file is empty");
        return NULL;
    }
    struct trace_output *output = (struct trace_output *)calloc(1, sizeof *output);
    if (output == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        return NULL;
    }
    output->fd = -1;
    /* A link is followed, so that rename replaces the file and not the link. */
    output->path = realpath(path, NULL);
    if (output->path == NULL) output->path = strdup(path);
    if (output->path == NULL) {
        trace_fail(err, err_len, "%s: out of memory", path);
        goto free_output;
    }
    if (open_target(output, err, err_len) != 0) goto free_output;
    return output;

free_output:
    trace_output_abandon(output);
    return NULL;
}

static int write_out(struct trace_output *output, const void *data, size_t bytes, char *err,
                     size_t err_len)
{
    assert(output->fd >= 0);
    const unsigned char *from = (const unsigned char *)data;
    while (bytes > 0) {
        const ssize_t written = write(output->fd, from, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return trace_fail(err, err_len, "%s: cannot write: %s", output->path,
                              written < 0 ? strerror(errno) : "the device takes nothing");
        from += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static int flush(struct trace_output *output, char *err, size_t err_len)
{
    const size_t used = output->used;
    output->used = 0;
    return write_out(output, output->buffer, used, err, err_len);
}

int trace_output_write(struct trace_output *output, const void *data, size_t bytes, char *err,
                       size_t err_len)
{
    assert(output != NULL && output->fd >= 0);
    assert(data != NULL || bytes == 0);
    if (bytes == 0) return 0;
    if (bytes > OUTPUT_BUFFER_BYTES - output->used) {
        if (flush(output, err, err_len) != 0) return -1;
        if (bytes >= OUTPUT_BUFFER_BYTES) return write_out(output, data, bytes, err, err_len);
    }
    memcpy(output->buffer + output->used, data, bytes);
    output->used += bytes;
    assert(output->used <= OUTPUT_BUFFER_BYTES);
    return 0;
}

int trace_output_commit(struct trace_output *output, char *err, size_t err_len)
{
    assert(output != NULL && output->fd >= 0);
    if (flush(output, err, err_len) != 0) goto abandon;
    if (output->temporary != NULL) {
        if (fsync(output->fd) != 0 || rename(output->temporary, output->path) != 0) {
            trace_fail(err, err_len, "%s: cannot finish it: %s", output->path, strerror(errno));
            goto abandon;
        }
        free(output->temporary);
        output->temporary = NULL; /* Nothing left for abandon to remove. */
    }
    const int status = close(output->fd);
    output->fd = -1;
    if (status != 0) {
        trace_fail(err, err_len, "%s: cannot close it: %s", output->path, strerror(errno));
        goto abandon;
    }
    trace_output_abandon(output);
    return 0;

abandon:
    trace_output_abandon(output);
    return -1;
}

void trace_output_abandon(struct trace_output *output)
{
    if (output == NULL) return;
    if (output->fd >= 0) close(output->fd);
    if (output->temporary != NULL) {
        unlink(output->temporary);
        free(output->temporary);
    }
    free(output->path);
    free(output);
}
