/* sim/calibrate_file.c - numbers of a machine file that may move, and the file with new ones.
 *
 * Works on lines, not on parsed YAML, so that comments and order stay as people wrote them. The
 * loader has read the same text before, so what is here is known to be well formed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/calibrate_file.h"

struct line {
    size_t indent;
    char key[64];
    const char *value; /* Into the text; "" when a section follows. */
    size_t value_bytes;
    const char *comment; /* Behind "# ", or "". */
    size_t comment_bytes;
};

/* false: no "key: ..." on it. */
static bool split(const char *text, size_t bytes, struct line *line)
{
    size_t at = 0, used = 0;
    *line = (struct line){.value = "", .comment = ""};
    while (at < bytes && text[at] == ' ') at++;
    line->indent = at;
    while (at < bytes && text[at] != ':' && text[at] != '#' && used + 1 < sizeof line->key)
        line->key[used++] = text[at++];
    line->key[used] = '\0';
    if (used == 0 || at == bytes || text[at] != ':') return false;
    at++;
    while (at < bytes && text[at] == ' ') at++;
    const size_t start = at;
    while (at < bytes && text[at] != '#') at++;
    size_t end = at;
    while (end > start && (text[end - 1] == ' ' || text[end - 1] == '\r')) end--;
    line->value = text + start;
    line->value_bytes = end - start;
    if (at == bytes) return true;
    at++;
    while (at < bytes && text[at] == ' ') at++;
    line->comment = text + at;
    line->comment_bytes = bytes - at;
    return true;
}

static bool may_move(const struct line *line)
{
    static const char fitted[] = "fitted";
    return line->comment_bytes == 0 || (line->comment_bytes >= sizeof fitted - 1 &&
                                        memcmp(line->comment, fitted, sizeof fitted - 1) == 0);
}

/* Where in the file a line stands. */
struct place {
    bool in_stacks;
    size_t stack_indent; /* Of stack names; 0 until the first. */
    char stack[32];
    char section[16]; /* "ll", "normal" or "". */
    size_t section_indent;
};

static void move_to(struct place *place, const struct line *line)
{
    const bool section = strcmp(line->key, "ll") == 0 || strcmp(line->key, "normal") == 0 ||
                         strcmp(line->key, "compute") == 0;
    assert(strlen(place->stack) < sizeof place->stack && line->key[0] != '\0');
    if (line->indent == 0) {
        *place = (struct place){.in_stacks = strcmp(line->key, "stacks") == 0};
        if (section) snprintf(place->section, sizeof place->section, "%.15s", line->key);
        return;
    }
    if (!place->in_stacks) return;
    if (place->stack_indent == 0) place->stack_indent = line->indent;
    if (line->indent == place->stack_indent) {
        snprintf(place->stack, sizeof place->stack, "%.31s", line->key);
        place->section[0] = '\0';
    } else if (section && line->value_bytes == 0) {
        snprintf(place->section, sizeof place->section, "%.15s", line->key);
        place->section_indent = line->indent;
    } else if (line->indent <= place->section_indent) {
        place->section[0] = '\0';
    }
}

static const struct fabric_cost_field *field_of(const char *section, const char *key,
                                                struct fabric_unit *unit)
{
    size_t count;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].section, section) == 0 && fabric_unit_match(fields[i].name, key, unit))
            return &fields[i];
    return NULL;
}

/* "fitted from 0.2": the number behind it, in the key's unit; false when there is none. */
static bool read_start(const struct line *line, struct fabric_unit unit, uint64_t *start)
{
    static const char words[] = "fitted from ";
    const size_t skip = sizeof words - 1;
    char number[64];
    size_t n = 0;
    if (line->comment_bytes <= skip || memcmp(line->comment, words, skip) != 0) return false;
    while (skip + n < line->comment_bytes && n + 1 < sizeof number &&
           strchr("0123456789.", line->comment[skip + n]) != NULL) {
        number[n] = line->comment[skip + n];
        n++;
    }
    number[n] = '\0';
    return fabric_decimal_parse(number, unit, start) == FABRIC_DECIMAL_OK;
}

static bool read_knob(const struct line *line, const struct place *place, struct sim_knob *knob)
{
    char number[64];
    *knob = (struct sim_knob){.field = field_of(place->section, line->key, &knob->unit)};
    knob->field = field_of(place->section, line->key, &knob->unit);
    if (!knob->field || line->value_bytes == 0 || line->value_bytes >= sizeof number) return false;
    assert(line->value_bytes < sizeof number);
    memcpy(number, line->value, line->value_bytes);
    number[line->value_bytes] = '\0';
    if (fabric_decimal_parse(number, knob->unit, &knob->before) != FABRIC_DECIMAL_OK) return false;
    knob->start = knob->after = knob->before;
    (void)read_start(line, knob->unit, &knob->start);
    snprintf(knob->stack, sizeof knob->stack, "%s", place->stack);
    snprintf(knob->key, sizeof knob->key, "%.47s", line->key);
    return true;
}

/* The next line of the file from *at on that holds a number of the mode asked for; false at the
 * end. */
static bool next_number(const struct sim_calibrate_file *file, const char *mode, size_t *at,
                        struct place *place, struct line *line, struct sim_knob *knob)
{
    while (*at < file->bytes) {
        const char *text = file->text + *at;
        const char *end = (const char *)memchr(text, '\n', file->bytes - *at);
        const size_t length = end ? (size_t)(end - text) : file->bytes - *at;
        *at += length + 1;
        if (!split(text, length, line)) continue;
        move_to(place, line);
        if (place->section[0] == '\0' || (mode[0] != '\0' && strcmp(mode, place->section) != 0))
            continue;
        if (read_knob(line, place, knob)) return true;
    }
    return false;
}

int64_t sim_knobs_find(const struct sim_calibrate_file *file, uint32_t index, const char *mode,
                       struct sim_knob *knobs, size_t max, char *err, size_t err_len)
{
    struct place place = {.in_stacks = false};
    struct sim_knob knob;
    struct line line;
    size_t count = 0, at = 0;
    while (next_number(file, mode, &at, &place, &line, &knob)) {
        if (!may_move(&line)) continue;
        if (count == max) {
            snprintf(err, err_len, "%.63s: more than %d numbers may move", file->name,
                     (int)SIM_KNOBS_MAX);
            return -1;
        }
        assert(line.value >= file->text &&
               line.value + line.value_bytes <= file->text + file->bytes);
        knob.file = index;
        knob.text_at = (size_t)(line.value - file->text);
        knob.text_bytes = line.value_bytes;
        knobs[count++] = knob;
    }
    return (int64_t)count;
}

size_t sim_knobs_fixed(const struct sim_calibrate_file *file, const char *mode)
{
    struct place place = {.in_stacks = false};
    struct sim_knob knob;
    struct line line;
    size_t count = 0, at = 0;
    while (next_number(file, mode, &at, &place, &line, &knob)) count += !may_move(&line);
    return count;
}

bool sim_knobs_stray(const struct sim_calibrate_file *file, char key[64])
{
    struct place place = {.in_stacks = false};
    struct line line;
    for (size_t at = 0; at < file->bytes;) {
        const char *text = file->text + at;
        const char *end = (const char *)memchr(text, '\n', file->bytes - at);
        const size_t length = end ? (size_t)(end - text) : file->bytes - at;
        at += length + 1;
        if (!split(text, length, &line)) continue;
        move_to(&place, &line);
        if (line.indent > 0 || place.section[0] != '\0' || line.value_bytes == 0) continue;
        if (line.comment_bytes == 0 || !may_move(&line)) continue;
        snprintf(key, 64, "%s", line.key);
        return true;
    }
    return false;
}

static const char held_words[] = "; the rows do not determine it";

/* What stands behind a knob's number, to the end of its line: as it was but for held_words, which
 * go or come. Returns the bytes put to out; *at moves to the line's end. */
static size_t write_comment(const struct sim_calibrate_file *file, const struct sim_knob *knob,
                            size_t *at, char *out)
{
    const size_t words = sizeof held_words - 1;
    const char *text = file->text + *at;
    const char *end = (const char *)memchr(text, '\n', file->bytes - *at);
    const size_t length = end ? (size_t)(end - text) : file->bytes - *at;
    size_t used = length;
    assert(*at + length <= file->bytes);
    memcpy(out, text, length);
    *at += length;
    if (used >= words && memcmp(out + used - words, held_words, words) == 0) used -= words;
    if (!knob->held) return used;
    if (memchr(out, '#', used) == NULL) {
        char number[64];
        fabric_decimal_format(knob->before, knob->unit, number, sizeof number);
        used += (size_t)sprintf(out + used, " # fitted from %s", number);
    }
    memcpy(out + used, held_words, words);
    return used + words;
}

char *sim_knobs_write(const struct sim_calibrate_file *file, uint32_t index,
                      const struct sim_knob *knobs, size_t count, size_t *new_bytes)
{
    enum { ADDED_MAX = 256 }; /* A number and a comment. */
    char number[64];
    char *out = (char *)malloc(file->bytes + count * ADDED_MAX + 1);
    size_t used = 0, at = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (knobs[i].file != index) continue;
        assert(knobs[i].text_at >= at && knobs[i].text_at <= file->bytes);
        memcpy(out + used, file->text + at, knobs[i].text_at - at);
        used += knobs[i].text_at - at;
        fabric_decimal_format(knobs[i].after, knobs[i].unit, number, sizeof number);
        memcpy(out + used, number, strlen(number));
        used += strlen(number);
        at = knobs[i].text_at + knobs[i].text_bytes;
        used += write_comment(file, &knobs[i], &at, out + used);
    }
    memcpy(out + used, file->text + at, file->bytes - at);
    used += file->bytes - at;
    assert(used <= file->bytes + count * ADDED_MAX);
    out[used] = '\0';
    *new_bytes = used;
    return out;
}

static void name_of(const char *path, char *name, size_t name_len)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const size_t len = strlen(base);
    const size_t stem = len > 5 && strcmp(base + len - 5, ".yaml") == 0 ? len - 5 : len;
    snprintf(name, name_len, "%.*s", (int)(stem < name_len ? stem : name_len - 1), base);
}

int sim_calibrate_file_read(const char *path, struct sim_calibrate_file *file, char *err,
                            size_t err_len)
{
    FILE *stream = fopen(path, "rb");
    char *text = NULL;
    long size = -1;
    if (stream && fseek(stream, 0, SEEK_END) == 0) size = ftell(stream);
    if (size >= 0 && fseek(stream, 0, SEEK_SET) == 0) text = (char *)malloc((size_t)size + 1);
    if (text && fread(text, 1, (size_t)size, stream) != (size_t)size) {
        free(text);
        text = NULL;
    }
    if (stream) fclose(stream);
    size_t preset_bytes;
    if (!text && fabric_machine_preset_text(path, &preset_bytes) != NULL) {
        snprintf(err, err_len,
                 "%.256s: the name of a preset, where a file is needed: copy "
                 "fabric/machines/%.256s.yaml of the source tree",
                 path, path);
        return -1;
    }
    if (!text) {
        snprintf(err, err_len, "%.256s: cannot be read: must be a machine file (YAML)", path);
        return -1;
    }
    text[size] = '\0';
    *file = (struct sim_calibrate_file){.path = path, .text = text, .bytes = (size_t)size};
    name_of(path, file->name, sizeof file->name);
    return 0;
}

/* The preset, unless it is among the files already. Its parents first: machines inherit. */
static int add_preset(const char *name, struct sim_calibrate_file *files, size_t *count, size_t max,
                      char *err, size_t err_len)
{
    size_t bytes;
    const char *text = fabric_machine_preset_text(name, &bytes);
    assert(*count <= max);
    for (size_t i = 0; i < *count; i++)
        if (strcmp(files[i].name, name) == 0) return 0;
    if (!text) return 0; /* A path among the parents: its numbers stay. */
    if (*count == max) {
        snprintf(err, err_len, "more than %zu machine files", max);
        return -1;
    }
    struct sim_calibrate_file file = {.bytes = bytes, .text = (char *)malloc(bytes + 1)};
    if (!file.text) {
        snprintf(err, err_len, "%.63s: out of memory", name);
        return -1;
    }
    memcpy(file.text, text, bytes);
    file.text[bytes] = '\0';
    snprintf(file.name, sizeof file.name, "%.63s", name);
    files[(*count)++] = file;
    return 0;
}

int64_t sim_calibrate_files_of(const struct sim_measured *measured,
                               struct sim_calibrate_file *files, size_t max, char *err,
                               size_t err_len)
{
    size_t count = 0;
    for (size_t i = 0; i < measured->count; i++) {
        struct fabric_machine machine;
        if (i > 0 && strcmp(measured->rows[i].machine, measured->rows[i - 1].machine) == 0)
            continue;
        if (fabric_machine_load(measured->rows[i].machine, &machine, err, err_len) != 0)
            goto free_files;
        for (uint32_t o = machine.origin_count; o-- > 0;)
            if (add_preset(machine.origins[o], files, &count, max, err, err_len) != 0)
                goto free_files;
    }
    return (int64_t)count;
free_files:
    sim_calibrate_files_free(files, count);
    return -1;
}

void sim_calibrate_files_free(struct sim_calibrate_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) free(files[i].text);
}
