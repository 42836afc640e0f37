/* tests/test_npy.c - .npy files are read exactly, written as NumPy does, and refused in one line.
 *
 * Method: files spelled out byte by byte with the answer beside them; a table with one entry for
 * every refusal; then seeded damage, which may be refused or accepted but never more. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include "tests/blob.h"
#include "tests/mutate.h"
#include "tests/support.h"
#include "traces/npy.h"
#include "traces/text.h"

static char err[512];

static struct blob make_npy(unsigned version, const char *header, size_t data_bytes)
{
    const size_t length = strlen(header);
    const uint8_t begin[12] = {0x93,
                               'N',
                               'U',
                               'M',
                               'P',
                               'Y',
                               (uint8_t)version,
                               0,
                               (uint8_t)length,
                               (uint8_t)(length >> 8)};
    return blob_with_header(begin, version == 1 ? 10 : 12, header, data_bytes);
}

static int parse(const struct blob *blob, struct trace_npy *npy)
{
    memset(err, 0, sizeof err);
    return trace_npy_parse("x.npy", blob->bytes, blob->count, npy, err, sizeof err);
}

START_TEST(three_versions_hold_the_same_array) /* Loop: 1, 2, 3. */
{
    const struct blob blob = make_npy(
        (unsigned)_i, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24);
    struct trace_npy npy;
    ck_assert_msg(parse(&blob, &npy) == 0, "%s", err);
    ck_assert_int_eq(npy.dtype, TRACE_I32);
    ck_assert_uint_eq(npy.axes, 2);
    ck_assert_uint_eq(npy.shape[0], 2);
    ck_assert_uint_eq(npy.shape[1], 3);
    ck_assert_uint_eq(npy.count, 6);
    ck_assert_uint_eq(npy.bytes, 24);
    ck_assert_int_eq(trace_npy_integer(&npy, 0), 0x04030201);
    ck_assert_int_eq(trace_npy_integer(&npy, 5), 0x18171615);
    trace_npy_close(&npy);
    free(blob.bytes);
}
END_TEST

START_TEST(a_file_cut_short_after_it_was_opened_is_still_whole)
{
    const uint64_t shape[1] = {5000};
    const char *path = test_join(test_temp_dir(), "cut.npy");
    int64_t numbers[5000];
    struct trace_npy npy;
    for (int i = 0; i < 5000; i++) numbers[i] = i;
    ck_assert_int_eq(trace_npy_write(path, TRACE_I64, shape, 1, numbers, err, sizeof err), 0);
    ck_assert_int_eq(trace_npy_open(path, &npy, err, sizeof err), 0);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(trace_npy_integer(&npy, 4999), 4999);
    trace_npy_close(&npy);
}
END_TEST

START_TEST(other_spellings_of_a_header_mean_the_same)
{
    static const char *const headers[] = {
        "{'shape': (6,), 'fortran_order': False, 'descr': '|u1'}",
        "{\"descr\":\"<u1\",\"fortran_order\":False,\"shape\":(6L,)}",
        "{ 'descr' : '|u1' ,\n'fortran_order' :\tFalse , 'shape' : ( 6 , ) , }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 1, 1, 1, 1, 1, 1, 1), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3,), }",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        const struct blob blob = make_npy(1, headers[i], 6);
        struct trace_npy npy;
        ck_assert_msg(parse(&blob, &npy) == 0, "%s: %s", headers[i], err);
        ck_assert_uint_eq(npy.count, 6);
        ck_assert_int_eq(trace_npy_integer(&npy, 5), 6);
        trace_npy_close(&npy);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(a_number_and_an_empty_array_are_arrays)
{
    struct trace_npy npy;
    const struct blob number =
        make_npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8);
    ck_assert_msg(parse(&number, &npy) == 0, "%s", err);
    ck_assert_uint_eq(npy.axes, 0);
    ck_assert_uint_eq(npy.count, 1);
    trace_npy_close(&npy);
    free(number.bytes);

    const struct blob empty =
        make_npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }", 0);
    ck_assert_msg(parse(&empty, &npy) == 0, "%s", err);
    ck_assert_uint_eq(npy.axes, 2);
    ck_assert_uint_eq(npy.count, 0);
    trace_npy_close(&npy);
    free(empty.bytes);
}
END_TEST

START_TEST(every_integer_type_gives_its_extremes)
{
    static const struct {
        enum trace_dtype dtype;
        uint64_t bits;
        int64_t value;
    } cases[] = {
        {TRACE_U8, 0xff, 255},
        {TRACE_I8, 0x80, -128},
        {TRACE_U16, 0xffff, 65535},
        {TRACE_I16, 0x8000, -32768},
        {TRACE_U32, 0xffffffff, 4294967295},
        {TRACE_I32, 0x80000000, -2147483648},
        {TRACE_I64, UINT64_C(0x8000000000000000), INT64_MIN},
        {TRACE_I64, UINT64_MAX, -1},
        {TRACE_U64, INT64_MAX, INT64_MAX},
        {TRACE_U64, UINT64_MAX, INT64_MAX}, /* Cut to what no caller allows. */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_int_eq(trace_integer_at(cases[i].dtype, &cases[i].bits, 0), cases[i].value);
}
END_TEST

START_TEST(data_is_aligned_whatever_the_header_length)
{
    for (size_t pad = 0; pad < 8; pad++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}%*s", (int)pad, "");
        const struct blob blob = make_npy(1, header, 16);
        struct trace_npy npy;
        ck_assert_msg(parse(&blob, &npy) == 0, "%s", err);
        ck_assert_uint_eq((uintptr_t)npy.data % 8, 0);
        ck_assert_int_eq(trace_npy_integer(&npy, 0), INT64_C(0x0807060504030201));
        ck_assert_int_eq(trace_npy_integer(&npy, 1), INT64_C(0x100f0e0d0c0b0a09));
        trace_npy_close(&npy);
        free(blob.bytes);
    }
}
END_TEST

#define DESCR "'descr': '<i4', "
#define ORDER "'fortran_order': False, "
#define SHAPE "'shape': (2,), "

START_TEST(each_fault_is_named_with_its_place)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *expected;
    } cases[] = {
        {"", 8, "byte 10: header: '': expected '{'"},
        {"[1, 2]", 8, "byte 10: header: '[1, 2]': expected '{'"},
        {"{" DESCR ORDER "}", 8, "header: no shape"},
        {"{" DESCR SHAPE "}", 8, "header: no fortran_order"},
        {"{" ORDER SHAPE "}", 8, "header: no descr"},
        {"{" DESCR DESCR ORDER SHAPE "}", 8, "byte 27: header: ''descr'': the key stands twice"},
        {"{" DESCR ORDER SHAPE "'extra': 1}", 8, "expected descr, fortran_order or shape"},
        {"{descr: 1}", 8, "expected a string in quotes"},
        {"{'descr", 8, "no closing quote"},
        {"{'descr' '<i4'}", 8, "expected ':' after the key"},
        {"{" DESCR ORDER SHAPE, 8, "expected a string in quotes"},
        {"{" DESCR ORDER "'shape': (2,) 'descr': 1}", 8, "expected ',' or '}'"},
        {"{" DESCR ORDER SHAPE "} x", 8, "'x': nothing may follow '}'"},
        {"{'descr': '>i4', " ORDER SHAPE "}", 8, "byte 20: descr: ''>i4'': big-endian"},
        {"{'descr': '=i4', " ORDER SHAPE "}", 8, "''=i4'': expected u1 i1"},
        {"{'descr': '|i4', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': '<i3', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': '<i44', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': '', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': '|O', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': '<c8', " ORDER SHAPE "}", 8, "expected u1 i1"},
        {"{'descr': [('a', '<i4')], " ORDER SHAPE "}", 8, "records are not supported"},
        {"{'descr': 4, " ORDER SHAPE "}", 8, "descr: '4, "},
        {"{" DESCR "'fortran_order': True, " SHAPE "}", 8, "only C order (False) is supported"},
        {"{" DESCR "'fortran_order': 0, " SHAPE "}", 8, "fortran_order: '0, 'shape'"},
        {"{" DESCR ORDER "'shape': 2}", 8, "expected a tuple in parentheses"},
        {"{" DESCR ORDER "'shape': (2)}", 8, "one axis is written (N,)"},
        {"{" DESCR ORDER "'shape': (2 3)}", 8, "expected ',' or ')'"},
        {"{" DESCR ORDER "'shape': (-2,)}", 8, "shape: '-2,)}': expected a number from 0"},
        {"{" DESCR ORDER "'shape': (2.0,)}", 8, "expected ',' or ')'"},
        {"{" DESCR ORDER "'shape': (,)}", 8, "expected a number from 0"},
        {"{" DESCR ORDER "'shape': (2, , 3)}", 8, "expected a number from 0"},
        {"{" DESCR ORDER "'shape': (1,1,1,1,1,1,1,1,2)}", 8, "at most 8 axes"},
        {"{" DESCR ORDER "'shape': (9223372036854775808,)}", 8, "an axis is at most 2^63 - 1"},
        {"{" DESCR ORDER "'shape': (99999999999999999999999,)}", 8, "at most 2^63 - 1"},
        {"{" DESCR ORDER "'shape': (9223372036854775807,)}", 8, "more than 2^63 - 1 bytes"},
        {"{" DESCR ORDER "'shape': (4294967296, 4294967296)}", 0, "more than 2^63 - 1 bytes"},
        {"{" DESCR ORDER "'shape': (0, 4294967296, 4294967296)}", 0, "more than 2^63 - 1 bytes"},
        {"{" DESCR ORDER SHAPE "}", 7, "data: 7 bytes, but shape and descr ask for 8"},
        {"{" DESCR ORDER SHAPE "}", 9, "data: 9 bytes, but shape and descr ask for 8"},
        {"{" DESCR ORDER SHAPE "}", 0, "data: 0 bytes, but shape and descr ask for 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct blob blob = make_npy(1, cases[i].header, cases[i].data_bytes);
        struct trace_npy npy;
        memset(&npy, 0x55, sizeof npy);
        const struct trace_npy before = npy;
        ck_assert_msg(parse(&blob, &npy) == -1, "accepted: %s", cases[i].header);
        ck_assert_msg(strstr(err, cases[i].expected) != NULL, "%s\n gave  %s\n not   %s",
                      cases[i].header, err, cases[i].expected);
        ck_assert_msg(strncmp(err, "x.npy: ", 7) == 0, "%s", err);
        ck_assert_mem_eq(&npy, &before, sizeof npy);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(a_broken_beginning_is_named)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *expected;
    } cases[] = {
        {"", 0, "byte 0: magic: ''"},
        {"\x93NUM", 4, "not a .npy file"},
        {"PK\3\4 this is a zip", 18, "byte 0: magic: 'PK?? t'"},
        {"\x93NUMPY", 6, "byte 6: the file ends before its version"},
        {"\x93NUMPY\1\0", 8, "byte 8: the file ends before its header does"},
        {"\x93NUMPY\2\0\0\0\0", 11, "byte 11: the file ends before its header does"},
        {"\x93NUMPY\0\0\0\0", 10, "byte 6: version: 0.0: expected 1.0, 2.0 or 3.0"},
        {"\x93NUMPY\4\0\0\0\0\0", 12, "version: 4.0"},
        {"\x93NUMPY\1\1\0\0\0\0", 12, "version: 1.1"},
        {"\x93NUMPY\1\0\5\0{}{}", 14, "byte 8: header length: 5: at most the 4 bytes that follow"},
        {"\x93NUMPY\2\0\377\377\377\377{}", 14, "header length: 4294967295: at most the 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct blob blob = blob_of(cases[i].bytes, cases[i].count);
        struct trace_npy npy;
        ck_assert_int_eq(parse(&blob, &npy), -1);
        TEST_SAYS(err, cases[i].expected);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(written_bytes_are_those_of_numpy)
{
    /* numpy.save of arange(6, dtype '<i2').reshape(2, 3), NumPy 2.4. */
    static const char head[] = "\x93NUMPY\1\0\x76\0{'descr': '<i2', 'fortran_order': False, "
                               "'shape': (2, 3), }";
    const int16_t values[] = {0, 1, 2, 3, 4, 5};
    const uint64_t shape[] = {2, 3};
    const char *path = test_join(test_temp_dir(), "a.npy");
    ck_assert_int_eq(trace_npy_write(path, TRACE_I16, shape, 2, values, err, sizeof err), 0);
    size_t bytes;
    const char *text = test_read(path, &bytes);
    ck_assert_uint_eq(bytes, 128 + 12);
    ck_assert_mem_eq(text, head, sizeof head - 1);
    for (size_t i = sizeof head - 1; i < 127; i++) ck_assert_int_eq(text[i], ' ');
    ck_assert_int_eq(text[127], '\n');
    ck_assert_mem_eq(text + 128, values, sizeof values);
}
END_TEST

START_TEST(what_is_written_is_read_back) /* Loop: the number of axes. */
{
    uint64_t seed = 100 + (uint64_t)_i;
    const char *path = test_join(test_temp_dir(), "a.npy");
    for (unsigned d = 0; d < TRACE_DTYPES; d++) {
        const enum trace_dtype dtype = (enum trace_dtype)d;
        if (trace_dtype_descr(dtype) == NULL) continue;
        uint64_t shape[TRACE_AXES_MAX] = {0}, data[1024], count, bytes;
        for (int i = 0; i < _i; i++) shape[i] = mutate_below(&seed, 3);
        ck_assert(trace_shape_size(shape, (uint32_t)_i, dtype, &count, &bytes));
        ck_assert_uint_le(bytes, sizeof data);
        for (size_t i = 0; i < 1024; i++) data[i] = mutate_next(&seed);
        ck_assert_int_eq(trace_npy_write(path, dtype, shape, (uint32_t)_i, data, err, sizeof err),
                         0);

        struct trace_npy npy;
        ck_assert_msg(trace_npy_open(path, &npy, err, sizeof err) == 0, "%s", err);
        ck_assert_int_eq(npy.dtype, dtype);
        ck_assert_uint_eq(npy.axes, (uint64_t)_i);
        ck_assert_mem_eq(npy.shape, shape, sizeof shape);
        ck_assert_uint_eq(npy.count, count);
        if (bytes > 0) ck_assert_mem_eq(npy.data, data, bytes);
        trace_npy_close(&npy);
    }
}
END_TEST

START_TEST(files_that_are_no_files_are_refused)
{
    struct trace_npy npy;
    const char *folder = test_temp_dir();
    ck_assert_int_eq(trace_npy_open(folder, &npy, err, sizeof err), -1);
    TEST_SAYS(err, "is a folder, expected a file");
    ck_assert_int_eq(trace_npy_open(test_join(folder, "none"), &npy, err, sizeof err), -1);
    TEST_SAYS(err, "none: No such file");
    ck_assert_int_eq(trace_npy_open("/dev/null", &npy, err, sizeof err), -1);
    TEST_SAYS(err, "is not a regular file");
    const char *pipe = test_join(folder, "pipe");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_assert_int_eq(trace_npy_open(pipe, &npy, err, sizeof err), -1); /* And does not hang. */
    TEST_SAYS(err, "is not a regular file");
    ck_assert_int_eq(trace_npy_open(test_write_text(folder, "a\nb", ""), &npy, err, sizeof err),
                     -1);
    ck_assert_ptr_null(strchr(err, '\n'));
}
END_TEST

START_TEST(a_failed_write_leaves_the_old_file)
{
    const char *folder = test_temp_dir();
    const char *path = test_write_text(folder, "a.npy", "old");
    const uint64_t shape[] = {1};
    struct trace_output *output = trace_output_open(path, err, sizeof err);
    ck_assert_ptr_nonnull(output);
    ck_assert_int_eq(trace_output_write(output, "new", 3, err, sizeof err), 0);
    trace_output_abandon(output);
    ck_assert_str_eq(test_read(path, NULL), "old");
    struct test_output listing;
    ck_assert_int_eq(test_run((const char *const[]){"ls", folder, NULL}, &listing), 0);
    ck_assert_str_eq(listing.out, "a.npy\n");

    /* The target's folder is missing; the target is a folder; a device takes it directly. */
    ck_assert_int_eq(
        trace_npy_write(test_join(folder, "no/a.npy"), TRACE_U8, shape, 1, "x", err, sizeof err),
        -1);
    TEST_SAYS(err, "no/a.npy: cannot create it");
    ck_assert_int_eq(trace_npy_write(folder, TRACE_U8, shape, 1, "x", err, sizeof err), -1);
    TEST_SAYS(err, "is a folder");
    ck_assert_int_eq(trace_npy_write("/dev/null", TRACE_U8, shape, 1, "x", err, sizeof err), 0);
    ck_assert_int_eq(trace_npy_write("/dev/full", TRACE_U8, shape, 1, "x", err, sizeof err), -1);
    TEST_SAYS(err, "/dev/full: cannot write");
}
END_TEST

START_TEST(a_write_through_a_link_replaces_its_target)
{
    const char *folder = test_temp_dir();
    const char *path = test_write_text(folder, "real", "old");
    struct test_output output;
    ck_assert_int_eq(
        test_run((const char *const[]){"ln", "-s", "real", test_join(folder, "link"), NULL},
                 &output),
        0);
    const uint64_t shape[] = {1};
    ck_assert_int_eq(
        trace_npy_write(test_join(folder, "link"), TRACE_U8, shape, 1, "x", err, sizeof err), 0);
    size_t bytes;
    test_read(path, &bytes);
    ck_assert_uint_eq(bytes, 129);
}
END_TEST

START_TEST(damage_is_refused_or_read_but_never_more) /* Loop: seeds. */
{
    uint64_t seed = 1000 + (uint64_t)_i;
    const struct blob good = make_npy(
        1 + (unsigned)_i % 3, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    const int rounds = test_quick() ? 500 : 4000;
    uint8_t *work = (uint8_t *)malloc(good.count + 256);
    for (int round = 0; round < rounds; round++) {
        size_t count = good.count;
        memcpy(work, good.bytes, count);
        mutate(&seed, work, &count, good.count + 256);
        /* Every second time the length fits again, so that the damage reaches the header. */
        if (round % 2 == 0 && count >= 12 + 24) {
            const size_t length = count - (work[6] == 1 ? 10 : 12) - 24;
            work[8] = (uint8_t)length;
            work[9] = (uint8_t)(length >> 8);
        }
        const struct blob blob = blob_of(work, count);
        struct trace_npy npy;
        if (parse(&blob, &npy) == 0) {
            ck_assert_uint_eq(npy.count * trace_dtype_bytes(npy.dtype), npy.bytes);
            ck_assert_uint_le(npy.bytes, count);
            (void)trace_digest(0, npy.data, npy.bytes);
            trace_npy_close(&npy);
        } else {
            ck_assert_msg(strncmp(err, "x.npy: ", 7) == 0 && strchr(err, '\n') == NULL,
                          "loop %d round %d: %s", _i, round, err);
        }
        free(blob.bytes);
    }
    free(work);
    free(good.bytes);
}
END_TEST

START_TEST(digests_tell_files_apart)
{
    uint8_t data[100] = {0};
    const uint64_t whole = trace_digest(0, data, sizeof data);
    for (size_t i = 0; i < sizeof data; i++) {
        ck_assert_uint_ne(trace_digest(0, data, i), whole); /* Shorter by zeros. */
        data[i] = 1;
        ck_assert_uint_ne(trace_digest(0, data, sizeof data), whole);
        data[i] = 0;
    }
    ck_assert_uint_ne(trace_digest(1, data, sizeof data), whole);
    /* Recorded in databases, so it may never change: pinned. */
    char hex[17];
    ck_assert_str_eq(trace_hex(trace_digest(0, "epsim", 5), hex), "543405afbf176f04");
}
END_TEST

Suite *npy_suite(void)
{
    TCase *tcase = tcase_create("npy");
    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, three_versions_hold_the_same_array, 1, 4);
    tcase_add_test(tcase, a_file_cut_short_after_it_was_opened_is_still_whole);
    tcase_add_test(tcase, other_spellings_of_a_header_mean_the_same);
    tcase_add_test(tcase, a_number_and_an_empty_array_are_arrays);
    tcase_add_test(tcase, every_integer_type_gives_its_extremes);
    tcase_add_test(tcase, data_is_aligned_whatever_the_header_length);
    tcase_add_test(tcase, each_fault_is_named_with_its_place);
    tcase_add_test(tcase, a_broken_beginning_is_named);
    tcase_add_test(tcase, written_bytes_are_those_of_numpy);
    tcase_add_loop_test(tcase, what_is_written_is_read_back, 0, 9);
    tcase_add_test(tcase, files_that_are_no_files_are_refused);
    tcase_add_test(tcase, a_failed_write_leaves_the_old_file);
    tcase_add_test(tcase, a_write_through_a_link_replaces_its_target);
    tcase_add_loop_test(tcase, damage_is_refused_or_read_but_never_more, 0, 6);
    tcase_add_test(tcase, digests_tell_files_apart);
    Suite *suite = suite_create("npy");
    suite_add_tcase(suite, tcase);
    return suite;
}
