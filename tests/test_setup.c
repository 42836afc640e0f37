/* tests/test_setup.c - the set-up asks for what is missing, and only for that.
 *
 * Method: a PATH of one scratch folder with a compiler, an apt-get and an id of our own, so that
 * nothing here can install anything. The compiler lacks the headers that match $LACKS. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support.h"

static const char *const make_world =
    "mkdir bin\n"
    "for tool in sh env cat tail mktemp rm grep touch mkdir dirname make; do\n"
    "    ln -s \"$(command -v $tool)\" bin/$tool\n"
    "done\n"
    "program() { cat >bin/$1; chmod +x bin/$1; }\n"
    "program gcc <<'END'\n#!/bin/sh\n! grep -qE \"${LACKS:-^$}\"\nEND\n"
    "program apt-get <<'END'\n#!/bin/sh\necho \"$@\" >>\"$D/apt.log\"\nexit ${APT:-0}\nEND\n"
    "program id <<'END'\n#!/bin/sh\necho ${USER_ID:-0}\nEND\n"
    "for tool in pkg-config git sqlite3; do echo exit 0 | program $tool; done\n";

/* A scratch folder with bin/ in it, known to scripts as $D; $T is the tree. */
static const char *make_folder(void)
{
    const char *folder = test_temp_dir();
    struct test_output output;
    setenv("D", folder, 1);
    setenv("T", test_tree_path("."), 1);
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    unsetenv("CC");
    const char *const argv[] = {"sh", "-ec", "cd \"$D\"; eval \"$0\"", make_world, NULL};
    ck_assert_msg(test_run(argv, &output) == 0, "%s", output.err);
    return folder;
}

static int shell(const char *script, struct test_output *output)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    return test_run(argv, output);
}

#define IN_WORLD "PATH=\"$D/bin\" "

START_TEST(silent_when_nothing_is_missing)
{
    make_folder();
    struct test_output output;
    ck_assert_int_eq(shell(IN_WORLD "\"$T/tools/setup.sh\"", &output), 0);
    ck_assert_str_eq(output.out, "");
    ck_assert_str_eq(output.err, "");
}
END_TEST

START_TEST(check_names_the_missing_packages)
{
    make_folder();
    struct test_output output;
    ck_assert_int_eq(shell(IN_WORLD "LACKS='jansson|<yaml' \"$T/tools/setup.sh\" --check", &output),
                     1);
    ck_assert_str_eq(output.err, "missing packages: libjansson-dev libyaml-dev "
                                 "(tools/setup.sh installs them)\n");
}
END_TEST

START_TEST(root_installs_only_what_is_missing)
{
    const char *folder = make_folder();
    struct test_output output;
    ck_assert_int_eq(shell(IN_WORLD "LACKS='check|sqlite' \"$T/tools/setup.sh\"", &output), 0);
    ck_assert_str_eq(output.out, "setup: installing libsqlite3-dev check\nsetup: done\n");
    const char *log = test_read(test_join(folder, "apt.log"), NULL);
    TEST_SAYS(log, "install -y --no-install-recommends libsqlite3-dev check\n");
}
END_TEST

START_TEST(without_root_or_sudo_the_line_is_printed)
{
    const char *folder = make_folder();
    struct test_output output;
    ck_assert_int_eq(shell(IN_WORLD "USER_ID=1000 LACKS=check \"$T/tools/setup.sh\"", &output), 3);
    ck_assert_str_eq(output.err, "not root and no sudo; as root, run: apt-get update && "
                                 "apt-get install -y --no-install-recommends check\n");
    ck_assert(!test_exists(test_join(folder, "apt.log")));
}
END_TEST

START_TEST(a_failing_apt_is_an_environment_error)
{
    make_folder();
    struct test_output output;
    ck_assert_int_eq(shell(IN_WORLD "APT=100 LACKS=check \"$T/tools/setup.sh\"", &output), 3);
    TEST_SAYS(output.err, "setup: apt failed; as root, run: apt-get update");
}
END_TEST

START_TEST(plain_make_names_what_it_lacks_and_exits_2)
{
    make_folder();
    struct test_output output;
    const int status =
        shell("LACKS=yaml.h make -s -C \"$T\" BUILD=\"$D/build\" CC=\"$D/bin/gcc\"", &output);
    ck_assert_msg(status == 2, "exit status %d\n%s%s", status, output.out, output.err);
    TEST_SAYS(output.err, "missing packages: libyaml-dev (tools/setup.sh installs them)\n");
}
END_TEST

START_TEST(an_unknown_option_is_refused)
{
    struct test_output output;
    make_folder();
    ck_assert_int_eq(shell("\"$T/tools/setup.sh\" --al", &output), 2);
    ck_assert_str_eq(output.err, "usage: tools/setup.sh [--all | --check]\n");
}
END_TEST

Suite *setup_suite(void)
{
    TCase *tcase = tcase_create("setup");
    tcase_add_test(tcase, silent_when_nothing_is_missing);
    tcase_add_test(tcase, check_names_the_missing_packages);
    tcase_add_test(tcase, root_installs_only_what_is_missing);
    tcase_add_test(tcase, without_root_or_sudo_the_line_is_printed);
    tcase_add_test(tcase, a_failing_apt_is_an_environment_error);
    tcase_add_test(tcase, plain_make_names_what_it_lacks_and_exits_2);
    tcase_add_test(tcase, an_unknown_option_is_refused);
    Suite *suite = suite_create("setup");
    suite_add_tcase(suite, tcase);
    return suite;
}
