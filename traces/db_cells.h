/* traces/db_cells.h - the cells of earlier sweeps, to go on where they stopped. */
#ifndef TRACES_DB_CELLS_H
#define TRACES_DB_CELLS_H

#include <stddef.h>
#include "traces/db_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One cell; strings are borrowed for the call. */
typedef void (*trace_cell_fn)(void *context, const char *settings_digest, const char *state,
                              const char *summary_json);

/* Call take for every cell of every run of the file that tool_version recorded, in the order of
 * recording. 0, or -1 with err. */
int trace_reader_cells(struct trace_reader *reader, const char *tool_version, trace_cell_fn take,
                       void *context, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
