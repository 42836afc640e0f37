/* traces/file.h - whole files in, whole files out.
 *
 * Input up to a gigabyte is read, so nothing that happens to the file later matters; what is larger
 * is mapped read-only, so a trace of many gigabytes costs no copy. Output is written
 * beside its target and renamed over it once it is all on disk: a reader sees the old file or
 * the new one, never half of one. */
#ifndef TRACES_FILE_H
#define TRACES_FILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct trace_file {
    char *path;          /* As given to open; owned. */
    const uint8_t *data; /* The bytes; valid until close. Never NULL after open. */
    uint64_t bytes;
};

/* Bring in a regular file. Where somebody shortens one of more than a gigabyte meanwhile, the first
 * touch of a page that is gone is a SIGBUS: traces/file_cut.h makes a line of it. 0, or -1 with
 * "PATH: why" in err; *file is written only on success. */
int trace_file_open(const char *path, struct trace_file *file, char *err, size_t err_len);
void trace_file_close(struct trace_file *file); /* Safe on a zeroed struct and twice. */

struct trace_output; /* A file being written. */

/* Begin to write path. A target that exists and is neither a regular file nor a folder (a pipe,
 * /dev/null) is written directly. NULL with a line in err on failure. */
struct trace_output *trace_output_open(const char *path, char *err, size_t err_len);
int trace_output_write(struct trace_output *output, const void *data, size_t bytes, char *err,
                       size_t err_len);

/* Flush, sync, rename over the target, and free output, whatever the outcome. After -1 the
 * target is what it was before. */
int trace_output_commit(struct trace_output *output, char *err, size_t err_len);

/* Give up: remove what was written and free output. NULL is fine. */
void trace_output_abandon(struct trace_output *output);

#ifdef __cplusplus
}
#endif

#endif
