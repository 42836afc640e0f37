/* fabric/yaml.h - a small, suspicious reader of YAML files.
 *
 * Turns one document into a tree of scalars, mappings and lists, each with its line. It knows
 * no schema: machine.c, sim/model.c and other readers walk the tree. Files come from strangers,
 * so size, depth and node count are limited, anchors, aliases and tags are refused (no file
 * here needs them, and an alias bomb cannot grow), and a key stands once in its mapping. */
#ifndef FABRIC_YAML_H
#define FABRIC_YAML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FABRIC_YAML_BYTES_MAX = 1 << 20, FABRIC_YAML_NODES_MAX = 1 << 14, FABRIC_YAML_DEPTH = 8 };

enum fabric_yaml_kind { FABRIC_YAML_SCALAR, FABRIC_YAML_MAPPING, FABRIC_YAML_LIST };

struct fabric_yaml_node {
    enum fabric_yaml_kind kind;
    uint32_t line;    /* 1-based: of the key, or of the value where there is no key. */
    const char *key;  /* NULL for the root and for items of a list. */
    const char *text; /* Scalars only; never NULL for them. */
    /* Behind " #" on that line, "" where there is none; of a text that holds " #" what follows. */
    const char *comment;
    const struct fabric_yaml_node *child; /* First of a mapping or list, or NULL. */
    const struct fabric_yaml_node *next;  /* Next of the same parent, or NULL. */
};

struct fabric_yaml {
    char name[1024]; /* The file, as messages name it. */
    const struct fabric_yaml_node *root;
    struct fabric_yaml_block *blocks; /* Owns every node and string. */
};

/* Parse bytes of text, which need not end in NUL. 0, or -1 with "NAME:LINE: what is wrong".
 * *yaml is written only on success; free with fabric_yaml_free. */
int fabric_yaml_parse(const char *name, const char *text, size_t bytes, struct fabric_yaml *yaml,
                      char *err, size_t err_len);
int fabric_yaml_read(const char *path, struct fabric_yaml *yaml, char *err, size_t err_len);
void fabric_yaml_free(struct fabric_yaml *yaml); /* Safe on a zeroed struct. */

/* Is this a path (it has a '/' or ends in .yaml) rather than the name of a preset? */
int fabric_yaml_is_path(const char *name_or_path);
/* "folder/h200-hgx.yaml" -> "h200-hgx", cut where name is full. */
void fabric_yaml_stem(const char *path, char *name, size_t name_len);

/* The child of a mapping under key, or NULL. */
const struct fabric_yaml_node *fabric_yaml_find(const struct fabric_yaml_node *mapping,
                                                const char *key);

/* Write "FILE:LINE: KEY: VALUE: allowed" (value only for scalars, shortened and made printable,
 * so a hostile file cannot break the line) and return -1. */
int fabric_yaml_refuse(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                       const char *allowed, char *err, size_t err_len);

/* Copy a scalar into text[text_len]. 0, or -1 with err when it is no scalar, empty or too long. */
int fabric_yaml_text(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                     char *text, size_t text_len, char *err, size_t err_len);

/* A number for the field called field, in whatever unit of the field's family node->key says
 * (fabric/units.h), min..max inclusive in the field's own unit. 0, or -1 with err. */
int fabric_yaml_number(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                       const char *field, uint64_t min, uint64_t max, uint64_t *value, char *err,
                       size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
