/* tests/json.h - a JSON document that a command printed, and what stands in it. A test fails at
 * what is not there, or is of another kind, so no missing key passes for a 0.
 *
 * A place is a key, or keys joined by dots: "first_difference.rank". */
#ifndef TESTS_JSON_H
#define TESTS_JSON_H

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "tests/support.h"

/* The one document on standard output; json_decref it. */
static inline json_t *test_json(const struct test_output *output)
{
    json_error_t error;
    json_t *json = json_loadb(output->out, output->out_bytes, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "line %d: %s: %.2000s%s", error.line, error.text, output->out,
                  output->err);
    return json;
}

/* NULL where there is nothing. */
static inline json_t *find_at(const json_t *json, const char *place)
{
    char key[64];
    for (;;) {
        const size_t length = strcspn(place, ".");
        ck_assert_uint_lt(length, sizeof key);
        memcpy(key, place, length);
        key[length] = '\0';
        json_t *value = json_object_get(json, key);
        if (place[length] == '\0' || value == NULL) return value;
        json = value;
        place += length + 1;
    }
}

static inline json_t *json_at(const json_t *json, const char *place)
{
    json_t *value = find_at(json, place);
    ck_assert_msg(value != NULL, "no %s", place);
    return value;
}

static inline int64_t int_at(const json_t *json, const char *place)
{
    const json_t *value = json_at(json, place);
    ck_assert_msg(json_is_integer(value), "%s: no integer", place);
    return json_integer_value(value);
}

static inline double number_at(const json_t *json, const char *place)
{
    const json_t *value = json_at(json, place);
    ck_assert_msg(json_is_number(value), "%s: no number", place);
    return json_number_value(value);
}

static inline const char *text_at(const json_t *json, const char *place)
{
    const json_t *value = json_at(json, place);
    ck_assert_msg(json_is_string(value), "%s: no text", place);
    return json_string_value(value);
}

static inline bool is_true_at(const json_t *json, const char *place)
{
    const json_t *value = json_at(json, place);
    ck_assert_msg(json_is_boolean(value), "%s: not true or false", place);
    return json_is_true(value);
}

#endif
