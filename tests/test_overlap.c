/* tests/test_overlap.c - the overlaps' tables, what refuses them, how batches are cut.
 *
 * Right values: splits worked out by hand against the rule (nearest sums, 0.48 to 0.52, else two
 * chunks), the library's SM counts, and each table read for what it must say. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "sim/overlap.h"
#include "tests/support.h"

static struct fabric_machine hopper, blackwell;
static struct sim_settings settings;
static char err[512];

static void setup(void)
{
    ck_assert_int_eq(fabric_machine_load("h100-hgx", &hopper, err, sizeof err), 0);
    ck_assert_int_eq(fabric_machine_load("b200-hgx", &blackwell, err, sizeof err), 0);
    sim_settings_default(&settings);
}

static void set(const char *name, const char *value)
{
    ck_assert_msg(sim_settings_set(&settings, name, value, err, sizeof err) == 0, "%s", err);
}

static struct sim_overlap_split split(uint32_t n, const uint64_t *tokens)
{
    return sim_overlap_split(tokens, n);
}

START_TEST(sequences_are_cut_where_sums_are_nearest)
{
    const uint64_t even[4] = {100, 100, 100, 100}, uneven[3] = {500, 30, 490};
    struct sim_overlap_split cut = split(4, even);
    ck_assert_uint_eq(cut.sequences, 2);
    ck_assert_uint_eq(cut.left, 200);
    ck_assert(!cut.chunked);
    cut = split(3, uneven); /* 500 of 1020 is 0.490 */
    ck_assert_uint_eq(cut.sequences, 1);
    ck_assert_uint_eq(cut.left, 500);
    ck_assert(!cut.chunked);
}
END_TEST

START_TEST(outside_48_to_52_percent_a_sequence_is_cut_in_two_chunks)
{
    const uint64_t one[1] = {4096}, three[3] = {100, 300, 100}, edge[2] = {48, 52},
                   beyond[2] = {479, 521};
    struct sim_overlap_split cut = split(1, one);
    ck_assert_uint_eq(cut.sequences, 0);
    ck_assert(cut.chunked);
    ck_assert_uint_eq(cut.left, 2048);
    cut = split(3, three); /* 100 or 400 of 500: neither; 150 of the middle one goes left. */
    ck_assert_uint_eq(cut.sequences, 1);
    ck_assert(cut.chunked);
    ck_assert_uint_eq(cut.left, 250);
    cut = split(2, edge);
    ck_assert(!cut.chunked);
    ck_assert_uint_eq(cut.left, 48);
    cut = split(2, beyond);
    ck_assert(cut.chunked);
    ck_assert_uint_eq(cut.left, 500);
}
END_TEST

START_TEST(graphs_are_captured_for_few_sizes)
{
    static const uint64_t want[][2] = {{0, 0}, {1, 1},  {2, 2},   {3, 4},     {5, 8},
                                       {8, 8}, {9, 16}, {16, 16}, {100, 104}, {256, 256}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        ck_assert_uint_eq(sim_overlap_padded(want[i][0]), want[i][1]);
}
END_TEST

START_TEST(communication_takes_3_sms_before_blackwell_and_32_from_there)
{
    ck_assert_uint_eq(sim_overlap_comm_sms(&settings, &hopper), 3);
    ck_assert_uint_eq(sim_overlap_comm_sms(&settings, &blackwell), 32);
    set("comm-sms", "7");
    ck_assert_uint_eq(sim_overlap_comm_sms(&settings, &blackwell), 7);
}
END_TEST

static int check(const struct fabric_machine *machine, enum sim_mode mode, uint32_t block_m)
{
    return sim_overlap_check(&settings, machine, mode, block_m, err, sizeof err);
}

START_TEST(single_batch_overlap_is_refused_where_no_kernel_signals)
{
    set("overlap", "sbo");
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 64), -1);
    ck_assert_ptr_eq(strstr(err, "sbo_wheel: "), err);
    set("allow", "capacity,sbo_wheel");
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 64), 0);
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 32), -1);
    ck_assert_ptr_eq(strstr(err, "sbo_block_m: 32"), err);
    ck_assert_int_eq(check(&blackwell, SIM_MODE_LL, 64), 0);
    set("gemm", "deepgemm");
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 64), 0);
    ck_assert_int_eq(check(&blackwell, SIM_MODE_LL, 64), -1);
    ck_assert_ptr_eq(strstr(err, "sbo_gemm: "), err);
    set("gemm", "cutedsl");
    ck_assert_int_eq(check(&blackwell, SIM_MODE_LL, 64), 0);
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 64), -1);
    ck_assert_int_eq(check(&blackwell, SIM_MODE_NORMAL, 64), -1);
    ck_assert_str_eq(err, "overlap_mode: --overlap sbo: not in --mode normal: needs ll");
}
END_TEST

START_TEST(communication_must_leave_an_sm)
{
    set("overlap", "sbo");
    set("allow", "sbo_wheel");
    set("comm-sms", "132");
    ck_assert_int_eq(check(&hopper, SIM_MODE_LL, 64), -1);
    ck_assert_str_eq(err, "overlap_sms: 132 SMs for communication leave none of 132 to compute: at "
                          "most 131");
}
END_TEST

/* The line of op in the explanation, or "" . */
static const char *line_of(const char *text, const char *op)
{
    static char line[160];
    line[0] = '\0';
    for (const char *at = text; at != NULL && *at != '\0';) {
        const char *end = strchr(at, '\n');
        char name[32] = "", stream[32] = "";
        const size_t span = end ? (size_t)(end - at) : strlen(at);
        snprintf(line, sizeof line, "%.*s", (int)span, at);
        if (sscanf(line, " %31s %31s", stream, name) == 2 && strcmp(name, op) == 0) return line;
        at = end ? end + 1 : NULL;
    }
    return "";
}

START_TEST(schedules_say_who_waits_for_whom)
{
    char text[8192];
    sim_overlap_explain(sim_overlap_find("layers"), SIM_MODE_LL, text, sizeof text);
    ck_assert_str_eq(line_of(text, "reduce_scatter"),
                     "  comm     reduce_scatter  waits for shared, combine, ffn");
    TEST_SAYS(line_of(text, "tp_gather"), "but not its reduce_scatter");
    sim_overlap_explain(sim_overlap_find("sbo"), SIM_MODE_LL, text, sizeof text);
    ck_assert_str_eq(line_of(text, "combine"),
                     "  comm     combine         waits for each expert's blocks of down");
    sim_overlap_explain(sim_overlap_find("tbo"), SIM_MODE_NORMAL, text, sizeof text);
    ck_assert_str_eq(line_of(text, "dispatch"), "  comm     dispatch        waits for quantise");
    sim_overlap_explain(sim_overlap_find("tbo"), SIM_MODE_LL, text, sizeof text);
    TEST_SAYS(text, "B 2 stages behind");
    TEST_SAYS(text, "stage 4:");
    ck_assert_str_eq(line_of(text, "dispatch"),
                     "  compute  dispatch        waits for dispatch_send");
}
END_TEST

START_TEST(every_table_holds_every_kernel_of_a_layer_once)
{
    for (size_t i = 0; sim_overlap_at(i) != NULL; i++) {
        for (int mode = 0; mode < 2; mode++) {
            const struct sim_overlap_entry *entry = sim_overlap_at(i)->table[mode];
            uint32_t count[SIM_OPS] = {0};
            if (entry == NULL) continue;
            for (; entry->op != SIM_OP_END; entry++)
                if (entry->op != SIM_OP_YIELD) count[entry->op]++;
            for (int o = 0; o < SIM_OPS; o++) {
                const bool optional = o == SIM_OP_FFN || o == SIM_OP_QUANTISE ||
                                      o == SIM_OP_DISPATCH_SEND || o == SIM_OP_COMBINE_SEND;
                ck_assert_uint_le(count[o], 1);
                ck_assert_msg(optional || count[o] == 1, "%s: %s", sim_overlap_at(i)->name,
                              sim_op_name((enum sim_op)o));
                /* Whoever dispatches in normal mode casts before. */
                if (mode == 1 && o == SIM_OP_QUANTISE) ck_assert_uint_eq(count[o], 1);
            }
        }
    }
}
END_TEST

START_TEST(check_judges_the_schedule_too)
{
    struct test_output output;
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--tokens", "64", "--capacity", "128"), 0);
    ck_assert_int_eq(
        TEST_EPSIM(&output, "check", "--tokens", "64", "--capacity", "128", "--overlap", "sbo"), 1);
    TEST_SAYS(output.out, "refused: sbo_wheel: ");
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--tokens", "64", "--capacity", "128",
                                "--overlap", "sbo", "--allow", "sbo_wheel"),
                     0);
    ck_assert_int_eq(TEST_EPSIM(&output, "check", "--tokens", "64", "--capacity", "128",
                                "--overlap", "sbo", "--machine", "b200-hgx", "--gemm", "deepgemm",
                                "--json"),
                     1);
    TEST_SAYS(output.out, "\"overlap\": \"sbo_gemm: ");
}
END_TEST

Suite *overlap_suite(void);
Suite *overlap_suite(void)
{
    Suite *suite = suite_create("overlap");
    TCase *tcase = tcase_create("overlap");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, sequences_are_cut_where_sums_are_nearest);
    tcase_add_test(tcase, outside_48_to_52_percent_a_sequence_is_cut_in_two_chunks);
    tcase_add_test(tcase, graphs_are_captured_for_few_sizes);
    tcase_add_test(tcase, communication_takes_3_sms_before_blackwell_and_32_from_there);
    tcase_add_test(tcase, single_batch_overlap_is_refused_where_no_kernel_signals);
    tcase_add_test(tcase, communication_must_leave_an_sm);
    tcase_add_test(tcase, schedules_say_who_waits_for_whom);
    tcase_add_test(tcase, every_table_holds_every_kernel_of_a_layer_once);
    tcase_add_test(tcase, check_judges_the_schedule_too);
    suite_add_tcase(suite, tcase);
    return suite;
}
