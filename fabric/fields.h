/* fabric/fields.h - a struct of integers described by a table, so that files can fill it.
 *
 * A reader of YAML lists the members once; names, units, ranges, places and what must be said
 * then come from one line each. */
#ifndef FABRIC_FIELDS_H
#define FABRIC_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/yaml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_field {
    const char *name;  /* The member's: its last word is its unit (fabric/units.h). */
    size_t offset;     /* In the struct. */
    size_t bytes;      /* Of the member: 4 or 8, unsigned. */
    uint64_t min, max; /* Inclusive, in the member's own unit. */
    bool required;     /* Must be said by some file; otherwise 0 until said. */
};

/* A macro, since the place of a member is not a value that a function could take. */
#define FABRIC_FIELD(type, name, min, max, required)                                               \
    {                                                                                              \
#name, offsetof(type, name), sizeof(((type *)0)->name), min, max, required                 \
    }

enum { FABRIC_FIELD_UNSAID = UINT8_MAX };

/* Fill the member that node->key names. said[count] holds, per field, the number of the file
 * that said it last (FABRIC_FIELD_UNSAID at first); file is the number of this one, and a field
 * said twice in one file, be it in two units, is refused. 0, or -1 with err. */
int fabric_field_read(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      const struct fabric_field *fields, size_t count, void *base, uint8_t *said,
                      uint8_t file, char *err, size_t err_len);

/* Leave the member that node->key names as it is: for a file that says "unknown". 0, or -1 with
 * err when it names none. */
int fabric_field_skip(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      const struct fabric_field *fields, size_t count, char *err, size_t err_len);

/* 0, or -1 with "NAME: FIELD: missing" for the first required field that nobody said. */
int fabric_field_check(const char *name, const struct fabric_field *fields, size_t count,
                       const uint8_t *said, char *err, size_t err_len);

/* The field's value in the struct at base, in its own unit. */
uint64_t fabric_field_get(const struct fabric_field *field, const void *base);
/* Write it; value must suit the member's size. */
void fabric_field_set(const struct fabric_field *field, void *base, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
