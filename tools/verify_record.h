/* tools/verify_record.h - `epsim verify --record FILE` and `--recorded FILE`. */
#ifndef TOOLS_VERIFY_RECORD_H
#define TOOLS_VERIFY_RECORD_H

#include "tools/commands.h"

/* Hold a record against the reference and print the count. Returns the exit status: 1 unless every
 * line matches. */
int verify_recorded(const struct command_line *line, const char *path);

/* Compute everything on this machine's GPUs, write it to path, then hold it against the reference
 * as above. */
int verify_record(const struct command_line *line, const char *path);

#endif
