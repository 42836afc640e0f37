/* sim/calibrate_file.c - numbers of a machine file that may move, and the file with new ones.
 *
 * Works on lines, not on parsed YAML, so that comments and order stay as people wrote them. The
 * loader has read the same text before, so what is here is known to be well formed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/calibrate.h"

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
    const bool section = strcmp(line->key, "ll") == 0 || strcmp(line->key, "normal") == 0;
    if (line->indent == 0) {
        *place = (struct place){.in_stacks = strcmp(line->key, "stacks") == 0};
        if (section) snprintf(place->section, sizeof place->section, "%s", line->key);
        return;
    }
    if (!place->in_stacks) return;
    if (place->stack_indent == 0) place->stack_indent = line->indent;
    if (line->indent == place->stack_indent) {
        snprintf(place->stack, sizeof place->stack, "%.31s", line->key);
        place->section[0] = '\0';
    } else if (section && line->value_bytes == 0) {
        snprintf(place->section, sizeof place->section, "%s", line->key);
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

static bool read_knob(const struct line *line, const struct place *place, struct sim_knob *knob)
{
    char number[64];
    *knob = (struct sim_knob){.field = field_of(place->section, line->key, &knob->unit)};
    knob->field = field_of(place->section, line->key, &knob->unit);
    if (!knob->field || line->value_bytes == 0 || line->value_bytes >= sizeof number) return false;
    memcpy(number, line->value, line->value_bytes);
    number[line->value_bytes] = '\0';
    if (fabric_decimal_parse(number, knob->unit, &knob->before) != FABRIC_DECIMAL_OK) return false;
    knob->after = knob->before;
    snprintf(knob->stack, sizeof knob->stack, "%s", place->stack);
    snprintf(knob->key, sizeof knob->key, "%.47s", line->key);
    return true;
}

int64_t sim_knobs_find(const char *name, const char *text, size_t bytes, const char *mode,
                       struct sim_knob *knobs, size_t max, char *err, size_t err_len)
{
    struct place place = {.in_stacks = false};
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        const char *end = (const char *)memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - (text + at)) : bytes - at;
        struct sim_knob knob;
        struct line line;
        if (split(text + at, length, &line)) {
            move_to(&place, &line);
            if (place.section[0] != '\0' && (mode[0] == '\0' || strcmp(mode, place.section) == 0) &&
                may_move(&line) && read_knob(&line, &place, &knob)) {
                if (count == max) {
                    snprintf(err, err_len, "%.200s: more than %zu numbers may move", name, max);
                    return -1;
                }
                knob.text_at = (size_t)(line.value - text);
                knob.text_bytes = line.value_bytes;
                knobs[count++] = knob;
            }
        }
        at += length + 1;
    }
    return (int64_t)count;
}

char *sim_knobs_write(const char *text, size_t bytes, const struct sim_knob *knobs, size_t count,
                      size_t *new_bytes)
{
    char number[64];
    char *out = (char *)malloc(bytes + count * sizeof number + 1);
    size_t used = 0, at = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < count; i++) {
        assert(knobs[i].text_at >= at);
        memcpy(out + used, text + at, knobs[i].text_at - at);
        used += knobs[i].text_at - at;
        fabric_decimal_format(knobs[i].after, knobs[i].unit, number, sizeof number);
        memcpy(out + used, number, strlen(number));
        used += strlen(number);
        at = knobs[i].text_at + knobs[i].text_bytes;
    }
    memcpy(out + used, text + at, bytes - at);
    used += bytes - at;
    out[used] = '\0';
    *new_bytes = used;
    return out;
}
