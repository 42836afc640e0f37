/* tests/with_plugin.h - what tests of plugins share: where they are, and what a report says. */
#ifndef TESTS_WITH_PLUGIN_H
#define TESTS_WITH_PLUGIN_H

#include <check.h>
#include <jansson.h>
#include <string.h>
#include "tests/support.h"

/* build/plugin_NAME.so, beside the program. */
static inline const char *plugin(const char *name)
{
    const char *program = test_epsim(), *slash = strrchr(program, '/');
    ck_assert_ptr_nonnull(slash);
    return test_format("%.*s/plugin_%s.so", (int)(slash - program), program, name);
}

static inline const char *golden(void)
{
    return test_tree_path("tests/golden");
}

/* A text of a JSON object that must have it. */
static inline const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    ck_assert_msg(text != NULL, "no %s", key);
    return text;
}

#endif
