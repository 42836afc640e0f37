/* tools/options.c - one parser for all subcommands: the options of sim/settings.h that a command
 * accepts, its own flags, and its arguments. */
#include "tools/commands.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* One line, whatever was typed: control characters become '?'. */
static void print_line(const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        fputc(c < 0x20 || c == 0x7f ? '?' : c, stderr);
    }
    fputc('\n', stderr);
}

int command_fail(const struct command_spec *spec, int status, const char *message)
{
    fprintf(stderr, "epsim %s: ", spec->name);
    print_line(message);
    return status;
}

void command_typed_as(struct command_line *line, const char *option, const char *typed)
{
    size_t at = 0;
    while (at < line->typed_count && strcmp(line->typed[at].option, option) != 0) at++;
    assert(at < COMMAND_TYPED_MAX);
    line->typed[at].option = option;
    line->typed[at].typed = typed;
    if (at == line->typed_count) line->typed_count++;
}

/* What was typed for the option that text begins with (behind its dashes), or NULL. */
static const char *typed_for(const struct command_line *line, const char *text, size_t length)
{
    for (size_t i = 0; i < line->typed_count; i++)
        if (strlen(line->typed[i].option) == length &&
            memcmp(line->typed[i].option, text, length) == 0)
            return line->typed[i].typed;
    return NULL;
}

int command_fail_line(const struct command_line *line, int status, const char *message)
{
    char said[4096];
    size_t used = 0;
    while (*message != '\0' && used + 1 < sizeof said) {
        const size_t length = strncmp(message, "--", 2) == 0
                                  ? strspn(message + 2, "abcdefghijklmnopqrstuvwxyz0123456789-")
                                  : 0;
        const char *typed = length > 0 ? typed_for(line, message + 2, length) : NULL;
        if (typed == NULL) {
            said[used++] = *message++;
            continue;
        }
        used += (size_t)snprintf(said + used, sizeof said - used, "%s", typed);
        if (used >= sizeof said) used = sizeof said - 1;
        message += 2 + length;
    }
    said[used] = '\0';
    return command_fail(line->spec, status, said);
}

int command_print_json(json_t *document)
{
    const int failed = json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) != 0;
    json_decref(document);
    return failed || putchar('\n') == EOF || fflush(stdout) != 0 ? EXIT_ENVIRONMENT : EXIT_OK;
}

enum { HELP_WIDTH = 100, HELP_OPTION = 24 };

/* Text from this column on, its long lines broken at blanks: joint, then a line with indent. */
static void print_folded(const char *text, size_t column, size_t indent, const char *joint)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n"), room = HELP_WIDTH - column - strlen(joint);
        size_t end = length;
        if (column + length > HELP_WIDTH)
            for (end = room; end > 0 && text[end] != ' ';) end--;
        if (end == 0) end = length; /* An empty line, or one long word. */
        printf("%.*s%s\n", (int)end, text, end < length ? joint : "");
        text += end + (text[end] != '\0'); /* The blank or the end of the line. */
        column = end < length ? indent : 0;
        printf("%*s", (int)column, "");
    }
}

/* An option and what it is for. */
static void print_option(const char *name, const char *value, const char *help)
{
    char left[48];
    snprintf(left, sizeof left, "--%s%s%s", name, value != NULL ? " " : "",
             value != NULL ? value : "");
    printf("  %-*s ", HELP_OPTION, left);
    print_folded(help, HELP_OPTION + 3, HELP_OPTION + 3, "");
}

static void print_help(const struct command_spec *spec)
{
    printf("usage: epsim %s%s%s [options]\n", spec->name, spec->arguments[0] != '\0' ? " " : "",
           spec->arguments);
    print_folded(spec->summary, 0, 0, "");
    printf("\nexample:\n  ");
    print_folded(spec->example, 2, 6, " \\");
    printf("\noptions:\n");
    for (const struct command_flag *flag = spec->flags; flag != NULL && flag->name; flag++)
        print_option(flag->name, flag->value, flag->help);
    for (const char *const *name = spec->options; name != NULL && *name != NULL; name++) {
        const struct sim_option *option = sim_option_find(*name);
        char help[512];
        assert(option != NULL);
        snprintf(help, sizeof help, "%s%s%s [%s]", option->help, option->choices ? ": " : "",
                 option->choices ? option->choices : "", option->fallback);
        print_option(option->name, option->kind == SIM_OPTION_TEXT ? "TEXT" : "N", help);
    }
    print_option("json", NULL, "one JSON document on standard output, nothing else");
    print_option("help", NULL, "this text");
    if (spec->notes != NULL) printf("\n%s", spec->notes);
}

static bool accepts(const struct command_spec *spec, const char *name)
{
    for (const char *const *at = spec->options; at != NULL && *at != NULL; at++)
        if (strcmp(*at, name) == 0) return true;
    return false;
}

static int flag_index(const struct command_spec *spec, const char *name)
{
    for (int i = 0; spec->flags != NULL && spec->flags[i].name != NULL; i++)
        if (strcmp(spec->flags[i].name, name) == 0) return i;
    return -1;
}

static int complain(const struct command_spec *spec, const char *what, const char *value)
{
    char line[512];
    snprintf(line, sizeof line, "%.200s: %s; `epsim %s --help` lists the options", value, what,
             spec->name);
    return command_fail(spec, EXIT_USAGE, line);
}

/* Split "--name", "--name=value" or "-o", which stands for --out, into its name and value. */
static int split_option(const char *word, char name[64], const char **value)
{
    const char *equals = strchr(word, '=');
    const size_t dashes = word[1] == '-' ? 2 : 1;
    const size_t length = (equals != NULL ? (size_t)(equals - word) : strlen(word)) - dashes;

    *value = equals != NULL ? equals + 1 : NULL;
    if (length == 0 || length >= 64) return -1;
    memcpy(name, word + dashes, length);
    name[length] = '\0';
    if (dashes == 1) {
        if (strcmp(name, "o") != 0) return -1;
        memcpy(name, "out", sizeof "out");
    }
    return 0;
}

/* One option at argv[*at]; moves *at past what it used. -1, or the exit status. */
static int parse_option(const struct command_spec *spec, int argc, char **argv, int *at,
                        struct command_line *line)
{
    const char *word = argv[*at], *value = NULL;
    char name[64], err[512] = "";

    if (split_option(word, name, &value) != 0) return complain(spec, "no such option", word);
    const bool batch = strcmp(name, "batch") == 0;
    if (batch) memcpy(name, "tokens", sizeof "tokens");
    if (strcmp(name, "tokens") == 0)
        command_typed_as(line, "tokens", batch ? "--batch" : "--tokens");
    const int flag = flag_index(spec, name);
    const bool json = strcmp(name, "json") == 0;
    const bool plain = json || (flag >= 0 && spec->flags[flag].value == NULL);
    const bool may = flag >= 0 && !plain && spec->flags[flag].value[0] == '[';
    if (flag < 0 && !json && !accepts(spec, name))
        return complain(spec, "no such option of this command", word);
    if (plain && value != NULL) return complain(spec, "takes no value", word);
    if (may && value == NULL) {
        const bool next = *at + 1 < argc && argv[*at + 1][0] != '-';
        value = next ? argv[++*at] : "";
    }
    if (!plain && value == NULL) {
        if (*at + 1 >= argc) return complain(spec, "needs a value", word);
        value = argv[++*at];
    }
    if (flag >= 0 && !plain && !may && value[0] == '\0')
        return complain(spec, "needs a value", word);
    if (json) {
        line->json = true;
    } else if (flag >= 0) {
        line->flag_values[flag] = plain ? "" : value;
    } else {
        size_t count = 0;
        if (sim_settings_set(&line->settings, name, value, err, sizeof err) != 0)
            return command_fail_line(line, EXIT_USAGE, err);
        line->option_given[sim_option_find(name) - sim_options(&count)] = true;
    }
    return -1;
}

int command_line_parse(const struct command_spec *spec, int argc, char **argv,
                       struct command_line *line)
{
    bool options_end = false;
    assert(spec->arguments_max <= COMMAND_ARGUMENTS_MAX);
    memset(line, 0, sizeof *line);
    line->spec = spec;
    sim_settings_default(&line->settings);
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
        } else if (!options_end && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(spec);
            return EXIT_OK;
        } else if (!options_end && word[0] == '-' && word[1] != '\0') {
            const int status = parse_option(spec, argc, argv, &at, line);
            if (status >= 0) return status;
        } else if (line->argument_count == spec->arguments_max) {
            return complain(spec, "one argument too many", word);
        } else {
            line->arguments[line->argument_count++] = word;
        }
    }
    if (line->argument_count < spec->arguments_min) {
        const bool choice = strchr(spec->arguments, '|') != NULL;
        return complain(spec, choice ? "one of these must be named" : "is missing",
                        spec->arguments);
    }
    return -1;
}

bool command_line_given(const struct command_line *line, const char *option)
{
    size_t count = 0;
    const struct sim_option *options = sim_options(&count);
    const struct sim_option *found = sim_option_find(option);
    assert(found != NULL && count <= COMMAND_OPTIONS_MAX);
    return line->option_given[found - options];
}

int command_line_partner(const struct command_line *line, const char *option, bool there,
                         const char *partner, char *err, size_t err_len)
{
    if (there || !command_line_given(line, option)) return 0;
    snprintf(err, err_len, "--%s: needs %s", option, partner);
    return -1;
}

const char *command_line_flag(const struct command_line *line, const char *flag)
{
    const int index = flag_index(line->spec, flag);
    assert(index >= 0 && index < COMMAND_FLAGS_MAX);
    return line->flag_values[index];
}

void command_show_cases(void *context, uint64_t done, uint64_t cases)
{
    (void)context;
    fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " cases%s", done, cases,
            done == cases ? "\r                              \r" : "");
}

double command_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
