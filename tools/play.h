/* tools/play.h - what `run` and `replay` have in common: everything but where routing is from. */
#ifndef TOOLS_PLAY_H
#define TOOLS_PLAY_H

#include "tools/commands.h"

/* Play a run as the command line says and print its result. command: the words as given, for
 * the database. Exit status: 0; 1 when the data path found a mismatch; 2; 3. */
int play_run(const struct command_line *line, int argc, char **argv);

/* The flags both take, for their specs. */
extern const struct command_flag PLAY_FLAGS[];

#endif
