/* tests/installed.h - what tests of `make install` share: a shell, and when they cannot run. */
#ifndef TESTS_INSTALLED_H
#define TESTS_INSTALLED_H

#include <check.h>
#include <stdlib.h>

#include "tests/support.h"

/* What a shell script prints, which must succeed. It knows the scratch folder as $D, the tree
 * as $T and the built program as $E, and runs make as a user would, not as a part of `make test`.
 */
static inline const char *shell(const char *folder, const char *script)
{
    setenv("D", folder, 1);
    setenv("T", test_tree_path("."), 1);
    setenv("E", test_epsim(), 1);
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    struct test_output output;
    const char *const argv[] = {"sh", "-ec", script, NULL};
    const int status = test_run(argv, &output);
    ck_assert_msg(status == 0, "%s\nexit status %d\n%s%s", script, status, output.out, output.err);
    return output.out;
}

/* The library of a sanitised build only loads into sanitised programs. */
static inline bool cannot_run(const char *test)
{
    if (test_quick())
        test_skip_named(test, "not in the quick set");
    else if (!test_has_program("pkg-config") || !test_has_program("gcc"))
        test_skip_named(test, "no pkg-config or gcc");
    else
        return false;
    return true;
}

#endif
