/* traces/file_cut.h - a mapped file that somebody cuts short ends the program in one line.
 *
 * trace_file_open maps what is too large to read. When another process makes such a file shorter,
 * the next touch of a page that is gone is a SIGBUS, which no caller can catch where it happens. */
#ifndef TRACES_FILE_CUT_H
#define TRACES_FILE_CUT_H

#ifdef __cplusplus
extern "C" {
#endif

enum { TRACE_FILE_CUT_STATUS = 3 }; /* The environment failed. */

/* For main() alone, before threads: from here on such a touch writes "epsim: PATH: became shorter
 * while it was read" to standard error and ends the process with TRACE_FILE_CUT_STATUS, as at once
 * as the signal would have (what was being written is left as by a kill). Any other SIGBUS does
 * what it did. */
void trace_file_cut_watch(void);

#ifdef __cplusplus
}
#endif

#endif
