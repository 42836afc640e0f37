/* tests/test_golden.c - the reference against captures of the real kernels, and proof that the
 * comparison can fail.
 *
 * Three captures stand in the tree; all of them are found through EPSIM_DATA. The numbers of
 * tensors were counted by a script of its own. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sim/compare.h"
#include "sim/expect.h"
#include "sim/verify.h"
#include "tests/json.h"
#include "tests/make_case.h"
#include "tests/support.h"

static const char *const tree_cases[] = {"ll_ep2_masked", "normal_ep2_onerank", "normal_ep2_small"};

static struct sim_verify_report verify(const char *folder, const struct sim_backend_ops *backend)
{
    struct sim_verify_report report;
    char err[1024] = "";
    bool usage = false;
    const int status =
        sim_verify_golden(folder, backend, NULL, NULL, NULL, &report, &usage, err, sizeof(err));

    ck_assert_msg(status == 0, "%s", err);
    ck_assert_uint_eq(report.cases, report.passed + report.failed + report.skipped);
    return report;
}

START_TEST(every_bit_of_the_captures_in_the_tree)
{
    const struct sim_verify_report report = verify(test_tree_path("tests/golden"), NULL);

    ck_assert_msg(report.failed == 0, "%s %s", report.first_case, report.first.tensor);
    ck_assert_uint_eq(report.passed, 3);
    ck_assert_uint_eq(report.tensors, 334);
}
END_TEST

START_TEST(every_bit_of_all_captures)
{
    const char *folder = test_data_path("golden");

    if (folder == NULL) {
        test_skip("no EPSIM_DATA");
        return;
    }
    const struct sim_verify_report report = verify(folder, NULL);
    ck_assert_msg(report.failed == 0, "%s %s", report.first_case, report.first.tensor);
    ck_assert_uint_eq(report.passed, 17);
    ck_assert_uint_eq(report.tensors, 3404);
}
END_TEST

START_TEST(the_reference_behind_the_table_does_it_too)
{
    const struct sim_verify_report report =
        verify(test_tree_path("tests/golden"), sim_backend_ref());

    ck_assert_msg(report.failed == 0, "%s %s", report.first_case, report.first.tensor);
    ck_assert_uint_eq(report.passed, 3);
    ck_assert_uint_gt(report.tensors, 250); /* All but layout, handle and the cast itself. */
}
END_TEST

/* The reference with one bit of one element wrong. */
static int wrong_combine(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                         const float *row_weights, struct sim_combined *out, char *err,
                         size_t err_len)
{
    const int status =
        sim_backend_ref()->combine(state, in, expert_out, row_weights, out, err, err_len);

    out->x[in->hidden + 3] ^= 1;
    return status;
}

START_TEST(a_backend_that_is_wrong_once_fails)
{
    struct sim_backend_ops ops = *sim_backend_ref();

    ops.combine = wrong_combine;
    const struct sim_verify_report report = verify(test_tree_path("tests/golden"), &ops);
    ck_assert_uint_eq(report.failed, 3);
    ck_assert_str_eq(report.first_case, "ll_ep2_masked");
    ck_assert_str_eq(report.first.stage, "combine");
    ck_assert_str_eq(report.first.tensor, "combined_x");
    ck_assert_uint_eq(report.first.rank, 0);
    ck_assert_int_eq(report.first.src_token, 1);
    ck_assert_int_eq(report.first.channel, 3);
    ck_assert_uint_eq(report.first_mismatches, 1);
    TEST_SAYS(report.first.cause, "one bit is flipped");
}
END_TEST

static void load(const char *folder, const char *name, struct sim_capture *capture)
{
    struct sim_case_place place;
    char err[1024] = "";

    memset(&place, 0, sizeof(place));
    snprintf(place.folder, sizeof(place.folder), "%s", folder);
    snprintf(place.name, sizeof(place.name), "%s", name);
    snprintf(place.label, sizeof(place.label), "%s", name);
    const int status = sim_capture_load(&place, capture, err, sizeof(err));
    ck_assert_msg(status == 0, "%s", err);
}

static bool is_case_input(const char *name)
{
    static const char *const inputs[] = {"x", "topk_idx", "topk_weights", "bias0", "bias1"};

    for (size_t i = 0; i < 5; i++)
        if (strcmp(inputs[i], name) == 0) return true;
    return false;
}

/* Flip one bit in the middle of the tensor (in the column that counts, in a rank prefix), compare,
 * and put it back. */
static void damage(struct sim_capture *capture, const struct sim_capture *results, uint32_t rank,
                   struct sim_tensor *tensor)
{
    const struct sim_compare_options options = {.inputs = false};
    struct sim_comparison comparison;
    char err[256];
    uint64_t at = tensor->bytes / 2;
    uint8_t *copy = (uint8_t *)malloc(tensor->bytes);
    const uint8_t *original = tensor->data;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, original, tensor->bytes);
    if (strcmp(tensor->name, "rank_prefix_matrix") == 0) at = 4 * rank;
    copy[at] ^= 1;
    tensor->data = copy;
    ck_assert_int_eq(
        sim_compare_captures(capture, results, &options, &comparison, err, sizeof(err)), 0);
    ck_assert_msg(comparison.mismatches > 0, "%s of rank %" PRIu32 " can be wrong", tensor->name,
                  rank);
    ck_assert_str_eq(comparison.first.tensor, tensor->name);
    ck_assert_uint_eq(comparison.first.rank, rank);
    tensor->data = original;
    free(copy);
}

START_TEST(a_flipped_bit_in_any_tensor_is_found_there)
{
    const struct sim_expect_options options = {.own_fp8 = false};
    struct sim_capture capture, results;
    struct sim_inputs inputs;
    char err[1024] = "";

    load(test_tree_path("tests/golden"), tree_cases[_i], &capture);
    ck_assert_int_eq(sim_inputs_read(&capture, &inputs, err, sizeof(err)), 0);
    ck_assert_int_eq(sim_expect(&capture, &inputs, &options, &results, err, sizeof(err)), 0);
    for (uint32_t r = 0; r < capture.ranks; r++) {
        for (size_t i = 0; i < capture.rank[r].count; i++) {
            struct sim_tensor *tensor = &capture.rank[r].tensors[i];
            const char *part = strrchr(tensor->name, '.');

            if (is_case_input(tensor->name) || tensor->bytes == 0) continue;
            if (part != NULL && strcmp(part, ".layout") == 0) continue; /* See test_compare. */
            if (part != NULL && strcmp(part, ".src") == 0) continue;
            damage(&capture, &results, r, tensor);
        }
    }
    sim_capture_close(&results);
    sim_inputs_free(&inputs);
    sim_capture_close(&capture);
}
END_TEST

/* A copy of an in-tree case in a new folder; edit(tensor, data) may change each tensor. */
typedef void (*edit_fn)(uint32_t rank, const struct sim_tensor *tensor, uint8_t *data);

/* The same without the tensors whose names begin with left_out. */
static const char *copy_part(const char *name, edit_fn edit, const char *left_out)
{
    const char *folder = test_temp_dir();
    struct sim_capture capture, copy;
    char err[1024] = "";

    load(test_tree_path("tests/golden"), name, &capture);
    ck_assert_int_eq(sim_capture_open(name, &capture.settings, &copy, err, sizeof(err)), 0);
    for (uint32_t r = 0; r < capture.ranks; r++) {
        char file[128];

        for (size_t i = 0; i < capture.rank[r].count; i++) {
            const struct sim_tensor *from = &capture.rank[r].tensors[i];
            if (left_out != NULL && strncmp(from->name, left_out, strlen(left_out)) == 0) continue;
            uint8_t *to = (uint8_t *)sim_capture_add(&copy, r, from->name, from->dtype, from->axes,
                                                     from->shape, err, sizeof(err));

            ck_assert_ptr_nonnull(to);
            memcpy(to, from->data, from->bytes);
            if (edit != NULL) edit(r, from, to);
        }
        snprintf(file, sizeof(file), "%s.rank%" PRIu32 ".safetensors", name, r);
        const int status =
            sim_capture_write(&copy, r, &capture, test_join(folder, file), err, sizeof(err));
        ck_assert_msg(status == 0, "%s", err);
    }
    sim_capture_close(&copy);
    sim_capture_close(&capture);
    return folder;
}

static const char *copy_case(const char *name, edit_fn edit)
{
    return copy_part(name, edit, NULL);
}

static void edit_fp8(uint32_t rank, const struct sim_tensor *tensor, uint8_t *data)
{
    if (rank == 1 && strcmp(tensor->name, "fp8.e3.x") == 0) data[1 * 2048 + 77] ^= 1;
}

START_TEST(folders_may_differ_in_which_dispatches_they_captured)
{
    const char *whole = copy_case("ll_ep2_masked", NULL);
    const char *part = copy_part("ll_ep2_masked", NULL, "bf16.");
    const char *torn = copy_part("ll_ep2_masked", NULL, "bf16.count");
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "diff", whole, part, "--json"), 0);
    json_t *json = test_json(&output);
    const json_t *left = json_object_get(json, "not_compared");
    ck_assert_uint_eq(json_array_size(left), 1);
    ck_assert_str_eq(json_string_value(json_array_get(left, 0)), "bf16");
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", part, whole), 0);
    TEST_SAYS(output.out, "not compared: bf16.*");
    ck_assert_int_eq(TEST_EPSIM(&output, "diff", whole, torn), 1); /* It has some of them. */
    TEST_SAYS(output.out, "bf16.count");
}
END_TEST

START_TEST(links_that_lead_back_are_not_followed)
{
    const char *folder = copy_case("ll_ep2_masked", NULL);
    const char *below = test_join(folder, "below");
    struct sim_case_list list;
    char err[512] = "";

    ck_assert_int_eq(mkdir(below, 0777), 0);
    ck_assert_int_eq(symlink("..", test_join(below, "up")), 0);
    ck_assert_int_eq(symlink(folder, test_join(below, "top")), 0);
    ck_assert_int_eq(symlink(".", test_join(folder, "here")), 0);
    ck_assert_int_eq(symlink(test_tree_path("tests/golden"), test_join(below, "aside")), 0);
    ck_assert_int_eq(sim_case_list(folder, true, &list, err, sizeof(err)), 0);
    ck_assert_uint_eq(list.count, 4); /* Its own, and three by the one link that leads elsewhere. */
    ck_assert_str_eq(list.places[0].label, "below/aside/ll_ep2_masked");
    ck_assert_str_eq(list.places[3].label, "ll_ep2_masked");
    sim_case_list_free(&list);
}
END_TEST

START_TEST(the_command_names_the_place_in_json)
{
    const char *folder = copy_case("ll_ep2_masked", edit_fp8);
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", folder, "--json"), 1);
    json_t *json = test_json(&output);
    ck_assert_int_eq(int_at(json, "cases"), 1);
    ck_assert_int_eq(int_at(json, "passed"), 0);
    ck_assert_int_eq(int_at(json, "failed"), 1);
    ck_assert_int_eq(int_at(json, "skipped"), 0);
    const json_t *first = json_object_get(json, "first_failure");
    ck_assert_str_eq(text_at(first, "case"), "ll_ep2_masked");
    ck_assert_str_eq(text_at(first, "stage"), "dispatch");
    ck_assert_str_eq(text_at(first, "tensor"), "fp8.e3.x");
    ck_assert_int_eq(int_at(first, "rank"), 1);
    ck_assert_int_eq(int_at(first, "expert"), 11); /* 16 experts on 2 ranks: 8 + 3. */
    ck_assert_int_eq(int_at(first, "channel"), 77);
    ck_assert_int_ge(int_at(first, "src_rank"), 0);
    ck_assert_int_ge(int_at(first, "src_token"), 0);
    ck_assert_uint_eq(strlen(text_at(first, "expected")), 2);
    ck_assert_str_ne(text_at(first, "expected"), text_at(first, "actual"));
    TEST_SAYS(text_at(first, "cause"), "one bit is flipped");
    json_decref(json);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", folder), 1);
    TEST_SAYS(output.out, "ll_ep2_masked: dispatch: fp8.e3.x of rank 1, expert "
                          "11, source rank");
}
END_TEST

/* BF16 payloads of rows 2i and 2i + 1 change places; their source ids stay. */
static void edit_order(uint32_t rank, const struct sim_tensor *tensor, uint8_t *data)
{
    const char *part = strrchr(tensor->name, '.');

    (void)rank;
    if (part == NULL || strcmp(part, ".x") != 0 || strncmp(tensor->name, "bf16.", 5) != 0) return;
    const uint64_t rows = tensor->shape[0], bytes = rows > 0 ? tensor->bytes / rows : 0;
    for (uint64_t i = 0; i + 1 < rows; i += 2)
        for (uint64_t b = 0; b < bytes; b++) {
            const uint8_t swap = data[i * bytes + b];

            data[i * bytes + b] = data[(i + 1) * bytes + b];
            data[(i + 1) * bytes + b] = swap;
        }
}

START_TEST(rows_in_each_others_place_are_named)
{
    const char *folder = copy_case("ll_ep2_masked", edit_order);
    const struct sim_verify_report report = verify(folder, NULL);

    ck_assert_uint_eq(report.failed, 1);
    ck_assert_str_eq(report.first.stage, "dispatch");
    TEST_SAYS(report.first.cause, "holds the payload of token");
}
END_TEST

START_TEST(a_missing_rank_is_a_broken_question)
{
    const char *folder = copy_case("normal_ep2_onerank", NULL);
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", folder), 0);
    test_remove(test_join(folder, "normal_ep2_onerank.rank1.safetensors"));
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", folder), 2);
    TEST_SAYS(output.err, "normal_ep2_onerank.rank1.safetensors: missing");
    ck_assert_uint_eq(output.out_bytes, 0);
}
END_TEST

START_TEST(subfolders_are_searched_and_other_files_ignored)
{
    const char *folder = copy_case("normal_ep2_onerank", NULL);
    struct test_output output;

    (void)test_write_text(folder, "README.md", "nothing");
    (void)test_write_text(folder, "note.safetensors", "nothing either");
    const char *mkdir[] = {"mkdir", "-p", test_join(folder, "a/b"), NULL};
    ck_assert_int_eq(test_run(mkdir, &output), 0);
    const char *cp[] = {"cp", test_tree_path("tests/golden/normal_ep2_small.rank0.safetensors"),
                        test_tree_path("tests/golden/normal_ep2_small.rank1.safetensors"),
                        test_join(folder, "a/b"), NULL};
    ck_assert_int_eq(test_run(cp, &output), 0);
    const struct sim_verify_report report = verify(folder, NULL);
    ck_assert_uint_eq(report.passed, 2);
}
END_TEST

START_TEST(a_folder_without_cases_is_a_broken_question)
{
    struct test_output output;

    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", test_temp_dir()), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify", "--golden", "/no/such/folder"), 2);
    ck_assert_int_eq(TEST_EPSIM(&output, "verify"), 2);
}
END_TEST

START_TEST(folders_differ_where_a_bit_differs)
{
    const char *folder = copy_case("ll_ep2_masked", edit_fp8);
    struct sim_verify_report report;
    char err[1024] = "";
    bool usage = false;

    ck_assert_int_eq(sim_diff_folders(folder, folder, &report, &usage, err, sizeof(err)), 0);
    ck_assert_uint_eq(report.passed, 1);
    ck_assert_int_eq(
        sim_diff_folders(test_tree_path("tests/golden"), folder, &report, &usage, err, sizeof(err)),
        0);
    ck_assert_uint_eq(report.failed, 3); /* Two cases stand on one side only. */
    ck_assert_str_eq(report.first_case, "ll_ep2_masked");
    ck_assert_str_eq(report.first.tensor, "fp8.e3.x");
    ck_assert_int_eq(report.first.channel, 77);
    TEST_SAYS(report.first.cause, "one bit is flipped");
}
END_TEST

/* "fp8.e3.x" as the documentation writes it: "TAG.eE.x". */
static void documented_name(const char *name, char out[64])
{
    const char *dot = strchr(name, '.');
    const char *last = strrchr(name, '.');

    if (dot == NULL)
        snprintf(out, 64, "`%s`", name);
    else if (dot == last)
        snprintf(out, 64, "`TAG%s`", last);
    else
        snprintf(out, 64, "`TAG.eE%s`", last);
}

START_TEST(every_key_of_the_captures_is_documented)
{
    const char *readme = test_read(test_tree_path("ref/README.md"), NULL);
    struct sim_capture capture;

    load(test_tree_path("tests/golden"), tree_cases[_i], &capture);
    for (size_t i = 0; i < capture.rank[0].count; i++) {
        char name[64];

        documented_name(capture.rank[0].tensors[i].name, name);
        ck_assert_msg(strstr(readme, name) != NULL, "ref/README.md does not say %s", name);
    }
    sim_capture_close(&capture);
}
END_TEST

Suite *golden_suite(void);
Suite *golden_suite(void)
{
    Suite *suite = suite_create("golden");
    TCase *tcase = tcase_create("golden");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_bit_of_the_captures_in_the_tree);
    tcase_add_test(tcase, every_bit_of_all_captures);
    tcase_add_test(tcase, the_reference_behind_the_table_does_it_too);
    tcase_add_test(tcase, a_backend_that_is_wrong_once_fails);
    tcase_add_loop_test(tcase, a_flipped_bit_in_any_tensor_is_found_there, 0, 3);
    tcase_add_loop_test(tcase, every_key_of_the_captures_is_documented, 0, 3);
    tcase_add_test(tcase, folders_may_differ_in_which_dispatches_they_captured);
    tcase_add_test(tcase, links_that_lead_back_are_not_followed);
    tcase_add_test(tcase, the_command_names_the_place_in_json);
    tcase_add_test(tcase, rows_in_each_others_place_are_named);
    tcase_add_test(tcase, a_missing_rank_is_a_broken_question);
    tcase_add_test(tcase, subfolders_are_searched_and_other_files_ignored);
    tcase_add_test(tcase, a_folder_without_cases_is_a_broken_question);
    tcase_add_test(tcase, folders_differ_where_a_bit_differs);
    suite_add_tcase(suite, tcase);
    return suite;
}
