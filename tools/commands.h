/* tools/commands.h - what every subcommand shares: its declaration and its command line.
 *
 * A command is one file, tools/cmd_NAME.c, with one function that returns the exit status:
 * 0 success, 1 the answer is no, 2 the question could not be asked, 3 the environment failed. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/settings.h"

enum { EXIT_OK = 0, EXIT_NO = 1, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3 };

/* An option of one command alone, beside those of sim/settings.h. */
struct command_flag {
    const char *name;  /* Without dashes. */
    const char *value; /* Name of its value in help, or NULL for a plain flag; one that begins with
                          '[' may be left out where an option or nothing follows: then "". */
    const char *help;
};

struct command_spec {
    const char *name;
    const char *arguments;            /* In the usage line: "TRACE", "A B", "". */
    const char *summary;              /* One line. */
    const char *example;              /* One whole command. */
    const char *const *options;       /* Names from sim_options(), NULL-terminated, or NULL. */
    const struct command_flag *flags; /* Ends with a NULL name, or NULL. */
    const char *notes;                /* Lines below the options, each with its end; or NULL. */
    size_t arguments_min, arguments_max;
};

enum {
    COMMAND_ARGUMENTS_MAX = 8,
    COMMAND_FLAGS_MAX = 24,
    COMMAND_OPTIONS_MAX = 64,
    COMMAND_TYPED_MAX = 8
};

struct command_line {
    const struct command_spec *spec;
    struct sim_settings settings;
    bool option_given[COMMAND_OPTIONS_MAX];     /* By index in sim_options(). */
    const char *flag_values[COMMAND_FLAGS_MAX]; /* By index in spec->flags; "" = plain, given. */
    const char *arguments[COMMAND_ARGUMENTS_MAX];
    size_t argument_count;
    struct {
        const char *option, *typed; /* "tokens", "--batch": for command_fail_line. */
    } typed[COMMAND_TYPED_MAX];
    size_t typed_count;
    bool json; /* --json: standard output is one JSON document. */
};

/* -1: go on. Otherwise the exit status: 0 after --help, 2 after a one-line complaint. Every
 * command accepts --help and --json. `--batch` stands for `--tokens`. Borrows argv. */
int command_line_parse(const struct command_spec *spec, int argc, char **argv,
                       struct command_line *line);
bool command_line_given(const struct command_line *line, const char *option);
/* An option of a run that says nothing without another thing, which is there or not: 0, or -1 with
 * "--OPTION: needs PARTNER" where it was given in vain. */
int command_line_partner(const struct command_line *line, const char *option, bool there,
                         const char *partner, char *err, size_t err_len);
const char *command_line_flag(const struct command_line *line, const char *flag); /* Or NULL. */

/* Complain on standard error as "epsim COMMAND: message" and return status. */
int command_fail(const struct command_spec *spec, int status, const char *message);

/* The same for a line about a run's options: each is named as the user typed it, which may be by
 * another name than sim/settings.h has. */
int command_fail_line(const struct command_line *line, int status, const char *message);
/* What this command takes for the option: another option ("--replicas") or an argument ("TRACE").
 * Both texts are borrowed. */
void command_typed_as(struct command_line *line, const char *option, const char *typed);

/* Print a document to standard output with a newline, and free it. EXIT_OK, or
 * EXIT_ENVIRONMENT when standard output cannot be written. */
int command_print_json(json_t *document);

/* A line on standard error that counts cases and is gone after the last; context is not used. */
void command_show_cases(void *context, uint64_t done, uint64_t cases);

/* Seconds of wall time since some moment of the past. */
double command_now_s(void);

/* The subcommands, each in tools/cmd_NAME.c. argv[0] is the subcommand's name. */
int cmd_verify(int argc, char **argv);
int cmd_expect(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_ledger(int argc, char **argv);
int cmd_machines(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_accuracy(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_explore(int argc, char **argv);
int cmd_explore_skew(int argc, char **argv); /* explore's first argument is argv[0]: skew. */
int cmd_export(int argc, char **argv);
int cmd_eplb(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_imbalance(int argc, char **argv);
int cmd_plugin_host(int argc, char **argv);

#endif
