/* tests/test_machine.c - machine files: the presets' figures, inheritance, stacks, refusals.
 *
 * Method: datasheet figures written down here again, small files with the answer beside them,
 * then damage: every refusal by its words, and random bytes that only must not crash. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/machine.h"
#include "fabric/yaml.h"
#include "tests/support.h"

static struct fabric_machine machine;
static char err[512];

#define GB UINT64_C(1000000000)

START_TEST(presets_hold_the_datasheet_figures)
{
    static const struct {
        const char *name;
        uint32_t sm_count, gpus_per_node;
        uint64_t hbm_bytes_per_s, hbm_bytes, nvlink_bytes_per_s, nic_bytes_per_s;
    } want[] = {
        {"b200-hgx", 148, 8, 8000 * GB, 180 * GB, 900 * GB, 50 * GB},
        {"b300-hgx", 148, 8, 8000 * GB, 288 * GB, 900 * GB, 100 * GB},
        {"gb200-nvl72", 148, 72, 8000 * GB, 186 * GB, 900 * GB, 50 * GB},
        {"h100-hgx", 132, 8, 3350 * GB, 80 * GB, 450 * GB, 50 * GB},
        {"h20-hgx", 78, 8, 4000 * GB, 96 * GB, 450 * GB, 50 * GB},
        {"h200-hgx", 132, 8, 4800 * GB, 141 * GB, 450 * GB, 50 * GB},
        {"h200-pair", 132, 2, 4800 * GB, 141 * GB, 47808 * GB / 100, 0},
        {"h800-hgx", 132, 8, 3350 * GB, 80 * GB, 200 * GB, 50 * GB},
        {"h800-hgx-nonvl", 132, 8, 3350 * GB, 80 * GB, 0, 50 * GB},
        {"toy-2x4", 132, 4, 3350 * GB, 80 * GB, 450 * GB, 50 * GB},
    };
    size_t i = 0;
    for (; fabric_machine_preset(i); i++) {
        ck_assert_str_eq(fabric_machine_preset(i), want[i].name);
        ck_assert_msg(fabric_machine_load(want[i].name, &machine, err, sizeof err) == 0, "%s", err);
        ck_assert_str_eq(machine.name, want[i].name);
        ck_assert_uint_eq(machine.sm_count, want[i].sm_count);
        ck_assert_uint_eq(machine.gpus_per_node, want[i].gpus_per_node);
        ck_assert_uint_eq(machine.hbm_bytes_per_s, want[i].hbm_bytes_per_s);
        ck_assert_uint_eq(machine.hbm_bytes, want[i].hbm_bytes);
        ck_assert_uint_eq(machine.nvlink_bytes_per_s, want[i].nvlink_bytes_per_s);
        ck_assert_uint_eq(machine.nic_bytes_per_s, want[i].nic_bytes_per_s);
        ck_assert_str_ne(machine.source, "");
        ck_assert_str_ne(machine.costs_source, "");
    }
    ck_assert_uint_eq(i, sizeof want / sizeof want[0]);
}
END_TEST

START_TEST(every_number_of_a_preset_names_its_file)
{
    struct fabric_machine_row row;
    for (size_t p = 0; fabric_machine_preset(p); p++) {
        ck_assert_int_eq(fabric_machine_load(fabric_machine_preset(p), &machine, err, sizeof err),
                         0);
        for (size_t i = 0; fabric_machine_row(&machine, i, &row); i++)
            ck_assert_msg(row.origin[0] != '\0' || strcmp(row.key, "gpu_hour_usd") == 0,
                          "%s: %s %s is said by nobody",
                          /* A price is the reader's own. */ machine.name, row.section, row.key);
    }
}
END_TEST

START_TEST(rows_say_from_whom_a_number_comes)
{
    struct fabric_machine_row row;
    ck_assert_int_eq(fabric_machine_load("h200-pair", &machine, err, sizeof err), 0);
    ck_assert_uint_eq(machine.origin_count, 3);
    ck_assert_str_eq(machine.inherits, "h200-hgx");
    int seen = 0;
    for (size_t i = 0; fabric_machine_row(&machine, i, &row); i++) {
        if (strcmp(row.key, "nvlink_gbytes_per_s") == 0) {
            ck_assert_str_eq(row.value, "478.08");
            ck_assert_str_eq(row.origin, "h200-pair");
            seen++;
        } else if (strcmp(row.key, "hbm_gbytes_per_s") == 0) {
            ck_assert_str_eq(row.value, "4800");
            ck_assert_str_eq(row.origin, "h200-hgx");
            seen++;
        } else if (strcmp(row.key, "sm_count") == 0) {
            ck_assert_str_eq(row.origin, "h100-hgx");
            seen++;
        }
    }
    ck_assert_int_eq(seen, 3);
}
END_TEST

#define PARSE(text) fabric_machine_parse("mine.yaml", text, strlen(text), &machine, err, sizeof err)

START_TEST(a_number_is_of_the_kind_that_its_comment_says)
{
    static const struct {
        const char *key, *section, *kind;
    } want[] = {{"sm_count", "", "datasheet"},        {"gpus_per_node", "", "measured"},
                {"nic_flight_us", "", "assumed"},     {"gpu_hour_usd", "", ""},
                {"poll_us", "ll", "assumed"},         {"publish_us", "ll", "fitted"},
                {"stage_us", "ll", "measured"},       {"poll_us", "normal", "published"},
                {"exchange_us", "normal", "measured"}}; /* The parent's: read off. */
    const char *text = "inherits: h100-hgx # fitted\n"
                       "sm_count: 132   # datasheet: not measured\n"
                       "gpus_per_node: 4 #  measured as fitted\r\n"
                       "gpu_hour_usd: 2 # my own\n"
                       "ll: # fitted to rows\n"
                       "  poll_us: 1 # assumed\n"
                       "  publish_ns: 3000\n"
                       "  stage_us: 8 # slopes of measured rows\n"
                       "normal: {poll_us: 1} # published\n";
    struct fabric_machine_row row;
    size_t seen = 0;
    ck_assert_msg(PARSE(text) == 0, "%s", err);
    for (size_t i = 0; fabric_machine_row(&machine, i, &row); i++)
        for (size_t w = 0; w < sizeof want / sizeof want[0]; w++)
            if (strcmp(row.key, want[w].key) == 0 && strcmp(row.section, want[w].section) == 0) {
                ck_assert_str_eq(row.kind, want[w].kind);
                seen++;
            }
    ck_assert_uint_eq(seen, sizeof want / sizeof want[0]);
}
END_TEST

/* Of h100-hgx: 47 of the NIC's 50 GB/s, 370 of NVLink's 450. */
START_TEST(a_line_rate_alone_takes_its_goodput_along)
{
    struct fabric_machine_row row;
    ck_assert_msg(PARSE("inherits: h100-hgx\nnic_gbits_per_s: 800\nnvlink_gbytes_per_s: 225\n") ==
                      0,
                  "%s", err);
    ck_assert_uint_eq(machine.nic_goodput_bytes_per_s, 94 * GB);
    ck_assert_uint_eq(machine.nvlink_goodput_bytes_per_s, 185 * GB);
    int seen = 0;
    for (size_t i = 0; fabric_machine_row(&machine, i, &row); i++) {
        const bool goodput = strstr(row.key, "goodput") != NULL;
        ck_assert_str_eq(row.scaled, goodput ? "mine" : "");
        if (goodput) ck_assert_str_eq(row.origin, "h100-hgx");
        seen += goodput;
    }
    ck_assert_int_eq(seen, 2);
    ck_assert_msg(PARSE("inherits: h100-hgx\nnic_gbits_per_s: 200\n") == 0, "%s", err);
    ck_assert_uint_eq(machine.nic_goodput_bytes_per_s, 235 * GB / 10);
    ck_assert_uint_eq(machine.nvlink_goodput_bytes_per_s, 370 * GB);
    ck_assert_msg(PARSE("inherits: h100-hgx\nnic_gbits_per_s: 0\n") == 0, "%s", err);
    ck_assert_uint_eq(machine.nic_goodput_bytes_per_s, 0);
    /* What a file says itself stays, wherever it stands, for its children too. */
    ck_assert_msg(
        PARSE("inherits: h100-hgx\nnic_goodput_gbytes_per_s: 80\nnic_gbits_per_s: 800\n") == 0,
        "%s", err);
    ck_assert_uint_eq(machine.nic_goodput_bytes_per_s, 80 * GB);
    for (size_t i = 0; fabric_machine_row(&machine, i, &row); i++) ck_assert_str_eq(row.scaled, "");
}
END_TEST

START_TEST(a_stack_changes_what_it_lists)
{
    const char *text = "inherits: h100-hgx\n"
                       "ll: {poll_us: 1.5}\n"
                       "normal: {poll_us: 2}\n"
                       "stacks:\n"
                       "  one: {ll: {poll_us: 3.25}}\n"
                       "  two: {normal: {poll_ns: 7}}\n";
    ck_assert_msg(PARSE(text) == 0, "%s", err);
    ck_assert_str_eq(machine.name, "mine");
    ck_assert_uint_eq(machine.costs.ll.poll_ps, 1500000);
    struct fabric_machine one = machine, two = machine, other = machine;
    ck_assert(fabric_machine_select_stack(&one, "one"));
    ck_assert_uint_eq(one.costs.ll.poll_ps, 3250000);
    ck_assert_uint_eq(one.costs.normal.poll_ps, 2000000);
    ck_assert_str_eq(one.stack, "one");
    ck_assert(fabric_machine_select_stack(&two, "two"));
    ck_assert_uint_eq(two.costs.ll.poll_ps, 1500000);
    ck_assert_uint_eq(two.costs.normal.poll_ps, 7000);
    ck_assert(!fabric_machine_select_stack(&other, "three"));
    ck_assert_mem_eq(&other.costs, &machine.costs, sizeof other.costs);
    ck_assert_str_eq(other.stack, "");
}
END_TEST

START_TEST(a_file_may_inherit_from_a_neighbour)
{
    const char *folder = test_temp_dir();
    test_write_text(folder, "base.yaml",
                    "inherits: h100-hgx\nsm_count: 100\nstacks: {x: {ll: {poll_us: 9}}}\n");
    const char *path = test_write_text(
        folder, "child.yaml",
        "inherits: base.yaml\ngpus_per_node: 4\nstacks: {x: {normal: {poll_us: 8}}}\n");
    ck_assert_msg(fabric_machine_load(path, &machine, err, sizeof err) == 0, "%s", err);
    ck_assert_str_eq(machine.name, "child");
    ck_assert_uint_eq(machine.sm_count, 100);
    ck_assert_uint_eq(machine.gpus_per_node, 4);
    ck_assert(fabric_machine_select_stack(&machine, "x"));
    ck_assert_uint_eq(machine.costs.ll.poll_ps, 9000000);
    ck_assert_uint_eq(machine.costs.normal.poll_ps, 8000000);
}
END_TEST

START_TEST(a_machines_own_number_beats_its_parents_builds)
{
    const char *text = "inherits: h100-hgx\n"
                       "stacks: {sglang-0.5.6: {ll: {poll_us: 4}}}\n"
                       "ll: {dispatch_launch_us: 9, poll_us: 8}\n";
    struct fabric_machine parent;
    ck_assert_msg(PARSE(text) == 0, "%s", err);
    ck_assert_int_eq(fabric_machine_load("h100-hgx", &parent, err, sizeof err), 0);
    const uint64_t before_ps = parent.costs.ll.combine_launch_ps;
    ck_assert(fabric_machine_select_stack(&parent, "sglang-0.5.6"));
    ck_assert(fabric_machine_select_stack(&machine, "sglang-0.5.6"));
    ck_assert_uint_eq(machine.costs.ll.dispatch_launch_ps, 9000000);
    ck_assert_uint_eq(machine.costs.ll.poll_ps, 4000000); /* Its own build's, said before. */
    ck_assert_uint_ne(parent.costs.ll.combine_launch_ps, before_ps);
    ck_assert_uint_eq(machine.costs.ll.combine_launch_ps, parent.costs.ll.combine_launch_ps);
}
END_TEST

START_TEST(a_circle_of_files_ends)
{
    const char *folder = test_temp_dir();
    test_write_text(folder, "a.yaml", "inherits: b.yaml\n");
    test_write_text(folder, "b.yaml", "inherits: a.yaml\n");
    ck_assert_int_eq(fabric_machine_load(test_join(folder, "a.yaml"), &machine, err, sizeof err),
                     -1);
    TEST_SAYS(err, "b.yaml:1: inherits: a.yaml: at most 4 files");
}
END_TEST

#define CHILD "inherits: h100-hgx\n"

static const struct {
    const char *text, *want;
} refusals[] = {
    {CHILD "nvlink_gbytes_per_s: -3\n",
     "mine.yaml:2: nvlink_gbytes_per_s: -3: must not be below 0"},
    {CHILD "\nsm_count: 0\n", "mine.yaml:3: sm_count: 0: must be above 0"},
    {CHILD "sm_count: -1\n", "mine.yaml:2: sm_count: -1: must be above 0"},
    {CHILD "sm_count: 4097\n", "mine.yaml:2: sm_count: 4097: must lie in 1..4096"},
    {CHILD "sm_count: 99999999999999999999999999\n",
     "mine.yaml:2: sm_count: 99999999999999999999999999: must lie in 1..4096"},
    {CHILD "sm_count: 1.5\n", "mine.yaml:2: sm_count: 1.5: has too many decimals"},
    {CHILD "sm_count: lots\n", "mine.yaml:2: sm_count: lots: must be a number"},
    {CHILD "sm_count:\n", "mine.yaml:2: sm_count: : must be a number"},
    {CHILD "sm_count: [1]\n", "mine.yaml:2: sm_count: must be a number"},
    {CHILD "sms: 3\n", "mine.yaml:2: sms: 3: unknown field"},
    {CHILD "ll:\n  pol_us: 3\n", "mine.yaml:3: pol_us: 3: unknown field"},
    {CHILD "ll: 3\n", "mine.yaml:2: ll: 3: must hold fields"},
    {CHILD "ll: {poll_us: 1, poll_ns: 5}\n", "mine.yaml:2: poll_ns: 5: said twice, in two units"},
    {CHILD "nic_gbits_per_s: 400\nnic_gbytes_per_s: 50\n",
     "mine.yaml:3: nic_gbytes_per_s: 50: said twice, in two units"},
    {CHILD "sm_count: 1\nsm_count: 1\n", "mine.yaml:3: sm_count: said twice"},
    {CHILD "ll: {poll_us: 99999999}\n", "mine.yaml:2: poll_us: 99999999: must lie in 0..1000000"},
    {CHILD "stacks: {x: {sm_count: 3}}\n", "mine.yaml:2: sm_count: 3: unknown field"},
    {CHILD "stacks: {x: 3}\n", "mine.yaml:2: x: 3: must hold ll, normal or compute"},
    {CHILD "stacks: 3\n", "mine.yaml:2: stacks: 3: must hold stacks by name"},
    /* The parent knows sglang-0.5.6. */
    {CHILD "stacks: {sglang-0.5.6: {}, b: {}, c: {}, d: {}, e: {}, f: {}, g: {}, h: {}, i: {}}\n",
     "mine.yaml:2: i: more than 8 stacks"},
    {CHILD "stacks: {a-name-that-is-much-too-long-for-us: {}}\n",
     "mine.yaml:2: a-name-that-is-much-too-long-for-us: a stack's name has 1 to 31 bytes"},
    {CHILD "nic_goodput_gbytes_per_s: 51\n",
     "mine.yaml:2: nic_goodput_gbytes_per_s: 51: must lie above 0 and not above the line rate, "
     "nic_gbits_per_s: 400 of h100-hgx, here 50: say another, or leave it out to keep the parent's "
     "share"},
    {CHILD "nic_gbits_per_s: 200\nnic_goodput_gbits_per_s: 240\n",
     "mine.yaml:3: nic_goodput_gbits_per_s: 240: must lie above 0 and not above the line rate, "
     "nic_gbits_per_s: 200 of mine, here 200: say another, or leave it out to keep the parent's "
     "share"},
    {"inherits: h800-hgx-nonvl\nnvlink_gbytes_per_s: 200\n",
     "mine.yaml:2: nvlink_gbytes_per_s: 200: needs nvlink_goodput_gbytes_per_s beside it: "
     "h800-hgx-nonvl has no such link whose share it could be"},
    {CHILD "nvlink_goodput_gbytes_per_s: 0\n",
     "mine.yaml:2: nvlink_goodput_gbytes_per_s: 0: must lie above 0 and not above the line rate, "
     "nvlink_gbytes_per_s: 450 of h100-hgx, here 450: say another, or leave it out to keep the "
     "parent's share"},
    {"inherits: h800-hgx-nonvl\nnic_gbits_per_s: 0\nnic_goodput_gbytes_per_s: 0\n",
     "mine.yaml: gpus_per_node: 8: neither NVLink nor NIC joins the GPUs"},
    {"inherits: h99\n", "mine.yaml:1: inherits: h99: no such machine"},
    {"inherits: [h100-hgx]\n", "mine.yaml:1: inherits: must be a text of 1 to 63 bytes"},
    {"inherits: /no/such.yaml\n", "/no/such.yaml: No such file or directory"},
    {"sm_count: 132\n", "mine.yaml: gpus_per_node: missing"},
    {"sm_count: 132\ngpus_per_node: 2\nhbm_gbytes: 80\nhbm_gbytes_per_s: 80\n"
     "nvlink_gbytes_per_s: 2\nnvlink_goodput_gbytes_per_s: 1\nnvlink_flight_us: 1\n"
     "nic_gbits_per_s: 0\nnic_goodput_gbytes_per_s: 0\nnic_flight_us: 0\nnic_message_ns: 0\n",
     "mine.yaml: ll: dispatch_launch_us: missing"},
    {"", "mine.yaml:1: empty"},
    {"# nothing\n", "mine.yaml:1: empty"},
    {"just words\n", "mine.yaml:1: just words: a machine file holds fields"},
    {"- sm_count\n", "mine.yaml:1: a machine file holds fields"},
    {"a: 1\n---\nb: 2\n", "mine.yaml:3: more than one document"},
    {"a: &x 1\n", "mine.yaml:1: anchors are not allowed"},
    {"a: &x {b: 1}\n", "mine.yaml:1: anchors are not allowed"},
    {"a: *x\n", "mine.yaml:1: aliases are not allowed"},
    {"a: !!int 3\n", "mine.yaml:1: tags are not allowed"},
    {"a: !x [3]\n", "mine.yaml:1: tags are not allowed"},
    {"a: [[[[[[[[1]]]]]]]]\n", "mine.yaml:1: nested too deeply"},
    {"? {a: 1}\n: 2\n", "mine.yaml:1: a key must be a plain word"},
    {"a: \"\\0\"\n", "mine.yaml:1: a text must not hold a NUL"},
    {"a: 1\n b: 2\n", "mine.yaml:2: mapping values are not allowed in this context"},
    {"a: \"\n", "mine.yaml:2: found unexpected end of stream"},
    {CHILD "\"a\\nb\": \"x\\e[31m\\u20ac\"\n", "mine.yaml:2: a?b: x?[31m???: unknown field"},
    {CHILD "k: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
     "mine.yaml:2: k: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...: unknown field"},
    {"inherits: h100-hgx\nnic_bytes_per_s: 50\nnic_goodput_bytes_per_s: 47\n",
     "mine.yaml:2: nic_bytes_per_s: 50: at least 1 MB/s, or 0 for no such link; is the unit "
     "right?"},
    {"inherits: h100-hgx\npcie_bytes_per_s: 999999\n",
     "mine.yaml:2: pcie_bytes_per_s: 999999: at least 1 MB/s, or 0 for no such link; is the unit "
     "right?"},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

START_TEST(broken_files_are_refused_by_name)
{
    memset(&machine, 0x5a, sizeof machine);
    const struct fabric_machine before = machine;
    ck_assert_int_eq(PARSE(refusals[_i].text), -1);
    ck_assert_str_eq(err, refusals[_i].want);
    ck_assert_mem_eq(&machine, &before, sizeof machine); /* Written only on success. */
}
END_TEST

START_TEST(an_unknown_preset_lists_the_known)
{
    ck_assert_int_eq(fabric_machine_load("h99", &machine, err, sizeof err), -1);
    TEST_SAYS(err, "machine h99: unknown; there are b200-hgx b300-hgx");
    ck_assert_int_eq(fabric_machine_load(".", &machine, err, sizeof err), -1);
    ck_assert_int_eq(fabric_machine_load("/", &machine, err, sizeof err), -1);
    ck_assert_str_eq(err, "/: Is a directory");
}
END_TEST

START_TEST(large_files_and_bombs_are_refused_soon)
{
    const size_t bytes = FABRIC_YAML_BYTES_MAX;
    char *text = (char *)malloc(bytes + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', bytes + 1);
    ck_assert_int_eq(fabric_machine_parse("big.yaml", text, bytes + 1, &machine, err, sizeof err),
                     -1);
    ck_assert_str_eq(err, "big.yaml:1: larger than 1 MiB");
    const char *units[] = {"[",  "{",  "- ", "\n",   "a: ", "? ",
                           "\"", "a,", "\t", "\xff", "&a ", "k:\n"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const size_t len = strlen(units[u]);
        for (size_t i = 0; i + len <= bytes; i += len) memcpy(text + i, units[u], len);
        ck_assert_int_eq(fabric_machine_parse("bomb.yaml", text, bytes, &machine, err, sizeof err),
                         -1);
    }
    /* Distinct keys, as many as fit: the check for repeated keys must not take for ever. */
    size_t used = 0;
    for (int i = 0; used + 12 < bytes; i++) used += (size_t)sprintf(text + used, "k%d: 1\n", i);
    ck_assert_int_eq(fabric_machine_parse("keys.yaml", text, used, &machine, err, sizeof err), -1);
    ck_assert_str_eq(err, "keys.yaml:16384: more than 16384 values");
    free(text);
}
END_TEST

START_TEST(damaged_files_never_crash)
{
    size_t bytes;
    const char *path = test_tree_path("fabric/machines/h100-hgx.yaml");
    const char *whole = test_read(path, &bytes);
    char *text = (char *)malloc(bytes);
    uint64_t state = (uint64_t)_i + 1;
    for (int n = 0; n < (test_quick() ? 100 : 500); n++) {
        memcpy(text, whole, bytes);
        for (int hits = 0; hits < 4; hits++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            text[(state >> 33) % bytes] = (state >> 20) & 1
                                              ? "{}[]&*!|>'\"%@:-?#,\n 0"[(state >> 24) % 21]
                                              : (char)(state >> 56);
        }
        const int result =
            fabric_machine_parse("damaged.yaml", text, bytes, &machine, err, sizeof err);
        if (result != 0 && (strchr(err, '\n') || strncmp(err, "damaged.yaml:", 13) != 0))
            ck_abort_msg("%s", err);
    }
    free(text);
}
END_TEST

Suite *machine_suite(void)
{
    Suite *suite = suite_create("machine");
    TCase *tcase = tcase_create("machine files");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, presets_hold_the_datasheet_figures);
    tcase_add_test(tcase, every_number_of_a_preset_names_its_file);
    tcase_add_test(tcase, rows_say_from_whom_a_number_comes);
    tcase_add_test(tcase, a_number_is_of_the_kind_that_its_comment_says);
    tcase_add_test(tcase, a_line_rate_alone_takes_its_goodput_along);
    tcase_add_test(tcase, a_line_rate_alone_takes_its_goodput_along);
    tcase_add_test(tcase, a_stack_changes_what_it_lists);
    tcase_add_test(tcase, a_machines_own_number_beats_its_parents_builds);
    tcase_add_test(tcase, a_file_may_inherit_from_a_neighbour);
    tcase_add_test(tcase, a_circle_of_files_ends);
    tcase_add_loop_test(tcase, broken_files_are_refused_by_name, 0, REFUSALS);
    tcase_add_test(tcase, an_unknown_preset_lists_the_known);
    tcase_add_test(tcase, large_files_and_bombs_are_refused_soon);
    tcase_add_loop_test(tcase, damaged_files_never_crash, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
