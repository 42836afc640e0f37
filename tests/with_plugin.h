/* tests/with_plugin.h - where the plugins that tests load are, and the captures they are held to.
 */
#ifndef TESTS_WITH_PLUGIN_H
#define TESTS_WITH_PLUGIN_H

#include <check.h>
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

#endif
