/* tests/test_safetensors.c - safetensors files are read exactly, written so that others read
 * them, and refused in one line.
 *
 * Method: files spelled out with the answer beside them; one entry for every refusal; captures
 * that another program wrote; then seeded damage. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/blob.h"
#include "tests/mutate.h"
#include "tests/support.h"
#include "traces/safetensors.h"

static char err[512];

/* Header text and data_bytes bytes 1, 2, 3, ... behind it. */
static struct blob make_file(const char *header, size_t data_bytes)
{
    const uint64_t length = strlen(header);
    uint8_t begin[8];
    for (unsigned i = 0; i < 8; i++) begin[i] = (uint8_t)(length >> (8 * i));
    return blob_with_header(begin, sizeof begin, header, data_bytes);
}

static int parse(const struct blob *blob, struct trace_tensors *tensors)
{
    memset(err, 0, sizeof err);
    return trace_tensors_parse("x.st", blob->bytes, blob->count, tensors, err, sizeof err);
}

START_TEST(tensors_come_in_the_order_of_their_data)
{
    const struct blob blob =
        make_file("{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]},"
                  "\"__metadata__\":{\"case\":\"{\\\"x\\\": 1}\",\"empty\":\"\"},"
                  "\"a\":{\"data_offsets\":[0,8],\"shape\":[2,1],\"dtype\":\"F32\"},"
                  "\"none\":{\"dtype\":\"F64\",\"shape\":[0,9],\"data_offsets\":[11,11]}}   ",
                  11);
    struct trace_tensors tensors;
    ck_assert_msg(parse(&blob, &tensors) == 0, "%s", err);
    ck_assert_uint_eq(tensors.count, 3);
    ck_assert_str_eq(tensors.tensors[0].name, "a");
    ck_assert_str_eq(tensors.tensors[1].name, "b");
    ck_assert_str_eq(tensors.tensors[2].name, "none");
    ck_assert_int_eq(tensors.tensors[0].dtype, TRACE_F32);
    ck_assert_uint_eq(tensors.tensors[0].axes, 2);
    ck_assert_uint_eq(tensors.tensors[0].shape[0], 2);
    ck_assert_uint_eq(tensors.tensors[0].shape[1], 1);
    ck_assert_uint_eq(tensors.tensors[0].bytes, 8);
    ck_assert_mem_eq(tensors.tensors[0].data, "\1\2\3\4\5\6\7\10", 8);
    ck_assert_mem_eq(tensors.tensors[1].data, "\11\12\13", 3);
    ck_assert_uint_eq(tensors.tensors[2].count, 0);
    ck_assert_ptr_eq(trace_tensors_find(&tensors, "b"), &tensors.tensors[1]);
    ck_assert_ptr_eq(trace_tensors_find(&tensors, "none"), &tensors.tensors[2]);
    ck_assert_ptr_null(trace_tensors_find(&tensors, "c"));
    ck_assert_ptr_null(trace_tensors_find(&tensors, ""));
    ck_assert_ptr_null(trace_tensors_find(&tensors, "__metadata__"));
    ck_assert_uint_eq(tensors.pair_count, 2);
    ck_assert_str_eq(trace_tensors_metadata(&tensors, "case"), "{\"x\": 1}");
    ck_assert_str_eq(trace_tensors_metadata(&tensors, "empty"), "");
    ck_assert_ptr_null(trace_tensors_metadata(&tensors, "a"));
    trace_tensors_close(&tensors);
    free(blob.bytes);
}
END_TEST

START_TEST(every_dtype_has_its_width)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } cases[] = {{"BOOL", 1},    {"U8", 1},      {"I8", 1},  {"F8_E4M3", 1},
                 {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"I16", 2},
                 {"F16", 2},     {"BF16", 2},    {"U32", 4}, {"I32", 4},
                 {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
    ck_assert_uint_eq(sizeof cases / sizeof cases[0], TRACE_DTYPES);
    for (size_t i = 0; i < TRACE_DTYPES; i++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%u]}}", cases[i].name,
                 3 * cases[i].bytes);
        const struct blob blob = make_file(header, 3 * cases[i].bytes);
        struct trace_tensors tensors;
        ck_assert_msg(parse(&blob, &tensors) == 0, "%s", err);
        ck_assert_str_eq(trace_dtype_name(tensors.tensors[0].dtype), cases[i].name);
        ck_assert_uint_eq(tensors.tensors[0].count, 3);
        trace_tensors_close(&tensors);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(data_is_aligned_whatever_the_header_length)
{
    for (int pad = 0; pad < 8; pad++) {
        char header[160];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"b\":{\"dtype\":\"U64\",\"shape\":[],\"data_offsets\":[1,9]}}%*s",
                 pad, "");
        const struct blob blob = make_file(header, 9);
        struct trace_tensors tensors;
        ck_assert_msg(parse(&blob, &tensors) == 0, "%s", err);
        const struct trace_tensor *b = trace_tensors_find(&tensors, "b");
        ck_assert_uint_eq((uintptr_t)b->data % 8, 0);
        ck_assert_uint_eq(b->axes, 0);
        ck_assert_uint_eq(b->count, 1);
        ck_assert_int_eq(trace_integer_at(b->dtype, b->data, 0), INT64_C(0x0908070605040302));
        trace_tensors_close(&tensors);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(no_tensors_are_tensors)
{
    static const char *const headers[] = {"{}", "{\"__metadata__\":{}}", "{}      "};
    for (size_t i = 0; i < 3; i++) {
        const struct blob blob = make_file(headers[i], 0);
        struct trace_tensors tensors;
        ck_assert_msg(parse(&blob, &tensors) == 0, "%s", err);
        ck_assert_uint_eq(tensors.count, 0);
        ck_assert_ptr_null(trace_tensors_find(&tensors, "x"));
        trace_tensors_close(&tensors);
        free(blob.bytes);
    }
}
END_TEST

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

START_TEST(each_fault_is_named)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *expected;
    } cases[] = {
        {"", 0, "byte 8: header: '': expected '{'"},
        {"[]", 0, "byte 8: header: '[]': expected '{'"},
        {" {}", 0, "header: ' {}': expected '{'"},
        {"{", 0, "header: "},
        {"{}x", 0, "header: "},
        {"{\"a\":1}", 0, "tensor 'a': expected an object"},
        {"{" TENSOR("a", "U8", "1", "0,1") "," TENSOR("a", "U8", "1", "1,2") "}", 2, "duplicate"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "duplicate"},
        {"{\"a\\u0000b\":{}}", 0, "header: "},
        {"{\"\xff\":{}}", 0, "header: "},
        {"{" TENSOR("a", "F4", "2", "0,1") "}", 1, "tensor 'a': dtype: 'F4': expected BOOL U8"},
        {"{" TENSOR("a", "u8", "1", "0,1") "}", 1, "dtype: 'u8': expected BOOL U8"},
        {"{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,1]}}", 1,
         "dtype: expected a string"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype: expected a string"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape: expected an array"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "expected an array"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, "data_offsets: expected [begin, end]"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1, "alone"},
        {"{" TENSOR("a", "U8", "-1", "0,1") "}", 1, "shape: expected integers from 0"},
        {"{" TENSOR("a", "U8", "1.0", "0,1") "}", 1, "shape: expected integers from 0"},
        {"{" TENSOR("a", "U8", "\"1\"", "0,1") "}", 1, "shape: expected integers from 0"},
        {"{" TENSOR("a", "U8", "1,1,1,1,1,1,1,1,1", "0,1") "}", 1, "shape: at most 8 axes"},
        {"{" TENSOR("a", "U16", "9223372036854775807", "0,1") "}", 1, "more than 2^63 - 1 bytes"},
        {"{" TENSOR("a", "U8", "4294967296,4294967296", "0,0") "}", 0, "more than 2^63 - 1"},
        {"{" TENSOR("a", "U8", "9223372036854775808", "0,1") "}", 1, "header: too big integer"},
        {"{" TENSOR("a", "U8", "1", "0") "}", 1, "data_offsets: expected [begin, end]"},
        {"{" TENSOR("a", "U8", "1", "0,1,2") "}", 1, "data_offsets: expected [begin, end]"},
        {"{" TENSOR("a", "U8", "1", "0.0,1") "}", 1, "data_offsets: expected [begin, end]"},
        {"{" TENSOR("a", "U8", "1", "-1,0") "}", 1, "data_offsets: [-1, 0]: expected an ascending"},
        {"{" TENSOR("a", "U8", "1", "1,0") "}", 1, "data_offsets: [1, 0]: expected an ascending"},
        {"{" TENSOR("a", "U8", "2", "0,2") "}", 1,
         "[0, 2]: expected an ascending pair within the 1"},
        {"{" TENSOR("a", "U8", "1", "0,2") "}", 2, "2 bytes, but shape and dtype ask for 1"},
        {"{" TENSOR("a", "I64", "1", "0,4") "}", 4, "4 bytes, but shape and dtype ask for 8"},
        {"{" TENSOR("a", "U8", "1", "1,2") "}", 2, "begins at 1, expected 0 (a hole before it)"},
        {"{" TENSOR("a", "U8", "2", "0,2") "," TENSOR("b", "U8", "2", "1,3") "}", 3,
         "tensor 'b': data_offsets: begins at 1, expected 2 (tensors overlap)"},
        {"{" TENSOR("a", "U8", "1", "0,1") "," TENSOR("b", "U8", "1", "2,3") "}", 3, "a hole"},
        {"{" TENSOR("a", "U8", "1", "0,1") "}", 2, "data: 2 bytes, but the tensors take 1"},
        {"{}", 1, "data: 1 bytes, but the tensors take 0"},
        {"{\"__metadata__\":[]}", 0, "byte 24: header: an array outside of a tensor"},
        {"{\"__metadata__\":1}", 0, "__metadata__: expected an object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: 'k': expected a string as value"},
        {"{" TENSOR("new\\nline", "?", "", "0,1") "}", 1, "tensor 'new?line': dtype: '?'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct blob blob = make_file(cases[i].header, cases[i].data_bytes);
        struct trace_tensors tensors;
        memset(&tensors, 0x55, sizeof tensors);
        const struct trace_tensors before = tensors;
        ck_assert_msg(parse(&blob, &tensors) == -1, "accepted: %s", cases[i].header);
        ck_assert_msg(strstr(err, cases[i].expected) != NULL, "%s\n gave  %s\n not   %s",
                      cases[i].header, err, cases[i].expected);
        ck_assert_msg(strncmp(err, "x.st: ", 6) == 0 && strchr(err, '\n') == NULL, "%s", err);
        ck_assert_mem_eq(&tensors, &before, sizeof tensors);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(header_lengths_are_held_against_the_file_and_the_format)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *expected;
    } cases[] = {
        {"", 0, "byte 0: the file ends before its 8-byte header length"},
        {"\2\0\0\0\0\0\0", 7, "byte 7: the file ends before"},
        {"\3\0\0\0\0\0\0\0{}", 10, "header length: 3: at most 2 (what follows in the file)"},
        {"\1\341\365\5\0\0\0\0{}", 10, "header length: 100000001: at most 100000000"},
        {"\377\377\377\377\377\377\377\377{}", 10, "18446744073709551615: at most 100000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct blob blob = blob_of(cases[i].bytes, cases[i].count);
        struct trace_tensors tensors;
        ck_assert_int_eq(parse(&blob, &tensors), -1);
        TEST_SAYS(err, cases[i].expected);
        free(blob.bytes);
    }
}
END_TEST

START_TEST(what_would_only_eat_memory_is_refused_before_parsing)
{
    static const struct {
        const char *begin;
        const char *piece;
        const char *expected;
    } cases[] = {
        {"{\"a\":", "[", "byte 13: header: an array outside of a tensor"},
        {"{\"a\":{\"b\":{\"c\":", "{\"d\":", "nested deeper than a tensor's shape"},
        {"{\"a\":{\"shape\":[0", ",0", "header: a longer array than any shape"},
        {"{\"a\":{\"shape\":[[],[]", ",[]", "byte 23: header: nested deeper"},
    };
    const size_t pieces = 100000;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t piece_bytes = strlen(cases[i].piece);
        char *header = (char *)malloc(64 + pieces * piece_bytes);
        char *at = header + sprintf(header, "%s", cases[i].begin);
        for (size_t n = 0; n < pieces; n++, at += piece_bytes)
            memcpy(at, cases[i].piece, piece_bytes + 1);
        const struct blob blob = make_file(header, 0);
        struct trace_tensors tensors;
        ck_assert_int_eq(parse(&blob, &tensors), -1);
        ck_assert_msg(strstr(err, cases[i].expected) != NULL, "%zu: %s", i, err);
        free(blob.bytes);
        free(header);
    }
}
END_TEST

START_TEST(written_bytes_are_aligned_and_in_place)
{
    const uint8_t narrow[3] = {1, 2, 3};
    const uint64_t wide[2] = {4, 5};
    const struct trace_tensor tensors[] = {
        {"narrow", TRACE_U8, 1, {3}, 0, 0, narrow},
        {"empty", TRACE_F32, 2, {0, 5}, 0, 0, NULL},
        {"wide", TRACE_I64, 1, {2}, 0, 0, wide},
    };
    const struct trace_pair pair = {"case", "a \"b\""};
    const char *path = test_join(test_temp_dir(), "t.safetensors");
    ck_assert_int_eq(trace_tensors_write(path, tensors, 3, &pair, 1, err, sizeof err), 0);

    static const char header[] =
        "{\"__metadata__\":{\"case\":\"a \\\"b\\\"\"},"
        "\"narrow\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[16,16]},"
        "\"wide\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}";
    size_t bytes;
    const char *text = test_read(path, &bytes);
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    ck_assert_uint_eq(bytes, 8 + padded + 19);
    ck_assert_uint_eq((uint8_t)text[0] + 256u * (uint8_t)text[1], padded);
    ck_assert_mem_eq(text + 8, header, sizeof header - 1);
    ck_assert_mem_eq(text + 8 + padded, wide, 16);
    ck_assert_mem_eq(text + 8 + padded + 16, narrow, 3);
}
END_TEST

START_TEST(what_is_written_is_read_back) /* Loop: seeds. */
{
    uint64_t seed = (uint64_t)_i, storage[256];
    struct trace_tensor out[20];
    char names[20][8];
    for (size_t i = 0; i < 256; i++) storage[i] = mutate_next(&seed);
    const size_t count = mutate_below(&seed, 21);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", (i * 7) % 20);
        memset(&out[i], 0, sizeof out[i]);
        out[i].name = names[i];
        out[i].dtype = (enum trace_dtype)mutate_below(&seed, TRACE_DTYPES);
        out[i].axes = (uint32_t)mutate_below(&seed, 4);
        for (uint32_t axis = 0; axis < out[i].axes; axis++)
            out[i].shape[axis] = mutate_below(&seed, 6);
        out[i].data = storage + mutate_below(&seed, 8);
    }
    const char *path = test_join(test_temp_dir(), "t.safetensors");
    ck_assert_int_eq(trace_tensors_write(path, out, count, NULL, 0, err, sizeof err), 0);
    struct trace_tensors in;
    ck_assert_msg(trace_tensors_open(path, &in, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(in.count, count);
    for (size_t i = 0; i < count; i++) {
        const struct trace_tensor *tensor = trace_tensors_find(&in, names[i]);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_int_eq(tensor->dtype, out[i].dtype);
        ck_assert_uint_eq(tensor->axes, out[i].axes);
        ck_assert_mem_eq(tensor->shape, out[i].shape, sizeof tensor->shape);
        if (tensor->bytes > 0) ck_assert_mem_eq(tensor->data, out[i].data, tensor->bytes);
        /* In the file itself, not in a copy. */
        const uint8_t *at = (const uint8_t *)tensor->data;
        ck_assert(at >= in.file.data && at + tensor->bytes <= in.file.data + in.file.bytes);
    }
    trace_tensors_close(&in);
}
END_TEST

START_TEST(names_that_json_cannot_hold_are_refused)
{
    const struct trace_tensor bad = {"\xff", TRACE_U8, 1, {1}, 0, 0, "x"};
    const struct trace_pair pair = {"k", "\xc3"};
    const char *folder = test_temp_dir(), *path = test_join(folder, "t");
    ck_assert_int_eq(trace_tensors_write(path, &bad, 1, NULL, 0, err, sizeof err), -1);
    TEST_SAYS(err, "the name is not valid UTF-8");
    ck_assert_int_eq(trace_tensors_write(path, NULL, 0, &pair, 1, err, sizeof err), -1);
    TEST_SAYS(err, "__metadata__ 'k': not valid UTF-8");
    ck_assert(!test_exists(path));
}
END_TEST

START_TEST(a_capture_of_another_program_is_read)
{
    const char *path = test_data_path("golden/normal_ep2_small.rank0.safetensors");
    if (path == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    struct trace_tensors tensors;
    ck_assert_msg(trace_tensors_open(path, &tensors, err, sizeof err) == 0, "%s", err);
    ck_assert_uint_eq(tensors.count, 26);
    const struct trace_tensor *x = trace_tensors_find(&tensors, "x");
    ck_assert_ptr_nonnull(x);
    ck_assert_int_eq(x->dtype, TRACE_BF16);
    ck_assert_uint_eq(x->axes, 2);
    ck_assert_uint_eq(x->shape[0], 33);
    ck_assert_uint_eq(x->shape[1], 512);
    const struct trace_tensor *ids = trace_tensors_find(&tensors, "topk_idx");
    ck_assert_ptr_nonnull(ids);
    ck_assert_int_eq(ids->dtype, TRACE_I64);
    for (uint64_t i = 0; i < ids->count; i++) {
        ck_assert_int_ge(trace_integer_at(ids->dtype, ids->data, i), -1);
        ck_assert_int_lt(trace_integer_at(ids->dtype, ids->data, i), 8);
    }
    TEST_SAYS(trace_tensors_metadata(&tensors, "case"), "\"sms\": 8");
    trace_tensors_close(&tensors);
}
END_TEST

START_TEST(damage_is_refused_or_read_but_never_more) /* Loop: seeds. */
{
    uint64_t seed = 2000 + (uint64_t)_i;
    const struct blob good = make_file(
        "{\"__metadata__\":{\"case\":\"x\"}," TENSOR("a", "I64", "1,2", "0,16") "," TENSOR(
            "b", "BF16", "3", "16,22") "," TENSOR("c", "U8", "0", "22,22") "} ",
        22);
    const int rounds = test_quick() ? 500 : 4000;
    uint8_t *work = (uint8_t *)malloc(good.count + 256);
    for (int round = 0; round < rounds; round++) {
        size_t count = good.count;
        memcpy(work, good.bytes, count);
        mutate(&seed, work, &count, good.count + 256);
        /* Every second time the length fits again, so that the damage reaches the JSON. */
        if (round % 2 == 0 && count >= 8 + 22) {
            const uint64_t length = count - 8 - 22;
            memcpy(work, &length, sizeof length);
        }
        const struct blob blob = blob_of(work, count);
        struct trace_tensors tensors;
        if (parse(&blob, &tensors) == 0) {
            uint64_t bytes = 0, sum = 0;
            for (size_t i = 0; i < tensors.count; i++) {
                const struct trace_tensor *tensor = &tensors.tensors[i];
                ck_assert_ptr_eq(trace_tensors_find(&tensors, tensor->name), tensor);
                bytes += tensor->bytes;
                for (uint64_t at = 0; at < tensor->bytes; at++)
                    sum += ((const uint8_t *)tensor->data)[at];
            }
            ck_assert_uint_lt(bytes, count);
            ck_assert_uint_le(sum, 255 * bytes);
            trace_tensors_close(&tensors);
        } else {
            ck_assert_msg(strncmp(err, "x.st: ", 6) == 0 && strchr(err, '\n') == NULL,
                          "loop %d round %d: %s", _i, round, err);
        }
        free(blob.bytes);
    }
    free(work);
    free(good.bytes);
}
END_TEST

Suite *safetensors_suite(void)
{
    TCase *tcase = tcase_create("safetensors");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, tensors_come_in_the_order_of_their_data);
    tcase_add_test(tcase, every_dtype_has_its_width);
    tcase_add_test(tcase, data_is_aligned_whatever_the_header_length);
    tcase_add_test(tcase, no_tensors_are_tensors);
    tcase_add_test(tcase, each_fault_is_named);
    tcase_add_test(tcase, header_lengths_are_held_against_the_file_and_the_format);
    tcase_add_test(tcase, what_would_only_eat_memory_is_refused_before_parsing);
    tcase_add_test(tcase, written_bytes_are_aligned_and_in_place);
    tcase_add_loop_test(tcase, what_is_written_is_read_back, 0, 20);
    tcase_add_test(tcase, names_that_json_cannot_hold_are_refused);
    tcase_add_test(tcase, a_capture_of_another_program_is_read);
    tcase_add_loop_test(tcase, damage_is_refused_or_read_but_never_more, 0, 6);
    Suite *suite = suite_create("safetensors");
    suite_add_tcase(suite, tcase);
    return suite;
}
