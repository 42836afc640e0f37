/* fabric/yaml.c - libyaml's events into a tree, with limits.
 *
 * Nodes and strings live in blocks that never move, so plain pointers between them hold. */
#include "fabric/yaml.h"
#include "fabric/units.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { BLOCK_BYTES = 16384, SHOWN_MAX = 40 };

struct fabric_yaml_block {
    struct fabric_yaml_block *older;
    size_t used, bytes;
    _Alignas(8) char data[];
};

struct level { /* An open mapping or list. */
    struct fabric_yaml_node *node;
    struct fabric_yaml_node *last;
    const char *key; /* Read, its value not yet. */
    uint32_t key_line;
};

struct reader {
    struct fabric_yaml *yaml;
    struct level levels[FABRIC_YAML_DEPTH];
    size_t depth;
    size_t nodes;
    char *err;
    size_t err_len;
};

static void *take(struct fabric_yaml *yaml, size_t bytes)
{
    struct fabric_yaml_block *block = yaml->blocks;
    bytes = (bytes + 7) & ~(size_t)7;
    if (!block || block->bytes - block->used < bytes) {
        const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = (struct fabric_yaml_block *)calloc(1, sizeof *block + room);
        if (!block) return NULL;
        block->older = yaml->blocks;
        block->bytes = room;
        yaml->blocks = block;
    }
    assert(bytes > 0 && block->bytes - block->used >= bytes);
    void *at = block->data + block->used;
    block->used += bytes;
    return at;
}

void fabric_yaml_free(struct fabric_yaml *yaml)
{
    while (yaml->blocks) {
        struct fabric_yaml_block *older = yaml->blocks->older;
        free(yaml->blocks);
        yaml->blocks = older;
    }
    yaml->root = NULL;
}

static int complain(struct reader *reader, size_t line, const char *what)
{
    snprintf(reader->err, reader->err_len, "%s:%zu: %s", reader->yaml->name, line, what);
    return -1;
}

/* A key or value, shortened and printable, for a message. */
static void shown(const char *text, char out[SHOWN_MAX + 4])
{
    size_t i = 0;
    for (; text[i] && i < SHOWN_MAX; i++) out[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
    snprintf(out + i, 4, "%s", text[i] ? "..." : "");
}

/* Hang node below the innermost open level. */
static int attach(struct reader *reader, struct fabric_yaml_node *node)
{
    assert(node->next == NULL && node->line > 0);
    if (reader->depth == 0) {
        if (reader->yaml->root) return complain(reader, node->line, "more than one document");
        reader->yaml->root = node;
        return 0;
    }
    struct level *level = &reader->levels[reader->depth - 1];
    if (level->node->kind == FABRIC_YAML_MAPPING) {
        assert(level->key);
        node->key = level->key;
        node->line = level->key_line;
        level->key = NULL;
    }
    if (level->last)
        level->last->next = node;
    else
        level->node->child = node;
    level->last = node;
    return 0;
}

static struct fabric_yaml_node *new_node(struct reader *reader, enum fabric_yaml_kind kind,
                                         size_t line)
{
    if (++reader->nodes > FABRIC_YAML_NODES_MAX) {
        complain(reader, line, "more than 16384 values");
        return NULL;
    }
    struct fabric_yaml_node *node =
        (struct fabric_yaml_node *)take(reader->yaml, sizeof(struct fabric_yaml_node));
    if (!node) {
        complain(reader, line, "no memory");
        return NULL;
    }
    node->kind = kind;
    node->line = (uint32_t)line;
    return node;
}

static int read_key(struct reader *reader, struct level *level, const char *text, size_t line)
{
    if (fabric_yaml_find(level->node, text)) {
        char key[SHOWN_MAX + 4];
        char what[SHOWN_MAX + 32];
        shown(text, key);
        snprintf(what, sizeof what, "%s: said twice", key);
        return complain(reader, line, what);
    }
    level->key = text;
    level->key_line = (uint32_t)line;
    return 0;
}

static int read_scalar(struct reader *reader, const yaml_event_t *event, size_t line)
{
    const char *value = (const char *)event->data.scalar.value;
    const size_t bytes = event->data.scalar.length;
    if (event->data.scalar.anchor) return complain(reader, line, "anchors are not allowed");
    if (event->data.scalar.tag) return complain(reader, line, "tags are not allowed");
    if (strlen(value) != bytes) return complain(reader, line, "a text must not hold a NUL");
    char *text = (char *)take(reader->yaml, bytes + 1);
    if (!text) return complain(reader, line, "no memory");
    memcpy(text, value, bytes + 1);

    struct level *level = reader->depth > 0 ? &reader->levels[reader->depth - 1] : NULL;
    if (level && level->node->kind == FABRIC_YAML_MAPPING && !level->key)
        return read_key(reader, level, text, line);
    struct fabric_yaml_node *node = new_node(reader, FABRIC_YAML_SCALAR, line);
    if (!node) return -1;
    node->text = text;
    return attach(reader, node);
}

static int open_level(struct reader *reader, enum fabric_yaml_kind kind, const void *anchor,
                      const void *tag, size_t line)
{
    if (anchor) return complain(reader, line, "anchors are not allowed");
    if (tag) return complain(reader, line, "tags are not allowed");
    if (reader->depth == FABRIC_YAML_DEPTH) return complain(reader, line, "nested too deeply");
    const struct level *level = reader->depth > 0 ? &reader->levels[reader->depth - 1] : NULL;
    if (level && level->node->kind == FABRIC_YAML_MAPPING && !level->key)
        return complain(reader, line, "a key must be a plain word");
    struct fabric_yaml_node *node = new_node(reader, kind, line);
    if (!node || attach(reader, node) != 0) return -1;
    assert(reader->depth < FABRIC_YAML_DEPTH);
    reader->levels[reader->depth++] = (struct level){.node = node};
    return 0;
}

static int read_event(struct reader *reader, const yaml_event_t *event)
{
    const size_t line = event->start_mark.line + 1;
    switch (event->type) {
    case YAML_ALIAS_EVENT: return complain(reader, line, "aliases are not allowed");
    case YAML_SCALAR_EVENT: return read_scalar(reader, event, line);
    case YAML_MAPPING_START_EVENT:
        return open_level(reader, FABRIC_YAML_MAPPING, event->data.mapping_start.anchor,
                          event->data.mapping_start.tag, line);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(reader, FABRIC_YAML_LIST, event->data.sequence_start.anchor,
                          event->data.sequence_start.tag, line);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        assert(reader->depth > 0);
        reader->depth--;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_START_EVENT:
    case YAML_DOCUMENT_END_EVENT: return 0;
    }
    return 0;
}

/* Comments are nothing to libyaml: each line's own is found in the text. Nodes come in the order
 * of their lines, and those of one line share its comment. */
struct comments {
    const char *at, *end; /* The line, which counts from 1. */
    uint32_t line;
    const char *comment; /* Of the line; NULL: not looked for yet. */
};

static int find_comment(struct reader *reader, struct comments *text)
{
    const char *stop = (const char *)memchr(text->at, '\n', (size_t)(text->end - text->at));
    if (!stop) stop = text->end;
    const char *start = (const char *)memmem(text->at, (size_t)(stop - text->at), " #", 2);
    text->comment = "";
    if (!start) return 0;
    for (start += 2; start < stop && *start == ' ';) start++;
    char *comment = (char *)take(reader->yaml, (size_t)(stop - start) + 1); /* Zeros. */
    if (!comment) return complain(reader, text->line, "no memory");
    memcpy(comment, start, (size_t)(stop - start));
    text->comment = comment;
    return 0;
}

static int read_comments(struct reader *reader, struct fabric_yaml_node *node,
                         struct comments *text)
{
    assert(node->line > 0 && text->at <= text->end);
    while (text->line < node->line && text->at < text->end) {
        const char *end = (const char *)memchr(text->at, '\n', (size_t)(text->end - text->at));
        text->at = end ? end + 1 : text->end;
        text->comment = NULL;
        text->line++;
    }
    if (!text->comment && find_comment(reader, text) != 0) return -1;
    node->comment = text->comment;
    for (const struct fabric_yaml_node *child = node->child; child; child = child->next)
        if (read_comments(reader, (struct fabric_yaml_node *)(uintptr_t)child, text) != 0)
            return -1;
    return 0;
}

static int read_events(struct reader *reader, yaml_parser_t *parser)
{
    for (int more = 1; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            const size_t line = parser->problem_mark.line + 1;
            return complain(reader, line, parser->problem ? parser->problem : "not YAML");
        }
        const int failed = read_event(reader, &event) != 0;
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (failed) return -1;
    }
    if (!reader->yaml->root) return complain(reader, 1, "empty");
    return 0;
}

int fabric_yaml_parse(const char *name, const char *text, size_t bytes, struct fabric_yaml *yaml,
                      char *err, size_t err_len)
{
    struct fabric_yaml made = {.root = NULL};
    struct reader reader = {.yaml = &made, .err = err, .err_len = err_len};
    yaml_parser_t parser;

    snprintf(made.name, sizeof made.name, "%s", name);
    if (bytes > FABRIC_YAML_BYTES_MAX) return complain(&reader, 1, "larger than 1 MiB");
    if (!yaml_parser_initialize(&parser)) return complain(&reader, 1, "no memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    int failed = read_events(&reader, &parser);
    struct comments comments = {text, text + bytes, 1, NULL};
    if (!failed)
        failed = read_comments(&reader, (struct fabric_yaml_node *)(uintptr_t)made.root, &comments);
    yaml_parser_delete(&parser);
    if (failed) {
        fabric_yaml_free(&made);
        return -1;
    }
    *yaml = made;
    return 0;
}

int fabric_yaml_read(const char *path, struct fabric_yaml *yaml, char *err, size_t err_len)
{
    int result = -1;
    char *text = (char *)malloc(FABRIC_YAML_BYTES_MAX + 1);
    FILE *file = fopen(path, "rb");
    if (!file) {
        snprintf(err, err_len, "%s: %s", path, strerror(errno));
        goto free_text;
    }
    if (!text) {
        snprintf(err, err_len, "%s: no memory", path);
        goto close_file;
    }
    const size_t bytes = fread(text, 1, FABRIC_YAML_BYTES_MAX + 1, file);
    if (ferror(file)) {
        snprintf(err, err_len, "%s: %s", path, strerror(errno));
        goto close_file;
    }
    result = fabric_yaml_parse(path, text, bytes, yaml, err, err_len);
close_file:
    fclose(file);
free_text:
    free(text);
    return result;
}

int fabric_yaml_is_path(const char *name_or_path)
{
    const size_t len = strlen(name_or_path);
    return strchr(name_or_path, '/') || (len > 5 && strcmp(name_or_path + len - 5, ".yaml") == 0);
}

void fabric_yaml_stem(const char *path, char *name, size_t name_len)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const size_t len = strlen(base);
    const size_t stem = len > 5 && strcmp(base + len - 5, ".yaml") == 0 ? len - 5 : len;
    snprintf(name, name_len, "%.*s", (int)(stem < name_len ? stem : name_len - 1), base);
}

const struct fabric_yaml_node *fabric_yaml_find(const struct fabric_yaml_node *mapping,
                                                const char *key)
{
    assert(mapping != NULL && key != NULL);
    if (mapping->kind != FABRIC_YAML_MAPPING) return NULL;
    for (const struct fabric_yaml_node *child = mapping->child; child; child = child->next)
        if (strcmp(child->key, key) == 0) return child;
    return NULL;
}

int fabric_yaml_refuse(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                       const char *allowed, char *err, size_t err_len)
{
    char key[SHOWN_MAX + 4] = "";
    char value[SHOWN_MAX + 4] = "";
    assert(node->line > 0 && (node->kind == FABRIC_YAML_SCALAR) == (node->text != NULL));
    if (node->key) shown(node->key, key);
    if (node->text) shown(node->text, value);
    snprintf(err, err_len, "%s:%" PRIu32 ": %s%s%s%s%s", yaml->name, node->line, key,
             node->key ? ": " : "", value, node->text ? ": " : "", allowed);
    return -1;
}

int fabric_yaml_text(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                     char *text, size_t text_len, char *err, size_t err_len)
{
    char allowed[64];
    if (node->kind == FABRIC_YAML_SCALAR && node->text[0] && strlen(node->text) < text_len) {
        snprintf(text, text_len, "%s", node->text);
        return 0;
    }
    snprintf(allowed, sizeof allowed, "must be a text of 1 to %zu bytes", text_len - 1);
    return fabric_yaml_refuse(yaml, node, allowed, err, err_len);
}

int fabric_yaml_number(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                       const char *field, uint64_t min, uint64_t max, uint64_t *value, char *err,
                       size_t err_len)
{
    struct fabric_unit unit;
    uint64_t number = 0;
    char low[40], high[40], allowed[120];
    assert(min <= max);
    const int known = fabric_unit_match(field, node->key ? node->key : field, &unit);
    assert(known);
    if (node->kind != FABRIC_YAML_SCALAR)
        return fabric_yaml_refuse(yaml, node, "must be a number", err, err_len);

    fabric_decimal_format(min, unit, low, sizeof low);
    fabric_decimal_format(max, unit, high, sizeof high);
    snprintf(allowed, sizeof allowed, "must lie in %s..%s", low, high);
    switch (fabric_decimal_parse(node->text, unit, &number)) {
    case FABRIC_DECIMAL_BAD:
        return fabric_yaml_refuse(yaml, node, "must be a number", err, err_len);
    case FABRIC_DECIMAL_NEGATIVE:
        return fabric_yaml_refuse(yaml, node, min > 0 ? "must be above 0" : "must not be below 0",
                                  err, err_len);
    case FABRIC_DECIMAL_FINE:
        return fabric_yaml_refuse(yaml, node, "has too many decimals", err, err_len);
    case FABRIC_DECIMAL_LARGE: return fabric_yaml_refuse(yaml, node, allowed, err, err_len);
    case FABRIC_DECIMAL_OK: break;
    }
    if (number < min || number > max)
        return fabric_yaml_refuse(yaml, node, number == 0 ? "must be above 0" : allowed, err,
                                  err_len);
    *value = number;
    return 0;
}
