/* tests/support.h - what every suite needs from the world: data, commands, scratch folders.
 *
 * Paths handed out stay valid until the process ends (a test runs in its own process, so
 * nothing is freed). Helpers fail the running test themselves when the machine lets them down;
 * what is under test is left to the caller. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The text, an error or an output, has this part in it; both are looked at once. */
#define TEST_SAYS(text, part)                                                                      \
    do {                                                                                           \
        const char *said_ = (text), *part_ = (part);                                               \
        ck_assert_msg(said_ != NULL && strstr(said_, part_) != NULL,                               \
                      "'%.2000s' does not say '%s'", said_ != NULL ? said_ : "", part_);           \
    } while (0)

/* The folder of data outside the tree: environment EPSIM_DATA, or NULL when unset or empty. */
const char *test_data(void);

/* EPSIM_DATA/name, e.g. test_data_path("golden/x.safetensors"), or NULL when EPSIM_DATA is
 * unset or holds no such file. The usual start of a test on outside data:
 *     const char *path = test_data_path("traces/x.npy");
 *     if (path == NULL) return test_skip("no EPSIM_DATA");  */
const char *test_data_path(const char *name);

/* A file of the source tree, e.g. test_tree_path("tests/golden"). */
const char *test_tree_path(const char *name);

/* printf into a string of its own. */
__attribute__((format(printf, 1, 2))) const char *test_format(const char *format, ...);

/* folder/name. */
const char *test_join(const char *folder, const char *name);

/* The built program under test, build/epsim. */
const char *test_epsim(void);

/* Note that the running test was skipped, and why; the runner lists it before its last line.
 * The caller then returns from the test. Two words on what is missing make the best reason. */
#define test_skip(reason) test_skip_named(__func__, reason)
void test_skip_named(const char *test, const char *reason);

/* Is this the quick set (sanitizers, valgrind; EPSIM_QUICK=1)? Long loops take fewer rounds then.
 * least (EPSIM_QUICK=2): each kernel once or twice, for tools that cost seconds a launch. */
bool test_quick(void);
bool test_least(void);

/* A new empty folder, removed with all it holds when the test's process ends. */
const char *test_temp_dir(void);
/* Remove a folder and all it holds; no complaint when it is not there. */
void test_remove(const char *folder);

/* Write bytes to folder/name and return that path. test_write_text takes a C string. */
const char *test_write(const char *folder, const char *name, const void *data, size_t bytes);
const char *test_write_text(const char *folder, const char *name, const char *text);

/* A whole file with a NUL behind it; *bytes (may be NULL) gets the size without the NUL. */
char *test_read(const char *path, size_t *bytes);
bool test_exists(const char *path);

struct test_output {
    int status; /* Exit status; 128 + N when signal N ended it; 127: no such program. */
    char *out;  /* Standard output with a NUL behind it. */
    char *err;  /* Standard error, the same. */
    size_t out_bytes, err_bytes;
};

/* Run argv (found in PATH unless argv[0] has a slash; ended by NULL) with standard input
 * empty, wait for it, and fill output. Returns output->status. */
int test_run(const char *const argv[], struct test_output *output);

/* The same for the built program: the arguments after its name, ended by NULL. */
#define TEST_EPSIM(output, ...)                                                                    \
    test_run((const char *const[]){test_epsim(), __VA_ARGS__, NULL}, output)

/* Is a program of this name in PATH? */
bool test_has_program(const char *name);

#endif
