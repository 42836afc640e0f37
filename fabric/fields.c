/* fabric/fields.c - members by table. */
#include "fabric/fields.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "fabric/units.h"

uint64_t fabric_field_get(const struct fabric_field *field, const void *base)
{
    uint32_t small;
    uint64_t large;
    const char *at = (const char *)base + field->offset;
    assert(field->bytes == sizeof small || field->bytes == sizeof large);
    if (field->bytes == sizeof small) {
        memcpy(&small, at, sizeof small);
        return small;
    }
    memcpy(&large, at, sizeof large);
    return large;
}

void fabric_field_set(const struct fabric_field *field, void *base, uint64_t value)
{
    const uint32_t small = (uint32_t)value;
    char *at = (char *)base + field->offset;
    assert(field->bytes == sizeof value || (field->bytes == sizeof small && value <= UINT32_MAX));
    if (field->bytes == sizeof small)
        memcpy(at, &small, sizeof small);
    else
        memcpy(at, &value, sizeof value);
}

int fabric_field_read(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      const struct fabric_field *fields, size_t count, void *base, uint8_t *said,
                      uint8_t file, char *err, size_t err_len)
{
    struct fabric_unit unit;
    uint64_t value;
    size_t i = 0;

    assert(node->key && file != FABRIC_FIELD_UNSAID);
    while (i < count && !fabric_unit_match(fields[i].name, node->key, &unit)) i++;
    if (i == count) return fabric_yaml_refuse(yaml, node, "unknown field", err, err_len);
    if (said[i] == file)
        return fabric_yaml_refuse(yaml, node, "said twice, in two units", err, err_len);
    if (fabric_yaml_number(yaml, node, fields[i].name, fields[i].min, fields[i].max, &value, err,
                           err_len) != 0)
        return -1;
    fabric_field_set(&fields[i], base, value);
    said[i] = file;
    return 0;
}

int fabric_field_skip(const struct fabric_yaml *yaml, const struct fabric_yaml_node *node,
                      const struct fabric_field *fields, size_t count, char *err, size_t err_len)
{
    struct fabric_unit unit;
    for (size_t i = 0; i < count; i++)
        if (fabric_unit_match(fields[i].name, node->key, &unit)) return 0;
    return fabric_yaml_refuse(yaml, node, "unknown field", err, err_len);
}

int fabric_field_check(const char *name, const struct fabric_field *fields, size_t count,
                       const uint8_t *said, char *err, size_t err_len)
{
    for (size_t i = 0; i < count; i++) {
        char key[48], value[40];
        if (!fields[i].required || said[i] != FABRIC_FIELD_UNSAID) continue;
        fabric_unit_display(fields[i].name, 0, key, sizeof key, value, sizeof value);
        snprintf(err, err_len, "%s: %s: missing", name, key);
        return -1;
    }
    return 0;
}
